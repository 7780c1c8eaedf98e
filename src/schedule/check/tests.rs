//! Every refusal names both fields and says why.

use super::ScheduleContext;
use crate::schedule::axes::*;
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::System;

fn of(system: &str) -> FlowSettings {
    let group_size = if ["glm_sao", "impala"].contains(&system) { 1 } else { 4 };
    System::named(system).unwrap().sized(8, group_size)
}

fn plain() -> ScheduleContext {
    ScheduleContext { group_relative: false, ..ScheduleContext::default() }
}

/// What is refused: fields, and part of the reason.
fn refused(settings: &FlowSettings, context: ScheduleContext, fields: &[&str], why: &str) {
    let error = settings.check(context).expect_err(why);
    assert_eq!(error.fields, fields, "{error}");
    assert!(error.why.contains(why), "{error}");
    assert!(error.to_string().starts_with(&format!("`{}`", fields.join("`, `"))), "{error}");
}

fn changed(system: &str, change: impl FnOnce(&mut FlowSettings)) -> FlowSettings {
    let mut settings = of(system);
    settings.check(plain()).unwrap();
    change(&mut settings);
    settings
}

#[test]
fn groups_of_one_are_refused_where_members_are_compared() {
    let context = ScheduleContext { group_relative: true, ..plain() };
    refused(&of("glm_sao"), context, &["learner.advantage", "group_size"], "at least 2");
    let settings = changed("glm_sao", |s| s.consume.zero_advantage = true);
    refused(&settings, plain(), &["consume.zero_advantage", "group_size"], "always alike");
}

#[test]
fn devices_in_common_are_refused_to_generate_while_they_learn() {
    let settings = changed("areal", |s| s.layout = Layout::Colocated);
    refused(&settings, plain(), &["layout", "round_end.rule"], "decoupled");
    let settings = changed("kimi_k3", |s| s.push = WeightPush::Interval { seconds: 9.0 });
    refused(&settings, plain(), &["layout", "push.when"], "decoupled");
    let settings = changed("kimi_k3", |s| s.push = WeightPush::Adaptive { lag: 1, spread: 0.5 });
    refused(&settings, plain(), &["layout", "push.when"], "decoupled");
    let settings = changed("sync", |s| s.admission.lead = Some(1));
    refused(&settings, plain(), &["layout", "admission.lead"], "never gets ahead");
}

#[test]
fn kept_state_is_refused_where_there_is_none_to_keep() {
    let settings = changed("sync", |s| s.resume = Resume::KeepKv);
    refused(&settings, plain(), &["resume.mode", "interrupt"], "interrupt = \"token\"");
    let context = ScheduleContext { state_store: false, ..plain() };
    refused(&of("deepseek_v4_1"), context, &["resume.mode", "generate.engine"], "cannot store");
    let context = ScheduleContext { records_experts: false, ..plain() };
    refused(
        &of("deepseek_v4_1"),
        context,
        &["resume.mode", "generate.engine.record_experts"],
        "use \"keep_kv\"",
    );
    let settings = changed("kimi_k3", |s| s.on_update = OnUpdate::Discard);
    refused(&settings, plain(), &["resume.mode", "on_update"], "keeps nothing");
    let settings = changed("areal", |s| s.resume = Resume::ExternalKv { kv_across_versions: false });
    refused(&settings, plain(), &["resume.kv_across_versions", "layout"], "thrown away");
    let settings = changed("areal", |s| s.resume = Resume::ExternalKv { kv_across_versions: true });
    assert_eq!(settings.check(plain()), Ok(()));
}

