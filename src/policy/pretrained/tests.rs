use std::collections::HashMap;
use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::*;
use crate::policy::{ExpertsConfig, LoraTarget, RopeScaling};

const ALPHABET: &str = "0123456789+=";

/// A dense decoder as small as can be.
fn tiny() -> DecoderConfig {
    let vocabulary = Tokenizer::characters(ALPHABET).unwrap().vocabulary_size();
    DecoderConfig {
        vocabulary,
        width: 8,
        inner: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_size: 4,
        context: 32,
        ..DecoderConfig::default()
    }
}

fn qwen3_moe() -> DecoderConfig {
    let experts = ExpertsConfig { count: 3, per_token: 2, inner: 5, normalise: true };
    DecoderConfig { experts: Some(experts), query_key_norm: true, tied: false, ..tiny() }
}

/// Saves a random model of this shape below `folder`.
fn saved(config: &DecoderConfig, folder: &Path) -> (std::path::PathBuf, Parameters) {
    let decoder = Decoder::new(config.clone(), &Device::Cpu).unwrap();
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let folder = folder.join("model");
    save(&folder, &decoder, &parameters, &Tokenizer::characters(ALPHABET).unwrap()).unwrap();
    (folder, parameters)
}

fn read(folder: &Path) -> Result<Pretrained, PretrainedError> {
    load(folder, LoadOptions::default(), &Device::Cpu)
}

fn bits(parameters: &Parameters) -> Vec<(String, Vec<u32>)> {
    let words = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let named = parameters.iter();
    named.map(|(name, t)| (name.to_owned(), words(t).into_iter().map(f32::to_bits).collect())).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What loading says after one field of `config.json` was set.
fn with_field(config: &DecoderConfig, field: &str, value: Value) -> Result<DecoderConfig, String> {
    let mut fields = config::write(config).unwrap();
    fields.insert(field.into(), value);
    config::parse(Path::new("config.json"), &fields).map_err(|error| error.to_string())
}

/// Rewrites the tensors of a saved model.
fn change_tensors(folder: &Path, change: impl FnOnce(&mut HashMap<String, Tensor>)) {
    let path = folder.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    change(&mut tensors);
    candle_core::safetensors::save(&tensors, &path).unwrap();
}

#[test]
fn every_kind_of_model_comes_back_with_every_bit() {
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 8,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: Some(1.25),
    };
    let kinds = [
        ("llama", tiny()),
        (
            "llama",
            DecoderConfig { tied: false, rope_scaling: Some(RopeScaling::Linear { factor: 2.0 }), ..tiny() },
        ),
        ("qwen2", DecoderConfig { attention_bias: true, ..tiny() }),
        ("qwen3", DecoderConfig { query_key_norm: true, rope_scaling: Some(yarn), ..tiny() }),
        ("qwen3_moe", qwen3_moe()),
    ];
    for (kind, config) in kinds {
        let folder = tempfile::tempdir().unwrap();
        let (path, parameters) = saved(&config, folder.path());
        let model = read(&path).unwrap();
        assert_eq!(model.decoder.config(), &config);
        assert_eq!(bits(&model.parameters), bits(&parameters));
        let written: Value = serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap();
        assert_eq!((&written["model_type"], &written["eos_token_id"]), (&json!(kind), &json!(0)));
        assert_eq!(names(folder.path()), ["model"]);
    }
}

