//! Stops, and trajectories of several turns.

use super::*;
use crate::trajectory::Finish;

/// A token's text is its number between brackets.
struct Numbers;

impl Detokenizer for Numbers {
    fn append(&self, token: u32, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(format!("<{token}>").as_bytes());
    }
}

#[test]
fn the_stop_token_is_kept_as_the_last_action() {
    let decoder = decoder(false);
    let mut request = group(0, 10, 1, 60).remove(0);
    let free = undisturbed(&decoder, config(), std::slice::from_ref(&request)).remove(0);
    let stop = free.tokens[17];
    let first = free.tokens.iter().position(|&token| token == stop).unwrap();
    request.stops = Arc::new(Stops::at_tokens(vec![stop]));
    let stopped = undisturbed(&decoder, config(), &[request]).remove(0);
    assert_eq!((stopped.tokens.as_slice(), stopped.finish), (&free.tokens[..=first], Some(Finish::Stop)));
}

#[test]
fn a_stop_string_across_tokens_is_found_also_when_interrupted_in_its_midst() {
    let decoder = decoder(false);
    let mut request = group(0, 10, 1, 60).remove(0);
    let free = undisturbed(&decoder, config(), std::slice::from_ref(&request)).remove(0);
    let string = format!("{}><{}><{}", free.tokens[20], free.tokens[21], free.tokens[22]);
    request.stops =
        Arc::new(Stops { strings: vec![string], detokenizer: Some(Arc::new(Numbers)), ..Stops::default() });
    let mut engine = engine(&decoder, config());
    engine.submit(request).unwrap();
    let mut finished = Vec::new();
    while !engine.is_idle() {
        for _ in 0..3 {
            finished.extend(engine.step().unwrap());
        }
        for paused in engine.interrupt(Interrupt::All, false) {
            engine.resume(paused).unwrap();
        }
    }
    let stopped = finished.remove(0).trajectory;
    assert_eq!(stopped.finish, Some(Finish::Stop));
    assert!(stopped.tokens.len() <= 23 && free.tokens.starts_with(&stopped.tokens));
}

/// Requests that end answers at many tokens and wait for observations.
fn turning(length: usize, most: usize) -> Vec<Request> {
    let stops = Arc::new(Stops::at_tokens((0..45).collect()));
    let mut requests = group(0, length, 2, most);
    for request in &mut requests {
        (request.hold, request.stops) = (true, stops.clone());
    }
    requests
}

/// Answers every stop with the same observation until the budget is used up.
fn play(engine: &mut Engine, requests: &[Request], resubmit: bool) -> Vec<Trajectory> {
    submit_all(engine, requests);
    let mut done = Vec::new();
    while done.len() < requests.len() {
        for Finished { trajectory, held } in engine.step().unwrap() {
            let id = trajectory.id;
            if !held {
                done.push(trajectory);
                continue;
            }
            if resubmit {
                engine.release(id).unwrap();
                let mut request = requests.iter().find(|r| r.trajectory.id == id).unwrap().clone();
                request.trajectory = trajectory;
                request.trajectory.push_observation(&[5, 6, 7], engine.version());
                engine.submit(request).unwrap();
            } else {
                engine.observe(id, &[5, 6, 7]).unwrap();
            }
        }
        engine.check_pages();
    }
    by_id(done)
}

#[test]
fn turns_are_the_same_with_kept_pages_with_lost_pages_and_submitted_anew() {
    for experts in [false, true] {
        let decoder = decoder(experts);
        let exact = EngineConfig { record_experts: experts, ..config() };
        let requests = turning(40, 30);
        let mut roomy = engine(&decoder, exact.clone());
        let kept = play(&mut roomy, &requests, false);
        assert!(kept.iter().all(|t| t.is_action.contains(&false) && t.finish == Some(Finish::Length)));
        assert_eq!(kept.iter().map(Trajectory::action_count).collect::<Vec<_>>(), [30, 33]);
        let mut again = engine(&decoder, exact.clone());
        assert_eq!(play(&mut again, &requests, true), kept);
        assert!(again.usage().prefilled_tokens > roomy.usage().prefilled_tokens);
        let mut tight = engine(&decoder, EngineConfig { cache_tokens: 64 * 4, ..exact });
        assert_eq!(play(&mut tight, &requests, false), kept);
        let packed = packed(&decoder, &parameters(&decoder, 100), &kept, 1.0, false);
        for (trajectory, packed) in kept.iter().zip(packed) {
            for index in trajectory.actions() {
                assert_eq!(trajectory.log_probs[index].to_bits(), packed[index].to_bits());
            }
        }
        [roomy, again, tight].iter().for_each(Engine::assert_empty);
    }
}

#[test]
fn an_observation_that_does_not_fit_ends_the_trajectory_without_it() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, config());
    engine.submit(turning(150, 60).remove(0)).unwrap();
    let mut held = None;
    while held.is_none() {
        held = engine.step().unwrap().pop();
    }
    let held = held.unwrap();
    assert!(held.held && held.trajectory.finish == Some(Finish::Stop));
    assert!(engine.observe(held.trajectory.id, &[]).unwrap_err().to_string().contains("at least one"));
    let observation = vec![1; CONTEXT - held.trajectory.len()];
    let ended = engine.observe(held.trajectory.id, &observation).unwrap().unwrap();
    assert_eq!((ended.trajectory.tokens, ended.held), (held.trajectory.tokens, false));
    assert_eq!(ended.trajectory.finish, Some(Finish::Context));
    engine.assert_empty();
}
