//! A plane by itself, with a test in the place of generators and learner.

mod grading;
mod pausing;
mod sources;
mod turn;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;

use super::{
    BegunMember, Complete, Ended, Member, Order, Plane, PlaneParts, PlaneSnapshot, ReadyGroup, Stored,
    Tickets,
};
use crate::actors::parameter_bus::Published;
use crate::env::task::{Completion, GradeError, Problem, Prompt, Prompts, Split, Task, TaskError};
use crate::policy::{Decoder, DecoderConfig, Tokenizer};
use crate::schedule::axes::{EngineLoad, Resume};
use crate::schedule::flow::{FlowScheduler, FlowSettings};
use crate::schedule::{ScheduleConfig, ScheduleContext};
use crate::trajectory::{Amount, BufferedTicket, DropReason, Finish, Ledger, Reward, Trajectory, Version};

struct Whole;

impl Task for Whole {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let data = serde_json::json!({ "budget": 7 });
        Ok(Problem {
            source: "whole".into(),
            prompt: Prompt::Text("a".into()),
            answer: index.to_string(),
            data,
        })
    }

    fn grade(&self, _: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(1.0))
    }

    fn grades_groups(&self) -> bool {
        true
    }
}

fn plane(advantage: &str) -> Plane {
    plane_of(Arc::new(Whole), &format!("advantage = {{ kind = '{advantage}' }}"))
}

fn plane_of(task: Arc<dyn Task>, learner: &str) -> Plane {
    scheduled(task, learner, FlowScheduler::new(sync()))
}

/// A plane whose groups have so many members.
fn sized(members: u32, learner: &str) -> Plane {
    let settings = FlowSettings { group_size: members, ..sync() };
    scheduled(Arc::new(Single), learner, FlowScheduler::new(settings))
}

fn sync() -> FlowSettings {
    FlowSettings::of_kind(&ScheduleConfig::default(), 1, 2, None)
}

fn published(version: u64) -> Arc<Published> {
    let decoder =
        Decoder::new(DecoderConfig { layers: 1, ..DecoderConfig::default() }, &Device::Cpu).unwrap();
    let parameters = decoder.layout().initialize(1, &Device::Cpu).unwrap();
    Arc::new(Published { version: Version(version), parameters, normalizer: None })
}

fn scheduled(task: Arc<dyn Task>, learner: &str, scheduler: FlowScheduler) -> Plane {
    let plane = unstarted(task, learner, scheduler, Prompts::new(None, false, 0).unwrap());
    plane.start(published(0));
    plane
}

fn unstarted(task: Arc<dyn Task>, learner: &str, scheduler: FlowScheduler, prompts: Prompts) -> Plane {
    Plane::new(PlaneParts {
        task,
        tokenizer: Arc::new(Tokenizer::characters("ab").unwrap()),
        learner: toml::from_str(&format!("prompts = 1\ngroup_size = 2\n{learner}")).unwrap(),
        context: 16,
        host_cache_tokens: 64,
        generators: 2,
        serial: true,
        trace: None,
        prompts,
        scheduler,
        history: VecDeque::from([published(0)]),
    })
}

/// A plane that goes on from a snapshot as a process that was started again does.
fn resumed(task: Arc<dyn Task>, learner: &str, snapshot: PlaneSnapshot, ledger: &Ledger) -> Plane {
    let mut prompts = Prompts::new(None, false, 0).unwrap();
    prompts.resume(snapshot.prompts).unwrap();
    let plane = unstarted(task, learner, snapshot.scheduler.clone(), prompts);
    let tickets = Tickets {
        live: &mut |trajectory| ledger.adopt_live(trajectory.tokens.len() as u64),
        buffered: &mut |trajectory| ledger.adopt_buffered(trajectory.tokens.len() as u64),
    };
    plane.restore(snapshot, tickets).unwrap();
    plane.start(published(0));
    plane
}

/// The only group of the batch.
fn learned(plane: &Plane) -> Option<ReadyGroup> {
    plane.take_batch(Duration::ZERO)?.pop()
}

/// A member as a generator hands it in with two more tokens.
fn stored(member: Member, ledger: &Ledger) -> Stored {
    let Member { mut trajectory, ticket, kv: _, pause_at, .. } = member;
    let mut ticket = ticket.unwrap_or_else(|| ledger.begin());
    for _ in 0..2 {
        trajectory.push_action(3, -1.0, Version(0));
        ticket.step(1);
    }
    Stored { trajectory, ticket, kv: None, pause_at }
}

fn ended(member: Member, reward: Option<f64>, ledger: &Ledger) -> Ended {
    let mut trajectory = Trajectory { finish: Some(Finish::Stop), ..member.trajectory };
    trajectory.push_action(3, -1.0, Version(0));
    trajectory.reward = reward.map(Reward::of);
    let error = reward.is_none().then_some(GradeError::TimedOut);
    let mut ticket = member.ticket.unwrap_or_else(|| ledger.begin());
    ticket.step(1);
    Ended { trajectory, ticket: ticket.complete(), error }
}

/// Ends the members of the next group with these rewards; without one, its grading failed.
fn end_with(plane: &Plane, ledger: &Ledger, members: Vec<Member>, rewards: &[Option<f64>]) {
    assert_eq!(members.len(), rewards.len());
    for (member, reward) in members.into_iter().zip(rewards) {
        plane.ended(ended(member, *reward, ledger));
    }
}

/// Ends both members of the next group, which then waits to be graded as a whole.
fn end_group(plane: &Plane, ledger: &Ledger) -> Complete {
    let mut members = plane.take(0).unwrap();
    let second = members.pop().unwrap();
    end_with(plane, ledger, members, &[Some(1.0)]);
    assert!(plane.take_whole(0).is_none());
    end_with(plane, ledger, vec![second], &[Some(1.0)]);
    plane.take_whole(0).unwrap()
}

/// As [`Whole`], but grades answers alone.
struct Single;

impl Task for Single {
    fn len(&self, split: Split) -> Option<u32> {
        Whole.len(split)
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        Whole.problem(split, index)
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Whole.grade(problem, completion)
    }
}

/// Takes all that waits; the indices of the problems, in the order in which their groups began.
fn begun(plane: &Plane, hold: &mut Vec<Member>) -> Vec<u32> {
    let mut indices = Vec::new();
    while let Some(members) = plane.take(0) {
        indices.extend(members.iter().map(|member| member.trajectory.id.prompt));
        hold.extend(members);
    }
    indices
}

#[test]
fn generators_are_short_until_each_has_its_share_of_what_is_in_flight() {
    let settings = FlowSettings { batch: 5, ..sync() };
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(settings));
    // Ten members, so five each, of groups of two.
    let mut taken = [0, 0];
    for generator in [0, 1] {
        while let Some(members) = plane.is_short(generator).then(|| plane.take(generator)).flatten() {
            taken[generator] += members.len();
        }
    }
    assert_eq!(taken, [6, 4]);
    assert!(plane.take(0).is_none() && !plane.is_short(0));
    // What the other has lost is shared out anew.
    plane.lost(1);
    assert!(plane.is_short(1) && !plane.is_short(0));
}
