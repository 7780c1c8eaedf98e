//! Token runs as a whole: exact log-probabilities under every schedule, the same bytes from the same settings, lag as
//! the schedule promises, books that balance whatever fails, and errors that are not rewards.

use std::path::Path;

use forebay::actors::token::{LanguageModel, load_token_parameters, train_tokens};
use forebay::actors::{TrainError, TrainOptions};
use forebay::config::{Override, TokenConfig, load};
use forebay::env::task::{
    Completion, GradeError, Problem, Prompt, Reward, Split, Task, TaskEntry, TaskError, TaskRegistry,
};
use forebay::ops::Sequence;
use forebay::policy::{
    Decoder, DecoderConfig, DecoderInput, LoadOptions, PackedAttention, Parameters, Tokenizer, pretrained,
};
use forebay::telemetry::{RunOutcome, TokenSummary};
use serde_json::Value;

use crate::support::checkpoints::assert_same;
use crate::support::{metrics, metrics_without_clock};

const SETTINGS: &str = r#"
seed = 7
task = { name = "copy", options = { alphabet = "abc", min_length = 1, max_length = 3, partial = true } }
model.decoder = { width = 16, inner = 24, layers = 2, heads = 2, kv_heads = 1, head_size = 8, context = 24 }
generate = { max_new_tokens = 6, engine = { cache_tokens = 1024, max_running = 5, prefill_tokens = 7 } }
learner = { prompts = 3, group_size = 4, microbatch_tokens = 40, check_every = 1, loss = { objective = { kind = "ppo" } } }
evaluation = { final_problems = 0 }
telemetry = { listen = "off", progress = "off", tensorboard = false, serial_updates_per_line = 1 }
checkpoint = { every_seconds = 0, keep = 100 }
"#;

const EXPERTS: &str = "model.decoder.experts={ count = 4, per_token = 2, inner = 12 }";
const ADAPTERS: &str = "model.adapters={ rank = 2, alpha = 4.0, targets = [\"q_proj\", \"down_proj\"] }";
const FROZEN: &str = "model.frozen=[\"model.embed_tokens.*\", \"model.layers.0.*\"]";
const ONE_STEP: &str = "schedule={ kind = \"one_step\" }";
const REPREFILL: &str = "schedule={ kind = \"async\", lead = 2, resume = \"reprefill\" }";
const KEEP_KV: &str = "schedule={ kind = \"async\", lead = 2, resume = \"keep_kv\" }";

const REFERENCE_KL: &str =
    "learner.loss={ objective = { kind = \"ppo\" }, reference_kl = { coefficient = 0.1 } }";

fn config(changes: &[&str]) -> TokenConfig {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    load(SETTINGS, "settings.toml", &overrides).unwrap()
}

fn train(
    run_dir: &Path,
    registry: &TaskRegistry,
    changes: &[&str],
    serial: bool,
    resume: bool,
) -> Result<TokenSummary, TrainError> {
    let options = TrainOptions { run_dir: run_dir.into(), resume, serial };
    train_tokens(config(changes), registry, &options)
}

/// A run of so many updates that completes; its books are balanced and closed.
fn complete(run_dir: &Path, changes: &[&str], updates: u64, serial: bool, resume: bool) -> TokenSummary {
    let stop = format!("stop.updates={updates}");
    let changes = [changes, &[&stop]].concat();
    let summary = train(run_dir, &TaskRegistry::builtin(), &changes, serial, resume).unwrap();
    assert_eq!((summary.status, summary.updates), (RunOutcome::Completed, updates), "{}", summary.cause);
    assert_books(&summary);
    summary
}

fn assert_books(summary: &TokenSummary) {
    let ledger = &summary.ledger;
    let dropped = ledger.dropped.values();
    let (trajectories, tokens) =
        dropped.fold((0, 0), |sum, amount| (sum.0 + amount.trajectories, sum.1 + amount.tokens));
    assert_eq!((ledger.live.trajectories, ledger.buffered.trajectories), (0, 0));
    assert_eq!(ledger.submitted.trajectories, ledger.consumed.trajectories + trajectories);
    assert_eq!(ledger.submitted.tokens, ledger.consumed.tokens + tokens);
    assert_eq!(summary.tokens, ledger.submitted.tokens);
}

fn figures(lines: &[Value], field: &str) -> Vec<f64> {
    lines.iter().filter_map(|line| line.get(field)?.as_f64()).collect()
}

