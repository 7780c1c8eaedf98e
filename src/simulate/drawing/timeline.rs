//! Simulations over time: for each, its throughput, its engines and its learner, and its tokens by lag.

use super::shapes::{Anchor, Drawing, QUIET};
use crate::simulate::report::SimulationReport;

const WIDTH: f64 = 960.0;
const PANEL: f64 = 210.0;
const LANE: f64 = 90.0;
/// Where the timeline begins and how wide it is.
const TIME: (f64, f64) = (20.0, 600.0);
/// The same of the histogram of lags.
const LAGS: (f64, f64) = (660.0, 270.0);
/// Columns of a timeline.
const COLUMNS: usize = 300;

/// The drawing of these simulations, one below the other.
#[must_use]
pub fn render(reports: &[SimulationReport]) -> String {
    let height = PANEL * reports.len() as f64 + 10.0;
    let mut drawing = Drawing::new(WIDTH, height);
    let counts = reports.iter().flat_map(|report| report.timeline.engines.iter().flatten());
    let most = counts.map(|(_, count)| *count).fold(1.0, f64::max);
    let fastest = reports.iter().map(|report| report.tokens_per_second).fold(f64::MIN_POSITIVE, f64::max);
    for (index, report) in reports.iter().enumerate() {
        panel(&mut drawing, report, index as f64 * PANEL, (fastest, most));
    }
    drawing.end()
}

fn panel(drawing: &mut Drawing, report: &SimulationReport, top: f64, (fastest, most): (f64, f64)) {
    let heading = format!("{}: {:.0} tokens/s", report.system, report.tokens_per_second);
    drawing.heading((TIME.0, top + 18.0), &heading);
    let width = TIME.1 * report.tokens_per_second / fastest;
    drawing.rectangle([TIME.0, top + 26.0, width, 6.0], "#333", "throughput, against the fastest");
    engines(drawing, report, top + 44.0, most);
    learner(drawing, report, top + 44.0 + LANE + 8.0);
    let (from, until) = window(report);
    let caption = format!(
        "{:.0} s: engines busy {:.0} %, learner busy {:.0} %, {:.1} s an update",
        until - from,
        100.0 * report.generation_busy,
        100.0 * report.learning_busy,
        report.seconds_per_update
    );
    drawing.text((TIME.0, top + 186.0), Anchor::Start, QUIET, &caption);
    lags(drawing, report, top + 44.0);
}

/// The window that a timeline shows: the first quarter of what was measured, in which single rounds can be told apart.
fn window(report: &SimulationReport) -> (f64, f64) {
    let timeline = &report.timeline;
    (timeline.from, timeline.from + (timeline.until - timeline.from) / 4.0)
}

/// Each engine is a row in which its sequences stand as an area, of the most that any engine has.
fn engines(drawing: &mut Drawing, report: &SimulationReport, top: f64, most: f64) {
    let (from, until) = window(report);
    let engines = &report.timeline.engines;
    let row = LANE / engines.len().max(1) as f64;
    let column = TIME.1 / COLUMNS as f64;
    for (index, changes) in engines.iter().enumerate() {
        let floor = top + (index + 1) as f64 * row;
        let height = |mean: f64| floor - (mean / most).min(1.0) * (row - 1.0);
        let mut points = vec![(TIME.0, floor)];
        for (place, mean) in means(changes, from, until).into_iter().enumerate() {
            let left = TIME.0 + place as f64 * column;
            // A column that is as high as the one before lengthens it.
            let level = points.len() > 2 && (points[points.len() - 1].1 - height(mean)).abs() < 0.1;
            if level {
                points.pop();
            } else {
                points.push((left, height(mean)));
            }
            points.push((left + column, points[points.len() - 1].1));
        }
        points.push((TIME.0 + TIME.1, floor));
        drawing.area(&points, "#0072b2");
    }
    drawing.outline([TIME.0, top, TIME.1, LANE], "sequences in each engine");
}

/// Mean of a step function in each column of the window.
fn means(changes: &[(f64, f64)], from: f64, until: f64) -> Vec<f64> {
    let width = (until - from) / COLUMNS as f64;
    let mut sums = vec![0.0; COLUMNS];
    for (index, (at, count)) in changes.iter().enumerate() {
        let end = changes.get(index + 1).map_or(until, |next| next.0).min(until);
        let start = at.max(from);
        if start >= end || width <= 0.0 {
            continue;
        }
        let column = |time: f64| (((time - from) / width) as usize).min(COLUMNS - 1);
        for (place, sum) in sums.iter_mut().enumerate().take(column(end) + 1).skip(column(start)) {
            let left = from + place as f64 * width;
            let covered = end.min(left + width) - start.max(left);
            *sum += count * covered.max(0.0) / width;
        }
    }
    sums
}

fn learner(drawing: &mut Drawing, report: &SimulationReport, top: f64) {
    let (from, until) = window(report);
    let place = |at: f64| TIME.0 + TIME.1 * ((at - from) / (until - from)).clamp(0.0, 1.0);
    for (start, end) in report.timeline.learning.iter().filter(|(start, _)| *start < until) {
        drawing.rectangle([place(*start), top, place(*end) - place(*start), 24.0], "#d55e00", "");
    }
    drawing.outline([TIME.0, top, TIME.1, 24.0], "the learner at work");
}

fn lags(drawing: &mut Drawing, report: &SimulationReport, top: f64) {
    let counts = &report.lag_histogram;
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let most = counts.iter().max().copied().unwrap_or(1).max(1) as f64;
    let (height, column) = (LANE + 32.0, LAGS.1 / counts.len().max(1) as f64);
    for (lag, count) in counts.iter().enumerate() {
        let tall = height * *count as f64 / most;
        let area = [LAGS.0 + lag as f64 * column, top + height - tall, (column - 1.0).max(0.5), tall];
        let title = format!("lag {lag}: {:.1} % of tokens", 100.0 * *count as f64 / all);
        drawing.rectangle(area, "#56b4e9", &title);
    }
    drawing.outline([LAGS.0, top, LAGS.1, height], "tokens by lag");
    let caption = format!("tokens by lag, 0 to {}; mean {:.2}", report.lag_max, report.lag_mean);
    drawing.text((LAGS.0, top + height + 18.0), Anchor::Start, QUIET, &caption);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_the_mean_of_its_time() {
        let means = means(&[(0.0, 2.0), (1.5, 4.0)], 0.0, 300.0);
        assert!((means[0] - 2.0).abs() < 1e-9 && (means[1] - 3.0).abs() < 1e-9);
        assert!((means[299] - 4.0).abs() < 1e-9);
        // Borders that no binary fraction hits.
        let level = super::means(&[(0.0, 3.0)], 0.1, 0.1 + 7.0 / 3.0);
        assert!(level.iter().all(|mean| (mean - 3.0).abs() < 1e-9), "{level:?}");
    }

    #[test]
    fn a_drawing_names_every_system_and_is_well_formed() {
        let report = SimulationReport {
            system: "a<b".into(),
            lag_histogram: vec![3, 1],
            tokens_per_second: 10.0,
            ..SimulationReport::default()
        };
        let svg = render(&[report.clone(), SimulationReport { system: "other".into(), ..report }]);
        assert!(svg.contains("a&lt;b: 10 tokens/s") && svg.contains("other: 10 tokens/s"));
        assert!(svg.contains("lag 1: 25.0 % of tokens"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
