//! Rows of a table by their number: `y_i = weight[ids_i]`.
//!
//! Backward adds each gradient to its row in order of position. Threads share the rows of the table, not the
//! positions, so the order of every sum is the same for any number of them.

use candle_core::{CpuStorage, CustomOp2, DType, Layout, Result, Shape, Tensor};

use super::GradientSum;
use super::lanes::Element;
use super::parallel::over_rows;
use super::prepared::WeightRef;
use super::storage::{self, by_type, refuse, values};
#[cfg(feature = "cuda")]
use {
    super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// The rows of `weight` that `ids` name.
///
/// Shapes: weight `[V, D]`, ids `u32` `[..]`, result `[.., D]`. Differentiable in weight. Own kernels for `f32` and
/// `f64` on the CPU, which add to the weight's gradient sum where there is one, else candle's operators. Errors when a
/// shape does not fit or an id is not below V.
pub fn embedding<'a>(weight: impl Into<WeightRef<'a>>, ids: &Tensor) -> Result<Tensor> {
    let WeightRef { tensor: weight, gradients, .. } = weight.into();
    let &[_, width] = weight.dims() else {
        return refuse("embedding", format!("weight {:?} must be [V, D]", weight.dims()));
    };
    if ids.dtype() != DType::U32 {
        return refuse("embedding", format!("ids are {:?}, must be U32", ids.dtype()));
    }
    let flat = ids.flatten_all()?;
    let rows = if storage::is_native(weight) || storage::has_kernel(weight) {
        weight.contiguous()?.apply_op2(&flat, Embedding { gradients: gradients.cloned() })?
    } else {
        composed(weight, &flat)?
    };
    let mut shape = ids.dims().to_vec();
    shape.push(width);
    rows.reshape(shape)
}

/// The same function out of candle's own differentiable operators.
fn composed(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    weight.index_select(ids, 0)
}

struct Embedding {
    /// Where the weight's gradient goes, if not to automatic differentiation.
    gradients: Option<GradientSum>,
}

