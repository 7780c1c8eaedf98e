//! What holds whatever the settings.

use super::super::{FlowEvent, FlowScheduler, FlowSettings};
use super::sequences;
use super::world::World;
use crate::random::CounterRng;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, ConsumeOrder, Dispatch, Interrupt, Layout, OnUpdate, Refill, Resume,
    RoundEnd, ShortDrop, SourceConfig, ThrottleConfig, TokenMask, WeightPush,
};
use crate::schedule::check::ScheduleContext;
use crate::schedule::systems::SYSTEMS;

/// Any point of the space that is not refused.
fn any_settings(rng: &mut CounterRng) -> FlowSettings {
    loop {
        let choice = |rng: &mut CounterRng, n: usize| rng.below(n) as u64;
        let (batch, group_size) = (1 + choice(rng, 3), 1 + choice(rng, 3) as u32);
        let members = batch * u64::from(group_size);
        // An offset from a least value, half of the time.
        let maybe = |rng: &mut CounterRng, least: u64, below: usize| {
            (rng.below(2) == 0).then(|| least + rng.below(below) as u64)
        };
        let round_end = match rng.below(6) {
            0 => RoundEnd::Batch,
            1 => RoundEnd::Budget { tokens: 4 + choice(rng, 8) },
            2 => RoundEnd::Groups { submit: batch + choice(rng, 4) },
            3 => RoundEnd::Fraction {
                lambda: 0.1 + 0.8 * rng.uniform(),
                min_ready: choice(rng, 2),
                refill: if rng.below(3) == 0 { Refill::StartOnly } else { Refill::Continuous },
            },
            4 => RoundEnd::Ready {
                max_old_fraction: rng.uniform(),
                max_carried: if rng.below(2) == 0 { 1.0 } else { rng.uniform() },
            },
            _ => RoundEnd::Streaming,
        };
        let pool = match round_end {
            RoundEnd::Groups { .. } => None,
            RoundEnd::Batch => maybe(rng, 3 * members, 1),
            RoundEnd::Streaming => Some(members + choice(rng, 9)),
            _ => maybe(rng, members, 9),
        };
        let lead = if round_end.pauses() { None } else { maybe(rng, 0, 3) };
        let caps = rng.below(3) == 0 && round_end != RoundEnd::Batch;
        let source = |name: &str, cap| SourceConfig { name: name.into(), cap, ..SourceConfig::default() };
        let throttle = ThrottleConfig {
            start: 2 * u64::from(group_size),
            least: u64::from(group_size),
            most: 4 * members,
            ..ThrottleConfig::default()
        };
        let settings = FlowSettings {
            batch,
            group_size,
            layout: if rng.below(2) == 0 { Layout::Colocated } else { Layout::Decoupled },
            dispatch: match (round_end, rng.below(4)) {
                (RoundEnd::Batch, _) => Dispatch::Batch { groups: 0 },
                (_, 0) => Dispatch::Prompt,
                (_, 1) => Dispatch::Batch { groups: 1 },
                _ => Dispatch::Sample,
            },
            round_end,
            interrupt: if round_end.pauses() || rng.below(2) == 0 {
                Interrupt::Token
            } else {
                Interrupt::None
            },
            on_update: if rng.below(4) == 0 { OnUpdate::Discard } else { OnUpdate::Carry },
            resume: if rng.below(3) == 0 { Resume::KeepKv } else { Resume::Reprefill },
            admission: AdmissionRules {
                lead,
                pool,
                buffer: if round_end == RoundEnd::Streaming { Some(members) } else { None },
                throttle: (rng.below(4) == 0).then_some(throttle),
                ..AdmissionRules::default()
            },
            consume: ConsumeFilter {
                max_head_lag: maybe(rng, 1, 3),
                mask: if rng.below(3) == 0 { TokenMask::LagAbove { lag: 1 } } else { TokenMask::None },
                zero_advantage: false,
                short_drop: (rng.below(4) == 0).then(ShortDrop::default),
            },
            order: match rng.below(3) {
                0 => ConsumeOrder::Submission,
                1 => ConsumeOrder::OldestReady,
                _ => ConsumeOrder::Completion,
            },
            push: match rng.below(5) {
                0 => WeightPush::Every { updates: 2 },
                1 => WeightPush::Boundary,
                2 => WeightPush::Interval { seconds: 3.0 },
                3 => WeightPush::Adaptive { lag: 2, spread: 0.9 },
                _ => WeightPush::Immediate,
            },
            repetition: None,
            sources: if caps {
                vec![source("a", Some(u64::from(group_size))), source("b", None)]
            } else {
                Vec::new()
            },
            repeatable: true,
        };
        let context = ScheduleContext { group_relative: false, ..ScheduleContext::default() };
        if settings.check(context).is_ok() {
            return settings;
        }
    }
}

#[test]
fn nothing_is_lost_or_counted_twice_under_any_settings() {
    let mut rng = CounterRng::new(1);
    let mut updates = 0;
    for seed in 0..super::SEQUENCES {
        let settings = any_settings(&mut rng);
        let mut world = World::new(settings.clone(), seed);
        for _ in 0..super::EVENTS {
            world.step();
            world.check_conservation();
            let in_flight: u64 = world.scheduler.in_flight().iter().sum();
            if settings.counts_places() && settings.dispatch != Dispatch::Prompt {
                assert!(in_flight <= settings.pool(), "{settings:?}");
            }
            for (source, live) in settings.sources.iter().zip(world.scheduler.in_flight()) {
                assert!(source.cap.is_none_or(|cap| *live <= cap), "{settings:?}");
            }
        }
        updates += world.scheduler.version();
    }
    assert!(updates > 3 * super::SEQUENCES, "{updates}");
}

#[test]
fn a_saved_scheduler_takes_the_same_decisions() {
    for system in SYSTEMS {
        for seed in 0..50 {
            let mut world = World::new(small(system.sized(2, system.settings().group_size.min(3))), seed);
            (0..30).for_each(|_| world.step());
            let saved = serde_json::to_string(&world.scheduler).unwrap();
            let restored: FlowScheduler = serde_json::from_str(&saved).unwrap();
            assert_eq!(restored, world.scheduler, "{}", system.name);
        }
    }
}

#[test]
fn a_run_goes_on_from_a_checkpoint_with_all_it_had() {
    for system in SYSTEMS {
        for seed in 0..200 {
            let mut world = World::new(small(system.sized(2, system.settings().group_size.min(3))), seed);
            world.losses = false;
            while world.learning.is_some() || world.scheduler.version() < 2 {
                world.step();
            }
            // An update border: everything in flight stops where it is.
            world.scheduler.restart();
            let live = std::mem::take(&mut world.live);
            world.paused.extend(live.into_iter().map(|(id, (stretches, _))| (id, stretches)));
            world.check_conservation();
            world.tell(FlowEvent::Started);
            world.check_conservation();
            for _ in 0..60 {
                world.step();
                world.check_conservation();
            }
        }
    }
}

/// Thresholds that short sequences reach.
fn small(mut settings: FlowSettings) -> FlowSettings {
    if let RoundEnd::Budget { tokens } = &mut settings.round_end {
        *tokens = 6;
    }
    settings
}

#[test]
fn random_sequences_reach_updates() {
    let settings = FlowSettings { batch: 2, group_size: 2, ..FlowSettings::default() };
    assert!(sequences(&settings, |_| {}) > 0);
}
