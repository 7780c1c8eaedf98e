//! The answer is the letter of a choice.
//!
//! Models name their choice in many ways. The rules below are tried from the most to the least explicit, and the first
//! under which a letter is named decides; of several letters named by one of the first four rules the last counts:
//!
//! 1. what stands in the last `\boxed{…}`;
//! 2. what the answer is said to be: "the answer is (B)", "Answer: **B**", "I would go with option B";
//! 3. what is said to be right: "B is correct", "option B would be the best answer";
//! 4. a line that is nothing but a letter: "B", "(b).";
//! 5. letters that begin lines like an enumeration ("B. Paris"), if all are the same;
//! 6. letters in brackets, if all are the same;
//! 7. capitals on their own, if all are the same; "A dog" and "I think" name no letter.
//!
//! What is denied ("not B", "B is wrong") is not named, and "B or C" names nothing.

use serde::{Deserialize, Deserializer};

use super::boxed::last_boxed;
use super::{GradeError, Verifier, latex, score};

/// Compares the letter that the reply chooses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// The letters there are, ASCII capitals.
    #[serde(deserialize_with = "letters")]
    pub letters: String,
}

fn letters<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let letters = String::deserialize(deserializer)?;
    if letters.is_empty() || !letters.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return Err(serde::de::Error::custom(format!(
            "letters are `{letters}`; give capitals such as ABCDE"
        )));
    }
    Ok(letters)
}

impl Default for Choice {
    fn default() -> Self {
        Self { letters: "ABCDE".into() }
    }
}

impl Verifier for Choice {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        let letters = Words::read(reference, &self.letters);
        let only = (letters.0.len() == 1).then(|| letters.letter(0)).flatten();
        let expected = only.or_else(|| letters.enumerated());
        let expected = expected.ok_or_else(|| {
            GradeError::Reference(format!("`{reference}` names none of the letters {}", self.letters))
        })?;
        Ok(score(self.find(reply) == Some(expected)))
    }
}

impl Choice {
    /// The letter that `reply` chooses, as a capital; `None` when it chooses none, or several.
    #[must_use]
    pub fn find(&self, reply: &str) -> Option<char> {
        if let Some(boxed) = last_boxed(reply) {
            let words = Words::read(boxed, &self.letters);
            return words.all_same(|at| words.letter(at));
        }
        let words = Words::read(reply, &self.letters);
        match words.said() {
            Some(Said::One(letter)) => return Some(letter),
            Some(Said::Several) => return None,
            None => {}
        }
        words
            .called_right()
            .or_else(|| words.alone())
            .or_else(|| words.enumerated())
            .or_else(|| words.all_same(|at| words.letter(at).filter(|_| words.0[at].is_bracketed())))
            .or_else(|| words.all_same(|at| words.capital(at)))
    }
}

/// Words that name what follows them as the answer.
const NAMING: [&str; 12] = [
    "answer",
    "choose",
    "chose",
    "choosing",
    "pick",
    "picked",
    "select",
    "selected",
    "selecting",
    "go",
    "going",
    "choice",
];
/// Words that may stand between such a word and the letter.
const BETWEEN: [&str; 24] = [
    "is",
    "was",
    "would",
    "should",
    "must",
    "will",
    "be",
    "to",
    "with",
    "the",
    "my",
    "therefore",
    "thus",
    "clearly",
    "then",
    "definitely",
    "probably",
    "option",
    "choice",
    "letter",
    "answer",
    "s",
    "for",
    "here",
];
/// How many of them: more is no sentence, and a model that repeats itself is still read in linear time.
const MOST_BETWEEN: usize = 12;
/// Words that may stand between a letter and the judgement of it.
const JUDGING: [&str; 13] = [
    "is",
    "was",
    "seems",
    "looks",
    "would",
    "must",
    "be",
    "the",
    "most",
    "only",
    "clearly",
    "definitely",
    "likely",
];
const RIGHT: [&str; 6] = ["correct", "right", "true", "best", "answer", "accurate"];
const WRONG: [&str; 8] = ["not", "wrong", "incorrect", "false", "isn't", "cannot", "can't", "out"];

/// One word of a reply and what stands around it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    line: usize,
    /// An opening bracket stands before it.
    opened: bool,
    /// A closing bracket stands behind it.
    closed: bool,
    /// A point, comma, colon or the like, or the end of the line, stands behind it.
    stopped: bool,
}

impl Word {
    fn is_bracketed(&self) -> bool {
        self.opened && self.closed
    }

    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    fn is_one_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }
}

/// What the answer is said to be.
enum Said {
    One(char),
    /// "B or C".
    Several,
}

/// The words of a reply, and the letters that may be chosen.
struct Words<'a>(Vec<Word>, &'a str);

