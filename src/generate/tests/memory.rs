//! Memory that is given back and taken again.

use super::*;

/// Steps with a few sequences running, some waiting, and two that are held for an observation.
fn busy(engine: &mut Engine, requests: &[Request]) -> Vec<Finished> {
    submit_all(engine, requests);
    let mut finished = Vec::new();
    while engine.held.len() < 2 {
        finished.extend(engine.step().unwrap());
    }
    finished
}

/// Groups of which the answers of one stop at once, to be held.
fn requests() -> Vec<Request> {
    let mut requests = workload();
    for request in requests.iter_mut().filter(|request| request.trajectory.id.prompt == 2) {
        (request.hold, request.stops) = (true, Arc::new(Stops::at_tokens((0..61).collect())));
    }
    requests
}

/// Goes on to the end; what is held gets an observation first.
fn go_on(engine: &mut Engine, finished: Vec<Finished>) -> Vec<Trajectory> {
    let mut finished: Vec<_> = finished.into_iter().filter(|finished| !finished.held).collect();
    let held: Vec<_> = engine.held.iter().map(super::super::sequence::Sequence::id).collect();
    for id in held {
        assert!(engine.observe(id, &[5, 6, 7]).unwrap().is_none());
    }
    while !engine.is_idle() {
        for one in engine.step().unwrap() {
            if one.held {
                engine.release(one.trajectory.id).unwrap();
            }
            finished.push(one);
        }
        engine.check_pages();
    }
    engine.assert_empty();
    by_id(finished.into_iter().map(|finished| finished.trajectory).collect())
}

#[test]
fn nothing_is_left_of_memory_that_is_given_back_and_no_trajectory_is_another_for_it() {
    for experts in [false, true] {
        let decoder = decoder(experts);
        let config = EngineConfig { record_experts: experts, max_running: 5, ..config() };
        let run = |gives_back: Option<bool>| {
            let mut engine = engine(&decoder, config.clone());
            let finished = busy(&mut engine, &requests());
            let before = engine.usage();
            assert!(before.bytes > 0 && before.used_pages > 0 && before.running > 0 && before.waiting > 0);
            if let Some(save) = gives_back {
                engine.give_back_memory(save);
                engine.check_pages();
                let after = engine.usage();
                assert_eq!((after.bytes, after.used_pages, after.cached_tokens), (0, 0, 0));
                let places = |usage: Usage| (usage.running, usage.waiting, usage.held);
                assert_eq!(places(after), places(before));
            }
            let trajectories = go_on(&mut engine, finished);
            (trajectories, engine.usage().prefilled_tokens)
        };
        let [never, saved, dropped] = [None, Some(true), Some(false)].map(run);
        assert_eq!((&saved.0, &dropped.0), (&never.0, &never.0));
        assert!(dropped.1 > saved.1, "what was saved is not computed again");
    }
}

#[test]
fn what_is_kept_over_an_update_is_kept_without_memory_too() {
    let decoder = decoder(false);
    for mode in [ResumeMode::KeepKv, ResumeMode::Reprefill] {
        let run = |gives_back: bool| {
            let mut engine = engine(&decoder, config());
            submit_all(&mut engine, &group(0, 70, 3, 40));
            for _ in 0..12 {
                assert!(engine.step().unwrap().is_empty());
            }
            if gives_back {
                engine.give_back_memory(true);
            }
            engine.swap(weights(&decoder, 1), mode);
            drain(&mut engine)
        };
        assert_eq!(run(true), run(false), "{mode:?}");
    }
}

#[test]
fn what_is_taken_out_while_there_is_no_memory_has_what_was_saved() {
    let decoder = decoder(true);
    let requests = group(0, 70, 3, 40);
    let expected = undisturbed(&decoder, config(), &requests);
    let mut engine = engine(&decoder, config());
    submit_all(&mut engine, &requests);
    (0..12).for_each(|_| assert!(engine.step().unwrap().is_empty()));
    engine.give_back_memory(true);
    let paused = engine.interrupt(Interrupt::All, true);
    assert!(paused.len() == 3 && paused.iter().all(|paused| paused.kv.is_some()));
    engine.assert_empty();
    paused.into_iter().for_each(|paused| engine.resume(paused).unwrap());
    assert_eq!((engine.usage().bytes, drain(&mut engine)), (0, expected));
}

#[test]
fn memory_that_cannot_be_taken_again_is_a_clear_error_and_costs_no_trajectory() {
    let decoder = decoder(false);
    let requests = workload();
    let expected = undisturbed(&decoder, config(), &requests);
    let mut engine = engine(&decoder, config());
    submit_all(&mut engine, &requests);
    (0..3).for_each(|_| assert!(engine.step().unwrap().is_empty()));
    engine.give_back_memory(true);
    engine.pool.fails = true;
    let error = engine.step().unwrap_err().to_string();
    for part in ["KV cache of 2560 positions", "lower `cache_tokens`", "the learner needs"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(drain(&mut engine), expected);
}