#[test]
fn experts_are_separate_in_files_and_other_programs_can_tell_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved(&qwen3_moe(), folder.path());
    let bytes = fs::read(path.join("model.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    assert_eq!(header.info("model.layers.1.mlp.experts.2.down_proj.weight").unwrap().shape, [8, 5]);
    assert!(header.info("model.layers.0.mlp.gate.weight").is_some());
}

#[test]
fn halves_are_widened() {
    for dtype in [DType::F16, DType::BF16] {
        let folder = tempfile::tempdir().unwrap();
        let (path, parameters) = saved(&tiny(), folder.path());
        change_tensors(&path, |tensors| {
            tensors.values_mut().for_each(|tensor| *tensor = tensor.to_dtype(dtype).unwrap());
        });
        let model = read(&path).unwrap();
        for ((name, exact), (_, widened)) in parameters.iter().zip(model.parameters.iter()) {
            let rounded = exact.to_dtype(dtype).unwrap().to_dtype(DType::F32).unwrap();
            let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(values(widened), values(&rounded), "{name}");
        }
    }
}

#[test]
fn sharded_weights_are_gathered_by_their_index() {
    let folder = tempfile::tempdir().unwrap();
    let (path, parameters) = saved(&tiny(), folder.path());
    let single = path.join("model.safetensors");
    let tensors = candle_core::safetensors::load(&single, &Device::Cpu).unwrap();
    fs::remove_file(&single).unwrap();
    let mut map = serde_json::Map::new();
    let (mut shards, files) = ([HashMap::new(), HashMap::new()], ["a.safetensors", "b.safetensors"]);
    for (name, tensor) in tensors {
        let shard = usize::from(name.contains("layers.1"));
        map.insert(name.clone(), files[shard].into());
        shards[shard].insert(name, tensor);
    }
    for (shard, file) in shards.iter().zip(files) {
        candle_core::safetensors::save(shard, path.join(file)).unwrap();
    }
    let index = path.join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();
    assert_eq!(bits(&read(&path).unwrap().parameters), bits(&parameters));

    map["model.norm.weight"] = json!("../a.safetensors");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("`model.norm.weight` is \"../a.safetensors\": must be the name"), "{error}");
    fs::remove_file(path.join("b.safetensors")).unwrap();
    map["model.norm.weight"] = json!("a.safetensors");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("b.safetensors: "));
}

#[test]
fn a_missing_superfluous_or_misshapen_tensor_is_named_with_its_file() {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    let error = |change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = saved(&tiny(), folder.path());
        change_tensors(&path, change);
        read(&path).unwrap_err().to_string()
    };
    let missing = error(&|tensors| drop(tensors.remove("model.layers.1.mlp.up_proj.weight")));
    assert!(
        missing.ends_with("model.safetensors: tensor `model.layers.1.mlp.up_proj.weight` is missing"),
        "{missing}"
    );
    let extra = error(&|tensors| drop(tensors.insert("model.layers.2.x".into(), zeros(&[1], DType::F32))));
    assert!(extra.contains("tensor `model.layers.2.x` is not a part of the architecture"), "{extra}");
    let shape = error(&|tensors| drop(tensors.insert("model.norm.weight".into(), zeros(&[9], DType::F32))));
    assert!(
        shape.contains("tensor `model.norm.weight` has shape [9], the configuration makes it [8]"),
        "{shape}"
    );
    let kind = error(&|tensors| drop(tensors.insert("model.norm.weight".into(), zeros(&[8], DType::U8))));
    assert!(kind.contains("tensor `model.norm.weight` is of type U8, supported are"), "{kind}");
}

#[test]
fn tensors_without_use_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved(&tiny(), folder.path());
    change_tensors(&path, |tensors| {
        let head = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("lm_head.weight".into(), head.clone());
        tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), head);
    });
    assert!(read(&path).is_ok());
}

#[test]
fn a_truncated_or_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved(&tiny(), folder.path());
    let weights = path.join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    for length in [0, 7, 100, bytes.len() - 1] {
        fs::write(&weights, &bytes[..length]).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.contains("model.safetensors: ") && error.contains("write it again") || length == 0,
            "{error}"
        );
    }
    fs::remove_file(&weights).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("model.safetensors"));
    fs::remove_file(path.join("config.json")).unwrap();
    assert!(read(&path).unwrap_err().to_string().starts_with("cannot read "));
    assert!(read(&path.join("tokenizer.json")).unwrap_err().to_string().contains("neither a folder"));
}

#[test]
fn what_the_decoder_lacks_is_refused_by_field_and_value() {
    let (dense, experts) = (tiny(), qwen3_moe());
    let cases = [
        (&dense, "model_type", json!("gpt2"), "supported are llama"),
        (&dense, "hidden_act", json!("gelu"), "only silu"),
        (&dense, "mlp_bias", json!(true), "biases in feed-forward"),
        (&dense, "attention_bias", json!(true), "output projection"),
        (&dense, "partial_rotary_factor", json!(0.5), "only whole heads"),
        (&dense, "use_sliding_window", json!(true), "sliding window"),
        (&dense, "quantization_config", json!({"bits": 4}), "GGUF"),
        (&dense, "hidden_size", json!(-1), "whole number"),
        (&dense, "hidden_size", json!(null), "needs it"),
        (&dense, "tie_word_embeddings", json!("yes"), "true or false"),
        (&experts, "decoder_sparse_step", json!(2), "in all layers or in none"),
        (&experts, "mlp_only_layers", json!([0]), "in all layers or in none"),
    ];
    for (config, field, value, why) in cases {
        let error = with_field(config, field, value).unwrap_err();
        assert!(error.starts_with(&format!("config.json: `{field}` is ")) && error.contains(why), "{error}");
    }
    let window =
        with_field(&dense, "layer_types", json!(["full_attention", "sliding_attention"])).unwrap_err();
    assert!(window.contains("`layer_types` is \"sliding_attention\""), "{window}");
    let heads = with_field(&dense, "num_key_value_heads", json!(3)).unwrap_err();
    assert!(heads.contains("must be a multiple of `kv_heads` (3)"), "{heads}");
}

