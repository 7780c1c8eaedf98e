//! Simulations as a drawing: for each, its engines and its learner over time, and its tokens by lag; beside them the
//! throughputs.
//!
//! The drawing has no script and no style from outside, so that it can stand in a page or on its own.

use std::fmt::Write as _;

use super::report::SimulationReport;

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
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let fastest = reports.iter().map(|report| report.tokens_per_second).fold(f64::MIN_POSITIVE, f64::max);
    for (index, report) in reports.iter().enumerate() {
        panel(&mut svg, report, index as f64 * PANEL, fastest);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, report: &SimulationReport, top: f64, fastest: f64) {
    let name = escape(&report.system);
    text(svg, TIME.0, top + 20.0, "#000", &format!("{name}: {:.0} tokens/s", report.tokens_per_second));
    let width = TIME.1 * report.tokens_per_second / fastest;
    rectangle(svg, [TIME.0, top + 26.0, width, 6.0], "#333", "throughput, against the fastest");
    engines(svg, report, top + 44.0);
    learner(svg, report, top + 44.0 + LANE + 8.0);
    let caption = format!(
        "engines busy {:.0} %, learner busy {:.0} %, {:.1} s an update",
        100.0 * report.generation_busy,
        100.0 * report.learning_busy,
        report.seconds_per_update
    );
    text(svg, TIME.0, top + 186.0, "#555", &caption);
    lags(svg, report, top + 44.0);
}

/// The window that a timeline shows: the first quarter of what was measured, in which single rounds can be told apart.
fn window(report: &SimulationReport) -> (f64, f64) {
    let timeline = &report.timeline;
    (timeline.from, timeline.from + (timeline.until - timeline.from) / 4.0)
}

/// Each engine is a row, the darker the more of its sequences decode.
fn engines(svg: &mut String, report: &SimulationReport, top: f64) {
    let (from, until) = window(report);
    let engines = &report.timeline.engines;
    let most = engines.iter().flatten().map(|(_, count)| *count).fold(1.0, f64::max);
    let row = LANE / engines.len().max(1) as f64;
    let column = TIME.1 / COLUMNS as f64;
    for (index, changes) in engines.iter().enumerate() {
        let means = means(changes, from, until);
        for (place, mean) in means.iter().enumerate().filter(|(_, mean)| **mean > 0.0) {
            let shade = format!("rgba(31,119,180,{:.2})", (mean / most).min(1.0));
            let area = [TIME.0 + place as f64 * column, top + index as f64 * row, column, row];
            rectangle(svg, area, &shade, "");
        }
    }
    outline(svg, [TIME.0, top, TIME.1, LANE], "sequences in each engine");
}

/// Mean of a step function in each column of the window.
fn means(changes: &[(f64, f64)], from: f64, until: f64) -> Vec<f64> {
    let width = (until - from) / COLUMNS as f64;
    let mut sums = vec![0.0; COLUMNS];
    for (index, (at, count)) in changes.iter().enumerate() {
        let end = changes.get(index + 1).map_or(until, |next| next.0).min(until);
        let mut start = at.max(from);
        while start < end && width > 0.0 {
            let column = (((start - from) / width) as usize).min(COLUMNS - 1);
            let border = (from + (column + 1) as f64 * width).min(end);
            // The last column takes what rounding leaves.
            let border = if border <= start { end } else { border };
            sums[column] += count * (border - start) / width;
            start = border;
        }
    }
    sums
}

fn learner(svg: &mut String, report: &SimulationReport, top: f64) {
    let (from, until) = window(report);
    let place = |at: f64| TIME.0 + TIME.1 * ((at - from) / (until - from)).clamp(0.0, 1.0);
    for (start, end) in report.timeline.learning.iter().filter(|(start, _)| *start < until) {
        rectangle(svg, [place(*start), top, place(*end) - place(*start), 24.0], "#d95f02", "");
    }
    outline(svg, [TIME.0, top, TIME.1, 24.0], "the learner at work");
}

fn lags(svg: &mut String, report: &SimulationReport, top: f64) {
    let counts = &report.lag_histogram;
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let most = counts.iter().max().copied().unwrap_or(1).max(1) as f64;
    let (height, column) = (LANE + 32.0, LAGS.1 / counts.len().max(1) as f64);
    for (lag, count) in counts.iter().enumerate() {
        let tall = height * *count as f64 / most;
        let area = [LAGS.0 + lag as f64 * column, top + height - tall, (column - 1.0).max(0.5), tall];
        rectangle(
            svg,
            area,
            "#7570b3",
            &format!("lag {lag}: {:.1} % of tokens", 100.0 * *count as f64 / all),
        );
    }
    outline(svg, [LAGS.0, top, LAGS.1, height], "tokens by lag");
    let caption = format!("tokens by lag, 0 to {}; mean {:.2}", report.lag_max, report.lag_mean);
    text(svg, LAGS.0, top + height + 18.0, "#555", &caption);
}

fn rectangle(svg: &mut String, [x, y, width, height]: [f64; 4], fill: &str, title: &str) {
    let _ = write!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\""
    );
    let _ =
        if title.is_empty() { writeln!(svg, "/>") } else { writeln!(svg, "><title>{title}</title></rect>") };
}

fn outline(svg: &mut String, [x, y, width, height]: [f64; 4], title: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#999\"><title>{title}\
         </title></rect>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, fill: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{fill}\">{words}</text>");
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_the_mean_of_its_time() {
        let means = means(&[(0.0, 2.0), (1.5, 4.0)], 0.0, 300.0);
        assert!((means[0] - 2.0).abs() < 1e-9 && (means[1] - 3.0).abs() < 1e-9);
        assert!((means[299] - 4.0).abs() < 1e-9);
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
