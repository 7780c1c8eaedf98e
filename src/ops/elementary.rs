//! Exponential, hyperbolic tangent and logarithm of `f32` registers.
//!
//! Polynomials fitted for this file (weighted least squares driven towards the least maximum relative error).
//! Measured against `f64` over the whole range by the tests below: `exp` is within 2e-7 relative, `tanh` within
//! 3e-7 relative, `ln_1p_of_unit` within 3e-7 relative. A NaN stays a NaN.

use pulp::Simd;

use super::lanes::Lanes;

type Register<S> = Lanes<S, f32>;

/// Horner's rule, coefficients from the highest power down.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: Register<S>, coefficients: [f32; N]) -> Register<S> {
    let mut sum = Lanes::splat(x.simd, coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = sum.multiply_add(x, Lanes::splat(x.simd, coefficient));
    }
    sum
}

/// Below this `exp` gives exactly 0: the result would no longer be a normal number.
const EXP_LOW: f32 = -87.336_54;
/// Above this `exp` gives infinity (the true limit is 88.72; the scale 2^128 has no representation).
const EXP_HIGH: f32 = 88.376_25;

/// `e^x` = 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln 2 / 2.
#[inline(always)]
pub(super) fn exp<S: Simd>(x: Register<S>) -> Register<S> {
    let simd = x.simd;
    // Adding 1.5 · 2^23 + 127 leaves n + 127, the biased exponent of 2^n, in the low bits of the sum.
    let magic = x.constant(12_583_039.0);
    let shifted = x.multiply_add(x.constant(std::f64::consts::LOG2_E), magic);
    let n = shifted - magic;
    // ln 2 in two parts, the first short enough for n times it to be exact.
    let r = n.multiply_add(x.constant(-0.693_145_75), x);
    let r = n.multiply_add(x.constant(-1.428_606_8e-6), r);
    let p =
        polynomial(r, [1.979_035_3e-4, 1.394_464_9e-3, 8.333_497e-3, 4.166_629_5e-2, 1.666_666_7e-1, 0.5]);
    let value = (p * r).multiply_add(r, r) + x.constant(1.0);
    let bits = simd.transmute_u32s_f32s(shifted.vector);
    let scale = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23)));
    let result = value * Lanes { simd, vector: scale };
    let result = x.where_less(Lanes::splat(simd, EXP_LOW), x.constant(0.0), result);
    Lanes::splat(simd, EXP_HIGH).where_less(x, x.constant(f64::INFINITY), result)
}

/// An odd polynomial near zero, `1 - 2 / (e^2|x| + 1)` with the sign of x elsewhere.
#[inline(always)]
pub(super) fn tanh<S: Simd>(x: Register<S>) -> Register<S> {
    let magnitude = x.absolute();
    let square = x * x;
    let p =
        polynomial(square, [-5.704_986_4e-3, 2.063_908_6e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let near = (p * square).multiply_add(x, x);
    let far = x.constant(1.0) - x.constant(2.0) / ((magnitude + magnitude).exp() + x.constant(1.0));
    let far = x.where_less(x.constant(0.0), -far, far);
    magnitude.where_less(x.constant(0.625), near, far)
}

/// `ln(1 + t)` for t in [0, 1].
#[inline(always)]
pub(super) fn ln_1p_of_unit<S: Simd>(t: Register<S>) -> Register<S> {
    let p = polynomial(
        t,
        [
            -3.244_020_7e-3,
            1.985_144_2e-2,
            -5.695_95e-2,
            1.060_365_1e-1,
            -0.153_055_9,
            1.967_593_9e-1,
            -2.495_413_4e-1,
            3.332_996_4e-1,
            -4.999_99e-1,
            1.0,
        ],
    );
    p * t
}

#[cfg(test)]
mod tests {
    use super::super::lanes::on_this_processor;
    use super::*;
    use pulp::WithSimd;

    struct Over<'a>(&'a mut [f32], usize);

    impl WithSimd for Over<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for chunk in self.0.chunks_mut(Register::<S>::width()) {
                let x = Lanes::load(simd, chunk);
                match self.1 {
                    0 => exp(x),
                    1 => tanh(x),
                    _ => ln_1p_of_unit(x),
                }
                .store(chunk);
            }
        }
    }

    fn worst(function: usize, reference: fn(f64) -> f64, low: f64, high: f64) -> f64 {
        let count = 200_001;
        let x: Vec<f32> =
            (0..count).map(|i| (low + (high - low) * i as f64 / (count - 1) as f64) as f32).collect();
        let mut y = x.clone();
        on_this_processor(Over(&mut y, function));
        x.iter()
            .zip(&y)
            .map(|(&x, &y)| {
                let exact = reference(f64::from(x));
                (f64::from(y) - exact).abs() / exact.abs().max(1e-30)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn the_functions_keep_their_stated_error() {
        assert!(worst(0, f64::exp, -87.3, 88.3) < 2e-7);
        assert!(worst(0, f64::exp, -1.0, 1.0) < 2e-7);
        assert!(worst(1, f64::tanh, -12.0, 12.0) < 3e-7);
        assert!(worst(1, f64::tanh, 1e-5, 1.0) < 3e-7);
        assert!(worst(2, f64::ln_1p, 1e-7, 1.0) < 3e-7);
    }

    #[test]
    fn the_ends_of_the_range_are_exact_and_a_nan_stays() {
        let special = [-1e9, -200.0, f32::NEG_INFINITY, 0.0, 200.0, f32::INFINITY, f32::NAN];
        let mut y = special;
        on_this_processor(Over(&mut y, 0));
        assert_eq!(&y[..6], [0.0, 0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
        assert!(y[6].is_nan());
        let mut y = special;
        on_this_processor(Over(&mut y, 1));
        assert_eq!(&y[..6], [-1.0, -1.0, -1.0, 0.0, 1.0, 1.0]);
        assert!(y[6].is_nan());
    }

    #[test]
    fn a_value_alone_and_in_a_batch_gives_the_same_bits() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 - 40.0) * 0.37).collect();
        for function in 0..2 {
            let mut batch = x.clone();
            on_this_processor(Over(&mut batch, function));
            for (i, &value) in x.iter().enumerate() {
                let mut alone = [value];
                on_this_processor(Over(&mut alone, function));
                assert_eq!(alone[0].to_bits(), batch[i].to_bits());
            }
        }
    }
}
