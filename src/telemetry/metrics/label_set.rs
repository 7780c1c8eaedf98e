//! Values of a label that come from outside: each would be a time series of its own, so only so many are told apart.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The values of one label that were seen first.
#[derive(Debug, Default)]
pub(super) struct LabelSet(Mutex<BTreeSet<String>>);

impl LabelSet {
    /// Values that are told apart.
    pub(super) const MOST: usize = 32;
    /// What stands for all that came later.
    pub(super) const OTHER: &'static str = "other";

    /// A value as it may be shown: itself, or [`LabelSet::OTHER`] when too many others came before it.
    pub(super) fn label<'a>(&self, value: &'a str) -> &'a str {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(value) || (seen.len() < Self::MOST && seen.insert(value.to_owned())) {
            value
        } else {
            Self::OTHER
        }
    }
}
