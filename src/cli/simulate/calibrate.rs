//! `forebay simulate CONFIG --calibrate RUN...`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::simulate::{Agreement, Calibration, SimulateConfig, calibrate};

/// A run beside its prediction.
#[derive(Debug, Serialize)]
pub(super) struct Predicted {
    /// Whether the models were fitted to it.
    fitted: bool,
    #[serde(flatten)]
    agreement: Agreement,
}

/// Fits to some runs and predicts these and others.
pub(super) fn fitted(
    base: &SimulateConfig,
    runs: &[PathBuf],
    others: &[PathBuf],
) -> anyhow::Result<(Calibration, Vec<Predicted>)> {
    let calibration = calibrate(base, runs)?;
    let both = runs.iter().map(|run| (run, true)).chain(others.iter().map(|run| (run, false)));
    let predicted = both
        .map(|(run, fitted)| {
            let agreement = calibration
                .predict(run, fitted)
                .with_context(|| format!("cannot simulate the schedule of {}", run.display()))?;
            Ok(Predicted { fitted, agreement })
        })
        .collect::<anyhow::Result<_>>()?;
    Ok((calibration, predicted))
}

/// Writes the fitted configuration, and the lengths that it names beside it.
pub(super) fn write(calibration: &Calibration, path: &Path) -> anyhow::Result<()> {
    let lengths = path.with_extension("lengths");
    let mut config = calibration.config.clone();
    config.lengths.recorded = Some(lengths.clone());
    let text = format!(
        "# Fitted by `forebay simulate --calibrate`. Without `recorded`, lengths are drawn from the log-normal that was \
         fitted to them.\n{}",
        toml::to_string(&config)?
    );
    for (path, text) in [(&lengths, calibration.lengths_file()), (&path.to_owned(), text)] {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What was fitted, and how well it predicts.
pub(super) fn shown(calibration: &Calibration, predicted: &[Predicted]) -> String {
    let config = &calibration.config;
    let (engine, costs, contention, lengths) =
        (&config.engine, &config.costs, &config.contention, &config.lengths);
    let mut text = String::new();
    for (name, value) in [
        ("engine.step_seconds", engine.step_seconds),
        ("engine.sequence_seconds", engine.sequence_seconds),
        ("engine.prefill_seconds", engine.prefill_seconds),
        ("costs.train_seconds_per_token", costs.train_seconds_per_token),
        ("costs.update_seconds", costs.update_seconds),
        ("costs.sync_seconds", costs.sync_seconds),
        ("costs.grading_seconds", costs.grading_seconds),
        ("contention.generation", contention.generation),
        ("contention.learning", contention.learning),
        ("lengths.median", lengths.median),
        ("lengths.prompt_sigma", lengths.prompt_sigma),
        ("lengths.within_sigma", lengths.within_sigma),
        ("lengths.cap", lengths.cap as f64),
        ("lengths.prompt_tokens", lengths.prompt_tokens as f64),
    ] {
        let _ = writeln!(text, "{name:<30} {}", four_digits(value));
    }
    let name = |of: &Predicted| of.agreement.run.display().to_string();
    let width = predicted.iter().map(|of| name(of).chars().count()).max().unwrap_or(0).max(3);
    let _ = writeln!(text, "\n{:<width$}  fitted  updates  measured tokens/s  predicted   error", "run");
    for of in predicted {
        let agreement = &of.agreement;
        let _ = writeln!(
            text,
            "{:<width$}  {:<6}  {:>7}  {:>17.1}  {:>9.1}  {:>+5.1} %",
            name(of),
            if of.fitted { "yes" } else { "no" },
            agreement.updates,
            agreement.measured,
            agreement.predicted,
            100.0 * agreement.error,
        );
    }
    text
}

/// A number by its first four digits.
fn four_digits(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1000.0 {
        return format!("{value:.0}");
    }
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if decimals > 0 { short.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_by_four_digits() {
        let told = [0.0, 0.000_123_456, 0.02, 1.0, 12.345_6, 999.96, 3000.0].map(four_digits);
        assert_eq!(told, ["0", "0.0001235", "0.02", "1", "12.35", "1000", "3000"]);
    }
}
