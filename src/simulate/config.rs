//! What is simulated.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lengths::LengthConfig;
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::{SYSTEMS, System, lay_over};
use crate::schedule::trace::TraceError;
use crate::schedule::{ScheduleContext, ScheduleContradiction};

/// Why nothing can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// There is no such system.
    #[error("`system`: unknown system `{name}`; there are: {known}")]
    UnknownSystem {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The schedule's own fields are wrong.
    #[error("{0}")]
    Schedule(String),
    /// The schedule contradicts itself.
    #[error("schedule: {0}")]
    Contradiction(#[from] ScheduleContradiction),
    /// A field is out of its range.
    #[error("`{field}`: {why}")]
    Field {
        /// Its path.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Recorded lengths cannot be read.
    #[error("`lengths.recorded`: cannot read {}: {why}; write the lengths of a group's answers on each line", path.display())]
    Recorded {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A run cannot be fitted to.
    #[error("cannot calibrate on {}: {why}", run.display())]
    Calibrate {
        /// The run.
        run: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A trace cannot be written or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The schedule waits for something that never comes.
    #[error(
        "the schedule stands still after {updates} updates: nothing is generated, graded or learned from"
    )]
    Stuck {
        /// Completed updates.
        updates: u64,
    },
}

/// How answers are given to engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Perfectly: all engines always have equally many. One engine stands for all.
    #[default]
    Balanced,
    /// Each to the engine that has the fewest when it starts.
    LeastLoaded,
    /// Each group to the engine that its number is hashed to.
    Hashed,
}

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineModel {
    /// Seconds of a step without sequences (t₀).
    pub step_seconds: f64,
    /// Seconds that each sequence adds to a step (t₁).
    pub sequence_seconds: f64,
    /// Most sequences that decode at once; others wait. Absent: all.
    pub slots: Option<usize>,
    /// Seconds to compute the state of a token that is not cached; everything else in the engine waits.
    pub prefill_seconds: f64,
    /// Tokens of prompts and answers that fit into its memory. When it is full, the sequence that began last gives up
    /// its own, and computes it again later. Absent: memory has no end.
    pub kv_tokens: Option<u64>,
    /// Seconds between two looks of `schedule.admission.throttle` at the memory, where there is one.
    pub observe_seconds: f64,
}

impl Default for EngineModel {
    fn default() -> Self {
        Self {
            step_seconds: 0.02,
            sequence_seconds: 0.0002,
            slots: None,
            prefill_seconds: 0.0002,
            kv_tokens: None,
            observe_seconds: 1.0,
        }
    }
}

/// The devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConfig {
    /// Devices in all; where generation and learning take turns, each does both.
    pub total: usize,
    /// Of these, those that learn where the layout is decoupled; the others generate.
    pub trainers: usize,
    /// Whether all of them do both even then, as the cores of one machine do; `contention` says how much slower each is
    /// beside the other.
    pub shared: bool,
    /// How answers are given to engines.
    pub placement: Placement,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self { total: 8, trainers: 2, shared: false, placement: Placement::Balanced }
    }
}

/// What things cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CostConfig {
    /// Seconds that one device takes to learn from one token; a batch's tokens are spread over all that learn.
    pub train_seconds_per_token: f64,
    /// Seconds of an update beside its tokens.
    pub update_seconds: f64,
    /// Seconds for which engines stand still to take up weights.
    pub sync_seconds: f64,
    /// Seconds between the end of a group and its grade.
    pub grading_seconds: f64,
}

/// How generation and learning slow each other down where they share cores: factors of the time that each takes in a
/// decoupled layout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContentionConfig {
    /// Of generation while the learner works.
    pub generation: f64,
    /// Of learning while all engines work.
    pub learning: f64,
}

impl Default for ContentionConfig {
    fn default() -> Self {
        Self { generation: 1.0, learning: 1.0 }
    }
}