#[test]
fn a_mistral_without_a_window_is_a_llama() {
    let mut fields = config::write(&tiny()).unwrap();
    fields.insert("model_type".into(), json!("mistral"));
    let parse = |fields: &serde_json::Map<String, Value>| config::parse(Path::new("c"), fields);
    fields.insert("sliding_window".into(), Value::Null);
    assert_eq!(parse(&fields).unwrap(), tiny());
    fields.insert("sliding_window".into(), json!(16));
    assert!(parse(&fields).unwrap_err().to_string().contains("`sliding_window` is 16"));
}

#[test]
fn the_number_of_experts_has_two_names() {
    let mut fields = config::write(&qwen3_moe()).unwrap();
    let count = fields.remove("num_experts").unwrap();
    let error = config::parse(Path::new("c"), &fields).unwrap_err().to_string();
    assert!(error.contains("`num_local_experts` is missing"), "{error}");
    fields.insert("num_local_experts".into(), count);
    assert_eq!(config::parse(Path::new("c"), &fields).unwrap(), qwen3_moe());
}

#[test]
fn rotary_scaling_is_read_in_every_spelling() {
    let read = |changes: &[(&str, Value)]| {
        let mut fields = config::write(&tiny()).unwrap();
        fields.remove("rope_parameters");
        for (name, value) in changes {
            fields.insert((*name).into(), value.clone());
        }
        config::parse(Path::new("c"), &fields).map(|config| (config.rope_theta, config.rope_scaling))
    };
    let linear = Some(RopeScaling::Linear { factor: 2.0 });
    assert_eq!(
        read(&[("rope_scaling", json!({"type": "linear", "factor": 2}))]).unwrap(),
        (1e4, linear.clone())
    );
    let new = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5});
    assert_eq!(read(&[("rope_parameters", new)]).unwrap(), (5e5, linear));
    let llama = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 8192,
    };
    assert_eq!(read(&[("rope_scaling", llama)]).unwrap().1, Some(expected));
    let yarn = |attention_factor| RopeScaling::Yarn {
        factor: 4.0,
        original_context: 8,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor,
    };
    let fields = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8});
    assert_eq!(read(&[("rope_scaling", fields.clone())]).unwrap().1, Some(yarn(None)));
    let mut scaled = fields;
    scaled["mscale"] = json!(1.0);
    scaled["mscale_all_dim"] = json!(1.0);
    assert_eq!(read(&[("rope_scaling", scaled)]).unwrap().1, Some(yarn(Some(1.0))));
    let refused = |value| read(&[("rope_scaling", value)]).unwrap_err().to_string();
    assert!(
        refused(json!({"type": "dynamic", "factor": 2.0})).contains("`rope_scaling.type` is \"dynamic\"")
    );
    assert!(refused(json!({"rope_type": "linear"})).contains("`rope_scaling.factor` is missing"));
    assert!(refused(json!(7)).contains("`rope_scaling` is 7: must be an object"));
}

#[test]
fn a_value_head_is_kept_beside_the_model_or_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = DecoderConfig { value_head: true, ..tiny() };
    let decoder = Decoder::new(config, &Device::Cpu).unwrap();
    let ones = Tensor::ones((1, 8), DType::F32, &Device::Cpu).unwrap();
    let named = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let named = named.iter().map(|(name, tensor)| {
        (name.to_owned(), if name == VALUE_HEAD { ones.clone() } else { tensor.clone() })
    });
    let parameters = decoder.layout().adopt(named.collect(), &Device::Cpu).unwrap();
    let path = folder.path().join("model");
    save(&path, &decoder, &parameters, &Tokenizer::characters(ALPHABET).unwrap()).unwrap();
    let options = LoadOptions { value_head: true, ..LoadOptions::default() };
    let head = |options| {
        let model = load(&path, options, &Device::Cpu).unwrap();
        model
            .parameters
            .iter()
            .find(|(name, _)| *name == VALUE_HEAD)
            .map(|(_, t)| t.to_vec2::<f32>().unwrap())
    };
    assert_eq!(head(options), Some(vec![vec![1.0; 8]]));
    assert_eq!(head(LoadOptions::default()), None);
    fs::remove_file(path.join(VALUE_HEAD_FILE)).unwrap();
    assert_eq!(head(options), Some(vec![vec![0.0; 8]]));
}

