//! A micro-batch through the decoder and back.
//!
//! Forward, each predicted token gets its log-probability, entropy and value ([`Scores`]). The caller says how the
//! loss changes with each of them, and the gradient of every trained parameter is added to its sum ([`Gradients`]),
//! layer by layer from the last: differentiation sees one layer at a time (or a few), between an input that is a
//! variable of its own and an output whose gradient is known. What a layer needed is freed once it has been
//! differentiated. Dense layers are differentiated along a [`Tape`]; those with other operators in them (experts,
//! adapters) by candle.
//!
//! With checkpointing only the inputs of (every few) layers are kept, and the layers are run again on the way back
//! (Chen et al., "Training deep nets with sublinear memory cost", 2016).
//!
//! Invariants:
//! - gradients are the same bits with and without checkpointing, and for any number of threads;
//! - those of micro-batches add up to that of the whole batch (up to the rounding of sums);
//! - scores are the same bits in [`TrainingPass::evaluate`] and [`TrainingPass::accumulate`], and those of
//!   generation.

use std::num::NonZeroUsize;
use std::ops::Range;

use candle_core::{DType, Result, Tensor, Var, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inject::inject;
use super::packed::Pack;
use super::{Decoder, Gradients, PackedAttention};
use crate::ops::{Tape, embedding};
use crate::policy::parameters::Parameters;

/// What is kept of a forward pass for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Everything: fastest.
    #[default]
    None,
    /// The input of each layer: least memory, a third more work.
    PerLayer,
    /// The input of every so many layers: fewer inputs, but as many layers at a time are kept on the way back.
    Every(NonZeroUsize),
}

impl Checkpointing {
    /// Layers that are differentiated at a time.
    fn stride(self) -> usize {
        match self {
            Self::None | Self::PerLayer => 1,
            Self::Every(layers) => layers.get(),
        }
    }
}

/// How packs run.
#[derive(Debug, Clone, Copy)]
pub struct TrainingPass<'a> {
    /// The architecture.
    pub decoder: &'a Decoder,
    /// Temperature of the policy: that of sampling.
    pub temperature: f64,
    /// What is kept for the backward pass.
    pub checkpointing: Checkpointing,
}

/// What comes out for the predicted tokens of a pack, in the order of [`Pack::places`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// Log-probability of each token, in nats, among the candidates that it was sampled from; empty of a value function
    /// ([`Decoder::value_function`]).
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution that each token was drawn from, in nats; empty of a value function.
    pub entropies: Vec<f32>,
    /// Value of the state in which each token was chosen; empty without a value head.
    pub values: Vec<f32>,
}

/// Derivative of the loss by each entry of [`Scores`]; what is empty is all zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScoreGradients {
    /// By the log-probabilities.
    pub log_probs: Vec<f32>,
    /// By the entropies.
    pub entropies: Vec<f32>,
    /// By the values.
    pub values: Vec<f32>,
}

impl TrainingPass<'_> {
    /// Scores of a pack's predicted tokens; no graph is built.
    ///
    /// # Errors
    /// When a token or position is out of range, or forced experts do not fit the model.
    pub fn evaluate(&self, parameters: &Parameters, pack: &Pack) -> Result<Scores> {
        let rows = Rows::new(self, pack)?;
        let tracked = parameters.iter().any(|(_, tensor)| tensor.track_op());
        let detached = tracked.then(|| parameters.detached());
        let parameters = detached.as_ref().unwrap_or(parameters);
        let x = self.decoder.embed(parameters, &pack.tokens)?;
        let x = rows.layers(parameters, 0..rows.layer_count(), &x)?;
        rows.heads(parameters, &x)?.scores()
    }

    /// Experts that the routers choose for a pack's rows, whatever the pack forces: all layers' of a row beside each other
    /// ([`Decoder::experts_per_row`]); empty of a dense model.
    ///
    /// # Errors
    /// When a token or position is out of range.
    pub fn routing(&self, parameters: &Parameters, pack: &Pack) -> Result<Vec<u16>> {
        let parameters = parameters.detached();
        let rows = Rows::new(self, pack)?;
        let mut attention = rows.attention();
        let mut x = self.decoder.embed(&parameters, &pack.tokens)?;
        let mut experts = vec![0; pack.len() * self.decoder.experts_per_row()];
        for index in 0..rows.layer_count() {
            let (y, ids) =
                self.decoder.layer(&parameters, index, &x, &rows.positions, None, &mut attention)?;
            if let Some(ids) = ids {
                self.decoder.record(&ids, index, &mut experts)?;
            }
            x = y;
        }
        Ok(experts)
    }

    /// Runs a pack forward, asks `gradient` how the loss changes with its scores, runs it backward, and adds the
    /// gradient of each of `parameters` that is a variable to its sum.
    ///
    /// # Errors
    /// As [`TrainingPass::evaluate`]; when `gradient` fails; when it gives arrays of another length than the scores.
    pub fn accumulate<E: From<candle_core::Error>>(
        &self,
        parameters: &Parameters,
        pack: &Pack,
        gradients: &Gradients,
        gradient: impl FnOnce(&Scores) -> std::result::Result<ScoreGradients, E>,
    ) -> std::result::Result<Scores, E> {
        let rows = Rows::new(self, pack)?;
        let way_back = WayBack::new(rows, parameters, gradients);
        let (runs, x) = way_back.forward()?;
        let input = Var::from_tensor(&x)?;
        drop(x);
        let heads = way_back.rows.heads(&way_back.parameters, &input)?;
        let scores = heads.scores()?;
        let wanted = gradient(&scores)?;
        if let Some(loss) = heads.loss(&wanted)? {
            drop(heads);
            way_back.backward(runs, &input, loss)?;
        }
        Ok(scores)
    }
}

