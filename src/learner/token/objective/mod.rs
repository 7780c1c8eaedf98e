//! The objectives of the token workload, one small file each.
//!
//! Every objective is a pure function from a row's loss tokens (or from a pair's margin) to a loss and its derivative
//! with respect to log π in closed form. Its settings carry its documentation: formula, source, what carries no
//! gradient, default aggregation. Letters: π the policy that is optimised, μ the one that sampled, π_prox the one at
//! the start of the step, r = π/μ, A the advantage, sg stop-gradient. A loss is minimised.

mod best_of_n;
mod cispo;
mod dapo;
mod decoupled_ppo;
mod dis;
mod dr_grpo;
mod four_bound;
mod grpo;
mod gspo;
mod icepop;
mod k15;
mod k25;
mod k3;
mod lag_mask;
mod mopd;
mod opsm;
mod pairwise;
mod ppo;
mod proximal;
mod reinforce;
mod rloo;
mod row;
mod sapo;
mod surrogate;
mod table;
mod tis;
mod topr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Aggregation, BoundControlConfig, FourBounds, Needs, ReferenceKlConfig, TokenLossError};

pub use best_of_n::BestOfNConfig;
pub use cispo::CispoConfig;
pub use dapo::DapoConfig;
pub use decoupled_ppo::{CapMode, DecoupledPpoConfig};
pub use dis::{DisConfig, Interval};
pub use dr_grpo::DrGrpoConfig;
pub use four_bound::FourBoundConfig;
pub use grpo::GrpoConfig;
pub use gspo::GspoConfig;
pub use icepop::IcepopConfig;
pub use k3::{K3Config, Outside};
pub use k15::K15Config;
pub use k25::K25Config;
pub use lag_mask::LagMaskConfig;
pub use mopd::MopdConfig;
pub use opsm::OpsmConfig;
pub use pairwise::{IpoConfig, OnlineDpoConfig};
pub use ppo::TokenPpoConfig;
pub use proximal::ProximalPolicy;
pub use reinforce::ReinforceConfig;
pub use rloo::RlooConfig;
pub use sapo::SapoConfig;
pub use table::{TOKEN_OBJECTIVES, TokenObjectiveEntry};
pub use tis::{TisConfig, WeightLevel};
pub use topr::ToprConfig;

pub(super) use row::{Form, Objective, PairObjective, Row, RowChoice, RowObjective, Term, Terms};

/// What is optimised on tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TokenObjectiveConfig {
    /// The plain policy gradient, no correction for the lag.
    Reinforce(ReinforceConfig),
    /// The clipped surrogate against the sampling policy.
    Ppo(TokenPpoConfig),
    /// The clipped surrogate around the policy at the start of the step, with an importance weight.
    DecoupledPpo(DecoupledPpoConfig),
    /// The clipped surrogate with a reference KL, by sequence.
    Grpo(GrpoConfig),
    /// The clipped surrogate with more room upwards, by token.
    Dapo(DapoConfig),
    /// The clipped surrogate over a constant denominator.
    DrGrpo(DrGrpoConfig),
    /// The clipped surrogate of sequence ratios.
    Gspo(GspoConfig),
    /// The policy gradient with clipped importance weights.
    Cispo(CispoConfig),
    /// REINFORCE on whole sequences.
    Rloo(RlooConfig),
    /// The clipped surrogate with truncated importance weights.
    Tis(TisConfig),
    /// The clipped surrogate without tokens whose importance weight leaves its bounds.
    Icepop(IcepopConfig),
    /// The importance-weighted policy gradient inside an interval of the ratio.
    Dis(DisConfig),
    /// The importance-weighted policy gradient inside an interval for each sign of the advantage.
    FourBound(FourBoundConfig),
    /// Mirror descent of Kimi k1.5.
    K15(K15Config),
    /// Masked ratio and square of Kimi K3.
    K3(K3Config),
    /// Probability mask and square of the K2.5 type.
    K25(K25Config),
    /// Tapered off-policy REINFORCE.
    Topr(ToprConfig),
    /// The soft gate.
    Sapo(SapoConfig),
    /// The clipped surrogate without off-policy sequences of negative advantage.
    Opsm(OpsmConfig),
    /// The clipped surrogate without tokens that are too old.
    LagMask(LagMaskConfig),
    /// Preference pairs through a sigmoid.
    OnlineDpo(OnlineDpoConfig),
    /// Preference pairs through a square.
    Ipo(IpoConfig),
    /// Imitation of the best answer.
    BestOfN(BestOfNConfig),
    /// On-policy distillation from a teacher.
    Mopd(MopdConfig),
}

impl Default for TokenObjectiveConfig {
    fn default() -> Self {
        Self::Grpo(GrpoConfig::default())
    }
}

