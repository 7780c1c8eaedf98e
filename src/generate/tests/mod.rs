//! A small decoder, a packed forward pass to compare with, and ways to run an engine.

#[cfg(feature = "kernel-emulation")]
mod device;
mod exactness;
mod interruption;
mod memory;
mod pages;
mod refusals;
mod scheduling;
mod turns;

use std::sync::Arc;

use candle_core::Device;

use super::*;
use crate::ops::{Sampling, Sequence as Rows};
use crate::policy::{Decoder, DecoderConfig, DecoderInput, ExpertsConfig, PackedAttention, Parameters};
use crate::random::CounterRng;
use crate::trajectory::{Trajectory, TrajectoryId, Version};

const VOCABULARY: usize = 61;
const CONTEXT: usize = 220;
const SEED: u64 = 11;

fn decoder(experts: bool) -> Arc<Decoder> {
    let config = DecoderConfig {
        vocabulary: VOCABULARY,
        width: 24,
        inner: 40,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_size: 6,
        context: CONTEXT,
        experts: experts.then_some(ExpertsConfig { count: 4, per_token: 2, inner: 16, normalise: true }),
        ..DecoderConfig::default()
    };
    Arc::new(Decoder::new(config, &Device::Cpu).unwrap())
}

/// Parameters of which the embedding is large enough for the next token to depend on those before.
fn parameters(decoder: &Decoder, seed: u64) -> Arc<Parameters> {
    let drawn = decoder.layout().initialize(seed, &Device::Cpu).unwrap();
    let scaled = drawn.iter().map(|(name, tensor)| {
        let factor = if name.contains("embed") { 8.0 } else { 1.0 };
        (name.to_owned(), (tensor * factor).unwrap())
    });
    let adopted = decoder.layout().adopt(scaled.collect(), &Device::Cpu).unwrap();
    Arc::new(adopted.deep_copy(&Device::Cpu).unwrap())
}

fn weights(decoder: &Decoder, version: u64) -> Weights {
    Weights::new(parameters(decoder, 100 + version), Version(version))
}

fn config() -> EngineConfig {
    EngineConfig { cache_tokens: 64 * 40, max_running: 8, prefill_tokens: 48, ..EngineConfig::default() }
}

fn engine(decoder: &Arc<Decoder>, config: EngineConfig) -> Engine {
    Engine::new(decoder.clone(), weights(decoder, 0), config, SEED).unwrap()
}

fn id(prompt: u32, member: u16) -> TrajectoryId {
    TrajectoryId { epoch: 0, prompt, member, attempt: 0 }
}

fn prompt(index: u32, length: usize) -> Arc<[u32]> {
    let mut rng = CounterRng::new(u64::from(index));
    (0..length).map(|_| rng.below(VOCABULARY) as u32).collect()
}

/// `members` trajectories that answer one prompt with up to `most` tokens each.
fn group(index: u32, length: usize, members: u16, most: usize) -> Vec<Request> {
    let prompt = prompt(index, length);
    let request = |member| {
        let trajectory = Trajectory::new(id(index, member), prompt.clone());
        // Not all of one group end together.
        Request::new(trajectory, Sampling::default(), most + usize::from(member) * 3)
    };
    (0..members).map(request).collect()
}

/// Groups of prompts shorter than, as long as and longer than pages.
fn workload() -> Vec<Request> {
    let groups = [(1, 3), (2, 1), (30, 3), (64, 2), (65, 3), (100, 1), (129, 2)];
    let groups = groups.iter().enumerate();
    groups.flat_map(|(index, &(length, members))| group(index as u32, length, members, 25)).collect()
}

fn submit_all(engine: &mut Engine, requests: &[Request]) {
    requests.iter().for_each(|request| engine.submit(request.clone()).unwrap());
}

