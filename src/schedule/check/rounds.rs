//! Layout, rounds and what they need of the other axes.

use super::{Refusal, refuse};
use crate::schedule::axes::{Dispatch, Interrupt, Layout, Refill, RoundEnd, WeightPush};
use crate::schedule::flow::FlowSettings;

pub(super) fn check(settings: &FlowSettings) -> Refusal {
    if settings.layout == Layout::Colocated {
        if settings.round_end == RoundEnd::Streaming {
            return refuse(
                &["layout", "round_end.rule"],
                "streaming generates while it learns, which devices in common cannot; use layout = \"decoupled\"",
            );
        }
        if let WeightPush::Interval { .. } | WeightPush::Adaptive { .. } = settings.push {
            return refuse(
                &["layout", "push.when"],
                "weights would be pushed into generation while the devices learn; use layout = \"decoupled\"",
            );
        }
        if settings.round_end == RoundEnd::Batch && settings.admission.lead.is_some_and(|lead| lead > 0) {
            return refuse(
                &["layout", "admission.lead"],
                "taking turns with whole batches never gets ahead; use layout = \"decoupled\"",
            );
        }
    } else if settings.round_end == RoundEnd::Batch && settings.admission.lead.is_none() {
        return refuse(
            &["round_end.rule", "admission.lead"],
            "nothing bounds how many batches generation may be ahead; set the second",
        );
    }
    if settings.round_end.pauses() && settings.interrupt == Interrupt::None {
        return refuse(
            &["round_end.rule", "interrupt"],
            "this round ends while answers are in flight, and they cannot be paused; set interrupt = \"token\"",
        );
    }
    if settings.round_end == RoundEnd::Batch && !matches!(settings.dispatch, Dispatch::Batch { groups: 0 }) {
        return refuse(
            &["round_end.rule", "dispatch.unit"],
            "a round of a batch dispatches the batch whole; use dispatch.unit = \"batch\" without `groups`",
        );
    }
    if matches!(settings.dispatch, Dispatch::Unroll) && settings.group_size != 1 {
        return refuse(&["dispatch.unit", "group_size"], "an unroll is a group of one");
    }
    if let RoundEnd::Groups { submit } = settings.round_end
        && submit < settings.batch
    {
        return refuse(
            &["round_end.submit", "batch"],
            format!("{submit} submitted groups are never {} complete ones", settings.batch),
        );
    }
    liveness(settings)
}

/// Rounds that could wait for ever.
fn liveness(settings: &FlowSettings) -> Refusal {
    if let RoundEnd::Fraction { refill: Refill::StartOnly, min_ready, .. } = settings.round_end
        && min_ready > 0
        && settings.consume.zero_advantage
    {
        return refuse(
            &["consume.zero_advantage", "round_end.refill"],
            "groups that are dropped are not replaced within the round, which may wait for a complete one for ever; use \
             refill = \"continuous\"",
        );
    }
    if settings.consume.zero_advantage && settings.group_size == 1 {
        return refuse(
            &["consume.zero_advantage", "group_size"],
            "the rewards of a group of one are always alike, so that every group would be dropped",
        );
    }
    Ok(())
}
