//! Numbers for human eyes.

/// A number with three significant digits and an SI prefix: `12.3k`, `4.50M`, `0.012`, `−7`.
#[must_use]
pub(super) fn si(value: f64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let size = value.abs();
    // 999.5 and above would round to four digits, so they already take the next prefix.
    match PREFIXES.into_iter().find(|(scale, _)| size >= scale * 0.9995) {
        Some((scale, prefix)) => format!("{}{prefix}", three_digits(value / scale)),
        None if size.fract() == 0.0 => format!("{value:.0}"),
        None => three_digits(value),
    }
    .replace('-', "\u{2212}")
}

/// Three significant digits, in scientific notation below a thousandth.
fn three_digits(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() {
        return "?".into();
    }
    match size {
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.9995.. => format!("{value:.2}"),
        0.000_999_5.. => format!("{value:.3}"),
        0.0 => "0".into(),
        _ => format!("{value:.1e}"),
    }
}

/// A time span in its two greatest units: `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`, `4 d 03 h`.
#[must_use]
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".into();
    }
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {:02} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {:02} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_at_every_size() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (-12.0, "−12"),
            (0.012_34, "0.012"),
            (0.000_3, "3.0e−4"),
            (21.46, "21.5"),
            (999.4, "999"),
            (999.9, "1.00k"),
            (12_345.0, "12.3k"),
            (4_500_000.0, "4.50M"),
            (-2.5e9, "−2.50G"),
            (f64::NAN, "?"),
        ];
        for (value, text) in cases {
            assert_eq!(si(value), text);
        }
    }

    #[test]
    fn spans_show_their_two_greatest_units() {
        let cases = [(0.84, "0.8 s"), (42.4, "42 s"), (185.0, "3 min 05 s"), (7_800.0, "2 h 10 min")];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(3.0 * 86_400.0 + 7_200.0), "3 d 02 h");
        assert_eq!(duration(f64::INFINITY), "?");
    }
}