#[test]
fn strict_schedules_are_refused_to_carry_answers_over() {
    for system in ["kimi_k1_5", "april", "kimi_k3", "mimo_v2_6"] {
        let settings = changed(system, |s| s.consume.max_head_lag = Some(0));
        refused(&settings, plain(), &["consume.max_head_lag", "on_update"], "on_update = \"discard\"");
    }
    let settings = changed("april", |s| {
        s.consume.max_head_lag = Some(0);
        s.on_update = OnUpdate::Discard;
    });
    assert_eq!(settings.check(plain()), Ok(()));
    let settings = changed("areal", |s| {
        s.admission.lead = Some(0);
        s.resume = Resume::KeepKv;
    });
    refused(&settings, plain(), &["admission.lead", "resume.mode"], "no state to keep");
    let settings = changed("one_step", |s| s.consume.max_head_lag = Some(0));
    refused(&settings, plain(), &["consume.max_head_lag", "admission.lead"], "every batch is late");
}

#[test]
fn a_promised_lag_is_refused_where_nothing_keeps_it() {
    let settings = changed("areal", |s| {
        s.admission.bounds_lag = true;
        s.consume.max_head_lag = None;
    });
    refused(&settings, plain(), &["admission.bounds_lag", "order"], "max_head_lag = 4");
    let kept = changed("areal", |s| {
        s.admission.bounds_lag = true;
        s.consume.max_head_lag = Some(4);
    });
    assert_eq!(kept.check(plain()), Ok(()));
    let settings = changed("kimi_k3", |s| s.admission.bounds_lag = true);
    refused(&settings, plain(), &["admission.bounds_lag", "admission.lead"], "no lead");
}

#[test]
fn counting_completions_is_for_simulation_or_behind_a_filter() {
    let literal = |filter| {
        changed("areal", |s| {
            s.admission.count = AdmissionCount::Completed;
            s.admission.pool = Some(64);
            s.consume.max_head_lag = filter;
        })
    };
    refused(&literal(None), plain(), &["admission.count", "consume.max_head_lag"], "several times the lead");
    assert_eq!(literal(None).check(ScheduleContext { simulated: true, ..plain() }), Ok(()));
    assert_eq!(literal(Some(4)).check(plain()), Ok(()));
    let mut unbounded = literal(Some(4));
    unbounded.admission.pool = None;
    refused(&unbounded, plain(), &["admission.count", "admission.pool"], "without end");
    unbounded.admission.lead = None;
    refused(&unbounded, plain(), &["admission.count", "admission.lead"], "nothing is counted");
}

#[test]
fn masking_old_tokens_is_refused_with_objectives_over_whole_answers() {
    let context = ScheduleContext { whole_answers: true, ..plain() };
    refused(&of("kimi_k1_5"), context, &["consume.mask", "learner.loss.objective"], "token objective");
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let fraction = |lambda| RoundEnd::Fraction { lambda, min_ready: 1, refill: Refill::Continuous };
    for lambda in [0.0, 1.0, -1.0, f64::NAN] {
        let settings = changed("kimi_k3", |s| s.round_end = fraction(lambda));
        refused(&settings, plain(), &["round_end.lambda"], "between 0 and 1");
    }
    let settings = changed("kimi_k3", |s| s.round_end = fraction(0.01));
    refused(&settings, plain(), &["round_end.lambda", "admission.pool"], "less than one");
    let settings = changed("april", |s| s.round_end = RoundEnd::Groups { submit: 7 });
    refused(&settings, plain(), &["round_end.submit", "batch"], "never 8 complete ones");
    let settings = changed("deepseek_v4_1", |s| s.admission.pool = Some(3));
    refused(&settings, plain(), &["admission.pool", "group_size"], "never fits");
    let capped = |cap| vec![SourceConfig { cap: Some(cap), ..SourceConfig::default() }];
    let settings = changed("deepseek_v4_1", |s| s.sources = capped(3));
    refused(&settings, plain(), &["sources.cap", "group_size"], "under its cap of 3");
    let settings = changed("sync", |s| s.sources = capped(31));
    refused(&settings, plain(), &["sources.cap", "round_end.rule"], "add up to 31");
    let settings = changed("deepseek_v4_1", |s| {
        s.round_end = RoundEnd::Ready { max_old_fraction: 1.5, max_carried: 1.0 };
    });
    refused(&settings, plain(), &["round_end.max_old_fraction"], "a share from 0 to 1");
    let settings = changed("glm_sao", |s| s.push = WeightPush::Every { updates: 0 });
    refused(&settings, plain(), &["push.updates"], "at least 1");
    let settings = changed("glm_sao", |s| (s.admission.pool, s.admission.buffer) = (Some(2), Some(3)));
    refused(&settings, plain(), &["admission.pool", "admission.buffer"], "never make a batch of 8");
    for (change, field) in [(0, "batch"), (1, "group_size")] {
        let settings = changed("sync", |s| if change == 0 { s.batch = 0 } else { s.group_size = 0 });
        refused(&settings, plain(), &[field], "at least 1");
    }
}

