//! Groups of several sources.

use super::*;

/// Problems of three sources in turn, one of them twice as often.
struct Sources;

impl Task for Sources {
    fn len(&self, split: Split) -> Option<u32> {
        Whole.len(split)
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let source = ["a", "b", "a", "c"][index as usize % 4].into();
        Ok(Problem { source, ..Whole.problem(split, index)? })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Whole.grade(problem, completion)
    }
}

fn of_sources(schedule: &str) -> FlowSettings {
    let text = format!("group_size = 1\n{schedule}");
    let settings: FlowSettings = toml::from_str(&text).unwrap();
    let context = ScheduleContext { group_relative: false, ..ScheduleContext::default() };
    settings.check(context).unwrap();
    settings
}

#[test]
fn a_mixer_gets_its_quotas_in_every_batch_and_no_problem_is_left_out_or_comes_twice() {
    let ledger = Ledger::default();
    let settings = of_sources(
        "batch = 4\ndispatch = { unit = 'mixer' }\nround_end = { rule = 'ready', max_old_fraction = 1.0 }\n\
         interrupt = 'token'\nadmission = { pool = 8 }\n\
         sources = [{ name = 'a', quota = 1 }, { name = 'b', quota = 1 }, { name = 'c', quota = 2 }]",
    );
    let mut plane = scheduled(Arc::new(Sources), "", FlowScheduler::new(settings));
    let (mut learned, mut held) = (Vec::new(), Vec::new());
    for batch in 0..6 {
        while !plane.is_learning() {
            begun(&plane, &mut held);
            plane.ended(ended(held.remove(0), Some(1.0), &ledger));
        }
        for member in held.drain(..) {
            plane.paused(stored(member, &ledger), false);
        }
        let groups = plane.take_batch(Duration::ZERO).unwrap();
        let count = |name: &str| groups.iter().filter(|ready| &*ready.group.source == name).count();
        assert_eq!(["a", "b", "c"].map(count), [1, 1, 2], "batch {batch}");
        learned.extend(groups.iter().map(|ready| ready.group.prompt));
        groups.into_iter().flat_map(|ready| ready.tickets).for_each(BufferedTicket::consume);
        if batch == 2 {
            // As well after a checkpoint as before it.
            let snapshot = plane.snapshot(Vec::new(), &[]);
            assert!(snapshot.scheduler.is_learning());
            plane.close();
            plane = resumed(Arc::new(Sources), "", snapshot, &ledger);
        }
        plane.published(published(batch + 1));
    }
    for source in 0..3 {
        let of = |index: &&u32| [0, 1, 0, 2][**index as usize % 4] == source;
        let mut indices: Vec<u32> = learned.iter().filter(of).copied().collect();
        indices.sort_unstable();
        let every = if source == 0 { 2 } else { 4 };
        let first = [0, 1, 3][source];
        let gaps = indices.windows(2).all(|pair| pair[1] == pair[0] + every);
        assert!(gaps && indices[0] == first, "source {source}: {indices:?}");
    }
}

#[test]
fn a_source_at_its_cap_is_passed_over_and_its_problems_wait_in_their_order() {
    let ledger = Ledger::default();
    let settings = of_sources(
        "batch = 2\nlayout = 'decoupled'\ndispatch = { unit = 'sample' }\nround_end = { rule = 'streaming' }\n\
         interrupt = 'token'\nadmission = { pool = 4, buffer = 4 }\n\
         sources = [{ name = 'a', cap = 1 }, { name = 'b' }, { name = 'c' }]",
    );
    let plane = scheduled(Arc::new(Sources), "", FlowScheduler::new(settings));
    let mut held = Vec::new();
    assert_eq!(begun(&plane, &mut held), [0, 1, 3, 5], "2 and 4 are of `a`");
    plane.ended(ended(held.remove(1), Some(1.0), &ledger));
    plane.ended(ended(held.remove(0), Some(1.0), &ledger));
    assert_eq!(begun(&plane, &mut held), [7, 2], "and what was passed over as soon as there is room for it");
}

#[test]
fn a_source_that_the_schedule_does_not_name_ends_the_run_and_is_named() {
    let settings = of_sources(
        "batch = 2\nlayout = 'decoupled'\ndispatch = { unit = 'sample' }\nround_end = { rule = 'streaming' }\n\
         interrupt = 'token'\nadmission = { pool = 4, buffer = 4 }\nsources = [{ name = 'a' }, { name = 'b' }]",
    );
    let plane = scheduled(Arc::new(Sources), "", FlowScheduler::new(settings));
    let why = plane.fatal().unwrap();
    assert!(why.contains("problem 3") && why.contains("\"c\"") && why.contains("schedule.sources"), "{why}");
}
