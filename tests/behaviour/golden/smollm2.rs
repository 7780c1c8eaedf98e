//! SmolLM2-135M-Instruct against figures of another implementation: token ids, log-probabilities, greedy answers.
//!
//! The model (98 MB) is fetched by `scripts/get_smollm2.sh`; without it these tests are skipped with a note. Its path
//! is taken from `FOREBAY_SMOLLM2`, else from the folder that the script uses by default.

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::{Device, IndexOp as _, Tensor};
use forebay::generate::{Engine, EngineConfig, Request, Stops, Weights};
use forebay::ops::{Sampling, Sequence};
use forebay::policy::pretrained::{LoadOptions, Pretrained, load};
use forebay::policy::{DecoderInput, PackedAttention};
use forebay::trajectory::{Message, Trajectory, TrajectoryId, Version};
use serde_json::Value;

use super::golden_file;

const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const LOG_PROB_TOLERANCE: f64 = 2e-3;
/// Length at which the greedy answers were cut off.
const GREEDY_LIMIT: usize = 24;

fn model_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FOREBAY_SMOLLM2") {
        return Some(path.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("forebay").join(NAME)).filter(|path| path.exists())
}

/// The model and the figures; `None` when either is not there.
fn loaded() -> Option<(Pretrained, Value)> {
    let figures = golden_file("smollm2")?;
    let Some(path) = model_path() else {
        println!("skipped: there is no {NAME}; scripts/get_smollm2.sh fetches it");
        return None;
    };
    let options = LoadOptions { context: Some(512), ..LoadOptions::default() };
    Some((load(&path, options, &Device::Cpu).unwrap(), figures))
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn hidden(model: &Pretrained, tokens: &[u32]) -> Tensor {
    let positions: Vec<u32> = (0..tokens.len() as u32).collect();
    let sequences = [Sequence::alone(0..tokens.len())];
    let mut attend =
        PackedAttention { sequences: &sequences, scale: model.decoder.config().attention_scale() };
    let input = DecoderInput { tokens, positions: &positions, experts: None };
    model.decoder.hidden(&model.parameters, input, &mut attend).unwrap().states
}

/// The likeliest token in the place of each of the last `count` of `tokens`. Where these are the tokens themselves, they
/// are what greedy decoding gives: each is the likeliest after those before it.
fn likeliest(model: &Pretrained, tokens: &[u32], count: usize) -> Vec<u32> {
    let rows = tokens.len() - 1 - count..tokens.len() - 1;
    let states = hidden(model, tokens).i(rows).unwrap();
    model.decoder.logits(&model.parameters, &states).unwrap().argmax(1).unwrap().to_vec1().unwrap()
}

#[test]
fn golden_smollm2() {
    let Some((model, figures)) = loaded() else { return };
    let config = model.decoder.config();
    assert_eq!((config.vocabulary, config.layers, config.tied), (49152, 30, true));
    // Without a system message, the template has one of its own.
    let chat = model.tokenizer.render(&[Message::user("What is 2+2?")], true).unwrap();
    assert_eq!(
        chat,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    );
    let texts = tokenizer_agrees(&model, &figures["tokenize"]);
    let (log_prob, entropy) = log_probs_agree(&model, &figures["score"]);
    let answers = figures["greedy"].as_array().unwrap();
    for case in answers {
        let expected = ids(&case["new_ids"]);
        let tokens = [ids(&case["ids"]), expected.clone()].concat();
        assert_eq!(likeliest(&model, &tokens, expected.len()), expected, "{}", case["text"]);
        assert_eq!(model.tokenizer.decode(&expected), case["text"].as_str().unwrap());
        let ended = model.tokenizer.ends().contains(&expected[expected.len() - 1]);
        assert!(ended || expected.len() == GREEDY_LIMIT, "{}", case["text"]);
    }
    generation_agrees(model, answers);
    println!(
        "smollm2: {texts} texts tokenized, largest difference of log-probs {log_prob:.1e}, of entropies \
         {entropy:.1e}, {} greedy answers",
        answers.len()
    );
}

/// All answers at once, as a run generates them.
fn generation_agrees(model: Pretrained, answers: &[Value]) {
    let stops = Arc::new(Stops::at_tokens(model.tokenizer.ends().to_vec()));
    let config = EngineConfig { cache_tokens: 2048, max_running: answers.len(), ..EngineConfig::default() };
    let weights = Weights::new(Arc::new(model.parameters), Version(0));
    let mut engine = Engine::new(Arc::new(model.decoder), weights, config, 1).unwrap();
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    for (prompt, case) in answers.iter().enumerate() {
        let id = TrajectoryId { prompt: prompt as u32, ..TrajectoryId::default() };
        let trajectory = Trajectory::new(id, ids(&case["ids"]).into());
        let request = Request::new(trajectory, greedy, GREEDY_LIMIT);
        engine.submit(Request { stops: Arc::clone(&stops), ..request }).unwrap();
    }
    let mut ended = 0;
    while !engine.is_idle() {
        for finished in engine.step().unwrap() {
            let case = &answers[finished.trajectory.id.prompt as usize];
            assert_eq!(finished.trajectory.tokens, ids(&case["new_ids"]), "{}", case["text"]);
            ended += 1;
        }
    }
    assert_eq!(ended, answers.len());
}

fn tokenizer_agrees(model: &Pretrained, cases: &Value) -> usize {
    let cases = cases.as_array().unwrap();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let found = model.tokenizer.encode(text).unwrap();
        assert_eq!(found, ids(&case["ids"]), "{text:?}");
        assert_eq!(model.tokenizer.decode(&found), text);
    }
    cases.len()
}

/// Largest differences of log-probabilities and of entropies.
fn log_probs_agree(model: &Pretrained, cases: &Value) -> (f64, f64) {
    let mut worst = [0.0_f64; 2];
    for case in cases.as_array().unwrap() {
        let tokens = ids(&case["ids"]);
        assert_eq!(model.tokenizer.encode(case["text"].as_str().unwrap()).unwrap(), tokens);
        let states = hidden(model, &tokens);
        // The last row's target is of no interest, its entropy is.
        let targets: Vec<u32> = tokens[1..].iter().copied().chain([0]).collect();
        let rows = model.decoder.log_probs(&model.parameters, &states, &targets, 1.0).unwrap();
        let rows = rows.to_vec2::<f32>().unwrap();
        for (column, field) in ["logprob_next", "entropy"].into_iter().enumerate() {
            for (row, expected) in rows.iter().zip(numbers(&case[field])) {
                let difference = (f64::from(row[column]) - expected).abs();
                worst[column] = worst[column].max(difference);
                assert!(difference < LOG_PROB_TOLERANCE, "{field}: {} instead of {expected}", row[column]);
            }
        }
        let last = model.decoder.logits(&model.parameters, &states.i(tokens.len() - 1..).unwrap()).unwrap();
        let last = last.i(0).unwrap().to_vec1::<f32>().unwrap();
        for (id, logit) in ids(&case["last_top_ids"]).into_iter().zip(numbers(&case["last_top_logits"])) {
            let found = f64::from(last[id as usize]);
            assert!((found - logit).abs() < 10.0 * LOG_PROB_TOLERANCE, "logit of {id}: {found}, not {logit}");
        }
    }
    (worst[0], worst[1])
}
