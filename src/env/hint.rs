//! The nearest name, for messages about a name that nobody registered.

/// Names at least this similar (Jaro–Winkler, 0 to 1) are offered in place of an unknown one.
const SIMILAR: f64 = 0.75;

/// The nearest of `names` as part of a message, or nothing when none is near.
pub(super) fn did_you_mean<'a>(unknown: &str, names: impl Iterator<Item = &'a str>) -> String {
    let unknown = unknown.to_lowercase();
    names
        .map(|name| (strsim::jaro_winkler(&unknown, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map_or_else(String::new, |(_, name)| format!(" (did you mean `{name}`?)"))
}
