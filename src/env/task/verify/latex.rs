//! The little LaTeX that answers are written in, turned into plain text.

/// Commands that only change how something looks, or are spaces.
const DROPPED: [&str; 14] = [
    "\\left",
    "\\right",
    "\\displaystyle",
    "\\bigl",
    "\\bigr",
    "\\big",
    "\\!",
    "\\,",
    "\\;",
    "\\:",
    "\\ ",
    "\\quad",
    "$",
    "^\\circ",
];
/// Commands of one argument that stands for itself.
const WRAPPERS: [&str; 6] = ["\\text", "\\textbf", "\\mathrm", "\\mathbf", "\\mbox", "\\boldsymbol"];
/// Commands and symbols that stand for another text.
const REPLACED: [(&str, &str); 11] = [
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("{,}", ","),
    ("\\$", ""),
    ("\\%", "%"),
    ("\\times", "×"),
    ("\\cdot", "×"),
    ("\\{", "{"),
    ("\\}", "}"),
    ("−", "-"),
    ("^{\\circ}", ""),
];

/// `text` with fractions as `3/4`, arguments of text commands as they are, and without what is for the eye only.
pub(super) fn plain(text: &str) -> String {
    let mut plain = text.to_owned();
    for (command, replacement) in REPLACED {
        plain = plain.replace(command, replacement);
    }
    for command in DROPPED {
        plain = drop_command(&plain, command);
    }
    for command in WRAPPERS {
        plain = unwrap(&plain, command);
    }
    fractions(&plain)
}

/// The longest text in braces, in bytes. No answer is longer, and a reply of nothing but opened braces is still read in
/// a time that is linear in its length.
const LONGEST: usize = 4096;

/// The text in the braces that `text` begins with, and what follows them.
pub(super) fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices().take_while(|(at, _)| *at <= LONGEST) {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { None } else { Some((&text[1..at], &text[at + 1..])) };
        }
    }
    None
}

/// Leaves `command` out, unless it is only the beginning of a longer one.
fn drop_command(text: &str, command: &str) -> String {
    let is_word = command.ends_with(|c: char| c.is_ascii_alphabetic());
    rewrite(text, command, |rest| {
        (!(is_word && rest.starts_with(|c: char| c.is_ascii_alphabetic()))).then_some((String::new(), rest))
    })
}

/// Puts the argument of `command` in its place.
fn unwrap(text: &str, command: &str) -> String {
    rewrite(text, command, |rest| braced(rest.trim_start()).map(|(inner, rest)| (inner.to_owned(), rest)))
}

/// Replaces each occurrence of `command` for which `with` finds a replacement in what follows it.
fn rewrite<'a>(text: &'a str, command: &str, with: impl Fn(&'a str) -> Option<(String, &'a str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(command) {
        let after = &rest[at + command.len()..];
        out.push_str(&rest[..at]);
        if let Some((replacement, remaining)) = with(after) {
            out.push_str(&replacement);
            rest = remaining;
        } else {
            out.push_str(command);
            rest = after;
        }
    }
    out + rest
}

/// Writes `\frac{a}{b}` and `\frac12` as quotients, innermost first; arguments that are no plain numbers get brackets.
fn fractions(text: &str) -> String {
    const COMMAND: &str = "\\frac";
    let mut plain = text.to_owned();
    while let Some(at) = plain.rfind(COMMAND) {
        let (before, rest) = (&plain[..at], &plain[at + COMMAND.len()..]);
        let quotient =
            argument(rest).and_then(|(over, rest)| argument(rest).map(|(under, rest)| (over, under, rest)));
        let Some((over, under, rest)) = quotient else {
            // Without two arguments it is no fraction; what is left cannot be mistaken for one.
            plain = format!("{before}frac{rest}");
            continue;
        };
        // A number before a fraction makes a mixed number.
        let gap = if before.ends_with(|c: char| c.is_ascii_digit()) { " " } else { "" };
        plain = format!("{before}{gap}{}/{}{rest}", operand(over), operand(under));
    }
    plain
}

/// The next argument: in braces, or a single character.
fn argument(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let first = text.chars().next()?;
    if first == '{' { braced(text) } else { Some(text.split_at(first.len_utf8())) }
}

fn operand(text: &str) -> String {
    let text = text.trim();
    let is_number =
        text.strip_prefix('-').unwrap_or(text).chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    if is_number || text.chars().count() == 1 { text.into() } else { format!("({text})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_written_plainly() {
        let cases = [
            ("\\frac{3}{4}", "3/4"),
            ("-\\dfrac{3}{4}", "-3/4"),
            ("\\frac34", "3/4"),
            ("\\frac 3 4", "3/4"),
            ("1\\frac{1}{2}", "1 1/2"),
            ("\\frac{\\sqrt{2}}{2}", "(\\sqrt{2})/2"),
            ("\\frac{\\frac{1}{2}}{3}", "(1/2)/3"),
            ("\\frac", "frac"),
            ("\\frac{1", "frac{1"),
            ("\\text{east}", "east"),
            ("5 \\text{ cm}", "5  cm"),
            ("\\text{", "\\text{"),
            ("\\left( 1,\\, 2 \\right)", "( 1, 2 )"),
            ("\\leftarrow", "\\leftarrow"),
            ("12{,}345", "12,345"),
            ("$\\$5$", "5"),
            ("50\\%", "50%"),
            ("90^\\circ", "90"),
            ("−2", "-2"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text}");
        }
    }

    #[test]
    fn braces_are_matched() {
        assert_eq!(braced("{a{b}c}d"), Some(("a{b}c", "d")));
        assert_eq!(braced("{}"), Some(("", "")));
        let long = format!("{{{}}}", "a".repeat(LONGEST));
        for text in ["", "a", "{a", "{a{b}", "}", &long] {
            assert_eq!(braced(text), None, "{text}");
        }
    }
}
