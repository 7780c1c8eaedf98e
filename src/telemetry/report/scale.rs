//! Axes: round tick positions and their labels.

/// How values of an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A plain number, with SI prefixes from a thousand on.
    Number,
    /// Seconds, written in the unit that suits their size.
    Seconds,
}

/// One axis, from its low to its high end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    /// Distance of two ticks.
    step: f64,
    /// What values are divided by before they are written, and what is written after them.
    divisor: f64,
    suffix: &'static str,
}

impl Axis {
    /// An axis over `low..=high`, moved outwards to round ticks if `rounded`, with about `ticks` of them.
    pub fn new(quantity: Quantity, low: f64, high: f64, ticks: f64, rounded: bool) -> Self {
        let (mut low, mut high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        if high - low <= 1e-12 * high.abs().max(low.abs()) {
            // One value only: show it in the middle of something.
            let margin = if low == 0.0 { 1.0 } else { 0.5 * low.abs() };
            (low, high) = (if low == 0.0 { 0.0 } else { low - margin }, high + margin);
        }
        let (divisor, suffix) = match quantity {
            Quantity::Number => prefix(low.abs().max(high.abs())),
            Quantity::Seconds => time_unit(high),
        };
        let step = round_step((high - low) / divisor / ticks) * divisor;
        if rounded {
            (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
        }
        Self { low, high, step, divisor, suffix }
    }

    /// Where a value stands, 0 at the low end and 1 at the high one.
    pub fn position(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// The ticks: position and label.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        (first..=last).map(|index| {
            let value = index as f64 * self.step;
            (self.position(value), self.label(value, self.step))
        })
    }

    /// A value between ticks, with one digit more than they have.
    pub fn precise(&self, value: f64) -> String {
        self.label(value, self.step / 10.0)
    }

    fn label(&self, value: f64, resolution: f64) -> String {
        if value == 0.0 {
            return "0".into();
        }
        let (value, resolution) = (value / self.divisor, resolution / self.divisor);
        let decimals = (-(resolution * 1.000_001).log10().floor()).max(0.0) as usize;
        let number = if decimals > 5 { format!("{value:.1e}") } else { format!("{value:.decimals$}") };
        format!("{number}{}", self.suffix).replace('-', "\u{2212}")
    }
}

/// The step 1, 2 or 5 times a power of ten that is next above `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|&step| step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

fn prefix(size: f64) -> (f64, &'static str) {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    PREFIXES.into_iter().find(|(scale, _)| size >= *scale).unwrap_or((1.0, ""))
}

fn time_unit(size: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 6] =
        [(172_800.0, " d"), (7_200.0, " h"), (180.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs")];
    let (_, suffix) = UNITS.into_iter().find(|(least, _)| size >= *least).unwrap_or(UNITS[3]);
    let divisor = match suffix {
        " d" => 86_400.0,
        " h" => 3_600.0,
        " min" => 60.0,
        " ms" => 1e-3,
        " µs" => 1e-6,
        _ => 1.0,
    };
    (divisor, suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_carry_their_unit() {
        let axis = Axis::new(Quantity::Number, 0.0, 200_000.0, 5.0, false);
        assert_eq!(labels(&axis), ["0", "50k", "100k", "150k", "200k"]);
        let axis = Axis::new(Quantity::Number, 0.13, 0.69, 3.0, true);
        assert_eq!(labels(&axis), ["0", "0.2", "0.4", "0.6", "0.8"]);
        let axis = Axis::new(Quantity::Seconds, 0.0, 0.012, 3.0, true);
        assert_eq!(labels(&axis), ["0", "5 ms", "10 ms", "15 ms"]);
        let axis = Axis::new(Quantity::Seconds, 0.0, 3_600.0, 4.0, false);
        assert_eq!(labels(&axis), ["0", "20 min", "40 min", "60 min"]);
        let axis = Axis::new(Quantity::Number, -21.0, 21.0, 4.0, true);
        assert_eq!(labels(&axis), ["−40", "−20", "0", "20", "40"]);
    }

    #[test]
    fn a_single_value_stands_inside_its_axis() {
        for value in [0.0, 3.0, -2.5e-4, 1e9] {
            let axis = Axis::new(Quantity::Number, value, value, 4.0, true);
            assert!((0.0..=1.0).contains(&axis.position(value)), "{value}: {axis:?}");
            assert!(axis.ticks().count() >= 2, "{value}: {axis:?}");
        }
    }

    #[test]
    fn values_between_ticks_get_one_digit_more() {
        let axis = Axis::new(Quantity::Number, 0.0, 200_000.0, 5.0, false);
        assert_eq!(axis.precise(123_456.0), "123k");
        let axis = Axis::new(Quantity::Number, 0.0, 1.0, 4.0, true);
        assert_eq!(axis.precise(0.123_4), "0.12");
    }
}
