//! The head within candidate sets: log-probability and entropy of a token among the few that it was sampled from.
//!
//! Sampling with `top_k` or `top_p` draws from a set of candidates that is a function of the behaviour policy; a policy
//! is compared with it over that same set, which is recorded with the token. Only the candidates' logits are made: their
//! rows of the weight are gathered and multiplied by the state, and summed in the order of their ids as
//! [`super::super::sample_token`] sums them, so that the result has the bits that were recorded.
//!
//! Gradients do not depend on the number of threads: a weight row sums over the rows of x in order.

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::super::GradientSum;
use super::super::activation::Activation;
use super::super::categorical::{categorical, mask_logits};
use super::super::lanes::{Element, Lanes, on_this_processor};
use super::super::parallel::over_rows;
use super::super::patches::Patches;
use super::super::prepared::WeightRef;
use super::super::product::{self, Weight};
use super::super::storage::{self, by_type, refuse, values};
use super::kernels::{Differentiate, RowGradient, RowPart, Summarise};
use super::log_sum::{CHUNK, LogSum, Part, inverse_temperature};

/// The ids, ascending, that the distribution of each of some rows is restricted to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateSets {
    /// Where each row's ids end.
    ends: Vec<usize>,
    ids: Vec<u32>,
}

impl CandidateSets {
    /// Adds the set of one more row.
    pub fn push(&mut self, ids: impl IntoIterator<Item = u32>) {
        self.ids.extend(ids);
        self.ends.push(self.ids.len());
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Candidates of all rows together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ids.len()
    }

    /// The ids of a row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u32] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.ids[start..self.ends[row]]
    }

    /// The same with all of `0..entries` in place of every empty set.
    #[must_use]
    pub fn filled(&self, entries: usize) -> Self {
        let mut filled = Self::default();
        for row in 0..self.len() {
            match self.row(row) {
                [] => filled.push(0..entries as u32),
                ids => filled.push(ids.iter().copied()),
            }
        }
        filled
    }

    /// The place of each row's target in its set.
    fn places(&self, targets: &[u32], entries: usize) -> Result<Vec<u32>> {
        let place = |(row, &target): (usize, &u32)| {
            let ids = self.row(row);
            if !ids.is_sorted_by(|a, b| a < b) || ids.last().is_none_or(|&last| last as usize >= entries) {
                let why =
                    format!("candidates of row {row} must be ids below {entries}, ascending, at least one");
                return refuse(NAME, why);
            }
            match ids.binary_search(&target) {
                Ok(place) => Ok(place as u32),
                Err(_) => refuse(NAME, format!("target {target} of row {row} is not among its candidates")),
            }
        };
        targets.iter().enumerate().map(place).collect()
    }
}

const NAME: &str = "candidate_log_prob";

/// Log-probability of each row's target (column 0) and entropy (column 1) under `softmax(x · weightᵀ / temperature)`
/// over the row's candidates alone, in nats.
///
/// Shapes: x `[N, D]`, weight `[V, D]`, targets `[N]` (`u32`), N sets, result `[N, 2]`. Differentiable in x and weight;
/// adds to the weight's gradient sum where there is one. For `f32` and `f64` on the CPU; elsewhere it is composed of
/// candle's operators, with the logits of all entries, and gives `f32`. Errors when a shape does not fit, a set is not
/// ascending ids below V, a target is not in its set, or the temperature is not a positive number.
pub fn candidate_log_prob<'a>(
    x: &Tensor,
    weight: impl Into<WeightRef<'a>>,
    targets: &Tensor,
    sets: CandidateSets,
    temperature: f64,
) -> Result<Tensor> {
    let WeightRef { tensor: weight, gradients, .. } = weight.into();
    super::check(NAME, x, weight, targets, temperature)?;
    if sets.len() != x.dim(0)? {
        return refuse(NAME, format!("{} candidate sets for {} rows", sets.len(), x.dim(0)?));
    }
    if !storage::is_native(x) {
        return composed(x, weight, targets, &sets, temperature);
    }
    let op = CandidateLogProb { temperature, sets, gradients: gradients.cloned() };
    x.contiguous()?.apply_op3(&weight.contiguous()?, &targets.contiguous()?, op)
}

