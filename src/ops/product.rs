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
    pub(super) fn rows(&self, x: &[T], bias: &[T], activation: Activation, output: &mut [T]) {
        assert_eq!(bias.len(), self.outputs, "one bias for each output");
        assert_eq!(x.len() * self.outputs, output.len() * self.inputs, "as many input as output rows");
        let cost = output.len() * self.inputs;
        parallel::over_rows(output, self.outputs, cost, |first, output| {
            let x = &x[first * self.inputs..][..output.len() / self.outputs * self.inputs];
            on_this_processor(Rows { weight: self, x, bias, activation, output });
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
    x: &'a [T],
    bias: &'a [T],
    activation: Activation,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let inputs = self.weight.inputs;
        let outputs = self.weight.outputs;
        let rows = self.output.len() / outputs;
        // The sums of a tile fill the registers but for a weight panel and one input.
        let tall = if S::REGISTER_COUNT >= 32 { 12 } else { 6 };
        let block = (BLOCK_ELEMENTS / inputs.max(1) / tall).max(1) * tall;
        let mut output = self.output;
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let (here, rest) = output.split_at_mut(count * outputs);
            output = rest;
            let x = &self.x[first * inputs..][..count * inputs];
            for panel in 0..outputs.div_ceil(self.weight.panel_width) {
                let column = panel * self.weight.panel_width;
                let size = self.weight.panel_width * inputs;
                let pass = Panel {
                    simd,
                    weight: &self.weight.panels[panel * size..][..size],
                    inputs,
                    bias: &self.bias[column..outputs.min(column + self.weight.panel_width)],
                    column,
                    outputs,
                    activation: self.activation,
                };
                if pass.bias.len() > Lanes::<S, T>::width() {
                    pass.run::<2>(tall, x, here, count);
                } else {
                    pass.run::<1>(tall, x, here, count);
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
    inputs: usize,
    /// The biases of the panel's real outputs.
    bias: &'a [T],
    /// Index of the panel's first output.
    column: usize,
    outputs: usize,
    activation: Activation,
}

impl<S: Simd, T: Element> Panel<'_, S, T> {
    #[inline(always)]
    fn run<const REGISTERS: usize>(&self, tall: usize, x: &[T], output: &mut [T], count: usize) {
        let mut row = 0;
        while row < count {
            let left = count - row;
            let x = &x[row * self.inputs..];
            let output = &mut output[row * self.outputs + self.column..];
            row += if left >= 12 && tall == 12 {
                self.tile::<12, REGISTERS>(x, output)
            } else if left >= 6 {
                self.tile::<6, REGISTERS>(x, output)
            } else if left >= 3 {
                self.tile::<3, REGISTERS>(x, output)
            } else {
                self.tile::<1, REGISTERS>(x, output)
            };
        }
    }

    #[inline(always)]
    fn tile<const ROWS: usize, const REGISTERS: usize>(&self, x: &[T], output: &mut [T]) -> usize {
        let simd = self.simd;
        let width = Lanes::<S, T>::width();
        let mut rows: [&[T]; ROWS] = [&[]; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &x[i * self.inputs..][..self.inputs];
        }
        let mut sums = [[Lanes::splat(simd, T::zero()); REGISTERS]; ROWS];
        let weights = self.weight.chunks_exact(PANEL_REGISTERS * width);
        for (k, weight) in (0..self.inputs).zip(weights) {
            let mut registers = [Lanes::splat(simd, T::zero()); REGISTERS];
            for (j, register) in registers.iter_mut().enumerate() {
                *register = Lanes::load(simd, &weight[j * width..][..width]);
            }
            for (row, sums) in rows.iter().zip(&mut sums) {
                let value = Lanes::splat(simd, row[k]);
                for (sum, register) in sums.iter_mut().zip(registers) {
                    *sum = value.multiply_add(register, *sum);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
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
            b.columns as isize,
            accumulate,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            parallel::parallelism(),
        );
    }
}
