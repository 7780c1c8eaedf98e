//! Settings that cannot work.

use forebay::env::task::TaskRegistry;

use super::{ADAPTERS, EXPERTS, ONE_STEP, REPREFILL, SEPARATE, train};

#[test]
fn settings_of_a_critic_that_contradict_each_other_are_refused_naming_both() {
    let dir = tempfile::tempdir().unwrap();
    let values = SEPARATE[0];
    for (changes, fields) in [
        (vec![values, "learner.critic.updates=2"], ["learner.critic.updates", "learner.critic.trunk"]),
        (
            vec![values, "learner.critic.train=\"feed_forward\""],
            ["learner.critic.train", "learner.critic.trunk"],
        ),
        (
            vec![values, "learner.critic.frozen=[\"*self_attn*\"]"],
            ["learner.critic.frozen", "learner.critic.trunk"],
        ),
        (
            vec![values, "learner.critic.warmup_updates=1"],
            ["learner.critic.warmup_updates", "learner.critic.trunk"],
        ),
        (
            vec![values, "learner.critic.order=\"policy_first\""],
            ["learner.critic.order", "learner.critic.trunk"],
        ),
        (vec![values, "learner.critic.path=\"x\""], ["learner.critic.path", "learner.critic.trunk"]),
        (vec!["learner.critic.trunk=\"separate\""], ["learner.critic.trunk", "learner.advantage"]),
        (vec!["learner.critic.updates=2"], ["learner.critic.updates", "learner.advantage"]),
        (vec!["learner.critic.train=\"feed_forward\""], ["learner.critic.train", "learner.advantage"]),
        (
            [SEPARATE, &["learner.critic.frozen=[\"*\"]"]].concat(),
            ["learner.critic.frozen", "learner.critic.train"],
        ),
        ([SEPARATE, &["learner.critic.updates=0"]].concat(), ["learner.critic.updates", "at least 1"]),
        ([SEPARATE, &["learner.critic.learning_rate=0.0"]].concat(), ["learning_rate", "positive"]),
    ] {
        let run_dir = dir.path().join("run");
        let changes = [&changes[..], &["stop.updates=1"]].concat();
        let error = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(fields.iter().all(|field| error.contains(field)), "{changes:?}: {error}");
        assert!(!run_dir.exists());
    }
}