#[test]
fn recorded_log_probabilities_are_those_of_the_learner_to_the_last_bit_under_every_schedule() {
    let kinds: [&[&str]; 11] = [
        &[],
        &[EXPERTS],
        &[ADAPTERS, REPREFILL, "learner.schedule.learning_rate=0.02"],
        &[FROZEN, ONE_STEP],
        &["generate.top_k=3", "generate.temperature=0.7", REFERENCE_KL],
        &["generate.top_p=0.8", REPREFILL, "learner.epochs=2", "learner.threads=2"],
        &["generate.temperature=0.7", "learner.threads=2", "generate.threads=2"],
        &["generate.engine.cache_tokens=64", "generate.engine.max_running=2"],
        &[ONE_STEP, EXPERTS, "generate.engine.record_experts=true", "learner.replay_experts=true"],
        &[REPREFILL],
        &["task={ name = \"guess_number\" }", "model.decoder.context=200", "generate.max_new_tokens=20"],
    ];
    for kind in kinds {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            complete(dir.path(), &[kind, &["telemetry.lines_per_second=100000"]].concat(), 6, serial, false);
            let lines = metrics(dir.path());
            let exact = figures(&lines, "log_prob_difference");
            assert!(
                !exact.is_empty() && exact.iter().all(|&difference| difference == 0.0),
                "{kind:?}: {exact:?}"
            );
        }
    }
}

#[test]
fn a_kept_cache_mixes_versions_and_only_there_log_probabilities_differ() {
    let dir = tempfile::tempdir().unwrap();
    let changes = [KEEP_KV, "generate.max_new_tokens=18", "learner.schedule.learning_rate=0.01"];
    complete(dir.path(), &changes, 8, true, false);
    let lines = metrics(dir.path());
    assert!(figures(&lines, "log_prob_difference").iter().all(|&difference| difference == 0.0));
    let mixed = figures(&lines, "kept_kv_log_prob_difference");
    assert!(mixed.iter().any(|&difference| difference > 0.0), "{mixed:?}");
}

