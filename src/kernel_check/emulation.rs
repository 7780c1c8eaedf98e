//! The small cases in emulation.

use candle_core::{Device, Result};

use super::case::Case;
use super::report::{CaseReport, check_same_bits};
use super::{Size, cases};
use crate::ops::cuda::run_threads_backwards;

/// Runs every small case on the CPU, with the threads of each block in both orders.
///
/// # Errors
/// When the inputs cannot be made. A case that fails is an entry among the reports.
pub fn in_emulation() -> Result<Vec<CaseReport>> {
    let report = |case: Case| {
        let outcome = compare(&case);
        CaseReport::compared(case.name, case.bound, outcome)
    };
    Ok(cases(Size::Small)?.into_iter().map(report).collect())
}

/// The largest difference from the reference; an error when the order of threads shows.
fn compare(case: &Case) -> Result<f64> {
    let inputs = case.inputs_on(&Device::Cpu)?;
    let results = (case.kernel)(&inputs)?;
    check_same_bits(&results, &run_threads_backwards(|| (case.kernel)(&inputs))?)?;
    case.largest_difference(&results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_agrees_with_its_reference_whatever_the_order_of_its_threads() {
        let reports = in_emulation().unwrap();
        assert!(reports.len() > 100);
        let failed: Vec<_> = reports.iter().filter(|report| !report.passed).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }
}
