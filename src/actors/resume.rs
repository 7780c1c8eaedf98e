//! From a checkpoint back to a run.

use std::path::Path;

use candle_core::{Device, Tensor};

use super::checkpoint::{MAX_STATE_BYTES, RUN_STATE, RunState, files};
use super::parameter_bus::Published;
use super::run::{Run, lanes_per_actor};
use super::run_dir::RunDir;
use super::train_error::TrainError;
use crate::codec::{self, CheckpointReader, CodecError, Loaded, tensors_from_bytes};
use crate::config::Config;
use crate::env::Registry;
use crate::policy::{Moments, Policy};
use crate::trajectory::{Amount, Ledger};

/// What a checkpoint brings back.
pub(super) struct Resumed {
    /// Everything but tensors.
    pub(super) state: RunState,
    /// Parameters by name.
    pub(super) parameters: Vec<(String, Tensor)>,
    /// Optimiser state by name.
    pub(super) optimizer: Vec<(String, Tensor)>,
}

/// The newest whole checkpoint.
pub(super) fn newest_whole(reader: &CheckpointReader) -> Result<Option<Loaded>, TrainError> {
    let search = reader.latest_valid()?;
    for torn in &search.torn {
        tracing::warn!("{torn}");
    }
    if search.found.is_none() && !search.torn.is_empty() {
        return Err(TrainError::Checkpoint(format!(
            "none of the {} checkpoints in {} is whole",
            search.torn.len(),
            reader.folder().display()
        )));
    }
    Ok(search.found)
}

/// Reads the newest whole checkpoint of a control run.
pub(super) fn load(reader: &CheckpointReader) -> Result<Option<Resumed>, TrainError> {
    let Some(loaded) = newest_whole(reader)? else { return Ok(None) };
    let tensors = |name| Ok::<_, CodecError>(tensors_from_bytes(loaded.file(name)?, &Device::Cpu)?.tensors);
    Ok(Some(Resumed {
        state: codec::decode(RUN_STATE, loaded.file(files::STATE)?, MAX_STATE_BYTES)?,
        parameters: tensors(files::PARAMETERS)?,
        optimizer: tensors(files::OPTIMIZER)?,
    }))
}

/// A checkpoint continues only under the layout of actors and environments that it was made with.
pub(super) fn check_shape(state: &RunState, config: &Config, environments: usize) -> Result<(), TrainError> {
    let (actors, unroll) = (config.rollout.actors, config.rollout.unroll_length);
    let saved_unroll = state
        .rollouts
        .iter()
        .flatten()
        .flat_map(|rollout| &rollout.lanes)
        .map(|lane| lane.unroll.steps)
        .chain(state.queue.iter().map(|unroll| unroll.steps))
        .find(|&steps| steps != unroll);
    let refuse = |field: &str, saved: usize, now: usize| {
        Err(TrainError::Checkpoint(format!("the checkpoint was made with {field} = {saved}, not {now}")))
    };
    if state.rollouts.len() != actors {
        return refuse("rollout.actors", state.rollouts.len(), actors);
    }
    if state.next_episodes.len() != environments {
        return refuse("rollout.envs_per_actor", state.next_episodes.len() / actors, environments / actors);
    }
    let lanes = lanes_per_actor(config);
    if let Some(saved) =
        state.rollouts.iter().flatten().map(|rollout| rollout.lanes.len()).find(|&n| n != lanes)
    {
        return refuse("lanes for each actor (rollout.inference, rollout.double_buffer)", saved, lanes);
    }
    saved_unroll.map_or(Ok(()), |saved| refuse("rollout.unroll_length", saved, unroll))
}

/// Books what the checkpoint's ledger calls live or buffered but its contents do not bring back (actors that did not
/// answer in time).
pub(super) fn write_off_lost(ledger: &Ledger, state: &RunState) {
    let minus = |total: Amount, kept: Amount| Amount {
        unrolls: total.unrolls.saturating_sub(kept.unrolls),
        steps: total.steps.saturating_sub(kept.steps),
    };
    let rollouts = || state.rollouts.iter().flatten();
    let lanes = rollouts().flat_map(|rollout| &rollout.lanes).filter_map(|lane| lane.live_steps);
    let live = lanes
        .fold(Amount::default(), |sum, steps| Amount { unrolls: sum.unrolls + 1, steps: sum.steps + steps });
    let unrolls = state.queue.iter().chain(rollouts().flat_map(|rollout| &rollout.outbox));
    let buffered = unrolls.fold(Amount::default(), |sum, unroll| Amount {
        unrolls: sum.unrolls + 1,
        steps: sum.steps + unroll.env_steps(),
    });
    ledger.write_off(minus(state.ledger.live, live), minus(state.ledger.buffered, buffered));
}

/// Reads the parameters of the newest whole checkpoint of a run, as a policy to act with.
///
/// # Errors
/// When there is none, or it does not fit the run's configuration.
pub fn load_policy(
    run_dir: &Path,
    config: &Config,
    registry: &Registry,
) -> Result<(Policy, Published), TrainError> {
    let spec = Run::make_env(registry, config)?.spec().clone();
    let resumed = load(&CheckpointReader::new(run_dir.join(RunDir::CHECKPOINTS)))?
        .ok_or_else(|| TrainError::Checkpoint(format!("no checkpoint in {}", run_dir.display())))?;
    let policy = Policy::new(&config.policy, &spec);
    let parameters = policy
        .layout()
        .adopt(resumed.parameters, &Device::Cpu)
        .map_err(|error| TrainError::Checkpoint(error.to_string()))?;
    let state = resumed.state.learner;
    let normalizer = state.observations.as_ref().map(Moments::normalizer);
    Ok((policy, Published { version: state.version, parameters, normalizer }))
}
