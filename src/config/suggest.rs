//! What to offer when a name is not known: the one that was probably meant, or all there are.

/// Lists of more names than this are not printed in full.
const LONGEST_LIST: usize = 16;

/// The allowed name closest to `name`, if one is close enough that it was probably meant.
///
/// Close is at most one edit (insertion, deletion, substitution, swap of neighbours) for each three letters of the
/// longer name, or an abbreviation by its first three or more letters. Case and the difference between `-` and `_` do
/// not count. The first of equally close names wins.
#[must_use]
pub fn nearest<'a>(name: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = normalise(name);
    let mut best: Option<(usize, &str)> = None;
    for candidate in allowed {
        let offered = normalise(candidate);
        let edits = strsim::damerau_levenshtein(&wanted, &offered);
        let abbreviates = wanted.len() >= 3 && offered.starts_with(&wanted);
        let close = edits * 3 <= wanted.chars().count().max(offered.chars().count());
        if (close || abbreviates) && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn normalise(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// What to do about the unknown `name`, for the end of an error message: "did you mean `x`? (expected …)".
#[must_use]
pub fn advice(name: &str, allowed: &[&str]) -> String {
    match (nearest(name, allowed.iter().copied()), allowed.len()) {
        (None, 0) => "nothing can be set here".to_owned(),
        (None, _) => format!("expected {}", one_of(allowed)),
        (Some(meant), 1) => format!("did you mean `{meant}`?"),
        (Some(meant), _) => format!("did you mean `{meant}`? (expected {})", one_of(allowed)),
    }
}

/// "`a`", "`a` or `b`", "one of `a`, `b`, `c`"; a long list is cut off.
#[must_use]
pub fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().take(LONGEST_LIST).map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [first, second] => format!("{first} or {second}"),
        [only] => only.clone(),
        _ if names.len() > LONGEST_LIST => {
            format!("one of {} and {} more", quoted.join(", "), names.len() - LONGEST_LIST)
        }
        _ => format!("one of {}", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["learning_rate", "batch_size", "optimizer", "seed"];

    #[test]
    fn a_misspelt_name_is_recognised() {
        for (name, meant) in [
            ("lerning_rate", "learning_rate"),
            ("learning-rate", "learning_rate"),
            ("Batch_Size", "batch_size"),
            ("optimiser", "optimizer"),
            ("opt", "optimizer"),
            ("seeed", "seed"),
            ("sede", "seed"),
        ] {
            assert_eq!(nearest(name, NAMES), Some(meant), "{name}");
        }
    }

    #[test]
    fn an_unrelated_name_suggests_nothing() {
        for name in ["gamma", "queue", "se", ""] {
            assert_eq!(nearest(name, NAMES), None, "{name}");
        }
    }

    #[test]
    fn the_closest_wins_and_the_first_of_equals() {
        assert_eq!(nearest("steps", ["step_", "stepz", "steps_"]), Some("step_"));
        assert_eq!(nearest("adamw", ["adam", "adamw2", "adamax"]), Some("adam"));
    }

    #[test]
    fn advice_fits_the_number_of_names() {
        assert_eq!(advice("sed", &["seed"]), "did you mean `seed`?");
        assert_eq!(advice("x", &["seed"]), "expected `seed`");
        assert_eq!(advice("sed", &["seed", "env"]), "did you mean `seed`? (expected `seed` or `env`)");
        assert_eq!(advice("x", &["a", "b", "c"]), "expected one of `a`, `b`, `c`");
        assert_eq!(advice("x", &[]), "nothing can be set here");
        let many: Vec<String> = (0..20).map(|n| format!("name{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(advice("x", &many).ends_with("`name15` and 4 more"));
    }
}