/// The same function out of candle's own differentiable operators: all logits, those of no candidate masked.
fn composed(
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    sets: &CandidateSets,
    temperature: f64,
) -> Result<Tensor> {
    let (rows, entries) = (x.dim(0)?, weight.dim(0)?);
    sets.places(&targets.to_vec1()?, entries)?;
    let mut mask = vec![0_u8; rows * entries];
    for row in 0..rows {
        sets.row(row).iter().for_each(|&id| mask[row * entries + id as usize] = 1);
    }
    let mask = Tensor::from_vec(mask, (rows, entries), x.device())?;
    let logits = (x.matmul(&weight.t()?)?.to_dtype(DType::F32)? / temperature)?;
    categorical(&mask_logits(&logits, &mask)?, targets)
}

struct CandidateLogProb {
    temperature: f64,
    sets: CandidateSets,
    /// Where the weight's gradient goes, if not to automatic differentiation.
    gradients: Option<GradientSum>,
}

/// The operands on slices.
struct Head<'a, T> {
    /// `[N, D]`.
    x: &'a [T],
    /// `[V, D]`.
    weight: &'a [T],
    /// D.
    inputs: usize,
    sets: &'a CandidateSets,
    /// Of each row's target in its set.
    places: Vec<u32>,
    inverse: T,
}

/// Buffers that are used again from row to row.
struct Scratch<T> {
    /// Rows of the weight.
    gathered: Vec<T>,
    logits: Vec<T>,
}

impl<T: Element> Head<'_, T> {
    fn weight_row(&self, id: u32) -> &[T] {
        &self.weight[id as usize * self.inputs..][..self.inputs]
    }

    fn x_row(&self, row: usize) -> &[T] {
        &self.x[row * self.inputs..][..self.inputs]
    }

    /// Multiply-adds of one product with all candidates.
    fn cost(&self) -> usize {
        self.sets.total() * self.inputs
    }

    fn scratch() -> Scratch<T> {
        Scratch { gathered: Vec::new(), logits: Vec::new() }
    }

    /// Leaves a row's logits in `scratch`; gives their sum and the target's scaled logit.
    fn sum(&self, row: usize, scratch: &mut Scratch<T>) -> (LogSum, T) {
        let ids = self.sets.row(row);
        let Scratch { gathered, logits } = scratch;
        gathered.clear();
        ids.iter().for_each(|&id| gathered.extend_from_slice(self.weight_row(id)));
        logits.clear();
        logits.resize(ids.len(), T::zero());
        let weight = Weight::plain(gathered, ids.len(), self.inputs);
        let x = Patches::matrix(self.x_row(row), self.inputs);
        product::rows(weight, &x, None, Activation::Identity, logits);
        let (mut sum, mut target) = (LogSum::EMPTY, T::zero());
        for (chunk, logits) in logits.chunks(CHUNK).enumerate() {
            let mut parts = [RowPart { part: Part::empty(), target: T::zero() }];
            let (width, first) = (logits.len(), chunk * CHUNK);
            let targets = &self.places[row..=row];
            let inverse = self.inverse;
            on_this_processor(Summarise { logits, width, first, inverse, targets, parts: &mut parts });
            sum.add(parts[0].part);
            if (first..first + width).contains(&(targets[0] as usize)) {
                target = parts[0].target;
            }
        }
        (sum, target)
    }

    /// Log-probability and entropy of each row, `[N, 2]`.
    fn forward(&self) -> Vec<T> {
        let mut output = vec![T::zero(); self.places.len() * 2];
        over_rows(&mut output, 2, self.cost(), |first, output| {
            let mut scratch = Self::scratch();
            for (index, output) in output.chunks_exact_mut(2).enumerate() {
                let (sum, target) = self.sum(first + index, &mut scratch);
                output.copy_from_slice(&[sum.log_prob(target), T::constant(sum.entropy())]);
            }
        });
        output
    }

    /// Gradients of each row's logits, from those of its results.
    fn slopes(&self, gradient: &[[T; 2]]) -> Vec<Vec<T>> {
        let mut slopes = vec![Vec::new(); self.places.len()];
        over_rows(&mut slopes, 1, self.cost(), |first, slopes| {
            let mut scratch = Self::scratch();
            for (index, slopes) in slopes.iter_mut().enumerate() {
                let row = first + index;
                let (sum, _) = self.sum(row, &mut scratch);
                let rows = &[RowGradient::new(&sum, self.places[row], gradient[row], self.inverse)];
                let (logits, width) = (&mut scratch.logits[..], self.sets.row(row).len());
                on_this_processor(Differentiate { logits, width, first: 0, inverse: self.inverse, rows });
                slopes.clone_from(&scratch.logits);
            }
        });
        slopes
    }

    fn x_gradient(&self, slopes: &[Vec<T>], output: &mut [T]) {
        over_rows(output, self.inputs, self.cost(), |first, output| {
            for (index, output) in output.chunks_exact_mut(self.inputs).enumerate() {
                let row = first + index;
                for (&id, &scale) in self.sets.row(row).iter().zip(&slopes[row]) {
                    on_this_processor(AddScaled { output, scale, values: self.weight_row(id) });
                }
            }
        });
    }

    /// Adds to the weight's gradient, or writes all of it when not to accumulate. Each thread has some ids, and goes
    /// over all rows.
    fn weight_gradient(&self, slopes: &[Vec<T>], output: &mut [T], accumulate: bool) {
        over_rows(output, self.inputs, self.cost(), |first, output| {
            if !accumulate {
                output.fill(T::zero());
            }
            let end = first + output.len() / self.inputs;
            for (row, slopes) in slopes.iter().enumerate() {
                let ids = self.sets.row(row);
                let own = ids.partition_point(|&id| (id as usize) < first)
                    ..ids.partition_point(|&id| (id as usize) < end);
                for (&id, &scale) in ids[own.clone()].iter().zip(&slopes[own]) {
                    let output = &mut output[(id as usize - first) * self.inputs..][..self.inputs];
                    on_this_processor(AddScaled { output, scale, values: self.x_row(row) });
                }
            }
        });
    }
}

