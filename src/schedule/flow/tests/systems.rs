//! The invariants of each system, on 10,000 random sequences each.

use super::super::{FlowCommand, FlowEvent, FlowSettings};
use super::world::World;
use super::{sequences, sequences_with};
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, ConsumeOrder, Resume, RoundEnd, SourceConfig, TokenMask, exact_ceiling,
};
use crate::schedule::systems::System;

fn small(name: &str, batch: u64, group_size: u32) -> FlowSettings {
    System::named(name).unwrap().sized(batch, group_size)
}

fn trained(world: &World) -> Option<&super::world::Batch> {
    let now = world.commands.iter().any(|command| matches!(command, FlowCommand::Train { .. }));
    if now { world.batches.last() } else { None }
}

#[test]
fn sync_learns_from_tokens_of_its_own_version_only() {
    sequences(&small("sync", 3, 2), |world| {
        if let Some(batch) = trained(world) {
            assert_eq!((batch.old_tokens, batch.groups.len()), (0, 3));
        }
    });
}

#[test]
fn impala_actors_hold_their_place_while_the_queue_is_full() {
    let settings = small("impala", 3, 1);
    sequences(&settings, |world| {
        let ledger = world.scheduler.ledger();
        let in_hand = world.learning.as_ref().map_or(0, |batch| batch.groups.len() as u64);
        let blocked = (ledger.buffered - in_hand).saturating_sub(3);
        assert!(ledger.live + blocked <= 6, "six actors");
        if let Some(batch) = trained(world) {
            assert_eq!(batch.groups.len(), 3);
        }
        for seen in world.groups.values() {
            assert!(seen.finished.values().all(|stretches| stretches.len() <= 1), "one version an unroll");
        }
    });
}

#[test]
fn one_step_batches_are_one_update_late_after_the_first_and_at_most_one_waits() {
    let nothing_is_thrown_away = |world: &mut World| (world.skips, world.keep) = (false, 10);
    sequences(&small("one_step", 2, 2), |world| {
        assert!(trained(world).is_none_or(|batch| batch.head_lag <= 1));
    });
    sequences_with(&small("one_step", 2, 2), nothing_is_thrown_away, |world| {
        let ready = world.scheduler.ready().len();
        assert!(ready <= 2, "at most one batch waits");
        if let Some(batch) = trained(world) {
            assert_eq!(batch.head_lag, batch.version.min(1), "{batch:?}");
        }
    });
}

#[test]
fn k1_5_answers_stay_within_their_budget_of_a_round_and_complete_groups_train() {
    let settings = FlowSettings { round_end: RoundEnd::Budget { tokens: 6 }, ..small("kimi_k1_5", 3, 2) };
    let mut old = 0;
    sequences(&settings, |world| {
        for (_, stint) in world.live.values() {
            assert!(*stint <= 6);
        }
        if let Some(batch) = trained(world) {
            assert!(world.kept.is_empty(), "every complete group trains");
            old += batch.old_tokens;
        }
        assert!(world.live.len() as u64 <= settings.pool());
    });
    assert!(old > 0, "the sequences carry answers over updates");
    assert!(!settings.consume.mask.keeps(4, 3), "and their old tokens have no gradient");
}

#[test]
fn april_batches_are_exactly_n_whole_groups_and_the_rest_waits_whole() {
    let settings = FlowSettings { round_end: RoundEnd::Groups { submit: 5 }, ..small("april", 3, 2) };
    let run = |keep: usize| {
        for seed in 0..super::SEQUENCES {
            let mut world = World::new(settings.clone(), seed);
            world.keep = keep;
            for _ in 0..super::EVENTS {
                world.step();
                world.check_conservation();
                if let Some(batch) = trained(&world) {
                    assert_eq!(batch.groups.len(), 3);
                    assert!(batch.sizes.iter().all(|&size| size == 2), "no group is split");
                    let buffered = world.scheduler.buffer();
                    assert!(keep < 10 || buffered.len() < 5, "{buffered:?}");
                    for id in world.paused.keys() {
                        assert!(buffered.contains(&id.group), "what was paused waits with its group");
                    }
                }
            }
        }
    };
    run(10);
    run(6);
}

#[test]
fn areal_never_admits_more_than_its_lead() {
    let settings = small("areal", 2, 2);
    sequences(&settings, |world| {
        let admission = world.scheduler.admission();
        let most = (world.scheduler.version() + 4 + 1) * 2;
        assert!(admission.accepted() + admission.running() <= most);
        let waiting = admission.running() + world.scheduler.ready().len() as u64;
        assert!(waiting <= (4 + 1) * 2);
        if let Some(batch) = trained(world) {
            assert!(batch.head_lag <= 8);
        }
    });
}

#[test]
fn areal_in_the_order_of_submission_is_never_later_than_its_lead() {
    for lead in 0..3 {
        let settings = FlowSettings {
            order: ConsumeOrder::Submission,
            consume: ConsumeFilter::default(),
            admission: AdmissionRules { lead: Some(lead), bounds_lag: true, ..AdmissionRules::default() },
            ..small("areal", 2, 2)
        };
        let mut greatest = 0;
        sequences(&settings, |world| {
            if let Some(batch) = trained(world) {
                assert!(batch.head_lag <= lead, "{batch:?}");
                greatest = greatest.max(batch.head_lag);
            }
        });
        assert_eq!(greatest, lead, "and the bound is reached");
    }
}