#[test]
fn two_serial_runs_write_the_same_bytes_and_so_does_one_that_was_stopped_and_resumed() {
    for kind in [
        &["warmup={ updates = 2, batch = 5 }"] as &[&str],
        &[EXPERTS, "learner.epochs=2", "learner.minibatches=2"],
        &[
            "learner.advantage={ kind = \"skip_observation_gae\" }",
            "learner.loss.objective={ kind = \"grpo\" }",
        ],
        &[ONE_STEP],
        &["learner.forced_lag=2"],
        &[ADAPTERS, ONE_STEP, REFERENCE_KL],
        &[FROZEN],
        &["generate.top_k=4", "generate.top_p=0.9"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let [one, other, parts] = ["one", "other", "parts"].map(|name| dir.path().join(name));
        let whole = complete(&one, &[kind, &["checkpoint.every=2"]].concat(), 6, true, false);
        complete(&other, kind, 6, true, false);
        complete(&parts, kind, 3, true, false);
        let resumed = complete(&parts, kind, 6, true, true);
        for run in [&other, &parts] {
            assert_same((&one, 6), (run, 6));
            assert_eq!(metrics_without_clock(&one), metrics_without_clock(run), "{kind:?}");
        }
        assert_eq!((whole.ledger, whole.reward_mean), (resumed.ledger, resumed.reward_mean));
    }
}

#[test]
fn a_run_ends_at_the_evaluation_that_reaches_its_target() {
    let dir = tempfile::tempdir().unwrap();
    // The initial policy reaches it.
    let changes = [
        "evaluation={ every_updates = 2, problems = 4, final_problems = 0 }",
        "stop.target_evaluation=0.0",
        "stop.updates=50",
    ];
    let summary = train(dir.path(), &TaskRegistry::builtin(), &changes, true, false).unwrap();
    assert_eq!(summary.cause, "reached stop.target_evaluation = 0");
    assert_eq!((summary.status, summary.updates), (RunOutcome::Completed, 0));
    assert_eq!(summary.eval_initial, summary.eval_mean);
}

#[test]
fn a_warm_up_ends_when_it_knows_enough() {
    let dir = tempfile::tempdir().unwrap();
    let warm_up = |target: &str, name: &str| {
        let changes = [&format!("warmup={{ updates = 40, batch = 5, target_loss = {target} }}") as &str];
        let run_dir = dir.path().join(name);
        let summary = complete(&run_dir, &changes, 1, true, false);
        (summary.warmup_updates, figures(&metrics(&run_dir), "warmup_loss"))
    };
    let (all, losses) = warm_up("1e-9", "never");
    assert_eq!((all, losses.len()), (40, 40));
    let mean = |end: usize| losses[end - 5..end].iter().sum::<f64>() / 5.0;
    // The first mean over five updates that is at or below that of the 20th.
    let first = (5..=20).find(|&end| mean(end) <= mean(20)).unwrap();
    let (some, _) = warm_up(&format!("{:?}", mean(20)), "soon");
    assert_eq!(some, first as u64);
}

#[test]
fn an_asynchronous_run_repeats_itself_and_goes_on_from_a_checkpoint_with_its_books_in_order() {
    const GUESS: &[&str] =
        &["task={ name = \"guess_number\" }", "model.decoder.context=200", "generate.max_new_tokens=20"];
    let restricted = [GUESS, &["generate.top_k=5"]].concat();
    for (schedule, task) in
        [(REPREFILL, &[] as &[&str]), (KEEP_KV, &[]), (REPREFILL, GUESS), (REPREFILL, &restricted)]
    {
        let kind = [task, &[schedule]].concat();
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        complete(&one, &kind, 4, true, false);
        complete(&other, &kind, 4, true, false);
        assert_same((&one, 4), (&other, 4));
        assert_eq!(metrics_without_clock(&one), metrics_without_clock(&other), "{kind:?}");
        for serial in [true, false] {
            let before = complete(&one, &kind, if serial { 4 } else { 7 }, serial, true);
            let after = complete(&one, &kind, before.updates + 3, serial, true);
            assert_eq!(after.ledger.consumed.trajectories, after.updates * 3 * 4);
        }
    }
}

#[test]
fn a_threaded_synchronous_run_learns_the_same_as_a_serial_one() {
    let dir = tempfile::tempdir().unwrap();
    let [serial, threaded] = ["serial", "threaded"].map(|name| dir.path().join(name));
    complete(&serial, &[], 5, true, false);
    complete(&threaded, &[], 5, false, false);
    let tensors =
        |run: &Path| std::fs::read(run.join("checkpoints/000000000005/parameters.safetensors")).unwrap();
    assert!(tensors(&serial) == tensors(&threaded));
}

#[test]
fn the_lag_of_what_is_learned_from_is_the_schedules() {
    for serial in [true, false] {
        for (change, expected) in [
            ("seed=7", vec![0.0; 5]),
            (ONE_STEP, vec![0.0, 1.0, 1.0, 1.0, 1.0]),
            ("learner.forced_lag=3", vec![0.0, 1.0, 2.0, 3.0, 3.0]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            complete(dir.path(), &[change, "telemetry.lines_per_second=100000"], 5, serial, false);
            let lines = metrics(dir.path());
            assert_eq!(figures(&lines, "lag_mean"), expected, "{change}");
        }
    }
}

#[test]
fn groups_that_are_too_old_are_dropped_and_others_sampled_in_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let summary = complete(dir.path(), &[REPREFILL, "learner.max_lag=1"], 12, true, false);
    assert!(summary.lag_max <= 1, "{}", summary.lag_max);
}

#[test]
fn groups_whose_rewards_are_alike_are_refilled_and_a_task_that_gives_nothing_else_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let changes = ["learner.drop_zero_variance=true", "generate.max_new_tokens=3"];
    let summary = complete(&dir.path().join("some"), &changes, 4, false, false);
    assert_eq!(summary.ledger.consumed.trajectories, 4 * 3 * 4);
    let dropped = &summary.ledger.dropped;
    let alike = dropped.iter().find(|(reason, _)| reason.as_str() == "zero_variance");
    assert!(alike.is_some_and(|(_, amount)| amount.trajectories % 4 == 0), "{dropped:?}");

    let hopeless =
        ["learner.drop_zero_variance=true", "task.options.partial=false", "task.options.min_length=3"];
    let never = [&hopeless[..], &["generate.max_new_tokens=1", "stop.updates=4"]].concat();
    let summary = train(&dir.path().join("none"), &TaskRegistry::builtin(), &never, false, false).unwrap();
    assert_eq!(summary.status, RunOutcome::Failed);
    assert!(summary.cause.contains("left nothing to learn from"), "{}", summary.cause);
    assert_books(&summary);
}