impl TokenObjectiveConfig {
    /// The settings in the shape in which they compute.
    pub(super) fn form(&self) -> Form<'_> {
        match self {
            Self::Reinforce(settings) => Form::Rows(settings),
            Self::Ppo(settings) => Form::Rows(settings),
            Self::DecoupledPpo(settings) => Form::Rows(settings),
            Self::Grpo(settings) => Form::Rows(settings),
            Self::Dapo(settings) => Form::Rows(settings),
            Self::DrGrpo(settings) => Form::Rows(settings),
            Self::Gspo(settings) => Form::Rows(settings),
            Self::Cispo(settings) => Form::Rows(settings),
            Self::Rloo(settings) => Form::Rows(settings),
            Self::Tis(settings) => Form::Rows(settings),
            Self::Icepop(settings) => Form::Rows(settings),
            Self::Dis(settings) => Form::Rows(settings),
            Self::FourBound(settings) => Form::Rows(settings),
            Self::K15(settings) => Form::Rows(settings),
            Self::K3(settings) => Form::Rows(settings),
            Self::K25(settings) => Form::Rows(settings),
            Self::Topr(settings) => Form::Rows(settings),
            Self::Sapo(settings) => Form::Rows(settings),
            Self::Opsm(settings) => Form::Rows(settings),
            Self::LagMask(settings) => Form::Rows(settings),
            Self::OnlineDpo(settings) => Form::Pairs(settings),
            Self::Ipo(settings) => Form::Pairs(settings),
            Self::BestOfN(settings) => Form::Rows(settings),
            Self::Mopd(settings) => Form::Rows(settings),
        }
    }

    fn settings(&self) -> &dyn Objective {
        match self.form() {
            Form::Rows(objective) => objective,
            Form::Pairs(objective) => objective,
        }
    }

    /// Its name in configurations.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Reinforce(_) => "reinforce",
            Self::Ppo(_) => "ppo",
            Self::DecoupledPpo(_) => "decoupled_ppo",
            Self::Grpo(_) => "grpo",
            Self::Dapo(_) => "dapo",
            Self::DrGrpo(_) => "dr_grpo",
            Self::Gspo(_) => "gspo",
            Self::Cispo(_) => "cispo",
            Self::Rloo(_) => "rloo",
            Self::Tis(_) => "tis",
            Self::Icepop(_) => "icepop",
            Self::Dis(_) => "dis",
            Self::FourBound(_) => "four_bound",
            Self::K15(_) => "k15",
            Self::K3(_) => "k3",
            Self::K25(_) => "k25",
            Self::Topr(_) => "topr",
            Self::Sapo(_) => "sapo",
            Self::Opsm(_) => "opsm",
            Self::LagMask(_) => "lag_mask",
            Self::OnlineDpo(_) => "online_dpo",
            Self::Ipo(_) => "ipo",
            Self::BestOfN(_) => "best_of_n",
            Self::Mopd(_) => "mopd",
        }
    }

    /// Refuses settings that are out of range.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        self.settings().validate()
    }

    /// Which optional arrays of a batch it reads.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.settings().needs()
    }

    /// The aggregation that it is published with.
    #[must_use]
    pub fn aggregation(&self) -> Aggregation {
        self.settings().aggregation()
    }

    /// The reference KL that it is published with.
    #[must_use]
    pub fn reference_kl(&self) -> ReferenceKlConfig {
        self.settings().reference_kl()
    }

    /// Whether it weighs or clips by a ratio of the current to the sampling policy, so that advantages must not carry one.
    #[must_use]
    pub fn corrects_lag(&self) -> bool {
        match self {
            Self::Rloo(settings) => settings.seq_ratio_cap.is_some(),
            Self::Mopd(settings) => settings.importance,
            Self::Reinforce(_) | Self::K15(_) | Self::OnlineDpo(_) | Self::Ipo(_) | Self::BestOfN(_) => false,
            _ => true,
        }
    }

    /// Whether it weighs, gates or compares whole sequences, of which no token may be missing.
    #[must_use]
    pub fn takes_whole_sequences(&self) -> bool {
        match self {
            Self::Rloo(settings) => settings.seq_ratio_cap.is_some(),
            Self::Tis(settings) => settings.level == WeightLevel::Sequence,
            Self::Topr(settings) => settings.level == WeightLevel::Sequence,
            Self::Gspo(_) | Self::Opsm(_) | Self::OnlineDpo(_) | Self::Ipo(_) => true,
            _ => false,
        }
    }

    /// Whether it compares answers to the same problem with each other, whatever the advantage.
    #[must_use]
    pub fn compares_answers(&self) -> bool {
        matches!(self, Self::OnlineDpo(_) | Self::Ipo(_) | Self::BestOfN(_))
    }

    /// Whether every token of a sequence must have the same advantage.
    #[must_use]
    pub fn takes_one_advantage_a_sequence(&self) -> bool {
        match self {
            Self::K15(settings) => settings.level == WeightLevel::Sequence,
            Self::Gspo(_) | Self::Opsm(_) => true,
            _ => false,
        }
    }

    /// The controller of its bounds and the bounds that it begins with, where it has one.
    #[must_use]
    pub fn bound_control(&self) -> Option<(BoundControlConfig, FourBounds)> {
        match self {
            Self::FourBound(settings) => Some((settings.control?, settings.bounds())),
            _ => None,
        }
    }

    /// Puts bounds in place of those that are set, where it has them.
    pub(super) fn set_bounds(&mut self, bounds: FourBounds) {
        if let Self::FourBound(settings) = self {
            settings.set_bounds(bounds);
        }
    }

    /// Refuses an aggregation that does not fit.
    pub fn accept(&self, aggregation: Aggregation) -> Result<(), TokenLossError> {
        let refused = self.settings().refuses(aggregation);
        refused.map_or(Ok(()), |allowed| {
            Err(TokenLossError::Aggregation { objective: self.kind(), aggregation, allowed })
        })
    }
}
