//! The head of a language model and its loss in one: log-probability and entropy of the next token, without the
//! logits of many rows ever being there at once.
//!
//! `logits = x · weightᵀ / temperature` would be `[N, V]`, gigabytes for a usual batch and vocabulary. Here they come
//! and go in tiles, some rows by one chunk of the vocabulary: the forward pass keeps what each chunk comes to
//! ([`log_sum`]) and merges the chunks in order; the backward pass makes each tile again, turns it into the gradient
//! of the logits in place and multiplies that into both gradients (the recomputation costs one product more, as in
//! Chen et al., "Training deep nets with sublinear memory cost", 2016; Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018, is the sum).
//!
//! The logits of so few rows that they fit into [`KEPT`] are kept for the backward pass, which saves that product. They
//! have the same bits as when they are made again.
//!
//! Row-invariant: a row's result depends on that row only, bit for bit, and is what a generator computes that has the
//! row's logits ([`super::sample_token`]). Gradients do not depend on the number of threads.

mod kernels;
mod log_sum;
mod restricted;

use std::any::Any;
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// What turning a logit into its gradient costs, in multiply-adds.
const DIFFERENTIATING: usize = 16;

/// Logits that may be kept from the forward pass to the backward pass (256 MiB of `f32`): those of 1,024 rows of a
/// vocabulary of 49,152 are.
const KEPT: usize = if cfg!(test) { 1 << 14 } else { 1 << 26 };

/// Log-probability of each row's target (column 0) and entropy (column 1) under
/// `softmax(x · weightᵀ / temperature)`, in nats.
///
/// Shapes: x `[N, D]`, weight `[V, D]`, targets `[N]` (`u32`), result `[N, 2]`; of `bf16` its kernel makes an `f32`
/// result. Differentiable in x and weight. On the CPU it adds to the weight's gradient sum where there is one, and
/// needs at most some 300 megabytes beside its inputs and gradients, whatever N; elsewhere it is composed of candle's
/// operators, logits and all. Errors when a shape does not fit, a target is not below V, or the temperature is not a
/// positive number.
pub fn vocabulary_log_prob<'a>(
    x: &Tensor,
    weight: impl Into<WeightRef<'a>>,
    targets: &Tensor,
    temperature: f64,
) -> Result<Tensor> {
    let WeightRef { tensor: weight, gradients, .. } = weight.into();
    check(NAME, x, weight, targets, temperature)?;
    if !storage::is_native(x) && !storage::has_kernel(x) {
        return composed(x, weight, targets, temperature);
    }
    let op = VocabularyLogProb {
        temperature,
        keeps: keeps(x, weight, x.dim(0)?, weight.dim(0)?),
        sums: OnceLock::new(),
        kept: Mutex::default(),
        gradients: gradients.cloned(),
        #[cfg(feature = "cuda")]
        states: OnceLock::new(),
    };
    x.contiguous()?.apply_op3(&weight.contiguous()?, &targets.contiguous()?, op)
}

const NAME: &str = "vocabulary_log_prob";

/// Whether there will be a backward pass, and `rows` rows of logits may be kept for it.
fn keeps(x: &Tensor, weight: &Tensor, rows: usize, entries: usize) -> bool {
    (x.track_op() || weight.track_op()) && rows.saturating_mul(entries) <= KEPT
}

