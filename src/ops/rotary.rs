//! Rotary position embedding (Su et al. 2021): each pair of a head's values is turned by an angle of its position.
//!
//! The pairs are `(i, i + D/2)`, the first half of a head with the second, as the published Llama and Qwen weights
//! expect: with c and s the cosine and sine of the position, `y1 = x1 c - x2 s` and `y2 = x2 c + x1 s`. The tables
//! come from the model, so any scaling of the angles fits. Backward turns the other way.

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::lanes::{Element, Lanes, on_this_processor};
use super::parallel::over_rows;
use super::storage::{self, by_type, refuse, values};
use super::tape;
#[cfg(feature = "cuda")]
use {
    super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// x with every pair of values of a head turned by the angle of its row's position.
///
/// Shapes: x `[N, H, D]`, cosine and sine `[P, D/2]` of x's type, positions `u32` `[N]`, result as x. Differentiable
/// in x; the tables are constants. Own kernels for `f32` and `f64` on the CPU, else candle's operators. Errors when a
/// shape does not fit, D is odd, or a position is not below P.
pub fn rotary(x: &Tensor, cosine: &Tensor, sine: &Tensor, positions: &Tensor) -> Result<Tensor> {
    match (x.dims(), cosine.dims(), sine.dims(), positions.dims()) {
        ([n, _, d], [p, half], [rows, columns], [count])
            if *d == 2 * half && (p, half) == (rows, columns) && n == count => {}
        (x, cosine, sine, positions) => {
            return refuse(
                "rotary",
                format!(
                    "x {x:?}, cosine {cosine:?}, sine {sine:?} and positions {positions:?} must be [N, H, D], \
                     [P, D/2], [P, D/2] and [N]"
                ),
            );
        }
    }
    let types = [x.dtype(), cosine.dtype(), sine.dtype(), positions.dtype()];
    if types[1] != types[0] || types[2] != types[0] || types[3] != DType::U32 {
        return refuse("rotary", format!("x, cosine, sine and positions have the types {types:?}"));
    }
    if storage::is_native(x) || storage::has_kernel(x) {
        let table = |table: &Tensor| table.detach().contiguous();
        let (cosine, sine) = (table(cosine)?, table(sine)?);
        tape::apply1(&x.contiguous()?, Rotary { cosine, sine, positions: positions.contiguous()? })
    } else {
        composed(x, &cosine.detach(), &sine.detach(), positions)
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(x: &Tensor, cosine: &Tensor, sine: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let [cosine, sine] = [cosine, sine].map(|table| table.index_select(positions, 0)?.unsqueeze(1));
    let (cosine, sine) = (cosine?, sine?);
    let half = x.dim(2)? / 2;
    let (first, second) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
    let turned_first = (first.broadcast_mul(&cosine)? - second.broadcast_mul(&sine)?)?;
    let turned_second = (second.broadcast_mul(&cosine)? + first.broadcast_mul(&sine)?)?;
    Tensor::cat(&[turned_first, turned_second], 2)
}

/// Turns rows `[n, H, D]`.
struct Turn<'a, T> {
    x: &'a [T],
    cosine: &'a [T],
    sine: &'a [T],
    /// Of these rows.
    positions: &'a [u32],
    /// H · D.
    width: usize,
    /// D / 2.
    half: usize,
    /// Against the angle instead of with it.
    backward: bool,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Turn<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (half, step) = (self.half, Lanes::<S, T>::width());
        let sign = Lanes::splat(simd, T::constant(if self.backward { -1.0 } else { 1.0 }));
        let rows = self.x.chunks_exact(self.width).zip(self.output.chunks_exact_mut(self.width));
        for ((x, output), &position) in rows.zip(self.positions) {
            let cosine = &self.cosine[position as usize * half..][..half];
            let sine = &self.sine[position as usize * half..][..half];
            for (x, output) in x.chunks_exact(2 * half).zip(output.chunks_exact_mut(2 * half)) {
                let (first, second) = x.split_at(half);
                let (turned_first, turned_second) = output.split_at_mut(half);
                for start in (0..half).step_by(step) {
                    let (a, b) = (Lanes::load(simd, &first[start..]), Lanes::load(simd, &second[start..]));
                    let c = Lanes::load(simd, &cosine[start..]);
                    let s = Lanes::load(simd, &sine[start..]) * sign;
                    a.multiply_add(c, -(b * s)).store(&mut turned_first[start..]);
                    b.multiply_add(c, a * s).store(&mut turned_second[start..]);
                }
            }
        }
    }
}

struct Rotary {
    cosine: Tensor,
    sine: Tensor,
    positions: Tensor,
}

impl Rotary {
    fn turn<T: Element>(&self, x: &[T], shape: &Shape, backward: bool) -> Result<Vec<T>> {
        let (_, heads, dimension) = shape.dims3()?;
        let (cosine, sine) = (values::<T>(&self.cosine)?, values::<T>(&self.sine)?);
        let (cosine, sine) = (cosine.slice()?, sine.slice()?);
        let positions = values::<u32>(&self.positions)?;
        let positions = positions.slice()?;
        let count = self.cosine.dim(0)?;
        if let Some(row) = positions.iter().position(|&position| position as usize >= count) {
            return refuse(
                "rotary",
                format!("position {} of row {row} is not below {count}", positions[row]),
            );
        }
        let (width, half) = (heads * dimension, dimension / 2);
        let mut output = vec![T::zero(); x.len()];
        if output.is_empty() {
            return Ok(output);
        }
        over_rows(&mut output, width, 2 * x.len(), |first, output| {
            let x = &x[first * width..][..output.len()];
            let positions = &positions[first..];
            on_this_processor(Turn { x, cosine, sine, positions, width, half, backward, output });
        });
        Ok(output)
    }

    fn backward<T: Element>(&self, gradient: &Tensor) -> Result<Tensor> {
        let turned = self.turn::<T>(values(gradient)?.slice()?, gradient.shape(), true)?;
        Tensor::from_vec(turned, gradient.shape(), gradient.device())
    }
}

#[cfg(feature = "cuda")]
impl Rotary {
    fn turn_on_device(&self, x: &View, backward: bool) -> Result<cuda::Array> {
        // The kernel's tables are f32 whatever the type of x.
        let (cosine, sine) = (self.cosine.to_dtype(DType::F32)?, self.sine.to_dtype(DType::F32)?);
        let tables = (lock(&cosine), lock(&sine), lock(&self.positions));
        cuda::rotary::rotary(x, &tables.0.view()?, &tables.1.view()?, &tables.2.view()?, backward)
    }
}

impl CustomOp1 for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => {
            let turned = self.turn::<T>(storage::slice(x, layout)?, layout.shape(), false)?;
            Ok((<T as candle_core::WithDType>::to_cpu_storage_owned(turned), layout.shape().clone()))
        })
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        self.turn_on_device(&View::cuda(x, layout), false)?.into_cuda()
    }

    fn bwd(&self, _x: &Tensor, _result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(&gradient) {
            return Ok(Some(self.turn_on_device(&lock(&gradient).view()?, true)?.into_tensor()));
        }
        by_type!(gradient.dtype(), T => self.backward::<T>(&gradient)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{Device, Var};

    /// Tables `[P, half]` of the usual angles, and a position for each of N rows.
    fn tables(positions: usize, half: usize, rows: usize, dtype: DType) -> [Tensor; 3] {
        let angles: Vec<f64> = (0..positions * half)
            .map(|i| (i / half) as f64 * 100_f64.powf(-((i % half) as f64) / half as f64))
            .collect();
        let angles = Tensor::from_vec(angles, (positions, half), &Device::Cpu).unwrap();
        let [cosine, sine] = [angles.cos(), angles.sin()].map(|t| t.unwrap().to_dtype(dtype).unwrap());
        let positions: Vec<u32> = (0..rows).map(|i| (i * 5 % positions) as u32).collect();
        [cosine, sine, Tensor::from_vec(positions, rows, &Device::Cpu).unwrap()]
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn agrees_with_the_composed_form_at_offsets_and_on_strided_inputs() {
        for (n, h, d, p) in [(1, 1, 2, 1), (5, 3, 10, 4), (7, 2, 64, 30), (2, 4, 80, 3)] {
            let x = offset(&pseudo_random(&[n, h, d], 1, DType::F32));
            let [cosine, sine, positions] = tables(p, d / 2, n, DType::F32).map(|t| offset(&t));
            let y = rotary(&x, &cosine, &sine, &positions).unwrap();
            close(&y, &composed(&x, &cosine, &sine, &positions).unwrap(), 1e-6);
            let strided = x.transpose(0, 1).unwrap().contiguous().unwrap().transpose(0, 1).unwrap();
            assert_eq!(bits(&rotary(&strided, &cosine, &sine, &positions).unwrap()), bits(&y));
        }
    }

    #[test]
    fn the_first_half_is_paired_with_the_second() {
        // A quarter turn at position 1.
        let table = |values: [f32; 4]| Tensor::from_slice(&values, (2, 2), &Device::Cpu).unwrap();
        let (cosine, sine) = (table([1.0, 1.0, 0.0, 0.0]), table([0.0, 0.0, 1.0, 1.0]));
        let x = Tensor::new(&[[[1.0_f32, 2.0, 3.0, 4.0]]], &Device::Cpu).unwrap();
        let y = rotary(&x, &cosine, &sine, &Tensor::new(&[1_u32], &Device::Cpu).unwrap()).unwrap();
        assert_eq!(y.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [-3.0, -4.0, 1.0, 2.0]);
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (n, h, d) in [(1, 1, 2), (3, 2, 6)] {
            let [cosine, sine, positions] = tables(7, d / 2, n, DType::F64);
            let x = pseudo_random(&[n, h, d], 1, DType::F64);
            check_gradients(&[x], |t| rotary(&t[0], &cosine, &sine, &positions));
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_in_any_batch_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let x = pseudo_random(&[900, 9, 64], 1, DType::F32);
        let [cosine, sine, positions] = tables(100, 32, 900, DType::F32);
        let part = |first, count| {
            let [x, positions] = [&x, &positions].map(|t| t.narrow(0, first, count).unwrap());
            bits(&rotary(&x, &cosine, &sine, &positions).unwrap())
        };
        let all = part(0, 900);
        assert_eq!(with_threads(&pool, || part(0, 900)), all);
        for (first, count) in [(0, 1), (899, 1), (100, 57)] {
            assert_eq!(part(first, count), all[first * 576..(first + count) * 576]);
        }
    }

    #[test]
    fn no_rows_no_heads_and_no_dimensions_give_empty_results() {
        for (n, h, d) in [(0, 2, 4), (3, 0, 4), (3, 2, 0)] {
            let x = Var::zeros((n, h, d), DType::F32, &Device::Cpu).unwrap();
            let [cosine, sine, positions] = tables(5, d / 2, n, DType::F32);
            let y = rotary(&x, &cosine, &sine, &positions).unwrap();
            assert_eq!(y.dims(), [n, h, d]);
            let gradients = y.sum_all().unwrap().backward().unwrap();
            assert_eq!(gradients.get(&x).unwrap().dims(), [n, h, d]);
        }
    }

    #[test]
    fn a_nan_comes_out_of_both_halves_of_its_pair() {
        let x = Tensor::new(&[[[f32::NAN, 1.0, 1.0, 1.0]]], &Device::Cpu).unwrap();
        let [cosine, sine, positions] = tables(2, 2, 1, DType::F32);
        let y =
            rotary(&x, &cosine, &sine, &positions).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(y.iter().map(|v| v.is_nan()).eq([true, false, true, false]));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let [cosine, sine, positions] = tables(4, 2, 3, DType::F32);
        let x = |shape: &[usize]| pseudo_random(shape, 1, DType::F32);
        let error = |x: &Tensor, cosine: &Tensor, positions: &Tensor| {
            rotary(x, cosine, &sine, positions).unwrap_err().to_string()
        };
        let message = error(&x(&[3, 1, 5]), &cosine, &positions);
        assert!(message.contains("rotary") && message.contains("[3, 1, 5]"));
        assert!(error(&x(&[2, 1, 4]), &cosine, &positions).contains("[2, 1, 4]"));
        let far = Tensor::new(&[0_u32, 4, 1], &Device::Cpu).unwrap();
        assert!(error(&x(&[3, 1, 4]), &cosine, &far).contains("position 4 of row 1"));
        let double = cosine.to_dtype(DType::F64).unwrap();
        assert!(error(&x(&[3, 1, 4]), &double, &positions).contains("F64"));
    }
}
