//! What ends an answer: tokens, and strings that may begin and end inside tokens.

use std::sync::Arc;

use crate::trajectory::Trajectory;

/// What a token stands for, in bytes. Bytes of consecutive tokens are put one after another.
pub trait Detokenizer: Send + Sync {
    /// Appends the bytes of a token; an unknown token and one without text append nothing.
    fn append(&self, token: u32, bytes: &mut Vec<u8>);
}

/// What ends an answer. What ended it stays in the trajectory.
#[derive(Clone, Default)]
pub struct Stops {
    /// Any of these tokens.
    pub tokens: Vec<u32>,
    /// Any of these strings in the text of the answer (since the last observation).
    pub strings: Vec<String>,
    /// Needed for the strings.
    pub detokenizer: Option<Arc<dyn Detokenizer>>,
}

impl std::fmt::Debug for Stops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stops")
            .field("tokens", &self.tokens)
            .field("strings", &self.strings)
            .finish_non_exhaustive()
    }
}

impl Stops {
    /// Stops at tokens only.
    #[must_use]
    pub fn at_tokens(tokens: Vec<u32>) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// What is wrong with it, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.strings.iter().any(String::is_empty) {
            return Err("a stop string is empty".into());
        }
        if !self.strings.is_empty() && self.detokenizer.is_none() {
            return Err("stop strings need a detokenizer".into());
        }
        Ok(())
    }

    /// Whether the last token, an action, ends the answer.
    ///
    /// Looks back as far as a string could reach and keeps nothing between tokens, so it does not matter how often the
    /// trajectory was interrupted.
    pub(super) fn end(&self, trajectory: &Trajectory) -> bool {
        let Some(&last) = trajectory.tokens.last() else { return false };
        self.tokens.contains(&last) || self.string_ends(trajectory)
    }

    fn string_ends(&self, trajectory: &Trajectory) -> bool {
        let Some(detokenizer) = &self.detokenizer else { return false };
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        if longest == 0 {
            return false;
        }
        // Pieces from the last token backwards; a string must end in the last one, so it reaches at most
        // `longest - 1` bytes before it.
        let (mut pieces, mut before) = (Vec::<Vec<u8>>::new(), 0);
        let answer = trajectory.tokens.iter().zip(&trajectory.is_action).rev();
        for (&token, _) in answer.take_while(|(_, is_action)| **is_action) {
            let mut piece = Vec::new();
            detokenizer.append(token, &mut piece);
            before += if pieces.is_empty() { 0 } else { piece.len() };
            pieces.push(piece);
            if before >= longest - 1 {
                break;
            }
        }
        let text: Vec<u8> = pieces.into_iter().rev().flatten().collect();
        // How much of the text was there before the last token.
        self.strings.iter().any(|stop| {
            let first_end = before + 1;
            (first_end.max(stop.len())..=text.len()).any(|end| text[..end].ends_with(stop.as_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::{TrajectoryId, Version};

    /// Token n is the n-th of these pieces.
    struct Pieces(&'static [&'static str]);

    impl Detokenizer for Pieces {
        fn append(&self, token: u32, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(self.0.get(token as usize).unwrap_or(&"").as_bytes());
        }
    }

    fn answer(tokens: &[u32]) -> Trajectory {
        let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([0]));
        for &token in tokens {
            trajectory.push_action(token, 0.0, Version(0));
        }
        trajectory
    }

    fn stops(strings: &[&str]) -> Stops {
        Stops {
            tokens: vec![9],
            strings: strings.iter().map(ToString::to_string).collect(),
            detokenizer: Some(Arc::new(Pieces(&["a", "</an", "swer> b", "", "é</", "x"]))),
        }
    }

    #[test]
    fn a_string_is_found_where_it_spans_tokens_and_ends_inside_one() {
        let stops = stops(&["</answer>", "é<"]);
        assert!(stops.end(&answer(&[0, 1, 2])));
        assert!(!stops.end(&answer(&[0, 1])));
        assert!(stops.end(&answer(&[0, 4])));
        assert!(stops.end(&answer(&[5, 9])));
        // It ended in an earlier token: that was decided then.
        assert!(!stops.end(&answer(&[1, 2, 5])) && !stops.end(&answer(&[1, 2, 3])));
        // Tokens without text do not part it.
        assert!(stops.end(&answer(&[1, 3, 2])));
    }

    #[test]
    fn an_observation_parts_answers() {
        let mut trajectory = answer(&[1]);
        trajectory.push_observation(&[0], Version(0));
        trajectory.push_action(2, 0.0, Version(0));
        assert!(!stops(&["</answer>"]).end(&trajectory));
    }

    #[test]
    fn strings_without_a_detokenizer_are_refused() {
        let without = Stops { strings: vec!["x".into()], ..Stops::default() };
        assert!(without.check().unwrap_err().contains("detokenizer"));
        assert!(stops(&[""]).check().unwrap_err().contains("empty"));
    }
}
