use candle_core::{Device, Error};

use super::super::fixtures::{numbers, packs, parameters, variants};
use super::super::{Checkpointing, Decoder, Gradients, ScoreGradients, Scores, TrainingPass};
use super::*;
use crate::policy::name_patterns::NamePatterns;

fn config() -> LoraConfig {
    let targets = LoraConfig::default().targets;
    LoraConfig { rank: 3, alpha: 4.5, targets }
}

fn shape(name: &str) -> DecoderConfig {
    variants().into_iter().find(|(variant, _)| *variant == name).unwrap().1
}

fn adapted(name: &str) -> Decoder {
    Decoder::with_adapters(shape(name), Some(&config()), &Device::Cpu).unwrap()
}

fn scores(decoder: &Decoder, parameters: &Parameters) -> Scores {
    let pass = TrainingPass { decoder, temperature: 1.0, checkpointing: Checkpointing::None };
    pass.evaluate(parameters, &packs(1000)[0]).unwrap()
}

#[test]
fn new_adapters_change_no_bit_and_the_base_starts_as_without_them() {
    let (plain, adapted) = (Decoder::new(shape("biases"), &Device::Cpu).unwrap(), adapted("biases"));
    let [base, all] = [&plain, &adapted].map(|d| d.layout().initialize(5, &Device::Cpu).unwrap());
    for ((name, base), (own, tensor)) in base.iter().zip(all.iter()) {
        assert_eq!((name, numbers(base)), (own, numbers(tensor)));
    }
    // Seven projections in each of three layers.
    assert_eq!(all.iter().count() - base.iter().count(), 3 * 7 * 2);
    assert_eq!(scores(&adapted, &all), scores(&plain, &base));
}

#[test]
fn only_adapters_are_trained_and_all_of_them() {
    let decoder = adapted("grouped heads");
    let frozen = NamePatterns(vec!["*.layers.1.*".into()]);
    let every = parameters(&decoder);
    let (variables, parameters) = every.to_variables_where(|name| decoder.is_trained(name, &frozen)).unwrap();
    assert!(variables.iter().all(|(name, _)| is_adapter(name) && !name.contains("layers.1.")));
    assert_eq!(variables.len(), 2 * 7 * 2);
    // A value head is new: no pretrained one could be adapted.
    assert!(decoder.is_trained("value_head.weight", &frozen));
    let sums = Gradients::new(&parameters).unwrap();
    let pass = TrainingPass { decoder: &decoder, temperature: 1.0, checkpointing: Checkpointing::PerLayer };
    let weigh = |scores: &Scores| {
        Ok::<_, Error>(ScoreGradients { log_probs: scores.log_probs.clone(), ..ScoreGradients::default() })
    };
    pass.accumulate(&parameters, &packs(1000)[0], &sums, weigh).unwrap();
    let gradients = sums.tensors().unwrap();
    assert_eq!(gradients.len(), variables.len());
    for ((name, _), gradient) in variables.iter().zip(gradients) {
        assert!(numbers(&gradient).iter().any(|&value| value != 0.0), "{name}");
    }
}

#[test]
fn merged_weights_compute_what_adapters_beside_them_do() {
    let decoder = adapted("dense");
    let parameters = parameters(&decoder);
    let plain = Decoder::new(shape("dense"), &Device::Cpu).unwrap();
    let base = plain.layout().adopt(merged(&parameters, &config()).unwrap(), &Device::Cpu).unwrap();
    let (apart, together) = (scores(&decoder, &parameters), scores(&plain, &base));
    for (a, b) in apart.log_probs.iter().zip(&together.log_probs) {
        assert!((a - b).abs() < 2e-5, "{a} and {b}");
    }
}

#[test]
fn adapters_go_into_files_under_the_names_of_peft_and_come_back() {
    let decoder = adapted("values");
    let parameters = parameters(&decoder);
    let adapters = to_peft(&parameters);
    assert_eq!(adapters[0].0, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_eq!(adapters[0].1.dims(), [3, 12]);
    let base = || -> Vec<(String, Tensor)> {
        let base = parameters.iter().filter(|(name, _)| !is_adapter(name));
        base.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect()
    };
    let adopt = |adapters| adopt(decoder.layout(), base(), adapters, 7, &Device::Cpu);
    let again = adopt(Some(adapters.clone())).unwrap();
    assert_eq!(scores(&decoder, &again), scores(&decoder, &parameters));
    // Without a file they start as a new model's do.
    let start = decoder.layout().initialize(7, &Device::Cpu).unwrap();
    let fresh = adopt(None).unwrap();
    for ((name, tensor), (_, start)) in
        fresh.iter().zip(start.iter()).filter(|((name, _), _)| is_adapter(name))
    {
        assert_eq!(numbers(tensor), numbers(start), "{name}");
    }
    let error = adopt(Some(adapters[1..].to_vec())).unwrap_err().to_string();
    assert!(error.contains("`model.layers.0.self_attn.q_proj.lora_A.weight` is missing"), "{error}");
    let other = vec![("model.norm.weight".to_owned(), adapters[0].1.clone())];
    assert!(adopt(Some(other)).unwrap_err().to_string().contains("no parameter of an adapter"));
}

#[test]
fn settings_that_do_not_fit_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut LoraConfig), name| {
        let mut config = config();
        change(&mut config);
        Decoder::with_adapters(shape(name), Some(&config), &Device::Cpu).unwrap_err().to_string()
    };
    assert!(refused(&|config| config.rank = 0, "dense").contains("`rank`"));
    assert!(refused(&|config| config.alpha = f64::NAN, "dense").contains("`alpha`"));
    assert!(refused(&|config| config.targets.clear(), "dense").contains("`targets`"));
    assert!(refused(&|_| {}, "experts").contains("experts"));
    let config: LoraConfig =
        serde_json::from_str(r#"{"rank": 2, "targets": ["q_proj", "down_proj"]}"#).unwrap();
    assert_eq!(config.targets, [LoraTarget::Query, LoraTarget::Down]);
    assert!(serde_json::from_str::<LoraConfig>(r#"{"r": 2}"#).is_err());
}
