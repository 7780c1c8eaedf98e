//! Advantages of the token workload: pure functions of the rewards of a group, and what shapes rewards before them.
//!
//! All arithmetic is in `f64`, as rewards are. A member without a reward (its grading failed) leaves all statistics
//! and gets the advantage 0. A group is of *zero variance* when fewer than two members have a reward, or when no
//! reward differs from their mean by `zero_tolerance`: its advantages are exactly 0, never amplified rounding noise,
//! and it is flagged, so that it can be left out of a batch.

mod baseline;
mod config;
mod effort;
mod gar;
mod group;
mod grs;
mod length;
mod pass_rate;
mod rubric;
mod shaping;

pub use baseline::{BaselineConfig, RewardBaseline};
pub use config::{ReinforceBaselineConfig, TokenAdvantageConfig};
pub use effort::{EffortBudgetConfig, effort_budget};
pub use gar::{GarConfig, GarGroup, GarMember, gar};
pub use group::{
    GroupAdvantages, GrpoAdvantageConfig, MaximumLikelihoodConfig, MeanBaselineConfig, RlooAdvantageConfig,
};
pub use grs::{GrsParts, grs_rewards};
pub use length::{OverlongPenaltyConfig, length_rewards, overlong_penalty};
pub use pass_rate::{PassCount, PassRates};
pub use rubric::{RubricConfig, RubricGrading, RubricMethod, RubricScores};
pub use shaping::{LengthRewardConfig, Shaped, ShapedAnswer, ShapingConfig};
