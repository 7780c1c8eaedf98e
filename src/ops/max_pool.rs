//! Two-dimensional max pooling, channels last.

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::lanes::{Element, Lanes, on_this_processor};
use super::parallel;
use super::storage::{self, by_type, refuse, values};

/// The largest value of each channel in each window of `kernel × kernel` pixels.
///
/// Shapes: x `[N, H, W, C]`, result `[N, OH, OW, C]` with `OH = (H + 2 padding - kernel) / stride + 1`, rounded down,
/// and OW alike. Padding never wins. The gradient goes to the first of equal values, in row order. Errors when x is
/// not an image batch, the window does not fit, or the padding exceeds half of it.
pub fn max_pool2d(x: &Tensor, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
    let pooling = match *x.dims() {
        [_, height, width, channels]
            if stride > 0
                && channels > 0
                && kernel > 0
                && 2 * padding <= kernel
                && height.min(width) + 2 * padding >= kernel =>
        {
            MaxPool { height, width, channels, kernel, stride, padding }
        }
        ref x => {
            return refuse(
                "max_pool2d",
                format!(
                    "x {x:?}, kernel {kernel}, stride {stride}, padding {padding}: must be [N, H, W, C], the kernel \
                     not larger than the padded image, the padding at most half the kernel"
                ),
            );
        }
    };
    if storage::is_native(x) { x.contiguous()?.apply_op1(pooling) } else { pooling.composed(x) }
}

#[derive(Debug, Clone, Copy)]
struct MaxPool {
    height: usize,
    width: usize,
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl MaxPool {
    /// Windows along a side of `size` pixels.
    fn windows(&self, size: usize) -> usize {
        (size + 2 * self.padding - self.kernel) / self.stride + 1
    }

    /// Windows of an image.
    fn windows_of_image(&self) -> usize {
        self.windows(self.height) * self.windows(self.width)
    }

    /// Real pixels of window `index` along a side of `size` pixels.
    fn pixels(&self, index: usize, size: usize) -> std::ops::Range<usize> {
        let start = index * self.stride;
        start.saturating_sub(self.padding)..(start + self.kernel).saturating_sub(self.padding).min(size)
    }

    /// Where the real pixels of a window begin in the images, in row order.
    fn offsets(&self, window: usize) -> impl Iterator<Item = usize> + '_ {
        let columns = self.windows(self.width);
        let image = window / self.windows_of_image();
        let line = window % self.windows_of_image() / columns;
        let across = self.pixels(window % columns, self.width);
        self.pixels(line, self.height).flat_map(move |y| {
            let line = (image * self.height + y) * self.width;
            across.clone().map(move |x| (line + x) * self.channels)
        })
    }

    fn forward<T: Element>(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x: &[T] = storage::slice(storage, layout)?;
        let images = layout.dims()[0];
        let mut y = vec![T::zero(); images * self.windows_of_image() * self.channels];
        let cost = y.len() * self.kernel * self.kernel;
        parallel::over_rows(&mut y, self.channels, cost, |first, y| {
            on_this_processor(Forward { pooling: self, x, first, y });
        });
        let shape = (images, self.windows(self.height), self.windows(self.width), self.channels);
        Ok((T::to_cpu_storage_owned(y), Shape::from(shape)))
    }

    fn backward<T: Element>(&self, x: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let mut output = vec![T::zero(); x.elem_count()];
        let (result, gradient, x_values) = (values::<T>(result)?, values::<T>(gradient)?, values::<T>(x)?);
        let (result, gradient, x_values) = (result.slice()?, gradient.slice()?, x_values.slice()?);
        let image = self.height * self.width * self.channels;
        let cost = gradient.len() * self.kernel * self.kernel;
        parallel::over_rows(&mut output, image, cost, |first, output| {
            let windows =
                first * self.windows_of_image()..(first + output.len() / image) * self.windows_of_image();
            let part = windows.start * self.channels..windows.end * self.channels;
            let (result, gradient) = (&result[part.clone()], &gradient[part]);
            let x = &x_values[first * image..][..output.len()];
            on_this_processor(Backward { pooling: self, x, result, gradient, output });
        });
        Tensor::from_vec(output, x.shape(), &Device::Cpu)
    }

    /// The same function out of candle's own differentiable operators: a running choice between shifted images.
    fn composed(&self, x: &Tensor) -> Result<Tensor> {
        let device = x.device();
        let edge = |shape: (usize, usize, usize, usize)| {
            Tensor::full(f32::NEG_INFINITY, shape, device)?.to_dtype(x.dtype())
        };
        let images = x.dim(0)?;
        let mut padded = x.clone();
        if self.padding > 0 {
            let side = edge((images, self.height, self.padding, self.channels))?;
            padded = Tensor::cat(&[&side, &padded, &side], 2)?;
            let side = edge((images, self.padding, self.width + 2 * self.padding, self.channels))?;
            padded = Tensor::cat(&[&side, &padded, &side], 1)?;
        }
        let shifted = |size: usize, shift: usize| {
            let indices: Vec<u32> =
                (0..self.windows(size)).map(|i| (i * self.stride + shift) as u32).collect();
            Tensor::new(indices, device)
        };
        let mut best: Option<Tensor> = None;
        for y in 0..self.kernel {
            let lines = padded.index_select(&shifted(self.height, y)?, 1)?;
            for x in 0..self.kernel {
                let candidate = lines.index_select(&shifted(self.width, x)?, 2)?;
                best = Some(match best {
                    None => candidate,
                    Some(best) => candidate.gt(&best)?.where_cond(&candidate, &best)?,
                });
            }
        }
        best.map_or_else(|| Ok(x.clone()), Ok)
    }
}

