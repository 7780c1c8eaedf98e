//! Pretraining a critic on a corpus, as a folder that `learner.critic.path` may name.
//!
//! The last part of the corpus is held out: how well values fit it says what the critic knows. It is the same part
//! however many of the other answers are used, so that corpora of different sizes can be compared.

use std::path::{Path, PathBuf};

use candle_core::Device;
use serde::{Deserialize, Serialize};

use super::corpus::{Corpus, CorpusError};
use super::critic::{ValueFunction, same_tokens, write};
use super::language_model::LanguageModel;
use crate::actors::devices;
use crate::actors::train_error::TrainError;
use crate::codec::write_atomically;
use crate::config::{Contradiction, TokenConfig};
use crate::env::task::TaskRegistry;
use crate::learner::LearnerError;
use crate::learner::schedule::Progress;
use crate::learner::token::{Critic, ValueFit, ValuePretraining};
use crate::ops::with_threads;
use crate::policy::Decoder;
use crate::trajectory::Group;

/// Name of the figures in the critic's folder.
const FIGURES: &str = "pretraining.json";

/// What to train on, for how long, and where to.
#[derive(Debug, Clone)]
pub struct PretrainOptions {
    /// The corpus.
    pub corpus: PathBuf,
    /// The critic's folder; must not exist, or be empty.
    pub out: PathBuf,
    /// Passes over the answers that are trained on.
    pub epochs: u32,
    /// Fraction of the corpus that is held out, between 0 and 1.
    pub held_out: f64,
    /// Answers to train on; absent: all that are not held out. Whole groups are taken.
    pub trajectories: Option<usize>,
}

/// What pretraining came to; also in `pretraining.json` of the critic's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pretraining {
    /// Answers that were trained on.
    pub trajectories: usize,
    /// Answers that were held out.
    pub held_out: usize,
    /// Steps of the optimiser.
    pub steps: u64,
    /// Explained variance of the answers that were held out, before.
    pub explained_variance_before: Option<f64>,
    /// The same, after.
    pub explained_variance: Option<f64>,
    /// Half the mean squared error of the values of the answers that were held out, before.
    pub loss_before: f64,
    /// The same, after.
    pub loss: f64,
}

/// Trains a critic on a corpus, on the learner's device, and writes it. `watch` is told of each step and its loss;
/// steps in all are known.
///
/// # Errors
/// When the settings cannot work, the corpus or what the critic begins as cannot be used, or training or the file system
/// fails.
pub fn pretrain_value(
    config: &TokenConfig,
    registry: &TaskRegistry,
    options: &PretrainOptions,
    watch: &mut (dyn FnMut(u64, u64, f64) + Send),
) -> Result<Pretraining, TrainError> {
    config.check(registry)?;
    let device = devices::open(&config.devices.learner)?.device;
    let Some(advantage) = config.learner.advantage.on_policy_values() else {
        return Err(contradiction("learner.advantage", "pretraining needs an advantage with values").into());
    };
    if !config.learner.has_separate_critic() {
        let why = "pretraining is of a critic with a trunk of its own; set \"separate\"";
        return Err(contradiction("learner.critic.trunk", why).into());
    }
    if !(options.held_out > 0.0 && options.held_out < 1.0) || options.epochs == 0 {
        let why = "the fraction that is held out must lie between 0 and 1, and epochs be at least 1";
        return Err(TrainError::Task(why.into()));
    }
    if std::fs::read_dir(&options.out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CorpusError::NotEmpty { path: options.out.clone() }.into());
    }
    let corpus = Corpus::open(&options.corpus)?;
    let mut model = LanguageModel::open(config, &*config.make_task(registry)?, &device)?;
    let of_corpus = LanguageModel::of_run(&options.corpus, &Device::Cpu)?;
    if !same_tokens(&of_corpus.tokenizer, &model.tokenizer) {
        return Err(TrainError::Model(format!(
            "the corpus {} was written in other tokens than the model's; collect it with this configuration",
            options.corpus.display()
        )));
    }
    let begun = begin(config, &corpus, &mut model)?;
    let critic = Critic::new(&config.learner, begun.decoder, &begun.parameters)?;
    let (train, held_out) = split(corpus.groups()?, options)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(config.learner.threads).build();
    let pool = pool.map_err(LearnerError::Threads)?;
    let mut pretraining = ValuePretraining::new(config.learner.clone(), advantage, critic, config.seed);
    let steps = pretraining.steps(train.len()) as u64 * u64::from(options.epochs);
    let schedule = config.learner.critic_schedule();
    let (before, after) = with_threads(&pool, || -> Result<(ValueFit, ValueFit), LearnerError> {
        let before = pretraining.fit(&held_out)?;
        let rate = |made: u64| schedule.at(made, Progress::new(made, Some(steps)));
        let mut told = |made: u64, loss: f64| {
            watch(made, steps, loss);
            true
        };
        for _ in 0..options.epochs {
            pretraining.pass(&train, &rate, &mut told)?;
        }
        Ok((before, pretraining.fit(&held_out)?))
    })?;
    let answers = |groups: &[Group]| groups.iter().map(|group| group.members.len()).sum();
    let found = Pretraining {
        trajectories: answers(&train),
        held_out: answers(&held_out),
        steps,
        explained_variance_before: before.explained_variance,
        explained_variance: after.explained_variance,
        loss_before: before.loss,
        loss: after.loss,
    };
    save(&options.out, &found, pretraining.critic(), &model)?;
    Ok(found)
}

