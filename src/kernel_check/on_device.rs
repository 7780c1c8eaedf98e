//! The cases on a GPU: small ones compared, operators with their gradients compared with the CPU, large ones timed.

use std::time::Instant;

use candle_core::{Device, Result};
use serde::Serialize;

use super::case::Case;
use super::language::{self, Model, NUMBERS, Numbers, Speed};
use super::report::{CaseReport, check_same_bits};
use super::{Size, cases, operators};
use crate::ops::cuda::poison_results;

/// Memory and arithmetic of an H200, for the shortest time that a case can take: bytes and f32 operations a second.
/// Products in bf16 have more arithmetic, which is not counted on.
const BYTES_A_SECOND: f64 = 4.8e12;
const OPERATIONS_A_SECOND: f64 = 67e12;
/// How long a case is repeated to be timed, in seconds.
const TIMED: f64 = 0.05;

/// What all cases came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Kernels against references in f64.
    pub kernels: Vec<CaseReport>,
    /// Operators and their gradients on the device against the CPU.
    pub operators: Vec<CaseReport>,
    /// Large cases, timed.
    pub speed: Vec<CaseReport>,
    /// Language models that generate and learn: against the CPU, and how fast.
    pub language: Vec<CaseReport>,
}

/// Runs everything; `show` gets each report when it is there.
///
/// # Errors
/// When the inputs cannot be made. A case that fails is an entry in the report.
pub fn on_device(device: &Device, mut show: impl FnMut(&CaseReport)) -> Result<Report> {
    let mut report = Report::default();
    poison_results(true);
    // candle cannot put a tensor of nothing on a device.
    let possible = |case: &Case| case.inputs.iter().all(|input| input.elem_count() > 0);
    for case in cases(Size::Small)?.into_iter().filter(possible) {
        let outcome = compare(&case, device);
        report.kernels.push(CaseReport::compared(case.name, case.bound, outcome));
        report.kernels.last().into_iter().for_each(&mut show);
    }
    poison_results(false);
    for case in operators::cases()? {
        let outcome = case.largest_difference(device);
        report.operators.push(CaseReport::compared(case.name.to_owned(), case.bound, outcome));
        report.operators.last().into_iter().for_each(&mut show);
    }
    for case in cases(Size::Large)? {
        let outcome = time(&case, device);
        let entry = CaseReport::timed(case.name, outcome);
        show(&entry);
        report.speed.push(entry);
    }
    language_models(device, |entry| {
        show(&entry);
        report.language.push(entry);
    })?;
    Ok(report)
}

/// Generation and training, in each type: the small model against the CPU, the large one timed.
fn language_models(device: &Device, mut found: impl FnMut(CaseReport)) -> Result<()> {
    let small = Model::new(language::small())?;
    for Numbers { dtype, log_prob, step } in NUMBERS {
        let outcome = language::generation_difference(&small, device, dtype);
        found(CaseReport::compared(format!("tokens generated {dtype:?}"), log_prob, outcome));
        let outcome = language::training_difference(&small, device, dtype);
        found(CaseReport::compared(format!("a step of GRPO {dtype:?}"), step, outcome));
    }
    let large = Speed::new()?;
    for Numbers { dtype, .. } in NUMBERS {
        for answers in Speed::BATCHES {
            let name = format!("135M parameters generate {answers} answers {dtype:?}");
            found(CaseReport::rate(name, large.generation(answers, device, dtype)));
        }
        let name = format!("135M parameters learn from 64 answers of 128 tokens {dtype:?}");
        found(CaseReport::rate(name, large.training(device, dtype)));
    }
    Ok(())
}

/// The largest difference from the reference; an error when a second run gives other bits.
fn compare(case: &Case, device: &Device) -> Result<f64> {
    let inputs = case.inputs_on(device)?;
    let results = (case.kernel)(&inputs)?;
    check_same_bits(&results, &(case.kernel)(&inputs)?)?;
    case.largest_difference(&results)
}

/// Milliseconds of a run, and the least there can be.
fn time(case: &Case, device: &Device) -> Result<(f64, f64)> {
    let inputs = case.inputs_on(device)?;
    for _ in 0..2 {
        (case.kernel)(&inputs)?;
    }
    device.synchronize()?;
    let started = Instant::now();
    let mut runs = 0;
    while runs < 3 || started.elapsed().as_secs_f64() < TIMED {
        (case.kernel)(&inputs)?;
        // Launches run ahead of the device, so its time is only known at the end of each run.
        device.synchronize()?;
        runs += 1;
    }
    let seconds = started.elapsed().as_secs_f64() / f64::from(runs);
    let work = case.work;
    let floor = (work.bytes as f64 / BYTES_A_SECOND).max(work.operations as f64 / OPERATIONS_A_SECOND);
    Ok((1e3 * seconds, 1e3 * floor))
}
