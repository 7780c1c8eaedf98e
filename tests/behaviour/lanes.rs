//! No step is lost, repeated or shifted: at unroll borders, resets, restarts, and at a snapshot after any step.

use std::collections::BTreeMap;

use forebay::trajectory::{Amount, DropReason, Unroll, Version};

use crate::support::config;
use crate::support::counting::{self, NAME};
use crate::support::follower::Follower;
use crate::support::rig::Rig;

/// Every way in which lanes are stepped; unrolls of 5 steps meet episodes of 1 to 7.
const WAYS: [(&str, &[&str]); 3] = [
    ("local", &["rollout={ actors = 2, envs_per_actor = 3, unroll_length = 5 }"]),
    (
        "central",
        &[
            "rollout={ actors = 2, envs_per_actor = 3, unroll_length = 5, inference = \"central\", double_buffer = false }",
        ],
    ),
    (
        "central, double-buffered",
        &[
            "rollout={ actors = 2, envs_per_actor = 3, unroll_length = 5, inference = \"central\", double_buffer = true }",
        ],
    ),
];

fn rig(way: &[&str], saves: bool) -> Rig {
    Rig::new(settings(way), counting::registry(7, saves))
}

fn settings(way: &[&str]) -> forebay::config::Config {
    let name = format!("env.name={NAME}");
    config(&[&["seed=7", name.as_str()], way].concat())
}

/// Unrolls in order, apart by actor and lane.
fn by_lane(unrolls: Vec<Unroll>) -> BTreeMap<(u32, u32), Vec<Unroll>> {
    let mut lanes = BTreeMap::<_, Vec<Unroll>>::new();
    for unroll in unrolls {
        lanes.entry((unroll.id.actor, unroll.id.lane)).or_default().push(unroll);
    }
    lanes
}

#[test]
fn every_step_arrives_once_and_in_its_place() {
    for (name, way) in WAYS {
        let mut rig = rig(way, true);
        let mut follower = Follower::default();
        for unroll in rig.draw_unrolls(80) {
            follower.follow(&unroll);
        }
        let ledger = rig.run.ledger.snapshot();
        assert_eq!(ledger.consumed.steps, follower.steps, "{name}");
        assert_eq!(ledger.submitted.steps, ledger.consumed.steps + ledger.live.steps, "{name}");
        assert!(ledger.balances() && ledger.dropped.is_empty(), "{name}: {ledger:?}");
    }
}

#[test]
fn steps_are_booked_in_the_call_that_takes_them() {
    let mut rig = rig(WAYS[0].1, true);
    for rounds in 1..=23 {
        rig.round();
        let (snapshot, full) = (rig.run.ledger.snapshot(), rounds / 5);
        assert_eq!(snapshot.submitted.steps, rounds * 6);
        assert_eq!(snapshot.live.steps, rounds % 5 * 6);
        assert_eq!(snapshot.buffered, Amount { unrolls: 2 * full, steps: 30 * full });
    }
}

#[test]
fn rewards_are_clipped_for_the_learner_and_reported_as_they_were() {
    let name = format!("env.name={NAME}");
    let clipped = config(&["seed=7", &name, "env.reward_clip=1.5", "rollout.actors=1"]);
    let mut rig = Rig::new(clipped, counting::registry(7, true));
    let unrolls = rig.draw_unrolls(20);
    assert!(unrolls.iter().all(|unroll| unroll.rewards.iter().all(|reward| (0.0..=1.5).contains(reward))));
    let returns = unrolls.iter().flat_map(|unroll| &unroll.episodes);
    assert!(returns.clone().all(|episode| episode.env == 0 || episode.episode_return > 50_000.0));
    assert!(returns.count() > 20);
}

