//! The reference of all settings, as Markdown, written from the types themselves.
//!
//! One section for each table, in order of declaration, with the name, type, default and documentation of every
//! field. Everything comes from the schema (names, types, bounds, doc comments) and from `T::default()`, so the text
//! cannot drift from the code; the same types always give the same bytes.

use std::collections::VecDeque;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;

use super::schema::{Node, Schema, Shape};

/// Markdown sections (from `##` on) that describe every setting of `T`.
///
/// # Panics
/// When `T::default()` cannot be serialised as JSON, which is an error in the type.
#[must_use]
pub fn reference<T: Serialize + JsonSchema + Default>() -> String {
    let schema = Schema::of::<T>();
    let default = serde_json::to_value(T::default()).expect("a configuration's default is plain data");
    let mut writer = Writer::default();
    let top = Section { path: String::new(), node: schema.root(), default: Some(default), above: Vec::new() };
    writer.section(&top);
    while let Some(section) = writer.pending.pop_front() {
        writer.section(&section);
    }
    writer.text
}

/// A table that has yet to be described.
struct Section<'a> {
    /// Empty at the top; `NAME` stands for a free name and `[]` for any element.
    path: String,
    node: Node<'a>,
    /// What `T::default()` has there; `None` inside something that the default does not contain.
    default: Option<Json>,
    /// Definitions around it, to stop at one that contains itself.
    above: Vec<&'a str>,
}

impl Section<'_> {
    fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

#[derive(Default)]
struct Writer<'a> {
    text: String,
    /// Sections after the one in hand, in the order in which they will be written.
    pending: VecDeque<Section<'a>>,
}

impl<'a> Writer<'a> {
    fn section(&mut self, section: &Section<'a>) {
        let heading = if section.path.is_empty() { "Top level" } else { &format!("`{}`", section.path) };
        self.paragraph(&format!("## {heading}"));
        self.paragraph(section.node.target().description().unwrap_or_default());
        let mut below = Vec::new();
        match section.node.shape() {
            Shape::Table(node) => self.fields(section, node, None, &mut below),
            Shape::Tagged { tag, variants } => {
                let standard = section.default.as_ref().and_then(|default| default.get(tag)?.as_str());
                self.paragraph(&match standard {
                    Some(name) => {
                        format!("`{tag}` chooses one of the following; the default is `\"{name}\"`.")
                    }
                    None => format!("`{tag}` chooses one of the following."),
                });
                for (name, node) in variants {
                    self.paragraph(&format!("### `{tag} = \"{name}\"`"));
                    self.paragraph(node.description().unwrap_or_default());
                    let default = section.default.clone().filter(|_| standard == Some(name));
                    let variant =
                        Section { path: section.path.clone(), node, default, above: section.above.clone() };
                    self.fields(&variant, node, Some(tag), &mut below);
                }
            }
            _ => {}
        }
        for section in below.into_iter().rev() {
            self.pending.push_front(section);
        }
    }

    fn fields(
        &mut self,
        section: &Section<'a>,
        node: Node<'a>,
        tag: Option<&str>,
        below: &mut Vec<Section<'a>>,
    ) {
        let fields: Vec<_> = node.fields().filter(|(name, _)| Some(*name) != tag).collect();
        if fields.is_empty() {
            return self.paragraph("No fields.");
        }
        self.text.push_str("| field | type | default | meaning |\n|---|---|---|---|\n");
        let required: Vec<&str> = node.required().collect();
        for (name, field) in fields {
            let written = section.default.as_ref().and_then(|default| default.get(name)).or(field.default());
            let kind = type_cell(field, &section.below(name), written, section, below);
            let default = match written {
                None if required.contains(&name) => "required".to_owned(),
                None | Some(Json::Null) => "unset".to_owned(),
                Some(Json::Object(fields)) if !fields.is_empty() => String::new(),
                Some(value) => format!("`{}`", toml_text(value, field)),
            };
            let meaning = meaning_cell(field);
            for cell in [format!("`{name}`"), kind, default, meaning] {
                let _ = write!(self.text, "| {} ", cell.replace('|', "\\|"));
            }
            self.text.push_str("|\n");
        }
        self.text.push('\n');
    }

    fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.text.push_str("\n\n");
        }
    }
}

/// The type of a field; tables in it become links to sections of their own, which are added to `below`.
fn type_cell<'a>(
    node: Node<'a>,
    path: &str,
    default: Option<&Json>,
    around: &Section<'a>,
    below: &mut Vec<Section<'a>>,
) -> String {
    let mut above = around.above.clone();
    above.extend(node.definition());
    let repeats = node.definition().is_some_and(|name| around.above.contains(&name));
    let here = Section { path: path.to_owned(), node, default: default.cloned(), above };
    match node.shape() {
        Shape::Table(table) if table.fields().next().is_none() => match table.additional() {
            Some(values) if !matches!(values.shape(), Shape::Any) => {
                let values = type_cell(values, &here.below("NAME"), None, &here, below);
                format!("table of named {values}")
            }
            _ => "table, any names".to_owned(),
        },
        Shape::Table(_) | Shape::Tagged { .. } if repeats => "table, as above".to_owned(),
        Shape::Table(_) | Shape::Tagged { .. } => {
            let link = format!("[table](#{})", anchor(path));
            below.push(here);
            link
        }
        Shape::Array { items, length } => {
            let items = type_cell(items, &format!("{path}[]"), None, &here, below);
            length.of_elements(format!("array of {items}"))
        }
        Shape::Union(nodes) => {
            let alternatives: Vec<String> = nodes
                .into_iter()
                .map(|alternative| match alternative.shape() {
                    // A variant that holds something: a table with one field, named like the variant.
                    Shape::Table(table) if table.fields().count() == 1 => {
                        let holds = table.fields().map(|(name, field)| {
                            let inside = default.and_then(|default| default.get(name));
                            format!(
                                "`{name}` = {}",
                                type_cell(field, &here.below(name), inside, &here, below)
                            )
                        });
                        holds.collect()
                    }
                    _ => type_cell(alternative, path, default, &here, below),
                })
                .collect();
            alternatives.join(" or ")
        }
        Shape::Choice(names) => {
            let quoted: Vec<String> = names.iter().map(|(name, _)| format!("`\"{name}\"`")).collect();
            quoted.join(" or ")
        }
        _ => node.in_words(),
    }
}

