//! Overrides from the command line: `--set learner.optimizer.kind=sgd`.
//!
//! An override assigns: tables on the way to its field are created when they are missing, and the value replaces
//! whatever stood there, an array or an inline table as a whole. Later overrides win over earlier ones.

use std::str::FromStr;

use serde::Deserialize;
use toml::{Table, Value};

use super::ConfigError;
use super::path::{Path, Segment};

/// One assignment, parsed from `a.b=value` (so it can be a command-line argument's type).
///
/// The value is TOML; a bare word that is not TOML stands for the string of its letters, so that `env.name=breakout`
/// needs no quotes.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// As given, for error messages.
    pub(super) text: String,
    /// The field.
    pub(super) path: Path,
    /// Its new value.
    pub(super) value: Value,
}

impl Override {
    /// Whether it sets a field of that name at the top of a configuration, or something in it.
    #[must_use]
    pub fn is_under(&self, name: &str) -> bool {
        self.path.segments().first().is_some_and(|first| matches!(first, Segment::Key(key) if key == name))
    }
}

impl FromStr for Override {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let fail = |why: String| ConfigError::Override { text: text.to_owned(), why };
        let (name, value) = split_at_equals(text)
            .ok_or_else(|| fail("expected `field=value`, as in `learner.batch_size=64`".to_owned()))?;
        let path = Path::parse(name).map_err(|why| fail(format!("the field's name is broken: {why}")))?;
        if path.segments().iter().any(|segment| matches!(segment, Segment::Index(_))) {
            return Err(fail("an array is set as a whole, as in `widths=[64, 64]`".to_owned()));
        }
        let value = parse_value(value.trim()).map_err(fail)?;
        Ok(Self { text: text.to_owned(), path, value })
    }
}

/// Splits at the first `=` that is not inside a quoted key.
fn split_at_equals(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (position, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '=') => return Some((&text[..position], &text[position + 1..])),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn parse_value(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("the value is empty; write `\"\"` for an empty string".to_owned());
    }
    match toml::de::ValueDeserializer::parse(text).and_then(Value::deserialize) {
        Ok(value) => Ok(value),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => {
            Err(format!("the value is not valid TOML: {}", error.message()))
        }
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

impl Override {
    /// Assigns the value in `document`.
    ///
    /// # Errors
    /// When something on the way is not a table; the error holds its path.
    pub(super) fn apply(&self, document: &mut Table) -> Result<(), Path> {
        let mut table = document;
        let mut path = Path::default();
        let mut segments = self.path.segments().iter().peekable();
        while let Some(Segment::Key(key)) = segments.next() {
            path = path.key(key);
            if segments.peek().is_none() {
                table.insert(key.clone(), self.value.clone());
                break;
            }
            let below = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            table = below.as_table_mut().ok_or_else(|| path.clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Override {
        text.parse().unwrap()
    }

    #[test]
    fn values_are_toml_and_bare_words_are_strings() {
        for (text, value) in [
            ("a=3", Value::Integer(3)),
            ("a = -3e-4 ", Value::Float(-3e-4)),
            ("a=true", Value::Boolean(true)),
            ("a=\"3\"", Value::String("3".into())),
            ("a=breakout", Value::String("breakout".into())),
            ("a=127.0.0.1:9464", Value::String("127.0.0.1:9464".into())),
            ("a=/tmp/x y", Value::String("/tmp/x y".into())),
            ("a=5#3", Value::String("5#3".into())),
            ("a=b=c", Value::String("b=c".into())),
            ("a=[1, 2]", Value::Array(vec![Value::Integer(1), Value::Integer(2)])),
        ] {
            assert_eq!(parse(text).value, value, "{text}");
        }
        assert_eq!(parse("a={b=1}").value["b"], Value::Integer(1));
        assert_eq!(parse("\"x=y\".z=1").path.to_string(), "\"x=y\".z");
    }

    #[test]
    fn a_broken_override_says_what_would_be_right() {
        for (text, why) in [
            ("a", "expected `field=value`"),
            ("=1", "a key is empty"),
            ("a..b=1", "expected a key before `.b`"),
            ("a=", "the value is empty"),
            ("a=[1", "the value is not valid TOML"),
            ("a={b=1", "the value is not valid TOML"),
            ("a=\"x", "the value is not valid TOML"),
            ("a[0]=1", "an array is set as a whole"),
        ] {
            let message = text.parse::<Override>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("`--set {text}`: ")) && message.contains(why), "{message}");
        }
    }

    #[test]
    fn applying_creates_tables_and_replaces_values_whole() {
        let mut document: Table = toml::from_str("list = [1, 2, 3]\nt = { x = 1, y = 2 }").unwrap();
        for text in ["a.b.c=1", "a.b.d=2", "a.b.c=3", "list=[9]", "t={x=5}"] {
            parse(text).apply(&mut document).unwrap();
        }
        let expected: Table = toml::from_str("list = [9]\nt = { x = 5 }\na.b = { c = 3, d = 2 }").unwrap();
        assert_eq!(document, expected);
    }

    #[test]
    fn applying_below_something_that_is_no_table_names_it() {
        let mut document: Table = toml::from_str("a.b = 3").unwrap();
        let blocked = parse("a.b.c=1").apply(&mut document).unwrap_err();
        assert_eq!(blocked.to_string(), "a.b");
    }
}
