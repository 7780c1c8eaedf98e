//! The sum of the exponentials of a row of logits, chunk by chunk in one fixed order.
//!
//! A row is cut into chunks of [`CHUNK`] logits from its first. With `z = logit / temperature` a chunk comes to its
//! maximum `m`, `s = Σ exp(z - m)` and `w = Σ exp(z - m) (z - m)` ([`Part`]); the parts are merged in the order of
//! their chunks ([`LogSum`]), which gives `log p = z - m - ln s` and the entropy `ln s - w / s`. Inside a chunk the
//! sums run down columns ([`super::super::columns`]). A learner that makes the logits chunk by chunk and a generator
//! that has them all therefore come to the same bits.
//!
//! A logit of -∞ has probability 0 and counts for nothing; a NaN or +∞ turns the sum into a NaN.

use candle_core::WithDType;
use pulp::Simd;

use super::super::columns::{COLUMNS, Largest, Sum, folded};
use super::super::lanes::{Element, Lanes};

/// Logits in a chunk.
pub(in super::super) const CHUNK: usize = 1024;

/// Where maxima start from: below every logit but -∞, and finite, so that no difference to it is a NaN.
const LOWEST: f64 = -1e38;

/// `1 / temperature`, by which logits are multiplied. The temperature is rounded to the type of the logits first, so
/// that one which was kept as `f32` scales `f32` logits as the `f64` it was written as does.
pub(in super::super) fn inverse_temperature<T: Element>(temperature: f64) -> T {
    T::constant(1.0 / T::constant(temperature).to_f64())
}

/// What one chunk of a row comes to.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Part<T> {
    /// `m`.
    max: T,
    /// `s`.
    sum: T,
    /// `w`.
    weighted: T,
}

impl<T: Element> Part<T> {
    /// A chunk without logits.
    pub(in super::super) fn empty() -> Self {
        Self { max: T::constant(LOWEST), sum: T::zero(), weighted: T::zero() }
    }

    /// Goes over the logits of a chunk (at most [`CHUNK`]), each multiplied by `inverse` (positive).
    #[inline(always)]
    pub(in super::super) fn of<S: Simd>(simd: S, logits: &[T], inverse: T) -> Self {
        let blocks = Blocks::of(logits);
        let max = folded::<S, T, Largest>(simd, blocks.maxima(simd, inverse));
        let (mut sums, mut weighted) = ([T::zero(); COLUMNS], [T::zero(); COLUMNS]);
        for block in blocks.iter() {
            accumulate(simd, block, inverse, max, &mut sums, &mut weighted);
        }
        Self { max, sum: folded::<S, T, Sum>(simd, sums), weighted: folded::<S, T, Sum>(simd, weighted) }
    }

    /// The scaled maximum of the chunk.
    pub(in super::super) fn max(&self) -> T {
        self.max
    }
}

/// A chunk cut into lines of [`COLUMNS`] logits, the last filled up with -∞, which counts for nothing.
pub(in super::super) struct Blocks<'a, T> {
    full: &'a [[T; COLUMNS]],
    last: Option<[T; COLUMNS]>,
}

impl<'a, T: Element> Blocks<'a, T> {
    #[inline(always)]
    pub(in super::super) fn of(logits: &'a [T]) -> Self {
        let (full, tail) = logits.as_chunks::<COLUMNS>();
        let mut last = [T::constant(f64::NEG_INFINITY); COLUMNS];
        last[..tail.len()].copy_from_slice(tail);
        Self { full, last: (!tail.is_empty()).then_some(last) }
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = &[T; COLUMNS]> {
        self.full.iter().chain(&self.last)
    }

    /// The maximum of each column, each logit multiplied by `inverse`.
    #[inline(always)]
    pub(in super::super) fn maxima<S: Simd>(&self, simd: S, inverse: T) -> [T; COLUMNS] {
        let mut maxima = [T::constant(LOWEST); COLUMNS];
        for block in self.iter() {
            raise(simd, block, inverse, &mut maxima);
        }
        maxima
    }
}

/// Raises the maximum of each column to its value in `block`; a NaN is passed over here and met by the sums.
#[inline(always)]
fn raise<S: Simd, T: Element>(simd: S, block: &[T; COLUMNS], inverse: T, maxima: &mut [T; COLUMNS]) {
    let width = Lanes::<S, T>::width();
    for (logits, maxima) in block.chunks_exact(width).zip(maxima.chunks_exact_mut(width)) {
        let z = Lanes::load(simd, logits) * Lanes::splat(simd, inverse);
        let max = Lanes::load(simd, maxima);
        max.where_less(z, z, max).store(maxima);
    }
}

/// Adds `e = exp(z - max)` and `e (z - max)` of a block to its columns.
#[inline(always)]
fn accumulate<S: Simd, T: Element>(
    simd: S,
    block: &[T; COLUMNS],
    inverse: T,
    max: T,
    sums: &mut [T; COLUMNS],
    weighted: &mut [T; COLUMNS],
) {
    let width = Lanes::<S, T>::width();
    let columns = sums.chunks_exact_mut(width).zip(weighted.chunks_exact_mut(width));
    for (logits, (sums, weighted)) in block.chunks_exact(width).zip(columns) {
        let z = Lanes::load(simd, logits) * Lanes::splat(simd, inverse);
        let difference = z - Lanes::splat(simd, max);
        let e = difference.exp();
        (Lanes::load(simd, sums) + e).store(sums);
        // Not 0 · -∞, which is a NaN.
        let zero = Lanes::splat(simd, T::zero());
        let term = zero.where_less(e, e * difference, zero);
        (Lanes::load(simd, weighted) + term).store(weighted);
    }
}

/// The parts of a row merged, in `f64` whatever the type of the logits: relative to the maximum of them all.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct LogSum {
    max: f64,
    sum: f64,
    weighted: f64,
}

