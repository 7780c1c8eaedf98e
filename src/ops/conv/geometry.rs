//! The sizes of a convolution, and where its windows lie.

use candle_core::{Result, Shape, Tensor};

use super::super::patches::Grid;
use super::super::storage::refuse;
use super::border::Border;

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) images: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) outputs: usize,
    pub(super) kernel_height: usize,
    pub(super) kernel_width: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
}

impl Geometry {
    pub(super) fn new(
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        stride: usize,
        padding: usize,
    ) -> Result<Self> {
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

    pub(super) fn padded_height(&self) -> usize {
        self.height + 2 * self.padding
    }

    pub(super) fn padded_width(&self) -> usize {
        self.width + 2 * self.padding
    }

    /// Values of a padded image.
    pub(super) fn padded_len(&self) -> usize {
        self.padded_height() * self.padded_width() * self.channels
    }

    /// Values of a window.
    pub(super) fn window(&self) -> usize {
        self.kernel_height * self.kernel_width * self.channels
    }

    /// Windows of the padded images.
    pub(super) fn grid(&self) -> Grid {
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
    pub(super) fn rows(&self) -> usize {
        let grid = self.grid();
        self.images * grid.lines * grid.columns
    }

    pub(super) fn output_shape(&self) -> Shape {
        let grid = self.grid();
        Shape::from((self.images, grid.lines, grid.columns, self.outputs))
    }

    /// The border of the padded images.
    pub(super) fn border(&self) -> Border {
        Border {
            height: self.height,
            width: self.width,
            channels: self.channels,
            vertical: self.padding,
            horizontal: self.padding,
        }
    }
}
