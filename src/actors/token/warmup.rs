//! The supervised warm-up before reinforcement learning: its learning rate, when it is over, and the whole of it in one
//! go for those who want the policy that a run begins with.

use super::demonstrations::Demonstrations;
use super::journal::TokenJournal;
use crate::actors::train_error::TrainError;
use crate::config::WarmupConfig;
use crate::learner::schedule::Progress;
use crate::learner::token::{TokenLearner, TokenOutcome};

impl WarmupConfig {
    /// Whether there is more to imitate, by what the journal remembers of it.
    pub(super) fn goes_on(&self, journal: &TokenJournal) -> bool {
        let losses = &journal.warmup_losses;
        let loss = losses.mean().filter(|_| losses.window_is_full());
        let knows_enough = self.target_loss.zip(loss).is_some_and(|(target, loss)| loss <= target);
        journal.warmup < self.updates && !knows_enough
    }

    /// The learning rate after so many of its updates: it falls to a tenth, so that the last ones settle.
    pub(super) fn rate(&self, made: u64) -> f64 {
        self.learning_rate * (1.0 - 0.9 * Progress::new(made, Some(self.updates)).fraction())
    }
}

/// All of a warm-up, as a run with these settings makes it; gives the number of its updates.
///
/// # Errors
/// When there is nothing to imitate or an update fails.
pub(super) fn warm_up(
    config: &WarmupConfig,
    learner: &mut TokenLearner,
    mut demonstrations: Demonstrations,
) -> Result<u64, TrainError> {
    let mut journal = TokenJournal::default();
    while config.goes_on(&journal) {
        let batch = demonstrations.batch(journal.warmup, config.batch).map_err(TrainError::Task)?;
        if let TokenOutcome::Applied(applied) = learner.imitate(&batch, config.rate(journal.warmup))? {
            journal.warmup_losses.push(applied.loss);
        }
        journal.warmup += 1;
    }
    Ok(journal.warmup)
}
