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
    /// A register of gate number `gate` of `row`, from `start` in the gate.
    #[inline(always)]
    fn gate<S: Simd>(&self, simd: S, row: usize, gate: usize, start: usize) -> Lanes<S, T> {
        let offset = (row * 4 + gate) * self.hidden;
        let range = offset + start..offset + self.hidden;
        let a = Lanes::load(simd, &self.a[range.clone()]);
        match self.b {
            Some(b) => a + Lanes::load(simd, &b[range]),
            None => a,
        }
    }

    /// A register of each gate of `row`, squashed.
    #[inline(always)]
    fn squashed<S: Simd>(&self, simd: S, row: usize, start: usize) -> Gates<S, T> {
        Gates {
            input: self.gate(simd, row, 0, start).sigmoid(),
            forget: self.gate(simd, row, 1, start).sigmoid(),
            candidate: self.gate(simd, row, 2, start).tanh(),
            output: self.gate(simd, row, 3, start).sigmoid(),
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
                let gates = self.gates.squashed(simd, row, start);
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
                let gates = self.gates.squashed(simd, row, start);
                let before = Lanes::load(simd, &cell[start..]);
                let squashed = Lanes::load(simd, &state[hidden + start..]).tanh();
                let dh = Lanes::load(simd, &gradient[start..hidden]);
                let dc = Lanes::load(simd, &gradient[hidden + start..]);
                let one = dh.constant(1.0);
                let dc = (dh * gates.output).multiply_add(one - squashed * squashed, dc);
                // The slope of the logistic function is s (1 - s), of tanh 1 - t².
                let gradients = [
                    dc * gates.candidate * gates.input * (one - gates.input),
                    dc * before * gates.forget * (one - gates.forget),
                    dc * gates.input * (one - gates.candidate * gates.candidate),
                    dh * squashed * gates.output * (one - gates.output),
                ];
                for (part, value) in gradients.into_iter().enumerate() {
                    value.store(&mut gates_gradient[part * hidden + start..(part + 1) * hidden]);
                }
                (dc * gates.forget).store(&mut cell_gradient[start..]);
            }
        }
    }
}
