//! Axes with round ticks.

/// An axis from 0 to a round value, over so many units of the drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    from: f64,
    until: f64,
    most: f64,
    step: f64,
}

impl Axis {
    /// An axis that reaches at least `most`, from one place in the drawing to another.
    pub fn new(most: f64, from: f64, until: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let rough = most / 5.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|times| times * unit)
            .find(|step| *step >= rough * (1.0 - 1e-9))
            .unwrap_or(10.0 * unit);
        Self { from, until, most: (most / step - 1e-9).ceil() * step, step }
    }

    /// Where a value stands.
    pub fn place(&self, value: f64) -> f64 {
        self.from + (self.until - self.from) * value / self.most
    }

    /// Round values with their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let count = (self.most / self.step).round() as usize;
        (0..=count)
            .map(|index| self.step * index as f64)
            .map(|value| (value, name(value, self.step)))
            .collect()
    }
}

/// A value to the decimals that tell steps apart.
fn name(value: f64, step: f64) -> String {
    if step >= 1e6 {
        return format!("{}M", value / 1e6);
    }
    if step >= 1000.0 {
        return format!("{}k", value / 1e3);
    }
    let mut decimals = 0;
    while decimals < 6
        && (step * 10_f64.powi(decimals)).fract().min(1.0 - (step * 10_f64.powi(decimals)).fract()) > 1e-6
    {
        decimals += 1;
    }
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_greatest_value() {
        let names = |most: f64| -> Vec<String> {
            Axis::new(most, 0.0, 1.0).ticks().into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(names(1.24), ["0.00", "0.25", "0.50", "0.75", "1.00", "1.25"]);
        assert_eq!(names(5000.0), ["0k", "1k", "2k", "3k", "4k", "5k"]);
        assert_eq!(names(7.0), ["0", "2", "4", "6", "8"]);
        assert_eq!(names(0.0).first().map(String::as_str), Some("0.0"));
        let axis = Axis::new(4.0, 100.0, 0.0);
        assert_eq!((axis.place(0.0), axis.place(4.0)), (100.0, 0.0));
    }
}