/// `output += scale · values`.
struct AddScaled<'a, T> {
    output: &'a mut [T],
    scale: T,
    values: &'a [T],
}

impl<T: Element> WithSimd for AddScaled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = Lanes::<S, T>::width();
        let scale = Lanes::splat(simd, self.scale);
        for (output, values) in self.output.chunks_mut(width).zip(self.values.chunks(width)) {
            scale.multiply_add(Lanes::load(simd, values), Lanes::load(simd, output)).store(output);
        }
    }
}

impl CandidateLogProb {
    fn forward<T: Element>(
        &self,
        [x, weight, targets]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x.1.shape().dims2()?;
        let entries = weight.1.shape().dims2()?.0;
        let head = Head::<T> {
            x: storage::slice(x.0, x.1)?,
            weight: storage::slice(weight.0, weight.1)?,
            inputs,
            sets: &self.sets,
            places: self.sets.places(storage::slice(targets.0, targets.1)?, entries)?,
            inverse: inverse_temperature(self.temperature),
        };
        Ok((T::to_cpu_storage_owned(head.forward()), Shape::from((rows, 2))))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        targets: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 2]> {
        let (wants_x, wants_weight) = (x.track_op(), weight.track_op());
        let (x_shape, weight_shape) = (x.shape(), weight.shape());
        let (inputs, entries) = (x.dim(1)?, weight.dim(0)?);
        let (x, weight, targets, gradient) =
            (values::<T>(x)?, values::<T>(weight)?, values::<u32>(targets)?, values::<T>(gradient)?);
        let head = Head::<T> {
            x: x.slice()?,
            weight: weight.slice()?,
            inputs,
            sets: &self.sets,
            places: self.sets.places(targets.slice()?, entries)?,
            inverse: inverse_temperature(self.temperature),
        };
        let slopes = head.slopes(gradient.slice()?.as_chunks::<2>().0);
        let tensor =
            |values: Vec<T>, shape: &Shape| Tensor::from_vec(values, shape, &candle_core::Device::Cpu);
        let of_x = wants_x.then(|| {
            let mut output = vec![T::zero(); x_shape.elem_count()];
            head.x_gradient(&slopes, &mut output);
            tensor(output, x_shape)
        });
        let of_weight = match &self.gradients {
            _ if !wants_weight => None,
            Some(sum) => {
                sum.update(|sum, accumulate| head.weight_gradient(&slopes, sum, accumulate))?;
                None
            }
            None => {
                let mut output = vec![T::zero(); weight_shape.elem_count()];
                head.weight_gradient(&slopes, &mut output, true);
                Some(tensor(output, weight_shape)?)
            }
        };
        Ok([of_x.transpose()?, of_weight])
    }
}

impl CustomOp3 for CandidateLogProb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        targets: &CpuStorage,
        targets_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(x, x_layout), (weight, weight_layout), (targets, targets_layout)];
        by_type!(storage::dtype(x), T => self.forward::<T>(inputs))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        targets: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let [x, weight] = by_type!(x.dtype(), T => self.backward::<T>(x, weight, targets, &gradient))?;
        Ok((x, weight, None))
    }
}

#[cfg(test)]
#[path = "restricted_tests.rs"]
mod tests;