/// Steps until nothing is left, checking the pages after each step.
fn drain(engine: &mut Engine) -> Vec<Trajectory> {
    let mut finished = Vec::new();
    let mut steps = 0;
    while !engine.is_idle() {
        finished.extend(engine.step().unwrap().into_iter().map(|finished| finished.trajectory));
        engine.check_pages();
        steps += 1;
        assert!(steps < 20_000, "it does not end");
    }
    by_id(finished)
}

fn by_id(mut trajectories: Vec<Trajectory>) -> Vec<Trajectory> {
    trajectories.sort_by_key(|trajectory| trajectory.id);
    trajectories
}

/// What a roomy engine makes of the requests.
fn undisturbed(decoder: &Arc<Decoder>, config: EngineConfig, requests: &[Request]) -> Vec<Trajectory> {
    let mut engine = engine(decoder, config);
    submit_all(&mut engine, requests);
    drain(&mut engine)
}

/// Log-probabilities of the tokens after the prompts, from one packed pass in which trajectories of one prompt share
/// it: all but the prompt's last token are a prefix. With `forced`, the recorded experts run.
fn packed(
    decoder: &Decoder,
    parameters: &Parameters,
    trajectories: &[Trajectory],
    temperature: f64,
    forced: bool,
) -> Vec<Vec<f32>> {
    let width = decoder.experts_per_row();
    let (mut tokens, mut positions, mut experts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sequences, mut answers, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for group in trajectories.chunk_by(|a, b| a.id.prompt == b.id.prompt) {
        let shared = group[0].prompt.len() - 1;
        let prefix = tokens.len()..tokens.len() + shared;
        if shared > 0 {
            tokens.extend_from_slice(&group[0].prompt[..shared]);
            positions.extend(0..shared as u32);
            targets.resize(tokens.len(), 0);
            sequences.push(Rows::alone(prefix.clone()));
            if forced {
                experts.extend_from_slice(&group[0].experts[..shared * width]);
            }
        }
        for trajectory in group {
            let own = shared..trajectory.len() - 1;
            let rows = tokens.len()..tokens.len() + own.len();
            sequences.push(Rows { prefix: prefix.clone(), rows: rows.clone() });
            tokens.extend(own.clone().map(|position| trajectory.token(position)));
            positions.extend(own.clone().map(|position| position as u32));
            targets.extend_from_slice(&trajectory.tokens);
            if forced {
                experts.extend_from_slice(&trajectory.experts[own.start * width..own.end * width]);
            }
            answers.push(rows);
        }
    }
    let mut attend = PackedAttention { sequences: &sequences, scale: decoder.config().attention_scale() };
    let input = DecoderInput {
        tokens: &tokens,
        positions: &positions,
        experts: forced.then_some(experts.as_slice()),
    };
    let hidden = decoder.hidden(parameters, input, &mut attend).unwrap();
    let both = decoder.log_probs(parameters, &hidden.states, &targets, temperature).unwrap();
    let log_probs: Vec<f32> = both.narrow(1, 0, 1).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    answers.into_iter().map(|rows| log_probs[rows].to_vec()).collect()
}

/// Asserts that the recorded log-probabilities are those of a packed pass, bit for bit.
fn assert_exact(decoder: &Decoder, parameters: &Parameters, trajectories: &[Trajectory], temperature: f64) {
    let packed = packed(decoder, parameters, trajectories, temperature, false);
    for (trajectory, packed) in trajectories.iter().zip(packed) {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&trajectory.log_probs), bits(&packed), "trajectory {}", trajectory.id);
    }
}

impl Engine {
    /// Asserts that every page is referred to as often as it counts.
    fn check_pages(&self) {
        let sequences = self.running.iter().chain(&self.waiting).chain(&self.held);
        let holders = sequences.map(|sequence| sequence.pages.as_slice()).chain(self.prompts.pages());
        self.pool.check(holders);
    }

    fn assert_empty(&self) {
        assert!(self.is_idle() && self.held.is_empty() && self.ids.is_empty());
        assert_eq!(self.usage().used_pages, 0);
        assert_eq!(self.prompts.pages().count(), 0);
    }
}
