//! Language models on a device: generation out of a device's pages and one step of training, each against the CPU, and
//! how fast both are.
//!
//! What is generated on a device is scored again on the CPU under the same weights: the log-probabilities recorded
//! while sampling are compared with those, so that a draw that falls to the other side of a border does not matter.
//! Part of the way the trajectories are taken out and put back with their keys and values saved.

use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::time::Instant;

use candle_core::{DType, Device, Error, Result};

use super::case::values;
use crate::generate::{Engine, EngineConfig, Interrupt, Request, Weights};
use crate::learner::optimizer::{AdamwConfig, OptimizerConfig};
use crate::learner::token::{
    GrpoConfig, TokenLearner, TokenLearnerConfig, TokenLearnerState, TokenLossConfig, TokenObjectiveConfig,
    TokenOutcome,
};
use crate::ops::Sampling;
use crate::policy::{Checkpointing, Decoder, DecoderConfig, NamePatterns, Packing, Parameters, TrainingPass};
use crate::random::CounterRng;
use crate::trajectory::{Group, Reward, Trajectory, TrajectoryId, Version};

const SEED: u64 = 7;
/// Answers to a prompt.
const MEMBERS: usize = 4;

/// What is computed, with its bounds on the greatest difference from the CPU in f32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) dtype: DType,
    /// Of a log-probability, in nats.
    pub(super) log_prob: f64,
    /// Of a parameter's step, as a share of the longest step.
    pub(super) step: f64,
}

/// The types that language models are computed in. In bf16 a logit alone is off by up to 1 part in 256.
pub(super) const NUMBERS: [Numbers; 2] = [
    Numbers { dtype: DType::F32, log_prob: 1e-3, step: 1e-3 },
    Numbers { dtype: DType::BF16, log_prob: 0.25, step: 0.1 },
];

/// A shape that a CPU computes in moments.
pub(super) fn small() -> DecoderConfig {
    DecoderConfig {
        vocabulary: 300,
        width: 64,
        inner: 160,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_size: 16,
        context: 256,
        ..DecoderConfig::default()
    }
}

/// The shape of SmolLM2-135M.
#[cfg(feature = "cuda")]
fn large() -> DecoderConfig {
    DecoderConfig {
        vocabulary: 49_152,
        width: 576,
        inner: 1536,
        layers: 30,
        heads: 9,
        kv_heads: 3,
        head_size: 64,
        context: 1024,
        ..DecoderConfig::default()
    }
}

/// A decoder and its parameters, in f32 on the CPU.
pub(super) struct Model {
    decoder: Arc<Decoder>,
    parameters: Parameters,
}

impl Model {
    pub(super) fn new(config: DecoderConfig) -> Result<Self> {
        let decoder = Decoder::new(config, &Device::Cpu)?;
        let parameters = decoder.layout().initialize(SEED, &Device::Cpu)?;
        Ok(Self { decoder: Arc::new(decoder), parameters })
    }

    /// The same on a device, rounded to a type.
    fn placed(&self, device: &Device, dtype: DType) -> Result<(Arc<Decoder>, Arc<Parameters>)> {
        let decoder = Arc::new(self.decoder.placed(device, dtype)?);
        Ok((decoder, Arc::new(self.parameters.placed(device, dtype, None)?.parameters)))
    }

    /// The same with every value as it is after rounding to a type.
    fn rounded(&self, dtype: DType) -> Result<Self> {
        let parameters = self.parameters.to_dtype(dtype)?.to_dtype(DType::F32)?;
        Ok(Self { decoder: Arc::clone(&self.decoder), parameters })
    }
}

/// So many answers to so many prompts each, `length` tokens before and `new` tokens after.
fn requests(
    config: &DecoderConfig,
    prompts: usize,
    members: usize,
    length: usize,
    new: usize,
) -> Vec<Request> {
    let mut rng = CounterRng::new(SEED);
    let mut all = Vec::with_capacity(prompts * members);
    for prompt in 0..prompts {
        let tokens: Arc<[u32]> =
            (0..length + prompt % 5).map(|_| rng.below(config.vocabulary) as u32).collect();
        all.extend((0..members).map(|member| {
            let (prompt, member) = (prompt as u32, member as u16);
            let id = TrajectoryId { epoch: 0, prompt, member, attempt: 0 };
            Request::new(Trajectory::new(id, Arc::clone(&tokens)), Sampling::default(), new)
        }));
    }
    all
}

