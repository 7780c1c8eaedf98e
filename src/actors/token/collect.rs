//! Collecting a corpus: graded answers to training problems under one version, for pretraining a critic.
//!
//! Invariants: the policy is the one that a run with the same configuration begins reinforcement learning with (after
//! its warm-up), or that of a run's newest checkpoint; the problems are training problems, and neither they (where the
//! task makes them without end) nor the random draws are those of a run, so that a critic is not examined on what it
//! was trained on; the corpus is a function of the configuration alone.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;

use super::answers::{Answered, Answers};
use super::build::load_token_parameters;
use super::corpus::{CorpusDescription, CorpusError, CorpusWriter};
use super::decoder_file::DecoderFile;
use super::demonstrations::Demonstrations;
use super::efforts::asked as asked_at;
use super::evaluation::Examinee;
use super::language_model::LanguageModel;
use super::warmup::warm_up;
use crate::actors::devices;
use crate::actors::train_error::TrainError;
use crate::config::TokenConfig;
use crate::env::task::{PromptPosition, Prompts, Split, Task, TaskRegistry};
use crate::generate::Weights;
use crate::learner::LearnerError;
use crate::learner::token::{TokenLearner, TokenLearnerState};
use crate::ops::with_threads;
use crate::policy::Parameters;
use crate::trajectory::{Group, Trajectory, TrajectoryId, Version};

/// First pass and, of a task without end, first problem of a corpus: no run gets so far.
const FAR: u32 = 1 << 31;
/// Problems that may be passed over one after another because their prompts are too long.
const MOST_PASSED_OVER: usize = 10_000;

/// What to collect, and where to.
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// The folder; must not exist, or be empty.
    pub out: PathBuf,
    /// Answers at least; whole groups are collected.
    pub trajectories: u64,
}

/// Whose answers.
#[derive(Debug, Clone)]
pub enum Policy {
    /// The one that a run with the configuration begins reinforcement learning with.
    OfConfiguration,
    /// That of the newest checkpoint in this run directory.
    OfRun(PathBuf),
}

/// What was collected.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// Updates of the warm-up that came first.
    pub warmup_updates: u64,
    /// The corpus.
    pub corpus: CorpusDescription,
}

