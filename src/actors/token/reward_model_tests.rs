use std::collections::HashMap;
use std::path::Path;

use candle_core::Tensor;

use super::*;
use crate::env::task::TaskRegistry;
use crate::ops::Sequence;
use crate::policy::pretrained::{LoadOptions, load, save};
use crate::policy::{Decoder, DecoderConfig, DecoderInput, PackedAttention, Tokenizer};
use crate::trajectory::Finish;

const WIDTH: usize = 8;

/// Writes a reward model for these characters; `change` may spoil its tensors.
fn written(folder: &Path, alphabet: &str, change: impl FnOnce(&mut HashMap<String, Tensor>)) -> PathBuf {
    let tokenizer = Tokenizer::characters(alphabet).unwrap();
    let config = DecoderConfig {
        vocabulary: tokenizer.vocabulary_size(),
        width: WIDTH,
        inner: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_size: 4,
        context: 64,
        ..DecoderConfig::default()
    };
    let decoder = Decoder::new(config, &Device::Cpu).unwrap();
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let path = folder.join("reward");
    save(&path, &decoder, &parameters, &tokenizer).unwrap();
    let file = path.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    tensors.insert("score.weight".into(), head());
    change(&mut tensors);
    candle_core::safetensors::save(&tensors, &file).unwrap();
    path
}

fn head() -> Tensor {
    Tensor::arange(1f32, WIDTH as f32 + 1.0, &Device::Cpu).unwrap().reshape((1, WIDTH)).unwrap()
}

fn rewarded(name: &str, config: &RewardModelConfig) -> Rewarded {
    let task = TaskRegistry::builtin().make(name, &toml::Table::new(), 0).unwrap();
    Rewarded::new(task, config).unwrap()
}

fn graded(task: &dyn Task, problem: &Problem, turns: &[&str]) -> Result<Reward, GradeError> {
    let turns: Vec<String> = turns.iter().map(|&turn| turn.to_owned()).collect();
    task.grade(problem, &Completion { turns: &turns, finish: Finish::Stop })
}

/// The score computed step by step from the model without its head.
fn expected(path: &Path, messages: &[Message]) -> f64 {
    let file = path.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    let head = tensors.remove("score.weight").unwrap();
    candle_core::safetensors::save(&tensors, &file).unwrap();
    let model = load(path, LoadOptions::default(), &Device::Cpu).unwrap();
    let tokens = model.tokenizer.encode(&model.tokenizer.render(messages, false).unwrap()).unwrap();
    let positions: Vec<u32> = (0..tokens.len() as u32).collect();
    let input = DecoderInput { tokens: &tokens, positions: &positions, experts: None };
    let sequences = [Sequence::alone(0..tokens.len())];
    let scale = model.decoder.config().attention_scale();
    let mut attention = PackedAttention { sequences: &sequences, scale };
    let states = model.decoder.hidden(&model.parameters, input, &mut attention).unwrap().states;
    let last = states.get(tokens.len() - 1).unwrap();
    let score = (last * head.squeeze(0).unwrap()).unwrap().sum_all().unwrap();
    f64::from(score.to_scalar::<f32>().unwrap())
}