#[test]
fn a_generator_that_panics_is_restarted_and_its_groups_begin_anew() {
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let faults = "faults=[{ kind = \"panic\", at = 4, every = 9 }]";
        let summary = complete(
            dir.path(),
            &[faults, "supervision={ restarts = 1000, backoff_seconds = 0.001 }"],
            5,
            serial,
            false,
        );
        assert!(summary.restarts["generator"] >= 1);
        let lost = summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "actor_restart");
        assert!(lost.is_some(), "{:?}", summary.ledger);
    }
}

#[test]
fn an_update_that_is_not_finite_is_skipped_and_its_batch_sampled_anew() {
    let dir = tempfile::tempdir().unwrap();
    let summary = complete(dir.path(), &["faults=[{ kind = \"nan_gradient\", at = 2 }]"], 4, true, false);
    let lost = summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "non_finite").unwrap();
    assert_eq!(lost.1.trajectories, 3 * 4);
    assert_eq!(summary.ledger.consumed.trajectories, 4 * 3 * 4);
}

/// Grades every other problem, panics at one and fails at the rest.
struct Moody;

impl Task for Moody {
    fn len(&self, _: Split) -> Option<u32> {
        Some(4)
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let prompt = Prompt::Text("ab".into());
        Ok(Problem { source: "moody".into(), prompt, answer: "a".into(), data: index.into() })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        match problem.data.as_u64() {
            Some(1) => panic!("no mood for this one"),
            Some(3) => Err(GradeError::Verifier("cannot tell".into())),
            _ => Ok(Reward::of(1.0 + completion.reply().len() as f64)),
        }
    }

    fn alphabet(&self) -> Option<String> {
        Some("ab".into())
    }
}

#[test]
fn answers_that_cannot_be_graded_are_counted_and_never_taken_for_wrong_ones() {
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("moody", "grades when it likes", |_, _| Ok(Box::new(Moody))));
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let changes = ["task={ name = \"moody\" }", "stop.updates=4"];
        let summary = train(dir.path(), &registry, &changes, serial, false).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        assert_books(&summary);
        // Every reward that was given is at least 1.
        assert!(summary.reward_mean.unwrap() >= 1.0);
        let lost =
            summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "grading_failed").unwrap();
        assert_eq!(lost.1.trajectories, summary.grading_errors);
        // A pass over four problems gives two groups, a batch takes three.
        assert!(summary.epochs >= 4.0 * 3.0 / 4.0, "{}", summary.epochs);
    }
}

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

/// The parameters of a run's newest checkpoint.
fn parameters(run_dir: &Path) -> (LanguageModel, Parameters) {
    let model = LanguageModel::of_run(run_dir).unwrap();
    let (_, parameters) = load_token_parameters(run_dir, &model).unwrap();
    (model, parameters)
}

fn bytes(parameters: &Parameters) -> Vec<(String, Vec<u32>)> {
    let values = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let named = parameters.iter();
    named.map(|(name, t)| (name.to_owned(), values(t).into_iter().map(f32::to_bits).collect())).collect()
}

/// Settings, and whether the parameter of a name is trained under them.
type Kind = (&'static [&'static str], fn(&str) -> bool);

#[test]
fn only_what_is_to_be_trained_changes_and_only_that_is_in_checkpoints() {
    let trained: [Kind; 4] = [
        (&[], |_| true),
        (&[ADAPTERS], |name| name.contains("lora_")),
        (&[FROZEN], |name| !name.contains("embed_tokens") && !name.contains("layers.0.")),
        (&[ADAPTERS, FROZEN], |name| name.contains("layers.1.") && name.contains("lora_")),
    ];
    for (kind, is_trained) in trained {
        let dir = tempfile::tempdir().unwrap();
        let changes = [kind, &["learner.schedule.learning_rate=0.02", "checkpoint.every=1"]].concat();
        complete(dir.path(), &changes, 3, true, false);
        let (model, after) = parameters(dir.path());
        let before = bytes(&model.decoder.layout().initialize(7, &candle_core::Device::Cpu).unwrap());
        for ((name, before), (_, after)) in before.iter().zip(bytes(&after)) {
            assert_eq!(before != &after, is_trained(name), "{kind:?}: {name}");
        }
        for file in ["parameters.safetensors", "optimizer.safetensors"] {
            let path = dir.path().join("checkpoints/000000000003").join(file);
            let tensors = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
            let found = tensors.keys().filter(|name| *name != "updates").count();
            let names = before.iter().filter(|(name, _)| is_trained(name));
            let moments = if file == "optimizer.safetensors" { 2 } else { 1 };
            assert_eq!(found, moments * names.count(), "{kind:?}: {:?}", tensors.keys());
        }
    }
}

