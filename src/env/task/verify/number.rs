//! Numbers in text, read exactly.
//!
//! Understood are signs, currency before and percent after the digits, thousands separators (`1,234`, `1_234`, `1'234`
//! and thin spaces, in groups of three), decimals, exponents (`1e3`, `1.5×10^3`), fractions (`3/4`, `\frac{3}{4}`) and
//! mixed numbers (`1 1/2`). Digits that belong to a word (`x2`, `H2O`) or to a chain of points (`1.2.3`) are no number,
//! and a minus after a number or a letter subtracts: `5-3` ends in 3.

use super::latex;
use crate::env::task::Rational;

/// Most digits of an exponent that are read; more make the number too large to represent.
const EXPONENT_DIGITS: usize = 3;

/// A number as it was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its exact value, a percent sign left out; `None` when the fraction needs more than 127 bits.
    value: Option<Rational>,
    /// About the same.
    approximate: f64,
    /// Whether a percent sign follows.
    percent: bool,
}

impl Number {
    /// Whether it is `value`. With a percent sign, as a share (`50%` is 1/2) or as the number written (`50%` is 50).
    #[must_use]
    pub fn is(&self, value: Rational) -> bool {
        self.equals(&Self { value: Some(value), approximate: value.to_f64(), percent: false }, Rational::ZERO)
    }

    /// Whether both differ by at most `tolerance`. When only one has a percent sign it may mean a share or the number
    /// written. A number that is too large to be exact equals none.
    #[must_use]
    pub fn equals(&self, other: &Self, tolerance: Rational) -> bool {
        let (Some(left), Some(right)) = (self.value, other.value) else { return false };
        let near = |left: Option<Rational>, right: Option<Rational>| {
            let difference = left.zip(right).and_then(|(left, right)| left.checked_sub(right));
            let excess = difference.and_then(|difference| difference.abs().checked_sub(tolerance));
            left == right || excess.is_some_and(|excess| excess.is_negative() || excess == Rational::ZERO)
        };
        let share =
            |value: Rational| Rational::new(1, 100).and_then(|hundredth| value.checked_mul(hundredth));
        near(Some(left), Some(right))
            || (self.percent && !other.percent && near(share(left), Some(right)))
            || (other.percent && !self.percent && near(Some(left), share(right)))
    }

    /// The nearest double of the number written, infinite when it is too large.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.approximate
    }

    /// Its exact value, a percent sign left out; `None` when the fraction needs more than 127 bits.
    #[must_use]
    pub fn exact(&self) -> Option<Rational> {
        self.value
    }

    /// Whether it is known exactly.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.value.is_some()
    }
}

/// The last number of `text`.
#[must_use]
pub fn last_number(text: &str) -> Option<Number> {
    let text: Vec<char> = latex::plain(text).chars().collect();
    let scanner = Scanner(&text);
    let mut last = None;
    let mut at = 0;
    while at < text.len() {
        match scanner.number(at) {
            Some((number, end)) => {
                last = Some(number);
                at = end;
            }
            None => at = scanner.skip(at),
        }
    }
    last
}

/// The number that `text` is as a whole, but for white space, quotes, emphasis and a full stop around it.
#[must_use]
pub fn whole_number(text: &str) -> Option<Number> {
    let text = latex::plain(text);
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || "*`\"'".contains(c));
    let trimmed = trimmed.strip_suffix('.').unwrap_or(trimmed);
    let text: Vec<char> = trimmed.chars().collect();
    Scanner(&text).number(0).filter(|&(_, end)| end == text.len()).map(|(number, _)| number)
}

/// A value that may not fit, and about what it is.
type Value = (Option<Rational>, f64);

#[derive(Clone, Copy)]
struct Scanner<'a>(&'a [char]);

