//! Finds out what is wrong with a document by walking it beside the schema of its type.
//!
//! Deserialisation stops at the first thing it cannot use and, inside enums, no longer knows where it is; the walk
//! knows the full path and every name that would have been allowed. It also finds what deserialisation lets pass: values
//! outside the bounds that a type declares with `#[schemars(range(...))]` and `length`, and unknown fields beside the
//! tag of a variant that has none. The schema knows one name for each field, so `#[serde(alias)]` cannot be used.

use toml::{Table, Value};

use super::path::Path;
use super::schema::{Bounds, Node, Shape};
use super::suggest;

/// Something that cannot be right, in order of the document.
pub(super) struct Fault {
    pub(super) path: Path,
    pub(super) kind: FaultKind,
}

pub(super) enum FaultKind {
    UnknownField {
        advice: String,
    },
    UnknownVariant {
        value: String,
        advice: String,
    },
    MissingField {
        expected: String,
    },
    WrongType {
        expected: String,
        found: String,
    },
    /// The type is right, so deserialisation would accept it.
    OutOfBounds {
        expected: String,
        found: String,
    },
}

impl FaultKind {
    /// Whether deserialisation may accept a document in spite of it.
    pub(super) fn escapes_deserialisation(&self) -> bool {
        matches!(self, Self::UnknownField { .. } | Self::OutOfBounds { .. })
    }
}

/// All faults of `document` as an instance of the schema.
pub(super) fn faults(schema: Node<'_>, document: &Table) -> Vec<Fault> {
    let mut walk = Walk(Vec::new());
    walk.table(schema.shape(), document, &Path::default());
    walk.0
}

struct Walk(Vec<Fault>);

impl Walk {
    fn report(&mut self, path: &Path, kind: FaultKind) {
        self.0.push(Fault { path: path.clone(), kind });
    }

