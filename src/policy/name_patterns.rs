//! Which parameters are meant: patterns over their names, with `*` for anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::parameters::Layout;

/// A set of parameters, such as those that are frozen: names like `model.layers.0.*` or `*norm.weight`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct NamePatterns(pub Vec<String>);

/// A pattern that no parameter has.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "no parameter is named like `{pattern}`: `*` stands for any part of a name, and names are those of the checkpoint, \
     such as `{example}`"
)]
pub struct UnknownPattern {
    /// The pattern.
    pub pattern: String,
    /// A name that there is.
    pub example: String,
}

impl NamePatterns {
    /// Whether a name is meant by any of them.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }

    /// Checks that each pattern means something.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self, layout: &Layout) -> Result<(), UnknownPattern> {
        match self.0.iter().find(|pattern| !layout.names().any(|name| matches(pattern, name))) {
            Some(pattern) => {
                let example = layout.names().next().unwrap_or_default().to_owned();
                Err(UnknownPattern { pattern: pattern.clone(), example })
            }
            None => Ok(()),
        }
    }
}

/// The parts between stars follow one another, the first at the beginning and the last at the end.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The earliest place leaves the most for what follows.
        let Some(place) = name.find(part) else { return false };
        name = &name[place + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parameters::Initializer;

    #[test]
    fn stars_stand_for_any_part_of_a_name() {
        let name = "model.layers.10.mlp.up_proj.weight";
        for pattern in
            [name, "*", "model.layers.10.*", "*up_proj*", "model.*.mlp.*.weight", "*.weight", "m*e*w*"]
        {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["", "model", "model.layers.1.*", "*.bias", "*mlp*mlp*", "layers*", "*weight.*"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        assert!(!matches("ab*ba", "aba"));
    }

    #[test]
    fn a_pattern_that_means_nothing_is_refused_by_name() {
        let mut layout = Layout::default();
        layout.add("model.norm.weight", &[1], Initializer::Constant(1.0));
        let patterns = |list: &[&str]| NamePatterns(list.iter().map(|&pattern| pattern.to_owned()).collect());
        assert_eq!(patterns(&["model.*", "*"]).check(&layout), Ok(()));
        let error = patterns(&["model.*", "*.bias"]).check(&layout).unwrap_err();
        assert_eq!(error.pattern, "*.bias");
        assert!(error.to_string().contains("`model.norm.weight`"));
    }
}