#[test]
fn areal_counting_completions_goes_beyond_its_lead() {
    let settings = FlowSettings {
        admission: AdmissionRules {
            lead: Some(1),
            count: crate::schedule::axes::AdmissionCount::Completed,
            pool: Some(24),
            ..AdmissionRules::default()
        },
        consume: ConsumeFilter::default(),
        ..small("areal", 2, 2)
    };
    let mut greatest = 0;
    sequences(&settings, |world| {
        greatest = greatest.max(trained(world).map_or(0, |batch| batch.head_lag));
    });
    assert!(greatest >= 4, "the lag of the literal reading: {greatest}");
}

#[test]
fn deepseek_keeps_its_pool_full_to_less_than_a_group_and_frees_what_ended() {
    let settings = FlowSettings {
        consume: ConsumeFilter { mask: TokenMask::LagAbove { lag: 4 }, ..ConsumeFilter::default() },
        ..small("deepseek_v4_1", 2, 3)
    };
    let pool = settings.pool();
    assert_eq!(pool, 24);
    sequences(&settings, |world| {
        if world.learning.is_none() {
            let live = world.live.len() as u64;
            assert!(pool - 3 < live && live <= pool, "{live} of {pool}");
        }
        let ended = matches!(world.event, FlowEvent::Finished { .. });
        let freed = world.commands.iter().any(|command| matches!(command, FlowCommand::Free { .. }));
        assert_eq!(ended, freed, "state is freed when a sample ends, and only then");
        if let Some(batch) = trained(world) {
            assert!(batch.old_tokens as f64 <= 0.5 * batch.tokens as f64, "{batch:?}");
        }
    });
}

#[test]
fn deepseek_sources_stay_under_their_caps() {
    let source = |name: &str, cap| SourceConfig { name: name.into(), cap, ..SourceConfig::default() };
    let settings = FlowSettings {
        sources: vec![source("a", Some(7)), source("b", None), source("c", Some(3))],
        ..small("deepseek_v4_1", 2, 3)
    };
    sequences(&settings, |world| {
        let in_flight = world.scheduler.in_flight();
        assert!(in_flight[0] <= 7 && in_flight[2] <= 3, "{in_flight:?}");
    });
}

#[test]
fn deepseek_holds_new_groups_while_too_many_are_carried() {
    let settings = FlowSettings {
        round_end: RoundEnd::Ready { max_old_fraction: 1.0, max_carried: 0.25 },
        ..small("deepseek_v4_1", 2, 3)
    };
    let mut held = 0;
    sequences(&settings, |world| {
        let launched = world.commands.iter().any(|command| matches!(command, FlowCommand::Launch { .. }));
        let carried = world.live.values().filter(|(stretches, _)| {
            stretches.first().is_some_and(|first| first.version < world.scheduler.version())
        });
        if carried.count() > 12 {
            held += u64::from(!launched);
            assert!(!launched, "half of the pool is carried");
        }
    });
    assert!(held > 0);
}

#[test]
fn sao_answers_are_handed_on_at_once_and_never_learned_from_too_late() {
    let settings = FlowSettings {
        consume: ConsumeFilter { max_head_lag: Some(2), ..ConsumeFilter::default() },
        ..small("glm_sao", 3, 1)
    };
    let mut stale = 0;
    sequences(&settings, |world| {
        assert!(world.live.len() as u64 <= settings.pool());
        if matches!(world.event, FlowEvent::Finished { .. }) {
            let graded = |command: &FlowCommand| matches!(command, FlowCommand::Grade { .. });
            assert!(world.commands.iter().any(graded), "ready as soon as it ends");
        }
        if let Some(batch) = trained(world) {
            assert!(batch.head_lag <= 2);
        }
        stale += world.scheduler.ledger().dropped.get(&super::super::DropCause::Stale).copied().unwrap_or(0);
    });
    assert!(stale > 0, "the filter has work to do");
}

#[test]
fn mimo_batches_have_exactly_their_quota_of_each_source() {
    let source =
        |name: &str, quota| SourceConfig { name: name.into(), quota: Some(quota), ..SourceConfig::default() };
    let settings = FlowSettings {
        sources: vec![source("math", 2), source("code", 1), source("chat", 1)],
        ..small("mimo_v2_6", 4, 2)
    };
    sequences(&settings, |world| {
        if let Some(batch) = trained(world) {
            let of = |source: u32| batch.sources.iter().filter(|&&found| found == source).count();
            assert_eq!([of(0), of(1), of(2)], [2, 1, 1], "{batch:?}");
            assert!(batch.head_lag <= 4);
        }
    });
}

#[test]
fn k3_pauses_with_the_event_that_makes_enough_and_stays_under_its_limits() {
    let settings = small("kimi_k3", 3, 2);
    let threshold = exact_ceiling(0.8, 6);
    assert_eq!(threshold, 5);
    let mut groups = 0;
    sequences(&settings, |world| {
        assert!(world.live.len() as u64 <= settings.pool().min(world.scheduler.limit()));
        let enough = world.done >= threshold && !world.kept.is_empty();
        assert!(!enough || world.live.is_empty(), "the pause comes with the event that makes enough");
        if let Some(batch) = trained(world) {
            assert!(world.kept.is_empty() && world.grading.is_empty(), "all complete groups train");
            assert!(batch.sizes.iter().all(|&size| size == 2), "groups are intact");
            groups += batch.groups.len();
        }
    });
    assert!(groups > 0);
    assert!(settings.resume.keeps_kv(true) && Resume::Reprefill != settings.resume);
}
