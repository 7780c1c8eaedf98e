//! The newest checkpoint of a token run, as a model to generate with.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use candle_core::Device;
use rayon::ThreadPool;

use crate::actors::run_dir::RunDir;
use crate::actors::token::{
    Examinee, LanguageModel, TokenEvaluation, evaluate_tokens, load_token_parameters,
};
use crate::config::{RunConfig, TokenConfig};
use crate::env::task::Task;
use crate::generate::{Engine, EngineConfig, Request, Stops, Weights};
use crate::ops::{Sampling, with_threads};
use crate::policy::TextStream;
use crate::trajectory::{Message, Trajectory, TrajectoryId, Version};

/// See the module's documentation.
pub(super) struct PolicyOfRun {
    /// The run's configuration.
    pub(super) config: TokenConfig,
    /// Tokenizer and architecture.
    pub(super) model: LanguageModel,
    weights: Weights,
    threads: ThreadPool,
}

impl PolicyOfRun {
    /// Reads a token run's configuration and its newest whole checkpoint.
    pub(super) fn open(run: &Path) -> anyhow::Result<Self> {
        let (config, _) = super::train::read_config(&run.join(RunDir::CONFIG), &[])
            .with_context(|| format!("{} is not a run directory", run.display()))?;
        match config {
            RunConfig::Token(config) => Self::load(run, *config),
            RunConfig::Control(_) => {
                anyhow::bail!("{} is a control run; this is for token runs", run.display())
            }
        }
    }

    /// Reads the newest whole checkpoint of a run with this configuration.
    pub(super) fn load(run: &Path, config: TokenConfig) -> anyhow::Result<Self> {
        let model = LanguageModel::of_run(run, &Device::Cpu)?;
        let (version, parameters) = load_token_parameters(run, &model)?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        Ok(Self { config, model, weights: Weights::new(Arc::new(parameters), version), threads })
    }

    /// Updates that the checkpoint is made of.
    pub(super) fn version(&self) -> Version {
        self.weights.version
    }

    /// The parameters.
    pub(super) fn parameters(&self) -> &crate::policy::Parameters {
        &self.weights.parameters
    }

    /// Answers evaluation problems.
    pub(super) fn evaluate(
        self,
        task: Arc<dyn Task>,
        problems: usize,
        temperature: f32,
    ) -> anyhow::Result<TokenEvaluation> {
        let examinee = Examinee {
            task,
            stops: self.model.stops(&self.config.generate.stop),
            tokenizer: self.model.tokenizer,
            decoder: self.model.decoder,
            engine: self.config.generate.engine.clone(),
            max_new_tokens: self.config.generate.max_new_tokens,
            efforts: self.config.learner.efforts.clone(),
            seed: self.config.seed,
        };
        let sampling = Sampling { temperature, ..Sampling::default() };
        let (weights, keep_going) = (self.weights, || true);
        let result = with_threads(&self.threads, || {
            evaluate_tokens(&examinee, weights, problems, &sampling, &keep_going)
        });
        result.map_err(anyhow::Error::msg)?.context("the evaluation was abandoned")
    }

    /// Continues a prompt, handing on text as it comes; gives the ids that were generated.
    pub(super) fn answer(
        &self,
        prompt: Vec<u32>,
        settings: &Settings,
        mut say: impl FnMut(&str) + Send,
    ) -> anyhow::Result<Vec<u32>> {
        let context = self.model.decoder.config().context;
        anyhow::ensure!(
            prompt.len() < context,
            "the prompt has {} tokens, and the model's context is {context}",
            prompt.len()
        );
        let stops: Arc<Stops> = self.model.stops(&settings.stop);
        let config = EngineConfig { cache_tokens: context, max_running: 1, ..EngineConfig::default() };
        let mut engine =
            Engine::new(Arc::clone(&self.model.decoder), self.weights.clone(), config, settings.seed)?;
        let id = TrajectoryId::default();
        let request = Request {
            trajectory: Trajectory::new(id, prompt.into()),
            sampling: settings.sampling,
            max_new_tokens: settings.max_new_tokens,
            pause_at: None,
            repetition: None,
            stops,
            hold: false,
        };
        engine.submit(request)?;
        let tokenizer = &self.model.tokenizer;
        let (mut stream, mut said) = (TextStream::default(), 0);
        loop {
            let finished = with_threads(&self.threads, || engine.step())?.pop();
            let done = finished.is_some();
            let tokens: Vec<u32> = match finished {
                Some(finished) => finished.trajectory.tokens,
                None => engine.tokens(id).unwrap_or_default().to_vec(),
            };
            for &token in &tokens[said..] {
                if !tokenizer.is_special(token) {
                    say(&stream.push(tokenizer.bytes(token)));
                }
            }
            said = tokens.len();
            if done {
                say(&stream.finish());
                return Ok(tokens);
            }
        }
    }

    /// Whether the model is one to chat with: pretrained, with a template. A model from scratch has a template too, but
    /// knows only what its task showed it.
    pub(super) fn chats(&self) -> bool {
        self.config.model.path.is_some() && self.model.tokenizer.has_template()
    }

    /// The prompt of a chat.
    pub(super) fn chat(&self, messages: &[Message]) -> anyhow::Result<Vec<u32>> {
        Ok(self.model.tokenizer.encode_chat(messages)?)
    }
}

/// How to generate from the command line.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SamplingArgs {
    /// Sampling temperature; 0: always the most likely token [default: 0]
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Sample among the so many most likely tokens only
    #[arg(long)]
    top_k: Option<usize>,
    /// Sample among the most likely tokens that together have this probability
    #[arg(long)]
    top_p: Option<f32>,
    /// Most tokens to generate
    #[arg(long, default_value_t = 256)]
    max_new_tokens: usize,
    /// Text that ends an answer; may be given several times
    #[arg(long)]
    stop: Vec<String>,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// [`SamplingArgs`], checked.
pub(super) struct Settings {
    pub(super) sampling: Sampling,
    pub(super) max_new_tokens: usize,
    pub(super) stop: Vec<String>,
    pub(super) seed: u64,
}

impl SamplingArgs {
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let sampling = Sampling { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p };
        sampling.validate()?;
        Ok(Settings {
            sampling,
            max_new_tokens: self.max_new_tokens,
            stop: self.stop.clone(),
            seed: self.seed,
        })
    }
}
