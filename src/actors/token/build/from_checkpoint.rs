//! What a checkpoint of a token run holds, and how a run goes on from it: with the settings that it was made with, where
//! what it holds depends on them, and with books that write off what it does not bring back.

use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};

use super::new_learner;
use crate::actors::checkpoint::{MAX_STATE_BYTES, files};
use crate::actors::parameter_bus::Published;
use crate::actors::resume::newest_whole;
use crate::actors::run_dir::RunDir;
use crate::actors::token::checkpoint::{TOKEN_RUN_STATE, TokenRunState, files as own_files};
use crate::actors::token::critic::ValueFunction;
use crate::actors::token::decoder_file::DecoderFile;
use crate::actors::token::frozen;
use crate::actors::token::language_model::LanguageModel;
use crate::actors::token::plane::OpenSnapshot;
use crate::actors::train_error::TrainError;
use crate::codec::{self, CheckpointReader, CodecError, tensors_from_bytes};
use crate::config::TokenConfig;
use crate::learner::token::{Keep, TokenLearner, TokenLearnerConfig};
use crate::policy::Parameters;
use crate::trajectory::{Amount, BufferedTicket, DropReason, Ledger, Trajectory, Version};

/// A checkpoint's content.
pub(in crate::actors::token) struct TokenCheckpoint {
    /// Everything but tensors.
    pub(in crate::actors::token) state: TokenRunState,
    /// Parameters that are trained, by name.
    pub(in crate::actors::token) parameters: Vec<(String, Tensor)>,
    optimizer: Vec<(String, Tensor)>,
    reference: Option<Vec<(String, Tensor)>>,
    /// A critic with a trunk of its own, and the state of its optimiser.
    critic: Option<(ValueFunction, Vec<(String, Tensor)>)>,
    /// Older versions that are still generated with, the latest first.
    pub(super) older: Vec<(Version, Vec<(String, Tensor)>)>,
}

/// Reads the newest whole checkpoint of a token run; a critic that it holds goes to `device`, all else is in host
/// memory.
pub(in crate::actors::token) fn load(
    reader: &CheckpointReader,
    device: &Device,
) -> Result<Option<TokenCheckpoint>, TrainError> {
    let Some(loaded) = newest_whole(reader)? else { return Ok(None) };
    let tensors =
        |name: &str| Ok::<_, CodecError>(tensors_from_bytes(loaded.file(name)?, &Device::Cpu)?.tensors);
    let state: TokenRunState = codec::decode(TOKEN_RUN_STATE, loaded.file(files::STATE)?, MAX_STATE_BYTES)?;
    let versions = state.older_versions.iter();
    let older = versions.map(|&version| Ok((version, tensors(&own_files::older(version))?)));
    let critic = match loaded.file(own_files::CRITIC) {
        Err(_) => None,
        Ok(bytes) => {
            let file = DecoderFile::from_bytes(bytes).and_then(|file| ValueFunction::of_file(file, device));
            Some((file.map_err(|error| misfit(&error))?, tensors(own_files::CRITIC_OPTIMIZER)?))
        }
    };
    Ok(Some(TokenCheckpoint {
        critic,
        older: older.collect::<Result<_, CodecError>>()?,
        state,
        parameters: tensors(files::PARAMETERS)?,
        optimizer: tensors(files::OPTIMIZER)?,
        reference: tensors(own_files::REFERENCE).ok(),
    }))
}

fn misfit(error: &dyn std::fmt::Display) -> TrainError {
    TrainError::Checkpoint(error.to_string())
}

/// A checkpoint continues only with the trained parameters and adapters that it was made with.
fn check_trained(
    config: &TokenConfig,
    model: &LanguageModel,
    trained: &[(String, Tensor)],
    run_dir: &Path,
) -> Result<(), TrainError> {
    let names = model.decoder.layout().names();
    let now: Vec<&str> = names.filter(|name| model.decoder.is_trained(name, &config.model.frozen)).collect();
    let same = now.iter().copied().eq(trained.iter().map(|(name, _)| name.as_str()));
    if same && LanguageModel::adapters_of_run(run_dir)?.as_ref() == model.decoder.adapters() {
        return Ok(());
    }
    Err(misfit(
        &"the checkpoint was made with another model, or with other model.adapters, model.frozen or learner.critic.trunk",
    ))
}

/// Groups of a checkpoint are learned from together with those to come, and so have to be made alike.
fn check_group_sizes(config: &TokenLearnerConfig, state: &TokenRunState) -> Result<(), TrainError> {
    let mut standing = state.plane.standing().map(|standing| standing.group.members.len());
    if config.keep == Keep::All {
        let mut sizes = standing.chain(state.plane.open.iter().map(|open| open.seats.len()));
        let now = config.group_size;
        if let Some(saved) = sizes.find(|&saved| saved != now) {
            let why = format!(
                "the checkpoint was made with learner.group_size = {saved}, not {now}, or with another learner.keep"
            );
            return Err(TrainError::Checkpoint(why));
        }
    } else if standing.any(|members| members > 2) {
        let why = "the checkpoint was made with learner.keep = \"all\": take that, or begin a new run";
        return Err(TrainError::Checkpoint(why.into()));
    }
    Ok(())
}

