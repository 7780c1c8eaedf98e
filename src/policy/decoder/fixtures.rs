//! Small decoders of every kind and something to run through them.

use std::sync::Arc;

use candle_core::{Device, Tensor, Var};

use super::{Decoder, DecoderConfig, ExpertsConfig, Pack, Packing, RopeScaling};
use crate::policy::parameters::Parameters;
use crate::random::CounterRng;
use crate::trajectory::{Group, Trajectory, TrajectoryId, Version};

pub(super) const VOCABULARY: usize = 19;

/// Name and configuration of a decoder of every kind.
pub(super) fn variants() -> Vec<(&'static str, DecoderConfig)> {
    let base = DecoderConfig {
        vocabulary: VOCABULARY,
        width: 12,
        inner: 20,
        layers: 3,
        heads: 2,
        kv_heads: 2,
        head_size: 6,
        context: 40,
        ..DecoderConfig::default()
    };
    let experts = ExpertsConfig { count: 3, per_token: 2, inner: 10, normalise: true };
    vec![
        ("dense", base.clone()),
        ("grouped heads", DecoderConfig { heads: 4, ..base.clone() }),
        ("untied", DecoderConfig { tied: false, ..base.clone() }),
        ("biases", DecoderConfig { attention_bias: true, ..base.clone() }),
        ("head norms", DecoderConfig { query_key_norm: true, ..base.clone() }),
        ("values", DecoderConfig { value_head: true, ..base.clone() }),
        ("scaled", DecoderConfig { rope_scaling: Some(RopeScaling::Linear { factor: 2.0 }), ..base.clone() }),
        ("experts", DecoderConfig { experts: Some(experts.clone()), ..base.clone() }),
        (
            "everything",
            DecoderConfig {
                heads: 4,
                tied: false,
                attention_bias: true,
                query_key_norm: true,
                value_head: true,
                experts: Some(ExpertsConfig { normalise: false, ..experts }),
                ..base
            },
        ),
    ]
}

pub(super) fn decoder(name: &str) -> Decoder {
    let (_, config) = variants().into_iter().find(|(variant, _)| *variant == name).unwrap();
    Decoder::new(config, &Device::Cpu).unwrap()
}

/// Parameters none of which is special: initial zeros and ones would make some gradients vanish.
pub(super) fn parameters(decoder: &Decoder) -> Parameters {
    let (variables, parameters) =
        decoder.layout().initialize(3, &Device::Cpu).unwrap().to_variables().unwrap();
    let mut rng = CounterRng::new(9);
    for (_, variable) in &variables {
        variable.set(&(variable.as_tensor() + noise(variable, &mut rng)).unwrap()).unwrap();
    }
    parameters
}

fn noise(variable: &Var, rng: &mut CounterRng) -> Tensor {
    let noise: Vec<f32> = (0..variable.elem_count()).map(|_| 0.2 * rng.normal() as f32).collect();
    Tensor::from_vec(noise, variable.shape(), &Device::Cpu).unwrap()
}

/// Groups of a few answers with an observation in their midst.
pub(super) fn groups() -> Vec<Group> {
    let mut rng = CounterRng::new(11);
    let group = |index: u32| {
        let mut tokens =
            |count: usize| -> Vec<u32> { (0..count).map(|_| rng.below(VOCABULARY) as u32).collect() };
        let prompt: Arc<[u32]> = tokens(1 + 4 * index as usize).into();
        let members = (0..3).map(|member| {
            let id = TrajectoryId { prompt: index, member, ..TrajectoryId::default() };
            let mut trajectory = Trajectory::new(id, prompt.clone());
            for token in tokens(2 + 2 * usize::from(member)) {
                trajectory.push_action(token, -1.0, Version(0));
            }
            trajectory.push_observation(&tokens(2), Version(0));
            trajectory.push_action(tokens(1)[0], -1.0, Version(0));
            trajectory
        });
        Group { epoch: 0, prompt: index, source: "test".into(), budget: None, members: members.collect() }
    };
    (0..3).map(group).collect()
}

/// All of them in one pack, or in as many as a budget asks for.
pub(super) fn packs(rows: usize) -> Vec<Pack> {
    Packing { rows, experts_per_row: 0 }.pack(&groups()).unwrap()
}

pub(super) fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}
