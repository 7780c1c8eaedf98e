//! Tokenizers as folders: `tokenizer.json` and, beside it, the special tokens and the chat template.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer as Model;

use super::{Parts, Tokenizer, TokenizerError};

const MODEL: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

impl Tokenizer {
    /// Reads the tokenizer of a Hugging Face model folder.
    ///
    /// `tokenizer.json` is the tokenizer. The special tokens come from `tokenizer_config.json` or
    /// `special_tokens_map.json`; the ids that end an answer from `generation_config.json`, or else `config.json`,
    /// and the tokenizer's own end token; the chat template from `chat_template.jinja` or `tokenizer_config.json`.
    ///
    /// # Errors
    /// When a file cannot be read or does not hold what it should, or no token ends an answer.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join(MODEL);
        let bytes = fs::read(&path).map_err(TokenizerError::io("read", &path))?;
        let mut model =
            Model::from_bytes(bytes).map_err(|error| TokenizerError::file(&path, error.to_string()))?;
        // Saved settings of a training script; here they would silently cut prompts.
        model.with_truncation(None).map_err(|error| TokenizerError::file(&path, error.to_string()))?;
        model.with_padding(None);
        let config = read_object(&folder.join(CONFIG))?;
        let map = read_object(&folder.join("special_tokens_map.json"))?;
        let special = |name: &str| [&config, &map].into_iter().find_map(|source| token_text(&source[name]));
        let mut ends = end_ids(&folder.join("generation_config.json"))?;
        if ends.is_empty() {
            ends = end_ids(&folder.join("config.json"))?;
        }
        Self::assemble(Parts {
            model,
            origin: folder.display().to_string(),
            begin: special("bos_token"),
            end: special("eos_token"),
            padding: special("pad_token"),
            ends,
            template: template(folder, &config["chat_template"])?,
        })
    }

    /// Files of this tokenizer in a Hugging Face model folder, by name.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn to_files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, TokenizerError> {
        let failed = |why: String| TokenizerError::File {
            path: MODEL.into(),
            why: format!("cannot be written: {why}"),
        };
        let model = self.model.to_string(false).map_err(|error| failed(error.to_string()))?;
        let name = |id: u32| self.model.id_to_token(id);
        let end = self.end.or(self.ends.first().copied()).and_then(name);
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        for (role, token) in [
            ("bos_token", self.begin.and_then(name)),
            ("eos_token", end),
            ("pad_token", self.padding.and_then(name)),
        ] {
            if let Some(token) = token {
                config.insert(role.into(), token.into());
            }
        }
        if let Some(template) = &self.template {
            config.insert("chat_template".into(), template.source().into());
        }
        let config = serde_json::to_vec_pretty(&config).map_err(|error| failed(error.to_string()))?;
        Ok(vec![(MODEL, model.into_bytes()), (CONFIG, config)])
    }
}

/// A JSON object; empty when there is no such file.
fn read_object(path: &Path) -> Result<Value, TokenizerError> {
    if !path.exists() {
        return Ok(json!({}));
    }
    let bytes = fs::read(path).map_err(TokenizerError::io("read", path))?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(_) => Err(TokenizerError::file(path, "must hold a JSON object")),
        Err(error) => Err(TokenizerError::file(path, format!("not valid JSON: {error}"))),
    }
}

/// A special token is written as its text or as an object that has it.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

/// `eos_token_id` is one id, a list of ids, or absent.
fn end_ids(path: &Path) -> Result<Vec<u32>, TokenizerError> {
    let object = read_object(path)?;
    let wrong = || {
        let value = &object["eos_token_id"];
        TokenizerError::file(path, format!("`eos_token_id` is {value}, must be a token id or a list of them"))
    };
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong);
    match &object["eos_token_id"] {
        Value::Null => Ok(Vec::new()),
        Value::Array(ids) => ids.iter().map(id).collect(),
        one => Ok(vec![id(one)?]),
    }
}

/// The chat template of a folder: a file of its own, or a field that has one or several by name.
fn template(folder: &Path, field: &Value) -> Result<Option<String>, TokenizerError> {
    let path = folder.join(TEMPLATE);
    if path.exists() {
        return fs::read_to_string(&path).map(Some).map_err(TokenizerError::io("read", &path));
    }
    match field {
        Value::Null => Ok(None),
        Value::String(template) => Ok(Some(template.clone())),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default");
            Ok(default.and_then(|entry| entry["template"].as_str()).map(str::to_owned))
        }
        other => {
            let why = format!("`chat_template` is {other}, must be a text or a list of named texts");
            Err(TokenizerError::file(&folder.join(CONFIG), why))
        }
    }
}