/// The learner and the state that a checkpoint holds.
pub(super) fn resumed(
    config: &TokenConfig,
    model: &LanguageModel,
    given: Option<ValueFunction>,
    checkpoint: TokenCheckpoint,
    run_dir: &Path,
) -> Result<(TokenLearner, TokenRunState), TrainError> {
    let TokenCheckpoint { state, parameters, optimizer, reference, critic, older: _ } = checkpoint;
    // Before reinforcement learning begins there may be none yet.
    let fits = match (config.learner.has_separate_critic(), state.journal.started) {
        (true, started) => critic.is_some() || !started,
        (false, _) => critic.is_none(),
    };
    if !fits {
        return Err(misfit(
            &"the checkpoint was made with another learner.critic.trunk or learner.advantage",
        ));
    }
    check_trained(config, model, &parameters, run_dir)?;
    let all = parameters.into_iter().chain(frozen::read(run_dir)?).collect();
    let (layout, device) = (model.decoder.layout(), model.decoder.device());
    let parameters = layout.adopt(all, device).map_err(|error| misfit(&error))?;
    check_group_sizes(&config.learner, &state)?;
    if state.plane.scheduler.settings() != &config.flow()? {
        return Err(TrainError::Checkpoint(
            "the checkpoint was made with another schedule, learner.prompts, learner.max_lag or learner.forced_lag"
                .into(),
        ));
    }
    let mut learner = new_learner(config, model, &parameters, state.learner.clone())?;
    learner.optimizer().load_state(&optimizer).map_err(|error| misfit(&error))?;
    match (critic, given) {
        (Some((critic, optimizer)), _) => {
            config.check_critic(&critic.decoder)?;
            learner.set_critic(critic.decoder, &critic.parameters)?;
            if let Some(critic) = learner.critic_mut() {
                let loaded = critic.optimizer().load_state(&optimizer);
                loaded.map_err(|error| misfit(&format!("the critic's optimiser: {error}")))?;
            }
        }
        (None, Some(given)) => learner.set_critic(given.decoder, &given.parameters)?,
        (None, None) => {}
    }
    if let Some(reference) = reference {
        let reference = learner.parameters().snapshot_with(reference).map_err(|error| misfit(&error))?;
        learner.set_reference(reference);
    }
    Ok((learner, state))
}

/// Versions before the newest that generation still uses.
pub(super) fn older_versions(
    learner: &TokenLearner,
    older: Vec<(Version, Vec<(String, Tensor)>)>,
) -> Result<Vec<Arc<Published>>, TrainError> {
    let older = older.into_iter().map(|(version, tensors)| {
        let parameters = learner.parameters().snapshot_with(tensors).map_err(|error| misfit(&error))?;
        Ok(Arc::new(Published { version, parameters, normalizer: None }))
    });
    older.collect()
}

/// The ticket of a trajectory that had ended when a checkpoint was taken.
pub(super) fn adopted(ledger: &Ledger, trajectory: &Trajectory) -> BufferedTicket {
    let ticket = ledger.adopt_buffered(trajectory.tokens.len() as u64);
    if trajectory.reward.is_some() { ticket } else { ticket.useless(DropReason::GradingFailed) }
}

/// Books what the checkpoint's ledger calls live or buffered but its contents do not bring back.
pub(super) fn write_off_lost(ledger: &Ledger, state: &TokenRunState) {
    let minus = |total: Amount, kept: Amount| Amount {
        unrolls: total.unrolls.saturating_sub(kept.unrolls),
        steps: total.steps.saturating_sub(kept.steps),
    };
    let sum = |trajectories: &mut dyn Iterator<Item = &Trajectory>| {
        trajectories.fold(Amount::default(), |sum, trajectory| Amount {
            unrolls: sum.unrolls + 1,
            steps: sum.steps + trajectory.tokens.len() as u64,
        })
    };
    let open = &state.plane.open;
    let live = sum(&mut open.iter().flat_map(OpenSnapshot::begun));
    let standing = state.plane.standing().flat_map(|standing| &standing.group.members);
    let buffered = sum(&mut standing.chain(open.iter().flat_map(OpenSnapshot::ended)));
    ledger.write_off(minus(state.ledger.live, live), minus(state.ledger.buffered, buffered));
}

/// The parameters of the newest whole checkpoint of a token run, as a published version on the model's device.
///
/// # Errors
/// When there is none, or it does not fit the model.
pub fn load_token_parameters(
    run_dir: &Path,
    model: &LanguageModel,
) -> Result<(Version, Parameters), TrainError> {
    let reader = CheckpointReader::new(run_dir.join(RunDir::CHECKPOINTS));
    let checkpoint = load(&reader, model.decoder.device())?
        .ok_or_else(|| TrainError::Checkpoint(format!("no checkpoint in {}", run_dir.display())))?;
    let parameters = adopt_trained(run_dir, model, checkpoint.parameters)?;
    Ok((checkpoint.state.learner.version, parameters))
}

/// The parameters that a checkpoint holds, with those of the run that are not trained.
///
/// # Errors
/// When they do not fit the model.
pub(in crate::actors::token) fn adopt_trained(
    run_dir: &Path,
    model: &LanguageModel,
    trained: Vec<(String, Tensor)>,
) -> Result<Parameters, TrainError> {
    let all = trained.into_iter().chain(frozen::read(run_dir)?).collect();
    let decoder = &model.decoder;
    let adopt = || decoder.layout().adopt(all, decoder.device())?.to_variables_where(|_| false);
    // Nothing of it is trained here, so that weights are laid out once.
    let (_, parameters) = adopt().map_err(|error| misfit(&error))?;
    Ok(parameters)
}