#[test]
fn quotas_are_refused_unless_they_make_a_batch_of_a_mixer() {
    let quota = |quota| vec![SourceConfig { quota: Some(quota), ..SourceConfig::default() }];
    let settings = changed("mimo_v2_6", |s| s.sources = quota(7));
    refused(&settings, plain(), &["sources.quota", "batch"], "add up to 7");
    let settings = changed("sync", |s| s.sources = quota(8));
    refused(&settings, plain(), &["sources.quota", "dispatch.unit"], "only a mixer");
}

#[test]
fn rounds_that_could_wait_for_ever_or_run_without_end_are_refused() {
    let settings = changed("kimi_k3", |s| {
        s.consume.zero_advantage = true;
        s.round_end = RoundEnd::Fraction { lambda: 0.5, min_ready: 1, refill: Refill::StartOnly };
    });
    refused(&settings, plain(), &["consume.zero_advantage", "round_end.refill"], "continuous");
    let settings = changed("areal", |s| s.admission.lead = None);
    refused(&settings, plain(), &["round_end.rule", "admission"], "how far generation runs ahead");
    let settings = changed("one_step", |s| s.admission.lead = None);
    refused(&settings, plain(), &["round_end.rule", "admission.lead"], "how many batches");
    let settings = changed("kimi_k3", |s| {
        s.interrupt = Interrupt::None;
        (s.resume, s.admission.throttle) = (Resume::Reprefill, None);
    });
    refused(&settings, plain(), &["round_end.rule", "interrupt"], "cannot be paused");
    let settings = changed("sync", |s| s.dispatch = Dispatch::Sample);
    refused(&settings, plain(), &["round_end.rule", "dispatch.unit"], "the batch whole");
    let settings = changed("impala", |s| (s.group_size, s.admission.pool) = (2, Some(32)));
    refused(&settings, plain(), &["dispatch.unit", "group_size"], "group of one");
    let settings = changed("one_step", |s| s.push = WeightPush::Behind { lag: 3 });
    refused(&settings, plain(), &["push.lag", "admission.lead"], "a lead of as many");
}

#[test]
fn a_throttle_is_refused_beside_a_fixed_concurrency_or_without_pauses() {
    let settings = changed("kimi_k3", |s| s.admission.concurrency = Some(16));
    refused(&settings, plain(), &["admission.throttle", "admission.concurrency"], "leave one of them out");
    let settings = changed("one_step", |s| {
        s.admission.throttle = Some(ThrottleConfig { least: 4, ..ThrottleConfig::default() });
    });
    refused(&settings, plain(), &["admission.throttle", "interrupt"], "pauses answers");
    let settings = changed("april", |s| s.admission.concurrency = Some(16));
    refused(&settings, plain(), &["round_end.rule", "admission"], "submits its groups whole");
}

#[test]
fn a_problem_that_cannot_be_repeated_has_one_answer_and_is_never_begun_anew() {
    let settings = changed("areal", |s| s.repeatable = false);
    refused(&settings, plain(), &["repeatable", "group_size"], "group_size = 1");
    let settings = changed("glm_sao", |s| {
        s.repeatable = false;
        s.on_update = OnUpdate::Discard;
    });
    refused(&settings, plain(), &["repeatable", "on_update"], "tried again");
}
