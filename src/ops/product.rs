//! Matrix products: one that treats every row alike, and the general one of the `gemm` crate for gradients.
//!
//! [`PackedWeight::rows`] is the forward product. Each output is one chain of multiply-adds over the inputs in order
//! of their index, whatever the number of rows, their position, the thread and the vector width, so a row's result
//! depends on that row only, bit for bit. (A general product cannot promise this: it changes its path with the shape;
//! `gemm` sums in another order for a few rows or a few outputs.) Bias and activation are applied in registers.
//!
//! Gradients need no such promise, only the same result for the same shape; [`multiply`] gives them the tuned
//! kernels of `gemm` under the thread policy of [`super::parallel`].

use pulp::{Simd, WithSimd};

use super::activation::Activation;
use super::lanes::{Element, Lanes, on_this_processor};
use super::parallel;
use super::patches::Patches;

/// Registers of outputs in a panel.
const PANEL_REGISTERS: usize = 2;

/// Inputs that a block of rows may span while all panels pass over it (a quarter of a usual L2 cache of `f32`).
const BLOCK_ELEMENTS: usize = 1 << 16;

/// A weight `[O, K]` laid out for [`Self::rows`]: panels of a few registers of outputs, each `[K, panel width]`,
/// outputs beyond O filled with zeros.
pub(super) struct PackedWeight<T> {
    panels: Vec<T>,
    panel_width: usize,
    outputs: usize,
    inputs: usize,
}

struct PanelWidth<T>(std::marker::PhantomData<T>);

impl<T: Element> WithSimd for PanelWidth<T> {
    type Output = usize;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        PANEL_REGISTERS * Lanes::<S, T>::width()
    }
}

impl<T: Element> PackedWeight<T> {
    /// Lays out a row-major `[outputs, inputs]` weight.
    pub(super) fn new(weight: &[T], outputs: usize, inputs: usize) -> Self {
        let panel_width = on_this_processor(PanelWidth::<T>(std::marker::PhantomData));
        let mut panels = vec![T::zero(); outputs.div_ceil(panel_width) * panel_width * inputs];
        if inputs > 0 {
            for (panel, weight) in
                panels.chunks_exact_mut(panel_width * inputs).zip(weight.chunks(panel_width * inputs))
            {
                pack_panel(panel, weight, panel_width, inputs);
            }
        }
        Self { panels, panel_width, outputs, inputs }
    }

    /// K.
    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    /// `output[N, O] = activation(x[N, K] · weightᵀ + bias[O])`, shared over the threads of this thread's policy.
    pub(super) fn rows(&self, x: &Patches<T>, bias: &[T], activation: Activation, output: &mut [T]) {
        assert_eq!(bias.len(), self.outputs, "one bias for each output");
        assert_eq!(x.row_len(), self.inputs, "rows as long as the weight's");
        let cost = output.len() * self.inputs;
        parallel::over_rows(output, self.outputs, cost, |first, output| {
            on_this_processor(Rows { weight: self, x, first, bias, activation, output });
        });
    }
}

/// Transposes up to `panel_width` rows of a weight.
fn pack_panel<T: Copy>(panel: &mut [T], weight: &[T], panel_width: usize, inputs: usize) {
    for (column, row) in weight.chunks_exact(inputs).enumerate() {
        for (to, &value) in panel[column..].iter_mut().step_by(panel_width).zip(row) {
            *to = value;
        }
    }
}

struct Rows<'a, T> {
    weight: &'a PackedWeight<T>,
    x: &'a Patches<'a, T>,
    /// Index in `x` of the first row.
    first: usize,
    bias: &'a [T],
    activation: Activation,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weight, x, bias, .. } = self;
        let outputs = weight.outputs;
        if outputs == 0 {
            return;
        }
        // The sums of a tile fill the registers but for a weight panel and one input.
        let tall = if S::REGISTER_COUNT >= 32 { 12 } else { 6 };
        let block = (BLOCK_ELEMENTS / weight.inputs.max(1) / tall).max(1) * tall;
        let mut starts = Vec::new();
        for (index, output) in self.output.chunks_mut(block * outputs).enumerate() {
            x.grid().starts(self.first + index * block, output.len() / outputs, &mut starts);
            for (panel, bias) in bias.chunks(weight.panel_width).enumerate() {
                let size = weight.panel_width * weight.inputs;
                let pass = Panel {
                    simd,
                    weight: &weight.panels[panel * size..][..size],
                    x,
                    bias,
                    column: panel * weight.panel_width,
                    outputs,
                    activation: self.activation,
                };
                if bias.len() > Lanes::<S, T>::width() {
                    pass.run::<2>(tall, &starts, output);
                } else {
                    pass.run::<1>(tall, &starts, output);
                }
            }
        }
    }
}

