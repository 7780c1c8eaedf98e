//! The head of a language model and its loss in one: log-probability and entropy of the next token, without the
//! logits of all rows ever being there at once.
//!
//! `logits = x · weightᵀ / temperature` would be `[N, V]`, gigabytes for a usual batch and vocabulary. Here they come
//! and go in tiles, some rows by one chunk of the vocabulary: the forward pass keeps what each chunk comes to
//! ([`log_sum`]) and merges the chunks in order; the backward pass makes each tile again, turns it into the gradient
//! of the logits in place and multiplies that into both gradients (the recomputation costs one product more, as in
//! Chen et al., "Training deep nets with sublinear memory cost", 2016; Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018, is the sum).
//!
//! Row-invariant: a row's result depends on that row only, bit for bit, and is what a generator computes that has the
//! row's logits ([`super::sample_token`]). Gradients do not depend on the number of threads.

mod kernels;
mod log_sum;
mod restricted;

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, DType, Error, Layout, Result, Shape, Tensor};

use super::GradientSum;
use super::activation::Activation;
use super::categorical::categorical;
use super::lanes::{Element, on_this_processor};
use super::parallel::over_rows;
use super::patches::Patches;
use super::prepared::WeightRef;
use super::product::{self, Matrix, PackedWeight, Weight, multiply};
use super::storage::{self, by_type, refuse, values};
#[cfg(feature = "cuda")]
use {
    super::cuda::{View, lock, log_prob as on_device},
    candle_core::CudaStorage,
};

use kernels::{Differentiate, RowGradient, RowPart, Summarise};

pub use restricted::{CandidateSets, candidate_log_prob};

pub(super) use log_sum::{Blocks, CHUNK, LogSum, Part, inverse_temperature};

/// Rows whose logits of one chunk stay in the cache between the product and what is done with them.
const TILE: usize = 96;

/// Rows that the vocabulary is walked for at a time: bounds the memory, and is enough to make up for laying out each
/// chunk of the weight.
const BLOCK: usize = 4096;

/// Log-probability of each row's target (column 0) and entropy (column 1) under
/// `softmax(x · weightᵀ / temperature)`, in nats.
///
/// Shapes: x `[N, D]`, weight `[V, D]`, targets `[N]` (`u32`), result `[N, 2]`. Differentiable in x and weight. On the
/// CPU it adds to the weight's gradient sum where there is one, and needs a few tens of megabytes beside its inputs and
/// gradients, whatever N; elsewhere it is composed of candle's operators, logits and all. Errors when a shape does not
/// fit, a target is not below V, or the temperature is not a positive number.
pub fn vocabulary_log_prob<'a>(
    x: &Tensor,
    weight: impl Into<WeightRef<'a>>,
    targets: &Tensor,
    temperature: f64,
) -> Result<Tensor> {
    let WeightRef { tensor: weight, gradients, .. } = weight.into();
    check(x, weight, targets, temperature)?;
    if !storage::is_native(x) && !storage::has_kernel(x) {
        return composed(x, weight, targets, temperature);
    }
    let op = VocabularyLogProb {
        temperature,
        sums: OnceLock::new(),
        gradients: gradients.cloned(),
        #[cfg(feature = "cuda")]
        states: OnceLock::new(),
    };
    x.contiguous()?.apply_op3(&weight.contiguous()?, &targets.contiguous()?, op)
}

fn check(x: &Tensor, weight: &Tensor, targets: &Tensor, temperature: f64) -> Result<()> {
    match (x.dims(), weight.dims(), targets.dims(), targets.dtype()) {
        ([n, d], [v, inputs], [count], DType::U32) if n == count && d == inputs && *v > 0 => {}
        (x, weight, targets, dtype) => {
            return refuse(
                "vocabulary_log_prob",
                format!(
                    "x {x:?}, weight {weight:?} and {dtype:?} targets {targets:?} must be [N, D], [V > 0, D] \
                     and [N] of u32"
                ),
            );
        }
    }
    if !(temperature > 0.0 && temperature.is_finite()) {
        return refuse("vocabulary_log_prob", format!("temperature {temperature} must be a positive number"));
    }
    Ok(())
}

/// The same function out of candle's own differentiable operators.
fn composed(x: &Tensor, weight: &Tensor, targets: &Tensor, temperature: f64) -> Result<Tensor> {
    categorical(&(x.matmul(&weight.t()?)? / temperature)?, targets)
}

/// The operator; it keeps what the forward pass summed up for the backward pass.
struct VocabularyLogProb {
    temperature: f64,
    sums: OnceLock<Vec<LogSum>>,
    /// Where the weight's gradient goes, if not to automatic differentiation.
    gradients: Option<GradientSum>,
    /// The same on a device.
    #[cfg(feature = "cuda")]
    states: OnceLock<Tensor>,
}

