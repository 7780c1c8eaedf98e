//! The whole network: torso, optional core, policy and value heads, and the encoding of its extra inputs.

use candle_core::{Device, Result, Tensor};

use super::config::{CoreConfig, PolicyConfig};
use super::core::Lstm;
use super::distribution::Distribution;
use super::normalizer::Normalizer;
use super::parameters::{Initializer, Layout, ParameterId, Parameters};
use super::torso::{Dense, Torso};
use crate::env::{ActionSpace, EnvSpec};
use crate::ops::Activation;

/// What an actor knows before a step, for N rows.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a> {
    /// `[N, observation_len]`, raw.
    pub observations: &'a [f32],
    /// Recorded actions of the step before, `[N, action width]`; ignored where `starts`.
    pub previous_actions: &'a [f32],
    /// Rewards of the step before, `[N]`; ignored where `starts`.
    pub previous_rewards: &'a [f32],
    /// Whether an episode starts here, `[N]`.
    pub starts: &'a [bool],
    /// Recurrent state before the step, `[N, core_len]`; read as zero where `starts`.
    pub core_state: &'a [f32],
}

/// What the network says about N rows.
#[derive(Debug, Clone, Default)]
pub struct StepOutput {
    /// Parameters of the action distribution, `[N, parameter_len]`.
    pub distribution: Vec<f32>,
    /// Recurrent state after the step, `[N, core_len]`.
    pub core_state: Vec<f32>,
}

/// A batch of sequences as the learner sees it: R = T + 1 rows of B columns, time first.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInput<'a> {
    /// R.
    pub rows: usize,
    /// B.
    pub columns: usize,
    /// `[R, B, ...]`, fields as for one step; `core_state` is that before row 0, `[B, core_len]`.
    pub steps: StepInput<'a>,
    /// `(row, column)` of every true final observation whose value is needed.
    pub final_places: &'a [(usize, usize)],
    /// The inputs at those places (`starts` all false); the core state is taken from the sequence itself.
    pub finals: StepInput<'a>,
}

/// The network's view of a batch of sequences.
#[derive(Debug)]
pub struct SequenceOutput {
    /// Distribution parameters of the first T rows, `[T · B, parameter_len]`, differentiable.
    pub distribution: Tensor,
    /// Values of all rows, `[T + 1, B]`, differentiable.
    pub values: Tensor,
    /// Values of the true final observations, in the order given; no gradient.
    pub final_values: Vec<f32>,
    /// Recurrent state after every row, `[T + 1, B, core_len]`; no gradient.
    pub states: Option<Tensor>,
}

/// An architecture for one environment's spaces.
#[derive(Debug, Clone)]
pub struct Policy {
    layout: Layout,
    torso: Torso,
    value_torso: Option<Torso>,
    core: Option<Lstm>,
    head: Dense,
    log_std: Option<ParameterId>,
    value: Dense,
    distribution: Distribution,
    observation_len: usize,
    last_action: bool,
    last_reward: bool,
}

impl Policy {
    /// Builds the architecture that `config` describes for an environment.
    #[must_use]
    pub fn new(config: &PolicyConfig, spec: &EnvSpec) -> Self {
        let mut layout = Layout::default();
        let torso = |layout: &mut Layout, name: &str| {
            Torso::new(layout, name, &config.torso, config.activation, &spec.observation_shape)
        };
        let policy_torso = torso(&mut layout, "torso");
        let value_torso = config.separate_value.then(|| torso(&mut layout, "value_torso"));
        let distribution = Distribution::for_space(&spec.action_space);

        let mut previous = 0;
        if config.last_action {
            previous += distribution.encoded_len();
        }
        previous += usize::from(config.last_reward) + usize::from(config.last_action || config.last_reward);
        let mut features = policy_torso.features + previous;
        let core = config.core.as_ref().map(|CoreConfig::Lstm { size }| {
            let core = Lstm::new(&mut layout, features, *size);
            features = *size;
            core
        });

        let outputs = match &spec.action_space {
            ActionSpace::Box { low, .. } => low.len(),
            _ => distribution.parameter_len(),
        };
        // A small gain makes the first policy nearly uniform.
        let head = Dense::new(&mut layout, "policy", features, outputs, Activation::Identity, 0.01);
        let log_std = matches!(spec.action_space, ActionSpace::Box { .. })
            .then(|| layout.add("policy.log_std", &[outputs], Initializer::Constant(config.initial_log_std)));
        let value_features = value_torso.as_ref().map_or(features, |torso| torso.features);
        let value = Dense::new(&mut layout, "value", value_features, 1, Activation::Identity, 1.0);
        Self {
            layout,
            torso: policy_torso,
            value_torso,
            core,
            head,
            log_std,
            value,
            distribution,
            observation_len: spec.observation_len(),
            last_action: config.last_action,
            last_reward: config.last_reward,
        }
    }

    /// The parameters this architecture needs.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The family of its action distribution.
    #[must_use]
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Length of an observation.
    #[must_use]
    pub fn observation_len(&self) -> usize {
        self.observation_len
    }

    /// Length of the recurrent state, 0 without a core.
    #[must_use]
    pub fn core_len(&self) -> usize {
        self.core.as_ref().map_or(0, |core| 2 * core.size)
    }

