//! What changes with a field: throughput for each of its values, and throughput against lag; or other figures of the
//! report.

use super::axis::Axis;
use super::shapes::{Anchor, COLOURS, Drawing, GRID, QUIET};
use crate::simulate::report::SimulationReport;

const PANEL: (f64, f64) = (470.0, 330.0);
/// Left, top, right and bottom of a panel that its axes leave.
const MARGIN: [f64; 4] = [58.0, 46.0, 22.0, 52.0];
const THROUGHPUT: &str = "tokens_per_second";
const SHARES: &str = "consumed_by_source";

/// Simulations of several values of a field.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// The field.
    pub field: String,
    /// Of each system, its name and the reports by value. All have the same values.
    pub series: Vec<(String, Vec<(String, SimulationReport)>)>,
    /// What throughputs are compared with.
    pub baseline: Option<SimulationReport>,
    /// Figures of the report to draw over the values, by their names in JSON; none: throughput over values, and over
    /// lag.
    pub figures: Vec<String>,
}

impl Sweep {
    fn value(&self, report: &SimulationReport, figure: &str) -> f64 {
        let value = serde_json::to_value(report).ok().and_then(|report| report[figure].as_f64());
        match &self.baseline {
            Some(baseline) if figure == THROUGHPUT => report.tokens_per_second / baseline.tokens_per_second,
            _ => value.unwrap_or_default(),
        }
    }

    fn name(&self, figure: &str) -> String {
        match (&self.baseline, figure) {
            (Some(baseline), THROUGHPUT) => format!("throughput, of that of {}", baseline.system),
            (None, THROUGHPUT) => "trained tokens a second".to_owned(),
            (_, SHARES) => "trained trajectories by source, %".to_owned(),
            (_, "lag_mean") => "mean lag of a token, updates".to_owned(),
            (_, figure) => figure.replace("_seconds", ", seconds").replace('_', " "),
        }
    }

    /// Whether the baseline belongs into a panel of a figure.
    fn baseline_value(&self, figure: &str) -> Option<f64> {
        let baseline = self.baseline.as_ref()?;
        Some(self.value(baseline, figure)).filter(|_| figure == THROUGHPUT)
    }
}

