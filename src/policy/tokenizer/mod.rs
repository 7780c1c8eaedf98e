//! Text to token ids and back, and chats to prompts.
//!
//! A [`Tokenizer`] is a Hugging Face tokenizer ([`Tokenizer::from_folder`], or rebuilt from a GGUF file), or one token
//! a character for models from scratch ([`Tokenizer::characters`]). Invariants:
//!
//! - Texts are put together from the bytes of tokens, so decoding ids in pieces gives the same bytes as all at once
//!   ([`Tokenizer::bytes`], [`TextStream`]).
//! - Encoding adds no token of its own, except the begin token of [`Tokenizer::encode_prompt`], never twice. Special
//!   tokens that are spelled out in a text are recognised.
//! - What was generated is never encoded again: [`Tokenizer::continue_chat`] gives the ids that follow an answer, and
//!   refuses templates that rewrite what stands before.
//! - There is at least one id that ends an answer.

mod characters;
mod chat;
mod error;
mod files;
mod pieces;
#[cfg(test)]
mod tests;

use tokenizers::Tokenizer as Model;

pub use error::TokenizerError;
pub use pieces::TextStream;

use crate::trajectory::Message;
use chat::ChatTemplate;
use pieces::Pieces;

/// Characters of a text that an error quotes.
const EXCERPT: usize = 40;

/// What a tokenizer is made of.
pub(crate) struct Parts {
    pub(crate) model: Model,
    /// Where it comes from, for errors.
    pub(crate) origin: String,
    pub(crate) begin: Option<String>,
    pub(crate) end: Option<String>,
    pub(crate) padding: Option<String>,
    /// Ids that end an answer, besides `end`.
    pub(crate) ends: Vec<u32>,
    pub(crate) template: Option<String>,
}

/// Text to token ids and back, and chats to prompts.
pub struct Tokenizer {
    model: Model,
    origin: String,
    pieces: Pieces,
    begin: Option<u32>,
    end: Option<u32>,
    padding: Option<u32>,
    /// Ids that end an answer; never empty.
    ends: Vec<u32>,
    /// Whether a prompt begins with the begin token.
    adds_begin: bool,
    template: Option<ChatTemplate>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("origin", &self.origin)
            .field("vocabulary_size", &self.vocabulary_size())
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    pub(crate) fn assemble(parts: Parts) -> Result<Self, TokenizerError> {
        let Parts { model, origin, begin, end, padding, mut ends, template } = parts;
        let pieces = Pieces::new(&model, &origin)?;
        let id = |role, token: Option<String>| {
            let Some(token) = token else { return Ok(None) };
            let unknown =
                || TokenizerError::UnknownSpecial { origin: origin.clone(), role, token: token.clone() };
            model.token_to_id(&token).ok_or_else(unknown).map(Some)
        };
        let (begin, end, padding) =
            (id("begin token", begin)?, id("end token", end)?, id("padding token", padding)?);
        ends.extend(end.filter(|end| !ends.contains(end)));
        if ends.is_empty() {
            return Err(TokenizerError::MissingSpecial {
                origin,
                role: "end token",
                hint: "set `eos_token` in tokenizer_config.json or `eos_token_id` in generation_config.json",
            });
        }
        let adds_begin = match begin {
            Some(begin) => encode(&model, "", true)?.contains(&begin),
            None => false,
        };
        let template = template.as_deref().map(ChatTemplate::new).transpose()?;
        Ok(Self { model, origin, pieces, begin, end, padding, ends, adds_begin, template })
    }

