//! Two-dimensional convolution, channels last, with bias and activation in the same pass.
//!
//! Forward reads windows in place (see [`super::patches`]), so nothing is unfolded; the backward pass unfolds and
//! folds in tiles that stay in the cache. Row-invariant: an image's result depends on that image only, bit for bit.

use std::borrow::Cow;

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor, WithDType};

use super::activation::{self, Activation, silu};
use super::lanes::Element;
use super::patches::{Grid, Patches};
use super::product::{Matrix, PackedWeight, multiply};
use super::storage::{self, by_type, refuse, values};

/// Values of unfolded windows that the backward pass holds at a time (256 KiB of `f32`).
const TILE_ELEMENTS: usize = 1 << 16;

/// `activation(convolution(x, weight) + bias)` with zero padding on all four sides.
///
/// Shapes: x `[N, H, W, C]`, weight `[O, kh, kw, C]`, bias `[O]`, result `[N, OH, OW, O]` with
/// `OH = (H + 2 padding - kh) / stride + 1`, rounded down, and OW alike. Errors when a shape does not fit.
pub fn conv2d(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    stride: usize,
    padding: usize,
    activation: Activation,
) -> Result<Tensor> {
    let geometry = Geometry::new(x, weight, bias, stride, padding)?;
    if !storage::is_native(x) {
        return composed(x, weight, bias, &geometry, activation);
    }
    let (x, weight, bias) = (x.contiguous()?, weight.contiguous()?, bias.contiguous()?);
    if activation.is_told_by_result() {
        x.apply_op3(&weight, &bias, Convolution { geometry, activation })
    } else {
        let convolution = Convolution { geometry, activation: Activation::Identity };
        silu(&x.apply_op3(&weight, &bias, convolution)?)
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    geometry: &Geometry,
    activation: Activation,
) -> Result<Tensor> {
    let x = x.permute((0, 3, 1, 2))?.contiguous()?;
    let weight = weight.permute((0, 3, 1, 2))?.contiguous()?;
    let y = x.conv2d(&weight, geometry.padding, geometry.stride, 1, 1)?;
    activation.composed(&y.permute((0, 2, 3, 1))?.contiguous()?.broadcast_add(bias)?)
}

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    images: usize,
    height: usize,
    width: usize,
    channels: usize,
    outputs: usize,
    kernel_height: usize,
    kernel_width: usize,
    stride: usize,
    padding: usize,
}

impl Geometry {
    fn new(x: &Tensor, weight: &Tensor, bias: &Tensor, stride: usize, padding: usize) -> Result<Self> {
        match (x.dims(), weight.dims(), bias.dims()) {
            (
                &[images, height, width, channels],
                &[outputs, kernel_height, kernel_width, weight_channels],
                &[biases],
            ) if channels == weight_channels
                && outputs == biases
                && stride > 0
                && channels * outputs * kernel_height * kernel_width > 0
                && height + 2 * padding >= kernel_height
                && width + 2 * padding >= kernel_width =>
            {
                Ok(Self {
                    images,
                    height,
                    width,
                    channels,
                    outputs,
                    kernel_height,
                    kernel_width,
                    stride,
                    padding,
                })
            }
            (x, weight, bias) => refuse(
                "conv2d",
                format!(
                    "x {x:?}, weight {weight:?}, bias {bias:?}, stride {stride}, padding {padding}: must be \
                     [N, H, W, C], [O, kh, kw, C] and [O], the kernel not larger than the padded image"
                ),
            ),
        }
    }

    fn padded_height(&self) -> usize {
        self.height + 2 * self.padding
    }

    fn padded_width(&self) -> usize {
        self.width + 2 * self.padding
    }

    /// Values of a padded image.
    fn padded_len(&self) -> usize {
        self.padded_height() * self.padded_width() * self.channels
    }

    /// Values of a window.
    fn window(&self) -> usize {
        self.kernel_height * self.kernel_width * self.channels
    }

    /// Windows of the padded images.
    fn grid(&self) -> Grid {
        let line = self.padded_width() * self.channels;
        Grid {
            image_step: self.padded_height() * line,
            line_step: self.stride * line,
            column_step: self.stride * self.channels,
            lines: (self.padded_height() - self.kernel_height) / self.stride + 1,
            columns: (self.padded_width() - self.kernel_width) / self.stride + 1,
            runs: self.kernel_height,
            run: self.kernel_width * self.channels,
            run_step: line,
        }
    }

    /// Rows of the product: one for each window.
    fn rows(&self) -> usize {
        let grid = self.grid();
        self.images * grid.lines * grid.columns
    }

    fn output_shape(&self) -> Shape {
        let grid = self.grid();
        Shape::from((self.images, grid.lines, grid.columns, self.outputs))
    }

