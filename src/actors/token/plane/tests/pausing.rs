//! Members that are stopped and go on.

use super::*;

/// Every answer pauses after so many tokens of a round.
fn in_rounds(tokens: u64) -> FlowSettings {
    let text = format!(
        "batch = 2\ngroup_size = 2\ndispatch = {{ unit = 'sample' }}\n\
         round_end = {{ rule = 'budget', tokens = {tokens} }}\ninterrupt = 'token'"
    );
    let settings: FlowSettings = toml::from_str(&text).unwrap();
    settings.check(ScheduleContext::default()).unwrap();
    settings
}

#[test]
fn an_answer_has_its_budget_of_a_round_whatever_interrupts_it() {
    let ledger = Ledger::default();
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(in_rounds(4)));
    let mut held = Vec::new();
    begun(&plane, &mut held);
    assert!(held.len() == 4 && held.iter().all(|member| member.pause_at == Some(4)));
    // Stopped in the middle of the round, by a checkpoint: what is left of the budget is what it had.
    let begun_members = held.drain(..).map(|member| {
        let Stored { trajectory, ticket, pause_at, .. } = stored(member, &ledger);
        std::mem::forget(ticket);
        BegunMember { trajectory, kv: None, pause_at }
    });
    let snapshot = plane.snapshot(begun_members.collect(), &[]);
    let plane = resumed(Arc::new(Single), "", snapshot, &ledger);
    begun(&plane, &mut held);
    assert!(held.iter().all(|member| member.trajectory.tokens.len() == 2 && member.pause_at == Some(4)));
    // Two end, two use their budget up and go on in the next round with a new one.
    for (place, member) in held.drain(..).enumerate() {
        if place < 2 {
            plane.ended(ended(member, Some(place as f64), &ledger));
        } else {
            plane.paused(stored(member, &ledger), true);
        }
    }
    assert!(begun(&plane, &mut held).is_empty(), "the round is over");
    assert_eq!(plane.take_batch(Duration::ZERO).unwrap().len(), 1, "the complete group");
    plane.published(published(1));
    begun(&plane, &mut held);
    let old: Vec<_> = held.iter().filter(|member| member.ticket.is_some()).collect();
    assert!(old.iter().all(|member| member.trajectory.tokens.len() == 4 && member.pause_at == Some(8)));
    assert_eq!((old.len(), held.len()), (2, 4), "and a new group in the place of the other");
}

#[test]
fn an_answer_that_was_lost_before_its_grade_is_sampled_anew_whatever_its_budget() {
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(in_rounds(4)));
    let mut held = Vec::new();
    begun(&plane, &mut held);
    for member in &held[..2] {
        let trajectory = Trajectory { finish: Some(Finish::Stop), ..member.trajectory.clone() };
        plane.sampled(&trajectory);
    }
    held.clear();
    plane.lost(0);
    begun(&plane, &mut held);
    // The schedule waits for the grades of these two in this round; the others begin anew in the next.
    assert_eq!(held.iter().map(|member| member.pause_at).collect::<Vec<_>>(), [None, None]);
}

/// Rounds of one group of two that is complete, of a pool of two groups.
pub(super) fn april() -> FlowSettings {
    let text = "batch = 1\ngroup_size = 1\ndispatch = { unit = 'sample' }\n\
                round_end = { rule = 'groups', submit = 3 }\ninterrupt = 'token'";
    toml::from_str(text).unwrap()
}

#[test]
fn the_learner_gets_its_batch_only_when_everything_that_is_to_stop_has() {
    let ledger = Ledger::default();
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(april()));
    let mut held = Vec::new();
    assert_eq!(begun(&plane, &mut held), [0, 1, 2]);
    plane.ended(ended(held.remove(0), Some(1.0), &ledger));
    let orders: Vec<Order> = plane.orders(0).into();
    assert_eq!(orders, [1, 2].map(|place| Order::Pause(held[place - 1].trajectory.id)));
    assert!(plane.take_batch(Duration::ZERO).is_none());
    plane.paused(stored(held.remove(0), &ledger), false);
    assert!(plane.take_batch(Duration::ZERO).is_none(), "one still runs");
    // The other had ended before it heard of it.
    plane.ended(ended(held.remove(0), Some(1.0), &ledger));
    assert_eq!(plane.take_batch(Duration::ZERO).unwrap().len(), 1);
    plane.published(published(1));
    assert_eq!(
        plane.take_batch(Duration::ZERO).unwrap().len(),
        1,
        "the one that had ended is of the next round"
    );
    plane.published(published(2));
    // What was stopped goes on, on whichever generator, from where it was.
    let on = plane.take(1).unwrap();
    assert_eq!((on[0].trajectory.id.prompt, on[0].trajectory.tokens.len()), (1, 2));
}

