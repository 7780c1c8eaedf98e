//! Holds every kernel against a reference: one list of cases for two back ends.
//!
//! A case has inputs, a function of `crate::ops::cuda` that runs kernels with their real grids, what must come out
//! (computed in f64 on the CPU), and how much memory and arithmetic the kernels cannot do without. `in_emulation` (feature
//! `kernel-emulation`) runs the small cases on the CPU, with the threads of each block in both orders; `on_device`
//! (feature `cuda`, program `gpu_check`) runs small and large ones on a GPU, then operators, and language models that
//! generate and learn. Results start as NaN in both, so a place that no kernel writes is seen.

mod attention;
mod case;
mod control;
#[cfg(feature = "kernel-emulation")]
mod emulation;
mod indexing;
#[cfg(any(feature = "cuda", test))]
mod language;
mod learning;
#[cfg(feature = "cuda")]
mod on_device;
#[cfg(feature = "cuda")]
mod operators;
mod report;
mod rows;
mod sampling;
mod vocabulary;

use candle_core::{DType, Result};

use case::Case;

#[cfg(feature = "kernel-emulation")]
pub use emulation::in_emulation;
#[cfg(feature = "cuda")]
pub use on_device::{Report, on_device};
pub use report::CaseReport;

/// How large the inputs of a case are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Odd sizes that emulation runs in moments, and whose results are compared.
    Small,
    /// Sizes of real work, to be timed.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a device runs them"))]
    Large,
}

/// Every case of a size, for both value types where a kernel has both.
fn cases(size: Size) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        cases.extend(rows::cases(size, dtype)?);
        cases.extend(indexing::cases(size, dtype)?);
        cases.extend(attention::cases(size, dtype)?);
        cases.extend(vocabulary::cases(size, dtype)?);
        cases.extend(sampling::cases(size, dtype)?);
        cases.extend(learning::optimizer_cases(size, dtype)?);
    }
    cases.extend(control::cases(size)?);
    cases.extend(learning::scan_cases(size)?);
    Ok(cases)
}
