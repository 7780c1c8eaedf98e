//! Memory that generators give back for the learner's turn.

use super::*;

#[test]
fn the_learner_gets_its_batch_when_all_memory_was_given_back_and_none_is_lent_in_its_turn() {
    let ledger = Ledger::default();
    let prompts = Prompts::new(None, false, 0).unwrap();
    let plane = unstarted(Arc::new(Single), "", FlowScheduler::new(sync()), prompts);
    assert!(!plane.lend_memory(0), "generation has not begun");
    plane.start(published(0));
    let members = plane.take(0).unwrap();
    assert!(plane.lend_memory(0) && plane.lend_memory(1));
    end_with(&plane, &ledger, members, &[Some(1.0), Some(0.0)]);
    for generator in [0, 1] {
        assert!(plane.take_batch(Duration::ZERO).is_none() && plane.awaits_memory());
        assert!(!plane.lend_memory(generator));
        plane.memory_returned(generator);
    }
    assert!(!plane.awaits_memory() && plane.take_batch(Duration::ZERO).is_some());
    assert!(!plane.lend_memory(0), "it learns");
    plane.published(published(1));
    assert!(plane.lend_memory(0));
}

#[test]
fn the_learner_waits_for_what_is_to_stop_also_when_memory_is_there() {
    let ledger = Ledger::default();
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(pausing::april()));
    let mut held = Vec::new();
    begun(&plane, &mut held);
    assert!(plane.lend_memory(0));
    plane.ended(ended(held.remove(0), Some(1.0), &ledger));
    assert!(!plane.awaits_memory(), "two are to stop first");
    plane.memory_returned(0);
    assert!(plane.take_batch(Duration::ZERO).is_none());
    held.drain(..).for_each(|member| plane.paused(stored(member, &ledger), false));
    assert!(plane.take_batch(Duration::ZERO).is_some());
}

#[test]
fn the_memory_of_a_generator_that_was_lost_is_not_waited_for() {
    let ledger = Ledger::default();
    let plane = scheduled(Arc::new(Single), "", FlowScheduler::new(sync()));
    let members = plane.take(0).unwrap();
    assert!(plane.lend_memory(0) && plane.lend_memory(1));
    end_with(&plane, &ledger, members, &[Some(1.0), Some(0.0)]);
    plane.memory_returned(0);
    assert!(plane.take_batch(Duration::ZERO).is_none());
    plane.lost(1);
    assert!(plane.take_batch(Duration::ZERO).is_some());
}