/// The operands on slices.
#[derive(Clone, Copy)]
struct Head<'a, T> {
    /// `[N, D]`.
    x: &'a [T],
    /// `[V, D]`.
    weight: &'a [T],
    /// `[N]`.
    targets: &'a [u32],
    /// D.
    inputs: usize,
    /// V.
    entries: usize,
    /// What scales the logits.
    inverse: T,
}

/// One chunk of the vocabulary, laid out for the product.
struct Chunk<T> {
    packed: PackedWeight<T>,
    /// D.
    inputs: usize,
    first: usize,
    width: usize,
}

impl<T: Element> Chunk<T> {
    /// The (unscaled) logits of some rows of x `[rows, D]`, `[rows, width]`. The one place that makes logits: each is
    /// a chain of multiply-adds over D in order, in every pass.
    fn logits(&self, x: &[T], logits: &mut [T]) {
        let (weight, x) = (Weight::Packed(&self.packed), Patches::matrix(x, self.inputs));
        product::rows(weight, &x, None, Activation::Identity, logits);
    }
}

impl<'a, T: Element> Head<'a, T> {
    fn chunk(&self, index: usize) -> Chunk<T> {
        let first = index * CHUNK;
        let width = CHUNK.min(self.entries - first);
        let packed = PackedWeight::new(self.weight_rows(first, width), width, self.inputs);
        Chunk { packed, inputs: self.inputs, first, width }
    }

    fn weight_rows(&self, first: usize, count: usize) -> &'a [T] {
        &self.weight[first * self.inputs..][..count * self.inputs]
    }

    fn x_rows(&self, first: usize, count: usize) -> &'a [T] {
        &self.x[first * self.inputs..][..count * self.inputs]
    }

    fn chunks(&self) -> usize {
        self.entries.div_ceil(CHUNK)
    }

    /// The sums of `rows` rows from `first` and the scaled logits of their targets.
    fn forward(&self, first: usize, rows: usize) -> (Vec<LogSum>, Vec<T>) {
        let empty = RowPart { part: Part::empty(), target: T::zero() };
        let mut parts = vec![empty; self.chunks() * rows];
        let cost = rows * self.entries * self.inputs;
        over_rows(&mut parts, rows, cost, |first_chunk, parts| {
            let mut logits = vec![T::zero(); TILE.min(rows) * CHUNK.min(self.entries)];
            for (index, parts) in parts.chunks_exact_mut(rows).enumerate() {
                let chunk = self.chunk(first_chunk + index);
                for (tile, parts) in parts.chunks_mut(TILE).enumerate() {
                    let start = first + tile * TILE;
                    let logits = &mut logits[..parts.len() * chunk.width];
                    chunk.logits(self.x_rows(start, parts.len()), logits);
                    on_this_processor(Summarise {
                        logits,
                        width: chunk.width,
                        first: chunk.first,
                        inverse: self.inverse,
                        targets: &self.targets[start..],
                        parts,
                    });
                }
            }
        });
        let mut sums = vec![LogSum::EMPTY; rows];
        for parts in parts.chunks_exact(rows) {
            for (sum, part) in sums.iter_mut().zip(parts) {
                sum.add(part.part);
            }
        }
        let of_target = |row: usize| self.targets[first + row] as usize / CHUNK * rows + row;
        let targets = (0..rows).map(|row| parts[of_target(row)].target).collect();
        (sums, targets)
    }

    /// Fills the gradient of `rows.len()` rows of x from `first`, and adds what these rows give to that of the weight
    /// (or fills it when not to accumulate: its fresh pages are then touched once).
    fn backward(
        &self,
        first: usize,
        rows: &[RowGradient<T>],
        mut x_gradient: Option<&mut [T]>,
        mut weight_gradient: Option<&mut [T]>,
        accumulate: bool,
    ) {
        let mut scratch = vec![T::zero(); rows.len() * CHUNK.min(self.entries)];
        for index in 0..self.chunks() {
            let chunk = self.chunk(index);
            let logits = &mut scratch[..rows.len() * chunk.width];
            over_rows(logits, chunk.width, rows.len() * chunk.width * self.inputs, |start, logits| {
                for (tile, logits) in logits.chunks_mut(TILE * chunk.width).enumerate() {
                    let (start, count) = (start + tile * TILE, logits.len() / chunk.width);
                    chunk.logits(self.x_rows(first + start, count), logits);
                    let rows = &rows[start..start + count];
                    let (width, first) = (chunk.width, chunk.first);
                    on_this_processor(Differentiate { logits, width, first, inverse: self.inverse, rows });
                }
            });
            let gradient = Matrix::new(logits, rows.len(), chunk.width);
            if let Some(output) = x_gradient.as_deref_mut() {
                let weight = self.weight_rows(chunk.first, chunk.width);
                multiply(output, gradient, Matrix::new(weight, chunk.width, self.inputs), index > 0);
            }
            if let Some(output) = weight_gradient.as_deref_mut() {
                let output = &mut output[chunk.first * self.inputs..][..chunk.width * self.inputs];
                let x = Matrix::new(self.x_rows(first, rows.len()), rows.len(), self.inputs);
                multiply(output, gradient.transposed(), x, accumulate);
            }
        }
    }
}