/// Whether an operator's inputs fit each other.
fn check(name: &'static str, x: &Tensor, weight: &Tensor, targets: &Tensor, temperature: f64) -> Result<()> {
    match (x.dims(), weight.dims(), targets.dims(), targets.dtype()) {
        ([n, d], [v, inputs], [count], DType::U32) if n == count && d == inputs && *v > 0 => {}
        (x, weight, targets, dtype) => {
            return refuse(
                name,
                format!(
                    "x {x:?}, weight {weight:?} and {dtype:?} targets {targets:?} must be [N, D], [V > 0, D] \
                     and [N] of u32"
                ),
            );
        }
    }
    if !(temperature > 0.0 && temperature.is_finite()) {
        return refuse(name, format!("temperature {temperature} must be a positive number"));
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
    /// Whether the logits are kept for the backward pass.
    keeps: bool,
    sums: OnceLock<Vec<LogSum>>,
    /// The logits as a `Vec<Vec<T>>` of each block's chunks in turn, until the backward pass takes them.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
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
    /// The first entry of a chunk, and how many it has.
    fn span(&self, index: usize) -> (usize, usize) {
        let first = index * CHUNK;
        (first, CHUNK.min(self.entries - first))
    }

    fn chunk(&self, index: usize) -> Chunk<T> {
        let (first, width) = self.span(index);
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

    /// The sums of `rows` rows from `first`, the scaled logits of their targets, and where they are to be kept the
    /// logits of each chunk, `[rows, width]`.
    fn forward(&self, first: usize, rows: usize, keeps: bool) -> (Vec<LogSum>, Vec<T>, Vec<Vec<T>>) {
        struct Walked<T> {
            parts: Vec<RowPart<T>>,
            logits: Vec<T>,
        }
        let empty = RowPart { part: Part::empty(), target: T::zero() };
        let mut walked: Vec<Walked<T>> =
            (0..self.chunks()).map(|_| Walked { parts: Vec::new(), logits: Vec::new() }).collect();
        over_rows(&mut walked, 1, rows * self.entries * self.inputs, |first_chunk, walked| {
            let mut scratch = Vec::new();
            for (index, walked) in walked.iter_mut().enumerate() {
                let chunk = self.chunk(first_chunk + index);
                let logits = if keeps { &mut walked.logits } else { &mut scratch };
                logits.resize(if keeps { rows } else { TILE.min(rows) } * chunk.width, T::zero());
                walked.parts.resize(rows, empty);
                for (tile, parts) in walked.parts.chunks_mut(TILE).enumerate() {
                    let start = first + tile * TILE;
                    let place = if keeps { tile * TILE * chunk.width } else { 0 };
                    let logits = &mut logits[place..][..parts.len() * chunk.width];
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
        for walked in &walked {
            for (sum, part) in sums.iter_mut().zip(&walked.parts) {
                sum.add(part.part);
            }
        }
        let of_target = |row: usize| &walked[self.targets[first + row] as usize / CHUNK].parts[row];
        let targets = (0..rows).map(|row| of_target(row).target).collect();
        (sums, targets, walked.into_iter().map(|walked| walked.logits).collect())
    }

    /// Fills the gradient of `rows.len()` rows of x from `first`, and adds what these rows give to that of the weight
    /// (or fills it when not to accumulate: its fresh pages are then touched once). Takes the logits of each chunk from
    /// `kept`, and makes them again where it has none.
    fn backward(
        &self,
        first: usize,
        rows: &[RowGradient<T>],
        kept: &mut impl Iterator<Item = Vec<T>>,
        mut x_gradient: Option<&mut [T]>,
        mut weight_gradient: Option<&mut [T]>,
        accumulate: bool,
    ) {
        let mut scratch = Vec::new();
        for index in 0..self.chunks() {
            let (first_entry, width) = self.span(index);
            let again = match kept.next() {
                Some(logits) => {
                    scratch = logits;
                    None
                }
                None => Some(self.chunk(index)),
            };
            scratch.resize(rows.len() * width, T::zero());
            let cost = rows.len() * width * if again.is_some() { self.inputs } else { DIFFERENTIATING };
            over_rows(&mut scratch, width, cost, |start, logits| {
                for (tile, logits) in logits.chunks_mut(TILE * width).enumerate() {
                    let (start, count) = (start + tile * TILE, logits.len() / width);
                    if let Some(chunk) = &again {
                        chunk.logits(self.x_rows(first + start, count), logits);
                    }
                    let rows = &rows[start..start + count];
                    let (first, inverse) = (first_entry, self.inverse);
                    on_this_processor(Differentiate { logits, width, first, inverse, rows });
                }
            });
            let gradient = Matrix::new(&scratch, rows.len(), width);
            if let Some(output) = x_gradient.as_deref_mut() {
                let weight = self.weight_rows(first_entry, width);
                multiply(output, gradient, Matrix::new(weight, width, self.inputs), index > 0);
            }
            if let Some(output) = weight_gradient.as_deref_mut() {
                let output = &mut output[first_entry * self.inputs..][..width * self.inputs];
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
            return refuse(NAME, format!("target {} of row {row} is not below {entries}", head.targets[row]));
        }
        let mut output = Vec::with_capacity(rows * 2);
        let mut sums = Vec::with_capacity(rows);
        let mut kept = Vec::new();
        for first in (0..rows).step_by(BLOCK) {
            let (block, targets, logits) = head.forward(first, BLOCK.min(rows - first), self.keeps);
            if self.keeps {
                kept.extend(logits);
            }
            for (sum, target) in block.iter().zip(targets) {
                output.extend([sum.log_prob(target), T::constant(sum.entropy())]);
            }
            sums.extend(block);
        }
        // A second forward pass of the same operator would compute the same.
        self.sums.get_or_init(|| sums);
        if self.keeps {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(kept));
        }
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
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = kept.and_then(|kept| kept.downcast::<Vec<Vec<T>>>().ok());
        let mut kept = kept.map(|kept| *kept).unwrap_or_default().into_iter();
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
                    let weight_gradient = weight_gradient.as_deref_mut();
                    head.backward(first, &gradients, &mut kept, x_gradient, weight_gradient, accumulate);
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