#[test]
fn a_restarted_actor_takes_the_next_episodes_and_loses_only_its_partial_unroll() {
    for (name, way) in WAYS {
        for rounds in 1..=12 {
            let mut rig = rig(way, true);
            (0..rounds).for_each(|_| rig.round());
            let mut follower = Follower::default();
            rig.draw().iter().for_each(|unroll| follower.follow(unroll));
            let live = rig.run.ledger.snapshot().live;

            let episodes = rig.run.episodes.to_vec();
            rig.rollouts = (0..2).map(|actor| rig.rollout(actor, 1, None)).collect();
            (0..6).for_each(|env| follower.expect_episode(env, episodes[env as usize]));
            for unroll in rig.draw_unrolls(8) {
                assert_eq!(unroll.id.incarnation, 1);
                follower.follow(&unroll);
            }
            let ledger = rig.run.ledger.snapshot();
            let lost = ledger.dropped.get(&DropReason::Shutdown).copied().unwrap_or_default();
            assert_eq!(lost, live, "{name}, restarted after {rounds} rounds");
            assert!(ledger.balances());
        }
    }
}

#[test]
fn a_run_saved_after_any_step_goes_on_as_if_it_had_not_been() {
    for (name, way) in WAYS {
        for saves in [true, false] {
            let whole = by_lane(rig(way, saves).draw_unrolls(28));
            for rounds in 0..=21 {
                let mut first = rig(way, saves);
                (0..rounds).for_each(|_| first.round());
                let (mut second, mut unrolls) =
                    Rig::resume(settings(way), counting::registry(7, saves), first.save());
                let before = unrolls.len();
                unrolls.extend(second.draw_unrolls(24_usize.saturating_sub(before)));
                for (lane, unrolls) in by_lane(unrolls) {
                    let common = unrolls.len().min(whole[&lane].len());
                    assert!(common >= 3);
                    let same = unrolls[..common] == whole[&lane][..common];
                    assert!(same, "{name}, env saves: {saves}, lane {lane:?}, saved after {rounds} rounds");
                }
                let ledger = second.run.ledger.snapshot();
                assert!(ledger.balances() && ledger.dropped.is_empty(), "{ledger:?}");
            }
        }
    }
}

#[test]
fn an_unroll_that_waits_for_room_is_saved_with_its_actor() {
    let way = ["rollout={ actors = 2, envs_per_actor = 3, unroll_length = 5 }", "queue.capacity=1"];
    let mut first = rig(&way, true);
    (0..9).for_each(|_| first.round());
    let submitted = first.run.ledger.snapshot().submitted;
    assert_eq!(first.run.ledger.snapshot().buffered.unrolls, 2);
    let (mut second, mut unrolls) = Rig::resume(settings(&way), counting::registry(7, true), first.save());
    assert_eq!(second.run.ledger.snapshot().submitted, submitted);
    unrolls.extend(second.draw_unrolls(9));
    let mut follower = Follower::default();
    for unroll in &unrolls {
        follower.follow(unroll);
    }
    assert!(second.run.ledger.snapshot().balances());
}

#[test]
fn local_inference_takes_a_new_version_at_the_next_border_only() {
    let mut rig = rig(WAYS[0].1, true);
    (0..3).for_each(|_| rig.round());
    rig.publish(1);
    (0..4).for_each(|_| rig.round());
    rig.publish(2);
    rig.publish(3);
    let versions = rig.draw_unrolls(6).into_iter().map(|unroll| unroll.versions);
    let expected = [0, 0, 1, 1, 3, 3].map(|version| vec![Version(version); 5]);
    assert_eq!(versions.collect::<Vec<_>>(), expected);
}

#[test]
fn central_inference_records_the_version_of_every_step() {
    let mut rig = rig(WAYS[1].1, true);
    // Rounds with an odd number ask and are answered, the others step with the answer.
    (0..4).for_each(|_| rig.round());
    rig.publish(1);
    rig.round();
    rig.publish(5);
    let unrolls = rig.draw_unrolls(2);
    let expected = [0, 0, 1, 5, 5].map(Version);
    for unroll in unrolls {
        assert_eq!(unroll.versions, expected);
    }
}
