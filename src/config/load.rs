//! From TOML text and overrides to a typed configuration, or to one message that says what to change and where.
//!
//! A [`Source`] is a document that remembers where each value was written, so that whoever finds a fault later, such
//! as two fields that contradict each other, can name the lines of both. [`Source::read`] turns it into a type;
//! deserialisation and the type's schema must both accept it, and the schema explains why not.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment as Step;
use toml::de::DeTable;
use toml::{Table, Value};

use super::explain::{self, Fault, FaultKind};
use super::path::Path;
use super::schema::{Node, Schema, Shape};
use super::{ConfigError, Override};

/// Parses `text`, applies the overrides in order, and reads the result as a `T`: [`Source::parse`] and
/// [`Source::read`] in one.
///
/// # Errors
/// The first fault, with its place; see [`ConfigError`].
pub fn load<T>(text: &str, source_name: &str, overrides: &[Override]) -> Result<T, ConfigError>
where
    T: DeserializeOwned + Serialize + JsonSchema + Default,
{
    Source::parse(text, source_name, overrides)?.read()
}

/// A configuration document with the place of each of its values.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name of the file, as messages show it.
    name: String,
    /// Its text, for turning offsets into lines.
    text: String,
    /// The values, overrides applied.
    document: Table,
    /// Where they were written; a value inside an inline override has the origin of the override.
    origins: BTreeMap<Path, Origin>,
}

#[derive(Debug, Clone)]
enum Origin {
    /// Byte offsets in the text; an element of an array has no key, its value stands for it.
    File { key: usize, value: usize },
    /// The override as it was given.
    Override(String),
}

impl Source {
    /// Parses `text` and applies the overrides in order. `name` is what messages call the text, usually its file.
    ///
    /// # Errors
    /// When the text is not TOML, or an override meets something that is not a table on the way to its field.
    pub fn parse(text: &str, name: &str, overrides: &[Override]) -> Result<Self, ConfigError> {
        let mut source = Self {
            name: name.to_owned(),
            text: text.to_owned(),
            document: Table::new(),
            origins: BTreeMap::new(),
        };
        let spanned = DeTable::parse(text).map_err(|error| source.syntax_error(&error))?;
        record_table(&Path::default(), spanned.get_ref(), &mut source.origins);
        source.document = Table::deserialize(toml::de::Deserializer::from(spanned))
            .map_err(|error| source.syntax_error(&error))?;
        for change in overrides {
            source.apply(change)?;
        }
        Ok(source)
    }

    fn apply(&mut self, change: &Override) -> Result<(), ConfigError> {
        change.apply(&mut self.document).map_err(|blocked| ConfigError::Override {
            text: change.text.clone(),
            why: format!("`{blocked}` is not a table ({})", self.place(&blocked, Part::Key)),
        })?;
        self.origins.retain(|path, _| !path.is_within(&change.path));
        let origin = || Origin::Override(change.text.clone());
        self.origins.insert(change.path.clone(), origin());
        let mut above = change.path.parent();
        while let Some(path) = above.filter(|path| !path.segments().is_empty()) {
            self.origins.entry(path.clone()).or_insert_with(origin);
            above = path.parent();
        }
        Ok(())
    }

    /// The document as untyped values, overrides applied.
    #[must_use]
    pub fn document(&self) -> &Table {
        &self.document
    }

    /// Takes other values; those that were written keep their places.
    pub(super) fn replace_document(&mut self, document: Table) {
        self.document = document;
    }

    /// Reads the document as a `T`.
    ///
    /// Where a table may be one of several variants and does not say which, it is the one that `T::default()` has
    /// there; so `optimizer.learning_rate = 0.1` alone keeps the default kind of optimiser.
    ///
    /// # Errors
    /// The first fault, with its place; see [`ConfigError`].
    pub fn read<T>(&self) -> Result<T, ConfigError>
    where
        T: DeserializeOwned + Serialize + JsonSchema + Default,
    {
        let schema = Schema::of::<T>();
        let mut document = self.document.clone();
        if let Ok(default) = Table::try_from(T::default()) {
            adopt_default_variants(schema.root(), &mut document, Some(&default));
        }
        let result = serde_path_to_error::deserialize(Value::Table(document.clone()));
        let accepted = result.is_ok();
        let mut faults = explain::faults(schema.root(), &document).into_iter();
        let fault = faults.find(|fault| !accepted || fault.kind.escapes_deserialisation());
        match (result, fault) {
            (Ok(value), None) => Ok(value),
            (_, Some(fault)) => Err(self.fault_error(fault)),
            (Err(error), None) => Err(self.serde_error(&error, &document)),
        }
    }

    /// An error about one or several fields, naming each with the place where it was written. For checks that look
    /// at fields together; `why` says what is wrong and what would be right.
    ///
    /// # Panics
    /// When a path is not in the form `a.b[0].c`.
    #[must_use]
    pub fn error(&self, paths: &[&str], why: impl Into<String>) -> ConfigError {
        let named: Vec<String> = paths
            .iter()
            .map(|text| {
                let path = Path::parse(text).unwrap_or_else(|why| panic!("`{text}` is not a path: {why}"));
                match path.find(&self.document) {
                    Some(_) => format!("`{path}` ({})", self.place(&path, Part::Key)),
                    None => format!("`{path}` (left at its default)"),
                }
            })
            .collect();
        let place = if named.is_empty() { self.name.clone() } else { named.join(" and ") };
        ConfigError::Invalid { place, why: why.into() }
    }

