//! Settings that cannot work.

use forebay::env::task::TaskRegistry;

use super::{ADAPTERS, EXPERTS, REPREFILL, train};

#[test]
fn a_run_is_refused_before_anything_is_written_when_its_settings_cannot_work() {
    let dir = tempfile::tempdir().unwrap();
    for (changes, words) in [
        (vec!["task={ name = \"revers\" }"], "reverse"),
        (vec!["learner.group_size=1"], "learner.group_size"),
        (vec!["learner.forced_lag=2", REPREFILL], "schedule.kind"),
        (vec!["generate.temperature=0.0"], "generate.temperature"),
        (vec!["warmup.target_loss=0.0"], "warmup.target_loss"),
        (vec!["stop.target_evaluation=0.5", "evaluation={}"], "evaluation.every_updates"),
        (vec!["model={ path = \"/nowhere/at/all\" }"], "/nowhere/at/all"),
        (vec!["generate.engine.cache_tokens=0"], "cache_tokens"),
        (vec!["generate.top_k=0"], "top_k"),
        (vec!["generate.top_p=1.5"], "top_p"),
        (vec!["model.adapters={ rank = 0 }"], "rank"),
        (vec!["model.adapters={ targets = [] }"], "targets"),
        (vec![EXPERTS, "model.adapters={}"], "experts"),
        (vec!["model.frozen=[\"lm_head.*\"]"], "lm_head.*"),
        (vec!["model.frozen=[\"*\"]"], "nothing is left to train"),
        (vec![ADAPTERS, "model.frozen=[\"*lora_*\"]"], "nothing is left to train"),
        (
            vec!["task={ name = \"dataset\", options = { path = \"/no/file\", verifier = \"exact\" } }"],
            "/no/file",
        ),
    ] {
        let run_dir = dir.path().join("run");
        let changes = [&changes[..], &["stop.updates=1"]].concat();
        let error = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(error.contains(words), "{changes:?}: {error}");
        assert!(!run_dir.exists());
    }
}
