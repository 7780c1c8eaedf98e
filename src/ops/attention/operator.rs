//! Attention over a packed batch as one operator: tasks of one sequence and KV head each, forward and backward.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::super::lanes::on_this_processor;
use super::super::parallel::over_rows;
use super::super::reduce::Reduce;
use super::super::storage::{self, by_type, refuse, values};
use super::Sequence;
use super::backward::Backward;
use super::forward::Forward;
use super::tasks::over_tasks;
use super::tiles::{HeadRows, RowSlices, Sizes, Tiles, columns, pack, rows_of};
#[cfg(feature = "cuda")]
use {
    super::super::cuda::attention::{self as kernels, Plan, Saved},
    super::super::cuda::{Array, View, lock},
    candle_core::{CudaStorage, Device, backend::BackendStorage},
};

/// The operator.
pub(super) struct Attention {
    pub(super) sizes: Sizes,
    /// Those that have rows.
    pub(super) sequences: Vec<Sequence>,
    /// `ln Σ exp(score)` of each row and head, kept by forward for backward: task after task, `[rows, group]` each.
    pub(super) log_sums: OnceLock<CpuStorage>,
    /// The same on a device, with what its kernels have to do.
    #[cfg(feature = "cuda")]
    pub(super) on_device: OnceLock<(Plan, Tensor)>,
}

/// Values of q, k and v by head.
#[derive(Clone, Copy)]
struct Heads<'a, T> {
    sizes: Sizes,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
}

impl<'a, T: Reduce> Heads<'a, T> {
    /// The group of `head` in values like q, from a sequence's first row on.
    fn group(&self, values: &'a [T], sequence: &Sequence, head: usize) -> HeadRows<'a, T> {
        let width = self.sizes.group() * self.sizes.dimension;
        let stride = self.sizes.heads * self.sizes.dimension;
        HeadRows::new(&values[sequence.rows.start * stride..], stride, head, width)
    }

    fn keys(&self, head: usize) -> HeadRows<'a, T> {
        HeadRows::new(self.k, self.sizes.kv_heads * self.sizes.dimension, head, self.sizes.dimension)
    }

    fn values(&self, head: usize) -> HeadRows<'a, T> {
        HeadRows::new(self.v, self.sizes.kv_heads * self.sizes.dimension, head, self.sizes.dimension)
    }
}

/// A task of the forward pass.
struct ForwardTask<'a, T> {
    sequence: &'a Sequence,
    head: usize,
    output: Vec<&'a mut [T]>,
    log_sums: &'a mut [T],
}

/// A task of the backward pass; results nobody asked for are empty.
struct BackwardTask<'a, T> {
    sequence: &'a Sequence,
    head: usize,
    log_sums: &'a [T],
    /// One slice `[group, D]` for each row.
    q: Vec<&'a mut [T]>,
    /// One slice `[D]` for each row, of keys and values.
    kv: [Vec<&'a mut [T]>; 2],
    /// Result: gradients of the keys and values of the prefix, `[prefix, D]`.
    prefix: &'a mut [Vec<T>; 2],
}

impl Attention {
    fn cost(&self, sequence: &Sequence) -> usize {
        self.sizes.cost(sequence.prefix.len(), sequence.rows.len())
    }

    /// Sequences and heads in the order of tasks.
    fn tasks(&self) -> impl Iterator<Item = (&Sequence, usize)> {
        self.sequences.iter().flat_map(|sequence| (0..self.sizes.kv_heads).map(move |head| (sequence, head)))
    }