struct Forward<'a, T> {
    pooling: &'a MaxPool,
    x: &'a [T],
    /// Index of the first window.
    first: usize,
    y: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let channels = self.pooling.channels;
        let step = Lanes::<S, T>::width();
        for (index, y) in self.y.chunks_exact_mut(channels).enumerate() {
            y.fill(T::constant(f64::NEG_INFINITY));
            for offset in self.pooling.offsets(self.first + index) {
                let pixel = &self.x[offset..][..channels];
                for (best, value) in y.chunks_mut(step).zip(pixel.chunks(step)) {
                    let (kept, value) = (Lanes::load(simd, best), Lanes::load(simd, value));
                    let larger = kept.where_less(value, value, kept);
                    // A NaN is smaller than nothing; it takes its place here and is not displaced above.
                    value.where_less(value.constant(f64::INFINITY), larger, value).store(best);
                }
            }
        }
    }
}

/// The backward pass of some whole images.
struct Backward<'a, T> {
    pooling: &'a MaxPool,
    x: &'a [T],
    result: &'a [T],
    gradient: &'a [T],
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let channels = self.pooling.channels;
        let step = Lanes::<S, T>::width();
        let zero = Lanes::splat(simd, T::zero());
        let rows = self.result.chunks_exact(channels).zip(self.gradient.chunks_exact(channels));
        for (window, (result, gradient)) in rows.enumerate() {
            for start in (0..channels).step_by(step) {
                let end = channels.min(start + step);
                let best = Lanes::load(simd, &result[start..end]);
                // The first pixel that is the largest takes all. Nothing compares to a NaN result, yet its gradient
                // must go somewhere: to the first pixel.
                let mut left = Lanes::load(simd, &gradient[start..end]);
                for offset in self.pooling.offsets(window) {
                    let pixel = Lanes::load(simd, &self.x[offset + start..offset + end]);
                    let place = &mut self.output[offset + start..offset + end];
                    let share = pixel.where_less(best, zero, best.where_less(pixel, zero, left));
                    left = pixel.where_less(best, left, best.where_less(pixel, left, zero));
                    (Lanes::load(simd, place) + share).store(place);
                }
            }
        }
    }
}

impl CustomOp1 for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(storage), T => self.forward::<T>(storage, layout))
    }

    fn bwd(&self, x: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        by_type!(x.dtype(), T => self.backward::<T>(x, result, &gradient)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{DType, Var};

    /// (x, kernel, stride, padding).
    const CASES: [([usize; 4], usize, usize, usize); 5] = [
        ([1, 1, 1, 1], 1, 1, 0),
        ([2, 4, 6, 3], 2, 2, 0),
        ([2, 5, 7, 17], 3, 2, 1),
        ([1, 6, 5, 2], 3, 1, 1),
        ([1, 4, 4, 1], 4, 3, 2),
    ];

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for (shape, kernel, stride, padding) in CASES {
            let x = offset(&pseudo_random(&shape, 1, DType::F32));
            let pooling =
                MaxPool { height: shape[1], width: shape[2], channels: shape[3], kernel, stride, padding };
            let fused = max_pool2d(&x, kernel, stride, padding).unwrap();
            close(&fused, &pooling.composed(&x).unwrap(), 0.0);
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (shape, kernel, stride, padding) in CASES {
            let x = pseudo_random(&shape, 1, DType::F64);
            check_gradients(&[x], |t| max_pool2d(&t[0], kernel, stride, padding));
        }
    }

    #[test]
    fn the_first_of_equal_values_gets_the_gradient_here_and_composed() {
        let x = Var::from_tensor(&Tensor::ones((1, 2, 2, 1), DType::F32, &Device::Cpu).unwrap()).unwrap();
        let pooling = MaxPool { height: 2, width: 2, channels: 1, kernel: 2, stride: 2, padding: 0 };
        for y in [max_pool2d(&x, 2, 2, 0).unwrap(), pooling.composed(&x).unwrap()] {
            let gradients = y.sum_all().unwrap().backward().unwrap();
            let gradient: Vec<f32> = gradients.get(&x).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            assert_eq!(gradient, [1.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn a_nan_wins() {
        let x = Tensor::from_vec(vec![1.0, f32::NAN, 2.0, 3.0], (1, 2, 2, 1), &Device::Cpu).unwrap();
        let y = max_pool2d(&x, 2, 2, 0).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(y[0].is_nan());
    }

    #[test]
    fn too_much_padding_is_refused() {
        let x = pseudo_random(&[1, 4, 4, 1], 1, DType::F32);
        assert!(max_pool2d(&x, 2, 2, 2).unwrap_err().to_string().contains("padding 2"));
    }
}
