//! Sums over a row in an order that neither the vector width nor anything around the row can change.
//!
//! Value `i` belongs to column `i mod 64`. Each column is summed from top to bottom, in registers side by side, and
//! the columns are then folded in halves (32 onto 32, 16 onto 16, ...) until one is left. This is as fast as sums go,
//! more accurate than one long chain, and one order for registers of every width.

use pulp::Simd;

use super::lanes::{Element, Lanes};

/// Columns: as many as the widest register has lanes, times enough to hide the latency of a sum.
pub(super) const COLUMNS: usize = 64;

/// How two registers of columns become one.
pub(super) trait Fold {
    /// The fold.
    fn pair<S: Simd, T: Element>(a: Lanes<S, T>, b: Lanes<S, T>) -> Lanes<S, T>;
}

/// `a + b`.
pub(super) struct Sum;

impl Fold for Sum {
    #[inline(always)]
    fn pair<S: Simd, T: Element>(a: Lanes<S, T>, b: Lanes<S, T>) -> Lanes<S, T> {
        a + b
    }
}

/// The larger of `a` and `b`.
pub(super) struct Largest;

impl Fold for Largest {
    #[inline(always)]
    fn pair<S: Simd, T: Element>(a: Lanes<S, T>, b: Lanes<S, T>) -> Lanes<S, T> {
        a.where_less(b, b, a)
    }
}

/// Folds the upper half of the columns onto the lower until one is left.
#[inline(always)]
pub(super) fn folded<S: Simd, T: Element, F: Fold>(simd: S, mut columns: [T; COLUMNS]) -> T {
    let width = Lanes::<S, T>::width();
    let mut half = COLUMNS / 2;
    while half > 0 {
        let (low, high) = columns.split_at_mut(half);
        for (low, high) in low.chunks_mut(width).zip(high[..half].chunks(width)) {
            F::pair(Lanes::load(simd, low), Lanes::load(simd, high)).store(low);
        }
        half /= 2;
    }
    columns[0]
}

/// `Σ a_i b_i` of two rows of equal length.
#[inline(always)]
pub(super) fn dot<S: Simd, T: Element>(simd: S, a: &[T], b: &[T]) -> T {
    let mut columns = [T::zero(); COLUMNS];
    let width = Lanes::<S, T>::width();
    for (a, b) in a.chunks(COLUMNS).zip(b.chunks(COLUMNS)) {
        // Lanes beyond the end are zero in both and change nothing.
        for ((a, b), sum) in a.chunks(width).zip(b.chunks(width)).zip(columns.chunks_exact_mut(width)) {
            Lanes::load(simd, a).multiply_add(Lanes::load(simd, b), Lanes::load(simd, sum)).store(sum);
        }
    }
    folded::<S, T, Sum>(simd, columns)
}

#[cfg(test)]
mod tests {
    use super::super::lanes::on_this_processor;
    use super::super::testing::{ARCHITECTURE, pseudo_random};
    use super::*;
    use candle_core::DType;
    use pulp::WithSimd;

    struct Dot<'a>(&'a [f32], &'a [f32]);

    impl WithSimd for Dot<'_> {
        type Output = f32;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            dot(simd, self.0, self.1)
        }
    }

    #[test]
    fn a_dot_product_is_right_at_every_length_and_the_same_for_every_width() {
        for length in [0, 1, 7, 63, 64, 65, 130, 1000] {
            let [a, b] = [1, 2].map(|seed| {
                pseudo_random(&[length.max(1)], seed, DType::F32).to_vec1::<f32>().unwrap()[..length].to_vec()
            });
            let exact: f64 = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let widest = on_this_processor(Dot(&a, &b));
            assert!((f64::from(widest) - exact).abs() < 1e-4, "{length}");
            #[cfg(target_arch = "x86_64")]
            if let Some(v3) = pulp::x86::V3::try_new() {
                ARCHITECTURE.set(Some(pulp::Arch::V3(v3)));
                assert_eq!(on_this_processor(Dot(&a, &b)).to_bits(), widest.to_bits());
                ARCHITECTURE.set(None);
            }
        }
    }
}
