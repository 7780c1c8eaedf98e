//! Reading fields of a JSON object so that every error names the file, the field and its value.

use std::path::Path;

use serde_json::{Map, Value};

use super::PretrainedError;

/// A JSON object of a file, or one inside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) path: &'a Path,
    /// What stands before the names of the fields, such as `rope_scaling.`.
    pub(super) prefix: &'a str,
    pub(super) object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The value of a field; `null` is as good as absent.
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// An error about a field.
    pub(super) fn wrong(self, name: &str, why: impl Into<String>) -> PretrainedError {
        let value = self.object.get(name).map_or_else(|| "missing".to_owned(), ToString::to_string);
        PretrainedError::field(self.path, format!("{}{name}", self.prefix), &value, why)
    }

    pub(super) fn size(self, name: &str) -> Result<Option<usize>, PretrainedError> {
        self.read(name, "must be a whole number", |value| usize::try_from(value.as_u64()?).ok())
    }

    pub(super) fn number(self, name: &str) -> Result<Option<f64>, PretrainedError> {
        self.read(name, "must be a number", Value::as_f64)
    }

    pub(super) fn flag(self, name: &str) -> Result<Option<bool>, PretrainedError> {
        self.read(name, "must be true or false", Value::as_bool)
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, PretrainedError> {
        self.read(name, "must be a text", Value::as_str)
    }

    /// A size that must be there.
    pub(super) fn needed_size(self, name: &str) -> Result<usize, PretrainedError> {
        self.size(name)?.ok_or_else(|| self.wrong(name, "this architecture needs it"))
    }

    /// A number that must be there.
    pub(super) fn needed_number(self, name: &str) -> Result<f64, PretrainedError> {
        self.number(name)?.ok_or_else(|| self.wrong(name, "it is needed"))
    }

    /// Refuses a field that has another value than `expected`, which is also its default.
    pub(super) fn refuse_unless(
        self,
        name: &str,
        expected: &Value,
        why: &str,
    ) -> Result<(), PretrainedError> {
        match self.get(name) {
            Some(value) if !same(value, expected) => Err(self.wrong(name, why)),
            _ => Ok(()),
        }
    }

    fn read<T>(
        self,
        name: &str,
        why: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, PretrainedError> {
        self.get(name).map(|value| convert(value).ok_or_else(|| self.wrong(name, why))).transpose()
    }
}

/// Equality in which 1 and 1.0 are the same.
fn same(left: &Value, right: &Value) -> bool {
    left == right || (left.is_number() && left.as_f64() == right.as_f64())
}