impl<'a> Words<'a> {
    fn read(text: &str, letters: &'a str) -> Self {
        let plain = latex::plain(text).replace('’', "'");
        let mut words: Vec<Word> = Vec::new();
        for (line, content) in plain.lines().enumerate() {
            let (mut joined, mut opened) = (false, false);
            for character in content.chars() {
                if character.is_alphanumeric() || (character == '\'' && joined) {
                    if !joined {
                        words.push(Word { text: String::new(), line, opened, closed: false, stopped: false });
                    }
                    if let Some(word) = words.last_mut() {
                        word.text.push(character);
                    }
                    (joined, opened) = (true, false);
                    continue;
                }
                joined = false;
                match character {
                    '(' | '[' | '{' => opened = true,
                    // Emphasis is no part of the text.
                    '*' | '_' | '`' | '"' => {}
                    other => {
                        opened = false;
                        if let Some(word) = words.last_mut().filter(|word| word.line == line) {
                            word.closed |= ")]}".contains(other);
                            word.stopped |= ".,:;!?)]}".contains(other);
                        }
                    }
                }
            }
            if let Some(word) = words.last_mut().filter(|word| word.line == line) {
                word.stopped = true;
            }
        }
        Self(words, letters)
    }

    /// The letter that the word at `at` is, as a capital. A small one needs a stop behind it, since it may be an article.
    fn letter(&self, at: usize) -> Option<char> {
        let word = self.0.get(at)?;
        let mut characters = word.text.chars();
        let letter = characters.next().filter(|_| characters.next().is_none())?;
        let capital = letter.to_ascii_uppercase();
        (self.1.contains(capital) && (letter == capital || word.stopped) && !self.is_denied(at))
            .then_some(capital)
    }

    /// The same for a capital that does not begin a phrase.
    fn capital(&self, at: usize) -> Option<char> {
        let letter =
            self.letter(at).filter(|_| self.0[at].text.starts_with(|c: char| c.is_ascii_uppercase()))?;
        let begins_phrase = "AI".contains(letter)
            && !self.0[at].stopped
            && self.0.get(at + 1).is_some_and(|next| next.text.starts_with(char::is_lowercase));
        (!begins_phrase).then_some(letter)
    }

    /// Whether the letter at `at` stands behind a "not" or is called wrong.
    fn is_denied(&self, at: usize) -> bool {
        let behind_not = at > 0 && self.0[at - 1].is_one_of(&["not", "isn't"]) && !self.0[at - 1].stopped;
        let behind_not_option =
            at > 1 && self.0[at - 1].is_one_of(&["option", "choice"]) && self.0[at - 2].is("not");
        behind_not || behind_not_option || self.judgement(at).is_some_and(|word| word.is_one_of(&WRONG))
    }

    /// The word that judges the letter at `at`: behind "is", "would be" and the like.
    fn judgement(&self, at: usize) -> Option<&Word> {
        let behind = self.0.get(at + 1..)?;
        // "B, the answer …" and "B. Not …" speak of something else.
        if self.0[at].stopped && !self.0[at].closed {
            return None;
        }
        let skipped = behind.iter().take(MOST_BETWEEN).take_while(|word| word.is_one_of(&JUDGING)).count();
        let judgement = behind.get(skipped)?;
        (skipped > 0 || judgement.is("isn't") || judgement.is("cannot")).then_some(judgement)
    }

    /// What the last saying of this kind names.
    fn said(&self) -> Option<Said> {
        (0..self.0.len()).rev().filter(|&at| self.0[at].is_one_of(&NAMING)).find_map(|at| {
            let naming = &self.0[at];
            let mut next = at + 1;
            loop {
                let word = self.0.get(next)?;
                let denied_first = word.is("not") && self.0.get(next + 2).is_some_and(|word| word.is("but"));
                match () {
                    () if denied_first => next += 3,
                    () if self.letter(next).is_some() => break,
                    () if word.is_one_of(&BETWEEN) && next < at + MOST_BETWEEN => next += 1,
                    () => return None,
                }
            }
            // "Go" and "choice" have other uses.
            let says = self.0[at + 1..next].iter();
            let is_saying = match naming.text.to_ascii_lowercase().as_str() {
                "go" | "going" => says.clone().any(|word| word.is("with") || word.is("for")),
                "choice" => naming.stopped || says.clone().any(|word| word.is("is") || word.is("be")),
                _ => true,
            };
            let letter = self.letter(next).filter(|_| is_saying)?;
            Some(if self.has_alternative(next) { Said::Several } else { Said::One(letter) })
        })
    }

    /// Whether "or C" or "and C" follows.
    fn has_alternative(&self, at: usize) -> bool {
        let joins = self.0.get(at + 1).is_some_and(|word| word.is_one_of(&["or", "and"]));
        joins
            && (self.letter(at + 2).is_some()
                || self.letter(at + 3).is_some_and(|_| self.0[at + 2].is("option")))
    }

