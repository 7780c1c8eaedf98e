//! A tokenizer for models from scratch: one token a character.
//!
//! Ids: the special tokens in the order of [`SPECIALS`], then the alphabet's characters in their order. The special
//! tokens are the end, the padding and one marker for each role of a chat, so that a chat costs two tokens a message.
//! It is an ordinary tokenizer of the `tokenizers` library, so other programs read what is saved of it.

use serde_json::json;
use tokenizers::Tokenizer as Model;

use super::{Parts, Tokenizer, TokenizerError};

const END: &str = "<|end|>";
const PADDING: &str = "<|pad|>";
const SPECIALS: [&str; 6] = [END, PADDING, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"];

/// A role's marker, what was said, the end.
const TEMPLATE: &str = "\
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}
        {{- raise_exception('there is no token for the role ' + message['role']) }}
    {%- endif %}
    {{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}";

impl Tokenizer {
    /// A tokenizer with one token for each character of `alphabet` (repeats count once) and the special tokens
    /// `<|end|>`, `<|pad|>`, `<|system|>`, `<|user|>`, `<|assistant|>` and `<|tool|>`. Other characters are refused when
    /// a text is encoded.
    ///
    /// # Errors
    /// When the alphabet is empty.
    pub fn characters(alphabet: &str) -> Result<Self, TokenizerError> {
        if alphabet.is_empty() {
            return Err(TokenizerError::Alphabet("it has no characters".into()));
        }
        let mut vocabulary = serde_json::Map::new();
        let characters = alphabet.chars().map(String::from);
        for token in SPECIALS.map(String::from).into_iter().chain(characters) {
            let next = vocabulary.len();
            vocabulary.entry(token).or_insert_with(|| next.into());
        }
        let special = |(id, token): (usize, &&str)| {
            json!({
                "id": id, "content": token, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        };
        let file = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": SPECIALS.iter().enumerate().map(special).collect::<Vec<_>>(),
            "normalizer": null,
            "pre_tokenizer": {
                "type": "Split", "pattern": { "Regex": r"[\s\S]" }, "behavior": "Isolated", "invert": false,
            },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            // The unknown token is not in the vocabulary, so an unknown character is an error.
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unknown>" },
        });
        let model = Model::from_bytes(file.to_string())
            .map_err(|error| TokenizerError::Alphabet(error.to_string()))?;
        Self::assemble(Parts {
            model,
            origin: "characters".into(),
            begin: None,
            end: Some(END.into()),
            padding: Some(PADDING.into()),
            ends: Vec::new(),
            template: Some(TEMPLATE.into()),
        })
    }
}
