//! The tokenizer of a GGUF file: byte-level pair encoding, rebuilt from the metadata.
//!
//! The file has the tokens, the merges and the name of the pre-tokenizer; how that one splits a text has to be known.

use serde_json::{Map, Value as Json, json};
use tokenizers::Tokenizer as Model;

use super::super::PretrainedError;
use super::metadata::Metadata;
use crate::policy::Tokenizer;
use crate::policy::tokenizer::Parts;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// A special token, such as a marker of turns.
const CONTROL: i64 = 3;
/// A token that is recognised in a text before it is split, but is a part of the text.
const USER_DEFINED: i64 = 4;
/// A row of the embedding without a token.
const UNUSED: i64 = 5;

/// Words as Llama 3 and Qwen split them; `{DIGITS}` is how many digits may stand together.
const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How a named pre-tokenizer splits a text.
struct Split {
    pre_tokenizer: Json,
    normalizer: Json,
    /// A word that is a token is taken whole, whatever the merges say.
    ignore_merges: bool,
    /// Whether a prompt begins with the begin token when the file does not say.
    adds_begin: bool,
}

impl Split {
    fn named(metadata: Metadata) -> Result<Self, PretrainedError> {
        let byte_level = |split: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": split });
        let plain = |pre_tokenizer| Self {
            pre_tokenizer,
            normalizer: Json::Null,
            ignore_merges: false,
            adds_begin: false,
        };
        let words = |digits: &str| {
            let pattern = WORDS.replace("{DIGITS}", digits);
            json!({ "type": "Sequence", "pretokenizers": [
                { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
                byte_level(false),
            ] })
        };
        match metadata.text(PRE)? {
            Some("gpt-2") => Ok(plain(byte_level(true))),
            Some("smollm" | "starcoder" | "refact" | "command-r") => {
                let digits = json!({ "type": "Digits", "individual_digits": true });
                Ok(plain(json!({ "type": "Sequence", "pretokenizers": [digits, byte_level(true)] })))
            }
            Some("llama-bpe" | "llama3" | "llama-v3") => {
                Ok(Self { ignore_merges: true, adds_begin: true, ..plain(words("{1,3}")) })
            }
            Some("qwen2" | "deepseek-r1-qwen") => {
                Ok(Self { normalizer: json!({ "type": "NFC" }), ..plain(words("")) })
            }
            _ => Err(metadata.wrong(PRE, "supported are gpt-2, smollm, llama-bpe and qwen2")),
        }
    }
}

/// Rebuilds the tokenizer.
pub(super) fn tokenizer(metadata: Metadata) -> Result<Tokenizer, PretrainedError> {
    if metadata.text(MODEL)? != Some("gpt2") {
        return Err(metadata.wrong(MODEL, "only byte-level pair encoding (gpt2) is supported"));
    }
    let split = Split::named(metadata)?;
    let tokens = metadata.texts(TOKENS)?;
    let types = token_types(metadata, tokens.len())?;
    let (mut vocabulary, mut added) = (Map::new(), Vec::new());
    for (id, (token, kind)) in tokens.iter().zip(&types).enumerate() {
        if *kind != UNUSED {
            vocabulary.insert((*token).to_owned(), id.into());
        }
        if matches!(*kind, CONTROL | USER_DEFINED) {
            added.push(json!({
                "id": id, "content": token, "special": *kind == CONTROL,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        }
    }
    let merges: Vec<[&str; 2]> = metadata
        .texts(MERGES)?
        .into_iter()
        .map(|merge| merge.split_once(' ').map(|(left, right)| [left, right]))
        .collect::<Option<_>>()
        .ok_or_else(|| metadata.wrong(MERGES, "must hold pairs of tokens with a space between"))?;
    let special = |role: &str| special(metadata, &tokens, role);
    let begin = special("bos")?;
    let adds_begin = metadata.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(split.adds_begin);
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": split.normalizer,
        "pre_tokenizer": split.pre_tokenizer,
        "post_processor": begin.filter(|_| adds_begin).map(begins_with),
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        "model": {
            "type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": split.ignore_merges,
            "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false,
        },
    });
    let model = Model::from_bytes(file.to_string())
        .map_err(|error| PretrainedError::file(metadata.path, format!("its tokenizer: {error}")))?;
    let name = |special: Option<(u32, &str)>| special.map(|(_, token)| token.to_owned());
    let turn_ends = [special("eot")?, special("eom")?];
    Ok(Tokenizer::assemble(Parts {
        model,
        origin: metadata.path.display().to_string(),
        begin: name(begin),
        end: name(special("eos")?),
        padding: name(special("padding")?),
        ends: turn_ends.into_iter().flatten().map(|(id, _)| id).collect(),
        template: metadata.text("tokenizer.chat_template")?.map(str::to_owned),
    })?)
}

fn token_types(metadata: Metadata, count: usize) -> Result<Vec<i64>, PretrainedError> {
    let list = metadata.list(TYPES)?.ok_or_else(|| metadata.wrong(TYPES, "the tokenizer needs it"))?;
    let types: Option<Vec<i64>> = list
        .iter()
        .map(|value| value.to_i32().map(i64::from).or_else(|_| value.to_u32().map(i64::from)).ok())
        .collect();
    types
        .filter(|types| types.len() == count)
        .ok_or_else(|| metadata.wrong(TYPES, format!("must hold a number for each of the {count} tokens")))
}

/// Id and text of a special token, where the file names one.
fn special<'a>(
    metadata: Metadata,
    tokens: &[&'a str],
    role: &str,
) -> Result<Option<(u32, &'a str)>, PretrainedError> {
    let key = format!("tokenizer.ggml.{role}_token_id");
    let Some(id) = metadata.size(&key)? else { return Ok(None) };
    match tokens.get(id) {
        Some(token) => Ok(Some((id as u32, token))),
        None => Err(metadata.wrong(&key, format!("there are only {} tokens", tokens.len()))),
    }
}

/// The step that puts the begin token in front.
fn begins_with((id, token): (u32, &str)) -> Json {
    let special = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let sequence = |name: &str, kind: u32| json!({ "Sequence": { "id": name, "type_id": kind } });
    let mut specials = Map::new();
    specials.insert(token.to_owned(), json!({ "id": token, "ids": [id], "tokens": [token] }));
    json!({
        "type": "TemplateProcessing",
        "single": [special, sequence("A", 0)],
        "pair": [special, sequence("A", 0), sequence("B", 1)],
        "special_tokens": specials,
    })
}
