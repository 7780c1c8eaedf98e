//! GRS: rewards as a product of grades, so that an answer is worth what its weakest part leaves.
//!
//! R = test · solution · behaviour, and then [`MeanBaselineConfig`](super::MeanBaselineConfig). A group in which all
//! tests pass can keep its variance, so the filter of groups comes after. Source: Xiaomi, "MiMo-V2.6", 2026.

/// The grades of one answer, usually between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrsParts {
    /// Whether the tests pass.
    pub test: f64,
    /// Quality of the solution.
    pub solution: f64,
    /// Quality of the behaviour that led to it.
    pub behaviour: f64,
}

/// The reward of each answer of a group; `None` where grading failed.
#[must_use]
pub fn grs_rewards(parts: &[Option<GrsParts>]) -> Vec<Option<f64>> {
    let product = |parts: &GrsParts| parts.test * parts.solution * parts.behaviour;
    parts.iter().map(|parts| parts.as_ref().map(product)).collect()
}
