//! Charts as inline SVG that stays sharp at every width.
//!
//! The drawing has no view box: text has the page's own size and stands at percentages, and only the curves live in
//! a nested drawing that stretches, with strokes that do not. So one chart serves a phone and a wide screen. What a
//! pointer shows are `<title>` elements; there is no script.

use std::fmt::Write as _;

use super::escape;
use super::scale::{Axis, Quantity};
use super::series::Point;

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The main curve.
    Line,
    /// A thin curve behind it.
    FaintLine,
    /// Dots with a thin connecting line.
    Dots,
}

impl Mark {
    fn class(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::FaintLine => "faint",
            Self::Dots => "dots",
        }
    }
}

/// One curve.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub name: &'static str,
    pub mark: Mark,
    pub points: Vec<Point>,
}

/// A part of the horizontal axis, from zero to here, with its name. It is shown although no curve begins there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub until: f64,
    pub name: &'static str,
}

/// A chart of curves over a common horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub title: &'static str,
    /// What the vertical axis shows, with its unit.
    pub y_label: &'static str,
    pub y: Quantity,
    /// What the horizontal axis shows; empty where the page says it.
    pub x_label: &'static str,
    pub x: Quantity,
    /// Whether the vertical axis begins at zero.
    pub from_zero: bool,
    /// Class of the figure, which sets its size.
    pub class: &'static str,
    /// A part of the horizontal axis that is set off from the rest.
    pub span: Option<Span>,
    pub series: Vec<Series>,
}

impl Chart {
    /// The chart as a `<figure>`; nothing when no series has a point.
    pub fn render(&self) -> String {
        let drawn: Vec<&Series> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        let points = || drawn.iter().flat_map(|series| &series.points);
        if drawn.is_empty() {
            return String::new();
        }
        let (left, right) = range(points().map(|point| point.x));
        let (bottom, top) = vertical_range(&drawn);
        let ticks = if self.class == "small" { 3.0 } else { 5.0 };
        let x = Axis::new(
            self.x,
            if self.span.is_some() || left <= 0.2 * right { 0.0 } else { left },
            right,
            4.0,
            false,
        );
        let y = Axis::new(self.y, if self.from_zero { bottom.min(0.0) } else { bottom }, top, ticks, true);

        let mut drawing = self.span.map(|span| set_off(span, &x)).unwrap_or_default();
        drawing.push_str(&axes(&x, &y));
        let mut stretched = String::new();
        for series in &drawn {
            stretched.push_str(&band(series, &x, &y));
            stretched.push_str(&curve(series, &x, &y));
        }
        let _ = write!(
            drawing,
            r#"<svg class="plot" width="100%" height="100%" viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">{stretched}</svg>"#
        );
        drawing.push_str(&pointer_targets(&drawn, &x, &y));
        for series in drawn.iter().filter(|series| series.mark == Mark::Dots) {
            drawing.push_str(&dots(series, &x, &y));
        }
        let legend = if drawn.len() > 1 { legend(&drawn) } else { String::new() };
        figure(
            self.class,
            self.title,
            self.y_label,
            &legend,
            &describe(&drawn, &x, &y),
            &drawing,
            self.x_label,
        )
    }
}

/// A chart of bars, each with its label and height; `note` completes what a pointer shows.
pub(super) fn bars(
    class: &str,
    title: &str,
    y_label: &str,
    x_label: &str,
    note: &str,
    bars: &[(String, f64)],
) -> String {
    let (_, top) = range(bars.iter().map(|(_, height)| *height));
    let Some(greatest) = bars.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return String::new() };
    let y = Axis::new(Quantity::Number, 0.0, top, 4.0, true);
    let mut drawing = horizontal_grid(&y);
    // A few bars keep a bar's width instead of filling the chart.
    let slot = 100.0 / bars.len().max(8) as f64;
    let every = bars.len().div_ceil(12);
    for (index, (label, height)) in bars.iter().enumerate() {
        let left = slot * index as f64;
        let size = 100.0 * y.position(*height);
        let label = escape(label);
        let _ = write!(
            drawing,
            r#"<rect class="bar" x="{:.2}%" y="{:.2}%" width="{:.2}%" height="{size:.2}%"><title>{label}: {} {note}</title></rect>"#,
            left + 0.1 * slot,
            100.0 - size,
            0.8 * slot,
            y.precise(*height),
        );
        if index % every == 0 {
            let _ = write!(
                drawing,
                r#"<text class="x" x="{:.2}%" y="100%" dy="18">{label}</text>"#,
                left + 0.5 * slot
            );
        }
    }
    drawing.push_str(r#"<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>"#);
    let summary =
        format!("{} bars; the highest is {} with {} {note}.", bars.len(), greatest.0, y.precise(greatest.1));
    figure(class, title, y_label, "", &summary, &drawing, x_label)
}