    fn forward<T: Reduce>(&self, inputs: [(&CpuStorage, &Layout); 3]) -> Result<(CpuStorage, Shape)> {
        let sizes = self.sizes;
        let shape = inputs[0].1.shape().clone();
        let [q, k, v] = inputs.map(|(storage, layout)| storage::slice::<T>(storage, layout));
        let heads = Heads { sizes, q: q?, k: k?, v: v? };
        let group = sizes.group();
        let mut output = vec![T::zero(); heads.q.len()];
        let mut log_sums = vec![T::zero(); heads.q.len() / sizes.dimension];
        let mut slices = RowSlices::new(&mut output, sizes.kv_heads, group * sizes.dimension);
        let mut rest = &mut log_sums[..];
        let tasks = self.tasks().map(|(sequence, head)| {
            let (log_sums, after) = std::mem::take(&mut rest).split_at_mut(sequence.rows.len() * group);
            rest = after;
            ForwardTask { sequence, head, output: slices.take(sequence.rows.clone(), head), log_sums }
        });
        over_tasks(
            tasks.collect(),
            |task| self.cost(task.sequence),
            |ForwardTask { sequence, head, output, log_sums }| {
                let packed = pack(heads.keys(head), heads.values(head), sequence);
                let pages: Vec<&[T]> = packed.chunks_exact(sizes.tile_len()).collect();
                on_this_processor(Forward {
                    sizes,
                    queries: heads.group(heads.q, sequence, head),
                    first_position: sequence.prefix.len(),
                    tiles: Tiles { pages: &pages, offset: 0, dimension: sizes.dimension },
                    output,
                    log_sums,
                });
            },
        );
        // Nobody else runs this operator: it was made for one call.
        let _ = self.log_sums.set(T::to_cpu_storage_owned(log_sums));
        Ok((T::to_cpu_storage_owned(output), shape))
    }

    fn backward<T: Reduce>(
        &self,
        inputs: [&Tensor; 3],
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let sizes = self.sizes;
        let dimension = sizes.dimension;
        let [q, k, v] = inputs.map(values::<T>);
        let (q, k, v, result, gradient) = (q?, k?, v?, values::<T>(result)?, values::<T>(gradient)?);
        let heads = Heads { sizes, q: q.slice()?, k: k.slice()?, v: v.slice()? };
        let (result, gradient) = (result.slice()?, gradient.slice()?);
        let Some(log_sums) = self.log_sums.get() else {
            return refuse("attention", "its forward pass has not run");
        };
        let mut log_sums = T::cpu_storage_as_slice(log_sums)?;

        let tracked = inputs.map(Tensor::track_op);
        let [mut q_output, mut k_output, mut v_output] = inputs.map(|input| {
            let count = if input.track_op() { input.elem_count() } else { 0 };
            vec![T::zero(); count]
        });
        let mut prefixes: Vec<[Vec<T>; 2]> = self.tasks().map(|_| [Vec::new(), Vec::new()]).collect();
        let mut q_slices = RowSlices::new(&mut q_output, sizes.kv_heads, sizes.group() * dimension);
        let mut k_slices = RowSlices::new(&mut k_output, sizes.kv_heads, dimension);
        let mut v_slices = RowSlices::new(&mut v_output, sizes.kv_heads, dimension);
        let tasks = self.tasks().zip(&mut prefixes).map(|((sequence, head), prefix)| {
            let (own, after) = log_sums.split_at(sequence.rows.len() * sizes.group());
            log_sums = after;
            let rows = &sequence.rows;
            BackwardTask {
                sequence,
                head,
                log_sums: own,
                q: q_slices.take(rows.clone(), head),
                kv: [k_slices.take(rows.clone(), head), v_slices.take(rows.clone(), head)],
                prefix,
            }
        });
        over_tasks(
            tasks.collect(),
            |task| self.cost(task.sequence),
            |task| {
                let BackwardTask { sequence, head, log_sums, q, kv, prefix } = task;
                let positions = sequence.prefix.len() + sequence.rows.len();
                let mut kv_gradients =
                    [1, 2].map(|i| vec![T::zero(); if tracked[i] { positions * dimension } else { 0 }]);
                let [key_gradient, value_gradient] = &mut kv_gradients;
                on_this_processor(Backward {
                    sizes,
                    queries: heads.group(heads.q, sequence, head),
                    result: heads.group(result, sequence, head),
                    gradient: heads.group(gradient, sequence, head),
                    log_sums,
                    rows: sequence.rows.len(),
                    first_position: sequence.prefix.len(),
                    key_columns: &columns(heads.keys(head), sequence),
                    value_columns: &columns(heads.values(head), sequence),
                    keys: &rows_of(heads.keys(head), sequence),
                    query_gradient: q,
                    key_gradient,
                    value_gradient,
                });
                for ((mut gradient, own), prefix) in kv_gradients.into_iter().zip(kv).zip(prefix) {
                    let from = gradient.chunks_exact(dimension).skip(sequence.prefix.len());
                    for (to, from) in own.into_iter().zip(from) {
                        to.copy_from_slice(from);
                    }
                    gradient.truncate(sequence.prefix.len() * dimension);
                    *prefix = gradient;
                }
            },
        );
        self.add_prefixes(&mut k_output, &prefixes, 0);
        self.add_prefixes(&mut v_output, &prefixes, 1);
        let tensor = |input: &Tensor, output: Vec<T>| {
            input.track_op().then(|| Tensor::from_vec(output, input.shape(), input.device())).transpose()
        };
        Ok([tensor(inputs[0], q_output)?, tensor(inputs[1], k_output)?, tensor(inputs[2], v_output)?])
    }

