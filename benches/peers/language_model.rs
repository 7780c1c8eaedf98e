//! Rows of a whole language model: generation, scoring, training, and a step of GRPO that is made of them.
//!
//! Sequences are made up ([`token`], the same ids on the other side): what they say changes nothing about the time.
//! Scoring and training predict every token; their micro-batches have [`ROWS`] rows on both sides.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use candle_core::Device;
use forebay::generate::{Engine, EngineConfig, Request, Weights};
use forebay::learner::optimizer::{AdamwConfig, Optimizer, OptimizerConfig};
use forebay::learner::token::{
    ReferenceKlConfig, TokenLearner, TokenLearnerConfig, TokenLearnerState, TokenLossConfig, TokenOutcome,
};
use forebay::ops::{Sampling, with_threads};
use forebay::policy::pretrained::{self, LoadOptions, load};
use forebay::policy::{
    Checkpointing, Decoder, Gradients, NamePatterns, Pack, Packing, Parameters, ScoreGradients, Scores,
    TrainingPass,
};
use forebay::trajectory::{Group, Reward, Trajectory, TrajectoryId, Version};

use super::Memory;

/// Rows of a micro-batch.
const ROWS: usize = 512;

/// Tokens of a prompt before an answer is generated.
const PROMPT: usize = 45;

