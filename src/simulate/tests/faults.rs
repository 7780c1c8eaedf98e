//! Faults that other systems had in scheduling, each as the behaviour that is right: against the scheduler itself where
//! its decisions are the point, otherwise against simulations.

use std::collections::BTreeMap;

use super::*;
use crate::schedule::axes::{AdmissionRules, ConsumeFilter, RoundEnd, TokenMask};
use crate::schedule::flow::{DropCause, FlowCommand, FlowEvent, FlowScheduler, MemberId, Stretch};
use crate::schedule::systems::System;
use crate::schedule::trace::{TraceEntry, TraceLine, TraceReader};
use crate::simulate::lengths::Lengths;

fn sized(name: &str, batch: u64, group_size: u32) -> FlowSettings {
    System::named(name).unwrap().sized(batch, group_size)
}

/// Carries out what a scheduler says in the plainest order: all that is live ends, then is graded, then learned from.
struct Play {
    scheduler: FlowScheduler,
    /// Everything that it said.
    said: Vec<FlowCommand>,
    version: u64,
}

impl Play {
    fn new(scheduler: FlowScheduler) -> Self {
        let mut play = Self { scheduler, said: Vec::new(), version: 0 };
        play.tell(FlowEvent::Started);
        play
    }

    fn tell(&mut self, event: FlowEvent) -> Vec<FlowCommand> {
        let commands = self.scheduler.on(event, 0.0);
        self.said.extend(commands.clone());
        commands
    }

    fn finish(&mut self, group: u64, member: u32, tokens: u64) -> Vec<FlowCommand> {
        let stretches = vec![Stretch { version: self.version, tokens }];
        self.tell(FlowEvent::Finished { id: MemberId { group, member }, stretches })
    }

    /// All members of a group end, and it is graded.
    fn complete(&mut self, group: u64, members: u32, keep: bool) -> Vec<FlowCommand> {
        let mut said: Vec<FlowCommand> =
            (0..members).flat_map(|member| self.finish(group, member, 5)).collect();
        said.extend(self.tell(FlowEvent::Graded { group, keep }));
        said
    }
}

fn launched(commands: &[FlowCommand]) -> Vec<u64> {
    let group = |command: &FlowCommand| match command {
        FlowCommand::Launch { group, .. } => Some(*group),
        _ => None,
    };
    commands.iter().filter_map(group).collect()
}

fn trained(commands: &[FlowCommand]) -> Vec<u64> {
    let groups = |command: &FlowCommand| match command {
        FlowCommand::Train { groups } => Some(groups.clone()),
        _ => None,
    };
    commands.iter().find_map(groups).unwrap_or_default()
}

