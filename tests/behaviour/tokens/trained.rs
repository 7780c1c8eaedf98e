//! Adapters and frozen parameters: what changes, what is kept, and what comes out.

use std::path::Path;

use candle_core::Device;
use forebay::actors::token::{LanguageModel, load_token_parameters};
use forebay::env::task::TaskRegistry;
use forebay::ops::Sequence;
use forebay::policy::{Decoder, DecoderInput, LoadOptions, PackedAttention, Parameters, pretrained};

use super::{ADAPTERS, FROZEN, complete, train};

/// The parameters of a run's newest checkpoint.
fn parameters(run_dir: &Path) -> (LanguageModel, Parameters) {
    let model = LanguageModel::of_run(run_dir, &Device::Cpu).unwrap();
    let (_, parameters) = load_token_parameters(run_dir, &model).unwrap();
    (model, parameters)
}

fn bytes(parameters: &Parameters) -> Vec<(String, Vec<u32>)> {
    let values = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let named = parameters.iter();
    named.map(|(name, t)| (name.to_owned(), values(t).into_iter().map(f32::to_bits).collect())).collect()
}

/// Settings, and whether the parameter of a name is trained under them.
type Kind = (&'static [&'static str], fn(&str) -> bool);

#[test]
fn only_what_is_to_be_trained_changes_and_only_that_is_in_checkpoints() {
    let trained: [Kind; 4] = [
        (&[], |_| true),
        (&[ADAPTERS], |name| name.contains("lora_")),
        (&[FROZEN], |name| !name.contains("embed_tokens") && !name.contains("layers.0.")),
        (&[ADAPTERS, FROZEN], |name| name.contains("layers.1.") && name.contains("lora_")),
    ];
    for (kind, is_trained) in trained {
        let dir = tempfile::tempdir().unwrap();
        let changes = [kind, &["learner.schedule.learning_rate=0.02", "checkpoint.every=1"]].concat();
        complete(dir.path(), &changes, 3, true, false);
        let (model, after) = parameters(dir.path());
        let before = bytes(&model.decoder.layout().initialize(7, &Device::Cpu).unwrap());
        for ((name, before), (_, after)) in before.iter().zip(bytes(&after)) {
            assert_eq!(before != &after, is_trained(name), "{kind:?}: {name}");
        }
        for file in ["parameters.safetensors", "optimizer.safetensors"] {
            let path = dir.path().join("checkpoints/000000000003").join(file);
            let tensors = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
            let found = tensors.keys().filter(|name| *name != "updates").count();
            let names = before.iter().filter(|(name, _)| is_trained(name));
            let moments = if file == "optimizer.safetensors" { 2 } else { 1 };
            assert_eq!(found, moments * names.count(), "{kind:?}: {:?}", tensors.keys());
        }
    }
}

#[test]
fn a_checkpoint_is_not_continued_with_other_adapters_or_frozen_parameters() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[ADAPTERS], 2, true, false);
    for change in [
        "seed=7",
        "model.adapters={ rank = 2, alpha = 5.0, targets = [\"q_proj\", \"down_proj\"] }",
        "model.adapters={ rank = 2, alpha = 4.0, targets = [\"q_proj\"] }",
    ] {
        let changes = [change, "stop.updates=3"];
        let error =
            train(dir.path(), &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
        assert!(error.contains("model.adapters"), "{error}");
    }
    let changes = [ADAPTERS, FROZEN, "stop.updates=3"];
    let error = train(dir.path(), &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
    assert!(error.contains("model.frozen"), "{error}");
    complete(dir.path(), &[ADAPTERS], 3, true, true);
}

#[test]
fn an_exported_model_with_its_adapters_put_in_says_what_the_run_does() {
    let dir = tempfile::tempdir().unwrap();
    let (run, folder) = (dir.path().join("run"), dir.path().join("model"));
    complete(&run, &[ADAPTERS, "learner.schedule.learning_rate=0.02"], 4, true, false);
    let (model, own) = parameters(&run);
    pretrained::save(&folder, &model.decoder, &own, &model.tokenizer).unwrap();
    let exported = pretrained::load(&folder, LoadOptions::default(), &Device::Cpu).unwrap();
    let logits = |decoder: &Decoder, parameters: &Parameters| -> Vec<f32> {
        let (tokens, positions) = ([1, 2, 3, 2], [0, 1, 2, 3]);
        let input = DecoderInput { tokens: &tokens, positions: &positions, experts: None };
        let sequences = [Sequence::alone(0..4)];
        let mut attention =
            PackedAttention { sequences: &sequences, scale: decoder.config().attention_scale() };
        let states = decoder.hidden(parameters, input, &mut attention).unwrap().states;
        decoder.logits(parameters, &states).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    };
    let (own, exported) = (logits(&model.decoder, &own), logits(&exported.decoder, &exported.parameters));
    assert_eq!(own.len(), exported.len());
    for (own, exported) in own.iter().zip(&exported) {
        assert!((own - exported).abs() < 1e-4, "{own} and {exported}");
    }
}