#[test]
fn an_answer_is_graded_by_the_heads_output_at_the_last_token_of_the_chat() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "abcdefghijklmnopqrstuvwxyz>", |_| {});
    let config = RewardModelConfig { path: path.clone(), scale: 0.5, ..RewardModelConfig::default() };
    let task = rewarded("copy", &config);
    let problem = task.problem(Split::Train, 3).unwrap();
    let reward = graded(&task, &problem, &["abc"]).unwrap();
    let both = RewardModelConfig { task_weight: 2.0, ..config };
    let both = rewarded("copy", &both);
    let [right, wrong] = [problem.answer.as_str(), "a"].map(|turn| graded(&both, &problem, &[turn]).unwrap());
    for (reward, own) in [(&right, 1.0), (&wrong, 0.0)] {
        assert_eq!(reward.parts[0].0, "reward_model");
        assert_eq!(reward.parts[1], ("task".to_owned(), own));
        assert_eq!(reward.value, 0.5 * reward.parts[0].1 + 2.0 * own);
    }
    assert_ne!(right.parts[0].1, wrong.parts[0].1);

    let Prompt::Text(text) = &problem.prompt else { panic!("a text prompt") };
    let score = expected(&path, &[Message::user(text), Message::assistant("abc")]);
    assert_eq!(reward.parts[0].0, "reward_model");
    assert!((reward.parts[0].1 - score).abs() < 1e-4, "{} and {score}", reward.parts[0].1);
    assert_eq!(reward.value, 0.5 * reward.parts[0].1);
}

#[test]
fn a_conversation_of_several_turns_is_scored_with_what_the_task_said_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let alphabet = TaskRegistry::builtin().make("guess_number", &toml::Table::new(), 0).unwrap().alphabet();
    let path = written(folder.path(), &alphabet.unwrap(), |_| {});
    let task =
        rewarded("guess_number", &RewardModelConfig { path: path.clone(), ..RewardModelConfig::default() });
    let problem = task.problem(Split::Train, 3).unwrap();
    let turns = ["0", "1"].map(str::to_owned);
    let Turn::Observe(said) = task.respond(&problem, &turns[..1]).unwrap() else { panic!("a wrong guess") };
    let reward = graded(&task, &problem, &["0", "1"]).unwrap();
    let Prompt::Text(text) = &problem.prompt else { panic!("a text prompt") };
    let messages =
        [Message::user(text), Message::assistant("0"), Message::user(said), Message::assistant("1")];
    assert!((reward.value - expected(&path, &messages)).abs() < 1e-4);
}

#[test]
fn what_cannot_be_scored_is_an_error_of_its_own_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "abcdefghijklmnopqrstuvwxyz>", |_| {});
    let config = RewardModelConfig { path, context: Some(16), ..RewardModelConfig::default() };
    let task = rewarded("copy", &config);
    let problem = task.problem(Split::Train, 3).unwrap();
    for (answer, part) in [("a".repeat(20), "context of 16"), ("7".to_owned(), "vocabulary")] {
        let error = graded(&task, &problem, &[&answer]).unwrap_err();
        assert_eq!(error.kind(), "reward_model");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_model_without_a_head_of_one_number_or_without_a_template_is_refused() {
    let refused = |path: &Path| {
        let task = TaskRegistry::builtin().make("copy", &toml::Table::new(), 0).unwrap();
        let config = RewardModelConfig { path: path.to_owned(), ..RewardModelConfig::default() };
        Rewarded::new(task, &config).err().unwrap()
    };
    let spoilt = |change: fn(&mut HashMap<String, Tensor>)| {
        let folder = tempfile::tempdir().unwrap();
        refused(&written(folder.path(), "abc>", change))
    };
    let missing = spoilt(|tensors| drop(tensors.remove("score.weight")));
    assert!(missing.contains("grading.reward_model") && missing.contains("`score.weight`"), "{missing}");
    let labels = spoilt(|tensors| {
        let two = Tensor::cat(&[head(), head()], 0).unwrap();
        tensors.insert("score.weight".into(), two);
    });
    assert!(labels.contains("one label") && labels.contains("[2, 8]"), "{labels}");
    let body = spoilt(|tensors| drop(tensors.remove("model.norm.weight")));
    assert!(body.contains("`model.norm.weight` is missing"), "{body}");

    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "abc>", |_| {});
    std::fs::write(path.join("tokenizer_config.json"), "{}").unwrap();
    let _ = std::fs::remove_file(path.join("chat_template.jinja"));
    let untold = refused(&path);
    assert!(untold.contains("template"), "{untold}");
    assert!(refused(Path::new("/no/such/model")).contains("/no/such/model"));
}
