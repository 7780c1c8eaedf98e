use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::super::{LoadOptions, Pretrained, PretrainedError, VALUE_HEAD, load};
use crate::policy::{Decoder, DecoderConfig, ExpertsConfig, Parameters, RopeScaling};

/// A vocabulary of all bytes that matter here, one merge, an end and a user-defined token.
const TOKENS: [&str; 12] = ["<|end|>", "<think>", "1", "2", "3", "a", "b", "Ġ", "Ċ", "ab", "<pad>", "Ã"];
const TYPES: [i32; 12] = [3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 5, 1];

struct Fixture {
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
    parameters: Parameters,
    config: DecoderConfig,
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|item| text(item)).collect())
}

impl Fixture {
    /// A random model and the file that it would be, of an architecture.
    fn new(architecture: &str, config: DecoderConfig) -> Self {
        let decoder = Decoder::new(config.clone(), &Device::Cpu).unwrap();
        let parameters = decoder.layout().initialize(5, &Device::Cpu).unwrap();
        let tensors = parameters.iter().map(|(name, tensor)| {
            let rotated = name.contains("q_proj") || name.contains("k_proj");
            let interleave = architecture == "llama" && rotated;
            (gguf_name(name), if interleave { interleaved(tensor, config.head_size) } else { tensor.clone() })
        });
        let size = |value: usize| Value::U32(value as u32);
        let experts =
            config.experts.clone().unwrap_or(ExpertsConfig { count: 0, ..ExpertsConfig::default() });
        let own = [
            ("embedding_length", size(config.width)),
            ("feed_forward_length", size(config.inner)),
            ("block_count", size(config.layers)),
            ("attention.head_count", size(config.heads)),
            ("attention.head_count_kv", size(config.kv_heads)),
            ("attention.key_length", size(config.head_size)),
            ("attention.layer_norm_rms_epsilon", Value::F32(config.norm_epsilon as f32)),
            ("context_length", size(config.context)),
            ("rope.freq_base", Value::F32(config.rope_theta as f32)),
            ("expert_count", size(experts.count)),
            ("expert_used_count", size(experts.per_token)),
            ("expert_feed_forward_length", size(experts.inner)),
        ];
        let own = own.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value));
        let general = [
            ("general.architecture", text(architecture)),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", texts(&TOKENS)),
            ("tokenizer.ggml.token_type", Value::Array(TYPES.iter().map(|&kind| Value::I32(kind)).collect())),
            ("tokenizer.ggml.merges", texts(&["a b"])),
            ("tokenizer.ggml.eos_token_id", Value::U32(0)),
            ("tokenizer.chat_template", text("{{ messages[0].content }}{{ eos_token }}")),
        ];
        let general = general.into_iter().map(|(key, value)| (key.to_owned(), value));
        Self { metadata: own.chain(general).collect(), tensors: tensors.collect(), parameters, config }
    }

    fn bytes(&self, dtype: GgmlDType) -> Vec<u8> {
        let quantised: Vec<(&str, QTensor)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), QTensor::quantize(tensor, dtype).unwrap()))
            .collect();
        let metadata: Vec<(&str, &Value)> =
            self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> = quantised.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let mut bytes = std::io::Cursor::new(Vec::new());
        write(&mut bytes, &metadata, &tensors).unwrap();
        bytes.into_inner()
    }

    fn load(&self, options: LoadOptions) -> Result<Pretrained, PretrainedError> {
        load_bytes(&self.bytes(GgmlDType::F32), options)
    }

    /// What loading says after a change.
    fn error(&mut self, change: impl FnOnce(&mut Self)) -> String {
        change(self);
        self.load(LoadOptions::default()).unwrap_err().to_string()
    }
}

fn load_bytes(bytes: &[u8], options: LoadOptions) -> Result<Pretrained, PretrainedError> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("tiny.gguf");
    fs::write(&path, bytes).unwrap();
    load(&path, options, &Device::Cpu)
}

fn tiny() -> DecoderConfig {
    DecoderConfig {
        vocabulary: TOKENS.len(),
        width: 32,
        inner: 32,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_size: 16,
        context: 64,
        norm_epsilon: f64::from(1e-5_f32),
        ..DecoderConfig::default()
    }
}

fn llama() -> Fixture {
    Fixture::new("llama", tiny())
}

