//! Arithmetic expressions: a recursive-descent parser that computes as it reads, exactly.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = factor (("*" | "/") factor)*
//! factor  = "-" factor | "(" sum ")" | digits
//! ```
//!
//! White space is skipped; `×`, `·`, `÷` and `−` are read as the operators they look like. Nesting is limited, since
//! the text comes from a model.

use crate::env::task::Rational;

/// How deep brackets and signs may nest.
const DEEPEST: u32 = 64;

/// What an expression gives and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expression {
    /// Its value.
    pub value: Rational,
    /// The numbers that stand in it, in order.
    pub numbers: Vec<u64>,
}

/// Reads the whole of `text`; `None` when it is no expression, or has no value (division by zero) or one whose
/// fraction does not fit in 127 bits.
pub(super) fn parse(text: &str) -> Option<Expression> {
    let symbols =
        text.chars().filter(|character| !character.is_whitespace()).map(|character| match character {
            '×' | '·' => '*',
            '÷' => '/',
            '−' | '–' => '-',
            other => other,
        });
    let mut parser =
        Parser { symbols: separated(text, symbols.collect())?, position: 0, numbers: Vec::new() };
    let value = parser.sum(0)?;
    (parser.position == parser.symbols.len()).then_some(Expression { value, numbers: parser.numbers })
}

/// Dropping white space must not join numbers: `1 2` is no expression.
fn separated(text: &str, symbols: Vec<char>) -> Option<Vec<char>> {
    let joins = text.split_whitespace().collect::<Vec<_>>().windows(2).any(|pair| {
        pair[0].ends_with(|c: char| c.is_ascii_digit()) && pair[1].starts_with(|c: char| c.is_ascii_digit())
    });
    (!joins).then_some(symbols)
}

struct Parser {
    symbols: Vec<char>,
    position: usize,
    numbers: Vec<u64>,
}

impl Parser {
    /// Moves past the next symbol if it is one of `wanted`.
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        let symbol = *self.symbols.get(self.position).filter(|symbol| wanted.contains(symbol))?;
        self.position += 1;
        Some(symbol)
    }

    fn sum(&mut self, depth: u32) -> Option<Rational> {
        let mut value = self.product(depth)?;
        while let Some(operator) = self.take(&['+', '-']) {
            let right = self.product(depth)?;
            value = if operator == '+' { value.checked_add(right)? } else { value.checked_sub(right)? };
        }
        Some(value)
    }

    fn product(&mut self, depth: u32) -> Option<Rational> {
        let mut value = self.factor(depth)?;
        while let Some(operator) = self.take(&['*', '/']) {
            let right = self.factor(depth)?;
            value = if operator == '*' { value.checked_mul(right)? } else { value.checked_div(right)? };
        }
        Some(value)
    }

    fn factor(&mut self, depth: u32) -> Option<Rational> {
        if depth > DEEPEST {
            return None;
        }
        if self.take(&['-']).is_some() {
            return Some(self.factor(depth + 1)?.negated());
        }
        if self.take(&['(']).is_some() {
            let value = self.sum(depth + 1)?;
            return self.take(&[')']).map(|_| value);
        }
        let digits: String =
            self.symbols[self.position..].iter().take_while(|symbol| symbol.is_ascii_digit()).collect();
        let number: u64 = digits.parse().ok()?;
        self.position += digits.len();
        self.numbers.push(number);
        Rational::new(i128::from(number), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence_brackets_and_exact_division() {
        let cases = [
            ("1+2*3", 7, 1),
            ("(1+2)*3", 9, 1),
            ("10-4-3", 3, 1),
            ("12/4/3", 1, 1),
            ("1/3+1/6", 1, 2),
            ("8/(3-8/3)", 24, 1),
            (" ( 7 − 2 ) × 3 ÷ 5 ", 3, 1),
            ("-3+5", 2, 1),
            ("2*-3", -6, 1),
            ("--4", 4, 1),
            ("007", 7, 1),
        ];
        for (text, numerator, denominator) in cases {
            assert_eq!(parse(text).map(|e| e.value), Rational::new(numerator, denominator), "{text}");
        }
        assert_eq!(parse("3*(25-4)/3").unwrap().numbers, [3, 25, 4, 3]);
    }

    #[test]
    fn what_is_no_expression_or_has_no_value_is_refused() {
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        let signs = format!("{}1", "-".repeat(100_000));
        let cases = [
            "",
            " ",
            "+",
            "1+",
            "*2",
            "(1",
            "1)",
            "()",
            "1 2",
            "2(3)",
            "2**3",
            "3//2",
            "1.5",
            "a",
            "1=1",
            "4/0",
            "1/(2-2)",
            "99999999999999999999999",
            "+1",
            &deep,
            &signs,
        ];
        for text in cases {
            assert_eq!(parse(text), None, "{text:.30}");
        }
    }
}