/// Seconds of each part of a pass, and what they are for.
type Parts = Vec<(&'static str, f64)>;

/// A row: does one pass.
struct Row {
    /// Tokens that a pass is about.
    tokens: usize,
    pass: Box<dyn FnMut() -> anyhow::Result<Parts> + Send>,
}

/// Token `position` of sequence `sequence`, none of those at either end of a large vocabulary, which are special.
fn token(sequence: usize, position: usize, vocabulary: usize) -> u32 {
    let margin = if vocabulary > 2000 { 500 } else { 0 };
    (((sequence + 1) * 7919 + (position + 1) * 104_729) % (vocabulary - 2 * margin) + margin) as u32
}

/// What all rows start from.
struct Model {
    decoder: Arc<Decoder>,
    parameters: Parameters,
}

/// Prints one row as JSON: tokens of a pass, the parts of the fastest of `passes` passes, and its memory.
pub(super) fn print(path: &str, row: &str, threads: usize, passes: usize) -> anyhow::Result<()> {
    let loaded = load(Path::new(path), LoadOptions::default(), &Device::Cpu)?;
    let model = Model { decoder: Arc::new(loaded.decoder), parameters: loaded.parameters };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let memory = Memory::held();
    let mut row = model.row(row, threads)?;
    let (parts, tokens) = with_threads(&pool, || -> anyhow::Result<_> {
        (row.pass)()?;
        let mut best = (row.pass)()?;
        for _ in 1..passes {
            let parts = (row.pass)()?;
            if total(&parts) < total(&best) {
                best = parts;
            }
        }
        Ok((best, row.tokens))
    })?;
    let parts: Vec<String> = parts.iter().map(|(name, seconds)| format!("\"{name}\": {seconds:e}")).collect();
    println!("{{\"tokens\": {tokens}, {}, {}}}", parts.join(", "), memory.json());
    Ok(())
}

/// Seconds of a pass.
fn total(parts: &Parts) -> f64 {
    parts.iter().map(|(_, seconds)| seconds).sum()
}

/// Writes a model as a folder that transformers loads.
pub(super) fn save(path: &str, folder: &str) -> anyhow::Result<()> {
    let model = load(Path::new(path), LoadOptions::default(), &Device::Cpu)?;
    Ok(pretrained::save(Path::new(folder), &model.decoder, &model.parameters, &model.tokenizer)?)
}

/// The two numbers of a name such as `training_8x64`.
fn shape(of: &str) -> anyhow::Result<(usize, usize)> {
    let (sequences, length) = of.split_once('x').context("a shape is SEQUENCESxLENGTH")?;
    Ok((sequences.parse()?, length.parse()?))
}

impl Model {
    fn row(self, name: &str, threads: usize) -> anyhow::Result<Row> {
        let (kind, of) = name.split_once('_').unwrap_or((name, ""));
        match kind {
            "decode" => self.decode(of.parse()?),
            "prefill" => self.prefill(shape(of)?),
            "scoring" => self.scoring(shape(of)?),
            "training" => self.training(shape(of)?),
            "grpo" => self.grpo(shape(of)?, threads),
            _ => bail!("no row `{name}`"),
        }
    }

    fn weights(&self) -> anyhow::Result<Weights> {
        published(&self.parameters)
    }

    fn prompt(&self, sequence: usize, length: usize) -> Arc<[u32]> {
        let vocabulary = self.decoder.config().vocabulary;
        (0..length).map(|position| token(sequence, position, vocabulary)).collect()
    }

    /// Seconds from the first token of each of `batch` sequences to the 64th.
    fn decode(self, batch: usize) -> anyhow::Result<Row> {
        const NEW: usize = 64;
        let weights = self.weights()?;
        let pass = move || {
            let mut engine = engine(&self.decoder, &weights, batch, PROMPT + NEW)?;
            for sequence in 0..batch {
                submit(&mut engine, (sequence, 0), self.prompt(sequence, PROMPT), NEW)?;
            }
            while engine.lengths().any(|(_, tokens)| tokens == 0) {
                engine.step()?;
            }
            // Some may be ahead, since prompts are read in portions.
            let ahead: usize = engine.lengths().map(|(_, tokens)| tokens).sum();
            let start = Instant::now();
            while !engine.is_idle() {
                engine.step()?;
            }
            let share = (batch * (NEW - 1)) as f64 / (batch * NEW - ahead) as f64;
            Ok(vec![("seconds", share * start.elapsed().as_secs_f64())])
        };
        Ok(Row { tokens: batch * (NEW - 1), pass: Box::new(pass) })
    }

    /// Seconds to the first token of each sequence.
    fn prefill(self, (sequences, length): (usize, usize)) -> anyhow::Result<Row> {
        let weights = self.weights()?;
        let pass = move || {
            let mut engine = engine(&self.decoder, &weights, sequences, length + 1)?;
            for sequence in 0..sequences {
                submit(&mut engine, (sequence, 0), self.prompt(sequence, length), 1)?;
            }
            let start = Instant::now();
            while !engine.is_idle() {
                engine.step()?;
            }
            Ok(vec![("seconds", start.elapsed().as_secs_f64())])
        };
        Ok(Row { tokens: sequences * length, pass: Box::new(pass) })
    }

    /// Sequences of one token more than rows, all but the first predicted.
    fn packs(&self, (sequences, length): (usize, usize)) -> anyhow::Result<Vec<Pack>> {
        let groups: Vec<Group> = (0..sequences)
            .map(|sequence| {
                let tokens = self.prompt(sequence, length + 1);
                let mut trajectory = Trajectory::new(id(sequence, 0), Arc::from(&tokens[..1]));
                tokens[1..].iter().for_each(|&token| trajectory.push_action(token, 0.0, Version(0)));
                group(sequence, vec![trajectory])
            })
            .collect();
        Ok(Packing { rows: ROWS, experts_per_row: 0 }.pack(&groups)?)
    }

    fn scoring(self, shape: (usize, usize)) -> anyhow::Result<Row> {
        let packs = self.packs(shape)?;
        // Laid out once for a version, as those of a reference policy are.
        let weights = self.weights()?;
        let pass = move || {
            let start = Instant::now();
            for pack in &packs {
                training_pass(&self.decoder).evaluate(&weights.parameters, pack)?;
            }
            Ok(vec![("seconds", start.elapsed().as_secs_f64())])
        };
        Ok(Row { tokens: shape.0 * shape.1, pass: Box::new(pass) })
    }

    /// The mean negative log-probability, its gradient, and a step of AdamW.
    fn training(self, shape: (usize, usize)) -> anyhow::Result<Row> {
        let packs = self.packs(shape)?;
        let tokens = shape.0 * shape.1;
        let (variables, parameters) = self.parameters.to_variables()?;
        let gradients = Gradients::new(&parameters)?;
        let mut optimizer = Optimizer::new(&OptimizerConfig::Adamw(AdamwConfig::default()), variables)?;
        let Self { decoder, .. } = self;
        let pass = move || {
            let start = Instant::now();
            gradients.clear();
            for pack in &packs {
                let gradient = |scores: &Scores| -> candle_core::Result<ScoreGradients> {
                    let log_probs = vec![-1.0 / tokens as f32; scores.log_probs.len()];
                    Ok(ScoreGradients { log_probs, ..ScoreGradients::default() })
                };
                training_pass(&decoder).accumulate(&parameters, pack, &gradients, gradient)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            let start = Instant::now();
            optimizer.step_with(&gradients.tensors()?, 1e-5, 1.0)?;
            Ok(vec![("seconds", seconds), ("optimizer", start.elapsed().as_secs_f64())])
        };
        Ok(Row { tokens, pass: Box::new(pass) })
    }

    /// Groups of answers of 32 tokens generated under the latest version, and the update from them.
    fn grpo(self, (prompts, answers): (usize, usize), threads: usize) -> anyhow::Result<Row> {
        const NEW: usize = 32;
        let config = TokenLearnerConfig {
            prompts,
            group_size: answers,
            microbatch_tokens: ROWS,
            threads,
            // Without a reference policy, whose scores would be another pass of scoring.
            loss: TokenLossConfig {
                reference_kl: Some(ReferenceKlConfig::default()),
                ..TokenLossConfig::default()
            },
            ..TokenLearnerConfig::default()
        };
        let (decoder, state) = (Arc::clone(&self.decoder), TokenLearnerState::default());
        let mut learner =
            TokenLearner::new(config, 1, decoder, &self.parameters, &NamePatterns::default(), 1.0, state)?;
        let count = prompts * answers;
        let prompts: Vec<Arc<[u32]>> = (0..prompts).map(|prompt| self.prompt(prompt, PROMPT)).collect();
        let Self { decoder, .. } = self;
        let pass = move || {
            let start = Instant::now();
            let weights = published(learner.parameters())?;
            let mut engine = engine(&decoder, &weights, count, PROMPT + NEW)?;
            for (index, prompt) in prompts.iter().enumerate() {
                for member in 0..answers {
                    submit(&mut engine, (index, member), prompt.clone(), NEW)?;
                }
            }
            let mut groups: Vec<Group> = (0..prompts.len()).map(|index| group(index, Vec::new())).collect();
            while !engine.is_idle() {
                for finished in engine.step()? {
                    let mut trajectory = finished.trajectory;
                    // Any reward does, as long as those of a group differ.
                    trajectory.reward = Some(Reward::of(f64::from(trajectory.id.member % 2)));
                    groups[trajectory.id.prompt as usize].members.push(trajectory);
                }
            }
            drop((engine, weights));
            groups.iter_mut().for_each(|group| group.members.sort_by_key(|member| member.id));
            let generation = start.elapsed().as_secs_f64();
            let groups: Vec<&Group> = groups.iter().collect();
            let start = Instant::now();
            let outcome = learner.update(&groups, 1e-5, false, &|| false)?;
            ensure!(matches!(outcome, TokenOutcome::Applied(_)), "the update was {outcome:?}");
            let update = start.elapsed().as_secs_f64();
            Ok(vec![("generation", generation), ("update", update)])
        };
        Ok(Row { tokens: count * NEW, pass: Box::new(pass) })
    }
}

fn training_pass(decoder: &Decoder) -> TrainingPass<'_> {
    TrainingPass { decoder, temperature: 1.0, checkpointing: Checkpointing::None }
}

fn published(parameters: &Parameters) -> anyhow::Result<Weights> {
    Ok(Weights::new(Arc::new(parameters.deep_copy(&Device::Cpu)?), Version(0)))
}

fn engine(
    decoder: &Arc<Decoder>,
    weights: &Weights,
    sequences: usize,
    length: usize,
) -> anyhow::Result<Engine> {
    // A page is 64 positions.
    let cache_tokens = sequences * length.next_multiple_of(64);
    let config = EngineConfig { cache_tokens, max_running: sequences, ..EngineConfig::default() };
    Ok(Engine::new(Arc::clone(decoder), weights.clone(), config, 1)?)
}

fn submit(
    engine: &mut Engine,
    (prompt, member): (usize, usize),
    tokens: Arc<[u32]>,
    new: usize,
) -> anyhow::Result<()> {
    let trajectory = Trajectory::new(id(prompt, member), tokens);
    Ok(engine.submit(Request::new(trajectory, Sampling::default(), new))?)
}

fn id(prompt: usize, member: usize) -> TrajectoryId {
    TrajectoryId { prompt: prompt as u32, member: member as u16, ..TrajectoryId::default() }
}

fn group(prompt: usize, members: Vec<Trajectory>) -> Group {
    Group { epoch: 0, prompt: prompt as u32, source: Arc::from("bench"), budget: None, members }
}
