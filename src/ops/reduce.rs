//! Sums and maxima over the values of one row, for operators whose rows end in one number.
//!
//! [`super::lanes`] never combines lanes, because what it promises holds for any row length. Here the lanes of a
//! register are combined, in an order that is fixed by the length of the row alone: the same row gives the same bits
//! wherever it lies, on one machine (another vector width adds in another order).

use pulp::Simd;

use super::lanes::{Element, Lanes};

/// An element type whose registers can be reduced to one value.
pub(super) trait Reduce: Element {
    /// The sum of all lanes.
    fn sum_of_lanes<S: Simd>(lanes: Lanes<S, Self>) -> Self;
    /// The greatest lane. With a NaN among the lanes, any of them.
    fn greatest_lane<S: Simd>(lanes: Lanes<S, Self>) -> Self;
}

impl Reduce for f32 {
    #[inline(always)]
    fn sum_of_lanes<S: Simd>(lanes: Lanes<S, Self>) -> Self {
        lanes.simd.reduce_sum_f32s(lanes.vector)
    }
    #[inline(always)]
    fn greatest_lane<S: Simd>(lanes: Lanes<S, Self>) -> Self {
        lanes.simd.reduce_max_f32s(lanes.vector)
    }
}

impl Reduce for f64 {
    #[inline(always)]
    fn sum_of_lanes<S: Simd>(lanes: Lanes<S, Self>) -> Self {
        lanes.simd.reduce_sum_f64s(lanes.vector)
    }
    #[inline(always)]
    fn greatest_lane<S: Simd>(lanes: Lanes<S, Self>) -> Self {
        lanes.simd.reduce_max_f64s(lanes.vector)
    }
}

/// Sums kept at once, so that an addition need not wait for the one before.
const CHAINS: usize = 4;

/// `Σ a_i b_i`.
#[inline(always)]
pub(super) fn dot<S: Simd, T: Reduce>(simd: S, a: &[T], b: &[T]) -> T {
    dot_scaled(simd, a, b, None)
}

/// `Σ a_i b_i c_i`, or without `c` `Σ a_i b_i`; all of one length.
#[inline(always)]
pub(super) fn dot_scaled<S: Simd, T: Reduce>(simd: S, a: &[T], b: &[T], c: Option<&[T]>) -> T {
    let width = Lanes::<S, T>::width();
    let mut sums = [Lanes::splat(simd, T::zero()); CHAINS];
    let whole = a.len() / (CHAINS * width) * (CHAINS * width);
    for start in (0..whole).step_by(CHAINS * width) {
        for (i, sum) in sums.iter_mut().enumerate() {
            let range = start + i * width..start + (i + 1) * width;
            let mut value = Lanes::load(simd, &a[range.clone()]);
            if let Some(c) = c {
                value = value * Lanes::load(simd, &c[range.clone()]);
            }
            *sum = value.multiply_add(Lanes::load(simd, &b[range]), *sum);
        }
    }
    let [mut first, second, third, fourth] = sums;
    for start in (whole..a.len()).step_by(width) {
        let mut value = Lanes::load(simd, &a[start..]);
        if let Some(c) = c {
            value = value * Lanes::load(simd, &c[start..]);
        }
        first = value.multiply_add(Lanes::load(simd, &b[start..]), first);
    }
    T::sum_of_lanes((first + second) + (third + fourth))
}

/// `Σ a_i`.
#[inline(always)]
pub(super) fn sum<S: Simd, T: Reduce>(simd: S, a: &[T]) -> T {
    let width = Lanes::<S, T>::width();
    let mut sums = [Lanes::splat(simd, T::zero()); CHAINS];
    let whole = a.len() / (CHAINS * width) * (CHAINS * width);
    for start in (0..whole).step_by(CHAINS * width) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = *sum + Lanes::load(simd, &a[start + i * width..start + (i + 1) * width]);
        }
    }
    let [mut first, second, third, fourth] = sums;
    for start in (whole..a.len()).step_by(width) {
        first = first + Lanes::load(simd, &a[start..]);
    }
    T::sum_of_lanes((first + second) + (third + fourth))
}

#[cfg(test)]
mod tests {
    use super::super::lanes::on_this_processor;
    use super::*;
    use pulp::WithSimd;

    struct All<'a>(&'a [f64], &'a [f64]);

    impl WithSimd for All<'_> {
        type Output = [f64; 3];
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [f64; 3] {
            let Self(a, b) = self;
            [sum(simd, a), dot(simd, a, b), dot_scaled(simd, a, b, Some(a))]
        }
    }

    #[test]
    fn sums_take_in_every_value_once_at_any_length() {
        for length in (0..70).chain([127, 128, 129]) {
            let a: Vec<f64> = (0..length).map(|i| f64::from(i) - 20.0).collect();
            let b: Vec<f64> = (0..length).map(|i| f64::from(i % 7)).collect();
            let expected: [f64; 3] = [
                a.iter().sum(),
                a.iter().zip(&b).map(|(a, b)| a * b).sum(),
                a.iter().zip(&b).map(|(a, b)| a * b * a).sum(),
            ];
            // Whole numbers: any order of addition is exact.
            assert_eq!(on_this_processor(All(&a, &b)), expected);
        }
    }
}
