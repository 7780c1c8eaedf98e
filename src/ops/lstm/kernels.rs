//! The pointwise arithmetic of one LSTM step, forward and backward, on rows of slices.
//!
//! Gates lie as `[4H]`: input, forget, candidate, output (i, f, g, o), before their squashing:
//! `c' = σ(f) c + σ(i) tanh(g)` and `h' = σ(o) tanh(c')` (Hochreiter and Schmidhuber 1997, with the forget gate of
//! Gers et al. 2000).

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes};

/// The gates of one row, squashed.
struct Gates<S: Simd, T: Element> {
    input: Lanes<S, T>,
    forget: Lanes<S, T>,
    candidate: Lanes<S, T>,
    output: Lanes<S, T>,
}

/// What goes into the gates of N rows: `a + b`, `[N, 4H]` each (b may be absent).
#[derive(Clone, Copy)]
pub(super) struct GateInputs<'a, T> {
    /// The part of the input.
    pub(super) a: &'a [T],
    /// The part of the hidden state.
    pub(super) b: Option<&'a [T]>,
    /// H.
    pub(super) hidden: usize,
}

impl<T: Element> GateInputs<'_, T> {
    /// A register of each gate of `row`, from `start` in the gate.
    #[inline(always)]
    fn at<S: Simd>(&self, simd: S, row: usize, start: usize) -> Gates<S, T> {
        let end = self.hidden.min(start + Lanes::<S, T>::width());
        let gate = |index: usize| {
            let offset = (row * 4 + index) * self.hidden;
            let range = offset + start..offset + end;
            let a = Lanes::load(simd, &self.a[range.clone()]);
            match self.b {
                Some(b) => a + Lanes::load(simd, &b[range]),
                None => a,
            }
        };
        Gates {
            input: gate(0).sigmoid(),
            forget: gate(1).sigmoid(),
            candidate: gate(2).tanh(),
            output: gate(3).sigmoid(),
        }
    }
}

/// One step of N rows.
pub(super) struct Forward<'a, T> {
    /// The gates.
    pub(super) gates: GateInputs<'a, T>,
    /// Cells before the step, `[N, H]`.
    pub(super) cell: &'a [T],
    /// State after the step, `[N, 2H]` (h, c).
    pub(super) state: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let hidden = self.gates.hidden;
        let rows = self.state.chunks_exact_mut(2 * hidden).zip(self.cell.chunks_exact(hidden));
        for (row, (state, cell)) in rows.enumerate() {
            let (h, c) = state.split_at_mut(hidden);
            for start in (0..hidden).step_by(Lanes::<S, T>::width()) {
                let gates = self.gates.at(simd, row, start);
                let cell = Lanes::load(simd, &cell[start..]);
                let cell = gates.forget.multiply_add(cell, gates.input * gates.candidate);
                cell.store(&mut c[start..]);
                (gates.output * cell.tanh()).store(&mut h[start..]);
            }
        }
    }
}

/// The gradients of one step of N rows.
pub(super) struct Backward<'a, T> {
    /// The gates.
    pub(super) gates: GateInputs<'a, T>,
    /// Cells before the step, `[N, H]`.
    pub(super) cell: &'a [T],
    /// State after the step, `[N, 2H]`.
    pub(super) state: &'a [T],
    /// Gradient of the state after the step, `[N, 2H]`.
    pub(super) gradient: &'a [T],
    /// Result: gradient of the gates' inputs, `[N, 4H]`.
    pub(super) gates_gradient: &'a mut [T],
    /// Result: gradient of the cells before the step, `[N, H]`.
    pub(super) cell_gradient: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let hidden = self.gates.hidden;
        let given = self.state.chunks_exact(2 * hidden).zip(self.gradient.chunks_exact(2 * hidden));
        let given = given.zip(self.cell.chunks_exact(hidden));
        let results = self.gates_gradient.chunks_exact_mut(4 * hidden);
        let results = results.zip(self.cell_gradient.chunks_exact_mut(hidden));
        for (row, (((state, gradient), cell), (gates_gradient, cell_gradient))) in
            given.zip(results).enumerate()
        {
            for start in (0..hidden).step_by(Lanes::<S, T>::width()) {
                let end = hidden.min(start + Lanes::<S, T>::width());
                let gates = self.gates.at(simd, row, start);
                let load = |from: &[T], part: usize| {
                    Lanes::<S, T>::load(simd, &from[part * hidden + start..part * hidden + end])
                };
                let before = load(cell, 0);
                let squashed = load(state, 1).tanh();
                let (dh, dc) = (load(gradient, 0), load(gradient, 1));
                let one = dh.constant(1.0);
                let dc = (dh * gates.output).multiply_add(one - squashed * squashed, dc);
                // The slope of the logistic function is s (1 - s), of tanh 1 - t².
                let slope = |gate: Lanes<S, T>| gate * (one - gate);
                let gradients = [
                    dc * gates.candidate * slope(gates.input),
                    dc * before * slope(gates.forget),
                    dc * gates.input * (one - gates.candidate * gates.candidate),
                    dh * squashed * slope(gates.output),
                ];
                for (part, value) in gradients.into_iter().enumerate() {
                    value.store(&mut gates_gradient[part * hidden + start..part * hidden + end]);
                }
                (dc * gates.forget).store(&mut cell_gradient[start..end]);
            }
        }
    }
}