impl Embedding {
    fn forward<T: Element>(
        (weight, weight_layout): (&CpuStorage, &Layout),
        (ids, ids_layout): (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (count, width) = weight_layout.shape().dims2()?;
        let (weight, ids): (&[T], &[u32]) =
            (storage::slice(weight, weight_layout)?, storage::slice(ids, ids_layout)?);
        if let Some(position) = ids.iter().position(|&id| id as usize >= count) {
            return refuse(
                "embedding",
                format!("id {} at position {position} is not below {count}", ids[position]),
            );
        }
        let mut output = vec![T::zero(); ids.len() * width];
        let cost = output.len();
        over_rows(&mut output, width, cost, |first, output| {
            // Not `chunks_exact_mut(0)`: an empty width leaves nothing to copy.
            for (output, &id) in output.chunks_exact_mut(width.max(1)).zip(&ids[first..]) {
                output.copy_from_slice(&weight[id as usize * width..][..width]);
            }
        });
        Ok((T::to_cpu_storage_owned(output), Shape::from((ids.len(), width))))
    }

    fn backward<T: Element>(
        &self,
        weight: &Tensor,
        ids: &Tensor,
        gradient: &Tensor,
    ) -> Result<Option<Tensor>> {
        let (count, width) = weight.dims2()?;
        let (ids, gradient) = (values::<u32>(ids)?, values::<T>(gradient)?);
        let (ids, gradient) = (ids.slice()?, gradient.slice()?);
        if let Some(sum) = &self.gradients {
            sum.update(|sum, accumulate| {
                if !accumulate {
                    sum.fill(T::zero());
                }
                add(sum, width, ids, gradient);
            })?;
            return Ok(None);
        }
        let mut output = vec![T::zero(); count * width];
        add(&mut output, width, ids, gradient);
        Tensor::from_vec(output, weight.shape(), weight.device()).map(Some)
    }
}

/// Adds each row of `gradient` to the row of `output` that its id names.
fn add<T: Element>(output: &mut [T], width: usize, ids: &[u32], gradient: &[T]) {
    over_rows(output, width, gradient.len(), |first, output| {
        let rows = output.len() / width.max(1);
        for (&id, gradient) in ids.iter().zip(gradient.chunks_exact(width.max(1))) {
            let Some(row) = (id as usize).checked_sub(first).filter(|&row| row < rows) else { continue };
            for (sum, &value) in output[row * width..][..width].iter_mut().zip(gradient) {
                *sum += value;
            }
        }
    });
}

impl CustomOp2 for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu_fwd(
        &self,
        weight: &CpuStorage,
        weight_layout: &Layout,
        ids: &CpuStorage,
        ids_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(weight), T => Self::forward::<T>((weight, weight_layout), (ids, ids_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        weight: &CudaStorage,
        weight_layout: &Layout,
        ids: &CudaStorage,
        ids_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::embedding::gather(&View::cuda(weight, weight_layout), &View::cuda(ids, ids_layout))?.into_cuda()
    }

    fn bwd(
        &self,
        weight: &Tensor,
        ids: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(weight) {
            let (ids, gradient) = (lock(ids), lock(&gradient));
            let result = cuda::embedding::gather_backward(&ids.view()?, &gradient.view()?, weight.dim(0)?)?;
            return Ok((Some(result.into_tensor()), None));
        }
        let gradient = by_type!(weight.dtype(), T => self.backward::<T>(weight, ids, &gradient))?;
        Ok((gradient, None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{Device, Var};

    fn ids(shape: &[usize], count: usize) -> Tensor {
        let ids: Vec<u32> = (0..shape.iter().product()).map(|i| ((i * 7 + 3) % count) as u32).collect();
        Tensor::from_vec(ids, shape, &Device::Cpu).unwrap()
    }

    #[test]
    fn agrees_with_the_composed_form_at_offsets_and_on_strided_inputs() {
        for (count, width, shape) in [(1, 1, &[1][..]), (9, 5, &[4, 3]), (3, 70, &[2, 1, 5]), (4, 3, &[])] {
            let weight = offset(&pseudo_random(&[count, width], 1, DType::F32));
            let ids = if shape.is_empty() { ids(shape, count) } else { offset(&ids(shape, count)) };
            let y = embedding(&weight, &ids).unwrap();
            assert_eq!(y.dims(), [shape, &[width]].concat());
            let composed = composed(&weight, &ids.flatten_all().unwrap()).unwrap();
            close(&y.reshape(composed.shape()).unwrap(), &composed, 0.0);
            let strided = weight.t().unwrap().contiguous().unwrap().t().unwrap();
            close(&embedding(&strided, &ids).unwrap(), &y, 0.0);
        }
        let (weight, ids) = (pseudo_random(&[9, 2], 1, DType::F32), ids(&[3, 4], 9));
        let y = embedding(&weight, &ids.t().unwrap()).unwrap();
        close(&y, &embedding(&weight, &ids).unwrap().transpose(0, 1).unwrap(), 0.0);
    }

    #[test]
    fn gradients_match_finite_differences_where_ids_repeat() {
        for (count, width, positions) in [(1, 1, 3), (4, 3, 9)] {
            let ids = ids(&[positions], count);
            check_gradients(&[pseudo_random(&[count, width], 1, DType::F64)], |t| embedding(&t[0], &ids));
        }
    }

    #[test]
    fn gradients_are_summed_in_order_of_position_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (count, width, positions) = (11, 64, 9000);
        let (weight, ids) = (pseudo_random(&[count, width], 1, DType::F32), ids(&[positions], count));
        let gradient = pseudo_random(&[positions, width], 2, DType::F32);
        let backward = || {
            let op = Embedding { gradients: None };
            let gradient = op.bwd(&weight, &ids, &gradient, &gradient).unwrap().0.unwrap();
            gradient.to_vec2::<f32>().unwrap()
        };
        let mut expected = vec![vec![0.0_f32; width]; count];
        for (id, row) in ids.to_vec1::<u32>().unwrap().iter().zip(gradient.to_vec2::<f32>().unwrap()) {
            for (sum, value) in expected[*id as usize].iter_mut().zip(row) {
                *sum += value;
            }
        }
        assert_eq!(backward(), expected);
        assert_eq!(with_threads(&pool, backward), expected);
    }

    #[test]
    fn a_gradient_sum_takes_what_differentiation_would_give_the_weight() {
        let weight = Var::from_tensor(&pseudo_random(&[7, 3], 1, DType::F64)).unwrap();
        let (ids, sum) = (ids(&[9], 5), GradientSum::new(&weight).unwrap());
        let backward = |gradients| {
            let weight = WeightRef { tensor: &weight, prepared: None, gradients };
            embedding(weight, &ids).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap()
        };
        let alone = backward(None).get(&weight).unwrap().clone();
        for times in 1..=2 {
            assert!(backward(Some(&sum)).get(&weight).is_none());
            close(&sum.tensor().unwrap(), &(&alone * f64::from(times)).unwrap(), 1e-12);
        }
    }

    #[test]
    fn empty_inputs_give_empty_results_and_zero_gradients() {
        let weight = Var::from_tensor(&pseudo_random(&[3, 2], 1, DType::F32)).unwrap();
        let y = embedding(&weight, &Tensor::zeros((0, 4), DType::U32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!(y.dims(), [0, 4, 2]);
        let gradients = y.sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&weight).unwrap().to_vec2::<f32>().unwrap(), [[0.0; 2]; 3]);
        let narrow = Tensor::zeros((3, 0), DType::F32, &Device::Cpu).unwrap();
        assert_eq!(embedding(&narrow, &ids(&[5], 3)).unwrap().dims(), [5, 0]);
    }

    #[test]
    fn a_nan_comes_out_where_its_row_is_named() {
        let weight = Tensor::new(&[[f32::NAN], [1.0]], &Device::Cpu).unwrap();
        let y = embedding(&weight, &Tensor::new(&[1_u32, 0], &Device::Cpu).unwrap()).unwrap();
        let y = y.to_vec2::<f32>().unwrap();
        assert!(y[0][0] == 1.0 && y[1][0].is_nan());
    }

    #[test]
    fn an_id_out_of_range_and_other_types_are_refused_by_name() {
        let weight = pseudo_random(&[3, 2], 1, DType::F32);
        let error = embedding(&weight, &Tensor::new(&[0_u32, 3], &Device::Cpu).unwrap()).unwrap_err();
        assert!(error.to_string().contains("embedding") && error.to_string().contains("id 3 at position 1"));
        let error = embedding(&weight, &Tensor::new(&[0_i64], &Device::Cpu).unwrap()).unwrap_err();
        assert!(error.to_string().contains("I64"));
        let error = embedding(&weight.get(0).unwrap(), &ids(&[1], 1)).unwrap_err();
        assert!(error.to_string().contains("[2]"));
    }
}
