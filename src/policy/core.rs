//! The recurrent core: an LSTM whose state is `[h | c]`, zeroed at the first step of every episode.

use candle_core::{Result, Tensor};

use super::parameters::{Initializer, Layout, ParameterId, Parameters};
use crate::ops::{LstmParameters, lstm_unroll};

/// An LSTM layer.
#[derive(Debug, Clone)]
pub(super) struct Lstm {
    input_weight: ParameterId,
    hidden_weight: ParameterId,
    bias: ParameterId,
    pub(super) size: usize,
}

impl Lstm {
    pub(super) fn new(layout: &mut Layout, inputs: usize, size: usize) -> Self {
        let mut weight = |name: &str, inputs| {
            layout.add(format!("core.{name}"), &[4 * size, inputs], Initializer::Orthogonal(1.0))
        };
        let (input_weight, hidden_weight) = (weight("input_weight", inputs), weight("hidden_weight", size));
        let bias = layout.add("core.bias", &[4 * size], Initializer::Constant(0.0));
        Self { input_weight, hidden_weight, bias, size }
    }

    /// Runs `x` `[T, N, inputs]` from `state` `[N, 2 size]`; `starts` `[T, N]` (u8) zeroes the state before a step.
    /// Returns the outputs `[T, N, size]` and the state after every step `[T, N, 2 size]`.
    pub(super) fn unroll(
        &self,
        parameters: &Parameters,
        x: &Tensor,
        state: &Tensor,
        starts: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let weights = LstmParameters {
            input_weight: parameters.weight(self.input_weight),
            hidden_weight: parameters.weight(self.hidden_weight),
            bias: &parameters[self.bias],
        };
        lstm_unroll(x, state, starts, weights)
    }
}
