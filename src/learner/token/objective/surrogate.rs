//! The clipped surrogate that the PPO family shares.
//!
//! ```text
//! C(x, A) = min(x A, clip(x, 1 − clip_low, 1 + clip_high) A);   with dual_clip c and A < 0: max(C, c A)
//! ```
//!
//! The gradient is that of the selected branch: x A with respect to log π (x is a ratio to π), or 0 where a clip acts.
//! Sources: Schulman et al., "Proximal policy optimization algorithms", 2017 (arXiv 1707.06347), equation 7; the second
//! clip: Ye et al., "Mastering complex control in MOBA games with deep reinforcement learning", 2020
//! (arXiv 1912.09729).

use super::row::Term;
use crate::learner::token::{Diagnostics, Figure, TokenLossError};

/// How far the ratio may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surrogate {
    pub clip_low: f64,
    pub clip_high: f64,
    pub dual_clip: Option<f64>,
}

impl Surrogate {
    /// A surrogate without the second clip.
    pub fn new(clip_low: f64, clip_high: f64) -> Self {
        Self { clip_low, clip_high, dual_clip: None }
    }

    pub fn validate(&self) -> Result<(), TokenLossError> {
        let (low, high) = (self.clip_low, self.clip_high);
        TokenLossError::check("clip_low", low, (0.0..=1.0).contains(&low), "between 0 and 1")?;
        TokenLossError::check_not_negative("clip_high", high)?;
        let dual = self.dual_clip.unwrap_or(f64::INFINITY);
        TokenLossError::check("dual_clip", dual, dual > 1.0, "above 1, or absent")
    }

    /// −C(ratio, advantage).
    pub fn term(&self, ratio: f64, advantage: f64) -> Term {
        if advantage == 0.0 {
            return Term::default();
        }
        let dual = self.dual_clip.unwrap_or(f64::INFINITY);
        let constant = |bound: f64| Term { value: -bound * advantage, slope: 0.0 };
        if advantage > 0.0 && ratio > 1.0 + self.clip_high {
            constant(1.0 + self.clip_high)
        } else if advantage < 0.0 && ratio < 1.0 - self.clip_low {
            constant(1.0 - self.clip_low)
        } else if advantage < 0.0 && ratio > dual {
            constant(dual)
        } else {
            let loss = -ratio * advantage;
            Term { value: loss, slope: loss }
        }
    }

    /// Counts where clipping acts.
    pub fn count(&self, ratio: f64, advantage: f64, diagnostics: &mut Diagnostics) {
        diagnostics.flag(Figure::ClipFracHigh, ratio > 1.0 + self.clip_high && advantage > 0.0);
        diagnostics.flag(Figure::ClipFracLow, ratio < 1.0 - self.clip_low && advantage < 0.0);
        if let Some(dual) = self.dual_clip {
            diagnostics.flag(Figure::DualClipFrac, ratio > dual && advantage < 0.0);
        }
    }

    /// Counts a token that an off-policy rule removed: no clipping acts on it.
    pub fn count_removed(&self, diagnostics: &mut Diagnostics) {
        self.count(1.0, 0.0, diagnostics);
    }

    /// −C, counted.
    pub fn counted(&self, ratio: f64, advantage: f64, diagnostics: &mut Diagnostics) -> Term {
        self.count(ratio, advantage, diagnostics);
        self.term(ratio, advantage)
    }
}
