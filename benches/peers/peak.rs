//! What one core can do at most: multiply-adds on registers alone.

use std::hint::black_box;
use std::time::Instant;

use pulp::{Arch, Simd, WithSimd};

const STEPS: usize = 20_000;
/// Sums in flight, enough to hide the latency of a multiply-add.
const SUMS: usize = 12;

struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    /// A sum, so that nothing is left out, and the multiply-adds of one lane each.
    type Output = (f32, usize);

    #[allow(clippy::inline_always, reason = "must be compiled for the instruction set of the caller")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let (factor, term) = (simd.splat_f32s(1.000_000_1), simd.splat_f32s(1e-9));
        let mut sums = [simd.splat_f32s(0.5); SUMS];
        for _ in 0..black_box(STEPS) {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        let mut total = simd.splat_f32s(0.0);
        for sum in sums {
            total = simd.add_f32s(total, sum);
        }
        (simd.reduce_sum_f32s(total), STEPS * SUMS * S::F32_LANES)
    }
}

/// Prints GFLOP/s for each instruction set that this processor and this build have.
pub(super) fn print() {
    let mut sets = vec![("widest", Arch::new())];
    #[cfg(target_arch = "x86_64")]
    sets.extend(pulp::x86::V3::try_new().map(|set| ("AVX2", Arch::V3(set))));
    for (name, set) in sets {
        let (mut best, mut count) = (f64::MAX, 0);
        for _ in 0..2000 {
            let start = Instant::now();
            count = black_box(set.dispatch(MultiplyAdds)).1;
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{name}: {:.1} GFLOP/s", 2.0 * count as f64 / best / 1e9);
    }
}
