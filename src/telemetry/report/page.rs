//! The page around the charts: heading, key figures, ledger and configuration.

use std::fmt::Write as _;

use super::{Charts, escape};
use crate::telemetry::format::{duration, si};
use crate::telemetry::{MetricsLine, RunOutcome, Summary};
use crate::trajectory::Amount;

/// Everything that the page shows.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// Name of the run.
    pub name: String,
    /// The last line of metrics: what is known when there is no summary.
    pub last_line: Option<&'a MetricsLine>,
    pub summary: Option<Summary>,
    /// The resolved configuration, as it stands in its file.
    pub config: Option<String>,
    pub charts: Charts,
}

impl Page<'_> {
    /// The whole document.
    pub fn render(&self) -> String {
        let name = escape(&self.name);
        let mut body = format!("<header><h1>{name}</h1>{}</header>\n{}", self.status(), self.figures());
        let Charts { wide, half, small } = &self.charts;
        if wide.is_empty() && half.is_empty() && small.is_empty() {
            body.push_str("<p>Nothing was measured: the run ended before its first update.</p>\n");
        }
        body.push_str(wide);
        for (title, class, charts) in [
            ("System", "halves", half),
            ("Learner <small>against environment steps</small>", "smalls", small),
        ] {
            if !charts.is_empty() {
                let _ = write!(body, "<h2>{title}</h2>\n<div class=\"{class}\">\n{charts}</div>\n");
            }
        }
        if let Some(summary) = &self.summary {
            body.push_str(&ledger(summary));
        }
        if let Some(config) = &self.config {
            let config = escape(config);
            let _ = writeln!(
                body,
                "<details><summary>Resolved configuration</summary><pre>{config}</pre></details>"
            );
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name} · Forebay</title>\n\
             <style>\n{}</style>\n</head>\n<body>\n<main>\n{body}<footer>Forebay {}</footer>\n</main>\n</body>\n</html>\n",
            include_str!("style.css"),
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn status(&self) -> String {
        match &self.summary {
            Some(summary) => format!(
                "<p><span class=\"status {0}\">{0}</span> {1}</p>",
                summary.status.as_str(),
                escape(&summary.cause)
            ),
            None => {
                "<p><span class=\"status\">no summary</span> the run still goes on, or was killed</p>".into()
            }
        }
    }

    /// The key figures: from the summary, else from the last line.
    fn figures(&self) -> String {
        let number = |value: Option<f64>| value.map_or("–".into(), si);
        let tiles: Vec<(&str, String, String)> = match (&self.summary, self.last_line) {
            (Some(summary), _) => vec![
                ("Return", number(summary.return_mean), "last 100 episodes".into()),
                ("Evaluation", number(summary.eval_mean), "mean return".into()),
                ("Environment steps", si(summary.env_steps as f64), String::new()),
                ("Steps a second", si(summary.steps_per_second), "whole run".into()),
                ("Wall time", duration(summary.wall_seconds), String::new()),
                ("Updates", si(summary.updates as f64), String::new()),
                ("Lag", number(summary.lag_mean), format!("updates, at most {}", summary.lag_max)),
            ],
            (None, Some(MetricsLine { record, per_second, .. })) => vec![
                ("Return", number(record.return_mean), "last 100 episodes".into()),
                ("Environment steps", si(record.env_steps as f64), String::new()),
                ("Steps a second", number(*per_second), "last line".into()),
                ("Wall time", duration(record.wall_seconds), String::new()),
                ("Updates", si(record.update as f64), String::new()),
                ("Lag", number(record.lag_mean), "updates, last line".into()),
            ],
            (None, None) => return String::new(),
        };
        let mut text = String::from("<dl class=\"figures\">\n");
        for (name, value, note) in tiles {
            let _ = writeln!(text, "<div><dt>{name}</dt><dd>{value}</dd><small>{note}</small></div>");
        }
        text + "</dl>\n"
    }
}

/// The table of what became of every unroll and step, and of the restarts.
fn ledger(summary: &Summary) -> String {
    let ledger = &summary.ledger;
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
        summary.restarts.iter().map(|(kind, count)| format!("{} {count}", escape(kind))).collect();
    let restarts = match (restarts.is_empty(), summary.status) {
        (true, RunOutcome::Failed) => "No actor was restarted before the failure.".into(),
        (true, _) => "No actor was restarted.".into(),
        (false, _) => format!("Restarts: {}.", restarts.join(", ")),
    };
    format!(
        "<h2>Ledger</h2>\n<table>\n<thead><tr><th scope=\"col\">Experience</th><th scope=\"col\">Unrolls</th>\
         <th scope=\"col\">Steps</th><th scope=\"col\">Share</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n\
         <p class=\"note\">{restarts}</p>\n"
    )
}

/// A count with thin spaces between its groups of three digits.
fn grouped(count: u64) -> String {
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
