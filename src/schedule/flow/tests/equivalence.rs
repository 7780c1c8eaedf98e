//! The three kinds of `schedule.kind`, and a forced lag, are points of the same space: event for event, the group
//! scheduler takes the same decisions.

use std::collections::VecDeque;

use super::super::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings, MemberId};
use crate::random::CounterRng;
use crate::schedule::{Command, Event, KvResume, ScheduleConfig, Scheduler, SchedulerSettings};

/// What both say: versions to load and how many groups to dispatch.
#[derive(Debug, PartialEq, Eq, Default)]
struct Said {
    loaded: Option<u64>,
    groups: u64,
}

fn compare(kind: &ScheduleConfig, forced: Option<u64>, seed: u64) {
    const BATCH: u64 = 3;
    let mut rng = CounterRng::new(seed);
    let mut groups = Scheduler::new(SchedulerSettings::new(kind, BATCH, forced));
    let mut flow = FlowScheduler::new(FlowSettings::of_kind(kind, BATCH, 1, forced));
    let (mut flying, mut ready, mut learning) = (Vec::new(), 0_u64, false);
    let mut events = VecDeque::from([(Event::Started, vec![FlowEvent::Started])]);
    for turn in 0..120 {
        let (event, flow_events) = events.pop_front().unwrap_or_else(|| {
            if learning && (flying.is_empty() || rng.below(3) == 0) {
                learning = false;
                return (Event::Published, vec![FlowEvent::Published]);
            }
            let group: u64 = flying.swap_remove(rng.below(flying.len()));
            let keep = rng.below(4) > 0;
            ready += u64::from(keep);
            let ended = FlowEvent::Finished { id: MemberId { group, member: 0 }, stretches: Vec::new() };
            let event = if keep { Event::Accepted } else { Event::Rejected };
            (event, vec![ended, FlowEvent::Graded { group, keep }])
        });
        let mut by_groups = Said::default();
        for command in groups.on(event) {
            match command {
                Command::Load(version) => by_groups.loaded = Some(version),
                Command::Dispatch(count) => by_groups.groups += count,
            }
        }
        let mut by_flow = Said::default();
        for command in flow_events.into_iter().flat_map(|event| flow.on(event, 0.0)) {
            match command {
                FlowCommand::Load { version } => by_flow.loaded = Some(version),
                FlowCommand::Launch { group, .. } => {
                    by_flow.groups += 1;
                    flying.push(group);
                }
                FlowCommand::Train { groups } => {
                    learning = true;
                    ready -= groups.len() as u64;
                }
                _ => {}
            }
        }
        assert_eq!(
            by_groups, by_flow,
            "event {turn}, {event:?}, of {kind:?} with a forced lag of {forced:?}"
        );
    }
}

#[test]
fn todays_schedules_are_points_of_the_space_and_decide_alike() {
    for seed in 0..300 {
        compare(&ScheduleConfig::OneStep, None, seed);
        for lag in 0..4 {
            compare(&ScheduleConfig::Sync, Some(lag), seed);
        }
        for (lead, max_groups) in [(0, None), (1, None), (2, Some(4)), (3, Some(2))] {
            compare(&ScheduleConfig::Async { lead, max_groups, resume: KvResume::Reprefill }, None, seed);
        }
        compare(&ScheduleConfig::Sync, None, seed);
    }
}
