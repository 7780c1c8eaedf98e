//! A field that is written as JSON text inside a format that does not describe itself (`#[serde(with = ...)]`).
//!
//! For values whose types name their variants by a field, which such a format cannot read back. Numbers keep their
//! bits.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes the value.
///
/// # Errors
/// When it cannot be written as JSON, or the text not into the format.
pub fn serialize<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(value).map_err(S::Error::custom)?;
    serializer.serialize_str(&text)
}

/// Reads the value.
///
/// # Errors
/// When there is no text, or it is not such a value.
pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    serde_json::from_str(&text).map_err(D::Error::custom)
}