/// A pack on the way through the layers.
struct Rows<'a> {
    pass: &'a TrainingPass<'a>,
    pack: &'a Pack,
    /// `u32`, `[N]`.
    positions: Tensor,
}

impl<'a> Rows<'a> {
    fn new(pass: &'a TrainingPass<'a>, pack: &'a Pack) -> Result<Self> {
        let width = pass.decoder.experts_per_row();
        if pack.forced().is_some_and(|experts| experts.len() != pack.len() * width) {
            let found = pack.experts.len();
            bail!("a pack of {} rows forces {found} experts, this model runs {width} a row", pack.len());
        }
        let context = pass.decoder.config().context;
        if let Some(position) = pack.positions.iter().find(|&&position| position as usize >= context) {
            bail!("position {position} of a pack is beyond the model's context of {context}");
        }
        let positions = Tensor::from_slice(&pack.positions, pack.len(), pass.decoder.device())?;
        Ok(Self { pass, pack, positions })
    }

    fn layer_count(&self) -> usize {
        self.pass.decoder.config().layers
    }

    fn attention(&self) -> PackedAttention<'_> {
        PackedAttention {
            sequences: &self.pack.sequences,
            scale: self.pass.decoder.config().attention_scale(),
        }
    }

    fn layers(&self, parameters: &Parameters, layers: Range<usize>, x: &Tensor) -> Result<Tensor> {
        let decoder = self.pass.decoder;
        let mut attention = self.attention();
        let mut x = x.clone();
        for index in layers {
            let forced = decoder.forced(self.pack.forced(), index)?;
            let positions = &self.positions;
            x = decoder.layer(parameters, index, &x, positions, forced.as_ref(), &mut attention)?.0;
        }
        Ok(x)
    }

    /// From the last layer's output: only rows that predict something go on.
    fn heads(&self, parameters: &Parameters, x: &Tensor) -> Result<Heads> {
        let decoder = self.pass.decoder;
        let rows = Tensor::from_slice(&self.pack.rows, self.pack.rows.len(), x.device())?;
        let states = decoder.normed(parameters, &embedding(x, &rows)?)?;
        let (targets, sets, temperature) = (&self.pack.targets, &self.pack.candidates, self.pass.temperature);
        let both = if decoder.values_only {
            None
        } else if sets.is_empty() {
            Some(decoder.log_probs(parameters, &states, targets, temperature)?)
        } else {
            Some(decoder.candidate_log_probs(parameters, &states, targets, sets, temperature)?)
        };
        // Log-probabilities are f32 where the states are bf16; values too, so that losses of both can be added.
        let values = decoder.values(parameters, &states)?.map(|values| match values.dtype() {
            DType::BF16 => values.to_dtype(DType::F32),
            _ => Ok(values),
        });
        Ok(Heads { count: self.pack.rows.len(), both, values: values.transpose()? })
    }
}

/// What the heads give for P predicted tokens.
struct Heads {
    /// P.
    count: usize,
    /// Log-probability and entropy, `[P, 2]`; none of a value function.
    both: Option<Tensor>,
    /// `[P]`.
    values: Option<Tensor>,
}

impl Heads {
    fn scores(&self) -> Result<Scores> {
        let both = self.both.as_ref().map(|both| both.to_dtype(DType::F32)?.flatten_all()?.to_vec1());
        let both: Vec<f32> = both.transpose()?.unwrap_or_default();
        let column = |column| both.iter().skip(column).step_by(2).copied().collect();
        let values = self.values.as_ref().map(|values| values.to_dtype(DType::F32)?.to_vec1());
        let values = values.transpose()?.unwrap_or_default();
        Ok(Scores { log_probs: column(0), entropies: column(1), values })
    }

    /// A scalar with these derivatives; none where all are zero for certain.
    fn loss(&self, gradients: &ScoreGradients) -> Result<Option<Tensor>> {
        let count = self.count;
        let ScoreGradients { log_probs, entropies, values } = gradients;
        let lengths = [log_probs.len(), entropies.len(), values.len()];
        if lengths.iter().any(|&length| length != 0 && length != count) {
            bail!(
                "derivatives by the scores of {count} tokens have the lengths {lengths:?}: give one a token or none"
            );
        }
        let mut loss = None;
        if count > 0 && lengths[..2] != [0, 0] {
            let Some(own) = &self.both else {
                bail!("derivatives by log-probabilities are given, but the decoder is a value function");
            };
            let at = |values: &[f32], index: usize| values.get(index).copied().unwrap_or(0.0);
            let both: Vec<f32> =
                (0..count).flat_map(|index| [at(log_probs, index), at(entropies, index)]).collect();
            loss = Some(inject(own, &Tensor::from_vec(both, (count, 2), own.device())?)?);
        }
        if count > 0 && !values.is_empty() {
            let Some(own) = &self.values else {
                bail!("derivatives by values are given, but the decoder has no value head");
            };
            let term = inject(own, &Tensor::from_slice(values, count, own.device())?)?;
            loss = Some(loss.map_or_else(|| Ok(term.clone()), |loss| loss + &term)?);
        }
        Ok(loss)
    }
}