    fn table(&mut self, shape: Shape<'_>, table: &Table, path: &Path) {
        match shape {
            Shape::Table(node) => self.fields(node, table, path, None),
            Shape::Tagged { tag, variants } => {
                let names: Vec<&str> = variants.iter().map(|(name, _)| *name).collect();
                match table.get(tag) {
                    None => {
                        let expected = suggest::one_of(&names);
                        self.report(&path.key(tag), FaultKind::MissingField { expected });
                    }
                    Some(Value::String(name)) => match variants.iter().find(|(known, _)| known == name) {
                        Some((name, node)) => self.fields(*node, table, path, Some((tag, name))),
                        None => self.unknown_variant(&path.key(tag), name, &names),
                    },
                    Some(other) => self.wrong_type(&path.key(tag), suggest::one_of(&names), describe(other)),
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, node: Node<'_>, table: &Table, path: &Path, variant: Option<(&str, &str)>) {
        for (name, value) in table {
            let place = path.key(name);
            match node.field(name).or_else(|| node.additional()) {
                Some(field) => self.value(field, value, &place),
                None => self.unknown_field(node, name, &place, variant),
            }
        }
        for name in node.required().filter(|name| !table.contains_key(*name)) {
            let expected = node.field(name).map_or_else(String::new, Node::in_words);
            self.report(&path.key(name), FaultKind::MissingField { expected });
        }
    }

    fn unknown_field(&mut self, node: Node<'_>, name: &str, place: &Path, variant: Option<(&str, &str)>) {
        let tag = variant.map(|(tag, _)| tag);
        let allowed: Vec<&str> =
            node.fields().map(|(name, _)| name).filter(|name| Some(*name) != tag).collect();
        let mut advice = suggest::advice(name, &allowed);
        if let Some((tag, variant)) = variant {
            advice = format!("with {tag} = \"{variant}\", {advice}");
        }
        self.report(place, FaultKind::UnknownField { advice });
    }

    fn value(&mut self, node: Node<'_>, value: &Value, path: &Path) {
        match (node.shape(), value) {
            (Shape::Any, _) | (Shape::Boolean, Value::Boolean(_)) | (Shape::String, Value::String(_)) => {}
            (Shape::Integer(bounds) | Shape::Number(bounds), Value::Integer(number)) => {
                self.bounds(bounds, *number as f64, node, value, path);
            }
            (Shape::Number(bounds), Value::Float(number)) => self.bounds(bounds, *number, node, value, path),
            (Shape::Choice(names), Value::String(name)) => {
                let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                if !names.contains(&name.as_str()) {
                    self.unknown_variant(path, name, &names);
                }
            }
            (Shape::Array { items, length }, Value::Array(elements)) => {
                self.bounds(length, elements.len() as f64, node, value, path);
                for (index, element) in elements.iter().enumerate() {
                    self.value(items, element, &path.index(index));
                }
            }
            (Shape::Tuple(items), Value::Array(elements)) if items.len() == elements.len() => {
                for (index, (item, element)) in items.iter().zip(elements).enumerate() {
                    self.value(*item, element, &path.index(index));
                }
            }
            (shape @ (Shape::Table(_) | Shape::Tagged { .. }), Value::Table(table)) => {
                self.table(shape, table, path);
            }
            (Shape::Union(nodes), _) => self.union(&nodes, node, value, path),
            _ => self.wrong_type(path, node.in_words(), describe(value) + &remedy(node, value)),
        }
    }

    /// Explains the alternative that was probably meant: the only one that the kind of value leaves over.
    fn union(&mut self, nodes: &[Node<'_>], whole: Node<'_>, value: &Value, path: &Path) {
        let attempts: Vec<Vec<Fault>> = nodes
            .iter()
            .map(|node| {
                let mut walk = Self(Vec::new());
                walk.value(*node, value, path);
                walk.0
            })
            .collect();
        if attempts.iter().any(Vec::is_empty) {
            return;
        }
        if let Value::String(name) = value {
            let names: Vec<&str> = nodes.iter().flat_map(|node| variant_names(*node)).collect();
            return self.unknown_variant(path, name, &names);
        }
        // A fault at the place itself says that the kind is wrong, or that the variant's name is unknown.
        let inside = |faults: &Vec<Fault>| faults.iter().all(|fault| fault.path != *path);
        let named = |node: &Node<'_>| {
            value.as_table().is_none_or(|table| node.fields().any(|(name, _)| table.contains_key(name)))
        };
        let mut meant = nodes
            .iter()
            .zip(attempts)
            .filter(|(node, faults)| inside(faults) && named(node))
            .map(|both| both.1);
        match (meant.next(), meant.next()) {
            (Some(faults), None) => self.0.extend(faults),
            _ => self.wrong_type(path, whole.in_words(), describe(value)),
        }
    }

    fn bounds(&mut self, bounds: Bounds, number: f64, node: Node<'_>, value: &Value, path: &Path) {
        if !bounds.admit(number) {
            let (expected, found) = (node.in_words(), describe(value));
            self.report(path, FaultKind::OutOfBounds { expected, found });
        }
    }

    fn unknown_variant(&mut self, path: &Path, value: &str, names: &[&str]) {
        let advice = suggest::advice(value, names);
        self.report(path, FaultKind::UnknownVariant { value: value.to_owned(), advice });
    }

    fn wrong_type(&mut self, path: &Path, expected: String, found: String) {
        self.report(path, FaultKind::WrongType { expected, found });
    }
}

/// What is written so often instead of the right thing that the right thing can be told.
fn remedy(node: Node<'_>, value: &Value) -> String {
    match (node.shape(), value) {
        (Shape::String, Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_)) => {
            "; put it in quotes".to_owned()
        }
        (Shape::Integer(_), Value::Float(number)) if number.fract() == 0.0 => format!("; write {number}"),
        _ => String::new(),
    }
}

/// The strings that select an alternative: its constants, or the only field of a variant that holds something.
fn variant_names(node: Node<'_>) -> Vec<&str> {
    match node.shape() {
        Shape::Choice(names) => names.into_iter().map(|(name, _)| name).collect(),
        Shape::Table(table) => table.required().collect(),
        _ => Vec::new(),
    }
}

/// A value in words, short enough for a message.
fn describe(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::Table(_) => "a table".to_owned(),
        Value::Array(elements) => format!("an array of {} elements", elements.len()),
        Value::String(text) if text.chars().count() > LONGEST => {
            format!("the string \"{}…\"", text.chars().take(LONGEST).collect::<String>())
        }
        Value::String(text) => format!("the string \"{text}\""),
        Value::Datetime(date) => format!("the date {date}"),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
    }
}
