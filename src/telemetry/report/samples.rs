//! What the model wrote, as a table with escaped text.

use std::fmt::Write as _;

use super::escape;
use super::ledger::grouped;
use crate::telemetry::Sample;
use crate::telemetry::format::si;
use crate::trajectory::Finish;

/// Most characters of one text that are shown; the middle of a longer one is left out.
const MOST_CHARACTERS: usize = 4_000;

/// The section of samples, newest first; nothing when there is none.
pub(super) fn samples(samples: &[Sample]) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<h2>Samples <small>newest first</small></h2>\n<div class=\"scroll\">\n<table class=\"samples\">\n\
         <thead><tr><th scope=\"col\">Update</th><th scope=\"col\">Prompt</th><th scope=\"col\">Completion</th>\
         <th scope=\"col\">Reward</th></tr></thead>\n<tbody>\n",
    );
    for sample in samples.iter().rev() {
        let split = sample.split.as_deref().map(|split| format!("<small>{}</small>", shown(split)));
        let answer =
            sample.answer.as_deref().map(|answer| format!("<small>answer: {}</small>", shown(answer)));
        let reward = sample.reward.map_or("not graded".into(), si);
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}{}</th><td><pre>{}</pre>{}</td><td><pre>{}</pre></td>\
             <td>{reward}<small>{}<br>{} tokens</small></td></tr>",
            grouped(sample.update),
            split.unwrap_or_default(),
            shown(&sample.prompt),
            answer.unwrap_or_default(),
            shown(&sample.completion),
            ending(sample.finish),
            grouped(sample.tokens),
        );
    }
    text + "</tbody>\n</table>\n</div>\n"
}

fn ending(finish: Option<Finish>) -> &'static str {
    match finish {
        Some(Finish::Stop) => "ended",
        Some(Finish::Length) => "cut off: budget",
        Some(Finish::Context) => "cut off: context",
        Some(Finish::Repetition) => "cut off: repetition",
        None => "unfinished",
    }
}

/// Text of a model or a data set as HTML: shortened, control characters as their pictures, markup escaped.
fn shown(text: &str) -> String {
    let visible: String = shortened(text).chars().map(picture).collect();
    escape(&visible)
}

/// A control character that HTML must not hold as the picture that Unicode has of it.
fn picture(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        // The second range of control characters has no pictures; marks of writing direction could reorder the page.
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        other => other,
    }
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= MOST_CHARACTERS {
        return text.to_owned();
    }
    let half = MOST_CHARACTERS / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{start}\n[… {} characters …]\n{end}", grouped((count - 2 * half) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::samples::tests::sample;

    #[test]
    fn what_a_model_wrote_is_shown_and_never_obeyed() {
        let hostile = Sample {
            completion: "<script>alert(1)</script>\0\u{1b}[31m \u{202e}& \"x\"\n2 < 3".into(),
            answer: Some("<b>4</b>".into()),
            ..sample(3)
        };
        let html = samples(&[hostile]);
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;\u{2400}\u{241b}[31m"), "{html}");
        assert!(html.contains("\u{fffd}&amp; &quot;x&quot;\n2 &lt; 3"), "{html}");
        assert!(html.contains("answer: &lt;b&gt;4&lt;/b&gt;") && !html.contains("<script"), "{html}");
    }

    #[test]
    fn the_newest_sample_stands_first_and_a_failed_grading_is_no_zero() {
        let html = samples(&[sample(1), Sample { reward: None, finish: Some(Finish::Length), ..sample(2) }]);
        assert!(html.find("It is 2.").unwrap() < html.find("It is 1.").unwrap(), "{html}");
        assert!(html.contains("not graded") && html.contains("cut off: budget"), "{html}");
        assert_eq!(samples(&[]), "");
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let long = format!("begin{}end", "é".repeat(5_000));
        let shown = shown(&long);
        assert!(shown.starts_with("begin") && shown.ends_with("end"), "{shown}");
        assert!(shown.contains("[… 1\u{202f}008 characters …]"), "{shown}");
    }
}