/// One panel of outputs on its way over a block of rows.
struct Panel<'a, S, T> {
    simd: S,
    /// `[inputs, panel width]`.
    weight: &'a [T],
    x: &'a Patches<'a, T>,
    /// The biases of the panel's real outputs.
    bias: &'a [T],
    /// Index of the panel's first output.
    column: usize,
    outputs: usize,
    activation: Activation,
}

impl<S: Simd, T: Element> Panel<'_, S, T> {
    /// Covers the rows that begin at `starts` with tiles, tall ones first.
    #[inline(always)]
    fn run<const REGISTERS: usize>(&self, tall: usize, mut starts: &[usize], output: &mut [T]) {
        let mut row = 0;
        while !starts.is_empty() {
            let output = &mut output[row * self.outputs + self.column..];
            let done = if starts.len() >= 12 && tall == 12 {
                self.tile::<12, REGISTERS>(starts, output)
            } else if starts.len() >= 6 {
                self.tile::<6, REGISTERS>(starts, output)
            } else if starts.len() >= 3 {
                self.tile::<3, REGISTERS>(starts, output)
            } else {
                self.tile::<1, REGISTERS>(starts, output)
            };
            row += done;
            starts = &starts[done..];
        }
    }

    /// The first `ROWS` rows of one panel; gives back `ROWS`.
    #[inline(always)]
    fn tile<const ROWS: usize, const REGISTERS: usize>(&self, starts: &[usize], output: &mut [T]) -> usize {
        let simd = self.simd;
        let width = Lanes::<S, T>::width();
        let mut sums = [[Lanes::splat(simd, T::zero()); REGISTERS]; ROWS];
        let mut weights = self.weight.chunks_exact(PANEL_REGISTERS * width);
        for index in 0..self.x.grid().runs {
            let mut runs: [&[T]; ROWS] = [&[]; ROWS];
            for (run, &start) in runs.iter_mut().zip(starts) {
                *run = self.x.run(start, index);
            }
            for (k, weight) in (0..self.x.grid().run).zip(&mut weights) {
                let mut registers = [Lanes::splat(simd, T::zero()); REGISTERS];
                for (j, register) in registers.iter_mut().enumerate() {
                    *register = Lanes::load(simd, &weight[j * width..][..width]);
                }
                for (run, sums) in runs.iter().zip(&mut sums) {
                    let value = Lanes::splat(simd, run[k]);
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
            let output = &mut output[i * self.outputs..][..self.bias.len()];
            let chunks = output.chunks_mut(width).zip(self.bias.chunks(width));
            for (&sum, (output, bias)) in sums.iter().zip(chunks) {
                self.activation.apply(sum + Lanes::load(simd, bias)).store(output);
            }
        }
        ROWS
    }
}

/// A row-major matrix, possibly seen transposed.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Values `[rows, columns]`.
    pub(super) fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a value for each place");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same values with rows and columns exchanged.
    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `output = a · b`, or `output += a · b`, row-major, on the threads of this thread's policy.
pub(super) fn multiply<T: Element>(output: &mut [T], a: Matrix<T>, b: Matrix<T>, accumulate: bool) {
    assert_eq!(a.columns, b.rows, "inner sizes agree");
    assert_eq!(output.len(), a.rows * b.columns, "an output for each pair");
    debug_assert!(a.values.len() == a.rows * a.columns && b.values.len() == b.rows * b.columns);
    // SAFETY: `Matrix::new` made sure that every (row, column) of a and b lies inside its slice, the assertions above
    // that output, row-major, has room for every result; `Element` is f32 or f64, which gemm accepts.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            output.as_mut_ptr(),
            1,
            b.columns.cast_signed(),
            accumulate,
            a.values.as_ptr(),
            a.column_stride.cast_signed(),
            a.row_stride.cast_signed(),
            b.values.as_ptr(),
            b.column_stride.cast_signed(),
            b.row_stride.cast_signed(),
            T::one(),
            T::one(),
            false,
            false,
            false,
            parallel::parallelism(),
        );
    }
}
