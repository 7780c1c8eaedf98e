//! The global norm of a gradient: measuring it, clipping by it, and naming a gradient that is not finite.

use candle_core::{DType, Storage, Tensor, WithDType};
use pulp::Arch;

use super::OptimizerError;
use super::in_place::contiguous;
use crate::learner::Real;
#[cfg(feature = "cuda")]
use crate::ops::cuda::{self, has_kernel};
use crate::ops::threads;

/// Number of partial sums. It is fixed, so that the result is the same on every processor, and a multiple of the
/// widest vectors.
const LANES: usize = 16;

/// Values whose squares are summed by one thread, one sum for each piece.
const PIECE: usize = 1 << 16;

/// Sum of squares in `f64`, piece after piece of a fixed length, so that it does not depend on the number of threads.
#[must_use]
pub fn sum_of_squares<F: Real>(values: &[F]) -> f64 {
    if threads() <= 1 || values.len() < 8 * PIECE {
        return values.chunks(PIECE).map(sum_of_piece).sum();
    }
    let mut sums = vec![0.0; values.len().div_ceil(PIECE)];
    let share = sums.len().div_ceil(threads());
    rayon::scope(|scope| {
        for (sums, values) in sums.chunks_mut(share).zip(values.chunks(share * PIECE)) {
            scope.spawn(move |_| {
                sums.iter_mut().zip(values.chunks(PIECE)).for_each(|(sum, piece)| *sum = sum_of_piece(piece));
            });
        }
    });
    sums.iter().sum()
}

fn sum_of_piece<F: Real>(values: &[F]) -> f64 {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut lanes = [0.0; LANES];
            let mut chunks = values.chunks_exact(LANES);
            for chunk in &mut chunks {
                for (lane, &value) in lanes.iter_mut().zip(chunk) {
                    let value = value.widen();
                    *lane += value * value;
                }
            }
            for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
                let value = value.widen();
                *lane += value * value;
            }
            lanes.iter().sum()
        },
    )
}

/// The factor that brings a gradient of norm `norm` down to `max_norm`: max_norm / norm where it is longer, else 1,
/// without an epsilon. An infinite `max_norm` never clips.
#[must_use]
pub fn clip_scale(norm: f64, max_norm: f64) -> f64 {
    if norm > max_norm { max_norm / norm } else { 1.0 }
}

/// The square root of the sum of all squares, in `f64`, of named gradients.
///
/// # Errors
/// [`OptimizerError::NonFiniteGradient`] with the first gradient that is not finite; when a device fails.
pub fn global_norm<'a>(
    gradients: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<f64, OptimizerError> {
    squares(gradients).map(|squares| norm_of(&squares))
}

/// The norm of a gradient whose parts have these sums of squares.
#[must_use]
pub fn norm_of(squares: &[f64]) -> f64 {
    squares.iter().sum::<f64>().sqrt()
}

/// The sum of squares of each named gradient, in `f64`.
///
/// # Errors
/// As for [`global_norm`].
pub fn squares<'a>(
    gradients: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<Vec<f64>, OptimizerError> {
    let mut squares = Vec::new();
    let mut elsewhere = Vec::new();
    for (name, gradient) in gradients {
        if gradient.device().is_cpu() {
            squares.push(finite(name, sum_of_squares_on_host(gradient)?)?);
        } else {
            elsewhere.push((squares.len(), name, sum_of_squares_elsewhere(gradient)?));
            squares.push(0.0);
        }
    }
    if !elsewhere.is_empty() {
        // One transfer for all, however many parameters there are.
        let sums: Vec<&Tensor> = elsewhere.iter().map(|(_, _, sum)| sum).collect();
        let sums = Tensor::stack(&sums, 0)?.to_vec1::<f64>()?;
        for ((place, name, _), square) in elsewhere.into_iter().zip(sums) {
            squares[place] = finite(name, square)?;
        }
    }
    Ok(squares)
}

/// The sum of squares of a gradient on a device as an `f64` scalar there.
fn sum_of_squares_elsewhere(gradient: &Tensor) -> candle_core::Result<Tensor> {
    #[cfg(feature = "cuda")]
    if has_kernel(gradient) {
        let gradient = gradient.contiguous()?;
        return cuda::optimizer::sum_of_squares(&cuda::lock(&gradient).view()?)?.into_tensor().squeeze(0);
    }
    gradient.to_dtype(DType::F64)?.sqr()?.sum_all()
}

fn finite(name: &str, square: f64) -> Result<f64, OptimizerError> {
    if square.is_finite() { Ok(square) } else { Err(OptimizerError::NonFiniteGradient { name: name.into() }) }
}

fn sum_of_squares_on_host(gradient: &Tensor) -> candle_core::Result<f64> {
    fn of<F: Real + WithDType>(gradient: &Tensor) -> candle_core::Result<f64> {
        let (storage, layout) = gradient.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { candle_core::bail!("the gradient is not on the CPU") };
        Ok(sum_of_squares(contiguous(storage.as_slice::<F>()?, layout)?))
    }
    let gradient = gradient.contiguous()?;
    match gradient.dtype() {
        DType::F32 => of::<f32>(&gradient),
        DType::F64 => of::<f64>(&gradient),
        _ => of::<f64>(&gradient.to_dtype(DType::F64)?),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::ops::with_threads;

    #[test]
    fn every_entry_counts_once_whatever_the_length() {
        for length in [0, 1, 15, 16, 17, 100] {
            let values: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let expected: f64 = (0..length).map(|i| f64::from(i * i)).sum();
            assert_eq!(sum_of_squares(&values), expected, "length {length}");
        }
    }

    #[test]
    fn threads_do_not_change_the_sum() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let values: Vec<f32> = (0..9 * PIECE + 77).map(|i| 1.0 / (1 + i % 1013) as f32).collect();
        let alone = sum_of_squares(&values);
        assert_eq!(with_threads(&pool, || sum_of_squares(&values)), alone);
        let expected: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((alone - expected).abs() < 1e-9 * expected);
    }

    #[test]
    fn the_norm_of_large_single_precision_gradients_does_not_overflow() {
        assert_eq!(
            sum_of_squares(&[3e30_f32, 4e30]).sqrt(),
            (f64::from(3e30_f32)).hypot(f64::from(4e30_f32))
        );
    }

    #[test]
    fn a_transposed_gradient_counts_only_its_own_entries() {
        let stored = Tensor::new(&[[3.0_f32, 777.0], [4.0, 777.0]], &Device::Cpu).unwrap();
        let view = stored.t().unwrap().narrow(0, 0, 1).unwrap();
        assert_eq!(global_norm([("weight", &view)]).unwrap(), 5.0);
    }

    #[test]
    fn the_first_gradient_that_is_not_finite_is_named() {
        let good = Tensor::new(&[1.0_f32], &Device::Cpu).unwrap();
        let bad = Tensor::new(&[f32::INFINITY, 0.0], &Device::Cpu).unwrap();
        let worse = Tensor::new(&[f32::NAN], &Device::Cpu).unwrap();
        let error = global_norm([("a", &good), ("b", &bad), ("c", &worse)]).unwrap_err();
        assert!(matches!(error, OptimizerError::NonFiniteGradient { name } if name == "b"));
    }
}