/// Two answers in flight, of which the younger is told to stop as the engine's memory fills up.
fn throttled(held: &mut Vec<Member>) -> Plane {
    let throttle =
        "throttle = { start = 2, least = 1, most = 2, high = 0.9, low = 0.5, back_off = 0.5, step = 1 }";
    let text = format!(
        "batch = 2\ngroup_size = 1\nlayout = 'decoupled'\ndispatch = {{ unit = 'sample' }}\n\
         round_end = {{ rule = 'streaming' }}\ninterrupt = 'token'\nadmission = {{ pool = 2, {throttle} }}"
    );
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(toml::from_str(&text).unwrap()));
    assert_eq!(begun(&plane, held), [0, 1]);
    plane.observe(0, EngineLoad { active: 2, kv_use: 0.95, ..EngineLoad::default() });
    plane
}

#[test]
fn what_is_let_go_before_its_generator_heard_of_the_stop_never_hears_of_it() {
    let mut held = Vec::new();
    let plane = throttled(&mut held);
    plane.ended(ended(held.remove(0), Some(1.0), &Ledger::default()));
    assert!(plane.orders(0).is_empty());
}

#[test]
fn what_is_let_go_while_it_is_being_stopped_goes_on_as_soon_as_it_is_handed_in() {
    let (mut held, ledger) = (Vec::new(), Ledger::default());
    let plane = throttled(&mut held);
    let (first, second) = (held.remove(0), held.remove(0));
    assert_eq!(Vec::from(plane.orders(0)), [Order::Pause(second.trajectory.id)]);
    plane.ended(ended(first, Some(1.0), &ledger));
    assert!(plane.take(0).is_none());
    plane.paused(stored(second, &ledger), false);
    assert_eq!(plane.take(1).unwrap()[0].trajectory.tokens.len(), 2);
}

#[test]
fn what_is_let_go_while_its_grader_has_it_is_told_to_go_on() {
    let (mut held, ledger) = (Vec::new(), Ledger::default());
    let plane = throttled(&mut held);
    let (first, second) = (held.remove(0), held.remove(0));
    let id = second.trajectory.id;
    assert_eq!(Vec::from(plane.orders(0)), [Order::Pause(id)]);
    assert!(plane.will_pause(id), "after what the grader says");
    plane.ended(ended(first, Some(1.0), &ledger));
    assert_eq!(Vec::from(plane.orders(0)), [Order::Continue(id)]);
}

/// A member as a generator hands it in with keys and values of so many positions.
fn with_kv(member: Member, positions: usize, ledger: &Ledger) -> Stored {
    let kv = serde_json::json!({ "positions": positions, "values": [] });
    Stored { kv: Some((serde_json::from_value(kv).unwrap(), Version(0))), ..stored(member, ledger) }
}

#[test]
fn keys_and_values_are_kept_as_far_as_host_memory_may_hold_them_and_go_with_their_members() {
    let ledger = Ledger::default();
    let settings = FlowSettings { resume: Resume::KeepKv, ..april() };
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(settings));
    let mut held = Vec::new();
    begun(&plane, &mut held);
    plane.ended(ended(held.remove(0), Some(1.0), &ledger));
    plane.paused(with_kv(held.remove(0), 40, &ledger), false);
    plane.paused(with_kv(held.remove(0), 30, &ledger), false);
    // 64 positions may be kept: the one that goes on later is computed again.
    assert_eq!(plane.host_cache(), (40, 1));
    plane.take_batch(Duration::ZERO).unwrap();
    // It is in a checkpoint, and comes back from it.
    let snapshot = plane.snapshot(Vec::new(), &[]);
    let again = resumed(Arc::new(Single), "", snapshot, &ledger);
    assert_eq!(again.host_cache().0, 40);
    plane.published(published(1));
    let (mut first, mut second) = (plane.take(0).unwrap(), plane.take(0).unwrap());
    assert_eq!(first.pop().unwrap().kv.map(|kv| kv.positions()), Some(40));
    assert!(second.pop().unwrap().kv.is_none() && plane.host_cache().0 == 0);
}

#[test]
fn an_answer_that_was_lost_on_its_way_to_its_grade_is_made_again_without_a_stop() {
    let ledger = Ledger::default();
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(in_rounds(4)));
    let mut held = Vec::new();
    begun(&plane, &mut held);
    for member in held.drain(..) {
        // All have ended for the schedule; of the last the grade is missing when its generator is lost.
        plane.sampled(&member.trajectory);
        if (member.trajectory.id.prompt, member.trajectory.id.member) != (1, 1) {
            plane.ended(ended(member, Some(1.0), &ledger));
        }
    }
    plane.lost(0);
    begun(&plane, &mut held);
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].trajectory.id.attempt, held[0].pause_at), (1, None));
    plane.ended(ended(held.remove(0), Some(0.0), &ledger));
    assert_eq!(plane.take_batch(Duration::ZERO).unwrap().len(), 2);
}