    /// Ids of a text as it stands. Special tokens spelled out in it are recognised; none is added.
    ///
    /// # Errors
    /// When a character has no token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        encode(&self.model, text, false)
    }

    /// Ids of a text that a model goes on from: with the begin token in front where the model was trained so, unless
    /// the text has it already.
    ///
    /// # Errors
    /// When a character has no token.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text)?;
        if let Some(begin) = self.begin.filter(|&begin| self.adds_begin && ids.first() != Some(&begin)) {
            ids.insert(0, begin);
        }
        Ok(ids)
    }

    /// Ids of a chat that the model is to answer. Special tokens are the template's matter: none is added.
    ///
    /// # Errors
    /// When there is no chat template, it refuses the messages, or a character has no token.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, TokenizerError> {
        self.encode(&self.render(messages, true)?)
    }

    /// The text of a chat; with `add_generation_prompt`, up to where the model's answer begins. What the template does
    /// without a system message (such as a default one) is done here too.
    ///
    /// # Errors
    /// When there is no chat template, or it refuses the messages.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let template = self
            .template
            .as_ref()
            .ok_or_else(|| TokenizerError::NoTemplate { origin: self.origin.clone() })?;
        let specials = [("bos_token", self.begin), ("eos_token", self.end), ("pad_token", self.padding)]
            .map(|(name, id)| Some((name, self.model.id_to_token(id?)?)));
        let specials: Vec<(&'static str, &str)> =
            specials.iter().flatten().map(|(name, token)| (*name, token.as_str())).collect();
        template.render(messages, add_generation_prompt, &specials)
    }

    /// Ids that follow an answer when the chat goes on: what closes the answer (unless it closed itself), the messages
    /// of `turn`, and the beginning of the next answer.
    ///
    /// `messages` are all before the answer, `answer` the ids that the model generated. Nothing before them is encoded
    /// again.
    ///
    /// # Errors
    /// As [`encode_chat`](Self::encode_chat), and when the template would write the earlier messages or the answer
    /// differently now that others follow.
    pub fn continue_chat(
        &self,
        messages: &[Message],
        answer: &[u32],
        turn: &[Message],
    ) -> Result<Vec<u32>, TokenizerError> {
        let rewritten = |what| TokenizerError::Rewritten { what };
        let said = self.decode_plain(answer);
        let opened = self.render(messages, true)?;
        let mut all = messages.to_vec();
        all.push(Message::assistant(&said));
        let closed = self.render(&all, false)?;
        all.extend_from_slice(turn);
        let full = self.render(&all, true)?;
        let following = full.strip_prefix(&closed).ok_or(rewritten("with messages after the answer"))?;
        let answered = closed.strip_prefix(&opened).ok_or(rewritten("before the answer"))?;
        // Some templates trim what was said; the blanks that the model wrote stay where they are.
        let closing = answered.strip_prefix(said.as_str()).or_else(|| answered.strip_prefix(said.trim()));
        let closing = closing.ok_or(rewritten("the answer itself"))?;
        let end = answer.last().filter(|id| self.ends.contains(id)).map(|&id| self.decode(&[id]));
        let closing = match end {
            Some(end) => closing.trim_start().strip_prefix(end.as_str()).unwrap_or(closing),
            None => closing,
        };
        self.encode(&format!("{closing}{following}"))
    }

    /// The text of ids, special tokens spelled out. Bytes that are no character become U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text of ids without special tokens: what a model said.
    #[must_use]
    pub fn decode_plain(&self, ids: &[u32]) -> String {
        let plain: Vec<u32> = ids.iter().copied().filter(|&id| !self.is_special(id)).collect();
        self.decode(&plain)
    }

    /// The bytes of a token, as a [`TextStream`] takes them; none for an id that has no token.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.pieces.of(id)
    }

    /// Whether a token is special: no part of what a model says.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.is_special(id)
    }

    /// Ids from 0 to the largest that has a token. A model may have rows for more.
    #[must_use]
    pub fn vocabulary_size(&self) -> usize {
        self.pieces.len()
    }

    /// The ids that end an answer: at least one.
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The token that begins a text, where the model has one.
    #[must_use]
    pub fn begin(&self) -> Option<u32> {
        self.begin
    }

    /// The token that fills batches up, where the model has one.
    #[must_use]
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// Whether it has a chat template, so that it takes messages.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }
}

fn encode(model: &Model, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
    let encode = |text: &str| model.encode_fast(text, add_special_tokens);
    encode(text).map(|encoding| encoding.get_ids().to_vec()).map_err(|error| {
        let unknown = text.char_indices().find(|(_, c)| encode(c.encode_utf8(&mut [0; 4])).is_err());
        match unknown {
            Some((position, character)) => TokenizerError::Character { character, position },
            None => TokenizerError::Encode {
                excerpt: text.chars().take(EXCERPT).collect(),
                why: error.to_string(),
            },
        }
    })
}