impl VocabularyLogProb {
    fn forward<T: Element>(
        &self,
        [x, weight, targets]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x.1.shape().dims2()?;
        let entries = weight.1.shape().dims2()?.0;
        let head = Head::<T> {
            x: storage::slice(x.0, x.1)?,
            weight: storage::slice(weight.0, weight.1)?,
            targets: storage::slice(targets.0, targets.1)?,
            inputs,
            entries,
            inverse: inverse_temperature(self.temperature),
        };
        if let Some(row) = head.targets.iter().position(|&target| target as usize >= entries) {
            return refuse(
                "vocabulary_log_prob",
                format!("target {} of row {row} is not below {entries}", head.targets[row]),
            );
        }
        let mut output = Vec::with_capacity(rows * 2);
        let mut sums = Vec::with_capacity(rows);
        for first in (0..rows).step_by(BLOCK) {
            let (block, targets) = head.forward(first, BLOCK.min(rows - first));
            for (sum, target) in block.iter().zip(targets) {
                output.extend([sum.log_prob(target), T::constant(sum.entropy())]);
            }
            sums.extend(block);
        }
        // A second forward pass of the same operator would compute the same.
        self.sums.get_or_init(|| sums);
        Ok((T::to_cpu_storage_owned(output), Shape::from((rows, 2))))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        targets: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 2]> {
        let Some(sums) = self.sums.get() else {
            return Err(Error::Msg("vocabulary_log_prob: backward before forward".into()).bt());
        };
        let mut x_gradient = x.track_op().then(|| vec![T::zero(); x.elem_count()]);
        let sum = self.gradients.as_ref().filter(|_| weight.track_op());
        let own = weight.track_op() && sum.is_none();
        let mut weight_gradient = own.then(|| vec![T::zero(); weight.elem_count()]);
        {
            let (rows, inputs) = x.dims2()?;
            let entries = weight.dim(0)?;
            let inverse = inverse_temperature(self.temperature);
            let (x, weight, targets) = (values(x)?, values(weight)?, values(targets)?);
            let (x, weight, targets) = (x.slice()?, weight.slice()?, targets.slice()?);
            let head = Head::<T> { x, weight, targets, inputs, entries, inverse };
            let gradient = values::<T>(gradient)?;
            let gradient = gradient.slice()?.as_chunks::<2>().0;
            let mut blocks = |mut weight_gradient: Option<&mut [T]>, accumulate: bool| {
                for first in (0..rows).step_by(BLOCK) {
                    let end = rows.min(first + BLOCK);
                    let gradients: Vec<_> = (first..end)
                        .map(|row| RowGradient::new(&sums[row], targets[row], gradient[row], inverse))
                        .collect();
                    let x_gradient = x_gradient.as_mut().map(|g| &mut g[first * inputs..end * inputs]);
                    let accumulate = accumulate || first > 0;
                    head.backward(first, &gradients, x_gradient, weight_gradient.as_deref_mut(), accumulate);
                }
            };
            match sum {
                Some(sum) if rows > 0 => sum.update(|sum, accumulate| blocks(Some(sum), accumulate))?,
                _ => blocks(weight_gradient.as_deref_mut(), false),
            }
        }
        let tensor = |gradient: Option<Vec<T>>, like: &Tensor| {
            gradient.map(|gradient| Tensor::from_vec(gradient, like.shape(), like.device())).transpose()
        };
        Ok([tensor(x_gradient, x)?, tensor(weight_gradient, weight)?])
    }
}

impl CustomOp3 for VocabularyLogProb {
    fn name(&self) -> &'static str {
        "vocabulary_log_prob"
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

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
        targets: &CudaStorage,
        targets_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let inputs = on_device::Inputs {
            x: View::cuda(x, x_layout),
            weight: View::cuda(weight, weight_layout),
            targets: View::cuda(targets, targets_layout),
            temperature: self.temperature,
        };
        let (result, states) = on_device::forward(&inputs)?;
        self.states.get_or_init(|| states.into_tensor());
        result.into_cuda()
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
        #[cfg(feature = "cuda")]
        if storage::has_kernel(x) {
            let Some(states) = self.states.get() else {
                return Err(Error::Msg("vocabulary_log_prob: backward before forward".into()).bt());
            };
            let locked = (lock(x), lock(weight), lock(targets), lock(states), lock(&gradient));
            let inputs = on_device::Inputs {
                x: locked.0.view()?,
                weight: locked.1.view()?,
                targets: locked.2.view()?,
                temperature: self.temperature,
            };
            let (of_x, of_weight) = on_device::backward(&inputs, &locked.3.view()?, &locked.4.view()?)?;
            return Ok((x.track_op().then_some(of_x), weight.track_op().then_some(of_weight), None));
        }
        let [x, weight] = by_type!(x.dtype(), T => self.backward::<T>(x, weight, targets, &gradient))?;
        Ok((x, weight, None))
    }
}

#[cfg(test)]
mod tests;
