//! The schedules that `schedule.kind` names, and a forced lag: what their batches may and may not be of.

use std::collections::BTreeMap;

use super::super::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings, MemberId, Stretch};
use crate::random::CounterRng;
use crate::schedule::{KvResume, ScheduleConfig};

/// Drives a scheduler of groups of one with random completion times; returns for every consumed batch the lags of its
/// groups, each generated under the version that was loaded when it began.
fn run(settings: FlowSettings, seed: u64) -> Vec<Vec<u64>> {
    let mut rng = CounterRng::new(seed);
    let mut scheduler = FlowScheduler::new(settings);
    let (mut flying, mut begun, mut batches) = (Vec::new(), BTreeMap::new(), Vec::new());
    let (mut loaded, mut version, mut learning) = (0, 0_u64, None);
    let mut events = vec![FlowEvent::Started];
    while batches.len() < 12 {
        let event = events.pop().unwrap_or_else(|| {
            if learning.is_some() && (flying.is_empty() || rng.below(3) == 0) {
                batches.extend(learning.take());
                version += 1;
                return FlowEvent::Published;
            }
            let group: u64 = flying.swap_remove(rng.below(flying.len()));
            events.push(FlowEvent::Graded { group, keep: rng.below(4) > 0 });
            let stretches = vec![Stretch { version: begun[&group], tokens: 1 }];
            FlowEvent::Finished { id: MemberId { group, member: 0 }, stretches }
        });
        for command in scheduler.on(event, 0.0) {
            match command {
                FlowCommand::Load { version } => {
                    assert!(version >= loaded);
                    loaded = version;
                }
                FlowCommand::Launch { group, .. } => {
                    begun.insert(group, loaded);
                    flying.push(group);
                }
                FlowCommand::Train { groups } => {
                    learning = Some(groups.iter().map(|group| version - begun[group]).collect());
                }
                _ => {}
            }
        }
        assert_eq!(scheduler.live(), flying.len() as u64);
    }
    batches
}

fn of_kind(kind: &ScheduleConfig, batch: u64, forced: Option<u64>) -> FlowSettings {
    FlowSettings::of_kind(kind, batch, 1, forced)
}

#[test]
fn synchronous_batches_have_no_lag() {
    for seed in 0..20 {
        let batches = run(of_kind(&ScheduleConfig::Sync, 5, None), seed);
        assert!(batches.iter().flatten().all(|&lag| lag == 0));
    }
}

#[test]
fn one_step_batches_are_one_update_behind_after_the_first() {
    for seed in 0..20 {
        let batches = run(of_kind(&ScheduleConfig::OneStep, 5, None), seed);
        for (t, batch) in batches.iter().enumerate() {
            assert!(batch.iter().all(|&lag| lag == (t as u64).min(1)), "batch {t}: {batch:?}");
        }
    }
}

#[test]
fn a_forced_lag_is_exact_once_the_pipeline_is_full() {
    for lag in [0, 1, 3, 6] {
        for seed in 0..10 {
            let batches = run(of_kind(&ScheduleConfig::Sync, 4, Some(lag)), seed);
            for (t, batch) in batches.iter().enumerate() {
                let exact = batch.iter().all(|&found| found == lag.min(t as u64));
                assert!(exact, "lag {lag}, batch {t}: {batch:?}");
            }
        }
    }
}

#[test]
fn asynchronous_generation_is_never_further_ahead_than_its_lead() {
    for lead in 0..4 {
        let config = ScheduleConfig::Async { lead, max_groups: Some(7), resume: KvResume::Reprefill };
        for seed in 0..10 {
            let lags: Vec<u64> = run(of_kind(&config, 3, None), seed).into_iter().flatten().collect();
            assert!(lead > 0 || lags.iter().all(|&lag| lag == 0));
        }
        let mut scheduler = FlowScheduler::new(of_kind(&config, 3, None));
        let launched = scheduler.on(FlowEvent::Started, 0.0).len() as u64 - 1;
        assert_eq!(launched, (3 * (lead + 1)).min(7), "beside the command to load");
    }
}

#[test]
fn a_batch_that_was_thrown_away_and_a_group_without_use_give_their_places_back() {
    let mut scheduler = FlowScheduler::new(of_kind(&ScheduleConfig::Sync, 2, None));
    let launched = |commands: &[FlowCommand]| {
        commands.iter().filter(|command| matches!(command, FlowCommand::Launch { .. })).count()
    };
    assert_eq!(launched(&scheduler.on(FlowEvent::Started, 0.0)), 2);
    let commands = scheduler.on(FlowEvent::Unusable { group: 0 }, 0.0);
    assert_eq!(launched(&commands), 1, "another takes its place at once");
    for group in [1, 2] {
        let id = MemberId { group, member: 0 };
        scheduler.on(FlowEvent::Finished { id, stretches: Vec::new() }, 0.0);
        scheduler.on(FlowEvent::Graded { group, keep: true }, 0.0);
    }
    assert!(scheduler.is_learning());
    assert_eq!(launched(&scheduler.on(FlowEvent::Skipped, 0.0)), 2);
    assert!(scheduler.ledger().balances());
}

#[test]
fn groups_are_launched_with_the_number_of_members_that_holds_then() {
    let config = ScheduleConfig::Async { lead: 1, max_groups: None, resume: KvResume::Reprefill };
    let mut scheduler = FlowScheduler::new(FlowSettings::of_kind(&config, 1, 4, None));
    scheduler.on(FlowEvent::Started, 0.0);
    scheduler.on(FlowEvent::Members { members: 2 }, 0.0);
    assert_eq!(scheduler.group(1), Some((0, 4)));
    scheduler.on(FlowEvent::Unusable { group: 0 }, 0.0);
    assert_eq!((scheduler.group(0), scheduler.group(2)), (None, Some((0, 2))));
}