    /// One step of N rows on `device`. `parameters` should carry no graph (see [`Parameters::deep_copy`]).
    pub fn step(
        &self,
        parameters: &Parameters,
        normalizer: Option<&Normalizer>,
        input: StepInput<'_>,
        device: &Device,
    ) -> Result<StepOutput> {
        let n = input.starts.len();
        let observations = self.observations(normalizer, input.observations, n, device)?;
        let mut features = self.with_previous(self.torso.forward(parameters, &observations)?, input)?;
        let mut core_state = Vec::new();
        if let Some(core) = &self.core {
            let state = Tensor::from_slice(input.core_state, (n, 2 * core.size), device)?;
            let starts = flags(input.starts, (1, n), device)?;
            let (outputs, states) = core.unroll(parameters, &features.unsqueeze(0)?, &state, &starts)?;
            features = outputs.squeeze(0)?;
            core_state = states.flatten_all()?.to_vec1()?;
        }
        let distribution = self.distribution_rows(parameters, &features)?.flatten_all()?.to_vec1()?;
        Ok(StepOutput { distribution, core_state })
    }

    /// Evaluates sequences for the learner; see [`SequenceOutput`] for what carries gradients.
    pub fn evaluate(
        &self,
        parameters: &Parameters,
        normalizer: Option<&Normalizer>,
        input: SequenceInput<'_>,
        device: &Device,
    ) -> Result<SequenceOutput> {
        let (rows, columns) = (input.rows, input.columns);
        let n = rows * columns;
        let observations = self.observations(normalizer, input.steps.observations, n, device)?;
        let mut features = self.with_previous(self.torso.forward(parameters, &observations)?, input.steps)?;
        let mut states = None;
        if let Some(core) = &self.core {
            let state = Tensor::from_slice(input.steps.core_state, (columns, 2 * core.size), device)?;
            let starts = flags(input.steps.starts, (rows, columns), device)?;
            let sequence = features.reshape((rows, columns, ()))?;
            let (outputs, after) = core.unroll(parameters, &sequence, &state, &starts)?;
            features = outputs.reshape((n, core.size))?;
            states = Some(after.detach().reshape((n, 2 * core.size))?);
        }
        let values = self.values(parameters, &features, &observations)?.reshape((rows, columns))?;
        let acted = features.narrow(0, 0, n - columns)?;
        let distribution = self.distribution_rows(parameters, &acted)?;
        let final_values =
            self.final_values(&parameters.detached(), normalizer, input, states.as_ref(), device)?;
        let states = states.map(|states| states.reshape((rows, columns, ()))).transpose()?;
        Ok(SequenceOutput { distribution, values, final_values, states })
    }

    fn final_values(
        &self,
        parameters: &Parameters,
        normalizer: Option<&Normalizer>,
        input: SequenceInput<'_>,
        states: Option<&Tensor>,
        device: &Device,
    ) -> Result<Vec<f32>> {
        let n = input.final_places.len();
        if n == 0 {
            return Ok(Vec::new());
        }
        let observations = self.observations(normalizer, input.finals.observations, n, device)?;
        let mut features =
            self.with_previous(self.torso.forward(parameters, &observations)?, input.finals)?;
        if let (Some(core), Some(states)) = (&self.core, states) {
            let flat = |&(row, column): &(usize, usize)| (row * input.columns + column) as u32;
            let places: Vec<u32> = input.final_places.iter().map(flat).collect();
            let state = states.index_select(&Tensor::from_vec(places, n, device)?, 0)?;
            let starts = flags(input.finals.starts, (1, n), device)?;
            features = core.unroll(parameters, &features.unsqueeze(0)?, &state, &starts)?.0.squeeze(0)?;
        }
        self.values(parameters, &features, &observations)?.to_vec1()
    }

    /// `[N]`.
    fn values(&self, parameters: &Parameters, features: &Tensor, observations: &Tensor) -> Result<Tensor> {
        let own =
            self.value_torso.as_ref().map(|torso| torso.forward(parameters, observations)).transpose()?;
        self.value.forward(parameters, own.as_ref().unwrap_or(features))?.squeeze(1)
    }

    fn distribution_rows(&self, parameters: &Parameters, features: &Tensor) -> Result<Tensor> {
        let rows = self.head.forward(parameters, features)?;
        let Some(log_std) = self.log_std else { return Ok(rows) };
        let log_std = parameters[log_std].unsqueeze(0)?.broadcast_as(rows.shape())?;
        Tensor::cat(&[&rows, &log_std.contiguous()?], 1)
    }

    fn observations(
        &self,
        normalizer: Option<&Normalizer>,
        raw: &[f32],
        n: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let mut rows = raw.to_vec();
        if let Some(normalizer) = normalizer {
            normalizer.apply(&mut rows);
        }
        Tensor::from_vec(rows, (n, self.observation_len), device)
    }

    /// Appends previous action and reward. At the first step of an episode they are zero and a flag of their own is
    /// set, which no real action or reward can imitate.
    fn with_previous(&self, features: Tensor, input: StepInput<'_>) -> Result<Tensor> {
        if !self.last_action && !self.last_reward {
            return Ok(features);
        }
        let n = input.starts.len();
        let action_len = if self.last_action { self.distribution.encoded_len() } else { 0 };
        let width = action_len + usize::from(self.last_reward) + 1;
        let action_width = self.distribution.action_width();
        let mut rows = vec![0.0; n * width];
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            if input.starts[i] {
                row[width - 1] = 1.0;
                continue;
            }
            if self.last_action {
                let action = &input.previous_actions[i * action_width..][..action_width];
                self.distribution.encode(action, &mut row[..action_len]);
            }
            if self.last_reward {
                row[action_len] = input.previous_rewards[i];
            }
        }
        let extra = Tensor::from_vec(rows, (n, width), features.device())?;
        Tensor::cat(&[&features, &extra], 1)
    }
}

fn flags(starts: &[bool], shape: (usize, usize), device: &Device) -> Result<Tensor> {
    Tensor::from_vec(starts.iter().map(|&start| u8::from(start)).collect::<Vec<u8>>(), shape, device)
}