/// Some layers that were run for the backward pass.
struct Graph {
    input: Var,
    output: Tensor,
    tape: Tape,
}

/// What is kept of some layers: what they did, or their input alone.
enum Run {
    Graph(Graph),
    Checkpoint { input: Tensor },
}

/// One forward and backward pass.
struct WayBack<'a> {
    rows: Rows<'a>,
    /// The trained ones are variables, and collect their gradients.
    parameters: Parameters,
    /// The same without a graph.
    detached: Parameters,
    gradients: &'a Gradients,
    /// The lowest layer that the gradient has to reach: what is frozen below it is run forward only.
    lowest: usize,
}

impl<'a> WayBack<'a> {
    fn new(rows: Rows<'a>, parameters: &Parameters, gradients: &'a Gradients) -> Self {
        let detached = parameters.detached();
        let lowest = rows.pass.decoder.lowest_trained(parameters);
        Self { rows, parameters: parameters.collecting(gradients.sums()), detached, gradients, lowest }
    }

    /// Layers in the portions in which they are differentiated.
    fn portions(&self) -> Vec<Range<usize>> {
        let (layers, stride) = (self.rows.layer_count(), self.rows.pass.checkpointing.stride());
        (0..layers).step_by(stride).map(|first| first..layers.min(first + stride)).collect()
    }

    /// What is kept of each portion that is differentiated, and the last layer's output.
    fn forward(&self) -> Result<(Vec<Run>, Tensor)> {
        let keep = self.rows.pass.checkpointing == Checkpointing::None;
        let mut x = self.rows.pass.decoder.embed(&self.detached, &self.rows.pack.tokens)?;
        let mut runs = Vec::new();
        for layers in self.portions() {
            let differentiated = layers.end > self.lowest;
            if differentiated && keep {
                let graph = self.run(layers, &x)?;
                x = graph.output.detach();
                runs.push(Run::Graph(graph));
            } else {
                let next = self.rows.layers(&self.detached, layers, &x)?;
                let input = std::mem::replace(&mut x, next);
                if differentiated {
                    runs.push(Run::Checkpoint { input });
                }
            }
        }
        Ok((runs, x))
    }

    /// Runs a portion of layers on an input that is a variable of its own.
    fn run(&self, layers: Range<usize>, x: &Tensor) -> Result<Graph> {
        let input = Var::from_tensor(x)?;
        let (output, tape) = Tape::record(|| self.rows.layers(&self.parameters, layers, &input))?;
        Ok(Graph { input, output, tape })
    }

    fn backward(&self, runs: Vec<Run>, input: &Var, loss: Tensor) -> Result<()> {
        let mut gradient = self.differentiate(loss, input)?;
        for (layers, run) in self.portions().into_iter().rev().zip(runs.into_iter().rev()) {
            let graph = match run {
                Run::Graph(graph) => graph,
                Run::Checkpoint { input } => self.run(layers, &input)?,
            };
            gradient = self.differentiate_layers(graph, &gradient)?;
        }
        let x = self.rows.pass.decoder.embed(&self.parameters, &self.rows.pack.tokens)?;
        if x.track_op() {
            let mut found = inject(&x, &gradient)?.backward()?;
            self.gradients.add(&self.parameters, |parameter| found.remove(parameter))?;
        }
        Ok(())
    }

    /// Adds the gradients of the parameters of some layers to their sums; gives that of their input. The graph ends
    /// here.
    fn differentiate_layers(&self, graph: Graph, gradient: &Tensor) -> Result<Tensor> {
        let Graph { input, output, tape } = graph;
        let Some(mut found) = tape.gradients(&output, gradient)? else {
            return self.differentiate(inject(&output, gradient)?, &input);
        };
        drop(output);
        self.gradients.add(&self.parameters, |parameter| found.remove(&parameter.id()))?;
        found.remove(&input.id()).map_or_else(lost, Ok)
    }

    /// Adds the parameters' gradients of a scalar to their sums; gives that of `input`. The graph ends here.
    fn differentiate(&self, scalar: Tensor, input: &Var) -> Result<Tensor> {
        let mut found = scalar.backward()?;
        drop(scalar);
        self.gradients.add(&self.parameters, |parameter| found.remove(parameter))?;
        found.remove(input).map_or_else(lost, Ok)
    }
}

fn lost() -> Result<Tensor> {
    bail!("an operator of the decoder lost the gradient of its input")
}

#[cfg(test)]
#[path = "backward_tests.rs"]
mod tests;