    fn called_right(&self) -> Option<char> {
        let right = |at: &usize| self.judgement(*at).is_some_and(|word| word.is_one_of(&RIGHT));
        (0..self.0.len()).rev().filter(right).find_map(|at| self.capital(at).or_else(|| self.letter(at)))
    }

    /// The letter of the last line that is nothing else.
    fn alone(&self) -> Option<char> {
        let is_alone = |at: usize| {
            let line = self.0[at].line;
            self.begins_line(at) && self.0.get(at + 1).is_none_or(|next| next.line != line)
        };
        (0..self.0.len()).rev().filter(|&at| is_alone(at)).find_map(|at| self.letter(at))
    }

    /// The letter that lines begin with as in an enumeration, when it is the same in all of them.
    fn enumerated(&self) -> Option<char> {
        // "A, B" lists letters and enumerates nothing.
        let begins = |at: usize| self.begins_line(at) && self.0[at].stopped && self.letter(at + 1).is_none();
        self.all_same(|at| self.letter(at).filter(|_| begins(at)))
    }

    fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.0[at - 1].line != self.0[at].line
    }

    /// The letter that `find` gives for all words for which it gives any.
    fn all_same(&self, find: impl Fn(usize) -> Option<char>) -> Option<char> {
        let mut found = (0..self.0.len()).filter_map(find);
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_found_however_it_is_named() {
        for reply in [
            "B",
            " b ",
            "(B)",
            "[B]",
            "**B**",
            "B.",
            "B)",
            "b)",
            "\"B\"",
            "B\n",
            "B. Paris",
            "(B) Paris",
            "B: Paris",
            "**B.** Paris",
            "The answer is B",
            "The answer is B.",
            "the answer is (b)",
            "The answer is: B",
            "Answer: B",
            "ANSWER: B",
            "**Answer:** B",
            "Answer: **B**",
            "Answer:\nB",
            "Answer: (B) Paris",
            "Final Answer: B",
            "The correct answer is option B.",
            "The answer is therefore B",
            "My answer would be B",
            "The correct choice is B",
            "Choice: B",
            "I choose B",
            "I would choose option B because it fits",
            "I pick B.",
            "I'd go with B",
            "I'm going with option (B).",
            "B is correct",
            "Option B is correct.",
            "(B) is the right answer",
            "B would be the best answer, I think",
            "\\boxed{B}",
            "The answer is $\\boxed{\\text{B}}$.",
            "\\boxed{(B)}",
            "First A looks good, but the answer is B.",
            "The answer is not A but B",
            "Answer: B\nbecause A is wrong and C is false",
            "Reasoning about A and C.\n\nB",
            "A. London\nB. Paris\nC. Rome\n\nAnswer: B",
            "A. London\nB. Paris\nC. Rome\n\nB",
            "It has to be (B).",
            "So it must be B",
            "A dog is no cat, so B",
            "I think B",
            "A is wrong, B fits",
            "Not A, B",
            "The answer is A. Wait, the answer is B.",
            "The answer is B, not A.",
            "Paris (B)",
            "B, since A is smaller than C would be",
            "Option A is wrong. Option B is right.",
            "Option B is right. Option A is wrong.",
            "The answer is B’s claim",
        ] {
            // A letter with a possessive is no letter on its own; the rest of these name B.
            let expected = if reply.contains('’') { None } else { Some('B') };
            assert_eq!(Choice::default().find(reply), expected, "{reply:?}");
        }
    }

    #[test]
    fn no_choice_or_several_are_none() {
        for reply in [
            "",
            "Paris",
            "B or C",
            "A, B",
            "The answer is B or C",
            "Answer: A and B",
            "not B",
            "The answer is not B",
            "B is wrong",
            "Option B is incorrect",
            "A dog",
            "I think so",
            "The answer is a dog",
            "F",
            "the answer is F",
            "Bee",
            "AB",
            "\\boxed{AB}",
            "\\boxed{A, B}",
            "\\boxed{}",
            "A. London\nB. Paris",
            "vitamin b is good",
            "The answer is",
        ] {
            assert_eq!(Choice::default().find(reply), None, "{reply:?}");
        }
    }

    #[test]
    fn references_are_letters_and_others_are_refused() {
        let verifier = Choice::default();
        for reference in ["B", "b", "(B)", "B.", "B. Paris"] {
            assert_eq!(verifier.verify(reference, "B"), Ok(1.0), "{reference}");
            assert_eq!(verifier.verify(reference, "C"), Ok(0.0), "{reference}");
        }
        for reference in ["", "F", "Paris", "A or B"] {
            assert_eq!(verifier.check(reference).unwrap_err().kind(), "reference", "{reference}");
        }
        assert_eq!(Choice { letters: "ABCDEFGHIJ".into() }.find("The answer is J"), Some('J'));
    }
}
