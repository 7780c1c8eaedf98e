//! The answer is what a regular expression finds in the reply.

use regex::Regex;
use serde::Deserialize;

use super::compare::Compare;
use super::{GradeError, Verifier, score};

/// Which match counts when there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The first.
    First,
    /// The last.
    #[default]
    Last,
}

/// The options as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    pattern: String,
    group: Option<usize>,
    #[serde(default)]
    pick: Pick,
    #[serde(default)]
    compare: Compare,
}

/// Compares what a capture group of a regular expression (syntax of the crate `regex`, whose time is linear in the
/// reply) matches in the reply.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Options")]
pub struct Pattern {
    regex: Regex,
    /// The group that holds the answer, 0 being the whole match.
    group: usize,
    pick: Pick,
    compare: Compare,
}

impl Pattern {
    /// Looks for `pattern`; the answer is `group`, or unless given the first group if there is one, else the whole match.
    ///
    /// # Errors
    /// When the pattern is no regular expression or has no such group; the message says where.
    pub fn new(pattern: &str, group: Option<usize>, pick: Pick, compare: Compare) -> Result<Self, String> {
        let regex = Regex::new(pattern).map_err(|error| format!("pattern cannot be read: {error}"))?;
        let groups = regex.captures_len() - 1;
        let group = group.unwrap_or(groups.min(1));
        if group > groups {
            return Err(format!(
                "group {group} is not in the pattern, which has {groups}; 0 is the whole match"
            ));
        }
        Ok(Self { regex, group, pick, compare })
    }
}

impl TryFrom<Options> for Pattern {
    type Error = String;

    fn try_from(options: Options) -> Result<Self, String> {
        Self::new(&options.pattern, options.group, options.pick, options.compare)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (self.regex.as_str(), self.group, self.pick, self.compare)
            == (other.regex.as_str(), other.group, other.pick, other.compare)
    }
}

impl Verifier for Pattern {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        let mut matches = self.regex.captures_iter(reply);
        let captures = match self.pick {
            Pick::First => matches.next(),
            Pick::Last => matches.last(),
        };
        let found = captures.and_then(|captures| captures.get(self.group)).map(|group| group.as_str());
        Ok(score(self.compare.same(reference, found.unwrap_or(""))? && found.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(pattern: &str, group: Option<usize>, pick: Pick, reply: &str) -> f64 {
        Pattern::new(pattern, group, pick, Compare::Auto).unwrap().verify("7", reply).unwrap()
    }

    #[test]
    fn group_and_match_can_be_chosen() {
        let tagged = r"<a>(.*?)</a>";
        for (pattern, group, pick, reply, expected) in [
            (tagged, None, Pick::Last, "<a>6</a> <a>7</a>", 1.0),
            (tagged, None, Pick::First, "<a>6</a> <a>7</a>", 0.0),
            (tagged, None, Pick::First, "<a>7.0</a>", 1.0),
            (tagged, Some(0), Pick::Last, "<a>7</a>", 0.0),
            (r"\d+", None, Pick::Last, "5, 6, 7", 1.0),
            (r"(\d)(\d)", Some(2), Pick::Last, "67", 1.0),
            (r"(\d)|x", None, Pick::Last, "7 x", 0.0),
            (tagged, None, Pick::Last, "7", 0.0),
            (tagged, None, Pick::Last, "", 0.0),
            (r"(?s)<a>(.*)</a>", None, Pick::Last, "<a>\n7\n</a>", 1.0),
        ] {
            assert_eq!(graded(pattern, group, pick, reply), expected, "{pattern} {reply}");
        }
    }

    #[test]
    fn nothing_found_never_equals_an_empty_reference() {
        let verifier = Pattern::new("x(.)", None, Pick::Last, Compare::Text).unwrap();
        assert_eq!(verifier.verify("", "y"), Ok(0.0));
    }

    #[test]
    fn a_hostile_reply_takes_no_more_than_linear_time() {
        let verifier = Pattern::new("(a*)*b", None, Pick::Last, Compare::Text).unwrap();
        assert_eq!(verifier.verify("a", &"a".repeat(20_000)), Ok(0.0));
    }
}
