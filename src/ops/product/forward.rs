//! The forward product, `output = activation(x · weightᵀ + bias)`.
//!
//! A group of panels that stays in the second-level cache is laid out, then tiles of rows, whose inputs stay in the
//! first-level cache, pass over it; the sums of a tile fill the registers. Threads share the panels, so that each
//! lays out its own, or the rows where there are too few panels.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::super::activation::Activation;
use super::super::lanes::{Element, Lanes, on_this_processor};
use super::super::memory::{AHEAD, READING, prefetch};
use super::super::parallel::{self, Output};
use super::super::patches::Patches;
use super::super::prepared::PreparedWeight;
use super::panels::{PANEL_REGISTERS, PackedWeight, pack, panel_width};

/// Weights in a group of panels (half a usual second-level cache of `f32`).
const GROUP_ELEMENTS: usize = 1 << 17;

/// Weights with no more outputs than this have the rows as lanes.
const FEW_OUTPUTS: usize = 4;

/// Rows whose places are worked out at a time, a multiple of the tallest tile.
const ROWS_AT_A_TIME: usize = 192;

/// A weight `[O, K]` of the forward product.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Weight<'a, T> {
    /// Row-major; laid out on the way.
    Plain {
        /// `[outputs, inputs]`.
        values: &'a [T],
        /// O.
        outputs: usize,
        /// K.
        inputs: usize,
    },
    /// Laid out before.
    Packed(&'a PackedWeight<T>),
}

impl<'a, T: Element> Weight<'a, T> {
    /// A row-major `[outputs, inputs]` weight.
    pub(in crate::ops) fn plain(values: &'a [T], outputs: usize, inputs: usize) -> Self {
        assert_eq!(values.len(), outputs * inputs, "a value for each place");
        Self::Plain { values, outputs, inputs }
    }

    /// A row-major weight, or its laid out form where there is one of this element.
    pub(in crate::ops) fn prepared_or_plain(
        prepared: Option<&'a PreparedWeight>,
        values: &'a [T],
        outputs: usize,
        inputs: usize,
    ) -> Self {
        match prepared.and_then(T::prepared) {
            Some(packed) if outputs > FEW_OUTPUTS => {
                assert_eq!((packed.outputs, packed.inputs), (outputs, inputs), "the same weight, laid out");
                Self::Packed(packed)
            }
            _ => Self::plain(values, outputs, inputs),
        }
    }

    fn shape(&self) -> (usize, usize) {
        match *self {
            Self::Plain { outputs, inputs, .. } => (outputs, inputs),
            Self::Packed(weight) => (weight.outputs, weight.inputs),
        }
    }

    /// Some panels, laid out in `scratch` unless they are already.
    fn panels<'b>(&'b self, panels: Range<usize>, width: usize, scratch: &'b mut Vec<T>) -> &'b [T] {
        let (outputs, inputs) = self.shape();
        let place = panels.start * width * inputs..panels.end * width * inputs;
        match self {
            Self::Packed(weight) => &weight.panels[place],
            Self::Plain { values, .. } => {
                scratch.resize(place.len(), T::zero());
                let end = (panels.end * width).min(outputs);
                pack(&values[panels.start * width * inputs..end * inputs], inputs, width, scratch);
                scratch
            }
        }
    }
}

/// `output[N, O] = activation(x[N, K] · weightᵀ + bias[O])`, shared over the threads of this thread's policy.
pub(in crate::ops) fn rows<T: Element>(
    weight: Weight<T>,
    x: &Patches<T>,
    bias: Option<&[T]>,
    activation: Activation,
    output: &mut [T],
) {
    let (outputs, inputs) = weight.shape();
    assert!(bias.is_none_or(|bias| bias.len() == outputs), "one bias for each output");
    assert_eq!(x.row_len(), inputs, "rows as long as the weight's");
    if outputs == 0 || output.is_empty() {
        return;
    }
    if let Weight::Plain { values, .. } = weight
        && outputs <= FEW_OUTPUTS
        && inputs > 0
        && let Some(x) = x.as_matrix(output.len() / outputs)
    {
        few_outputs(values, x, inputs, bias, activation, output);
        return;
    }
    pass(weight, x, bias, activation, output);
}

/// [`rows`] with the outputs as lanes.
fn pass<T: Element>(
    weight: Weight<T>,
    x: &Patches<T>,
    bias: Option<&[T]>,
    activation: Activation,
    output: &mut [T],
) {
    let (outputs, inputs) = weight.shape();
    let width = panel_width::<T>();
    let (all_rows, panels) = (output.len() / outputs, outputs.div_ceil(width));
    let threads = parallel::worthwhile((output.len() * inputs).max(READING * outputs * inputs));
    let output = Output::new(output, outputs);
    let work = |rows, panels| {
        on_this_processor(Pass { weight, x, bias, activation, width, rows, panels, output: &output });
    };
    if panels >= 4 * threads || panels.is_multiple_of(threads) {
        parallel::over_parts(panels, threads, |panels| work(0..all_rows, panels));
    } else {
        parallel::over_parts(all_rows, threads, |rows| work(rows, 0..panels));
    }
}

