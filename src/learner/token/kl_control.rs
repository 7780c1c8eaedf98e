//! A coefficient of the reference KL that follows its target: a proportional controller, one step an update.
//!
//! With d the divergence of the sampling policy from the reference, measured on the batch of the update,
//!
//! ```text
//! error = clip((d − target) / target, −clip, clip)        coefficient ← coefficient · (1 + error / horizon)
//! ```
//!
//! so that a policy that strays is held more strongly, and one that is held too strongly is let go. Source: Ziegler et
//! al., "Fine-Tuning Language Models from Human Preferences", 2019 (arXiv 1909.08593), section 2.2, whose K_β is
//! 1/horizon and whose divergence is summed over an answer, where this is its mean a token.
//!
//! Invariants: the coefficient stays positive and finite, so that the term never goes away and can be measured again;
//! a divergence that is not a number changes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TokenLossError;

/// How the coefficient of the reference KL follows its target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KlControlConfig {
    /// Divergence from the reference that is aimed at, nats a token by the estimator of `loss.reference_kl`.
    pub target: f64,
    /// Updates in which the coefficient would double at an error of 1: the larger, the slower it moves.
    #[serde(default = "KlControlConfig::horizon")]
    pub horizon: f64,
    /// Largest error that is acted on, relative to the target.
    #[serde(default = "KlControlConfig::clip")]
    pub clip: f64,
}

impl KlControlConfig {
    fn horizon() -> f64 {
        10.0
    }

    fn clip() -> f64 {
        0.2
    }

    /// Refuses a target that is not positive, a horizon below 1, and a clip that is not between 0 and 1.
    ///
    /// # Errors
    /// The setting that is out of range.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_positive("kl_control.target", self.target)?;
        let (horizon, clip) = (self.horizon, self.clip);
        let far = horizon >= 1.0 && horizon.is_finite();
        TokenLossError::check("kl_control.horizon", horizon, far, "finite and at least 1")?;
        TokenLossError::check("kl_control.clip", clip, clip > 0.0 && clip < 1.0, "between 0 and 1")
    }

    /// The coefficient after an update that measured this divergence (nats a token) under `coefficient`.
    #[must_use]
    pub fn next(&self, coefficient: f64, divergence: f64) -> f64 {
        if !divergence.is_finite() {
            return coefficient;
        }
        let error = ((divergence - self.target) / self.target).clamp(-self.clip, self.clip);
        (coefficient * (1.0 + error / self.horizon)).clamp(f64::MIN_POSITIVE, f64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: KlControlConfig = KlControlConfig { target: 0.05, horizon: 10.0, clip: 0.2 };

    #[test]
    fn the_coefficient_moves_in_proportion_to_a_small_error_and_by_the_clip_at_most() {
        let ratio = |divergence: f64| CONTROL.next(0.3, divergence) / 0.3;
        for (divergence, expected) in [
            (0.05, 1.0),
            (0.055, 1.01),
            (0.0475, 0.995),
            (0.06, 1.02),
            (5.0, 1.02),
            (0.0, 0.98),
            // The first estimator may be negative.
            (-5.0, 0.98),
        ] {
            let got = ratio(divergence);
            assert!((got - expected).abs() < 1e-12, "{divergence}: {got} is not {expected}");
        }
    }

    #[test]
    fn what_cannot_be_measured_changes_nothing_and_nothing_turns_the_term_off() {
        assert_eq!(CONTROL.next(0.3, f64::NAN).to_bits(), 0.3_f64.to_bits());
        assert_eq!(CONTROL.next(0.3, f64::INFINITY).to_bits(), 0.3_f64.to_bits());
        assert!(CONTROL.next(f64::MIN_POSITIVE, 0.0) > 0.0);
        assert!(CONTROL.next(f64::MAX, 1.0).is_finite());
    }

    /// A policy whose divergence is where its coefficient lets it be.
    #[test]
    fn a_divergence_that_gives_way_to_the_coefficient_settles_at_the_target() {
        let mut coefficient = 1.0;
        for _ in 0..1000 {
            let divergence = 0.002 / coefficient;
            coefficient = CONTROL.next(coefficient, divergence);
        }
        assert!((coefficient - 0.04).abs() < 1e-6, "{coefficient}");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let parse = |text: &str| toml::from_str::<KlControlConfig>(text);
        assert_eq!(parse("target = 0.05").unwrap(), CONTROL);
        assert!(parse("horizon = 5.0").unwrap_err().to_string().contains("target"));
        for (text, name) in [
            ("target = 0.0", "target"),
            ("target = nan", "target"),
            ("target = 1.0\nhorizon = 0.5", "horizon"),
            ("target = 1.0\nhorizon = inf", "horizon"),
            ("target = 1.0\nclip = 0.0", "clip"),
            ("target = 1.0\nclip = 1.0", "clip"),
        ] {
            let error = parse(text).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
