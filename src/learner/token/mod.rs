//! Learning of the token workload: advantages of groups, objectives on log-probabilities, and how they are summed.
//!
//! Rewards are shaped first ([`GroupRewards`]). Then three independent axes, each a setting: the advantage
//! ([`advantage::TokenAdvantageConfig`]), the objective
//! ([`TokenObjectiveConfig`], with the reference KL and the entropy bonus beside it in [`TokenLossConfig`]) and the
//! [`Aggregation`]. All are pure functions on plain slices; gradients are in closed form.
//!
//! A step, for a batch cut into micro-batches: [`Denominators::new`] once from the whole batch's [`Shape`]; for each
//! micro-batch [`Denominators::select`] and [`token_loss`], whose gradients go to automatic differentiation and add
//! up; [`Diagnostics::merge`] puts the figures together.
//!
//! Invariants:
//!
//! - Values at tokens that are no loss tokens are selected away, never multiplied by 0: they may hold anything.
//! - Denominators count loss tokens of the whole batch before any off-policy rule removes some.
//! - Inputs are `f32` or `f64`; every sum and every function of them is computed in `f64`.

pub mod advantage;
mod aggregate;
mod applied;
mod batch;
mod bound_control;
mod critic;
mod diagnostics;
mod error;
mod flat;
mod group_rewards;
mod kept;
mod kl_control;
mod loss;
mod objective;
mod pairs;
mod pretraining;
mod reference_kl;
mod settings;
mod update;
mod value_loss;

pub use aggregate::{Aggregation, Denominators, Totals};
pub use applied::{Mismatch, TokenApplied};
pub use batch::{Needs, Shape, TokenBatch};
pub use bound_control::{BoundControlConfig, FourBounds};
pub use critic::Critic;
pub use diagnostics::{Diagnostics, Figure};
pub use error::TokenLossError;
pub use group_rewards::{Compared, GroupRewards, RewardFigures};
pub use kept::Keep;
pub use kl_control::KlControlConfig;
pub use loss::{TokenLoss, TokenLossConfig, pair_margins, token_loss};
pub use objective::{
    BestOfNConfig, CapMode, CispoConfig, DapoConfig, DecoupledPpoConfig, DisConfig, DrGrpoConfig,
    FourBoundConfig, GrpoConfig, GspoConfig, IcepopConfig, Interval, IpoConfig, K3Config, K15Config,
    K25Config, LagMaskConfig, MopdConfig, OnlineDpoConfig, OpsmConfig, Outside, ProximalPolicy,
    ReinforceConfig, RlooConfig, SapoConfig, TOKEN_OBJECTIVES, TisConfig, TokenObjectiveConfig,
    TokenObjectiveEntry, TokenPpoConfig, ToprConfig, WeightLevel,
};
pub use pairs::Pair;
pub use pretraining::{ValueFit, ValuePretraining};
pub use reference_kl::{KlEstimator, ReferenceKlConfig, mean_divergence, reference_kl_rewards};
pub use settings::{
    Compare, CriticConfig, CriticParameters, CriticTrunk, EffortConfig, TeacherConfig, TokenLearnerConfig,
    UpdateOrder,
};
pub use update::{LearningRates, LogProbDifferences, Teacher, TokenLearner, TokenLearnerState, TokenOutcome};
pub use value_loss::{TokenValueClip, TokenValueLoss, token_value_loss};

#[cfg(test)]
mod tests;