fn figure(
    class: &str,
    title: &str,
    y_label: &str,
    legend: &str,
    summary: &str,
    drawing: &str,
    x_label: &str,
) -> String {
    let (title, summary) = (escape(title), escape(summary));
    let x_label = if x_label.is_empty() {
        String::new()
    } else {
        format!(r#"<p class="x-label">{}</p>"#, escape(x_label))
    };
    format!(
        r#"<figure class="{class}"><figcaption><b>{title}</b> <span>{}</span>{legend}</figcaption>
<svg class="chart" role="img" aria-label="{title}. {summary}"><desc>{summary}</desc>{drawing}</svg>{x_label}</figure>
"#,
        escape(y_label),
    )
}

fn legend(drawn: &[&Series]) -> String {
    let mut text = String::from(r#"<div class="legend">"#);
    for series in drawn {
        let _ =
            write!(text, r#"<span><i class="{}"></i>{}</span> "#, series.mark.class(), escape(series.name));
    }
    text + "</div>"
}

fn horizontal_grid(y: &Axis) -> String {
    let mut drawing = String::new();
    for (position, label) in y.ticks() {
        let top = 100.0 * (1.0 - position);
        let _ = write!(
            drawing,
            r#"<line class="grid" x1="0" x2="100%" y1="{top:.2}%" y2="{top:.2}%"/><text class="y" x="-8" y="{top:.2}%" dy="4">{label}</text>"#
        );
    }
    drawing
}

fn axes(x: &Axis, y: &Axis) -> String {
    let mut drawing = horizontal_grid(y);
    drawing.push_str(r#"<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>"#);
    for (position, label) in x.ticks() {
        let left = 100.0 * position;
        let _ = write!(drawing, r#"<text class="x" x="{left:.2}%" y="100%" dy="18">{label}</text>"#);
    }
    drawing
}

fn set_off(span: Span, x: &Axis) -> String {
    let width = 100.0 * x.position(span.until).clamp(0.0, 1.0);
    let name = escape(span.name);
    format!(
        r#"<rect class="span" width="{width:.2}%" height="100%"/><text class="span" x="6" y="0" dy="14">{name}</text>"#
    )
}

/// A point in the nested drawing, a thousand units wide and high.
fn place(x: &Axis, y: &Axis, horizontal: f64, vertical: f64) -> String {
    format!("{:.1} {:.1}", 1000.0 * x.position(horizontal), 1000.0 * (1.0 - y.position(vertical)))
}

fn curve(series: &Series, x: &Axis, y: &Axis) -> String {
    let path: Vec<String> = series.points.iter().map(|point| place(x, y, point.x, point.y)).collect();
    format!(r#"<path class="{}" d="M{}"/>"#, series.mark.class(), path.join("L"))
}

/// The area between the least and the greatest measurements of a main curve.
fn band(series: &Series, x: &Axis, y: &Axis) -> String {
    if series.mark != Mark::Line || series.points.iter().all(|point| point.low == point.high) {
        return String::new();
    }
    let upper = series.points.iter().map(|point| place(x, y, point.x, point.high));
    let lower = series.points.iter().rev().map(|point| place(x, y, point.x, point.low));
    format!(r#"<path class="band" d="M{}Z"/>"#, upper.chain(lower).collect::<Vec<_>>().join("L"))
}

/// An invisible column around each point of the first series, which shows the values there.
fn pointer_targets(drawn: &[&Series], x: &Axis, y: &Axis) -> String {
    let points = &drawn[0].points;
    let mut targets = String::new();
    for (index, point) in points.iter().enumerate() {
        let middle = |other: Option<&Point>, edge: f64| {
            other.map_or(edge, |other| 100.0 * x.position(f64::midpoint(point.x, other.x)))
        };
        let left = middle(index.checked_sub(1).and_then(|before| points.get(before)), 0.0);
        let right = middle(points.get(index + 1), 100.0);
        let mut values = x.precise(point.x);
        for series in drawn.iter().filter(|series| series.mark != Mark::Dots) {
            let near = |a: &&Point, b: &&Point| (a.x - point.x).abs().total_cmp(&(b.x - point.x).abs());
            if let Some(nearest) = series.points.iter().min_by(near) {
                let _ = write!(values, "\n{}: {}", series.name, y.precise(nearest.y));
            }
        }
        let _ = write!(
            targets,
            r#"<rect class="target" x="{left:.2}%" width="{:.2}%" height="100%"><title>{}</title></rect>"#,
            right - left,
            escape(&values),
        );
    }
    targets
}

fn dots(series: &Series, x: &Axis, y: &Axis) -> String {
    let mut drawing = String::new();
    for point in &series.points {
        let _ = write!(
            drawing,
            r#"<circle class="dots" cx="{:.2}%" cy="{:.2}%" r="3.5"><title>{}
{}: {}</title></circle>"#,
            100.0 * x.position(point.x),
            100.0 * (1.0 - y.position(point.y)),
            x.precise(point.x),
            escape(series.name),
            y.precise(point.y),
        );
    }
    drawing
}

/// The chart in words, for those who cannot see it.
fn describe(drawn: &[&Series], x: &Axis, y: &Axis) -> String {
    let mut text = String::new();
    for series in drawn {
        let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else { continue };
        let (least, greatest) = range(series.points.iter().map(|point| point.y));
        let _ = write!(
            text,
            "{}: from {} at {} to {} at {}, between {} and {}. ",
            series.name,
            y.precise(first.y),
            x.precise(first.x),
            y.precise(last.y),
            x.precise(last.x),
            y.precise(least),
            y.precise(greatest),
        );
    }
    text.trim_end().to_owned()
}

/// The range of all points and of most of the scatter around the main curves: a single outlier must not flatten them.
fn vertical_range(drawn: &[&Series]) -> (f64, f64) {
    let (bottom, top) = range(drawn.iter().flat_map(|series| &series.points).map(|point| point.y));
    let scattered = drawn.iter().filter(|series| series.mark == Mark::Line).flat_map(|series| &series.points);
    let (mut lows, mut highs): (Vec<f64>, Vec<f64>) = scattered.map(|point| (point.low, point.high)).unzip();
    lows.sort_by(f64::total_cmp);
    highs.sort_by(f64::total_cmp);
    let outliers = lows.len() / 40;
    let low = lows.get(outliers).copied().unwrap_or(bottom);
    let high = highs.iter().rev().nth(outliers).copied().unwrap_or(top);
    (bottom.min(low), top.max(high))
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Point>) -> Chart {
        Chart {
            title: "Loss",
            y_label: "nats",
            y: Quantity::Number,
            x_label: "steps",
            x: Quantity::Number,
            from_zero: false,
            class: "wide",
            span: None,
            series: vec![Series { name: "a < b", mark: Mark::Line, points }],
        }
    }

    #[test]
    fn a_curve_spans_its_axes_and_says_its_values() {
        let at = |x: f64, y: f64| Point { x, y, low: y, high: y };
        let svg = chart(vec![at(0.0, 0.0), at(50.0, 4.0), at(100.0, 2.0)]).render();
        assert!(svg.contains(r#"<path class="line" d="M0.0 1000.0L500.0 0.0L1000.0 500.0"/>"#), "{svg}");
        assert!(svg.contains("a &lt; b: from 0 at 0 to 2.0 at 100, between 0 and 4.0."), "{svg}");
        assert!(!svg.contains("class=\"band\"") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_span_covers_its_part_of_the_axis_under_its_name() {
        let at = |x: f64| Point { x, y: x, low: x, high: x };
        let mut chart = chart(vec![at(30.0), at(100.0)]);
        chart.span = Some(Span { until: 25.0, name: "warm-up" });
        let svg = chart.render();
        assert!(svg.contains(r#"<rect class="span" width="25.00%" height="100%"/>"#), "{svg}");
        assert!(svg.contains(">warm-up</text>"), "{svg}");
    }

    #[test]
    fn a_chart_of_nothing_is_left_out() {
        assert_eq!(chart(Vec::new()).render(), "");
        assert_eq!(bars("half", "Lag", "", "", "", &[]), "");
    }

    #[test]
    fn a_few_bars_do_not_fill_the_chart() {
        let svg = bars("half", "Lag", "%", "updates", "% of steps", &[("0".into(), 100.0)]);
        assert!(svg.contains(r#"x="1.25%" y="0.00%" width="10.00%" height="100.00%""#), "{svg}");
    }
}
