//! A reading of JSON schemas, as far as configuration structs produce them.
//!
//! The schema of a type is the one description of it that survives to run time: names, documentation, types, bounds,
//! which fields must be given. Error messages and the reference are both written from it. Deserialisation stays the
//! authority on what is accepted; whatever this module does not recognise is [`Shape::Any`], about which nothing is
//! said.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

/// The schema of one type, with the definitions it refers to.
pub(super) struct Schema(Json);

impl Schema {
    pub(super) fn of<T: JsonSchema>() -> Self {
        Self(schemars::schema_for!(T).into())
    }

    pub(super) fn root(&self) -> Node<'_> {
        Node { schema: &self.0, definitions: self.0.get("$defs").and_then(Json::as_object) }
    }
}

/// One place in a schema.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    schema: &'a Json,
    definitions: Option<&'a Map<String, Json>>,
}

/// What kind of value a schema stands for. `null` is left out everywhere: TOML has none, an optional field is absent.
pub(super) enum Shape<'a> {
    /// Unrestricted, or not recognised.
    Any,
    Boolean,
    Integer(Bounds),
    Number(Bounds),
    String,
    /// One of some strings, each with its documentation.
    Choice(Vec<(&'a str, Option<&'a str>)>),
    /// Elements of one kind.
    Array {
        items: Node<'a>,
        length: Bounds,
    },
    /// A fixed number of elements, each of its own kind.
    Tuple(Vec<Node<'a>>),
    /// A table with named fields, or with free names (see [`Node::additional`]).
    Table(Node<'a>),
    /// A table whose field `tag` names the variant that says which other fields there are.
    Tagged {
        tag: &'a str,
        variants: Vec<(&'a str, Node<'a>)>,
    },
    /// Several kinds of value that none of the above covers.
    Union(Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    fn at(self, schema: &'a Json) -> Self {
        Self { schema, ..self }
    }

    /// A keyword of this schema, or else of the definition it refers to.
    fn get(self, keyword: &str) -> Option<&'a Json> {
        let mut schema = self.schema;
        loop {
            if let Some(found) = schema.get(keyword) {
                return Some(found);
            }
            let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
            schema = self.definitions?.get(name)?;
        }
    }

    /// What an optional field holds when it is there; anything else is itself.
    fn present(self) -> Self {
        match self.alternatives().as_deref() {
            Some([only]) => *only,
            _ => self,
        }
    }

    /// The name of the definition it refers to, if it is one.
    pub(super) fn definition(self) -> Option<&'a str> {
        self.present().schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
    }

    /// The definition it refers to, or itself.
    pub(super) fn target(self) -> Self {
        let definition = self.definition().and_then(|name| self.definitions?.get(name));
        definition.map_or(self, |schema| self.at(schema))
    }

    /// The doc comment of the field, or else of its type.
    pub(super) fn description(self) -> Option<&'a str> {
        self.get("description")?.as_str()
    }

    /// The default that deserialisation uses, where it has one.
    pub(super) fn default(self) -> Option<&'a Json> {
        self.get("default")
    }

    /// Whether single-precision; its numbers are then printed with that precision.
    pub(super) fn is_single_precision(self) -> bool {
        self.get("format").and_then(Json::as_str) == Some("float")
    }

    /// The named fields of a table, in order of declaration.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let fields = self.get("properties").and_then(Json::as_object).into_iter().flatten();
        fields.map(move |(name, schema)| (name.as_str(), self.at(schema)))
    }

    pub(super) fn field(self, name: &str) -> Option<Node<'a>> {
        self.get("properties")?.get(name).map(|schema| self.at(schema))
    }

    /// The schema of fields under free names; `None` when there may be none.
    pub(super) fn additional(self) -> Option<Node<'a>> {
        static ANYTHING: LazyLock<Json> = LazyLock::new(|| Json::Bool(true));
        match self.get("additionalProperties") {
            Some(Json::Bool(false)) => None,
            Some(schema) => Some(self.at(schema)),
            None => Some(self.at(&ANYTHING)),
        }
    }

    /// The names of the fields that have no default.
    pub(super) fn required(self) -> impl Iterator<Item = &'a str> {
        self.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
    }

    fn is_null(self) -> bool {
        self.get("type").and_then(Json::as_str) == Some("null")
    }

    fn alternatives(self) -> Option<Vec<Self>> {
        let list = self.get("oneOf").or_else(|| self.get("anyOf"))?.as_array()?;
        Some(list.iter().map(|schema| self.at(schema)).filter(|node| !node.is_null()).collect())
    }

    fn constants(self) -> Option<Vec<(&'a str, Option<&'a str>)>> {
        if let Some(constant) = self.get("const") {
            return Some(vec![(constant.as_str()?, self.description())]);
        }
        self.get("enum")?.as_array()?.iter().map(|name| Some((name.as_str()?, None))).collect()
    }

    pub(super) fn shape(self) -> Shape<'a> {
        if let Some(alternatives) = self.alternatives() {
            return match alternatives.as_slice() {
                [only] => only.shape(),
                several => choice(several).or_else(|| tagged(several)).unwrap_or(Shape::Union(alternatives)),
            };
        }
        if let Some(names) = self.constants() {
            return Shape::Choice(names);
        }
        match self.type_name() {
            Some("boolean") => Shape::Boolean,
            Some("integer") => Shape::Integer(Bounds::of_value(self)),
            Some("number") => Shape::Number(Bounds::of_value(self)),
            Some("string") => Shape::String,
            Some("object") => Shape::Table(self),
            Some("array") => match (self.get("prefixItems").and_then(Json::as_array), self.get("items")) {
                (Some(items), _) => Shape::Tuple(items.iter().map(|schema| self.at(schema)).collect()),
                (None, Some(items)) => {
                    Shape::Array { items: self.at(items), length: Bounds::of_length(self) }
                }
                (None, None) => Shape::Any,
            },
            _ => Shape::Any,
        }
    }

    /// The one type, leaving out null.
    fn type_name(self) -> Option<&'a str> {
        match self.get("type")? {
            Json::String(name) => Some(name),
            Json::Array(names) => {
                let mut names = names.iter().filter_map(Json::as_str).filter(|name| *name != "null");
                names.next().filter(|_| names.next().is_none())
            }
            _ => None,
        }
    }

    /// The type in words, for "expected …".
    pub(super) fn in_words(self) -> String {
        match self.shape() {
            Shape::Any => "any value".to_owned(),
            Shape::Boolean => "`true` or `false`".to_owned(),
            Shape::Integer(bounds) => bounds.in_words("integer"),
            Shape::Number(bounds) => bounds.in_words("number"),
            Shape::String => "string".to_owned(),
            Shape::Choice(names) => {
                let quoted: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                quoted.join(" or ")
            }
            Shape::Array { items, length } => length.of_elements(format!("array of {}", items.in_words())),
            Shape::Tuple(items) => {
                let items: Vec<String> = items.iter().map(|item| item.in_words()).collect();
                format!("array of {} elements ({})", items.len(), items.join(", "))
            }
            Shape::Table(table) => match (table.fields().next(), table.additional()) {
                (Some(_), None) => {
                    let names: Vec<&str> = table.fields().map(|(name, _)| name).collect();
                    format!("table with {}", names.join(", "))
                }
                _ => "table".to_owned(),
            },
            Shape::Tagged { tag, variants } => {
                let names: Vec<String> = variants.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                format!("table with {tag} = {}", names.join(" or "))
            }
            Shape::Union(nodes) => {
                let words: Vec<String> = nodes.iter().map(|node| node.in_words()).collect();
                words.join(" or ")
            }
        }
    }
}