    /// Line and column of a field's name in the text, both from 1, the column in characters; `None` when the field
    /// is not written there, but left at its default or set by an override.
    #[must_use]
    pub fn line_of(&self, path: &str) -> Option<(usize, usize)> {
        match self.origins.get(&Path::parse(path).ok()?)? {
            Origin::File { key, .. } => Some(self.position(*key)),
            Origin::Override(_) => None,
        }
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    fn at(&self, offset: usize) -> String {
        let (line, column) = self.position(offset);
        format!("{}:{line}:{column}", self.name)
    }

    /// Where the value at `path` was written, or the innermost table around it that was written.
    fn place(&self, path: &Path, part: Part) -> String {
        let mut inside = Some(path.clone());
        while let Some(path) = inside {
            match (self.origins.get(&path), part) {
                (Some(Origin::File { key, .. }), Part::Key) => return self.at(*key),
                (Some(Origin::File { value, .. }), Part::Value) => return self.at(*value),
                (Some(Origin::Override(text)), _) => return format!("`--set {text}`"),
                (None, _) => inside = path.parent(),
            }
        }
        self.name.clone()
    }

    fn syntax_error(&self, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map_or(self.text.len(), |span: Range<usize>| span.start);
        ConfigError::Syntax { place: self.at(offset), why: error.message().trim_end().to_owned() }
    }

    fn fault_error(&self, Fault { path, kind }: Fault) -> ConfigError {
        let place = |part| self.place(&path, part);
        let path = path.to_string();
        match kind {
            FaultKind::UnknownField { advice } => {
                ConfigError::UnknownField { place: place(Part::Key), path, advice }
            }
            FaultKind::UnknownVariant { value, advice } => {
                ConfigError::UnknownVariant { place: place(Part::Value), path, value, advice }
            }
            FaultKind::MissingField { expected } => {
                ConfigError::MissingField { place: place(Part::Key), path, expected }
            }
            FaultKind::WrongType { expected, found } | FaultKind::OutOfBounds { expected, found } => {
                ConfigError::WrongValue { place: place(Part::Value), path, expected, found }
            }
        }
    }

    /// For what the schema does not tell, such as a type with a deserialiser of its own.
    fn serde_error(
        &self,
        error: &serde_path_to_error::Error<toml::de::Error>,
        document: &Table,
    ) -> ConfigError {
        let mut path = Path::default();
        for step in error.path() {
            path = match step {
                Step::Map { key } => path.key(key),
                Step::Seq { index } => path.index(*index),
                Step::Enum { variant } if path.key(variant).find(document).is_some() => path.key(variant),
                Step::Enum { .. } | Step::Unknown => break,
            };
        }
        let why = error.inner().message().trim_end();
        let why = if path.segments().is_empty() { why.to_owned() } else { format!("`{path}`: {why}") };
        ConfigError::Invalid { place: self.place(&path, Part::Value), why }
    }
}

/// Which end of `key = value` a message points to.
#[derive(Clone, Copy)]
enum Part {
    Key,
    Value,
}

fn record_table(path: &Path, table: &DeTable<'_>, origins: &mut BTreeMap<Path, Origin>) {
    for (key, value) in table {
        record(path.key(key.get_ref()), key.span().start, value, origins);
    }
}

fn record(
    path: Path,
    key: usize,
    spanned: &toml::Spanned<toml::de::DeValue<'_>>,
    origins: &mut BTreeMap<Path, Origin>,
) {
    let value = spanned.get_ref();
    if let Some(table) = value.as_table() {
        record_table(&path, table, origins);
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        record(path.index(index), element.span().start, element, origins);
    }
    // The span of a table is that of one of its headers, which need not be the first; its name says more.
    let value = if value.is_table() { key } else { spanned.span().start };
    origins.insert(path, Origin::File { key, value });
}

/// Writes the default's variant into every table that may be one of several and does not say which.
fn adopt_default_variants(node: Node<'_>, table: &mut Table, default: Option<&Table>) {
    let fields = match node.shape() {
        Shape::Table(fields) => fields,
        Shape::Tagged { tag, variants } => {
            let standard = default.and_then(|default| default.get(tag));
            if let (None, Some(standard)) = (table.get(tag), standard) {
                table.insert(tag.to_owned(), standard.clone());
            }
            let name = table.get(tag).and_then(Value::as_str);
            match variants.iter().find(|(variant, _)| Some(*variant) == name) {
                Some((_, fields)) => *fields,
                None => return,
            }
        }
        _ => return,
    };
    for (name, value) in table {
        if let (Some(node), Value::Table(below)) = (fields.field(name), value) {
            adopt_default_variants(node, below, default.and_then(|table| table.get(name)?.as_table()));
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
