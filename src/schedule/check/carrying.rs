//! What answers carry over an update, against how old they may be and what is learned.

use super::{Refusal, ScheduleContext, refuse};
use crate::schedule::axes::{Interrupt, Layout, OnUpdate, Resume, RoundEnd, TokenMask};
use crate::schedule::flow::FlowSettings;

pub(super) fn check(settings: &FlowSettings, context: ScheduleContext) -> Refusal {
    kept_state(settings, context)?;
    strictness(settings)?;
    if settings.consume.mask == TokenMask::Old && context.whole_answers {
        return refuse(
            &["consume.mask", "learner.loss.objective"],
            "the objective compares whole answers, of which only the newest part would be left; mask nothing, or take a \
             token objective",
        );
    }
    if context.group_relative && settings.group_size == 1 {
        return refuse(
            &["learner.advantage", "group_size"],
            "advantages compare the members of a group, so there must be at least 2",
        );
    }
    if !settings.repeatable {
        if settings.group_size > 1 {
            return refuse(
                &["repeatable", "group_size"],
                "a problem that cannot be tried twice has one answer; set group_size = 1",
            );
        }
        if settings.on_update == OnUpdate::Discard {
            return refuse(&["repeatable", "on_update"], "an answer that is discarded is tried again");
        }
    }
    Ok(())
}

fn kept_state(settings: &FlowSettings, context: ScheduleContext) -> Refusal {
    if !settings.resume.stores_state() {
        return Ok(());
    }
    if settings.interrupt == Interrupt::None {
        return refuse(
            &["resume.mode", "interrupt"],
            "nothing is ever interrupted, so there is no state to keep; set interrupt = \"token\"",
        );
    }
    if !context.state_store {
        return refuse(
            &["resume.mode", "generate.engine"],
            "the engine cannot store the state of a paused sequence; use resume.mode = \"reprefill\"",
        );
    }
    if settings.resume == Resume::KeepKvAndRouting && !context.records_experts {
        return refuse(
            &["resume.mode", "generate.engine.record_experts"],
            "there are no recorded experts to keep: the model is dense, or they are not recorded; use \"keep_kv\"",
        );
    }
    if settings.on_update == OnUpdate::Discard {
        return refuse(
            &["resume.mode", "on_update"],
            "what is begun anew keeps nothing; use resume.mode = \"reprefill\"",
        );
    }
    if settings.layout == Layout::Decoupled
        && settings.round_end == RoundEnd::Streaming
        && settings.resume == (Resume::ExternalKv { kv_across_versions: false })
    {
        return refuse(
            &["resume.kv_across_versions", "layout"],
            "answers are interrupted by updates only, and then their state is thrown away; set the first, or use \
             resume.mode = \"reprefill\"",
        );
    }
    Ok(())
}

/// Schedules that must not learn from older tokens, and yet produce them.
fn strictness(settings: &FlowSettings) -> Refusal {
    let carries = settings.interrupt == Interrupt::Token
        && settings.on_update == OnUpdate::Carry
        && settings.round_end != RoundEnd::Batch;
    // With η = 0 nothing is in flight at an update, whatever could be carried.
    let strict = settings.consume.max_head_lag == Some(0);
    if strict && carries && settings.admission.lead != Some(0) {
        return refuse(
            &["consume.max_head_lag", "on_update"],
            "answers carried over an update have older tokens and would all be dropped; use on_update = \"discard\", or \
             allow a lag",
        );
    }
    if settings.admission.lead == Some(0) && settings.resume.stores_state() {
        return refuse(
            &["admission.lead", "resume.mode"],
            "with a lead of 0 nothing is in flight at an update, so there is no state to keep",
        );
    }
    let pipelined = settings.layout == Layout::Decoupled && settings.round_end == RoundEnd::Batch;
    if strict && pipelined && settings.admission.lead.is_some_and(|lead| lead > 0) {
        return refuse(
            &["consume.max_head_lag", "admission.lead"],
            "every batch is late, so all would be dropped",
        );
    }
    Ok(())
}
