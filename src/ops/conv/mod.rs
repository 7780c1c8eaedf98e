//! Two-dimensional convolution, channels last, with bias and activation in the same pass.
//!
//! Forward reads windows in place (see [`super::patches`]), so nothing is unfolded; the backward pass unfolds and
//! folds in tiles that stay in the cache. Row-invariant: an image's result depends on that image only, bit for bit.

mod border;
mod geometry;
mod images_gradient;
#[cfg(test)]
mod tests;

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::activation::{self, Activation, activate};
use super::lanes::Element;
use super::patches::Patches;
use super::prepared::{PreparedWeight, WeightRef};
use super::product::{self, Weight};
use super::storage::{self, by_type, values};
use geometry::Geometry;
use images_gradient::images_gradient;

/// `activation(convolution(x, weight) + bias)` with zero padding on all four sides.
///
/// Shapes: x `[N, H, W, C]`, weight `[O, kh, kw, C]`, bias `[O]`, result `[N, OH, OW, O]` with
/// `OH = (H + 2 padding - kh) / stride + 1`, rounded down, and OW alike. Errors when a shape does not fit.
pub fn conv2d<'a>(
    x: &Tensor,
    weight: impl Into<WeightRef<'a>>,
    bias: &Tensor,
    stride: usize,
    padding: usize,
    activation: Activation,
) -> Result<Tensor> {
    let WeightRef { tensor: weight, prepared, .. } = weight.into();
    let geometry = Geometry::new(x, weight, bias, stride, padding)?;
    if !storage::is_native(x) {
        return composed(x, weight, bias, &geometry, activation);
    }
    let (x, weight, bias) = (x.contiguous()?, weight.contiguous()?, bias.contiguous()?);
    let fused = activation.is_told_by_result();
    let operator = Convolution {
        geometry,
        activation: if fused { activation } else { Activation::Identity },
        prepared: prepared.cloned(),
    };
    let y = x.apply_op3(&weight, &bias, operator)?;
    if fused { Ok(y) } else { activate(&y, activation) }
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

/// The operator; its activation's derivative follows from the result.
struct Convolution {
    geometry: Geometry,
    activation: Activation,
    prepared: Option<PreparedWeight>,
}

impl Convolution {
    fn forward<T: Element>(
        &self,
        [x, weight, bias]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let geometry = &self.geometry;
        let weight = storage::slice::<T>(weight.0, weight.1)?;
        let weight =
            Weight::prepared_or_plain(self.prepared.as_ref(), weight, geometry.outputs, geometry.window());
        let x = geometry.border().add(storage::slice(x.0, x.1)?);
        let bias = storage::slice(bias.0, bias.1)?;
        let mut y = vec![T::zero(); geometry.rows() * geometry.outputs];
        product::rows(weight, &Patches::windows(&x, geometry.grid()), Some(bias), self.activation, &mut y);
        Ok((T::to_cpu_storage_owned(y), geometry.output_shape()))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let geometry = &self.geometry;
        let gradient = gradient.contiguous()?;
        let (result, gradient) = (values::<T>(result)?, values::<T>(&gradient)?);
        let before = activation::backward(self.activation, result.slice()?, gradient.slice()?);
        let tensor = |values, shape: &Tensor| Tensor::from_vec(values, shape.shape(), &Device::Cpu);
        let x_gradient =
            x.track_op().then(|| tensor(images_gradient(geometry, &before, values(weight)?.slice()?), x));
        let weight_gradient = weight.track_op().then(|| {
            let x = values(x)?;
            let x = geometry.border().add(x.slice()?);
            let windows = Patches::windows(&x, geometry.grid());
            tensor(product::weight_gradient(&before, geometry.outputs, &windows), weight)
        });
        let bias_gradient =
            bias.track_op().then(|| tensor(activation::column_sums(&before, geometry.outputs), bias));
        Ok([x_gradient.transpose()?, weight_gradient.transpose()?, bias_gradient.transpose()?])
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
        let [x, weight, bias] =
            by_type!(x.dtype(), T => self.backward::<T>(x, weight, bias, result, gradient))?;
        Ok((x, weight, bias))
    }
}
