//! Elements of SVG.

use std::fmt::Write as _;

/// Colours of series, told apart by people who see fewer of them (Okabe and Ito).
pub(super) const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Text that explains, and lines that separate.
pub(super) const QUIET: &str = "#666";
pub(super) const GRID: &str = "#e4e4e4";

/// A drawing that grows.
pub(super) struct Drawing(String);

/// Where a text stands on its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        ))
    }

    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], fill: &str, title: &str) {
        let _ = write!(
            self.0,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"",
            short(x),
            short(y),
            short(width),
            short(height)
        );
        self.close("rect", title);
    }

    pub fn outline(&mut self, [x, y, width, height]: [f64; 4], title: &str) {
        let _ = write!(
            self.0,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999\"",
            short(x),
            short(y),
            short(width),
            short(height)
        );
        self.close("rect", title);
    }

    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], stroke: &str, dashed: bool) {
        let dashes = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = writeln!(
            self.0,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{stroke}\"{dashes}/>",
            short(x1),
            short(y1),
            short(x2),
            short(y2)
        );
    }

    /// A line through points.
    pub fn curve(&mut self, points: &[(f64, f64)], stroke: &str) {
        let _ = writeln!(
            self.0,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>",
            joined(points)
        );
    }

    /// The area that points enclose.
    pub fn area(&mut self, points: &[(f64, f64)], fill: &str) {
        let _ = writeln!(self.0, "<path d=\"M{}Z\" fill=\"{fill}\"/>", joined(points));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), fill: &str, title: &str) {
        let _ = write!(
            self.0,
            "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{fill}\" stroke=\"#fff\" stroke-width=\"1.5\"",
            short(x),
            short(y)
        );
        self.close("circle", title);
    }

    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, fill: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let _ = writeln!(
            self.0,
            "<text x=\"{}\" y=\"{}\" fill=\"{fill}\"{anchor}>{}</text>",
            short(x),
            short(y),
            escape(words)
        );
    }

    pub fn heading(&mut self, (x, y): (f64, f64), words: &str) {
        let _ = writeln!(
            self.0,
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\" font-size=\"13\">{}</text>",
            short(x),
            short(y),
            escape(words)
        );
    }

    fn close(&mut self, element: &str, title: &str) {
        let _ = if title.is_empty() {
            writeln!(self.0, "/>")
        } else {
            writeln!(self.0, "><title>{}</title></{element}>", escape(title))
        };
    }
}

fn joined(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", short(*x), short(*y))).collect();
    points.join("L")
}

/// A length by two decimals at most.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