    /// Where line `y` of image `n` begins: in the images as given, and in the padded ones.
    fn line(&self, n: usize, y: usize) -> (usize, usize) {
        let inner = (n * self.height + y) * self.width * self.channels;
        let padded = (n * self.padded_height() + y + self.padding) * self.padded_width() + self.padding;
        (inner, padded * self.channels)
    }

    /// The images with a border of zeros.
    fn pad<'a, T: WithDType>(&self, x: &'a [T]) -> Cow<'a, [T]> {
        if self.padding == 0 {
            return Cow::Borrowed(x);
        }
        let mut padded = vec![T::zero(); self.images * self.padded_len()];
        let len = self.width * self.channels;
        for n in 0..self.images {
            for y in 0..self.height {
                let (from, to) = self.line(n, y);
                padded[to..to + len].copy_from_slice(&x[from..from + len]);
            }
        }
        Cow::Owned(padded)
    }

    /// The images without their border.
    fn crop<T: WithDType>(&self, padded: Vec<T>) -> Vec<T> {
        if self.padding == 0 {
            return padded;
        }
        let len = self.width * self.channels;
        let mut cropped = Vec::with_capacity(self.images * self.height * len);
        for n in 0..self.images {
            for y in 0..self.height {
                let (_, from) = self.line(n, y);
                cropped.extend_from_slice(&padded[from..from + len]);
            }
        }
        cropped
    }
}

/// The operator; its activation's derivative follows from the result.
struct Convolution {
    geometry: Geometry,
    activation: Activation,
}

impl Convolution {
    fn forward<T: Element>(
        &self,
        [x, weight, bias]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let geometry = &self.geometry;
        let weight = storage::slice(weight.0, weight.1)?;
        let weight = PackedWeight::<T>::new(weight, geometry.outputs, geometry.window());
        let x = geometry.pad(storage::slice(x.0, x.1)?);
        let bias = storage::slice(bias.0, bias.1)?;
        let mut y = vec![T::zero(); geometry.rows() * geometry.outputs];
        weight.rows(&Patches::windows(&x, geometry.grid()), bias, self.activation, &mut y);
        Ok((T::to_cpu_storage_owned(y), geometry.output_shape()))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let outputs = self.geometry.outputs;
        let (result, gradient) = (values::<T>(result)?, values::<T>(gradient)?);
        let (before, bias_gradient) =
            activation::backward(self.activation, result.slice()?, gradient.slice()?, outputs);
        let x_gradient = if x.track_op() {
            let gradient = self.backward_images(&before, values(weight)?.slice()?);
            Some(Tensor::from_vec(gradient, x.shape(), &Device::Cpu)?)
        } else {
            None
        };
        let weight_gradient = if weight.track_op() {
            let gradient = self.backward_weight(&before, values(x)?.slice()?);
            Some(Tensor::from_vec(gradient, weight.shape(), &Device::Cpu)?)
        } else {
            None
        };
        Ok([x_gradient, weight_gradient, Some(Tensor::from_vec(bias_gradient, outputs, &Device::Cpu)?)])
    }

    /// Rows of a tile of the backward pass.
    fn tile_rows(&self) -> usize {
        (TILE_ELEMENTS / self.geometry.window()).max(16)
    }

    /// `Σ over windows: gradient of the window's outputs, by weight, added back to where the window lies`.
    fn backward_images<T: Element>(&self, before: &[T], weight: &[T]) -> Vec<T> {
        let (outputs, window) = (self.geometry.outputs, self.geometry.window());
        let weight = Matrix::new(weight, outputs, window);
        let mut padded = vec![T::zero(); self.geometry.images * self.geometry.padded_len()];
        let mut scratch = vec![T::zero(); self.tile_rows().min(self.geometry.rows()) * window];
        for (index, before) in before.chunks(self.tile_rows() * outputs).enumerate() {
            let rows = before.len() / outputs;
            let windows = &mut scratch[..rows * window];
            multiply(windows, Matrix::new(before, rows, outputs), weight, false);
            self.geometry.grid().fold(index * self.tile_rows(), windows, &mut padded);
        }
        self.geometry.crop(padded)
    }

    /// `Σ over windows: gradient of the window's outputs times the window`.
    fn backward_weight<T: Element>(&self, before: &[T], x: &[T]) -> Vec<T> {
        let (outputs, window) = (self.geometry.outputs, self.geometry.window());
        let padded = self.geometry.pad(x);
        let patches = Patches::windows(&padded, self.geometry.grid());
        let mut sum = vec![T::zero(); outputs * window];
        let mut scratch = vec![T::zero(); self.tile_rows().min(self.geometry.rows()) * window];
        for (index, before) in before.chunks(self.tile_rows() * outputs).enumerate() {
            let rows = before.len() / outputs;
            let windows = &mut scratch[..rows * window];
            patches.unfold(index * self.tile_rows(), windows);
            let before = Matrix::new(before, rows, outputs).transposed();
            multiply(&mut sum, before, Matrix::new(windows, rows, window), index > 0);
        }
        sum
    }
}