impl LogSum {
    /// A row without logits.
    pub(in super::super) const EMPTY: Self = Self { max: LOWEST, sum: 0.0, weighted: 0.0 };

    /// Merges the next chunk in.
    pub(in super::super) fn add<T: Element>(&mut self, part: Part<T>) {
        let [part_max, sum, weighted] = [part.max, part.sum, part.weighted].map(WithDType::to_f64);
        let max = if part_max > self.max { part_max } else { self.max };
        let (below, part_below) = (self.max - max, part_max - max);
        let (scale, part_scale) = (below.exp(), part_below.exp());
        self.weighted =
            scale * (self.weighted + below * self.sum) + part_scale * (weighted + part_below * sum);
        self.sum = scale * self.sum + part_scale * sum;
        self.max = max;
    }

    /// The maximum of the scaled logits.
    pub(in super::super) fn max(&self) -> f64 {
        self.max
    }

    /// `Σ exp(z - max)`.
    pub(in super::super) fn sum(&self) -> f64 {
        self.sum
    }

    /// The share of the sum that lies in one of its parts.
    pub(in super::super) fn mass<T: Element>(&self, part: Part<T>) -> f64 {
        part.sum.to_f64() * (part.max.to_f64() - self.max).exp()
    }

    /// The log-probability of a scaled logit, in nats.
    pub(in super::super) fn log_prob<T: Element>(&self, z: T) -> T {
        T::constant(z.to_f64() - self.max - self.sum.ln())
    }

    /// The entropy, in nats.
    pub(in super::super) fn entropy(&self) -> f64 {
        self.sum.ln() - self.weighted / self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lanes::on_this_processor;
    use super::super::super::testing::{ARCHITECTURE, pseudo_random};
    use super::*;
    use candle_core::DType;
    use pulp::WithSimd;

    struct OnePart<'a>(&'a [f32], f32);

    impl WithSimd for OnePart<'_> {
        type Output = Part<f32>;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Part<f32> {
            Part::of(simd, self.0, self.1)
        }
    }

    fn log_sum(logits: &[f32], inverse: f32) -> LogSum {
        let mut sum = LogSum::EMPTY;
        for chunk in logits.chunks(CHUNK) {
            sum.add(on_this_processor(OnePart(chunk, inverse)));
        }
        sum
    }

    fn logits(count: usize) -> Vec<f32> {
        (pseudo_random(&[count], 5, DType::F32) * 6.0).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn agrees_with_a_plain_sum_at_every_kind_of_length() {
        for count in [1, 2, 63, 64, 65, 1023, 1024, 1025, 5000] {
            for shift in [0.0, -300.0, 300.0] {
                let logits: Vec<f32> = logits(count).iter().map(|l| l + shift).collect();
                let z: Vec<f64> = logits.iter().map(|&l| f64::from(l) * 0.7).collect();
                let max = z.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = z.iter().map(|z| (z - max).exp()).sum();
                let log = max + total.ln();
                let entropy: f64 = z.iter().map(|z| (z - log).exp() * (log - z)).sum();
                let sum = log_sum(&logits, 0.7);
                assert!((sum.max() + sum.sum().ln() - log).abs() < 3e-5, "{count} {shift}");
                assert!((sum.entropy() - entropy).abs() < 3e-5, "{count} {shift}");
            }
        }
    }

    #[test]
    fn masked_logits_count_for_exactly_nothing() {
        let mut row = logits(3000);
        for logit in row.iter_mut().take(2900).skip(20) {
            *logit = f32::NEG_INFINITY;
        }
        let kept: Vec<f32> = row.iter().copied().filter(|l| l.is_finite()).collect();
        let (masked, alone) = (log_sum(&row, 1.0), log_sum(&kept, 1.0));
        assert!((masked.sum() - alone.sum()).abs() < 1e-6 && masked.max() == alone.max());
        assert!((masked.entropy() - alone.entropy()).abs() < 1e-6);
        // Behind a sharp temperature and with whole chunks masked there is still nothing but numbers.
        assert!(log_sum(&row, 1000.0).entropy().is_finite());
        assert_eq!(log_sum(&[f32::NEG_INFINITY; 70], 1.0).sum(), 0.0);
    }

    #[test]
    fn a_nan_or_an_infinity_comes_out_wherever_it_is() {
        for bad in [f32::NAN, f32::INFINITY] {
            for place in [0, 70, 1023, 1024, 1300] {
                let mut row = logits(1301);
                row[place] = bad;
                let sum = log_sum(&row, 1.0);
                assert!(sum.sum().is_nan() && sum.entropy().is_nan(), "{bad} at {place}");
            }
        }
        assert!(log_sum(&[f32::NAN; 3], 1.0).sum().is_nan());
    }

    #[test]
    fn the_order_of_the_sum_does_not_depend_on_the_vector_width() {
        let row = logits(2500);
        let widest = log_sum(&row, 1.0);
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            ARCHITECTURE.set(Some(pulp::Arch::V3(v3)));
            let narrower = log_sum(&row, 1.0);
            ARCHITECTURE.set(None);
            assert_eq!(narrower.sum().to_bits(), widest.sum().to_bits());
            assert_eq!(narrower.entropy().to_bits(), widest.entropy().to_bits());
        }
        ARCHITECTURE.set(Some(pulp::Arch::Scalar));
        let scalar = log_sum(&row, 1.0);
        ARCHITECTURE.set(None);
        assert!((scalar.sum() - widest.sum()).abs() < 1e-5 * widest.sum());
    }
}
