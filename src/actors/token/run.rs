//! What all actors of a token run share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::faults::TokenFaults;
use super::generator::{Generator, GeneratorSnapshot};
use super::grading::GradingPool;
use super::placement::Place;
use super::plane::Plane;
use crate::actors::incidents::Incidents;
use crate::actors::parameter_bus::{ParameterBus, Published};
use crate::actors::role::RoleError;
use crate::actors::stopwatch::Stopwatch;
use crate::config::TokenConfig;
use crate::env::task::Task;
use crate::generate::{ResumeMode, Stops, Weights};
use crate::policy::{Decoder, Tokenizer};
use crate::telemetry::TokenMetrics;
use crate::trajectory::{Ledger, Version};

/// See the module's documentation.
pub struct TokenRun {
    /// The resolved configuration.
    pub config: TokenConfig,
    /// The task.
    pub task: Arc<dyn Task>,
    /// Texts to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The architecture, on the learner's device.
    pub decoder: Arc<Decoder>,
    /// What ends an answer.
    pub stops: Arc<Stops>,
    /// The account.
    pub ledger: Ledger,
    /// Where each generator computes.
    pub places: Vec<Arc<Place>>,
    /// Published parameters. Readers: the generators.
    pub bus: Arc<ParameterBus>,
    /// Groups in flight.
    pub plane: Arc<Plane>,
    /// Threads that grade.
    pub grading: GradingPool,
    /// Instruments.
    pub metrics: Arc<TokenMetrics>,
    /// Deliberate faults.
    pub faults: TokenFaults,
    /// Time the learner spent on updates.
    pub learner_busy: Stopwatch,
    /// Time the generators spent on steps of their engines, all together.
    pub generator_busy: Stopwatch,
    incidents: Incidents,
    figures: Mutex<TokenFigures>,
    /// How often the learner took up a batch or was done with it: odd while it works.
    learner_turns: AtomicU64,
    /// What each generator samples with: kept so that a version that was published anew is recognised.
    current: Mutex<Vec<Option<Arc<Published>>>>,
}

/// The learner's latest figures, for whoever shows the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenFigures {
    /// Completed updates.
    pub version: Version,
    /// Loss of the last warm-up update, while the warm-up goes on (nats a token).
    pub warmup_loss: Option<f64>,
    /// Share of the answers of the last update with the full reward.
    pub solved: Option<f64>,
    /// Mean length of the answers of the last update, tokens.
    pub response_length_mean: Option<f64>,
    /// Mean reward of the last 10 updates.
    pub reward_mean: Option<f64>,
    /// Mean reward of the last evaluation.
    pub eval_mean: Option<f64>,
    /// Mean lag of the tokens consumed last.
    pub lag_mean: Option<f64>,
}

/// What a token run is made of.
pub struct TokenRunParts {
    /// The resolved configuration.
    pub config: TokenConfig,
    /// The task.
    pub task: Arc<dyn Task>,
    /// Texts to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The architecture, on the learner's device.
    pub decoder: Arc<Decoder>,
    /// What ends an answer.
    pub stops: Arc<Stops>,
    /// The account.
    pub ledger: Ledger,
    /// Where each generator computes.
    pub places: Vec<Arc<Place>>,
    /// Published parameters.
    pub bus: Arc<ParameterBus>,
    /// Groups in flight.
    pub plane: Arc<Plane>,
    /// Threads that grade.
    pub grading: GradingPool,
    /// Instruments.
    pub metrics: Arc<TokenMetrics>,
}