/// [`rows`] where the outputs would leave most lanes empty: the rows become the lanes. The sums are the same chains.
fn few_outputs<T: Element>(
    weight: &[T],
    x: &[T],
    inputs: usize,
    bias: Option<&[T]>,
    activation: Activation,
    output: &mut [T],
) {
    let (all_rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    let mut turned = vec![T::zero(); output.len()];
    let (rows_as_weight, weight_as_rows) =
        (Weight::plain(x, all_rows, inputs), Patches::matrix(weight, inputs));
    pass(rows_as_weight, &weight_as_rows, None, Activation::Identity, &mut turned);
    for (row, output) in output.chunks_exact_mut(outputs).enumerate() {
        for (output, turned) in output.iter_mut().zip(turned.chunks_exact(all_rows)) {
            *output = turned[row];
        }
    }
    let output = Output::new(output, outputs);
    on_this_processor(Finish { bias, activation, rows: 0..all_rows, columns: 0..outputs, output: &output });
}

/// Some rows against some panels, on one thread.
struct Pass<'a, T> {
    weight: Weight<'a, T>,
    x: &'a Patches<'a, T>,
    bias: Option<&'a [T]>,
    activation: Activation,
    /// Outputs in a panel.
    width: usize,
    rows: Range<usize>,
    panels: Range<usize>,
    output: &'a Output<'a, T>,
}

impl<T: Element> WithSimd for Pass<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (outputs, inputs) = self.weight.shape();
        let size = self.width * inputs;
        let group = (GROUP_ELEMENTS / size.max(1)).clamp(1, self.panels.len());
        let (mut scratch, mut starts) = (Vec::new(), Vec::new());
        for first in self.panels.clone().step_by(group) {
            let group = first..(first + group).min(self.panels.end);
            let panels = self.weight.panels(group.clone(), self.width, &mut scratch);
            for first in self.rows.clone().step_by(ROWS_AT_A_TIME) {
                let count = ROWS_AT_A_TIME.min(self.rows.end - first);
                self.x.grid().starts(first, count, &mut starts);
                let mut done = 0;
                while done < count {
                    let tall = tile_height::<S>(count - done, outputs <= Lanes::<S, T>::width());
                    for (index, panel) in group.clone().enumerate() {
                        let column = panel * self.width;
                        let tile = Tile {
                            simd,
                            weight: &panels[index * size..][..size],
                            x: self.x,
                            starts: &starts[done..done + tall],
                            row: first + done,
                            columns: column..outputs.min(column + self.width),
                            output: self.output,
                        };
                        tile.run_tall();
                    }
                    done += tall;
                }
                let finish = Finish {
                    bias: self.bias,
                    activation: self.activation,
                    rows: first..first + count,
                    columns: group.start * self.width..outputs.min(group.end * self.width),
                    output: self.output,
                };
                finish.with_simd(simd);
            }
        }
    }
}

/// Adds the bias and applies the activation to sums that the cache still holds.
struct Finish<'a, T> {
    bias: Option<&'a [T]>,
    activation: Activation,
    rows: Range<usize>,
    columns: Range<usize>,
    output: &'a Output<'a, T>,
}

impl<T: Element> WithSimd for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // One loop for each activation, so that none asks for it in its midst.
        match self.activation {
            Activation::Identity if self.bias.is_none() => {}
            Activation::Identity => self.run(simd, Activation::Identity),
            Activation::Relu => self.run(simd, Activation::Relu),
            Activation::Tanh => self.run(simd, Activation::Tanh),
            Activation::Silu => self.run(simd, Activation::Silu),
            Activation::Gelu => self.run(simd, Activation::Gelu),
        }
    }
}

impl<T: Element> Finish<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, activation: Activation) {
        let width = Lanes::<S, T>::width();
        for row in self.rows.clone() {
            // SAFETY: threads work on different rows or different panels, so nobody else has this piece.
            let output = unsafe { self.output.piece(row, self.columns.clone()) };
            match self.bias {
                Some(bias) => {
                    let bias = &bias[self.columns.clone()];
                    for (output, bias) in output.chunks_mut(width).zip(bias.chunks(width)) {
                        let before = Lanes::load(simd, output) + Lanes::load(simd, bias);
                        activation.apply(before).store(output);
                    }
                }
                None => {
                    for output in output.chunks_mut(width) {
                        activation.apply(Lanes::load(simd, output)).store(output);
                    }
                }
            }
        }
    }
}