/// Row `i + s · size / 2` of a head goes to row `2 i + s`, written out by index.
fn interleaved(tensor: &Tensor, size: usize) -> Tensor {
    let rows = tensor.dims()[0];
    let order: Vec<u32> = (0..rows)
        .map(|row| {
            let (head, place) = (row / size, row % size);
            (head * size + place / 2 + place % 2 * (size / 2)) as u32
        })
        .collect();
    tensor.index_select(&Tensor::new(order, &Device::Cpu).unwrap(), 0).unwrap()
}

fn gguf_name(parameter: &str) -> String {
    let plain = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.experts.gate_proj", "ffn_gate_exps"),
        ("mlp.experts.up_proj", "ffn_up_exps"),
        ("mlp.experts.down_proj", "ffn_down_exps"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("mlp.gate.", "ffn_gate_inp."),
    ];
    plain.iter().fold(parameter.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn values(parameters: &Parameters) -> Vec<(String, Vec<f32>)> {
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    parameters.iter().map(|(name, tensor)| (name.to_owned(), flat(tensor))).collect()
}

#[test]
fn every_architecture_gives_its_decoder() {
    let experts = ExpertsConfig { count: 3, per_token: 2, inner: 32, normalise: true };
    let kinds = [
        ("llama", DecoderConfig { tied: false, ..tiny() }),
        ("qwen2", DecoderConfig { attention_bias: true, ..tiny() }),
        ("qwen3", DecoderConfig { query_key_norm: true, head_size: 32, ..tiny() }),
        ("qwen3moe", DecoderConfig { query_key_norm: true, experts: Some(experts), ..tiny() }),
    ];
    for (architecture, config) in kinds {
        let fixture = Fixture::new(architecture, config);
        let model = fixture.load(LoadOptions::default()).unwrap();
        assert_eq!(model.decoder.config(), &fixture.config, "{architecture}");
        assert_eq!(values(&model.parameters), values(&fixture.parameters), "{architecture}");
    }
}

#[test]
fn quantised_weights_are_near_the_exact_ones() {
    let fixture = llama();
    let model = load_bytes(&fixture.bytes(GgmlDType::Q8_0), LoadOptions::default()).unwrap();
    for ((name, exact), (_, read)) in values(&fixture.parameters).iter().zip(values(&model.parameters)) {
        let largest = exact.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        for (exact, read) in exact.iter().zip(read) {
            assert!((exact - read).abs() <= largest / 127.0, "{name}: {read} for {exact}");
        }
    }
}

#[test]
fn the_tokenizer_splits_digits_and_knows_its_special_tokens() {
    let tokenizer = llama().load(LoadOptions::default()).unwrap().tokenizer;
    assert_eq!(tokenizer.encode("ab 12\n<think>a<|end|>").unwrap(), [9, 7, 2, 3, 8, 1, 5, 0]);
    assert_eq!(tokenizer.decode_plain(&[9, 7, 1, 0]), "ab <think>");
    assert_eq!((tokenizer.ends(), tokenizer.padding()), (&[0][..], None));
    let chat = [crate::trajectory::Message::user("1")];
    assert_eq!(tokenizer.render(&chat, true).unwrap(), "1<|end|>");
}

#[test]
fn the_begin_token_is_added_when_the_file_says_so() {
    let mut fixture = llama();
    fixture.metadata.insert("tokenizer.ggml.bos_token_id".into(), Value::U32(0));
    let prompt = |fixture: &Fixture| {
        fixture.load(LoadOptions::default()).unwrap().tokenizer.encode_prompt("1").unwrap()
    };
    assert_eq!(prompt(&fixture), [2]);
    fixture.metadata.insert("tokenizer.ggml.add_bos_token".into(), Value::Bool(true));
    assert_eq!(prompt(&fixture), [0, 2]);
}

#[test]
fn frequencies_of_llama_3_are_recognised() {
    let mut fixture = llama();
    let divisors = |factor: f64| {
        let divisor = |i: usize| {
            let wavelength = std::f64::consts::TAU * 10_000_f64.powf(2.0 * i as f64 / 16.0);
            let smooth = ((8192.0 / wavelength - 1.0) / 3.0).clamp(0.0, 1.0);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        };
        Tensor::from_vec((0..8).map(divisor).collect::<Vec<f32>>(), 8, &Device::Cpu).unwrap()
    };
    fixture.tensors.insert("rope_freqs.weight".into(), divisors(8.0));
    let scaling = fixture.load(LoadOptions::default()).unwrap().decoder.config().rope_scaling.clone();
    assert!(
        matches!(scaling, Some(RopeScaling::Llama3 { factor: 8.0, original_context: 8192, .. })),
        "{scaling:?}"
    );
    let error = fixture.error(|fixture| {
        let flat = Tensor::full(2.0_f32, 8, &Device::Cpu).unwrap();
        fixture.tensors.insert("rope_freqs.weight".into(), flat);
    });
    assert!(error.contains("`rope_freqs.weight` holds factors that are not those of Llama 3.1"), "{error}");
}

#[test]
fn a_value_head_is_begun_anew() {
    let model = llama().load(LoadOptions { value_head: true, ..LoadOptions::default() }).unwrap();
    assert!(model.parameters.iter().any(|(name, tensor)| name == VALUE_HEAD && tensor.dims() == [1, 32]));
}

#[test]
fn a_truncated_file_is_an_error_wherever_it_is_cut() {
    let bytes = llama().bytes(GgmlDType::F32);
    for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = load_bytes(&bytes[..length], LoadOptions::default()).unwrap_err().to_string();
        let told =
            ["not a whole GGUF file", "cannot be read", "cannot map"].iter().any(|part| error.contains(part));
        assert!(error.contains("tiny.gguf") && told, "{length} bytes: {error}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_key_and_value() {
    let set = |key: &'static str, value: Value| {
        move |fixture: &mut Fixture| {
            fixture.metadata.insert(key.into(), value);
        }
    };
    let cases: [(&str, Value, &str); 9] = [
        ("general.architecture", text("gpt2"), "`general.architecture` is \"gpt2\": supported are"),
        ("tokenizer.ggml.pre", text("tekken"), "`tokenizer.ggml.pre` is \"tekken\": supported are"),
        ("tokenizer.ggml.model", text("llama"), "`tokenizer.ggml.model` is \"llama\": only byte-level"),
        ("llama.rope.dimension_count", Value::U32(8), "`llama.rope.dimension_count` is 8: only whole heads"),
        ("llama.attention.sliding_window", Value::U32(16), "`llama.attention.sliding_window` is 16"),
        ("llama.expert_count", Value::U32(4), "`llama.expert_count` is 4"),
        ("llama.rope.scaling.type", text("longrope"), "`llama.rope.scaling.type` is \"longrope\""),
        ("tokenizer.ggml.eos_token_id", Value::U32(99), "`tokenizer.ggml.eos_token_id` is 99"),
        ("tokenizer.ggml.token_type", Value::Array(vec![]), "`tokenizer.ggml.token_type` is a list of 0"),
    ];
    for (key, value, expected) in cases {
        let error = llama().error(set(key, value));
        assert!(error.contains(expected), "{error}");
    }
    let end = llama().error(|fixture| drop(fixture.metadata.remove("tokenizer.ggml.eos_token_id")));
    assert!(end.contains("has no end token"), "{end}");
    let size = llama().error(|fixture| drop(fixture.metadata.remove("llama.block_count")));
    assert!(size.contains("`llama.block_count` is missing"), "{size}");
}

#[test]
fn a_missing_superfluous_or_misshapen_tensor_is_named() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, candle_core::DType::F32, &Device::Cpu).unwrap();
    let missing = llama().error(|fixture| drop(fixture.tensors.remove("blk.1.ffn_up.weight")));
    assert!(missing.contains("tensor `blk.1.ffn_up.weight` is missing"), "{missing}");
    let extra =
        llama().error(|fixture| drop(fixture.tensors.insert("blk.0.attn_output.bias".into(), zeros(&[32]))));
    assert!(extra.contains("tensor `blk.0.attn_output.bias` is not a part of the architecture"), "{extra}");
    let shape =
        llama().error(|fixture| drop(fixture.tensors.insert("output_norm.weight".into(), zeros(&[64]))));
    assert!(
        shape.contains("tensor `output_norm.weight` has shape [64], the metadata make it [32]"),
        "{shape}"
    );
}
