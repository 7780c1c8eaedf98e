//! Who may start: every rule that is present must agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ThrottleConfig;

/// What the lead counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionCount {
    /// Groups that were submitted and not given back. This bounds how far generation is ahead.
    #[default]
    Submitted,
    /// Groups that are complete, the literal reading of the rule. What is in flight is then not bounded, and lags reach
    /// several times the lead; for simulation, or with a filter at consumption.
    Completed,
}

/// Rules of admission. Absent: not a rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionRules {
    /// How many batches generation may be ahead of learning (η): with N groups submitted, this one included, it may
    /// start when ⌊(N − 1)/B⌋ ≤ version + η.
    pub lead: Option<u64>,
    /// What the lead counts.
    pub count: AdmissionCount,
    /// Whether nothing that is learned from may be further behind than the lead. The lead alone promises that in the
    /// order of submission only.
    pub bounds_lag: bool,
    /// Most trajectories in flight (C), paused ones included.
    pub pool: Option<u64>,
    /// Complete trajectories that may wait for the learner; one that finds no room keeps its place in the pool, as an
    /// actor blocked at a full queue does.
    pub buffer: Option<u64>,
    /// Most trajectories that decode at once, whatever the engines could hold.
    pub concurrency: Option<u64>,
    /// A limit that follows the engines' memory instead.
    pub throttle: Option<ThrottleConfig>,
}