    /// Adds the gradients of shared prefixes, `[prefix, D]` for each task, to those of the rows, in order of sequences.
    fn add_prefixes<T: Reduce>(&self, output: &mut [T], prefixes: &[[Vec<T>; 2]], which: usize) {
        let dimension = self.sizes.dimension;
        let width = self.sizes.kv_heads * dimension;
        let cost = prefixes.iter().map(|prefix| prefix[which].len()).sum();
        over_rows(output, width, cost, |first, output| {
            for ((sequence, head), gradient) in self.tasks().zip(prefixes) {
                let from = gradient[which].chunks_exact(dimension);
                for (row, from) in sequence.prefix.clone().zip(from) {
                    let Some(start) = row.checked_sub(first).map(|row| row * width + head * dimension) else {
                        continue;
                    };
                    if let Some(to) = output.get_mut(start..start + dimension) {
                        for (to, &from) in to.iter_mut().zip(from) {
                            *to += from;
                        }
                    }
                }
            }
        });
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(q), T => self.forward::<T>([(q, q_layout), (k, k_layout), (v, v_layout)]))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        q: &CudaStorage,
        q_layout: &Layout,
        k: &CudaStorage,
        k_layout: &Layout,
        v: &CudaStorage,
        v_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let device = Device::Cuda(q.device().clone());
        let sequences: Vec<_> =
            self.sequences.iter().map(|sequence| (sequence.prefix.clone(), sequence.rows.clone())).collect();
        let plan = Plan::new(&sequences, self.sizes.group(), &device)?;
        let (q, k, v) = (View::cuda(q, q_layout), View::cuda(k, k_layout), View::cuda(v, v_layout));
        let (result, log_sums) = kernels::forward(&q, &k, &v, &plan, self.sizes.scale)?;
        // Nobody else runs this operator: it was made for one call.
        let _ = self.on_device.set((plan, log_sums.into_tensor()));
        result.into_cuda()
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(q) {
            let Some((plan, log_sums)) = self.on_device.get() else {
                return refuse("attention", "its forward pass has not run");
            };
            let inputs = [q, k, v];
            let locked = (inputs.map(lock), lock(result), lock(log_sums), lock(&gradient));
            let [q, k, v] = &locked.0;
            let saved = Saved { out: locked.1.view()?, log_sums: locked.2.view()? };
            let (q, k, v, gradient) = (q.view()?, k.view()?, v.view()?, locked.3.view()?);
            let gradients = kernels::backward(&q, &k, &v, &saved, &gradient, plan, self.sizes.scale)?
                .map(Array::into_tensor);
            let [q, k, v] = gradients;
            let wanted = |gradient: Tensor, of: &Tensor| of.track_op().then_some(gradient);
            return Ok((wanted(q, inputs[0]), wanted(k, inputs[1]), wanted(v, inputs[2])));
        }
        let [q, k, v] = by_type!(q.dtype(), T => self.backward::<T>([q, k, v], result, &gradient))?;
        Ok((q, k, v))
    }
}