fn choice<'a>(alternatives: &[Node<'a>]) -> Option<Shape<'a>> {
    let names: Option<Vec<_>> = alternatives.iter().map(|node| node.constants()).collect();
    Some(Shape::Choice(names?.concat()))
}

fn tagged<'a>(alternatives: &[Node<'a>]) -> Option<Shape<'a>> {
    let (tag, _) = alternatives.first()?.fields().find(|(_, field)| field.get("const").is_some())?;
    let variant = |node: &Node<'a>| Some((node.field(tag)?.get("const")?.as_str()?, *node));
    let variants: Option<Vec<_>> = alternatives.iter().map(variant).collect();
    Some(Shape::Tagged { tag, variants: variants? })
}

/// Limits of a number or of an array's length; each inclusive unless marked.
#[derive(Default, Clone, Copy)]
pub(super) struct Bounds {
    least: Option<f64>,
    above: Option<f64>,
    most: Option<f64>,
    below: Option<f64>,
}

impl Bounds {
    fn of_value(node: Node<'_>) -> Self {
        let limit = |keyword| node.get(keyword).and_then(Json::as_f64);
        Self {
            least: limit("minimum"),
            above: limit("exclusiveMinimum"),
            most: limit("maximum"),
            below: limit("exclusiveMaximum"),
        }
    }

    fn of_length(node: Node<'_>) -> Self {
        let limit = |keyword| node.get(keyword).and_then(Json::as_f64);
        Self { least: limit("minItems"), most: limit("maxItems"), ..Self::default() }
    }

    /// NaN is within no limit.
    pub(super) fn admit(self, value: f64) -> bool {
        self.least.is_none_or(|limit| value >= limit)
            && self.above.is_none_or(|limit| value > limit)
            && self.most.is_none_or(|limit| value <= limit)
            && self.below.is_none_or(|limit| value < limit)
    }

    /// "integer", "integer >= 0", "integer from 0 to 255", "number > 0 and <= 1".
    pub(super) fn in_words(self, noun: &str) -> String {
        self.limits().map_or_else(|| noun.to_owned(), |limits| format!("{noun} {limits}"))
    }

    fn limits(self) -> Option<String> {
        if let (Some(least), Some(most)) = (self.least, self.most) {
            return Some(format!("from {least} to {most}"));
        }
        let limit = |sign, limit: Option<f64>| limit.map(|limit| format!("{sign} {limit}"));
        let lower = limit(">=", self.least).or_else(|| limit(">", self.above));
        let upper = limit("<=", self.most).or_else(|| limit("<", self.below));
        match (lower, upper) {
            (Some(lower), Some(upper)) => Some(format!("{lower} and {upper}")),
            (lower, upper) => lower.or(upper),
        }
    }

    /// The limits of an array's length, to follow the type of its elements.
    pub(super) fn of_elements(self, mut array: String) -> String {
        if let Some(limits) = self.limits() {
            array.push_str(", length ");
            array.push_str(&limits);
        }
        array
    }
}
