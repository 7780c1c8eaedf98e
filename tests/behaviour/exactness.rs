//! On CPU the log-probability recorded while sampling is, bit for bit, the one that the learner computes, and a
//! trajectory does not depend on the batch it sat in.

use std::collections::BTreeMap;

use forebay::config::Config;
use forebay::env::Registry;
use forebay::trajectory::Unroll;

use crate::support::process::Scratch;
use crate::support::rig::Rig;
use crate::support::{config, metrics};

/// Every kind of network and of action.
const KINDS: [(&str, &[&str]); 6] = [
    ("mlp", &["env.name=CartPole-v1", "policy.normalize_observations=true"]),
    (
        "convolution",
        &["env.name=minatar/breakout", "policy.torso={ kind = \"conv\", channels = 4, hidden = 16 }"],
    ),
    (
        "lstm",
        &[
            "env.name=TMaze",
            "policy={ core = { kind = \"lstm\", size = 8 }, last_action = true, last_reward = true }",
        ],
    ),
    ("masks", &["env.name=TicTacToe"]),
    ("several choices at once", &["env.name=Forage", "policy={ last_action = true, activation = \"tanh\" }"]),
    ("Gaussian", &["env.name=Pendulum-v1", "policy={ last_action = true, separate_value = true }"]),
];

const CENTRAL: &str = "rollout.inference=central";

/// Trains with every update checked; all differences must be exactly zero.
fn assert_exact(kind: &[&str], arguments: &[&str]) {
    let scratch = Scratch::new();
    let checked =
        ["learner.check_every=1", "telemetry.serial_updates_per_line=1", "rollout.envs_per_actor=3"];
    let summary = scratch.complete("run", &[kind, &checked, &["stop.updates=24"], arguments].concat());
    assert_eq!(summary.updates, 24);
    let lines = metrics(&scratch.path("run"));
    let differences: Vec<_> = lines.iter().map(|line| line["log_prob_difference"].as_f64()).collect();
    assert!(!differences.is_empty());
    assert!(differences.iter().all(|difference| *difference == Some(0.0)), "{kind:?}: {differences:?}");
}

#[test]
fn a_serial_learner_computes_the_recorded_log_probabilities_to_the_last_bit() {
    for (_, kind) in KINDS {
        assert_exact(kind, &["--serial"]);
    }
}

#[test]
fn a_serial_learner_computes_those_of_central_inference_to_the_last_bit() {
    for (_, kind) in KINDS {
        assert_exact(kind, &["--serial", CENTRAL]);
    }
}

#[test]
fn a_threaded_learner_computes_them_to_the_last_bit_under_whatever_lag() {
    for (_, kind) in [KINDS[0], KINDS[2]] {
        assert_exact(kind, &["queue.capacity=4"]);
        assert_exact(kind, &["queue.capacity=4", CENTRAL]);
    }
}

/// What one environment lived through: every value with all its bits.
type Column = Vec<Vec<u32>>;

/// The first unrolls of `config`, apart by environment.
fn columns(config: Config, unrolls_per_lane: usize) -> BTreeMap<usize, Column> {
    let (actors, per_actor) = (config.rollout.actors, config.rollout.envs_per_actor);
    let mut rig = Rig::new(config, Registry::builtin());
    let mut columns = BTreeMap::<usize, Column>::new();
    for unroll in rig.draw_unrolls(actors * unrolls_per_lane) {
        for column in 0..unroll.columns {
            let env = unroll.id.actor as usize * per_actor + column;
            columns.entry(env).or_default().push(column_bits(&unroll, column));
        }
    }
    columns
}

fn column_bits(unroll: &Unroll, column: usize) -> Vec<u32> {
    let mut bits = Vec::new();
    let mut take = |values: &[f32], rows: usize| {
        let width = values.len() / rows / unroll.columns;
        for row in values.chunks_exact(width * unroll.columns) {
            bits.extend(row[column * width..][..width].iter().map(|value| value.to_bits()));
        }
    };
    take(&unroll.observations, unroll.steps + 1);
    take(&unroll.actions, unroll.steps);
    take(&unroll.log_probs, unroll.steps);
    take(&unroll.rewards, unroll.steps);
    if !unroll.core_state.is_empty() {
        take(&unroll.core_state, 1);
    }
    bits
}

#[test]
fn a_trajectory_does_not_depend_on_the_batch_it_sat_in() {
    for (name, kind) in KINDS {
        let grouped = |actors: usize, per_actor: usize| {
            let rollout =
                format!("rollout={{ actors = {actors}, envs_per_actor = {per_actor}, unroll_length = 5 }}");
            let changes = [kind, &["seed=3", rollout.as_str()]].concat();
            columns(config(&changes), 3)
        };
        let together = grouped(1, 32);
        for (actors, per_actor) in [(32, 1), (11, 3), (4, 8)] {
            let apart = grouped(actors, per_actor);
            for env in 0..32 {
                assert!(apart[&env] == together[&env], "{name}: environment {env} in batches of {per_actor}");
            }
        }
    }
}
