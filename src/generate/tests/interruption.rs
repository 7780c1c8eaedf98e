//! Interruption, resumption and weights that change.

use proptest::prelude::*;

use super::*;

/// What is done to an engine between two steps.
#[derive(Debug, Clone)]
enum Act {
    Submit(usize),
    Step(usize),
    Pause { all: bool, save: bool, of: u16 },
    Resume(usize),
    GiveBack(bool),
    Swap(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (1_usize..6).prop_map(Act::Submit),
        6 => (1_usize..8).prop_map(Act::Step),
        2 => (any::<bool>(), any::<bool>(), 0_u16..3)
            .prop_map(|(all, save, of)| Act::Pause { all, save, of }),
        3 => (1_usize..6).prop_map(Act::Resume),
        1 => any::<bool>().prop_map(Act::GiveBack),
        1 => any::<bool>().prop_map(Act::Swap),
    ];
    proptest::collection::vec(act, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_is_done_under_unchanged_weights_changes_a_trajectory(
        acts in acts(),
        cache_pages in 4_usize..12,
        max_running in 1_usize..8,
        prefill_tokens in 1_usize..100,
        experts in any::<bool>(),
    ) {
        let decoder = decoder(experts);
        let requests = workload();
        let exact = EngineConfig { record_experts: experts, ..config() };
        let expected = undisturbed(&decoder, exact.clone(), &requests);
        let tight =
            EngineConfig { cache_tokens: cache_pages * 64, max_running, prefill_tokens, ..exact };
        let mut engine = engine(&decoder, tight);
        let (mut coming, mut paused, mut finished) = (requests.iter(), Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Submit(count) => {
                    coming.by_ref().take(count).for_each(|request| engine.submit(request.clone()).unwrap());
                }
                Act::Step(count) => {
                    for _ in 0..count {
                        finished.extend(engine.step().unwrap());
                        engine.check_pages();
                    }
                }
                Act::Pause { all: true, save, .. } => paused.extend(engine.interrupt(Interrupt::All, save)),
                Act::Pause { of, save, .. } => {
                    let ids: Vec<_> = (0..7).map(|prompt| id(prompt, of)).collect();
                    paused.extend(engine.interrupt(Interrupt::Only(&ids), save));
                }
                Act::Resume(count) => {
                    let count = count.min(paused.len());
                    paused.drain(..count).for_each(|paused| engine.resume(paused).unwrap());
                }
                Act::GiveBack(save) => {
                    engine.give_back_memory(save);
                    prop_assert_eq!(engine.usage().bytes, 0);
                }
                Act::Swap(keep) => {
                    let mode = if keep { ResumeMode::KeepKv } else { ResumeMode::Reprefill };
                    engine.swap(weights(&decoder, 0), mode);
                }
            }
            engine.check_pages();
        }
        coming.for_each(|request| engine.submit(request.clone()).unwrap());
        paused.into_iter().for_each(|paused| engine.resume(paused).unwrap());
        let mut all: Vec<_> = finished.into_iter().map(|finished| finished.trajectory).collect();
        all.extend(drain(&mut engine));
        engine.assert_empty();
        prop_assert_eq!(by_id(all), expected);
    }
}

/// Trajectories that sampled some tokens under version 0, then the rest under version 1.
fn across_a_swap(decoder: &Arc<Decoder>, config: EngineConfig, mode: ResumeMode) -> Vec<Trajectory> {
    let mut engine = engine(decoder, config);
    submit_all(&mut engine, &group(0, 70, 3, 40));
    for _ in 0..12 {
        assert!(engine.step().unwrap().is_empty());
    }
    engine.swap(weights(decoder, 1), mode);
    // Submitted after the change: all of it is of the new version.
    submit_all(&mut engine, &group(1, 40, 2, 20));
    let trajectories = drain(&mut engine);
    engine.assert_empty();
    trajectories
}

