//! The bytes that each token stands for, and text out of a stream of them.
//!
//! A token of a byte-level vocabulary may be a part of a character, so texts are put together from bytes. Pieces are
//! taken as they stand inside a text: the bytes of a sequence are the pieces of its tokens one after another, whatever
//! the sequence is cut into. Bytes that are not UTF-8 become U+FFFD, in a stream as in [`String::from_utf8_lossy`].

use std::collections::BTreeSet;

use serde_json::Value;
use tokenizers::Tokenizer as Model;

use super::TokenizerError;

/// What spaces are written as in SentencePiece vocabularies.
const SPACE_MARK: char = '\u{2581}';

/// How the vocabulary's spelling of a token becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each character stands for a byte (GPT-2).
    Bytes,
    /// Spaces are marked, and `<0x0A>` stands for a byte (SentencePiece).
    Marked,
    /// The token's own characters.
    Plain,
}

/// The bytes of every token.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    /// By id; empty for ids without a token.
    bytes: Vec<Box<[u8]>>,
    /// Ids of special tokens, which are no part of what a model says.
    special: BTreeSet<u32>,
}

impl Pieces {
    pub(super) fn new(model: &Model, origin: &str) -> Result<Self, TokenizerError> {
        let spelling = spelling(model, origin)?;
        let added = model.get_added_tokens_decoder();
        let vocabulary = model.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let mut bytes = vec![Box::default(); size];
        for (token, id) in vocabulary {
            bytes[id as usize] =
                if added.contains_key(&id) { token.into_bytes().into() } else { spelling.bytes(&token) };
        }
        let special = added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        Ok(Self { bytes, special })
    }

    /// Ids from 0 to the largest that there is.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of a token; none for an id without a token.
    pub(super) fn of(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], AsRef::as_ref)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }
}

impl Spelling {
    fn bytes(self, token: &str) -> Box<[u8]> {
        let bytes = match self {
            Self::Plain => token.as_bytes().to_vec(),
            // A token with a character that stands for no byte is meant as it is.
            Self::Bytes => {
                token.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| token.as_bytes().to_vec())
            }
            Self::Marked => token
                .strip_prefix("<0x")
                .and_then(|rest| u8::from_str_radix(rest.strip_suffix('>')?, 16).ok())
                .map_or_else(|| token.replace(SPACE_MARK, " ").into_bytes(), |byte| vec![byte]),
        };
        bytes.into()
    }
}

/// How tokens are spelled, told by the steps of the tokenizer's decoder.
fn spelling(model: &Model, origin: &str) -> Result<Spelling, TokenizerError> {
    let Some(decoder) = model.get_decoder() else { return Ok(Spelling::Plain) };
    let unsupported =
        |decoder: &str| TokenizerError::Decoder { origin: origin.to_owned(), decoder: decoder.to_owned() };
    let decoder = serde_json::to_value(decoder).map_err(|error| unsupported(&error.to_string()))?;
    let steps = match decoder.get("decoders").and_then(Value::as_array) {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(&decoder),
    };
    let mut spelling = Spelling::Plain;
    for step in steps {
        match step["type"].as_str().unwrap_or_default() {
            "ByteLevel" => spelling = Spelling::Bytes,
            "ByteFallback" | "Metaspace" => spelling = Spelling::Marked,
            "Replace" if step["pattern"]["String"] == SPACE_MARK.to_string() => spelling = Spelling::Marked,
            // They join pieces, or strip the space before a whole text.
            "Fuse" | "Strip" => {}
            other => return Err(unsupported(other)),
        }
    }
    Ok(spelling)
}

/// The byte that a character of a byte-level vocabulary stands for: printable ones for themselves, the others for the
/// remaining bytes in order, from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = character as u32;
    if code < 0x100 {
        return printable(code).then_some(code as u8);
    }
    (0..0x100).filter(|&byte| !printable(byte)).nth(code as usize - 0x100).map(|byte| byte as u8)
}

/// Turns bytes that come in pieces into text; a character comes out when its last byte is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextStream {
    /// The first bytes of a character: at most three.
    pending: Vec<u8>,
}

impl TextStream {
    /// Takes bytes and gives the text that is certain now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete = complete(&self.pending);
        let rest = self.pending.split_off(complete);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// Ends the text: what is pending is no whole character.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    /// Whether bytes wait for the rest of their character.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Length of the bytes before a character that is still incomplete.
fn complete(bytes: &[u8]) -> usize {
    let mut start = 0;
    loop {
        match std::str::from_utf8(&bytes[start..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(invalid) => start += error.valid_up_to() + invalid,
                None => return start + error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let spelled: BTreeSet<u8> = (0..0x144).filter_map(|code| byte_of(char::from_u32(code)?)).collect();
        assert_eq!(spelled.len(), 256);
        assert_eq!(
            [byte_of('a'), byte_of('Ġ'), byte_of('Ċ'), byte_of('中')],
            [Some(b'a'), Some(b' '), Some(b'\n'), None]
        );
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_text() {
        let text = "naïve — 中文 🙂".as_bytes();
        let broken = b"a\xff\xe4\xb8b\xf0\x9f\x99 \xc3";
        for bytes in [text, broken] {
            for width in 1..=bytes.len() {
                let mut stream = TextStream::default();
                let mut read: String = bytes.chunks(width).map(|chunk| stream.push(chunk)).collect();
                read += &stream.finish();
                assert_eq!(read, String::from_utf8_lossy(bytes), "chunks of {width}");
            }
        }
    }

    #[test]
    fn a_character_comes_out_with_its_last_byte() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(&[b'x', 0xf0, 0x9f, 0x99]), "x");
        assert!(stream.is_pending());
        assert_eq!(stream.push(&[0x82]), "🙂");
        assert!(!stream.is_pending());
    }

    #[test]
    fn marked_spaces_and_spelled_bytes_are_read() {
        let bytes = |token| String::from_utf8(Spelling::Marked.bytes(token).into()).unwrap();
        assert_eq!([bytes("▁the"), bytes("<0x0A>"), bytes("<0x>")], [" the", "\n", "<0x>"]);
    }
}
