//! The ledger as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::escape;
use crate::telemetry::RunOutcome;
use crate::trajectory::{Amount, LedgerSnapshot};

/// How the columns are called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub units: &'static str,
    pub parts: &'static str,
}

/// The table of what became of everything that was produced, and of the restarts.
pub(super) fn ledger(
    words: Words,
    ledger: &LedgerSnapshot,
    restarts: &BTreeMap<String, u64>,
    status: RunOutcome,
) -> String {
    let share = |amount: &Amount| 100.0 * amount.steps as f64 / ledger.submitted.steps.max(1) as f64;
    let mut rows = String::new();
    let mut row = |name: &str, amount: &Amount, class: &str| {
        let _ = writeln!(
            rows,
            "<tr class=\"{class}\"><th scope=\"row\">{name}</th><td>{}</td><td>{}</td><td>{:.1} %</td></tr>",
            grouped(amount.unrolls),
            grouped(amount.steps),
            share(amount),
        );
    };
    row("consumed", &ledger.consumed, "");
    for (reason, amount) in &ledger.dropped {
        row(&format!("dropped: {}", reason.as_str().replace('_', " ")), amount, "");
    }
    row("buffered", &ledger.buffered, "");
    row("live", &ledger.live, "");
    row("submitted", &ledger.submitted, "total");
    let restarts: Vec<String> =
        restarts.iter().map(|(kind, count)| format!("{} {count}", escape(kind))).collect();
    let restarts = match (restarts.is_empty(), status) {
        (true, RunOutcome::Failed) => "No actor was restarted before the failure.".into(),
        (true, _) => "No actor was restarted.".into(),
        (false, _) => format!("Restarts: {}.", restarts.join(", ")),
    };
    format!(
        "<h2>Ledger</h2>\n<table>\n<thead><tr><th scope=\"col\">Experience</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">{}</th><th scope=\"col\">Share</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n\
         <p class=\"note\">{restarts}</p>\n",
        words.units, words.parts,
    )
}

/// A count with thin spaces between its groups of three digits.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join("\u{202f}")
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([7, 1_234, 1_000_000].map(grouped), ["7", "1\u{202f}234", "1\u{202f}000\u{202f}000"]);
    }
}
