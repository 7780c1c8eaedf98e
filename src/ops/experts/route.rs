//! The router: which experts run for a row, and with what weights.
//!
//! With probabilities `p = softmax(logits)` a row goes to the k experts of highest probability, with weights
//! `w_j = p_j`, or `p_j / Σ_i p_i` over the k when normalised (Jiang et al., "Mixtral of experts", 2024), which is the
//! softmax of the k logits alone and is computed so. Sums run in index order, row by row.

use candle_core::{CpuStorage, CustomOp2, D, DType, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes, on_this_processor};
use super::super::storage::{self, by_type, refuse, values};
use super::plan::check_ids;

/// Expert ids and weights of each row.
///
/// Shapes: logits `[N, E]`, results `[N, k]` both: ids (`u32`, the highest logit first, equal ones by the lower id)
/// and weights in the order of the ids, differentiable in the logits. `forced` (`u32`, `[N, k]`) are ids to use instead
/// of the k highest, such as those that the program which produced the data recorded; the weights are then those of
/// the forced experts under these logits. A NaN in a row of logits makes the row's weights NaN. Errors when a shape
/// does not fit, a forced id is not below E or one row has it twice.
pub fn route(
    logits: &Tensor,
    k: usize,
    normalise: bool,
    forced: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let (rows, experts) = match logits.dims() {
        &[rows, experts] if k > 0 && k <= experts => (rows, experts),
        shape => return refuse("route", format!("logits {shape:?} must be [N, E] with k = {k} from 1 to E")),
    };
    let ids = match forced {
        None => Tensor::from_vec(highest(logits, k)?, (rows, k), logits.device())?,
        Some(ids) if ids.dims() == [rows, k] && ids.dtype() == DType::U32 => {
            check_ids("route", &ids.flatten_all()?.to_vec1::<u32>()?, k, experts)?;
            ids.contiguous()?
        }
        Some(ids) => {
            let (dtype, shape) = (ids.dtype(), ids.dims());
            return refuse("route", format!("{dtype:?} forced ids {shape:?} must be [{rows}, {k}] of u32"));
        }
    };
    let weights = if storage::is_native(logits) {
        logits.contiguous()?.apply_op2(&ids, RouterWeights { normalise })?
    } else {
        composed(logits, &ids, normalise)?
    };
    Ok((ids, weights))
}

/// The weights out of candle's own differentiable operators.
fn composed(logits: &Tensor, ids: &Tensor, normalise: bool) -> Result<Tensor> {
    let chosen = logits.gather(ids, 1)?;
    let all = if normalise { &chosen } else { logits };
    let max = all.detach().max_keepdim(D::Minus1)?;
    let sum = all.broadcast_sub(&max)?.exp()?.sum_keepdim(D::Minus1)?;
    chosen.broadcast_sub(&max)?.exp()?.broadcast_div(&sum)
}

/// Ids of the k highest logits of each row.
fn highest(logits: &Tensor, k: usize) -> Result<Vec<u32>> {
    let native = matches!(logits.dtype(), DType::F32 | DType::F64);
    let logits = if native { logits.clone() } else { logits.to_dtype(DType::F32)? };
    by_type!(logits.dtype(), T => {
        let experts = logits.dim(1)?;
        let values: Vec<T> = logits.flatten_all()?.to_vec1()?;
        let mut ids = Vec::with_capacity(values.len() / experts * k);
        for logits in values.chunks_exact(experts) {
            let row = ids.len();
            for _ in 0..k {
                let id = next_highest(logits, &ids[row..]);
                ids.push(id);
            }
        }
        Ok(ids)
    })
}

/// The first of the highest logits whose id was not taken; k is small, so taking them one by one is cheap. Always an
/// id that is free, also among NaNs.
fn next_highest<T: PartialOrd + Copy>(logits: &[T], taken: &[u32]) -> u32 {
    let mut best: Option<(u32, T)> = None;
    for (id, &logit) in (0..).zip(logits) {
        if best.is_none_or(|(_, highest)| logit > highest) && !taken.contains(&id) {
            best = Some((id, logit));
        }
    }
    best.map_or(0, |(id, _)| id)
}

/// The weights of given ids.
struct RouterWeights {
    normalise: bool,
}

/// The softmax of `logits`, in place.
#[inline(always)]
fn softmax<S: Simd, T: Element>(simd: S, logits: &mut [T]) {
    let mut max = logits[0];
    for &logit in &logits[1..] {
        max = if logit > max { logit } else { max };
    }
    for values in logits.chunks_mut(Lanes::<S, T>::width()) {
        (Lanes::load(simd, values) - Lanes::splat(simd, max)).exp().store(values);
    }
    let mut sum = T::zero();
    for &value in &*logits {
        sum += value;
    }
    for value in logits {
        *value /= sum;
    }
}