#[test]
fn an_answer_is_exactly_as_long_as_it_was_to_be_whatever_interrupted_it() {
    let folder = folder("budget");
    for system in ["kimi_k1_5", "april", "areal", "deepseek_v4_1", "kimi_k3"] {
        let path = folder.join(system);
        let mut config = SimulateConfig { updates: 12, ..small(system) };
        config.engine.kv_tokens = Some(40_000);
        if system == "kimi_k1_5" {
            config.schedule = schedule("round_end = { rule = \"budget\", tokens = 700 }");
        }
        simulate_schedule(&config, config.settings().unwrap(), Some(&path)).unwrap();
        let lengths = Lengths::new(&config.lengths, config.seed).unwrap();
        let (mut sources, mut loaded, mut interrupted) = (BTreeMap::new(), 0, 0);
        for line in TraceReader::open(&path).unwrap() {
            let TraceLine::Entry(TraceEntry::Decision { event, commands, .. }) = line.unwrap().1 else {
                continue;
            };
            if let FlowEvent::Finished { id, stretches } = event {
                let tokens: u64 = stretches.iter().map(|stretch| stretch.tokens).sum();
                assert_eq!(
                    tokens,
                    lengths.tokens(sources[&id.group], id.group, id.member),
                    "{system} {id:?}"
                );
                assert!(stretches.is_sorted_by_key(|stretch| stretch.version), "{system} {stretches:?}");
                assert!(
                    stretches.iter().all(|stretch| stretch.version <= loaded),
                    "no version is stamped early"
                );
                interrupted += u64::from(stretches.len() > 1);
            }
            for command in commands {
                match command {
                    FlowCommand::Launch { group, source, .. } => drop(sources.insert(group, source)),
                    FlowCommand::Load { version } => loaded = version,
                    _ => {}
                }
            }
        }
        assert!(interrupted > 0, "{system} interrupts");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn weights_recovered_at_a_version_admit_the_lead_and_no_more() {
    let settings = sized("areal", 2, 2);
    let lead = settings.admission.lead.unwrap();
    for version in [0, 1, 10] {
        let play = Play::new(FlowScheduler::recovered(settings.clone(), version));
        assert_eq!(launched(&play.said).len() as u64, (lead + 1) * 2, "recovered at {version}");
    }
}

#[test]
fn nothing_is_launched_before_the_weights_it_is_to_use_are_loaded() {
    for system in SYSTEMS {
        let group_size = system.settings().group_size.min(2);
        for version in [0, 7] {
            let play = Play::new(FlowScheduler::recovered(system.sized(4, group_size), version));
            assert_eq!(play.said[0], FlowCommand::Load { version }, "{}", system.name);
            assert!(!launched(&play.said).is_empty(), "{}", system.name);
        }
    }
}

#[test]
fn a_lost_answer_begins_anew_and_an_end_from_before_is_not_taken() {
    let mut play = Play::new(FlowScheduler::new(sized("areal", 1, 2)));
    let id = MemberId { group: 0, member: 0 };
    // Nothing else may start, so that it waits.
    let limited = FlowSettings {
        admission: AdmissionRules { concurrency: Some(2), ..play.scheduler.settings().admission.clone() },
        ..play.scheduler.settings().clone()
    };
    play = Play::new(FlowScheduler::new(limited));
    let said = play.tell(FlowEvent::Lost { id });
    assert_eq!(said, [FlowCommand::Restart { id }]);
    let ended = play.finish(0, 0, 3);
    assert!(!ended.contains(&FlowCommand::Grade { group: 0 }));
    // It has ended; that it ended once more, from the generator that was thought lost, changes nothing.
    let before = play.scheduler.clone();
    play.finish(0, 0, 9);
    assert_eq!(play.scheduler.ledger(), before.ledger());
    assert!(play.finish(0, 1, 4).contains(&FlowCommand::Grade { group: 0 }), "its group is whole");
}

#[test]
fn groups_beyond_those_a_round_needed_are_learned_from_in_the_next() {
    let settings = FlowSettings { round_end: RoundEnd::Groups { submit: 4 }, ..sized("april", 2, 1) };
    let mut play = Play::new(FlowScheduler::new(settings));
    assert_eq!(launched(&play.said), [0, 1, 2, 3]);
    // Three end before the first is graded; the round needs two.
    (0..3).for_each(|group| drop(play.finish(group, 0, 5)));
    play.tell(FlowEvent::Graded { group: 0, keep: true });
    assert_eq!(trained(&play.tell(FlowEvent::Graded { group: 1, keep: true })), [0, 1]);
    play.tell(FlowEvent::Graded { group: 2, keep: true });
    play.version = 1;
    let mut said = play.tell(FlowEvent::Published);
    said.extend(play.finish(3, 0, 5));
    said.extend(play.tell(FlowEvent::Graded { group: 3, keep: true }));
    assert_eq!(trained(&said), [2, 3], "{said:?}");
    assert_eq!(play.scheduler.ledger().dropped_in_all(), 0);
    assert!(play.scheduler.ledger().balances());
}

#[test]
fn every_way_out_of_a_group_lets_another_in() {
    let plain = FlowSettings { consume: ConsumeFilter::default(), ..sized("areal", 1, 1) };
    let lead = plain.admission.lead.unwrap();
    let filtered = |consume: ConsumeFilter| FlowSettings { consume, ..plain.clone() };
    let stale = filtered(ConsumeFilter { max_head_lag: Some(0), ..ConsumeFilter::default() });
    let masked = filtered(ConsumeFilter { mask: TokenMask::LagAbove { lag: 0 }, ..ConsumeFilter::default() });
    let once = FlowSettings { repeatable: false, ..plain.clone() };
    let dropped = |settings: &FlowSettings, cause: DropCause, event: fn(&mut Play)| {
        let mut play = Play::new(FlowScheduler::new(settings.clone()));
        assert_eq!(play.scheduler.live(), lead + 1);
        event(&mut play);
        let ledger = play.scheduler.ledger();
        assert_eq!(ledger.dropped.get(&cause), Some(&1), "{cause:?}: {ledger:?}");
        let ahead = play.scheduler.admission().running() + play.scheduler.ready().len() as u64;
        let in_hand = u64::from(play.scheduler.is_learning());
        assert_eq!(ahead + in_hand, lead + 1, "{cause:?}: all that the lead admits is there again");
    };
    dropped(&plain, DropCause::Rejected, |play| drop(play.complete(0, 1, false)));
    dropped(&once, DropCause::Lost, |play| {
        play.tell(FlowEvent::Lost { id: MemberId { group: 0, member: 0 } });
    });
    dropped(&plain, DropCause::Skipped, |play| {
        play.complete(0, 1, true);
        play.tell(FlowEvent::Skipped);
    });
    for (settings, cause) in [(stale, DropCause::Stale), (masked, DropCause::Masked)] {
        dropped(&settings, cause, |play| {
            // The second is one update old when the first has been learned from.
            play.complete(0, 1, true);
            play.complete(1, 1, true);
            play.tell(FlowEvent::Published);
        });
    }
}

#[test]
fn dropping_what_is_stale_neither_drains_the_pool_nor_ends_the_run() {
    let mut config = standard("glm_sao");
    config.costs.train_seconds_per_token = 2e-4;
    config.schedule = schedule("consume.max_head_lag = 2");
    let report = run(&config);
    assert!(report.dropped > 100, "{report:?}");
    assert!(report.lag_max <= 2);
    assert!(report.live_mean > 0.95 * 256.0, "the pool is full all along: {}", report.live_mean);
}

#[test]
fn an_answer_without_tokens_is_no_reason_to_drop_its_group() {
    let settings = FlowSettings {
        consume: ConsumeFilter { mask: TokenMask::LagAbove { lag: 4 }, ..ConsumeFilter::default() },
        ..sized("areal", 1, 2)
    };
    let mut play = Play::new(FlowScheduler::new(settings));
    play.tell(FlowEvent::Finished { id: MemberId { group: 0, member: 0 }, stretches: Vec::new() });
    play.finish(0, 1, 0);
    assert_eq!(trained(&play.tell(FlowEvent::Graded { group: 0, keep: true })), [0]);
}

#[test]
fn an_answer_that_ended_before_its_pause_arrived_is_done_and_is_not_resumed() {
    let settings = FlowSettings {
        round_end: RoundEnd::Fraction {
            lambda: 0.5,
            min_ready: 1,
            refill: crate::schedule::axes::Refill::Continuous,
        },
        ..sized("kimi_k3", 2, 1)
    };
    let mut play = Play::new(FlowScheduler::new(settings));
    let said = play.complete(0, 1, true);
    let late = MemberId { group: 1, member: 0 };
    assert!(said.contains(&FlowCommand::Pause { id: late }), "{said:?}");
    assert_eq!(trained(&said), [0]);
    play.finish(1, 0, 8);
    assert!(!play.scheduler.paused().contains(&late));
    let said = play.tell(FlowEvent::Published);
    assert!(!said.contains(&FlowCommand::Resume { id: late }), "{said:?}");
    assert!(play.scheduler.ledger().balances());
}

#[test]
fn what_a_scheduler_holds_does_not_grow_with_the_length_of_a_run() {
    for system in ["sync", "areal", "kimi_k3", "april", "mimo_v2_6"] {
        let mut play = Play::new(FlowScheduler::new(sized(system, 2, 2)));
        let mut size = BTreeMap::new();
        let mut live: Vec<u64> = launched(&play.said);
        let mut done: Vec<u64> = Vec::new();
        while play.scheduler.version() < 1200 {
            play.said.clear();
            let group = live.remove(0);
            let mut said: Vec<FlowCommand> =
                (0..2).flat_map(|member| play.finish(group, member, 5)).collect();
            done.push(group);
            for group in std::mem::take(&mut done) {
                said.extend(play.tell(FlowEvent::Graded { group, keep: true }));
            }
            while play.scheduler.is_learning() {
                play.version += 1;
                said.extend(play.tell(FlowEvent::Published));
            }
            live.extend(launched(&said));
            if play.scheduler.version() >= 1000 {
                let bytes = serde_json::to_string(&play.scheduler).unwrap().len();
                size.insert(play.scheduler.version(), bytes);
            }
        }
        let most = |from: u64| size.range(from..from + 100).map(|(_, bytes)| *bytes).max().unwrap_or(0);
        // Means of 1024 lengths are remembered; by then they are.
        assert!(most(1100) < most(1000) + 200, "{system}: {} and {} bytes", most(1000), most(1100));
    }
}

#[test]
fn keeping_state_and_computing_it_again_differ() {
    let prefill = |resume: &str| {
        let config =
            SimulateConfig { schedule: schedule(&format!("resume = {{ {resume} }}")), ..standard("kimi_k3") };
        run(&config).prefill_share
    };
    assert_eq!(prefill("mode = \"keep_kv\""), 0.0, "prompts have no tokens here");
    let (again, pool) =
        (prefill("mode = \"reprefill\""), prefill("mode = \"external_kv\", kv_across_versions = false"));
    assert!(again > 0.02, "{again}");
    assert_eq!(pool, again, "a pool that is not valid across versions is computed again with every update");
}
