//! A decoder as a value function of its own: a trunk with a value head, and nothing that predicts tokens.
//!
//! It is what a critic with a separate trunk is made of. Its scores have values alone, so that the vocabulary costs it
//! nothing; it has no adapters, and no head for the vocabulary even where the policy has one.

use candle_core::{Device, Result};

use super::{Decoder, DecoderConfig, VALUE_HEAD, lora};
use crate::policy::parameters::Parameters;

impl Decoder {
    /// The architecture of a value function with the trunk that a configuration describes.
    ///
    /// # Errors
    /// When its sizes do not fit each other.
    pub fn value_function(config: &DecoderConfig, device: &Device) -> Result<Self> {
        let config = DecoderConfig { tied: true, value_head: true, ..config.clone() };
        Ok(Self { values_only: true, ..Self::new(config, device)? })
    }

    /// Parameters of this value function that begin as those of `other`, a decoder with the same trunk: its adapters are
    /// put in, its head for the vocabulary is left out, and a value head that it lacks begins at 0. What nobody changes
    /// may share its storage with `parameters`.
    ///
    /// # Errors
    /// Names the first parameter that has another shape or that `other` lacks.
    pub fn take_trunk(&self, other: &Self, parameters: &Parameters) -> Result<Parameters> {
        let mut named = match other.adapters() {
            Some(adapters) => lora::merged(parameters, adapters)?,
            None => parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.detach())).collect(),
        };
        named.retain(|(name, _)| self.layout.names().any(|own| own == name));
        if named.iter().all(|(name, _)| name != VALUE_HEAD) {
            named.extend(self.layout.draw(0, self.device(), |name| name == VALUE_HEAD)?);
        }
        self.layout.adopt(named, self.device())
    }

    /// Whether a parameter of this name belongs to a feed-forward network, to an expert or to the value head, rather
    /// than to embeddings, attention, norms or routers.
    #[must_use]
    pub fn is_feed_forward(name: &str) -> bool {
        name == VALUE_HEAD || (name.contains(".mlp.") && !name.contains(".mlp.gate."))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Checkpointing, Gradients, ScoreGradients, TrainingPass, fixtures};
    use super::*;

    /// The trunk of every kind of decoder as a value function, with a head that is not 0.
    fn value_functions() -> Vec<(Decoder, Parameters, Decoder, Parameters)> {
        let made = fixtures::variants().into_iter().map(|(_, config)| {
            let config = DecoderConfig { value_head: true, ..config };
            let decoder = Decoder::new(config, &Device::Cpu).unwrap();
            let parameters = fixtures::parameters(&decoder);
            let own = Decoder::value_function(decoder.config(), &Device::Cpu).unwrap();
            let taken = own.take_trunk(&decoder, &parameters).unwrap();
            (decoder, parameters, own, taken)
        });
        made.collect()
    }

    #[test]
    fn it_says_the_values_of_the_decoder_that_it_was_taken_from_and_nothing_of_tokens() {
        for (decoder, parameters, own, taken) in value_functions() {
            assert!(own.layout().names().all(|name| name != "lm_head.weight"));
            let score = |decoder: &Decoder, parameters: &Parameters| {
                let pass = TrainingPass { decoder, temperature: 1.0, checkpointing: Checkpointing::None };
                pass.evaluate(parameters, &fixtures::packs(1000)[0]).unwrap()
            };
            let (whole, values) = (score(&decoder, &parameters), score(&own, &taken));
            assert_eq!(whole.values, values.values);
            assert!(values.log_probs.is_empty() && values.entropies.is_empty());
            assert!(values.values.iter().any(|&value| value != 0.0));
        }
    }

    #[test]
    fn every_parameter_of_it_gets_a_gradient() {
        for (_, _, own, taken) in value_functions() {
            let (_, variables) = taken.to_variables().unwrap();
            let gradients = Gradients::new(&variables).unwrap();
            let pass = TrainingPass { decoder: &own, temperature: 1.0, checkpointing: Checkpointing::None };
            let wanted = |scores: &super::super::Scores| -> Result<ScoreGradients> {
                let values = (0..scores.values.len()).map(|index| 1.0 + index as f32).collect();
                Ok(ScoreGradients { values, ..ScoreGradients::default() })
            };
            pass.accumulate(&variables, &fixtures::packs(1000)[0], &gradients, wanted).unwrap();
            for (name, gradient) in own.layout().names().zip(gradients.tensors().unwrap()) {
                let sum = gradient.abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
                assert!(sum > 0.0, "{name}");
            }
        }
    }

    #[test]
    fn a_value_head_that_was_not_there_begins_at_zero() {
        let decoder = fixtures::decoder("dense");
        let own = Decoder::value_function(decoder.config(), &Device::Cpu).unwrap();
        let taken = own.take_trunk(&decoder, &fixtures::parameters(&decoder)).unwrap();
        let head = taken.iter().find(|(name, _)| *name == VALUE_HEAD).unwrap().1;
        assert_eq!(head.flatten_all().unwrap().to_vec1::<f32>().unwrap(), vec![0.0; decoder.config().width]);
    }

    #[test]
    fn feed_forward_networks_experts_and_the_value_head_are_told_from_the_rest() {
        for (_, _, own, _) in value_functions() {
            for name in own.layout().names() {
                let expected = name == VALUE_HEAD
                    || ["gate_proj", "up_proj", "down_proj"].iter().any(|part| name.contains(part));
                assert_eq!(Decoder::is_feed_forward(name), expected, "{name}");
            }
        }
    }
}
