//! When a run has reached what it was to reach.

/// The first of some conditions (name, limit, where the run stands) that is reached, in words.
pub(super) fn first_reached<const N: usize>(
    conditions: [(&str, Option<f64>, Option<f64>); N],
) -> Option<String> {
    conditions.into_iter().find_map(|(name, limit, standing)| {
        let limit = limit.filter(|&limit| standing.is_some_and(|standing| standing >= limit))?;
        Some(format!("reached stop.{name} = {limit}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_condition_that_is_reached_is_named_with_its_limit() {
        let at = |steps, score| {
            first_reached([
                ("steps", Some(1_000_000.0), Some(steps)),
                ("updates", None, Some(9e9)),
                ("seconds", Some(2.5), Some(2.0)),
                ("target", Some(0.9), score),
            ])
        };
        assert_eq!(at(999_999.0, None), None);
        assert_eq!(at(1_000_000.0, Some(1.0)).unwrap(), "reached stop.steps = 1000000");
        assert_eq!(at(0.0, Some(0.9)).unwrap(), "reached stop.target = 0.9");
        assert_eq!(at(0.0, Some(f64::NAN)), None);
    }
}