/// Generates all of them at once; with `pauses` they are taken out half-way and put back.
fn generate(
    (decoder, parameters): (Arc<Decoder>, Arc<Parameters>),
    requests: &[Request],
    pauses: bool,
) -> Result<Vec<Trajectory>> {
    let failed = |error: crate::generate::GenerateError| Error::wrap(error);
    let positions =
        |request: &Request| (request.trajectory.len() + request.max_new_tokens).next_multiple_of(64);
    let config = EngineConfig {
        cache_tokens: requests.iter().map(positions).sum::<usize>() + 64,
        max_running: requests.len(),
        prefill_tokens: 1024,
        ..EngineConfig::default()
    };
    let mut engine =
        Engine::new(decoder, Weights::new(parameters, Version(0)), config, SEED).map_err(failed)?;
    for request in requests {
        engine.submit(request.clone()).map_err(failed)?;
    }
    let (mut done, mut steps) = (Vec::with_capacity(requests.len()), 0);
    while !engine.is_idle() {
        done.extend(engine.step().map_err(failed)?.into_iter().map(|finished| finished.trajectory));
        steps += 1;
        if pauses && steps == requests[0].max_new_tokens / 2 {
            for paused in engine.interrupt(Interrupt::All, true) {
                engine.resume(paused).map_err(failed)?;
            }
        }
    }
    done.sort_by_key(|trajectory| trajectory.id);
    Ok(done)
}

/// Trajectories by their prompts, of which every other one of a group has the full reward.
fn groups(trajectories: &[Trajectory]) -> Vec<Group> {
    let group = |members: &[Trajectory]| {
        let graded = members.iter().map(|member| {
            let reward = Some(Reward::of(f64::from(member.id.member % 2)));
            Trajectory { reward, ..member.clone() }
        });
        let prompt = members[0].id.prompt;
        Group { epoch: 0, prompt, source: "check".into(), budget: None, members: graded.collect() }
    };
    trajectories.chunk_by(|a, b| a.id.prompt == b.id.prompt).map(group).collect()
}

/// The greatest difference of a log-probability recorded on a device from the CPU's.
pub(super) fn generation_difference(model: &Model, device: &Device, dtype: DType) -> Result<f64> {
    let requests = requests(model.decoder.config(), 3, MEMBERS, 62, 20);
    let trajectories = generate(model.placed(device, dtype)?, &requests, true)?;
    let reference = model.rounded(dtype)?;
    let groups = groups(&trajectories);
    let packing = Packing { rows: 512, experts_per_row: 0 };
    let pass = TrainingPass {
        decoder: &reference.decoder,
        temperature: 1.0,
        checkpointing: Checkpointing::default(),
    };
    let mut largest = 0.0_f64;
    for pack in packing.pack(&groups).map_err(Error::wrap)? {
        let scores = pass.evaluate(&reference.parameters, &pack)?;
        for (place, log_prob) in pack.places.iter().zip(scores.log_probs) {
            let recorded = groups[place.group].members[place.member].log_probs[place.token];
            let difference = f64::from((recorded - log_prob).abs());
            // A NaN must not be lost in a maximum.
            largest = if difference > largest || difference.is_nan() { difference } else { largest };
        }
    }
    Ok(if largest.is_nan() { f64::INFINITY } else { largest })
}

/// A learner of a model on a device. Its optimiser's steps hardly differ in length from its gradients, so that a
/// gradient near zero does not make for a step of either sign.
fn learner(model: &Model, device: &Device, dtype: DType) -> Result<TokenLearner> {
    let steady = AdamwConfig { epsilon: 1.0, weight_decay: 0.0, ..AdamwConfig::default() };
    let config = TokenLearnerConfig {
        loss: TokenLossConfig::of(TokenObjectiveConfig::Grpo(GrpoConfig::default())),
        optimizer: OptimizerConfig::Adamw(steady),
        microbatch_tokens: 4096,
        ..TokenLearnerConfig::default()
    };
    let (decoder, frozen) = (Arc::new(model.decoder.placed(device, dtype)?), NamePatterns::default());
    let parameters = model.parameters.placed(device, DType::F32, None)?.parameters;
    let state = TokenLearnerState::default();
    let learner = TokenLearner::new(config, SEED, decoder, &parameters, &frozen, 1.0, state);
    let mut learner = learner.map_err(Error::wrap)?;
    learner.begin().map_err(Error::wrap)?;
    Ok(learner)
}

/// One step of GRPO.
fn step(learner: &mut TokenLearner, groups: &[Group]) -> Result<()> {
    let groups: Vec<&Group> = groups.iter().collect();
    match learner.update(&groups, 1.0, false, &|| false).map_err(Error::wrap)? {
        TokenOutcome::Applied(_) => Ok(()),
        other => Err(Error::Msg(format!("the update was not applied: {other:?}"))),
    }
}

