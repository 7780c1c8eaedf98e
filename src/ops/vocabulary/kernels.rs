//! What happens to a tile of logits once the product has made it: summed up on the way forward, turned into their own
//! gradient on the way back.

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes};
use super::log_sum::{LogSum, Part};

/// What one chunk means to one row.
#[derive(Clone, Copy)]
pub(super) struct RowPart<T> {
    /// The chunk's part of the sum.
    pub(super) part: Part<T>,
    /// The scaled logit of the row's target, in the chunk that holds it; else 0.
    pub(super) target: T,
}

/// Sums up one chunk of several rows.
pub(super) struct Summarise<'a, T> {
    /// `[rows, width]`.
    pub(super) logits: &'a [T],
    /// Entries of the chunk.
    pub(super) width: usize,
    /// The chunk's first entry.
    pub(super) first: usize,
    /// What scales the logits.
    pub(super) inverse: T,
    /// One for each row.
    pub(super) targets: &'a [u32],
    /// Result, one for each row.
    pub(super) parts: &'a mut [RowPart<T>],
}

impl<T: Element> WithSimd for Summarise<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.logits.chunks_exact(self.width).zip(self.targets);
        for ((logits, &target), result) in rows.zip(self.parts) {
            let place = (target as usize).wrapping_sub(self.first);
            let target = logits.get(place).map_or(T::zero(), |&logit| logit * self.inverse);
            *result = RowPart { part: Part::of(simd, logits, self.inverse), target };
        }
    }
}

/// What the gradient of a row's logits is made of: `(e (h d + c)) · scale` with `d = z - max` and `e = exp(d)`, and
/// `target` on top at the target.
pub(super) struct RowGradient<T> {
    max: T,
    /// Gradient of the entropy, `h`.
    entropy: T,
    /// `c`.
    constant: T,
    scale: T,
    target: T,
    /// The target's entry.
    entry: usize,
}

impl<T: Element> RowGradient<T> {
    /// From the gradients of a row's log-probability and entropy.
    ///
    /// `d log p_t / d z_i = [i = t] - p_i` and `dH / d z_i = -p_i (log p_i + H)`, where `p_i = e_i / s` and
    /// `log p_i = d_i - ln s`; the logits themselves are scaled by `inverse`.
    pub(super) fn new(sum: &LogSum, entry: u32, [log_prob, entropy]: [T; 2], inverse: T) -> Self {
        let surprise = sum.entropy() - sum.sum().ln();
        Self {
            max: T::constant(sum.max()),
            entropy,
            constant: T::constant(log_prob.to_f64() + entropy.to_f64() * surprise),
            scale: T::constant(-inverse.to_f64() / sum.sum()),
            target: log_prob * inverse,
            entry: entry as usize,
        }
    }
}

/// Turns the logits of one chunk of several rows into their gradients, in place.
pub(super) struct Differentiate<'a, T> {
    /// `[rows, width]`.
    pub(super) logits: &'a mut [T],
    /// Entries of the chunk.
    pub(super) width: usize,
    /// The chunk's first entry.
    pub(super) first: usize,
    /// What scales the logits.
    pub(super) inverse: T,
    /// One for each row.
    pub(super) rows: &'a [RowGradient<T>],
}

impl<T: Element> WithSimd for Differentiate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (logits, row) in self.logits.chunks_exact_mut(self.width).zip(self.rows) {
            let inverse = Lanes::splat(simd, self.inverse);
            let max = Lanes::splat(simd, row.max);
            let (entropy, constant) = (Lanes::splat(simd, row.entropy), Lanes::splat(simd, row.constant));
            let scale = Lanes::splat(simd, row.scale);
            for values in logits.chunks_mut(Lanes::<S, T>::width()) {
                let difference = Lanes::load(simd, values) * inverse - max;
                let slope = entropy.multiply_add(difference, constant);
                (difference.exp() * slope * scale).store(values);
            }
            if let Some(value) = logits.get_mut(row.entry.wrapping_sub(self.first)) {
                *value += row.target;
            }
        }
    }
}