struct Forward<'a, T> {
    logits: &'a [T],
    ids: &'a [u32],
    experts: usize,
    each: usize,
    normalise: bool,
    weights: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut all = vec![T::zero(); self.experts];
        let rows = self.logits.chunks_exact(self.experts).zip(self.ids.chunks_exact(self.each));
        for ((logits, ids), weights) in rows.zip(self.weights.chunks_exact_mut(self.each)) {
            all.copy_from_slice(logits);
            if !self.normalise {
                softmax(simd, &mut all);
            }
            for (weight, &id) in weights.iter_mut().zip(ids) {
                *weight = all[id as usize];
            }
            if self.normalise {
                softmax(simd, weights);
                // The other logits cancel out, but not a NaN among them.
                if logits.iter().any(|logit| logit.to_f64().is_nan()) {
                    weights.fill(T::constant(f64::NAN));
                }
            }
        }
    }
}

struct Backward<'a, T> {
    logits: &'a [T],
    ids: &'a [u32],
    weights: &'a [T],
    /// Of the weights.
    gradient: &'a [T],
    experts: usize,
    each: usize,
    normalise: bool,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    /// With `G = Σ_j g_j w_j`: `[i chosen] g_i w_i - p_i G`, where normalised `p_i` is the weight itself.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let chosen = self.weights.chunks_exact(self.each).zip(self.gradient.chunks_exact(self.each));
        let chosen = chosen.zip(self.ids.chunks_exact(self.each));
        let rows = self.logits.chunks_exact(self.experts).zip(self.output.chunks_exact_mut(self.experts));
        for ((logits, output), ((weights, gradient), ids)) in rows.zip(chosen) {
            let mut total = T::zero();
            for (&weight, &gradient) in weights.iter().zip(gradient) {
                total += gradient * weight;
            }
            if !self.normalise {
                output.copy_from_slice(logits);
                softmax(simd, output);
                for value in output.iter_mut() {
                    *value *= T::zero() - total;
                }
            }
            for ((&weight, &gradient), &id) in weights.iter().zip(gradient).zip(ids) {
                let common = if self.normalise { total } else { T::zero() };
                output[id as usize] += weight * (gradient - common);
            }
        }
    }
}

impl RouterWeights {
    fn forward<T: Element>(
        &self,
        logits: (&CpuStorage, &Layout),
        ids: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let experts = logits.1.shape().dims2()?.1;
        let (rows, each) = ids.1.shape().dims2()?;
        let mut weights = vec![T::zero(); rows * each];
        on_this_processor(Forward {
            logits: storage::slice::<T>(logits.0, logits.1)?,
            ids: storage::slice(ids.0, ids.1)?,
            experts,
            each,
            normalise: self.normalise,
            weights: &mut weights,
        });
        Ok((T::to_cpu_storage_owned(weights), Shape::from((rows, each))))
    }

    fn backward<T: Element>(
        &self,
        logits: &Tensor,
        ids: &Tensor,
        weights: &Tensor,
        gradient: &Tensor,
    ) -> Result<Tensor> {
        let mut output = vec![T::zero(); logits.elem_count()];
        on_this_processor(Backward {
            logits: values::<T>(logits)?.slice()?,
            ids: values(ids)?.slice()?,
            weights: values(weights)?.slice()?,
            gradient: values(gradient)?.slice()?,
            experts: logits.dim(1)?,
            each: ids.dim(1)?,
            normalise: self.normalise,
            output: &mut output,
        });
        Tensor::from_vec(output, logits.shape(), logits.device())
    }
}

