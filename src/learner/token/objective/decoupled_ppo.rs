//! Decoupled PPO: the trust region around the policy at the start of the step, the behaviour policy in a weight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proximal::ProximalPolicy;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Figure, Needs, TokenLossError};

/// What happens to a token whose weight is above the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapMode {
    /// It is removed from the loss; denominators still count it.
    #[default]
    Mask,
    /// Its weight is the cap.
    Clamp,
}

/// The clipped surrogate around the proximal policy, weighed for the behaviour policy, with u = π/π_prox and
/// w = π_prox/μ:
///
/// ```text
/// l = −w′ C(u, A),   w′ = w up to weight_cap; above it 0 (mask) or weight_cap (clamp)
/// ```
///
/// Stop-gradient: w, A, π_prox. Default aggregation: token_mean. Equal to PPO when π_prox = μ. Sources: Hilton et al.,
/// "Batch size-invariance for policy optimization", 2021 (arXiv 2110.00641); Fu et al., "AReaL", 2025
/// (arXiv 2505.24298).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecoupledPpoConfig {
    /// The ratio u may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio u may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Ratio u above which negative advantages lose their gradient too; absent: none (3 is usual).
    pub dual_clip: Option<f64>,
    /// Largest weight w.
    pub weight_cap: f64,
    /// What happens above it.
    pub cap_mode: CapMode,
    /// Where the proximal policy comes from.
    pub proximal: ProximalPolicy,
}

impl Default for DecoupledPpoConfig {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: None,
            weight_cap: 5.0,
            cap_mode: CapMode::Mask,
            proximal: ProximalPolicy::Recompute,
        }
    }
}

impl DecoupledPpoConfig {
    fn surrogate(&self) -> Surrogate {
        Surrogate { clip_low: self.clip_low, clip_high: self.clip_high, dual_clip: self.dual_clip }
    }

    /// w′ for w; a weight of exactly the cap is kept.
    #[must_use]
    pub fn weight(&self, w: f64) -> f64 {
        match self.cap_mode {
            _ if w <= self.weight_cap => w,
            CapMode::Mask => 0.0,
            CapMode::Clamp => self.weight_cap,
        }
    }
}

impl Objective for DecoupledPpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        self.surrogate().validate()?;
        let cap = self.weight_cap;
        TokenLossError::check(
            "weight_cap",
            cap,
            cap >= 1.0,
            "at least 1, the weight of tokens that are not stale",
        )
    }

    fn needs(&self) -> Needs {
        self.proximal.needs()
    }
}

impl RowObjective for DecoupledPpoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let surrogate = self.surrogate();
        terms.each(row, |token, diagnostics| {
            let token = &self.proximal.anchor(token);
            let (ratio, weight) = (token.proximal_ratio(), token.log_weight().exp());
            diagnostics.record(Figure::RatioMean, ratio);
            diagnostics.record(Figure::WeightMeanRaw, weight);
            let above = weight > self.weight_cap;
            match self.cap_mode {
                CapMode::Mask => diagnostics.masked(false, above),
                CapMode::Clamp => diagnostics.flag(Figure::WeightClampedFrac, above),
            }
            surrogate.counted(ratio, token.advantage, diagnostics).weighted(self.weight(weight))
        });
        Ok(())
    }
}
