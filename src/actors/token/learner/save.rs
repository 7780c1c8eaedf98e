//! A token run's checkpoints.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::Tensor;

use super::TokenLearnerRole;
use crate::actors::checkpoint::files;
use crate::actors::faults::FaultKind;
use crate::actors::role::{Learning, RoleError};
use crate::actors::token::checkpoint::{TOKEN_RUN_STATE, TokenRunState, files as own_files};
use crate::actors::token::critic;
use crate::actors::token::generator::GeneratorSnapshot;
use crate::codec;
use crate::learner::LearnerError;
use crate::policy::Parameters;

impl Learning for TokenLearnerRole {
    type Snapshot = GeneratorSnapshot;

    fn save(&mut self, snapshots: Vec<Option<GeneratorSnapshot>>) -> Result<(), RoleError> {
        let version = self.learner.version();
        let failed =
            |error: &dyn std::fmt::Display| RoleError::Files(format!("checkpoint {version}: {error}"));
        let begun = snapshots.into_iter().flatten().flat_map(|snapshot| snapshot.begun).collect();
        let plane = self.run.plane.snapshot(begun, self.batch.as_deref().unwrap_or_default());
        let older = self.run.plane.older_versions();
        let state = TokenRunState {
            older_versions: older.iter().map(|published| published.version).collect(),
            learner: self.learner.state().clone(),
            journal: self.journal.clone(),
            metrics: self.recorder.position().map_err(|e| failed(&e))?,
            samples: self.samples.position().map_err(|e| failed(&e))?,
            ledger: self.run.ledger.snapshot(),
            plane,
            balance: self.balancer.balance,
        };
        let tensors = |named: &[(String, Tensor)]| {
            codec::tensors_to_bytes(named, &BTreeMap::new()).map_err(|e| failed(&e))
        };
        let optimizer = self.learner.optimizer().state().map_err(LearnerError::from)?;
        // What is not trained is in the run directory once, for all checkpoints.
        let trained = |parameters: &Parameters| self.learner.trained_of(parameters);
        let mut contents = vec![
            (files::STATE.to_owned(), codec::encode(TOKEN_RUN_STATE, &state).map_err(|e| failed(&e))?),
            (files::PARAMETERS.to_owned(), tensors(&self.learner.trained())?),
            (files::OPTIMIZER.to_owned(), tensors(&optimizer)?),
        ];
        if let Some(reference) = self.learner.reference() {
            contents.push((own_files::REFERENCE.to_owned(), tensors(&trained(reference))?));
        }
        for published in &older {
            let name = own_files::older(published.version);
            contents.push((name, tensors(&trained(&published.parameters))?));
        }
        if let Some(critic) = self.learner.critic_mut() {
            let optimizer = critic.optimizer().state().map_err(LearnerError::from)?;
            let critic = critic::to_bytes(critic).map_err(|e| failed(&e))?;
            contents.push((own_files::CRITIC.to_owned(), critic));
            contents.push((own_files::CRITIC_OPTIMIZER.to_owned(), tensors(&optimizer)?));
        }
        let best = self.run.config.checkpoint.best && self.journal.rewards.is_best();
        let written = self.store.write(version.0, &contents, best).map_err(|e| failed(&e))?;
        self.kill_if(FaultKind::KillSaving);
        written.put_in_place().map_err(|e| failed(&e))?;
        self.last_checkpoint = (version, Instant::now());
        Ok(())
    }

    fn checkpoint_due(&self) -> bool {
        let (version, instant) = self.last_checkpoint;
        let updates = self.learner.version().lag_of(version);
        self.run.config.checkpoint.is_due(updates, instant.elapsed().as_secs_f64())
    }

    fn complete(&self) -> Option<&str> {
        self.complete.as_deref()
    }
}
