//! Golden tests: independently computed figures in double precision, for every case of every family.
//!
//! A file is `{family}.json` with `schema: 1`, in the folder `FOREBAY_GOLDEN_DIR` or in `tests/golden`. A family that
//! is absent is skipped with a note; a function that is not known, or an expected figure that is not computed, fails.

mod distillation;
mod gae;
mod group_advantages;
mod optimizers;
mod pairwise;
mod returns;
mod smollm2;
mod staleness;
mod token_batch;
mod token_losses;
mod value_losses;
mod vtrace;

use std::path::PathBuf;

use serde_json::Value;

/// How far figures may lie apart: |x − y| ≤ absolute + relative · |y|. Whole numbers and nulls compare exactly.
#[derive(Clone, Copy)]
pub struct Tolerance {
    relative: f64,
    absolute: f64,
}

pub const DOUBLE: Tolerance = Tolerance { relative: 1e-9, absolute: 1e-11 };
pub const SINGLE: Tolerance = Tolerance { relative: 5e-4, absolute: 1e-5 };

/// One case of a family.
pub struct Case {
    family: &'static str,
    name: String,
    function: String,
    body: Value,
}

/// What a function gave: figures by the names used in `expected`, flattened; `None` where undefined.
pub type Figures = Vec<(&'static str, Vec<Option<f64>>)>;

/// Runs `compute` on every case of a family and compares with what is expected, or expects a refusal.
pub fn check<E: std::fmt::Display>(
    family: &'static str,
    tolerance: Tolerance,
    compute: impl Fn(&Case) -> Result<Figures, E>,
) {
    let Some(cases) = load(family) else { return };
    assert!(!cases.is_empty(), "{family} has no cases");
    for case in &cases {
        match (compute(case), case.body.get("expected_error")) {
            (Err(error), Some(_)) => println!("{}: refused: {error}", case.label()),
            (Err(error), None) => panic!("{}: {error}", case.label()),
            (Ok(_), Some(expected)) => panic!("{}: not refused, though {expected}", case.label()),
            (Ok(figures), None) => case.compare(&figures, tolerance),
        }
    }
    println!("{family}: {} cases", cases.len());
}

/// The contents of a golden file; `None` when there is none of that name.
pub fn golden_file(name: &str) -> Option<Value> {
    let folder = std::env::var_os("FOREBAY_GOLDEN_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), PathBuf::from);
    let path = folder.join(format!("{name}.json"));
    if !path.exists() {
        println!("skipped: there is no {}", path.display());
        return None;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

fn load(family: &'static str) -> Option<Vec<Case>> {
    let file = golden_file(family)?;
    if file["schema"] != 1 {
        println!("skipped: {family}.json has schema {}, not 1", file["schema"]);
        return None;
    }
    let cases = file["cases"].as_array().unwrap().iter().map(|body| Case {
        family,
        name: body["name"].as_str().unwrap().to_owned(),
        function: body["function"].as_str().unwrap().to_owned(),
        body: with_batch(body, &file["batches"]),
    });
    Some(cases.collect())
}

/// A case whose inputs are a batch that several cases share has them in its own body.
fn with_batch(body: &Value, batches: &Value) -> Value {
    let mut body = body.clone();
    if let Some(name) = body["batch"].as_str() {
        body["inputs"] = batches[name].clone();
    }
    body
}

impl Case {
    pub fn function(&self) -> &str {
        &self.function
    }

    fn label(&self) -> String {
        format!("{}/{} ({})", self.family, self.name, self.function)
    }

    /// Fails because the function is not implemented.
    pub fn unknown(&self) -> ! {
        panic!("{}: unknown function", self.label())
    }

    fn get(&self, part: &str, key: &str) -> &Value {
        self.body[part].get(key).unwrap_or_else(|| panic!("{}: {part} has no {key}", self.label()))
    }

    /// An input, as it stands in the file.
    pub fn input(&self, key: &str) -> &Value {
        self.get("inputs", key)
    }

    /// Whether there is such an input.
    pub fn has(&self, key: &str) -> bool {
        self.body["inputs"].get(key).is_some()
    }

    /// An input of numbers, flattened.
    pub fn numbers(&self, key: &str) -> Vec<f64> {
        numbers(self.input(key))
    }

    /// An input of flags, flattened.
    pub fn flags(&self, key: &str) -> Vec<bool> {
        self.numbers(key).into_iter().map(|flag| flag != 0.0).collect()
    }

    /// The lengths of an input, outermost first.
    pub fn shape(&self, key: &str) -> Vec<usize> {
        shape(self.input(key))
    }

    /// An input of one list of numbers for each group; the lists may differ in length.
    pub fn groups(&self, key: &str) -> Vec<Vec<f64>> {
        self.input(key).as_array().unwrap().iter().map(numbers).collect()
    }

    /// All parameters, as they stand in the file.
    pub fn parameters(&self) -> &serde_json::Map<String, Value> {
        self.body["params"].as_object().unwrap()
    }

    /// A parameter, as it stands in the file; null when there is none.
    pub fn parameter(&self, key: &str) -> &Value {
        &self.body["params"][key]
    }

    /// A parameter that may be absent.
    pub fn option(&self, key: &str) -> Option<f64> {
        self.get("params", key).as_f64()
    }

    /// A parameter that must be there.
    pub fn param(&self, key: &str) -> f64 {
        self.option(key).unwrap_or_else(|| panic!("{}: {key} is no number", self.label()))
    }

    /// A bound, infinite when absent.
    pub fn bound(&self, key: &str) -> f64 {
        self.option(key).unwrap_or(f64::INFINITY)
    }

    /// A parameter that is a word.
    pub fn word(&self, key: &str) -> &str {
        self.get("params", key).as_str().unwrap_or_else(|| panic!("{}: {key} is no word", self.label()))
    }

    fn compare(&self, figures: &Figures, tolerance: Tolerance) {
        let expected = self.body["expected"].as_object().unwrap().iter();
        // Figures that are gathered under `diagnostics` are compared one by one.
        let expected = expected.flat_map(|(key, value)| match value {
            Value::Object(figures) => figures.iter().collect(),
            value => vec![(key, value)],
        });
        for (key, expected) in expected {
            let label = format!("{}: {key}", self.label());
            let got = figures.iter().find(|(name, _)| name == key);
            let (_, got) = got.unwrap_or_else(|| panic!("{label} is not computed"));
            let expected = leaves(expected);
            assert_eq!(got.len(), expected.len(), "{label}: number of figures");
            for (index, (&got, expected)) in got.iter().zip(expected).enumerate() {
                let number = expected.as_bool().map(|flag| f64::from(u8::from(flag))).or(expected.as_f64());
                let fits = match (got, number) {
                    (None, None) => true,
                    (Some(got), Some(exact)) if !expected.is_f64() => got == exact,
                    (Some(got), Some(expected)) => {
                        (got - expected).abs() <= tolerance.absolute + tolerance.relative * expected.abs()
                    }
                    _ => false,
                };
                assert!(fits, "{label}[{index}] is {got:?}, not {expected}");
            }
        }
    }
}

/// The innermost values of nested lists, in order.
fn leaves(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

/// The numbers in nested lists, in order.
pub fn numbers(value: &Value) -> Vec<f64> {
    leaves(value).into_iter().map(|leaf| leaf.as_f64().unwrap()).collect()
}

/// The lengths of nested lists, outermost first.
pub fn shape(value: &Value) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut inner = value;
    while let Some(values) = inner.as_array() {
        lengths.push(values.len());
        let Some(first) = values.first() else { break };
        inner = first;
    }
    lengths
}

/// Figures that are all defined.
pub fn defined<F: forebay::learner::Real>(values: &[F]) -> Vec<Option<f64>> {
    values.iter().map(|value| Some(value.widen())).collect()
}

/// Numbers in the type under test.
pub fn narrow<F: forebay::learner::Real>(values: &[f64]) -> Vec<F> {
    values.iter().map(|&value| F::narrow(value)).collect()
}
