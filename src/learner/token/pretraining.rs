//! Training a critic on stored answers before reinforcement learning: passes over a corpus, and how well the values
//! fit answers that were held out.
//!
//! Targets are those of a run: the reward of the answer after shaping, discounted to each of its action tokens. A batch goes through
//! the critic as an update's does, so that a critic that is pretrained longer is one that has seen more batches.

use super::advantage::RubricGrading;
use super::applied::explained_variance;
use super::critic::Critic;
use super::flat::{Flat, LossMask};
use super::group_rewards::GroupRewards;
use super::settings::TokenLearnerConfig;
use super::update::{Stopped, estimate};
use crate::learner::LearnerError;
use crate::learner::advantage::SkipObservationGaeConfig;
use crate::random::{Stream, draw};
use crate::trajectory::{Group, Version};

/// Last counter of the draws that order the groups of a pass; those of updates have 1 and 2.
const CORPUS_ORDER: u32 = 3;

/// How well values fit their targets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ValueFit {
    /// Action tokens that were learned from, or looked at.
    pub tokens: usize,
    /// Half the mean squared error.
    pub loss: f64,
    /// Fraction of the targets' variance that the values explain; `None` when the targets are all alike.
    pub explained_variance: Option<f64>,
}

/// See the module's documentation.
pub struct ValuePretraining {
    critic: Critic,
    config: TokenLearnerConfig,
    advantage: SkipObservationGaeConfig,
    seed: u64,
    passes: u32,
}

impl ValuePretraining {
    /// Begins with a critic that has learned nothing. Of `config`, `prompts` is the number of groups of a step.
    #[must_use]
    pub fn new(
        config: TokenLearnerConfig,
        advantage: SkipObservationGaeConfig,
        critic: Critic,
        seed: u64,
    ) -> Self {
        Self { critic, config, advantage, seed, passes: 0 }
    }

    /// The critic.
    #[must_use]
    pub fn critic(&self) -> &Critic {
        &self.critic
    }

    /// Steps of a pass over so many groups.
    #[must_use]
    pub fn steps(&self, groups: usize) -> usize {
        groups.div_ceil(self.config.prompts.max(1))
    }

    /// Arrays of some groups with values and their targets.
    fn targets(&self, groups: &[&Group]) -> Result<Flat, LearnerError> {
        // Stored answers are of no age.
        let mask = LossMask { without_truncated: self.config.mask_truncated, ..LossMask::default() };
        let mut flat = Flat::new(groups, mask);
        // Those that an update would learn from, before the first one. A rubric compares groups, and has no values.
        let rewards =
            |group: &&Group| GroupRewards::of(&self.config, group, RubricGrading::Grs, Version::default());
        let shaped = groups.iter().map(rewards).collect::<Result<Vec<_>, _>>()?;
        flat.rewards = shaped.iter().flat_map(GroupRewards::rewards).collect();
        flat.values = self.critic.values(groups, &flat, &|| false)?.unwrap_or_default();
        let (bootstrap, costs) = (self.config.critic.bootstrap_truncated, vec![0.0; flat.tokens()]);
        estimate(&self.advantage, bootstrap, groups, &costs, &mut flat)?;
        Ok(flat)
    }

    /// How well the critic fits some groups.
    ///
    /// # Errors
    /// When a computation fails.
    pub fn fit(&self, groups: &[Group]) -> Result<ValueFit, LearnerError> {
        let mut pairs: Vec<(f32, f32)> = Vec::new();
        for batch in groups.chunks(self.config.prompts.max(1)) {
            let batch: Vec<&Group> = batch.iter().collect();
            let flat = self.targets(&batch)?;
            let all = flat.values.iter().copied().zip(flat.value_targets.iter().copied());
            pairs.extend(all.zip(&flat.mask).filter(|(_, mask)| **mask).map(|(pair, _)| pair));
        }
        let squares = pairs.iter().map(|(value, target)| f64::from(target - value).powi(2));
        Ok(ValueFit {
            tokens: pairs.len(),
            loss: 0.5 * squares.sum::<f64>() / pairs.len().max(1) as f64,
            explained_variance: explained_variance(pairs.iter().copied()),
        })
    }

    /// One pass over some groups in a random order, a step for each batch; gives the mean loss of its steps.
    /// `learning_rate` is asked with the steps made before, and `watch` told of each step's loss; it says whether to go
    /// on.
    ///
    /// # Errors
    /// When a loss or gradient is not finite, or a computation fails.
    pub fn pass(
        &mut self,
        groups: &[Group],
        learning_rate: &(dyn Fn(u64) -> f64 + Sync),
        watch: &mut (dyn FnMut(u64, f64) -> bool + Send),
    ) -> Result<f64, LearnerError> {
        let mut order: Vec<usize> = (0..groups.len()).collect();
        let pass = self.passes;
        order.sort_by_cached_key(|&group| {
            draw(self.seed, Stream::Minibatch, [pass, 0, group as u32, CORPUS_ORDER])
        });
        self.passes += 1;
        let mut losses = Vec::new();
        for part in order.chunks(self.config.prompts.max(1)) {
            let batch: Vec<&Group> = part.iter().map(|&group| &groups[group]).collect();
            let flat = self.targets(&batch)?;
            if !flat.mask.contains(&true) {
                continue;
            }
            let made = self.critic.optimizer().updates();
            let step = self.critic.step(&batch, &flat, learning_rate(made), false, &|| false)?;
            match step {
                Ok(step) => losses.push(step.loss),
                Err(Stopped::NotFinite(culprit)) => {
                    return Err(LearnerError::NotFinite { culprit, updates: 1 });
                }
                Err(Stopped::Abandoned) => {}
            }
            if !watch(made + 1, losses.last().copied().unwrap_or_default()) {
                break;
            }
        }
        Ok(losses.iter().sum::<f64>() / losses.len().max(1) as f64)
    }
}