/// The documentation of a field, and of each string it may be.
fn meaning_cell(field: Node<'_>) -> String {
    let mut text = one_line(field.description().unwrap_or_default());
    let choices = match field.shape() {
        Shape::Choice(names) => names,
        Shape::Union(nodes) => nodes.into_iter().flat_map(choices_of).collect(),
        _ => Vec::new(),
    };
    for (name, description) in choices {
        if let Some(description) = description {
            let _ = write!(text, "<br>`\"{name}\"`: {}", one_line(description));
        }
    }
    text
}

fn choices_of(node: Node<'_>) -> Vec<(&str, Option<&str>)> {
    if let Shape::Choice(names) = node.shape() { names } else { Vec::new() }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A default as it would be written in the file.
fn toml_text(value: &Json, node: Node<'_>) -> String {
    match value {
        Json::Null => "unset".to_owned(),
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && node.is_single_precision() => format!("{:?}", float as f32),
            Some(float) if number.is_f64() => format!("{float:?}"),
            _ => number.to_string(),
        },
        Json::Array(elements) => {
            let items = if let Shape::Array { items, .. } = node.shape() { items } else { node };
            let elements: Vec<String> = elements.iter().map(|element| toml_text(element, items)).collect();
            format!("[{}]", elements.join(", "))
        }
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| {
                    format!("{name} = {}", toml_text(value, node.field(name).unwrap_or(node)))
                })
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::String(_) | Json::Bool(_) => value.to_string(),
    }
}

/// The name that Markdown renderers give to the heading of `path`.
fn anchor(path: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    path.to_lowercase().chars().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::sample::Sample;
    use super::*;

    #[test]
    fn every_setting_stands_in_its_section_with_type_default_and_meaning() {
        let text = reference::<Sample>();
        for line in [
            "## Top level\n\nThe whole.\n\n| field |",
            "| `seed` | integer >= 0 | `0` | Seed of everything random. |",
            "| `learner` | [table](#learner) |  | Where the learning happens. |",
            "| `max_lag` | integer >= 0 | unset | Greatest lag, in updates. |",
            "| `widths` | array of integer >= 0, length >= 1 | `[64, 64]` | Layer widths \\| from the input. |",
            "| `range` | array of 2 elements (number, number) | `[-1.0, 1.0]` |",
            "| `options` | table, any names | `{}` |",
            "| `evaluations` | table of named [table](#evaluationsname) | `{}` |",
            "| `stages` | array of [table](#stages) | `[]` |",
            "| `last` | [table](#last) | unset |",
            "| `sink` | `\"off\"` or `file` = [table](#sinkfile) | `\"off\"` | Where metrics go.<br>`\"off\"`: Nowhere. |",
            "## `learner`\n\nThe learner.\n",
            "| `gamma` | number from 0 to 1 | `0.99` | Discount. |",
            "| `mode` | `\"eager\"` or `\"when_full\"` | `\"eager\"` | When to start.<br>`\"eager\"`: At once.<br>",
            "## `learner.optimizer`\n\nUpdate rules.\n\n`kind` chooses one of the following; the default is `\"adam\"`.\n",
            "### `kind = \"adam\"`\n\nWith moments.\n",
            "| `learning_rate` | number | `0.0003` | Step size. |",
            "### `kind = \"sgd\"`\n",
            "| `learning_rate` | number | required | Step size. |\n| `bits` | integer from 0 to 255 | `0` |",
            "### `kind = \"frozen\"`\n\nParameters stay as they are.\n\nNo fields.\n",
            "## `evaluations.NAME`\n\nOne evaluation.\n",
            "## `stages[]`\n",
            "## `sink.file`\n\nA file for metrics.\n",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn sections_follow_the_declaration_depth_first() {
        let text = reference::<Sample>();
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        let expected = [
            "## Top level",
            "## `learner`",
            "## `learner.optimizer`",
            "## `evaluations.NAME`",
            "## `stages[]`",
            "## `last`",
            "## `sink.file`",
        ];
        assert_eq!(headings, expected);
        assert_eq!(text, reference::<Sample>());
    }

    #[test]
    fn a_type_that_contains_itself_comes_to_an_end() {
        /// Again.
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        struct Nested {
            inner: Option<Box<Nested>>,
            list: Vec<Nested>,
        }
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        struct Top {
            nested: Nested,
        }
        let text = reference::<Top>();
        assert!(
            text.contains("| `inner` | table, as above | unset |")
                && text.contains("array of table, as above")
        );
    }
}
