//! How a weight `[O, K]` is laid out for the forward product: in panels of a few registers of outputs.
//!
//! A panel is `[K, panel width]`: for each input the weights of neighbouring outputs, which are the lanes of the
//! product. Outputs beyond O are zeros. Laying out is a transposition, done eight by eight in registers where the
//! processor can, because for few rows it costs as much as the product itself.

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes, on_this_processor};

/// Registers of outputs in a panel.
pub(super) const PANEL_REGISTERS: usize = 2;

struct PanelWidth<T>(std::marker::PhantomData<T>);

impl<T: Element> WithSimd for PanelWidth<T> {
    type Output = usize;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        PANEL_REGISTERS * Lanes::<S, T>::width()
    }
}

/// Outputs in a panel, on this processor.
pub(super) fn panel_width<T: Element>() -> usize {
    on_this_processor(PanelWidth::<T>(std::marker::PhantomData))
}

/// A weight laid out once, for many products.
pub(in crate::ops) struct PackedWeight<T> {
    pub(super) panels: Vec<T>,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

impl<T: Element> PackedWeight<T> {
    /// Lays out a row-major `[outputs, inputs]` weight.
    pub(in crate::ops) fn new(weight: &[T], outputs: usize, inputs: usize) -> Self {
        assert_eq!(weight.len(), outputs * inputs, "a value for each place");
        let width = panel_width::<T>();
        let mut panels = vec![T::zero(); outputs.div_ceil(width) * width * inputs];
        pack(weight, inputs, width, &mut panels);
        Self { panels, outputs, inputs }
    }
}

impl<T: Element> PackedWeight<T> {
    /// Lays out the transpose of a row-major `[inputs, outputs]` weight.
    pub(in crate::ops) fn transposed(weight: &[T], inputs: usize, outputs: usize) -> Self {
        assert_eq!(weight.len(), outputs * inputs, "a value for each place");
        let width = panel_width::<T>();
        let mut panels = vec![T::zero(); outputs.div_ceil(width) * width * inputs];
        for (index, panel) in panels.chunks_exact_mut((width * inputs).max(1)).enumerate() {
            let lanes = index * width..outputs.min((index + 1) * width);
            for (lane, weight) in panel.chunks_exact_mut(width).zip(weight.chunks_exact(outputs)) {
                lane[..lanes.len()].copy_from_slice(&weight[lanes.clone()]);
            }
        }
        Self { panels, outputs, inputs }
    }
}

/// Lays out the rows of `weight` in as many panels as they fill; the last one's missing outputs become zeros.
pub(super) fn pack<T: Element>(weight: &[T], inputs: usize, width: usize, panels: &mut [T]) {
    if inputs == 0 {
        return;
    }
    for (panel, weight) in panels.chunks_exact_mut(width * inputs).zip(weight.chunks(width * inputs)) {
        let outputs = weight.len() / inputs;
        if outputs < width {
            panel.fill(T::zero());
        }
        if !T::transpose_in_registers(weight, inputs, panel, width) {
            transpose(weight, inputs, 0..outputs, 0..inputs, panel, width);
        }
    }
}

/// `panel[k, o] = weight[o, k]` for some outputs and inputs.
pub(in crate::ops) fn transpose<T: Copy>(
    weight: &[T],
    inputs: usize,
    outputs: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    panel: &mut [T],
    width: usize,
) {
    for output in outputs {
        for k in columns.clone() {
            panel[k * width + output] = weight[output * inputs + k];
        }
    }
}

/// [`transpose`] of a whole weight in tiles of 8 x 8; what does not fill a tile goes one by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
pub(in crate::ops) fn transpose_avx(weight: &[f32], inputs: usize, panel: &mut [f32], width: usize) {
    let outputs = weight.len() / inputs;
    let (whole_outputs, whole_inputs) = (outputs / 8 * 8, inputs / 8 * 8);
    for k in (0..whole_inputs).step_by(8) {
        for output in (0..whole_outputs).step_by(8) {
            let tile = std::array::from_fn(|i| load(&weight[(output + i) * inputs + k..]));
            for (j, column) in transposed_tile(tile).into_iter().enumerate() {
                let to = &mut panel[(k + j) * width + output..][..8];
                to.copy_from_slice(&pulp::cast::<_, [f32; 8]>(column));
            }
        }
    }
    transpose(weight, inputs, 0..whole_outputs, whole_inputs..inputs, panel, width);
    transpose(weight, inputs, whole_outputs..outputs, 0..inputs, panel, width);
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn load(from: &[f32]) -> __m256 {
    let mut values = [0.0; 8];
    values.copy_from_slice(&from[..8]);
    pulp::cast(values)
}

/// Rows to columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn transposed_tile(rows: [__m256; 8]) -> [__m256; 8] {
    // Pairs of rows, then quadruples, then the two halves of a register.
    let mut pairs = rows;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    let mut quadruples = pairs;
    for half in [0, 4] {
        for i in 0..2 {
            let (a, b) = (pairs[half + i], pairs[half + i + 2]);
            quadruples[half + 2 * i] = _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
            quadruples[half + 2 * i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
        }
    }
    let mut columns = quadruples;
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(quadruples[i], quadruples[i + 4]);
        columns[i + 4] = _mm256_permute2f128_ps::<0x31>(quadruples[i], quadruples[i + 4]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_finds_its_place_and_missing_outputs_are_zero() {
        for (outputs, inputs) in
            [(1_usize, 1_usize), (7, 9), (8, 8), (33, 17), (40, 3), (16, 64), (5, 0), (0, 5)]
        {
            let weight: Vec<f32> = (0..outputs * inputs).map(|i| 1.0 + i as f32).collect();
            let width = panel_width::<f32>();
            // What a scratch held before must not matter.
            let mut panels = vec![f32::NAN; outputs.div_ceil(width) * width * inputs];
            pack(&weight, inputs, width, &mut panels);
            for (index, &value) in panels.iter().enumerate() {
                let (panel, k, lane) = (index / (width * inputs), index / width % inputs, index % width);
                let output = panel * width + lane;
                let expected = if output < outputs { weight[output * inputs + k] } else { 0.0 };
                assert_eq!(value, expected, "output {output}, input {k}");
            }
        }
    }
}