/// Collects a corpus on the learner's device. `watch` is told of the answers so far.
///
/// # Errors
/// When the settings cannot work, the policy cannot be had, or generation or the file system fails; a folder without a
/// description is then left, which nobody takes for a corpus.
pub fn collect(
    config: &TokenConfig,
    policy: &Policy,
    registry: &TaskRegistry,
    options: &CollectOptions,
    watch: &mut (dyn FnMut(u64) + Send),
) -> Result<Collected, TrainError> {
    config.check(registry)?;
    let device = devices::open(&config.devices.learner)?.device;
    let task = config.make_task(registry)?;
    let mut prompts = Prompts::new(task.len(Split::Train), config.task.shuffle, config.seed)
        .map_err(|error| TrainError::Task(error.to_string()))?;
    let (model, version, parameters, warmup_updates) = match policy {
        Policy::OfRun(run) => of_run(run, &device)?,
        Policy::OfConfiguration => of_configuration(config, &task, &prompts, &device)?,
    };
    if task.len(Split::Train).is_none() {
        let position = PromptPosition { epoch: 0, taken: FAR, len: None };
        prompts.resume(position).map_err(|error| TrainError::Task(error.to_string()))?;
    }
    let mut writer =
        CorpusWriter::create(&options.out, config.task.name.clone(), version, config.generate.temperature)?;
    model.save_description(&options.out)?;
    // A configuration says how a policy begins, not what a warm-up or a run made of it.
    if warmup_updates > 0 || matches!(policy, Policy::OfRun(_)) {
        let file = DecoderFile::new(&model.decoder, &parameters).map_err(LearnerError::from)?;
        writer.put_policy(&file)?;
    }
    let placed = parameters.placed(model.decoder.device(), model.decoder.dtype(), None);
    let parameters = placed.map_err(LearnerError::from)?.parameters;
    let mut weights = Weights::new(Arc::new(parameters), version);
    if config.generate.bf16_weights {
        weights = weights.rounded_to_bf16(&model.decoder).map_err(LearnerError::from)?;
    }
    let examinee = Examinee {
        task,
        stops: model.stops(&config.generate.stop),
        tokenizer: Arc::clone(&model.tokenizer),
        decoder: Arc::clone(&model.decoder),
        engine: config.generate.engine.clone(),
        max_new_tokens: config.generate.max_new_tokens,
        efforts: config.learner.efforts.clone(),
        seed: config.seed,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(config.generate.threads).build();
    let pool = pool.map_err(LearnerError::Threads)?;
    let mut keep = |group: Group| -> Result<bool, CorpusError> {
        writer.push(&group)?;
        watch(writer.trajectories());
        Ok(writer.trajectories() >= options.trajectories)
    };
    let group_size = config.learner.group_size as u16;
    let answers = Answers::new(&examinee, weights, config.generate.sampling()).map_err(TrainError::Task)?;
    with_threads(&pool, || answer(answers, &examinee, prompts, group_size, &mut keep))?;
    Ok(Collected { warmup_updates, corpus: writer.finish()? })
}

type Found = (LanguageModel, Version, Parameters, u64);

fn of_run(run: &Path, device: &Device) -> Result<Found, TrainError> {
    let model = LanguageModel::of_run(run, device)?;
    let (version, parameters) = load_token_parameters(run, &model)?;
    Ok((model, version, parameters, 0))
}

fn of_configuration(
    config: &TokenConfig,
    task: &Arc<dyn Task>,
    prompts: &Prompts,
    device: &Device,
) -> Result<Found, TrainError> {
    let mut model = LanguageModel::open(config, &**task, device)?;
    config.check_model(&model, &**task)?;
    let parameters = model.initial_parameters(config.seed).map_err(LearnerError::from)?;
    if config.warmup.updates == 0 {
        return Ok((model, Version(0), parameters, 0));
    }
    let (decoder, frozen) = (Arc::clone(&model.decoder), &config.model.frozen);
    let (temperature, state) = (f64::from(config.generate.temperature), TokenLearnerState::default());
    let settings = config.learner.clone();
    let mut learner =
        TokenLearner::new(settings, config.seed, decoder, &parameters, frozen, temperature, state)?;
    let (tokenizer, context) = (Arc::clone(&model.tokenizer), model.decoder.config().context);
    let settings = config.learner.clone();
    let demonstrations = Demonstrations::new(Arc::clone(task), tokenizer, context, settings, prompts.clone());
    let made = warm_up(&config.warmup, &mut learner, demonstrations)?;
    let parameters = learner.parameters().snapshot().map_err(LearnerError::from)?;
    Ok((model, Version(0), parameters, made))
}

/// Answers problems until `keep` says that there is enough. Groups are kept in the order of their problems.
fn answer(
    mut answers: Answers<'_>,
    examinee: &Examinee,
    mut prompts: Prompts,
    group_size: u16,
    keep: &mut (dyn FnMut(Group) -> Result<bool, CorpusError> + Send),
) -> Result<(), TrainError> {
    let mut asked: VecDeque<Group> = VecDeque::new();
    let mut done: BTreeMap<TrajectoryId, Trajectory> = BTreeMap::new();
    let mut passed_over = 0;
    loop {
        while answers.has_room() {
            let (epoch, index) = prompts.next();
            let problem = examinee.task.problem(Split::Train, index);
            let problem = problem.map_err(|error| TrainError::Task(error.to_string()))?;
            let ways = asked_at(&problem, &examinee.efforts, &examinee.tokenizer)
                .map_err(|error| TrainError::Task(error.to_string()))?;
            let context = examinee.decoder.config().context;
            if ways.iter().any(|way| way.prompt.is_empty() || way.prompt.len() >= context) {
                passed_over += 1;
                if passed_over > MOST_PASSED_OVER {
                    let why = "no prompt leaves room in the model's context; raise model.context";
                    return Err(TrainError::Task(why.into()));
                }
                continue;
            }
            passed_over = 0;
            let (epoch, source) = (FAR | epoch, Arc::clone(&problem.source));
            for (member, way) in (0..group_size).zip(ways.iter().cycle()) {
                let id = TrajectoryId { epoch, prompt: index, member, attempt: 0 };
                let (problem, prompt) = (Arc::clone(&way.problem), Arc::clone(&way.prompt));
                answers.ask(problem, prompt, id).map_err(TrainError::Task)?;
            }
            let budget = problem.budget();
            asked.push_back(Group { epoch, prompt: index, source, budget, members: Vec::new() });
        }
        for Answered { mut trajectory, reward, .. } in answers.step().map_err(TrainError::Task)? {
            trajectory.reward = reward;
            done.insert(trajectory.id, trajectory);
        }
        while let Some(first) = asked.front() {
            let id = |member| TrajectoryId { epoch: first.epoch, prompt: first.prompt, member, attempt: 0 };
            if !(0..group_size).all(|member| done.contains_key(&id(member))) {
                break;
            }
            let members = (0..group_size).filter_map(|member| done.remove(&id(member))).collect();
            if let Some(group) = asked.pop_front()
                && keep(Group { members, ..group })?
            {
                return Ok(());
            }
        }
    }
}
