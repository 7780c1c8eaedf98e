//! Settings of a run that change what is learned from, each seen in what it does.

use forebay::trajectory::TokenFate;

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
        // Two steps a batch: what the first one changes is not taken for a mismatch.
        complete(dir.path(), &[change, "learner.minibatches=2"], 4, true, false);
        let lines = metrics(dir.path());
        for figure in ["log_prob_difference", "mismatch_max"] {
            let found = figures(&lines, figure);
            assert_eq!(found.len(), 4, "{change}: {figure}");
            assert!(
                found.iter().all(|difference| (least..=most).contains(difference)),
                "{change}: {found:?}"
            );
        }
        let means = figures(&lines, "mismatch_mean");
        assert!(means.iter().all(|mean| (*mean > 0.0) == (least > 0.0) && *mean <= most), "{means:?}");
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
    assert!(parameters(&without, 1) == parameters(&with, 1));
    assert!(parameters(&without, 2) != parameters(&with, 2));
}

#[test]
fn answers_that_were_cut_off_are_left_out_of_the_loss_where_that_is_set() {
    let fates = |changes: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let summary = complete(dir.path(), changes, 3, true, false);
        let count = |fate| summary.token_fates.get(fate);
        assert_eq!(summary.ledger.consumed.tokens, count(TokenFate::Learned) + count(TokenFate::Truncated));
        (count(TokenFate::Learned), count(TokenFate::Truncated))
    };
    let (learned, left_out) = fates(&["generate.max_new_tokens=3"]);
    assert!(learned > 0 && left_out == 0);
    let (learned, left_out) = fates(&["generate.max_new_tokens=3", "learner.mask_truncated=true"]);
    // An answer that was cut off has three tokens, one that ended by itself one to three.
    assert!(learned > 0 && left_out > 0 && left_out % 3 == 0, "{learned}, {left_out}");
}
