//! Settings of a run that change what is learned from, each seen in what it does.

use forebay::trajectory::DropReason;

use super::{complete, figures};
use crate::support::checkpoints::contents;
use crate::support::metrics;

const PARAMETERS: &str = "parameters.safetensors";

#[test]
fn generation_that_differs_from_training_is_seen_where_nothing_is_stale() {
    for (change, least, most) in [
        ("generate.temperature=1.0", 0.0, 0.0),
        ("generate.engine.log_prob_noise=0.1", 0.05, 1.0),
        ("generate.bf16_weights=true", 1e-6, 0.1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        complete(dir.path(), &[change], 4, true, false);
        let found = figures(&metrics(dir.path()), "log_prob_difference");
        assert_eq!(found.len(), 4, "{change}");
        assert!(found.iter().all(|difference| (least..=most).contains(difference)), "{change}: {found:?}");
    }
}

#[test]
fn divergence_from_the_reference_in_the_reward_costs_nothing_until_the_policy_has_left_it() {
    let dir = tempfile::tempdir().unwrap();
    let [without, with] = ["without", "with"].map(|name| dir.path().join(name));
    let every = ["checkpoint.every=1", "learner.schedule.learning_rate=0.02"];
    complete(&without, &every, 3, true, false);
    complete(&with, &[&every[..], &["learner.reward_kl=0.5"]].concat(), 3, true, false);
    let parameters = |run: &std::path::Path, update| contents(run, update).remove(PARAMETERS).unwrap();
    assert_eq!(parameters(&without, 1), parameters(&with, 1));
    assert_ne!(parameters(&without, 2), parameters(&with, 2));
}

#[test]
fn answers_that_were_cut_off_are_left_out_of_the_loss_where_that_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let [all, none, some] = ["all", "none", "some"].map(|name| dir.path().join(name));
    // Longer than any answer may be, and no stop before: all answers are cut off, and nothing is left to learn.
    let never = [
        "task.options={ alphabet = \"abc\", min_length = 3, max_length = 3, partial = true }",
        "generate.max_new_tokens=1",
        "warmup={ updates = 40, batch = 32, learning_rate = 1e-2 }",
        "checkpoint.every=1",
    ];
    let parameters = |run: &std::path::Path, update| contents(run, update).remove(PARAMETERS).unwrap();
    complete(&all, &never, 2, true, false);
    assert_ne!(parameters(&all, 1), parameters(&all, 2));
    complete(&none, &[&never[..], &["learner.mask_truncated=true"]].concat(), 2, true, false);
    assert_eq!(parameters(&none, 1), parameters(&none, 2));
    // Where some answers end by themselves, those are learned from.
    let summary = complete(&some, &["learner.mask_truncated=true", "checkpoint.every=1"], 2, true, false);
    assert_ne!(parameters(&some, 1), parameters(&some, 2));
    assert_eq!(summary.ledger.dropped.get(&DropReason::Stale), None);
}
