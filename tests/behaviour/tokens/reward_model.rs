//! A learned reward model in place of the task's grader.

use candle_core::{Device, Tensor};
use forebay::env::task::TaskRegistry;
use forebay::policy::{Decoder, DecoderConfig, Tokenizer, pretrained};
use forebay::telemetry::RunOutcome;

use super::{assert_books, train};

#[test]
fn a_reward_model_grades_in_place_of_the_task_and_what_it_cannot_read_is_no_reward() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reward");
    let device = Device::Cpu;
    let tokenizer = Tokenizer::characters("abc>").unwrap();
    let shape = DecoderConfig {
        vocabulary: tokenizer.vocabulary_size(),
        width: 8,
        inner: 12,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_size: 4,
        ..DecoderConfig::default()
    };
    let decoder = Decoder::new(shape, &device).unwrap();
    pretrained::save(&path, &decoder, &decoder.layout().initialize(1, &device).unwrap(), &tokenizer).unwrap();
    let model = format!("grading.reward_model={{ path = {path:?}, scale = 0.01, context = 9 }}");
    // Without a head it is a model, but no reward model.
    let refused =
        train(&dir.path().join("run"), &TaskRegistry::builtin(), &[&model, "stop.updates=1"], true, false);
    assert!(refused.unwrap_err().to_string().contains("score.weight"));
    assert!(!dir.path().join("run").exists());

    let file = path.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&file, &device).unwrap();
    tensors
        .insert("score.weight".into(), Tensor::arange(0f32, 8.0, &device).unwrap().reshape((1, 8)).unwrap());
    candle_core::safetensors::save(&tensors, &file).unwrap();
    for serial in [true, false] {
        let run = dir.path().join(format!("run {serial}"));
        let changes = [model.as_str(), "stop.updates=4"];
        let summary = train(&run, &TaskRegistry::builtin(), &changes, serial, false).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        assert_books(&summary);
        // A prompt of three characters and an answer of two do not fit into nine tokens with their marks.
        let lost =
            summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "grading_failed").unwrap();
        assert_eq!(lost.1.trajectories, summary.grading_errors);
        assert!(summary.grading_errors > 0);
    }
}