/// Rows of the next tile when so many are left: the sums of the tallest fill the registers but for a panel's weights
/// and one input, and what is left is spread over tiles of about one height. `narrow`: one register holds all outputs.
#[inline(always)]
fn tile_height<S: Simd>(left: usize, narrow: bool) -> usize {
    let tallest = match (S::REGISTER_COUNT >= 32, narrow) {
        (true, true) if left >= 24 => return 24,
        (true, _) => 12,
        (false, _) => 6,
    };
    left.div_ceil(left.div_ceil(tallest))
}

/// A few rows against one panel.
struct Tile<'a, S, T> {
    simd: S,
    /// `[inputs, panel width]`.
    weight: &'a [T],
    x: &'a Patches<'a, T>,
    /// Where the rows begin.
    starts: &'a [usize],
    /// Index of the first row.
    row: usize,
    /// The panel's outputs that exist.
    columns: Range<usize>,
    output: &'a Output<'a, T>,
}

impl<S: Simd, T: Element> Tile<'_, S, T> {
    #[inline(always)]
    fn run_tall(&self) {
        match self.starts.len() {
            24 if S::REGISTER_COUNT >= 32 => self.run::<24, 1>(),
            // Taller than the registers of narrow processors allow; never chosen there.
            12 if S::REGISTER_COUNT >= 32 => self.run_wide::<12>(),
            11 if S::REGISTER_COUNT >= 32 => self.run_wide::<11>(),
            10 if S::REGISTER_COUNT >= 32 => self.run_wide::<10>(),
            9 if S::REGISTER_COUNT >= 32 => self.run_wide::<9>(),
            8 if S::REGISTER_COUNT >= 32 => self.run_wide::<8>(),
            7 if S::REGISTER_COUNT >= 32 => self.run_wide::<7>(),
            6 => self.run_wide::<6>(),
            5 => self.run_wide::<5>(),
            4 => self.run_wide::<4>(),
            3 => self.run_wide::<3>(),
            2 => self.run_wide::<2>(),
            _ => self.run_wide::<1>(),
        }
    }

    #[inline(always)]
    fn run_wide<const ROWS: usize>(&self) {
        if self.columns.len() > Lanes::<S, T>::width() {
            self.run::<ROWS, 2>();
        } else {
            self.run::<ROWS, 1>();
        }
    }

    #[inline(always)]
    fn run<const ROWS: usize, const REGISTERS: usize>(&self) {
        let simd = self.simd;
        let width = Lanes::<S, T>::width();
        let mut sums = [[Lanes::splat(simd, T::zero()); REGISTERS]; ROWS];
        let mut weights = self.weight.chunks_exact(PANEL_REGISTERS * width);
        for index in 0..self.x.grid().runs {
            let runs: [&[T]; ROWS] = std::array::from_fn(|row| self.x.run(self.starts[row], index));
            for (k, weight) in (0..self.x.grid().run).zip(&mut weights) {
                let mut registers = [Lanes::splat(simd, T::zero()); REGISTERS];
                for (j, register) in registers.iter_mut().enumerate() {
                    *register = Lanes::load(simd, &weight[j * width..][..width]);
                    prefetch(weight.as_ptr().wrapping_add(j * width).wrapping_byte_add(AHEAD));
                }
                for (run, sums) in runs.iter().zip(&mut sums) {
                    // SAFETY: `Patches::run` gives `grid().run` values, and k is below that. Checked access would
                    // need a length beside each of the pointers, for which there are no registers.
                    let value = Lanes::splat(simd, unsafe { *run.get_unchecked(k) });
                    for (sum, register) in sums.iter_mut().zip(registers) {
                        *sum = value.multiply_add(register, *sum);
                    }
                }
            }
        }
        // The loop above keeps the sums in registers because nothing but unrolled loops indexes them; the loop below
        // is too long to be unrolled, so it works on a copy.
        let mut settled = [[Lanes::splat(simd, T::zero()); REGISTERS]; ROWS];
        for (settled, sums) in settled.iter_mut().zip(&sums) {
            for (settled, &sum) in settled.iter_mut().zip(sums) {
                *settled = sum;
            }
        }
        for (i, sums) in settled.iter().enumerate() {
            // SAFETY: threads work on different rows or different panels, so nobody else has this piece.
            let output = unsafe { self.output.piece(self.row + i, self.columns.clone()) };
            if output.len() == REGISTERS * width {
                for (&sum, output) in sums.iter().zip(output.chunks_exact_mut(width)) {
                    sum.store(output);
                }
            } else {
                for (&sum, output) in sums.iter().zip(output.chunks_mut(width)) {
                    sum.store(output);
                }
            }
        }
    }
}