#[test]
fn a_run_is_refused_before_anything_is_written_when_its_settings_cannot_work() {
    let dir = tempfile::tempdir().unwrap();
    let overlong = "learner.shaping.overlong={ max_length = 20, buffer = 10 }";
    let rubric = "learner.advantage={ kind = \"rubric\" }";
    let efforts = "learner.efforts=[{ name = \"low\" }, { name = \"high\" }]";
    let by_effort = "learner.compare=\"effort\"";
    let reinforce = "learner.advantage={ kind = \"reinforce\" }";
    for (changes, words) in [
        (vec!["faults=[{ kind = \"kill_saving\", at = 0 }]"], "`faults.at`, `faults.every`"),
        (vec!["faults=[{ kind = \"panic\", at = 1, actor = 1 }]"], "`faults.actor`, `devices.generation`"),
        (vec![overlong], "`learner.shaping.overlong.max_length`, `generate.max_new_tokens`"),
        (vec!["learner.shaping.overlong={ max_length = 5, buffer = 6 }"], "buffer"),
        (
            vec!["learner.shaping.length={}", "learner.group_size=1", reinforce],
            "`learner.shaping.length`, `learner.group_size`",
        ),
        (vec!["learner.shaping.effort_budget={ tau = 0.0 }"], "tau"),
        (vec![by_effort], "`learner.compare`, `learner.efforts`"),
        (vec![by_effort, efforts, reinforce], "`learner.compare`, `learner.advantage`"),
        (vec![by_effort, efforts, "learner.group_size=2"], "`learner.compare`, `learner.group_size`"),
        (vec![efforts, "learner.group_size=3"], "`learner.efforts`, `learner.group_size`"),
        (vec!["learner.efforts=[{ name = \"low\", tau = -1.0 }]"], "`learner.efforts.tau`"),
        (vec!["learner.efforts=[{ name = \"low\" }, { name = \"low\" }]"], "`learner.efforts.name`"),
        (vec![rubric], "`learner.advantage.solution`, `task.name`"),
        (
            vec![
                "task={ name = \"worked_chain\" }",
                "learner.advantage={ kind = \"rubric\", behaviour = \"form\" }",
            ],
            "`learner.advantage.behaviour`, `task.name`",
        ),
        (vec!["learner.advantage={ kind = \"rubric\", lambda_max = 0.0 }"], "lambda_max"),
        (vec![rubric, "learner.group_size=1"], "`learner.advantage`, `learner.group_size`"),
        (vec!["task={ name = \"revers\" }"], "reverse"),
        (vec!["learner.group_size=1"], "learner.group_size"),
        (vec!["learner.forced_lag=2", REPREFILL], "schedule.kind"),
        (vec!["learner.forced_lag=2", ONE_STEP], "schedule.kind"),
        (vec!["schedule={ kind = \"async\", max_groups = 0 }"], "schedule.max_groups"),
        (
            vec!["generate.engine.cache_tokens=60", "model.decoder.context=65"],
            "`generate.engine.cache_tokens`, `model.context`",
        ),
        (
            vec!["learner.advantage={ kind = \"vtrace\" }"],
            "`learner.advantage.weighted`, `learner.loss.objective`",
        ),
        (
            vec![
                "learner.advantage={ kind = \"vtrace\", weighted = false }",
                "learner.loss.objective={ kind = \"gspo\" }",
            ],
            "`learner.advantage`, `learner.loss.objective`",
        ),
        (vec!["learner.advantage={ kind = \"vtrace\", rho_bar = 0.5 }"], "rho_bar"),
        (
            vec!["learner.max_token_age=2", "learner.loss.objective={ kind = \"gspo\" }"],
            "`learner.max_token_age`, `learner.loss.objective`",
        ),
        (
            vec!["learner.max_token_age=2", "learner.loss.objective={ kind = \"online_dpo\" }"],
            "`learner.max_token_age`, `learner.loss.objective`",
        ),
        (
            vec!["learner.max_token_age=1", "learner.forced_lag=2"],
            "`learner.max_token_age`, `learner.forced_lag`",
        ),
        (vec!["learner.max_token_age=0", ONE_STEP], "`learner.max_token_age`, `schedule.kind`"),
        (
            vec![
                "learner.loss.objective={ kind = \"four_bound\", control = { entropy_low = 1.0, entropy_high = 0.5 } }",
            ],
            "entropy_high",
        ),
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

#[test]
fn devices_and_float_types_that_cannot_be_had_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for (changes, words) in [
        (vec!["model.precision=\"bf16\""], "`model.precision`, `devices.learner`"),
        (
            vec![
                "model.precision=\"bf16\"",
                "devices={ learner = \"cuda:0\" }",
                "generate.bf16_weights=true",
            ],
            "`generate.bf16_weights`, `model.precision`",
        ),
        (vec!["devices={ generation = [] }"], "`devices.generation`"),
        (vec!["devices={ learner = \"gpu\" }"], "unknown device `gpu`"),
        (vec!["devices={ learner = \"cuda:4096\" }"], "`cuda:4096`"),
        (vec!["devices={ generation = [\"cpu\", \"cuda:4096\"] }"], "`cuda:4096`"),
    ] {
        let run_dir = dir.path().join("run");
        let changes = [&changes[..], &["stop.updates=1"]].concat();
        let error = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(error.contains(words), "{changes:?}: {error}");
        assert!(!run_dir.exists());
    }
}

#[test]
fn what_would_learn_nothing_without_saying_so_is_refused_naming_both_settings() {
    let dir = tempfile::tempdir().unwrap();
    let reinforce = "learner.advantage={ kind = \"reinforce\" }";
    for (changes, words) in [
        (vec![REPREFILL, "learner.max_lag=0"], "`schedule.lead`, `learner.max_lag`"),
        (
            vec!["learner.loss.objective={ kind = \"lag_mask\", max_lag = 1 }", "learner.forced_lag=2"],
            "`learner.loss.objective.max_lag`, `learner.forced_lag`",
        ),
        (
            vec!["learner.loss.objective={ kind = \"ipo\" }", reinforce, "learner.group_size=1"],
            "`learner.loss.objective`, `learner.group_size`",
        ),
        (
            vec!["learner.loss.objective={ kind = \"best_of_n\" }", "learner.reward_kl=0.1"],
            "`learner.reward_kl`, `learner.loss.objective`",
        ),
        (
            vec!["learner.loss.objective={ kind = \"online_dpo\" }", SEPARATE[0]],
            "`learner.advantage`, `learner.loss.objective`",
        ),
        (vec!["generate.engine.record_experts=true"], "`generate.engine.record_experts`, `model`"),
    ] {
        let run_dir = dir.path().join("run");
        let changes = [&changes[..], &["stop.updates=1"]].concat();
        let error = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(error.contains(words), "{changes:?}: {error}");
        assert!(!run_dir.exists());
    }
}