/// A simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SimulateConfig {
    /// Seed of lengths and grades.
    pub seed: u64,
    /// Updates to simulate.
    pub updates: u64,
    /// Updates at the beginning that the report leaves out.
    pub warmup: u64,
    /// The system whose schedule it is.
    pub system: String,
    /// Groups of a batch; absent: the system's own number.
    pub batch: Option<u64>,
    /// Members of a group; absent: the system's own number.
    pub group_size: Option<u32>,
    /// Changes to the system's schedule.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub schedule: toml::Table,
    /// The devices.
    pub devices: DeviceConfig,
    /// Each engine.
    pub engine: EngineModel,
    /// How long answers are.
    pub lengths: LengthConfig,
    /// What the rest costs.
    pub costs: CostConfig,
    /// How generation and learning slow each other down.
    pub contention: ContentionConfig,
}

impl Default for SimulateConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            updates: 40,
            warmup: 10,
            system: "sync".into(),
            batch: None,
            group_size: None,
            schedule: toml::Table::new(),
            devices: DeviceConfig::default(),
            engine: EngineModel::default(),
            lengths: LengthConfig::default(),
            costs: CostConfig::default(),
            contention: ContentionConfig::default(),
        }
    }
}

impl SimulateConfig {
    /// The schedule: the system's, in the sizes given, with the changes.
    ///
    /// # Errors
    /// When there is no such system, a change is wrong, or the schedule contradicts itself.
    pub fn settings(&self) -> Result<FlowSettings, SimulateError> {
        let Some(system) = System::named(&self.system) else {
            let known: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
            return Err(SimulateError::UnknownSystem { name: self.system.clone(), known: known.join(", ") });
        };
        let own = system.settings();
        let sized = system.sized(self.batch.unwrap_or(own.batch), self.group_size.unwrap_or(own.group_size));
        let wrong = |error: String| SimulateError::Schedule(error);
        let mut table = toml::Table::try_from(&sized).map_err(|error| wrong(error.to_string()))?;
        lay_over(&mut table, &self.schedule);
        let settings: FlowSettings =
            serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|error| {
                wrong(format!("`schedule.{}`: {}", error.path(), error.inner().message().trim_end()))
            })?;
        let context =
            ScheduleContext { simulated: true, group_relative: false, ..ScheduleContext::default() };
        settings.check(context)?;
        self.check(&settings)?;
        Ok(settings)
    }

    pub(super) fn check(&self, settings: &FlowSettings) -> Result<(), SimulateError> {
        let field = |field, why: &str| Err(SimulateError::Field { field, why: why.to_owned() });
        if self.updates == 0 {
            return field("updates", "must be at least 1");
        }
        if self.warmup >= self.updates {
            return field("warmup", "must be fewer than `updates`, or nothing is reported");
        }
        if self.devices.total == 0 {
            return field("devices.total", "must be at least 1");
        }
        let decoupled = settings.layout == crate::schedule::axes::Layout::Decoupled;
        if decoupled && !self.devices.shared && !(1..self.devices.total).contains(&self.devices.trainers) {
            return field("devices.trainers", "must leave at least one of `devices.total` to each side");
        }
        let engine = &self.engine;
        if !(engine.step_seconds.is_finite() && engine.step_seconds > 0.0) {
            return field("engine.step_seconds", "must be a positive number");
        }
        if engine.slots == Some(0) {
            return field("engine.slots", "must be at least 1");
        }
        let longest = self.lengths.prompt_tokens + self.lengths.cap;
        if engine.kv_tokens.is_some_and(|tokens| tokens <= longest) {
            return field(
                "engine.kv_tokens",
                "must be more than `lengths.prompt_tokens` and `lengths.cap` together, or the longest answer never ends",
            );
        }
        for (name, value) in [
            ("engine.observe_seconds", engine.observe_seconds),
            ("contention.generation", self.contention.generation),
            ("contention.learning", self.contention.learning),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return field(name, "must be a positive number");
            }
        }
        let costs = &self.costs;
        for (name, seconds) in [
            ("engine.sequence_seconds", engine.sequence_seconds),
            ("engine.prefill_seconds", engine.prefill_seconds),
            ("costs.train_seconds_per_token", costs.train_seconds_per_token),
            ("costs.update_seconds", costs.update_seconds),
            ("costs.sync_seconds", costs.sync_seconds),
            ("costs.grading_seconds", costs.grading_seconds),
        ] {
            if !(seconds.is_finite() && seconds >= 0.0) {
                return field(name, "must be 0 or a positive number");
            }
        }
        self.lengths.check()
    }
}
