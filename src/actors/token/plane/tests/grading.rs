//! Groups that are graded as a whole, of which some answers are kept, and of different sizes.

use super::*;

#[test]
fn a_complete_group_goes_to_the_learner_with_the_grades_it_got_as_a_whole() {
    let plane = plane("grpo");
    let complete = end_group(&plane, &Ledger::default());
    assert_eq!(complete.graded.len(), 2);
    assert!(learned(&plane).is_none());
    plane.group_judged(complete.group + 1, Ok(vec![Reward::of(9.0); 2]));
    assert!(learned(&plane).is_none(), "those were the grades of another");
    plane.group_judged(complete.group, Ok(vec![Reward::of(0.25), Reward::of(0.75)]));
    let ready = learned(&plane).unwrap();
    assert_eq!(ready.group.rewards(), [Some(0.25), Some(0.75)]);
    assert_eq!((ready.group.budget, plane.counts().group_grading_errors), (Some(7), 0));
}

#[test]
fn without_a_rubric_a_group_that_cannot_be_graded_as_a_whole_is_dropped_and_replaced() {
    let ledger = Ledger::default();
    let plane = plane("grpo");
    let complete = end_group(&plane, &ledger);
    plane.group_judged(complete.group, Err(GradeError::TimedOut));
    assert!(learned(&plane).is_none());
    assert_eq!(ledger.snapshot().dropped[&DropReason::GradingFailed].unrolls, 2);
    assert_eq!(plane.counts().group_grading_errors, 1);
    assert!(plane.take(0).is_some());
}

#[test]
fn with_a_rubric_it_keeps_the_grades_of_its_members() {
    let plane = plane("rubric");
    let complete = end_group(&plane, &Ledger::default());
    plane.group_judged(complete.group, Err(GradeError::TimedOut));
    assert_eq!(learned(&plane).unwrap().group.rewards(), [Some(1.0), Some(1.0)]);
    assert_eq!(plane.pass_rates().rate("whole"), None);
    plane.fold_passes();
    assert_eq!(plane.pass_rates().rate("whole"), Some(1.0));
}

#[test]
fn a_group_that_a_checkpoint_found_waiting_for_its_grades_waits_for_them_again() {
    let ledger = Ledger::default();
    let before = plane("grpo");
    let complete = end_group(&before, &ledger);
    let snapshot = before.snapshot(Vec::new(), &[]);
    assert_eq!(snapshot.open[0].ended().count(), 2);
    let after = resumed(Arc::new(Whole), "advantage = { kind = 'grpo' }", snapshot, &ledger);
    let again = after.take_whole(1).unwrap();
    assert_eq!((again.group, again.graded.len()), (complete.group, 2));
    after.group_judged(again.group, Ok(vec![Reward::of(0.5); 2]));
    assert!(learned(&after).is_some());
}

#[test]
fn the_grades_of_a_group_whose_grader_was_lost_are_asked_for_again() {
    let ledger = Ledger::default();
    let plane = plane("grpo");
    let complete = end_group(&plane, &ledger);
    plane.lost(1);
    assert!(plane.take_whole(1).is_none(), "another generator's");
    plane.lost(0);
    let again = plane.take_whole(1).unwrap();
    assert_eq!((again.group, again.graded.len()), (complete.group, 2));
    assert_eq!(ledger.snapshot().dropped.len(), 0, "what had ended was not lost");
}

#[test]
fn of_a_lost_generators_group_only_what_it_had_begins_anew() {
    let ledger = Ledger::default();
    let plane = plane_of(Arc::new(Single), "");
    let mut members = plane.take(0).unwrap();
    let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
    plane.ended(ended(first, Some(1.0), &ledger));
    let late = second.trajectory.clone();
    plane.lost(0);
    let again = plane.take(1).unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].trajectory.id.member, again[0].trajectory.id.attempt), (1, 1));
    // What the lost one still sends is of no use.
    let ticket = ledger.begin().complete();
    plane.ended(Ended {
        trajectory: Trajectory { reward: Some(Reward::of(9.0)), ..late },
        ticket,
        error: None,
    });
    assert_eq!(ledger.snapshot().dropped[&DropReason::ActorRestart].unrolls, 1);
    end_with(&plane, &ledger, again, &[Some(0.0)]);
    assert_eq!(learned(&plane).unwrap().group.rewards(), [Some(1.0), Some(0.0)]);
}

#[test]
fn the_best_and_the_worst_enter_the_queue_and_the_others_are_booked_each_for_its_reason() {
    let ledger = Ledger::default();
    let plane = sized(5, "keep = 'best_and_worst'");
    let members = plane.take(0).unwrap();
    end_with(&plane, &ledger, members, &[Some(0.5), Some(1.0), None, Some(0.0), Some(0.25)]);
    let ready = learned(&plane).unwrap();
    assert_eq!(ready.group.rewards(), [Some(1.0), Some(0.0)]);
    let members: Vec<u16> = ready.group.members.iter().map(|member| member.id.member).collect();
    assert_eq!((members, ready.answers()), (vec![1, 3], 5));
    assert_eq!(ready.rewards().flatten().sum::<f64>(), 1.75);
    let books = ledger.snapshot();
    assert_eq!(books.dropped[&DropReason::NotKept], Amount { unrolls: 2, steps: 2 });
    assert_eq!(books.dropped[&DropReason::GradingFailed], Amount { unrolls: 1, steps: 1 });
    assert_eq!(books.buffered, Amount { unrolls: 2, steps: 2 });
    assert!(books.balances());
}

#[test]
fn a_group_that_says_nothing_is_dropped_whole_for_that_reason_and_not_for_what_is_not_kept() {
    let ledger = Ledger::default();
    let plane = sized(4, "keep = 'best_and_worst'\ndrop_zero_variance = true");
    end_with(&plane, &ledger, plane.take(0).unwrap(), &[Some(1.0); 4]);
    assert!(learned(&plane).is_none());
    let books = ledger.snapshot();
    assert_eq!((books.dropped.len(), books.dropped[&DropReason::ZeroVariance].unrolls), (1, 4));
}

#[test]
fn a_group_has_as_many_answers_as_when_it_was_launched() {
    let ledger = Ledger::default();
    let keep = "keep = 'best_and_worst'";
    let before = sized(4, keep);
    let members = before.take(0).unwrap();
    before.set_answers(2);
    // Lost with its generator, it begins anew with as many.
    before.lost(0);
    let again = before.take(0).unwrap();
    assert_eq!((members.len(), again.len()), (4, 4));
    // And so it does after a checkpoint.
    let after = resumed(Arc::new(Single), keep, before.snapshot(Vec::new(), &[]), &ledger);
    let restored = after.take(0).unwrap();
    assert_eq!(restored.len(), 4);
    let rewards = [Some(0.0), Some(1.0), Some(2.0), Some(3.0)];
    for (plane, members) in [(&before, again), (&after, restored)] {
        end_with(plane, &ledger, members, &rewards);
        assert_eq!(learned(plane).unwrap().answers(), 4);
    }
    // The next one is of the number that holds now.
    before.skipped();
    assert_eq!(before.take(0).unwrap().len(), 2);
}