/// The drawing, a panel for each figure, side by side.
#[must_use]
pub fn render(sweep: &Sweep) -> String {
    let panels = if sweep.figures.is_empty() { 2 } else { sweep.figures.len() };
    let legend = if sweep.series.len() > 1 { 26.0 } else { 0.0 };
    let mut drawing = Drawing::new(PANEL.0 * panels as f64, PANEL.1 + legend);
    if sweep.figures.is_empty() {
        over_values(&mut drawing, sweep, THROUGHPUT, 0.0);
        over_lags(&mut drawing, sweep, PANEL.0);
    }
    for (index, figure) in sweep.figures.iter().enumerate() {
        let left = PANEL.0 * index as f64;
        if figure == SHARES {
            shares(&mut drawing, sweep, left);
        } else {
            over_values(&mut drawing, sweep, figure, left);
        }
    }
    if legend > 0.0 {
        let mut left = MARGIN[0];
        for (index, (name, _)) in sweep.series.iter().enumerate() {
            drawing.rectangle([left, PANEL.1 + 4.0, 12.0, 12.0], colour(index), "");
            drawing.text((left + 18.0, PANEL.1 + 14.0), Anchor::Start, "#000", name);
            left += 44.0 + 7.0 * name.chars().count() as f64;
        }
    }
    drawing.end()
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// The plain part of a panel that begins here: heading, vertical axis with its grid.
fn frame(drawing: &mut Drawing, heading: &str, y: &Axis, left: f64) -> (f64, f64, f64) {
    let (from, until) = (left + MARGIN[0], left + PANEL.0 - MARGIN[2]);
    let floor = PANEL.1 - MARGIN[3];
    drawing.heading((from, 24.0), heading);
    for (value, name) in y.ticks() {
        let at = y.place(value);
        drawing.line([from, at, until, at], if value == 0.0 { "#888" } else { GRID }, false);
        drawing.text((from - 8.0, at + 4.0), Anchor::End, QUIET, &name);
    }
    (from, until, floor)
}

fn vertical(most: f64) -> Axis {
    Axis::new(most, PANEL.1 - MARGIN[3], MARGIN[1])
}

fn baseline(
    drawing: &mut Drawing,
    sweep: &Sweep,
    figure: &str,
    y: &Axis,
    (from, until): (f64, f64),
    named: bool,
) {
    let (Some(value), Some(of)) = (sweep.baseline_value(figure), &sweep.baseline) else { return };
    let at = y.place(value);
    drawing.line([from, at, until, at], "#444", true);
    if named {
        drawing.text((from + 2.0, at - 5.0), Anchor::Start, "#444", &of.system);
    }
}

/// The greatest value of a figure, the baseline's included.
fn greatest(sweep: &Sweep, figure: &str) -> f64 {
    let reports = sweep.series.iter().flat_map(|(_, reports)| reports);
    let values = reports.map(|(_, report)| sweep.value(report, figure));
    values.chain(sweep.baseline_value(figure)).fold(0.0, f64::max)
}

fn over_values(drawing: &mut Drawing, sweep: &Sweep, figure: &str, left: f64) {
    let y = vertical(greatest(sweep, figure));
    let (from, until, floor) = frame(drawing, &sweep.name(figure), &y, left);
    let count = sweep.series.first().map_or(1, |(_, reports)| reports.len().max(1));
    let place = |index: usize| from + (until - from) * (index as f64 + 0.5) / count as f64;
    for (index, (value, _)) in
        sweep.series.first().map(|(_, reports)| reports).into_iter().flatten().enumerate()
    {
        drawing.text((place(index), floor + 18.0), Anchor::Middle, QUIET, value);
    }
    drawing.text((f64::midpoint(from, until), floor + 38.0), Anchor::Middle, "#000", &sweep.field);
    baseline(drawing, sweep, figure, &y, (from, until), true);
    for (series, (name, reports)) in sweep.series.iter().enumerate() {
        let points: Vec<(f64, f64)> = reports
            .iter()
            .enumerate()
            .map(|(index, (_, report))| (place(index), y.place(sweep.value(report, figure))))
            .collect();
        drawing.curve(&points, colour(series));
        for (point, (value, report)) in points.iter().zip(reports) {
            let title = format!("{name} {value}: {:.3}", sweep.value(report, figure));
            drawing.dot(*point, colour(series), title.trim_start());
        }
    }
}

fn over_lags(drawing: &mut Drawing, sweep: &Sweep, left: f64) {
    let y = vertical(greatest(sweep, THROUGHPUT));
    let (from, until, floor) = frame(drawing, "throughput against lag", &y, left);
    let x = Axis::new(greatest(sweep, "lag_mean"), from, until - 12.0);
    for (value, name) in x.ticks() {
        drawing.text((x.place(value), floor + 18.0), Anchor::Middle, QUIET, &name);
    }
    let middle = f64::midpoint(from, until);
    drawing.text((middle, floor + 38.0), Anchor::Middle, "#000", &sweep.name("lag_mean"));
    baseline(drawing, sweep, THROUGHPUT, &y, (from, until), false);
    for (series, (name, reports)) in sweep.series.iter().enumerate() {
        let at =
            |report: &SimulationReport| (x.place(report.lag_mean), y.place(sweep.value(report, THROUGHPUT)));
        let points: Vec<(f64, f64)> = reports.iter().map(|(_, report)| at(report)).collect();
        drawing.curve(&points, colour(series));
        let mut named: Vec<(f64, f64)> = Vec::new();
        for (point, (value, report)) in points.iter().zip(reports) {
            let title = format!("{name} {value}: lag {:.2}", report.lag_mean);
            drawing.dot(*point, colour(series), title.trim_start());
            // A name that would lie on another is left out.
            let free = named
                .iter()
                .all(|other| (other.0 - point.0).abs() > 26.0 || (other.1 - point.1).abs() > 13.0);
            if free {
                let (shift, anchor) =
                    if point.0 > until - 50.0 { (4.0, Anchor::End) } else { (7.0, Anchor::Start) };
                drawing.text((point.0 + shift, point.1 + 17.0), anchor, QUIET, value);
                named.push(*point);
            }
        }
    }
}

/// A bar for each value, divided by sources.
fn shares(drawing: &mut Drawing, sweep: &Sweep, left: f64) {
    let (from, until) = (left + MARGIN[0], left + PANEL.0 - MARGIN[2]);
    drawing.heading((from, 24.0), &sweep.name(SHARES));
    let rows: Vec<&(String, SimulationReport)> =
        sweep.series.iter().flat_map(|(_, reports)| reports).collect();
    let row = ((PANEL.1 - MARGIN[1] - 20.0) / rows.len().max(1) as f64).min(90.0);
    for (index, (value, report)) in rows.into_iter().enumerate() {
        let top = MARGIN[1] + row * index as f64;
        drawing.text((from, top + 12.0), Anchor::Start, "#000", value);
        let all = report.consumed_by_source.iter().sum::<u64>().max(1) as f64;
        let mut at = from;
        for (source, count) in report.consumed_by_source.iter().enumerate() {
            let width = (until - from) * *count as f64 / all;
            let share = format!("{:.1}", 100.0 * *count as f64 / all);
            drawing.rectangle([at, top + 20.0, (width - 2.0).max(0.0), row - 34.0], colour(source), &share);
            if width > 26.0 {
                let middle = (at + width / 2.0, top + 20.0 + (row - 34.0) / 2.0 + 4.0);
                drawing.text(middle, Anchor::Middle, "#fff", &share);
            }
            at += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tokens_per_second: f64, lag_mean: f64) -> SimulationReport {
        SimulationReport {
            system: "sync".into(),
            tokens_per_second,
            lag_mean,
            group_wait_seconds: 3.0,
            consumed_by_source: vec![3, 1],
            ..SimulationReport::default()
        }
    }

    fn sweep(figures: &[&str]) -> Sweep {
        let values = vec![("0".to_owned(), report(50.0, 0.0)), ("a<b".to_owned(), report(120.0, 1.5))];
        Sweep {
            field: "lead".into(),
            series: vec![("areal".into(), values.clone()), ("other".into(), values)],
            baseline: Some(report(100.0, 0.0)),
            figures: figures.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn throughput_stands_over_the_values_and_over_lag_against_the_baseline() {
        let svg = render(&sweep(&[]));
        assert!(svg.contains(">throughput, of that of sync<") && svg.contains(">throughput against lag<"));
        assert!(svg.contains("<title>areal a&lt;b: 1.200</title>"), "{svg}");
        assert!(svg.contains("<title>other a&lt;b: lag 1.50</title>"));
        assert!(svg.contains(">lead</text>") && svg.contains(">other</text>"));
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "the baseline in both panels");
        assert_eq!(svg.matches("<circle").count(), 8);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn other_figures_are_drawn_as_they_are_and_shares_as_bars() {
        let svg = render(&sweep(&["group_wait_seconds", "consumed_by_source"]));
        assert!(svg.contains(">group wait, seconds<") && svg.contains("<title>areal 0: 3.000</title>"));
        assert_eq!(svg.matches(">75.0</text>").count(), 4, "{svg}");
        assert!(!svg.contains("stroke-dasharray"), "a baseline is one of throughput");
    }
}
