//! The pointwise arithmetic of one LSTM step, forward and backward, on rows of slices.
//!
//! Gates lie as `[4H]`: input, forget, candidate, output (i, f, g, o), before their squashing:
//! `c' = σ(f) c + σ(i) tanh(g)` and `h' = σ(o) tanh(c')` (Hochreiter and Schmidhuber 1997, with the forget gate of
//! Gers et al. 2000).

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes};

/// One step of N rows.
pub(super) struct Forward<'a, T> {
    /// H.
    pub(super) hidden: usize,
    /// What is still to be added to the gates, `[N, 4H]`.
    pub(super) added: Option<&'a [T]>,
    /// The gates, `[N, 4H]`; squashed afterwards, for the backward pass.
    pub(super) gates: &'a mut [T],
    /// Cells before the step, `[N, H]`.
    pub(super) cell: &'a [T],
    /// State after the step, `[N, 2H]` (h, c).
    pub(super) state: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let hidden = self.hidden;
        let rows = self.state.chunks_exact_mut(2 * hidden).zip(self.cell.chunks_exact(hidden));
        let rows = rows.zip(self.gates.chunks_exact_mut(4 * hidden));
        for (row, ((state, cell), gates)) in rows.enumerate() {
            let (h, c) = state.split_at_mut(hidden);
            for start in (0..hidden).step_by(Lanes::<S, T>::width()) {
                let mut squashed = [Lanes::splat(simd, T::zero()); 4];
                for (gate, squashed) in squashed.iter_mut().enumerate() {
                    let place = gate * hidden + start..(gate + 1) * hidden;
                    let mut value = Lanes::load(simd, &gates[place.clone()]);
                    if let Some(added) = self.added {
                        value = value + Lanes::load(simd, &added[row * 4 * hidden..][place.clone()]);
                    }
                    *squashed = if gate == 2 { value.tanh() } else { value.sigmoid() };
                    squashed.store(&mut gates[place]);
                }
                let [input, forget, candidate, output] = squashed;
                let cell = forget.multiply_add(Lanes::load(simd, &cell[start..]), input * candidate);
                cell.store(&mut c[start..]);
                (output * cell.tanh()).store(&mut h[start..]);
            }
        }
    }
}

/// The gradients of one step of N rows.
pub(super) struct Backward<'a, T> {
    /// H.
    pub(super) hidden: usize,
    /// The gates, squashed, `[N, 4H]`.
    pub(super) gates: &'a [T],
    /// Cells before the step, `[N, H]`.
    pub(super) cell: &'a [T],
    /// State after the step, `[N, 2H]`.
    pub(super) state: &'a [T],
    /// Gradient of the state after the step, `[N, 2H]`.
    pub(super) gradient: &'a [T],
    /// Result: gradient of the gates before their squashing, `[N, 4H]`.
    pub(super) gates_gradient: &'a mut [T],
    /// Result: gradient of the cells before the step, `[N, H]`.
    pub(super) cell_gradient: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let hidden = self.hidden;
        let given = self.state.chunks_exact(2 * hidden).zip(self.gradient.chunks_exact(2 * hidden));
        let given = given.zip(self.cell.chunks_exact(hidden)).zip(self.gates.chunks_exact(4 * hidden));
        let results = self.gates_gradient.chunks_exact_mut(4 * hidden);
        let results = results.zip(self.cell_gradient.chunks_exact_mut(hidden));
        for ((((state, gradient), cell), gates), (gates_gradient, cell_gradient)) in given.zip(results) {
            for start in (0..hidden).step_by(Lanes::<S, T>::width()) {
                let mut squashed = [Lanes::splat(simd, T::zero()); 4];
                for (gate, squashed) in squashed.iter_mut().enumerate() {
                    *squashed = Lanes::load(simd, &gates[gate * hidden + start..(gate + 1) * hidden]);
                }
                let [input, forget, candidate, output] = squashed;
                let before = Lanes::load(simd, &cell[start..]);
                let after = Lanes::load(simd, &state[hidden + start..]).tanh();
                let dh = Lanes::load(simd, &gradient[start..hidden]);
                let dc = Lanes::load(simd, &gradient[hidden + start..]);
                let one = dh.constant(1.0);
                let dc = (dh * output).multiply_add(one - after * after, dc);
                // The slope of the logistic function is s (1 - s), of tanh 1 - t².
                let gradients = [
                    dc * candidate * input * (one - input),
                    dc * before * forget * (one - forget),
                    dc * input * (one - candidate * candidate),
                    dh * after * output * (one - output),
                ];
                for (part, value) in gradients.into_iter().enumerate() {
                    value.store(&mut gates_gradient[part * hidden + start..(part + 1) * hidden]);
                }
                (dc * forget).store(&mut cell_gradient[start..]);
            }
        }
    }
}