impl TokenRun {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: TokenRunParts) -> Self {
        let generators = parts.plane.generators();
        let faults = TokenFaults::new(&parts.config.faults, generators);
        Self {
            config: parts.config,
            task: parts.task,
            tokenizer: parts.tokenizer,
            decoder: parts.decoder,
            stops: parts.stops,
            ledger: parts.ledger,
            places: parts.places,
            bus: parts.bus,
            plane: parts.plane,
            grading: parts.grading,
            metrics: parts.metrics,
            faults,
            learner_busy: Stopwatch::default(),
            generator_busy: Stopwatch::default(),
            incidents: Incidents::default(),
            figures: Mutex::default(),
            learner_turns: AtomicU64::new(0),
            current: Mutex::new(vec![None; generators]),
        }
    }

    /// A generator's next life.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn generator(
        self: &Arc<Self>,
        index: usize,
        incarnation: u32,
        snapshots: flume::Sender<(usize, GeneratorSnapshot)>,
    ) -> Result<Generator, RoleError> {
        Generator::new(Arc::clone(self), index, incarnation, snapshots)
    }

    /// What becomes of the KV cache of what is being generated when weights arrive.
    #[must_use]
    pub fn resume_mode(&self) -> ResumeMode {
        let keeps = self.plane.settings().resume.keeps_kv(true);
        if keeps { ResumeMode::KeepKv } else { ResumeMode::Reprefill }
    }

    /// Whether the KV cache of what is stopped is stored with it.
    #[must_use]
    pub fn stores_kv(&self) -> bool {
        self.plane.settings().resume.stores_state()
    }

    /// Whether a generator gives the memory of its KV cache back while the learner learns. Where that is not set, it does
    /// so for a learner on its own device, unless that is the CPU, whose memory is not short.
    #[must_use]
    pub fn gives_memory_back(&self, generator: usize) -> bool {
        let device = self.places[generator].decoder().device();
        let shared = !device.is_cpu() && device.same_device(self.decoder.device());
        self.plane.settings().takes_turns() && self.config.generate.release_memory.unwrap_or(shared)
    }

    /// A published version as a generator samples with it.
    ///
    /// # Errors
    /// When its device has no memory for it.
    pub fn generator_weights(
        &self,
        generator: usize,
        published: &Arc<Published>,
    ) -> Result<Weights, RoleError> {
        let place = &self.places[generator];
        let failed = |source| RoleError::Inference { device: place.name().into(), source };
        place.weights(published).map_err(failed)
    }

    /// Whether a generator samples with exactly these parameters.
    #[must_use]
    pub fn is_current(&self, generator: usize, published: &Arc<Published>) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current[generator].as_ref().is_some_and(|current| Arc::ptr_eq(current, published))
    }

    /// How often the learner took up a batch or was done with it so far; for [`Self::learner_worked_since`].
    #[must_use]
    pub fn learner_turns(&self) -> u64 {
        self.learner_turns.load(Ordering::Acquire)
    }

    /// Whether the learner had a batch at any time since `turns` was asked for: from taking it until what came of it
    /// is published.
    #[must_use]
    pub fn learner_worked_since(&self, turns: u64) -> bool {
        !turns.is_multiple_of(2) || self.learner_turns() != turns
    }

    /// The learner takes up its batch, or is done with it. Only its own thread says so.
    pub fn set_learner_works(&self, works: bool) {
        let turns = self.learner_turns();
        if turns.is_multiple_of(2) == works {
            self.learner_turns.store(turns + 1, Ordering::Release);
        }
    }

    /// Notes what a generator samples with.
    pub fn set_current(&self, generator: usize, published: &Arc<Published>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current[generator] = Some(Arc::clone(published));
    }

    /// Counts a restart of an actor of this kind.
    pub fn note_restart(&self, kind: &str) {
        self.metrics.roles.record_restart(kind);
        self.incidents.restarted(kind);
    }

    /// Restarts by kind of actor.
    #[must_use]
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.incidents.restarts()
    }

    /// The learner's latest figures.
    #[must_use]
    pub fn figures(&self) -> TokenFigures {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the learner's figures.
    pub fn set_figures(&self, figures: TokenFigures) {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Counts a thread that did not end in time.
    pub fn note_detached(&self) {
        self.incidents.detached();
    }

    /// Threads that were left behind, graders among them.
    #[must_use]
    pub fn detached(&self) -> u64 {
        self.incidents.left_behind() + self.grading.detached() as u64
    }
}