impl Scanner<'_> {
    fn get(self, at: usize) -> Option<char> {
        self.0.get(at).copied()
    }

    fn before(self, at: usize) -> Option<char> {
        at.checked_sub(1).and_then(|at| self.get(at))
    }

    fn is_digit(self, at: usize) -> bool {
        self.get(at).is_some_and(|c| c.is_ascii_digit())
    }

    /// Where the run of symbols for which `belongs` holds, beginning at `at`, ends.
    fn run(self, at: usize, belongs: impl Fn(usize) -> bool) -> usize {
        (at..self.0.len()).find(|&at| !belongs(at)).unwrap_or(self.0.len().max(at))
    }

    /// Where the digits that begin at `at` end.
    fn digits(self, at: usize) -> usize {
        self.run(at, |at| self.is_digit(at))
    }

    /// Where the spaces that begin at `at` end.
    fn spaces(self, at: usize) -> usize {
        self.run(at, |at| self.get(at) == Some(' '))
    }

    /// Where to look on when there is no number at `at`: behind all digits that hang together.
    fn skip(self, at: usize) -> usize {
        let is_inner_point = |at| self.get(at) == Some('.') && self.is_digit(at + 1);
        if self.is_digit(at) { self.run(at, |at| self.is_digit(at) || is_inner_point(at)) } else { at + 1 }
    }

    /// The number that begins exactly at `at`, and where it ends.
    fn number(self, start: usize) -> Option<(Number, usize)> {
        let mut at = start;
        let mut negative = false;
        let mut signed = false;
        while let Some(symbol) = self.get(at) {
            match symbol {
                '+' | '-' if !signed => (signed, negative) = (true, symbol == '-'),
                '$' | '€' | '£' | '¥' => {}
                _ => break,
            }
            at += 1;
        }
        let previous = self.before(start);
        let continues = |c: char| c.is_alphanumeric() || c == '_';
        if signed {
            // After an operand a sign is an operator.
            if previous.is_some_and(|c| continues(c) || ")]}%".contains(c)) {
                return None;
            }
        } else if previous.is_some_and(|c| continues(c) || (c == '.' && self.get(at) == Some('.'))) {
            return None;
        }
        let (mut value, mut end) = self.fraction(at)?;
        if negative {
            value = (value.0.map(Rational::negated), -value.1);
        }
        let (percent, after) = self.percent(end);
        end = after;
        Some((Number { value: value.0, approximate: value.1, percent }, end))
    }

    /// A decimal, a fraction or a mixed number.
    fn fraction(self, at: usize) -> Option<(Value, usize)> {
        let (first, end) = self.decimal(at)?;
        // What stands behind a stroke already is part of a date or a path.
        let divisor = if self.before(at) == Some('/') { None } else { self.quotient(end) };
        if let Some((second, after)) = divisor {
            return Some((divide(first, second)?, after));
        }
        let whole_part = self.digits(at) == end && self.get(end) == Some(' ') && self.is_digit(end + 1);
        let mixed = whole_part.then(|| self.decimal(end + 1)).flatten().and_then(|(over, end)| {
            let (under, after) = self.quotient(end)?;
            (over.1 < under.1).then_some((divide(over, under)?, after))
        });
        Some(match mixed {
            Some((part, after)) => {
                let exact = first.0.zip(part.0).and_then(|(first, part)| first.checked_add(part));
                ((exact, first.1 + part.1), after)
            }
            None => (first, end),
        })
    }

    /// What a number that ended at `at` is divided by. More than one stroke makes a date or a path.
    fn quotient(self, at: usize) -> Option<(Value, usize)> {
        let stroke = self.spaces(at);
        if self.get(stroke) != Some('/') {
            return None;
        }
        let (value, end) = self.decimal(self.spaces(stroke + 1))?;
        (self.get(end) != Some('/')).then_some((value, end))
    }

    /// Digits with their separators, point and exponent.
    fn decimal(self, start: usize) -> Option<(Value, usize)> {
        let mut end = self.digits(start);
        let mut digits: String = self.0.get(start..end)?.iter().collect();
        if let Some(separator) = self.get(end).filter(|c| ",_'\u{a0}\u{2009}\u{202f}".contains(*c))
            && (1..=3).contains(&digits.len())
        {
            while self.get(end) == Some(separator) && self.digits(end + 1) == end + 4 {
                digits.extend(&self.0[end + 1..end + 4]);
                end += 4;
            }
        }
        let mut scale = 0;
        if self.get(end) == Some('.') && self.is_digit(end + 1) {
            let fraction = end + 1..self.digits(end + 1);
            end = fraction.end;
            // Zeros at the end say nothing about the value, but would not fit.
            let written: String = self.0[fraction].iter().collect();
            let kept = written.trim_end_matches('0');
            digits.push_str(kept);
            scale = kept.len();
            if digits.is_empty() {
                digits.push('0');
            }
        }
        let is_chain = self.get(end) == Some('.') && self.is_digit(end + 1);
        if digits.is_empty() || is_chain {
            return None;
        }
        let (exponent, end) = self.exponent(end);
        let exponent = exponent.saturating_sub(scale as i64);
        let approximate = format!("{digits}e{exponent}").parse().unwrap_or(f64::INFINITY);
        Some(((exact(&digits, exponent), approximate), end))
    }

    /// `e3` or `×10^3` behind a number that ended at `at`; 0 when there is none.
    fn exponent(self, at: usize) -> (i64, usize) {
        let (digits_at, braced) = if matches!(self.get(at), Some('e' | 'E')) {
            (at + 1, false)
        } else {
            let times = self.spaces(at);
            let ten = self.spaces(times + 1);
            let is_power = matches!(self.get(times), Some('×' | '*' | 'x'))
                && self.0.get(ten..ten + 3) == Some(&['1', '0', '^']);
            if !is_power {
                return (0, at);
            }
            let braced = self.get(ten + 3) == Some('{');
            (ten + 3 + usize::from(braced), braced)
        };
        let signed = matches!(self.get(digits_at), Some('+' | '-'));
        let digits = digits_at + usize::from(signed);
        let end = self.digits(digits);
        let after = end + usize::from(braced);
        let is_word = self.get(after).is_some_and(char::is_alphanumeric);
        if end == digits || is_word || (braced && self.get(end) != Some('}')) {
            return (0, at);
        }
        let size = self.0[digits..end].iter().collect::<String>();
        let size = size.trim_start_matches('0');
        let size = if size.len() > EXPONENT_DIGITS { 9999 } else { size.parse().unwrap_or(0) };
        (if self.get(digits_at) == Some('-') { -size } else { size }, after)
    }

    /// Whether a percent sign or word follows a number that ended at `at`, and where it ends.
    fn percent(self, at: usize) -> (bool, usize) {
        let word = self.spaces(at);
        for percent in ["%", "percent", "per cent"] {
            let end = word + percent.chars().count();
            let follows =
                self.0.get(word..end).is_some_and(|found| found.iter().copied().eq(percent.chars()));
            if follows && !self.get(end).is_some_and(char::is_alphabetic) {
                return (true, end);
            }
        }
        (false, at)
    }
}

/// `digits · 10^exponent`.
fn exact(digits: &str, exponent: i64) -> Option<Rational> {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(Rational::ZERO);
    }
    let significant = digits.trim_end_matches('0');
    let exponent = exponent + (digits.len() - significant.len()) as i64;
    let value = Rational::new(significant.parse().ok()?, 1)?;
    value.checked_mul(Rational::power_of_ten(i32::try_from(exponent).ok()?)?)
}

/// A quotient; `None` when the divisor is zero, which is no number at all.
fn divide(over: Value, under: Value) -> Option<Value> {
    if under.0 == Some(Rational::ZERO) {
        return None;
    }
    Some((over.0.zip(under.0).and_then(|(over, under)| over.checked_div(under)), over.1 / under.1))
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