#[test]
fn after_reading_anew_tokens_are_exact_under_the_new_weights_and_with_kept_kv_they_differ() {
    for experts in [false, true] {
        let decoder = decoder(experts);
        let [old, new] = [0, 1].map(|version| weights(&decoder, version).parameters);
        for mode in [ResumeMode::Reprefill, ResumeMode::KeepKv] {
            let trajectories = across_a_swap(&decoder, config(), mode);
            let [old, new] = [&old, &new].map(|weights| packed(&decoder, weights, &trajectories, 1.0, false));
            for (index, trajectory) in trajectories.iter().enumerate() {
                let segments = trajectory.segments();
                let versions: Vec<u64> = segments.iter().map(|segment| segment.version.0).collect();
                if trajectory.id.prompt == 1 {
                    assert_eq!((versions, &trajectory.log_probs), (vec![1], &new[index]));
                    continue;
                }
                assert_eq!(versions, [0, 1]);
                let [before, after] = [0, 1].map(|part: usize| segments[part].tokens.clone());
                assert_eq!(trajectory.log_probs[before.clone()], old[index][before]);
                let same = trajectory.log_probs[after.clone()] == new[index][after];
                assert_eq!(same, mode == ResumeMode::Reprefill, "{mode:?}");
            }
        }
    }
}

#[test]
fn a_trajectory_of_one_version_is_exact_even_when_its_prompt_was_read_before_the_change() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { prefill_tokens: 30, ..config() });
    submit_all(&mut engine, &group(0, 70, 2, 10));
    for _ in 0..2 {
        engine.step().unwrap();
    }
    assert!(engine.usage().prefilled_tokens > 0 && engine.usage().sampled_tokens == 0);
    engine.swap(weights(&decoder, 1), ResumeMode::KeepKv);
    let trajectories = drain(&mut engine);
    assert_exact(&decoder, &weights(&decoder, 1).parameters, &trajectories, 1.0);
}

#[test]
fn recorded_experts_run_again_when_they_are_forced() {
    let decoder = decoder(true);
    let forced = EngineConfig { record_experts: true, force_experts: true, ..config() };
    let trajectories = across_a_swap(&decoder, forced, ResumeMode::Reprefill);
    let new = weights(&decoder, 1).parameters;
    let with = packed(&decoder, &new, &trajectories, 1.0, true);
    let without = packed(&decoder, &new, &trajectories, 1.0, false);
    let mut changed = false;
    for (index, trajectory) in trajectories.iter().enumerate().filter(|(_, t)| t.id.prompt == 0) {
        let after = trajectory.segments()[1].tokens.clone();
        assert_eq!(trajectory.log_probs[after.clone()], with[index][after.clone()]);
        changed |= trajectory.log_probs[after.clone()] != without[index][after];
    }
    assert!(changed, "the router chose as before: nothing was tested");
}

#[test]
fn saved_keys_and_values_go_through_serialisation_and_spare_reading_anew() {
    let decoder = decoder(false);
    let requests = group(3, 90, 2, 30);
    let expected = undisturbed(&decoder, config(), &requests);
    let mut first = engine(&decoder, config());
    submit_all(&mut first, &requests);
    for _ in 0..10 {
        first.step().unwrap();
    }
    let mut second = engine(&decoder, config());
    for mut paused in first.interrupt(Interrupt::All, true) {
        let text = serde_json::to_string(&paused.kv).unwrap();
        paused.kv = serde_json::from_str(&text).unwrap();
        let length = paused.request.trajectory.len();
        assert_eq!(paused.kv.as_ref().map(SavedKv::positions), Some(length - 1));
        second.resume(paused).unwrap();
    }
    first.assert_empty();
    assert_eq!(drain(&mut second), expected);
    assert_eq!(second.usage().prefilled_tokens, 0);
}

#[test]
fn the_budget_is_exact_over_any_number_of_interruptions() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, config());
    engine.submit(group(0, 10, 1, 9).remove(0)).unwrap();
    let mut finished = Vec::new();
    for save in [true, false, true, false, true, false] {
        for _ in 0..2 {
            finished.extend(engine.step().unwrap());
        }
        for paused in engine.interrupt(Interrupt::All, save) {
            engine.resume(paused).unwrap();
        }
    }
    finished.extend(drain(&mut engine).into_iter().map(|trajectory| Finished { trajectory, held: false }));
    assert_eq!((finished.len(), finished[0].trajectory.action_count()), (1, 9));
}