#[test]
fn a_shorter_context_can_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved(&tiny(), folder.path());
    let with =
        |context| load(&path, LoadOptions { context: Some(context), ..LoadOptions::default() }, &Device::Cpu);
    assert_eq!(with(16).unwrap().decoder.config().context, 16);
    assert!(with(33).unwrap_err().to_string().contains("`context` is 33: the model is made for at most 32"));
}

#[test]
fn a_model_is_not_written_over_another_nor_half() {
    let folder = tempfile::tempdir().unwrap();
    let (path, parameters) = saved(&tiny(), folder.path());
    let tokenizer = Tokenizer::characters(ALPHABET).unwrap();
    let decoder = Decoder::new(tiny(), &Device::Cpu).unwrap();
    let error = save(&path, &decoder, &parameters, &tokenizer).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    fs::create_dir_all(folder.path().join(".partial-other").join("left over")).unwrap();
    save(&folder.path().join("other"), &decoder, &parameters, &tokenizer).unwrap();
    assert_eq!(names(folder.path()), ["model", "other"]);
    let unknown = DecoderConfig { attention_bias: true, query_key_norm: true, ..tiny() };
    let decoder = Decoder::new(unknown, &Device::Cpu).unwrap();
    let error = save(&folder.path().join("third"), &decoder, &parameters, &tokenizer).unwrap_err();
    assert!(error.to_string().contains("none has both `attention_bias` and `query_key_norm`"));
    assert_eq!(names(folder.path()), ["model", "other"]);
}

#[test]
fn a_tokenizer_larger_than_the_embedding_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved(&tiny(), folder.path());
    for (name, bytes) in Tokenizer::characters("0123456789+=ab").unwrap().to_files().unwrap() {
        fs::write(path.join(name), bytes).unwrap();
    }
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("the tokenizer has 20 tokens, the model has embeddings for 18"), "{error}");
}

#[test]
fn adapters_are_put_into_the_weights_of_a_saved_model_or_saved_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, base) = saved(&tiny(), folder.path());
    let adapters = LoraConfig { rank: 2, alpha: 3.0, targets: vec![LoraTarget::Value, LoraTarget::Down] };
    let model = read(&path).unwrap().adapted(&adapters, 5).unwrap();
    // B starts at zero, and so would what is put in.
    let named = model.parameters.iter().map(|(name, tensor)| {
        let tensor = if lora::is_adapter(name) { (tensor + 0.5).unwrap() } else { tensor.clone() };
        (name.to_owned(), tensor)
    });
    let parameters = model.decoder.layout().adopt(named.collect(), &Device::Cpu).unwrap();
    let whole = folder.path().join("whole");
    save(&whole, &model.decoder, &parameters, &model.tokenizer).unwrap();
    let whole = read(&whole).unwrap();
    assert_eq!(whole.decoder.config(), &tiny());
    for ((name, before), (_, after)) in bits(&base).iter().zip(bits(&whole.parameters)) {
        let adapted = name.contains("v_proj") || name.contains("down_proj");
        assert_eq!(before != &after, adapted, "{name}");
    }

    let alone = folder.path().join("alone");
    save_adapters(&alone, &model.decoder, &parameters, Some(Path::new("some/model"))).unwrap();
    assert_eq!(names(&alone), ["adapter_config.json", "adapter_model.safetensors"]);
    let settings: Value =
        serde_json::from_slice(&fs::read(alone.join("adapter_config.json")).unwrap()).unwrap();
    assert_eq!(settings["r"], 2);
    assert_eq!(settings["target_modules"], json!(["v_proj", "down_proj"]));
    let file = alone.join("adapter_model.safetensors");
    let tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    assert_eq!(tensors.len(), 2 * 2 * 2);
    let adopted = lora::adopt(
        model.decoder.layout(),
        base.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect(),
        Some(tensors.into_iter().collect()),
        0,
        &Device::Cpu,
    );
    assert_eq!(bits(&adopted.unwrap()), bits(&parameters));

    let plain = read(&path).unwrap();
    let error = save_adapters(&folder.path().join("none"), &plain.decoder, &plain.parameters, None);
    assert!(error.unwrap_err().to_string().contains("no adapters"));
}