/// The greatest difference of a parameter after one step of GRPO on a device from the CPU's, as a share of the longest
/// step of a parameter.
pub(super) fn training_difference(model: &Model, device: &Device, dtype: DType) -> Result<f64> {
    let requests = requests(model.decoder.config(), 3, MEMBERS, 40, 20);
    let groups = groups(&generate(model.placed(&Device::Cpu, DType::F32)?, &requests, false)?);
    let (mut here, mut there) = (learner(model, &Device::Cpu, DType::F32)?, learner(model, device, dtype)?);
    step(&mut here, &groups)?;
    step(&mut there, &groups)?;
    let (mut longest, mut largest) = (0.0_f64, 0.0_f64);
    let found = here.trained().into_iter().zip(there.trained());
    for (((_, here), (_, there)), (_, before)) in found.zip(model.parameters.iter()) {
        let (here, there, before) = (values(&here)?, values(&there)?, values(before)?);
        for ((here, there), before) in here.into_iter().zip(there).zip(before) {
            longest = longest.max((here - before).abs());
            let difference = (here - there).abs();
            largest = if difference > largest || difference.is_nan() { difference } else { largest };
        }
    }
    if longest == 0.0 || largest.is_nan() {
        return Err(Error::Msg(format!("steps of {longest}, difference {largest}")));
    }
    Ok(largest / longest)
}

/// Tokens a second of `answers` answers side by side, and of one step of GRPO.
#[cfg(feature = "cuda")]
pub(super) struct Speed {
    model: Model,
}

#[cfg(feature = "cuda")]
impl Speed {
    /// Answers side by side.
    pub(super) const BATCHES: [usize; 4] = [1, 16, 64, 256];

    pub(super) fn new() -> Result<Self> {
        Ok(Self { model: Model::new(large())? })
    }

    /// Tokens generated in a second: prompts of 64 tokens that 4 answers share, 64 new tokens each.
    pub(super) fn generation(&self, answers: usize, device: &Device, dtype: DType) -> Result<f64> {
        let config = self.model.decoder.config();
        let (prompts, members) = (answers.div_ceil(MEMBERS), answers.min(MEMBERS));
        let placed = self.model.placed(device, dtype)?;
        // Kernels are loaded at their first launch.
        generate(placed.clone(), &requests(config, 1, 1, 64, 2), false)?;
        let requests = requests(config, prompts, members, 64, 64);
        let started = Instant::now();
        let made = generate(placed, &requests, false)?;
        let tokens: usize = made.iter().map(|trajectory| trajectory.tokens.len()).sum();
        Ok(tokens as f64 / started.elapsed().as_secs_f64())
    }

    /// Tokens learned from in a second, prompts not counted: 16 groups of 4 answers of 128 tokens.
    pub(super) fn training(&self, device: &Device, dtype: DType) -> Result<f64> {
        let requests = requests(self.model.decoder.config(), 16, MEMBERS, 64, 128);
        let groups = groups(&generate(self.model.placed(device, dtype)?, &requests, false)?);
        let tokens: u64 = groups.iter().map(Group::token_count).sum();
        let mut learner = learner(&self.model, device, dtype)?;
        step(&mut learner, &groups)?;
        device.synchronize()?;
        let started = Instant::now();
        step(&mut learner, &groups)?;
        device.synchronize()?;
        Ok(tokens as f64 / started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_find_no_difference_between_the_cpu_and_itself() {
        let model = Model::new(small()).unwrap();
        let [Numbers { dtype, log_prob, step }, _] = NUMBERS;
        assert!(log_prob > 0.0 && step > 0.0);
        assert_eq!(generation_difference(&model, &Device::Cpu, dtype).unwrap(), 0.0);
        assert_eq!(training_difference(&model, &Device::Cpu, dtype).unwrap(), 0.0);
    }

    #[test]
    fn they_find_other_weights() {
        let (one, other) = (Model::new(small()).unwrap(), Model::new(small()).unwrap());
        let spoilt = one.parameters.iter().map(|(name, tensor)| {
            let factor = if name.contains("o_proj") { 1.05 } else { 1.0 };
            (name.to_owned(), (tensor * factor).unwrap())
        });
        let layout = other.decoder.layout();
        let parameters = layout.adopt(spoilt.collect(), &Device::Cpu).unwrap();
        let other = Model { parameters, ..other };
        let requests = requests(one.decoder.config(), 2, MEMBERS, 30, 10);
        let made = generate(other.placed(&Device::Cpu, DType::F32).unwrap(), &requests, false).unwrap();
        let same = generate(one.placed(&Device::Cpu, DType::F32).unwrap(), &requests, false).unwrap();
        assert_ne!(made, same);
        assert_eq!(groups(&made).len(), 2);
        let [bound, _] = NUMBERS.map(|numbers| numbers.log_prob);
        let pairs = made.iter().zip(&same).map(|(made, same)| (made.log_probs[0] - same.log_probs[0]).abs());
        assert!(f64::from(pairs.fold(0.0, f32::max)) > bound);
    }
}
