//! The figures reported beside a token loss, as sums and counts, so that those of micro-batches add up.
//!
//! Invariant: every loss token of the rows that a loss was given is counted under exactly one fate.

use crate::trajectory::{TokenFate, TokenFates};

/// A figure: a mean over the loss tokens, unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Ratio that the objective clips or weighs by, before any clipping (of whole sequences where it is theirs).
    RatioMean,
    /// Share where the ratio was below its interval and clipping acted.
    ClipFracLow,
    /// Share where the ratio was above its interval and clipping acted.
    ClipFracHigh,
    /// Share where the second clip, of negative advantages, acted.
    DualClipFrac,
    /// Share that the off-policy rule removed.
    MaskedFrac,
    /// Share removed below the lower bound.
    MaskedFracLow,
    /// Share removed above the upper bound.
    MaskedFracHigh,
    /// Importance weight before its cap or mask.
    WeightMeanRaw,
    /// Share whose importance weight was above its cap.
    WeightClampedFrac,
    /// KL(μ‖π) by −x, with x = log π/μ.
    KlK1,
    /// KL(μ‖π) by x²/2.
    KlK2,
    /// KL(μ‖π) by exp(x) − 1 − x.
    KlK3,
    /// The estimator of the reference KL that is in the loss, before its coefficient.
    ReferenceKl,
    /// Entropy of the current policy, nats.
    Entropy,
    /// Share whose teacher term was clipped.
    RewardClipFrac,
    /// KL(π‖teacher) by log π − log teacher.
    ReverseKlK1,
    /// Margin of the pairs, over pairs.
    MarginMean,
    /// Share of the pairs with a positive margin.
    Accuracy,
}

impl Figure {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 18] = [
        Self::RatioMean,
        Self::ClipFracLow,
        Self::ClipFracHigh,
        Self::DualClipFrac,
        Self::MaskedFrac,
        Self::MaskedFracLow,
        Self::MaskedFracHigh,
        Self::WeightMeanRaw,
        Self::WeightClampedFrac,
        Self::KlK1,
        Self::KlK2,
        Self::KlK3,
        Self::ReferenceKl,
        Self::Entropy,
        Self::RewardClipFrac,
        Self::ReverseKlK1,
        Self::MarginMean,
        Self::Accuracy,
    ];

    /// Its name in metrics and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RatioMean => "ratio_mean",
            Self::ClipFracLow => "clip_frac_low",
            Self::ClipFracHigh => "clip_frac_high",
            Self::DualClipFrac => "dual_clip_frac",
            Self::MaskedFrac => "masked_frac",
            Self::MaskedFracLow => "masked_frac_low",
            Self::MaskedFracHigh => "masked_frac_high",
            Self::WeightMeanRaw => "weight_mean_raw",
            Self::WeightClampedFrac => "weight_clamped_frac",
            Self::KlK1 => "kl_k1",
            Self::KlK2 => "kl_k2",
            Self::KlK3 => "kl_k3",
            Self::ReferenceKl => "reference_kl",
            Self::Entropy => "entropy",
            Self::RewardClipFrac => "reward_clip_frac",
            Self::ReverseKlK1 => "reverse_kl_k1",
            Self::MarginMean => "margin_mean",
            Self::Accuracy => "accuracy",
        }
    }
}

/// Sum and number of what a figure is the mean of.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sum {
    total: f64,
    count: u64,
}

/// The figures of a batch, or of the micro-batches merged so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnostics {
    loss_tokens: u64,
    sums: [Sum; Figure::ALL.len()],
    fates: [u64; TokenFate::ALL.len()],
}

impl Diagnostics {
    /// Number of loss tokens; with 0 there was nothing to learn from.
    #[must_use]
    pub fn loss_tokens(&self) -> u64 {
        self.loss_tokens
    }

    /// A figure; `None` where the objective does not have it, or there was nothing to average over.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<f64> {
        let sum = self.sums[figure as usize];
        (sum.count > 0).then(|| sum.total / sum.count as f64)
    }

    /// What became of the loss tokens, and how many there are.
    #[must_use]
    pub fn fates(&self) -> TokenFates {
        let mut fates = TokenFates::default();
        TokenFate::ALL.into_iter().zip(self.fates).for_each(|(fate, tokens)| fates.add(fate, tokens));
        fates
    }

    /// Every figure that is defined, by name, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let figures = Figure::ALL.into_iter();
        figures.filter_map(|figure| Some((figure.name(), self.get(figure)?))).collect()
    }

    /// Adds the figures of another micro-batch of the same batch.
    pub fn merge(&mut self, other: &Self) {
        self.loss_tokens += other.loss_tokens;
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            sum.total += more.total;
            sum.count += more.count;
        }
        self.fates.iter_mut().zip(other.fates).for_each(|(tokens, more)| *tokens += more);
    }

    /// Counts one value towards a figure.
    pub(super) fn record(&mut self, figure: Figure, value: f64) {
        let sum = &mut self.sums[figure as usize];
        sum.total += value;
        sum.count += 1;
    }

    /// Counts one token towards a share.
    pub(super) fn flag(&mut self, figure: Figure, set: bool) {
        self.record(figure, f64::from(u8::from(set)));
    }

    /// Counts one token towards the shares that an off-policy rule with two bounds removed.
    pub(super) fn masked(&mut self, low: bool, high: bool) {
        self.flag(Figure::MaskedFracLow, low);
        self.flag(Figure::MaskedFracHigh, high);
        self.removed(if low { TokenFate::OffPolicyLow } else { TokenFate::OffPolicyHigh }, low || high);
    }

    /// Counts one token towards the share that a rule removed.
    pub(super) fn removed(&mut self, fate: TokenFate, removed: bool) {
        self.flag(Figure::MaskedFrac, removed);
        if removed {
            self.fate(fate, 1);
        }
    }

    /// Counts tokens under their fate.
    pub(super) fn fate(&mut self, fate: TokenFate, tokens: usize) {
        self.fates[fate as usize] += tokens as u64;
    }

    /// Counts those of `tokens` as learned from that have got no fate since `before` tokens had one.
    pub(super) fn rest_is_learned(&mut self, tokens: usize, before: u64) {
        let removed = self.with_fate() - before;
        self.fates[TokenFate::Learned as usize] += tokens as u64 - removed;
    }

    /// Tokens that have a fate.
    pub(super) fn with_fate(&self) -> u64 {
        self.fates.iter().sum()
    }

    /// Counts a loss token and its divergence from the behaviour policy; x = log π/μ.
    pub(super) fn token(&mut self, x: f64) {
        self.loss_tokens += 1;
        self.record(Figure::KlK1, -x);
        self.record(Figure::KlK2, x * x / 2.0);
        self.record(Figure::KlK3, x.exp_m1() - x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_listed_once_each_in_the_order_of_their_places() {
        for (place, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, place, "{}", figure.name());
        }
    }

    #[test]
    fn merged_micro_batches_have_the_figures_of_the_whole() {
        let mut whole = Diagnostics::default();
        let mut parts = [Diagnostics::default(), Diagnostics::default()];
        for (index, x) in [0.5, -1.0, 0.25].into_iter().enumerate() {
            whole.token(x);
            parts[index % 2].token(x);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        assert_eq!(merged.loss_tokens(), 3);
        assert!((merged.get(Figure::KlK1).unwrap() - whole.get(Figure::KlK1).unwrap()).abs() < 1e-15);
        assert_eq!(merged.get(Figure::RatioMean), None);
    }
}
