//! Rules of admission that contradict each other or the rest.

use super::{Refusal, ScheduleContext, refuse};
use crate::schedule::axes::{AdmissionCount, ConsumeOrder, Interrupt, RoundEnd, WeightPush};
use crate::schedule::flow::FlowSettings;

pub(super) fn check(settings: &FlowSettings, context: ScheduleContext) -> Refusal {
    let admission = &settings.admission;
    if admission.count == AdmissionCount::Completed {
        if admission.lead.is_none() {
            return refuse(&["admission.count", "admission.lead"], "without a lead nothing is counted");
        }
        if !context.simulated && settings.consume.max_head_lag.is_none() {
            return refuse(
                &["admission.count", "consume.max_head_lag"],
                "counting completions does not bound what is in flight, and lags reach several times the lead; set the \
                 second, or count submissions",
            );
        }
        if admission.pool.is_none() {
            return refuse(
                &["admission.count", "admission.pool"],
                "counting completions admits without end until the first group completes; bound the pool",
            );
        }
    }
    if admission.throttle.is_some() && admission.concurrency.is_some() {
        return refuse(
            &["admission.throttle", "admission.concurrency"],
            "the throttle finds the concurrency; leave one of them out",
        );
    }
    if let Some(throttle) = admission.throttle {
        let bounds = throttle.least >= u64::from(settings.group_size) && throttle.least <= throttle.most;
        if !bounds {
            return refuse(
                &["admission.throttle.least", "group_size"],
                "the least limit must have room for a group and be at most the greatest",
            );
        }
        if settings.interrupt == Interrupt::None {
            return refuse(
                &["admission.throttle", "interrupt"],
                "a limit that falls pauses answers, which this schedule cannot; set interrupt = \"token\"",
            );
        }
    }
    if let Some(concurrency) = admission.concurrency.filter(|most| *most < u64::from(settings.group_size)) {
        return refuse(
            &["admission.concurrency", "group_size"],
            format!("a group begins together, and {concurrency} is fewer than it has members"),
        );
    }
    let limited = admission.throttle.is_some() || admission.concurrency.is_some();
    if limited && matches!(settings.round_end, RoundEnd::Groups { .. }) {
        return refuse(
            &["round_end.rule", "admission"],
            "a round submits its groups whole and the engines queue what they cannot hold; leave throttle and \
             concurrency out",
        );
    }
    promised_lag(settings)?;
    bounded(settings)
}

/// A bound on the lag that nothing would keep.
fn promised_lag(settings: &FlowSettings) -> Refusal {
    let admission = &settings.admission;
    if !admission.bounds_lag {
        return Ok(());
    }
    let Some(lead) = admission.lead else {
        return refuse(
            &["admission.bounds_lag", "admission.lead"],
            "there is no lead to bound the lag by; set the second",
        );
    };
    let filtered = settings.consume.max_head_lag.is_some_and(|most| most <= lead);
    let whole_batches = settings.round_end == RoundEnd::Batch;
    if settings.order != ConsumeOrder::Submission && !filtered && !whole_batches {
        return refuse(
            &["admission.bounds_lag", "order"],
            format!(
                "the lead bounds lags only in the order of submission; use order = \"submission\", or drop what is older with \
                 consume.max_head_lag = {lead}"
            ),
        );
    }
    Ok(())
}

/// Whether generation could run ahead without end, or could never run.
fn bounded(settings: &FlowSettings) -> Refusal {
    let admission = &settings.admission;
    let bounded = admission.lead.is_some()
        || (admission.pool.is_some()
            && (admission.buffer.is_some() || settings.consume.max_head_lag.is_some()));
    if settings.round_end == RoundEnd::Streaming && !bounded {
        return refuse(
            &["round_end.rule", "admission"],
            "nothing bounds how far generation runs ahead; set admission.lead, or a pool with a buffer",
        );
    }
    if let (RoundEnd::Streaming, None, Some(buffer)) = (settings.round_end, admission.lead, admission.buffer)
        && let Some(pool) = admission.pool
        && pool + buffer < settings.batch_trajectories()
    {
        return refuse(
            &["admission.pool", "admission.buffer"],
            format!(
                "{pool} in flight and {buffer} that wait never make a batch of {}",
                settings.batch_trajectories()
            ),
        );
    }
    if let (WeightPush::Behind { lag }, lead) = (settings.push, admission.lead) {
        if lead != Some(lag) || settings.round_end != RoundEnd::Batch {
            return refuse(
                &["push.lag", "admission.lead"],
                "batches that are a fixed number of updates late take whole batches and a lead of as many",
            );
        }
        if settings.consume.max_head_lag.is_some_and(|most| most < lag) {
            return refuse(
                &["push.lag", "consume.max_head_lag"],
                format!("batches that are {lag} updates late would all be dropped"),
            );
        }
    }
    // A pipelined batch is at most its lead late; of the others only the order of submission is.
    if let (Some(most), Some(lead)) = (settings.consume.max_head_lag, admission.lead)
        && settings.round_end == RoundEnd::Streaming
        && settings.order == ConsumeOrder::Submission
        && most < lead
    {
        return refuse(
            &["consume.max_head_lag", "admission.lead"],
            format!(
                "a lead of {lead} lets answers become older than {most}: much would be generated to be dropped"
            ),
        );
    }
    Ok(())
}