#[test]
fn a_checkpoint_is_not_continued_with_other_adapters_or_frozen_parameters() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[ADAPTERS], 2, true, false);
    for change in [
        "seed=7",
        "model.adapters={ rank = 2, alpha = 5.0, targets = [\"q_proj\", \"down_proj\"] }",
        "model.adapters={ rank = 2, alpha = 4.0, targets = [\"q_proj\"] }",
    ] {
        let changes = [change, "stop.updates=3"];
        let error =
            train(dir.path(), &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
        assert!(error.contains("model.adapters"), "{error}");
    }
    let changes = [ADAPTERS, FROZEN, "stop.updates=3"];
    let error = train(dir.path(), &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
    assert!(error.contains("model.frozen"), "{error}");
    complete(dir.path(), &[ADAPTERS], 3, true, true);
}

#[test]
fn an_exported_model_with_its_adapters_put_in_says_what_the_run_does() {
    let dir = tempfile::tempdir().unwrap();
    let (run, folder) = (dir.path().join("run"), dir.path().join("model"));
    complete(&run, &[ADAPTERS, "learner.schedule.learning_rate=0.02"], 4, true, false);
    let (model, own) = parameters(&run);
    pretrained::save(&folder, &model.decoder, &own, &model.tokenizer).unwrap();
    let exported = pretrained::load(&folder, LoadOptions::default(), &candle_core::Device::Cpu).unwrap();
    let logits = |decoder: &Decoder, parameters: &Parameters| -> Vec<f32> {
        let (tokens, positions) = ([1, 2, 3, 2], [0, 1, 2, 3]);
        let input = DecoderInput { tokens: &tokens, positions: &positions, experts: None };
        let sequences = [Sequence::alone(0..4)];
        let mut attention =
            PackedAttention { sequences: &sequences, scale: decoder.config().attention_scale() };
        let states = decoder.hidden(parameters, input, &mut attention).unwrap().states;
        decoder.logits(parameters, &states).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    };
    let (own, exported) = (logits(&model.decoder, &own), logits(&exported.decoder, &exported.parameters));
    assert_eq!(own.len(), exported.len());
    for (own, exported) in own.iter().zip(&exported) {
        assert!((own - exported).abs() < 1e-4, "{own} and {exported}");
    }
}

#[test]
fn a_reward_model_grades_in_place_of_the_task_and_what_it_cannot_read_is_no_reward() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reward");
    let device = candle_core::Device::Cpu;
    let tokenizer = Tokenizer::characters("abc>").unwrap();
    let shape = DecoderConfig {
        vocabulary: tokenizer.vocabulary_size(),
        width: 8,
        inner: 12,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_size: 4,
        ..DecoderConfig::default()
    };
    let decoder = Decoder::new(shape, &device).unwrap();
    pretrained::save(&path, &decoder, &decoder.layout().initialize(1, &device).unwrap(), &tokenizer).unwrap();
    let model = format!("grading.reward_model={{ path = {path:?}, scale = 0.01, context = 9 }}");
    // Without a head it is a model, but no reward model.
    let refused =
        train(&dir.path().join("run"), &TaskRegistry::builtin(), &[&model, "stop.updates=1"], true, false);
    assert!(refused.unwrap_err().to_string().contains("score.weight"));
    assert!(!dir.path().join("run").exists());

    let file = path.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&file, &device).unwrap();
    tensors.insert(
        "score.weight".into(),
        candle_core::Tensor::arange(0f32, 8.0, &device).unwrap().reshape((1, 8)).unwrap(),
    );
    candle_core::safetensors::save(&tensors, &file).unwrap();
    for serial in [true, false] {
        let run = dir.path().join(format!("run {serial}"));
        let changes = [model.as_str(), "stop.updates=4"];
        let summary = train(&run, &TaskRegistry::builtin(), &changes, serial, false).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        assert_books(&summary);
        // A prompt of three characters and an answer of two do not fit into nine tokens with their marks.
        let lost =
            summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "grading_failed").unwrap();
        assert_eq!(lost.1.trajectories, summary.grading_errors);
        assert!(summary.grading_errors > 0);
    }
}
