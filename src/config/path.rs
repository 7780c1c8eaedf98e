//! The place of a value in a configuration: `learner.layers[2].size`.
//!
//! The written form is the one a TOML file uses for dotted keys, with `[n]` for the elements of an array. Parsing and
//! printing are inverse to each other.

use std::fmt;

/// One step down from a table or an array.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    /// Into a table.
    Key(String),
    /// Into an array, from 0.
    Index(usize),
}

/// The steps from the top of the document; none for the document itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Path(Vec<Segment>);

impl Path {
    /// Reads the written form.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut path = Self::default();
        let mut rest = text.trim();
        loop {
            let key;
            (key, rest) = split_key(rest)?;
            path = path.key(key);
            while let Some(inside) = rest.strip_prefix('[') {
                let (number, after) = inside.split_once(']').ok_or("`[` is not closed")?;
                let index = number.trim().parse().map_err(|_| format!("`[{number}]` is not an index"))?;
                path = path.index(index);
                rest = after.trim_start();
            }
            if rest.is_empty() {
                return Ok(path);
            }
            rest =
                rest.strip_prefix('.').ok_or_else(|| format!("expected `.` before `{rest}`"))?.trim_start();
        }
    }

    /// The same place, one key deeper.
    pub(super) fn key(&self, key: &str) -> Self {
        self.deeper(Segment::Key(key.to_owned()))
    }

    /// The same place, one element deeper.
    pub(super) fn index(&self, index: usize) -> Self {
        self.deeper(Segment::Index(index))
    }

    fn deeper(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// The table or array that this place is in, or `None` at the top.
    pub(super) fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    /// The steps from the top.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether this is `other` or lies inside it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The value at this place of a document.
    pub(super) fn find<'a>(&self, document: &'a toml::Table) -> Option<&'a toml::Value> {
        let (first, below) = self.0.split_first()?;
        let Segment::Key(key) = first else { return None };
        below.iter().try_fold(document.get(key)?, |value, segment| match segment {
            Segment::Key(key) => value.get(key),
            Segment::Index(index) => value.get(index),
        })
    }
}

/// Takes one key, bare or quoted, off the front.
fn split_key(text: &str) -> Result<(&str, &str), String> {
    if let Some(quote) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        let (key, rest) = text[1..].split_once(quote).ok_or("a quoted key is not closed")?;
        return Ok((key, rest.trim_start()));
    }
    let end = text.find(|letter| !is_bare(letter)).unwrap_or(text.len());
    match text.split_at(end) {
        ("", "") => Err("a key is empty".to_owned()),
        ("", rest) => Err(format!("expected a key before `{rest}`")),
        (key, rest) => Ok((key, rest.trim_start())),
    }
}

/// Whether TOML allows the letter in a key without quotes.
fn is_bare(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    let dot = if position == 0 { "" } else { "." };
                    if !key.is_empty() && key.chars().all(is_bare) {
                        write!(f, "{dot}{key}")?;
                    } else if key.contains('"') {
                        write!(f, "{dot}'{key}'")?;
                    } else {
                        write!(f, "{dot}\"{key}\"")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_path_is_printed_as_it_was_read() {
        for text in ["a", "a.b-c.d_1", "layers[2].size", "a[0][1]", "env.\"a b\".c", "'say \"x\"'.y"] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Path::parse(" a . b [ 1 ] ").unwrap().to_string(), "a.b[1]");
    }

    #[test]
    fn a_broken_path_says_where() {
        for (text, why) in [
            ("", "a key is empty"),
            ("a.", "a key is empty"),
            (".a", "expected a key before `.a`"),
            ("a b", "expected `.` before `b`"),
            ("a[x]", "`[x]` is not an index"),
            ("a[1", "`[` is not closed"),
            ("\"a", "a quoted key is not closed"),
        ] {
            assert_eq!(Path::parse(text).unwrap_err(), why);
        }
    }

    #[test]
    fn a_path_finds_its_value() {
        let document: toml::Table = toml::from_str("a = { b = [10, { c = 20 }] }").unwrap();
        let find = |text| Path::parse(text).unwrap().find(&document).and_then(toml::Value::as_integer);
        assert_eq!(find("a.b[0]"), Some(10));
        assert_eq!(find("a.b[1].c"), Some(20));
        assert_eq!(find("a.b[2]"), None);
        assert_eq!(find("a.b.c"), None);
    }
}
