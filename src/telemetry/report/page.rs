//! The page around the charts: heading, key figures, ledger and configuration.

use std::fmt::Write as _;

use super::escape;
use crate::telemetry::RunOutcome;
use crate::telemetry::format::si;

/// A key figure: name, value and a note below it.
pub(super) type Tile = (&'static str, String, String);

/// The charts of the page, in three groups of one size each.
#[derive(Debug, Default)]
pub(super) struct Charts {
    pub wide: String,
    pub half: String,
    pub small: String,
}

/// What depends on the workload, ready to be shown.
#[derive(Debug)]
pub(super) struct Content {
    /// How and why the run ended; `None` without a summary.
    pub ending: Option<(RunOutcome, String)>,
    /// The key figures.
    pub tiles: Vec<Tile>,
    pub charts: Charts,
    /// What the horizontal axes of the small charts show.
    pub against: &'static str,
    /// The section of the ledger; `None` without a summary.
    pub ledger: Option<String>,
    /// The section of samples; empty where there are none.
    pub samples: String,
}

/// Everything that the page shows.
#[derive(Debug)]
pub(super) struct Page {
    /// Name of the run.
    pub name: String,
    pub content: Content,
    /// The resolved configuration, as it stands in its file.
    pub config: Option<String>,
}

impl Page {
    /// The whole document.
    pub fn render(&self) -> String {
        let name = escape(&self.name);
        let content = &self.content;
        let mut body = format!("<header><h1>{name}</h1>{}</header>\n{}", self.status(), self.figures());
        let Charts { wide, half, small } = &content.charts;
        if wide.is_empty() && half.is_empty() && small.is_empty() {
            body.push_str("<p>Nothing was measured: the run ended before its first update.</p>\n");
        }
        body.push_str(wide);
        let learner = format!("Learner <small>against {}</small>", content.against);
        for (title, class, charts) in [("System", "halves", half), (&learner, "smalls", small)] {
            if !charts.is_empty() {
                let _ = write!(body, "<h2>{title}</h2>\n<div class=\"{class}\">\n{charts}</div>\n");
            }
        }
        if let Some(ledger) = &content.ledger {
            body.push_str(ledger);
        }
        body.push_str(&content.samples);
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
        match &self.content.ending {
            Some((status, cause)) => {
                format!("<p><span class=\"status {0}\">{0}</span> {1}</p>", status.as_str(), escape(cause))
            }
            None => {
                "<p><span class=\"status\">no summary</span> the run still goes on, or was killed</p>".into()
            }
        }
    }

    fn figures(&self) -> String {
        if self.content.tiles.is_empty() {
            return String::new();
        }
        let mut text = String::from("<dl class=\"figures\">\n");
        for (name, value, note) in &self.content.tiles {
            let _ = writeln!(text, "<div><dt>{name}</dt><dd>{value}</dd><small>{note}</small></div>");
        }
        text + "</dl>\n"
    }
}

/// A figure that may not exist.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or("–".into(), si)
}