impl CustomOp2 for RouterWeights {
    fn name(&self) -> &'static str {
        "route"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        logits_layout: &Layout,
        ids: &CpuStorage,
        ids_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(logits), T => self.forward::<T>((logits, logits_layout), (ids, ids_layout)))
    }

    fn bwd(
        &self,
        logits: &Tensor,
        ids: &Tensor,
        weights: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let logits = by_type!(logits.dtype(), T => self.backward::<T>(logits, ids, weights, &gradient))?;
        Ok((Some(logits), None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{Device, Var};

    fn forced(rows: usize, k: usize, experts: usize) -> Tensor {
        let ids = (0..rows * k).map(|i| ((i / k * 5 + i % k * 2 + 1) % experts) as u32).collect();
        offset(&Tensor::from_vec::<_, u32>(ids, (rows, k), &Device::Cpu).unwrap())
    }

    #[test]
    fn the_highest_logits_come_first_and_equal_ones_by_id() {
        let logits = Tensor::new(&[[1.0_f32, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let (ids, weights) = route(&logits, 3, false, None).unwrap();
        assert_eq!(ids.to_vec2::<u32>().unwrap(), [[1, 2, 0], [0, 1, 2]]);
        let weights = weights.to_vec2::<f32>().unwrap();
        assert_eq!(weights[1], [0.25; 3]);
        assert!(
            weights[0][0] == weights[0][1] && (weights[0][0] / weights[0][2] - 2.0_f32.exp()).abs() < 1e-5
        );
        let (_, weights) = route(&logits, 2, true, None).unwrap();
        assert_eq!(weights.to_vec2::<f32>().unwrap(), [[0.5, 0.5], [0.5, 0.5]]);
    }

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for (rows, experts, k) in [(0, 3, 2), (1, 1, 1), (5, 7, 3), (9, 64, 8)] {
            let logits = offset(&(pseudo_random(&[rows, experts], 1, DType::F32) * 2.0).unwrap());
            for normalise in [false, true] {
                for forced in [None, Some(forced(rows, k, experts))] {
                    let (ids, weights) = route(&logits, k, normalise, forced.as_ref()).unwrap();
                    if let Some(forced) = forced {
                        assert_eq!(ids.to_vec2::<u32>().unwrap(), forced.to_vec2::<u32>().unwrap());
                    }
                    if rows > 0 {
                        close(&weights, &composed(&logits, &ids, normalise).unwrap(), 1e-6);
                    }
                    assert_eq!(weights.dims(), [rows, k]);
                }
            }
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (rows, experts, k) in [(1, 1, 1), (4, 5, 2), (3, 19, 4)] {
            let logits = pseudo_random(&[rows, experts], 1, DType::F64);
            let forced = forced(rows, k, experts);
            for normalise in [false, true] {
                check_gradients(std::slice::from_ref(&logits), |t| Ok(route(&t[0], k, normalise, None)?.1));
                check_gradients(std::slice::from_ref(&logits), |t| {
                    Ok(route(&t[0], k, normalise, Some(&forced))?.1)
                });
            }
        }
    }

    #[test]
    fn replaying_recorded_ids_gives_the_same_bits_and_gradient() {
        let logits = Var::from_tensor(&pseudo_random(&[6, 10], 1, DType::F32)).unwrap();
        let (ids, _) = route(&logits, 3, true, None).unwrap();
        let both = [None, Some(&ids)].map(|forced| {
            let (_, weights) = route(&logits, 3, true, forced).unwrap();
            let gradients = weights.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            [weights, gradients.get(&logits).unwrap().clone()].map(|t| t.to_vec2::<f32>().unwrap())
        });
        assert_eq!(both[0], both[1]);
    }

    #[test]
    fn forced_experts_of_hardly_any_probability_still_have_weights() {
        let logits = Tensor::new(&[[0.0_f32, -300.0, -300.0, -1.0]], &Device::Cpu).unwrap();
        let ids = Tensor::new(&[[1_u32, 2]], &Device::Cpu).unwrap();
        let (_, weights) = route(&logits, 2, true, Some(&ids)).unwrap();
        assert_eq!(weights.to_vec2::<f32>().unwrap(), [[0.5, 0.5]]);
    }

    #[test]
    fn a_nan_makes_the_rows_weights_nan_and_its_ids_stay_distinct() {
        let nan = f32::NAN;
        let rows = [[nan, 1.0, 2.0], [0.0, 1.0, nan], [nan, nan, nan], [0.0, 1.0, 2.0]];
        let logits = Tensor::new(&rows, &Device::Cpu).unwrap();
        for normalise in [false, true] {
            let (ids, weights) = route(&logits, 2, normalise, None).unwrap();
            assert!(ids.to_vec2::<u32>().unwrap().iter().all(|ids| ids[0] != ids[1]));
            let weights = weights.to_vec2::<f32>().unwrap();
            assert!(weights[..3].iter().flatten().all(|w| w.is_nan()));
            assert!(weights[3].iter().all(|w| w.is_finite()));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let logits = pseudo_random(&[2, 4], 1, DType::F32);
        let message = |k, forced: Option<&Tensor>| route(&logits, k, true, forced).unwrap_err().to_string();
        assert!(message(0, None).contains("route refused") && message(5, None).contains("k = 5"));
        let ids = |rows: &[[u32; 2]]| Tensor::from_vec(rows.concat(), (rows.len(), 2), &Device::Cpu).unwrap();
        assert!(message(2, Some(&ids(&[[0, 1], [2, 4]]))).contains("expert 4 of row 1"));
        assert!(message(2, Some(&ids(&[[0, 1], [2, 2]]))).contains("expert 2 twice"));
        assert!(message(2, Some(&ids(&[[0, 1]]))).contains("[2, 2]"));
        let signed = ids(&[[0, 1], [2, 3]]).to_dtype(DType::I64).unwrap();
        assert!(message(2, Some(&signed)).contains("u32"));
    }
}
