//! The V-trace actor-critic objective.

use candle_core::WithDType;

use super::loss::{Parts, Selection, Term, combine};
use super::value_loss::squared_error;
use super::{Clipped, Diagnostics, Evaluation, Loss, LossConfig, ObjectiveError};
use crate::learner::Real;
use crate::learner::advantage::{VtraceConfig, VtraceTargets};

/// The loss of IMPALA:
///
/// ```text
/// policy_loss   = S[ −A log π(a) ]          baseline_loss = S[ (vs − V)² / 2 ]          entropy = S[ H(π) ]
/// total_loss    = policy_loss + value_coef · baseline_loss − entropy_coef · entropy
/// ```
///
/// `targets` holds vs and A (with the clipped ratio in front) of [`vtrace`](fn@crate::learner::advantage::vtrace)
/// and `log_rhos` the log-ratios they were computed from; `clips` is only for the reported fractions.
///
/// Source: Espeholt et al., 2018 (arXiv 1802.01561), section 4.2. No gradient flows through vs, A or the ratios: the
/// value function learns from V of the baseline term alone. S sums over the entries where `mask` is set (all without
/// a mask); with [`Reduction::Mean`](super::Reduction::Mean) it is divided by their number, at least 1. The mask
/// does not touch the targets.
///
/// # Errors
/// When numbers of entries differ or a tensor operation fails.
pub fn vtrace_loss<F: Real + WithDType>(
    config: &LossConfig,
    clips: &VtraceConfig,
    policy: &Evaluation<F>,
    targets: &VtraceTargets<F>,
    log_rhos: &[F],
    mask: Option<&[bool]>,
) -> Result<Loss, ObjectiveError> {
    let entries = policy.entries();
    ObjectiveError::check_length("vs", targets.vs.len(), entries)?;
    ObjectiveError::check_length("pg_advantages", targets.pg_advantages.len(), entries)?;
    ObjectiveError::check_length("log_rhos", log_rhos.len(), entries)?;
    let selection = Selection::new(mask, entries)?;
    let above = |bound: f64| {
        let limit = bound.ln();
        let above = selection.indices().filter(|&index| log_rhos[index].widen() > limit).count();
        above as f64 / selection.count().max(1) as f64
    };
    let mut diagnostics =
        Diagnostics::describe(selection, log_rhos, &targets.pg_advantages, policy.values(), &targets.vs);
    diagnostics.clipped = Clipped::Ratios { rho_bar: above(clips.rho_bar), c_bar: above(clips.c_bar) };
    let parts = Parts {
        policy: Term::policy_gradient(selection, policy.log_probs(), &targets.pg_advantages),
        baseline: squared_error(selection, policy.values(), &targets.vs),
    };
    combine(config, policy, selection, parts, diagnostics)
}
