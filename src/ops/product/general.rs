//! The general matrix product, for gradients: the tuned kernels of the `gemm` crate under the thread policy of
//! [`super::super::parallel`]. It gives the same result for the same shape, which is all that gradients need.

use super::super::activation::Activation;
use super::super::lanes::Element;
use super::super::parallel;
use super::super::patches::Patches;
use super::forward::Weight;

/// Sums of no more terms than this are left to the forward product.
const FEW_OUTPUTS: usize = 16;

/// A row-major matrix, possibly seen transposed.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Values `[rows, columns]`.
    pub(in crate::ops) fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a value for each place");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same values with rows and columns exchanged.
    pub(in crate::ops) fn transposed(self) -> Self {
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
pub(in crate::ops) fn multiply<T: Element>(output: &mut [T], a: Matrix<T>, b: Matrix<T>, accumulate: bool) {
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

/// The gradient of the inputs, `gradient · weight`: `[N, K]` from the gradient `[N, O]` before the activation and the
/// weight `[O, K]`.
pub(in crate::ops) fn inputs_gradient<T: Element>(
    gradient: &[T],
    weight: &[T],
    [rows, outputs, inputs]: [usize; 3],
) -> Vec<T> {
    let mut result = parallel::zeros(rows * inputs);
    if outputs <= FEW_OUTPUTS && outputs > 0 {
        // Short sums: the general product would spend its time on laying out.
        let mut turned = vec![T::zero(); weight.len()];
        for (output, weight) in weight.chunks_exact(inputs.max(1)).enumerate() {
            for (input, &value) in weight.iter().enumerate() {
                turned[input * outputs + output] = value;
            }
        }
        let (weight, gradient) =
            (Weight::plain(&turned, inputs, outputs), Patches::matrix(gradient, outputs));
        super::rows(weight, &gradient, None, Activation::Identity, &mut result);
    } else {
        let gradient = Matrix::new(gradient, rows, outputs);
        multiply(&mut result, gradient, Matrix::new(weight, outputs, inputs), false);
    }
    result
}