impl CustomOp3 for Convolution {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(x, x_layout), (weight, weight_layout), (bias, bias_layout)];
        by_type!(storage::dtype(x), T => self.forward::<T>(inputs))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let [x, weight, bias_gradient] =
            by_type!(x.dtype(), T => self.backward::<T>(x, weight, result, &gradient))?;
        Ok((x, weight, bias_gradient.filter(|_| bias.track_op())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::DType;

    /// (x, weight, stride, padding).
    const CASES: [([usize; 4], [usize; 4], usize, usize); 6] = [
        ([1, 1, 1, 1], [1, 1, 1, 1], 1, 0),
        ([2, 5, 4, 3], [2, 3, 2, 3], 1, 0),
        ([3, 6, 7, 2], [17, 3, 3, 2], 2, 1),
        ([1, 3, 3, 1], [2, 3, 3, 1], 1, 2),
        ([2, 4, 4, 5], [3, 1, 1, 5], 1, 0),
        ([2, 9, 8, 1], [4, 4, 4, 1], 3, 0),
    ];

    fn inputs(x: &[usize], weight: &[usize], dtype: DType) -> [Tensor; 3] {
        [
            pseudo_random(x, 1, dtype),
            (pseudo_random(weight, 2, dtype) * 0.5).unwrap(),
            pseudo_random(&weight[..1], 3, dtype),
        ]
    }

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for (x, weight, stride, padding) in CASES {
            let [x, weight, bias] = inputs(&x, &weight, DType::F32).map(|t| offset(&t));
            let geometry = Geometry::new(&x, &weight, &bias, stride, padding).unwrap();
            for activation in [Activation::Identity, Activation::Relu, Activation::Silu] {
                let fused = conv2d(&x, &weight, &bias, stride, padding, activation).unwrap();
                close(&fused, &composed(&x, &weight, &bias, &geometry, activation).unwrap(), 1e-5);
            }
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (x, weight, stride, padding) in CASES {
            for activation in [Activation::Relu, Activation::Silu] {
                check_gradients(&inputs(&x, &weight, DType::F64), |t| {
                    conv2d(&t[0], &t[1], &t[2], stride, padding, activation)
                });
            }
        }
    }

    #[test]
    fn gradients_over_many_tiles_agree_with_the_composed_form() {
        let [x, weight, bias] = inputs(&[40, 9, 9, 3], &[5, 5, 5, 3], DType::F32)
            .map(|t| candle_core::Var::from_tensor(&t).unwrap());
        let geometry = Geometry::new(&x, &weight, &bias, 1, 1).unwrap();
        let tile = Convolution { geometry, activation: Activation::Tanh }.tile_rows();
        assert!(geometry.rows() > 2 * tile && !geometry.rows().is_multiple_of(tile));
        let fused = conv2d(&x, &weight, &bias, 1, 1, Activation::Tanh).unwrap();
        let plain = composed(&x, &weight, &bias, &geometry, Activation::Tanh).unwrap();
        let fused = fused.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let plain = plain.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        for variable in [&x, &weight, &bias] {
            let (fused, plain) = (fused.get(variable).unwrap(), plain.get(variable).unwrap());
            close(fused, plain, 1e-4);
        }
    }

    #[test]
    fn an_image_gives_the_same_bits_in_any_batch_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let [x, weight, bias] = inputs(&[31, 10, 10, 4], &[16, 3, 3, 4], DType::F32);
        let images = |first, count| -> Vec<f32> {
            let x = x.narrow(0, first, count).unwrap();
            let y = conv2d(&x, &weight, &bias, 1, 0, Activation::Relu).unwrap();
            y.flatten_all().unwrap().to_vec1().unwrap()
        };
        let alone: Vec<Vec<f32>> = (0..31).map(|n| images(n, 1)).collect();
        for count in 1..=31 {
            assert_eq!(images(31 - count, count), alone[31 - count..].concat());
            assert_eq!(with_threads(&pool, || images(0, count)), alone[..count].concat());
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_by_name() {
        let [x, weight, bias] = inputs(&[1, 2, 2, 1], &[1, 3, 3, 1], DType::F32);
        let error = conv2d(&x, &weight, &bias, 1, 0, Activation::Relu).unwrap_err().to_string();
        assert!(error.contains("conv2d") && error.contains("[1, 3, 3, 1]"));
    }
}
