//! The gradient of the images: every window's gradient, put back where the window lies.
//!
//! With stride 1 it is itself a convolution, of the results' gradient with the weight turned around, and runs as a
//! forward product that reads windows in place. Otherwise the gradients of a tile of windows are multiplied out and
//! added one by one.

use super::super::activation::Activation;
use super::super::lanes::Element;
use super::super::parallel::{self, Output};
use super::super::patches::{Grid, Patches};
use super::super::product::{self, Matrix, Weight, multiply};
use super::border::Border;
use super::geometry::Geometry;

/// Values of windows that are held at a time (256 KiB of `f32`).
const TILE_ELEMENTS: usize = 1 << 16;

/// `[N, H, W, C]` from the gradient `[N, OH, OW, O]` before the activation and the weight `[O, kh, kw, C]`.
pub(super) fn images_gradient<T: Element>(geometry: &Geometry, before: &[T], weight: &[T]) -> Vec<T> {
    let reach = geometry.kernel_height.min(geometry.kernel_width);
    if geometry.stride == 1 && geometry.padding < reach {
        by_turned_weight(geometry, before, weight)
    } else {
        by_adding_windows(geometry, before, weight)
    }
}

fn by_turned_weight<T: Element>(geometry: &Geometry, before: &[T], weight: &[T]) -> Vec<T> {
    let &Geometry { outputs, channels, kernel_height, kernel_width, padding, .. } = geometry;
    let grid = geometry.grid();
    let border = Border {
        height: grid.lines,
        width: grid.columns,
        channels: outputs,
        vertical: kernel_height - 1 - padding,
        horizontal: kernel_width - 1 - padding,
    };
    let line = (border.width + 2 * border.horizontal) * outputs;
    let windows = Grid {
        image_step: (border.height + 2 * border.vertical) * line,
        line_step: line,
        column_step: outputs,
        lines: geometry.height,
        columns: geometry.width,
        runs: kernel_height,
        run: kernel_width * outputs,
        run_step: line,
    };
    // [C, kh, kw, O], lines and columns from the last to the first.
    let taps = kernel_height * kernel_width;
    let mut turned = vec![T::zero(); weight.len()];
    for (output, weight) in weight.chunks_exact(taps * channels).enumerate() {
        for (tap, weight) in weight.chunks_exact(channels).enumerate() {
            for (channel, &value) in weight.iter().enumerate() {
                turned[(channel * taps + taps - 1 - tap) * outputs + output] = value;
            }
        }
    }
    let before = border.add(before);
    let mut images = vec![T::zero(); geometry.images * geometry.height * geometry.width * channels];
    let weight = Weight::plain(&turned, channels, taps * outputs);
    product::rows(weight, &Patches::windows(&before, windows), None, Activation::Identity, &mut images);
    images
}

fn by_adding_windows<T: Element>(geometry: &Geometry, before: &[T], weight: &[T]) -> Vec<T> {
    let (outputs, window, grid) = (geometry.outputs, geometry.window(), geometry.grid());
    let weight = Matrix::new(weight, outputs, window);
    let mut padded = vec![T::zero(); geometry.images * geometry.padded_len()];
    let windows_of_image = grid.lines * grid.columns;
    let images = Output::new(&mut padded, geometry.padded_len());
    let threads = parallel::worthwhile(before.len() * window);
    parallel::over_parts(geometry.images, threads, |part| {
        // SAFETY: every image belongs to one part.
        let padded = unsafe { images.whole(part.clone()) };
        let before = &before[part.start * windows_of_image * outputs..part.end * windows_of_image * outputs];
        let tile = (TILE_ELEMENTS / window).max(16);
        let mut scratch = vec![T::zero(); tile.min(before.len() / outputs) * window];
        for (index, before) in before.chunks(tile * outputs).enumerate() {
            let rows = before.len() / outputs;
            let windows = &mut scratch[..rows * window];
            parallel::alone(|| multiply(windows, Matrix::new(before, rows, outputs), weight, false));
            grid.fold(index * tile, windows, padded);
        }
    });
    geometry.border().remove(padded)
}
