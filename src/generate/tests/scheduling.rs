//! Who runs, who waits, who loses pages; and that none is lost.

use super::*;
use crate::trajectory::Finish;

#[test]
fn all_pages_are_free_again_after_a_thousand_generations() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { cache_tokens: 64 * 6, max_running: 32, ..config() });
    let mut count = 0;
    for round in 0..25 {
        let requests: Vec<_> = (0..5)
            .flat_map(|group| {
                self::group(round * 5 + group, 1 + (round * 31 + group * 17) as usize % 90, 8, 2)
            })
            .collect();
        submit_all(&mut engine, &requests);
        while !engine.is_idle() {
            count += engine.step().unwrap().len();
        }
    }
    engine.check_pages();
    engine.assert_empty();
    assert_eq!(count, 1000);
}

#[test]
fn a_group_computes_its_prompt_once_and_shares_its_full_pages() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { prefill_tokens: 1000, ..config() });
    submit_all(&mut engine, &group(0, 150, 8, 5));
    engine.step().unwrap();
    assert_eq!((engine.usage().prefilled_tokens, engine.usage().used_pages), (149, 3));
    engine.step().unwrap();
    let usage = engine.usage();
    assert_eq!((usage.prefilled_tokens, usage.sampled_tokens, usage.shared_tokens), (149, 8, 149 * 8));
    // Two full pages, and each member's own third: one of them is the prompt's, the others are copies.
    assert_eq!(usage.used_pages, 2 + 8);
    drain(&mut engine);
    engine.assert_empty();
}

#[test]
fn a_full_cache_preempts_the_youngest_and_nothing_fails() {
    let decoder = decoder(false);
    let tight = EngineConfig { cache_tokens: 64 * 4, max_running: 8, ..config() };
    let requests: Vec<_> = (0..6).flat_map(|index| group(index, 60, 1, 100)).collect();
    let mut engine = engine(&decoder, tight);
    submit_all(&mut engine, &requests);
    let trajectories = drain(&mut engine);
    assert!(engine.usage().preempted > 0);
    engine.assert_empty();
    assert_eq!(trajectories, undisturbed(&decoder, config(), &requests));
}

#[test]
fn a_trajectory_that_fills_the_cache_alone_runs_beside_others_of_its_prompt() {
    let decoder = decoder(false);
    let requests = group(0, 100, 4, 85);
    // The largest grows to 100 + 94 tokens, 193 of which go through the model: four pages.
    let mut engine = engine(&decoder, EngineConfig { cache_tokens: 64 * 4, ..config() });
    submit_all(&mut engine, &requests);
    assert_eq!(drain(&mut engine), undisturbed(&decoder, config(), &requests));
    engine.assert_empty();
}

#[test]
fn more_than_may_run_wait_in_order() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { max_running: 2, ..config() });
    let requests: Vec<_> = (0..5).flat_map(|index| group(index, 3, 1, 4)).collect();
    submit_all(&mut engine, &requests);
    let mut order = Vec::new();
    while !engine.is_idle() {
        order.extend(engine.step().unwrap().iter().map(|finished| finished.trajectory.id.prompt));
        assert!(engine.usage().running <= 2);
    }
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn a_step_prefills_no_more_than_its_budget_while_others_decode() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { prefill_tokens: 16, ..config() });
    engine.submit(group(0, 1, 1, 30).remove(0)).unwrap();
    engine.step().unwrap();
    engine.submit(group(1, 100, 1, 5).remove(0)).unwrap();
    for step in 1..=6 {
        engine.step().unwrap();
        let usage = engine.usage();
        assert_eq!((usage.prefilled_tokens, usage.sampled_tokens), (16 * step, 1 + step));
    }
    drain(&mut engine);
}

#[test]
fn length_context_and_nothing_to_do_end_a_trajectory() {
    let decoder = decoder(false);
    let ends = |length, most| {
        let requests = group(0, length, 1, most);
        let trajectory = undisturbed(&decoder, config(), &requests).remove(0);
        (trajectory.tokens.len(), trajectory.finish.unwrap())
    };
    assert_eq!(ends(10, 7), (7, Finish::Length));
    assert_eq!(ends(CONTEXT - 3, 7), (3, Finish::Context));
    assert_eq!(ends(CONTEXT, 7), (0, Finish::Context));
    assert_eq!(ends(10, 0), (0, Finish::Length));
}