fn contradiction(field: &str, why: &str) -> Contradiction {
    Contradiction { fields: vec![field.into()], why: why.into() }
}

/// What the critic begins as: `learner.critic.path`, or the policy that answered.
fn begin(
    config: &TokenConfig,
    corpus: &Corpus,
    model: &mut LanguageModel,
) -> Result<ValueFunction, TrainError> {
    if let Some(given) = ValueFunction::open(config, model)? {
        return Ok(given);
    }
    let begun = if let Some(file) = corpus.policy().map_err(TrainError::Model)? {
        let decoder = Decoder::new(file.shape, model.decoder.device()).map_err(LearnerError::from)?;
        let parameters = decoder.layout().adopt(file.parameters, model.decoder.device());
        ValueFunction::of_trunk(&decoder, &parameters.map_err(LearnerError::from)?)
    } else {
        let parameters = model.initial_parameters(config.seed).map_err(LearnerError::from)?;
        ValueFunction::of_trunk(&model.decoder, &parameters)
    };
    let begun = begun.map_err(LearnerError::from)?;
    config.check_critic(&begun.decoder)?;
    Ok(begun)
}

/// What is trained on and what is held out.
fn split(mut groups: Vec<Group>, options: &PretrainOptions) -> Result<(Vec<Group>, Vec<Group>), TrainError> {
    let held_out = ((groups.len() as f64 * options.held_out).ceil() as usize).max(1);
    if groups.len() <= held_out {
        return Err(TrainError::Task(format!(
            "the corpus {} has {} group(s) of answers, and {held_out} of them would be held out; collect more",
            options.corpus.display(),
            groups.len()
        )));
    }
    let held_out = groups.split_off(groups.len() - held_out);
    if let Some(most) = options.trajectories {
        let mut taken = 0;
        groups.retain(|group| {
            let enough = taken >= most;
            taken += group.members.len();
            !enough
        });
        if taken < most || most == 0 {
            return Err(TrainError::Task(format!(
                "{most} answers were asked for, the corpus {} has {taken} to train on; ask for at least 1 and at most \
                 so many",
                options.corpus.display()
            )));
        }
    }
    Ok((groups, held_out))
}

fn save(
    folder: &Path,
    found: &Pretraining,
    critic: &Critic,
    model: &LanguageModel,
) -> Result<(), TrainError> {
    let refuse = |error: &dyn std::fmt::Display| TrainError::Model(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(|error| refuse(&error))?;
    let figures = serde_json::to_string_pretty(found).map_err(|error| refuse(&error))?;
    write_atomically(&folder.join(FIGURES), figures.as_bytes())?;
    write(folder, critic, &model.tokenizer)
}
