//! The figures reported beside a loss.

use super::loss::Selection;
use crate::learner::Real;

/// How often the objective's clipping acted, as fractions of the entries that count.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Clipped {
    /// The objective does not clip.
    #[default]
    Nothing,
    /// V-trace: the ratio was above a bound.
    Ratios {
        /// Above `rho_bar`.
        rho_bar: f64,
        /// Above `c_bar`.
        c_bar: f64,
    },
    /// PPO: the clipped branch was chosen, which carries no gradient.
    Surrogate {
        /// The ratio was above its interval and the advantage positive.
        high: f64,
        /// The ratio was below its interval and the advantage negative.
        low: f64,
        /// The clipped value's error was the larger; `None` without value clipping.
        value: Option<f64>,
    },
}

/// What was minimised, part by part, and how the batch looked. Means and fractions are over the entries that are not
/// masked, and 0 when there is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnostics {
    /// Number of entries that are not masked; with 0 there is nothing to learn from.
    pub entries: usize,
    /// policy_loss + value_coef · baseline_loss − entropy_coef · entropy.
    pub total_loss: f64,
    /// The policy's part, reduced as configured.
    pub policy_loss: f64,
    /// The value function's part before its weight, reduced as configured.
    pub baseline_loss: f64,
    /// Entropy before its weight, reduced as configured, nats.
    pub entropy: f64,
    /// Entropy of the policy, mean, nats.
    pub entropy_mean: f64,
    /// Ratio π(a)/μ(a) before any clipping, mean.
    pub ratio_mean: f64,
    /// How often clipping acted.
    pub clipped: Clipped,
    /// Estimate of KL(μ‖π): mean of −x with x = log π(a)/μ(a). Unbiased; may be negative.
    pub kl_k1: f64,
    /// Estimate of KL(μ‖π): mean of exp(x) − 1 − x. Unbiased, never negative.
    pub kl_k3: f64,
    /// 1 − Var(target − value)/Var(target); `None` when the targets do not vary.
    pub explained_variance: Option<f64>,
    /// Mean of the advantages as given.
    pub advantage_mean: f64,
    /// Standard deviation of the advantages as given (divisor: number of entries).
    pub advantage_std: f64,
}

impl Diagnostics {
    /// Describes a batch; the losses are filled in by whoever computes them.
    pub(super) fn describe<F: Real>(
        selection: Selection<'_>,
        log_ratios: &[F],
        advantages: &[F],
        values: &[F],
        value_targets: &[F],
    ) -> Self {
        let target = |index: usize| value_targets[index].widen();
        let error = |index: usize| target(index) - values[index].widen();
        let advantage = |index: usize| advantages[index].widen();
        let [ratio_mean, kl_k1, kl_k3, advantage_mean, target_mean, error_mean] = means(selection, |index| {
            let log_ratio = log_ratios[index].widen();
            let ratio = log_ratio.exp();
            let kl_k3 = ratio - 1.0 - log_ratio;
            [ratio, -log_ratio, kl_k3, advantage(index), target(index), error(index)]
        });
        let [advantage_variance, target_variance, error_variance] = means(selection, |index| {
            [
                (advantage(index) - advantage_mean).powi(2),
                (target(index) - target_mean).powi(2),
                (error(index) - error_mean).powi(2),
            ]
        });
        Self {
            entries: selection.count(),
            ratio_mean,
            kl_k1,
            kl_k3,
            explained_variance: (target_variance > 0.0).then(|| 1.0 - error_variance / target_variance),
            advantage_mean,
            advantage_std: advantage_variance.sqrt(),
            ..Self::default()
        }
    }

    /// Every figure that is defined, by name, in a fixed order, for metrics and files.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![
            ("total_loss", self.total_loss),
            ("policy_loss", self.policy_loss),
            ("baseline_loss", self.baseline_loss),
            ("entropy", self.entropy_mean),
            ("ratio_mean", self.ratio_mean),
            ("kl_k1", self.kl_k1),
            ("kl_k3", self.kl_k3),
            ("advantage_mean", self.advantage_mean),
            ("advantage_std", self.advantage_std),
        ];
        figures.extend(self.explained_variance.map(|value| ("explained_variance", value)));
        match self.clipped {
            Clipped::Nothing => {}
            Clipped::Ratios { rho_bar, c_bar } => {
                figures.extend([("rho_clipped", rho_bar), ("c_clipped", c_bar)]);
            }
            Clipped::Surrogate { high, low, value } => {
                figures.extend([("ratio_clipped_high", high), ("ratio_clipped_low", low)]);
                figures.extend(value.map(|value| ("value_clipped", value)));
            }
        }
        figures
    }
}

/// The mean of each of several figures over the selected entries, 0 when there is none.
fn means<const N: usize>(selection: Selection<'_>, figures: impl Fn(usize) -> [f64; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    for index in selection.indices() {
        for (sum, figure) in sums.iter_mut().zip(figures(index)) {
            *sum += figure;
        }
    }
    sums.map(|sum| sum / selection.count().max(1) as f64)
}
