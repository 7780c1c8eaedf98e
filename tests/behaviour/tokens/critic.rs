//! Critics with a trunk of their own: in checkpoints, beside the policy, and pretrained on collected answers.

use std::path::Path;
use std::process::Command;

use candle_core::{Device, Tensor};
use forebay::actors::TrainError;
use forebay::actors::token::{
    CollectOptions, Collected, Corpus, LanguageModel, Policy, PretrainOptions, Pretraining, collect,
    load_token_parameters, pretrain_value,
};
use forebay::env::task::{
    Completion, GradeError, Problem, Prompt, Reward, Split, Task, TaskEntry, TaskError, TaskRegistry,
};
use forebay::telemetry::RunOutcome;

use super::{SEPARATE, SETTINGS, complete, config, figures, train};
use crate::support::checkpoints::folder;
use crate::support::metrics;

const WARMUP: &str = "warmup={ updates = 3, batch = 6 }";
const ONE: &str = "stop.updates=1";

fn registry() -> TaskRegistry {
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("lucky", "rewards by the problem alone", |_, _| Ok(Box::new(Lucky))));
    registry
}

fn collected(out: &Path, policy: &Policy, changes: &[&str]) -> Result<Collected, TrainError> {
    let options = CollectOptions { out: out.into(), trajectories: 90 };
    let config = config(&[changes, &[ONE]].concat());
    collect(&config, policy, &registry(), &options, &mut |_| ())
}

fn pretrained(
    corpus: &Path,
    out: &Path,
    changes: &[&str],
    trajectories: Option<usize>,
) -> Result<Pretraining, TrainError> {
    let options =
        PretrainOptions { corpus: corpus.into(), out: out.into(), epochs: 8, held_out: 0.2, trajectories };
    pretrain_value(&config(&[changes, &[ONE]].concat()), &registry(), &options, &mut |_, _, _| ())
}

fn tensors(path: &Path) -> std::collections::HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

#[test]
fn generators_and_exports_see_nothing_of_the_critic_and_checkpoints_hold_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let summary = complete(dir.path(), SEPARATE, 4, true, false);
    assert_eq!(summary.critic_warmup_updates, 2);
    assert!(summary.explained_variance_initial.is_some());
    let checkpoint = folder(dir.path(), 4);
    let [policy, critic] =
        ["parameters", "critic"].map(|name| tensors(&checkpoint.join(format!("{name}.safetensors"))));
    assert!(!policy.contains_key("value_head.weight") && critic.contains_key("value_head.weight"));
    let model = LanguageModel::of_run(dir.path(), &Device::Cpu).unwrap();
    assert!(!model.decoder.config().value_head);
    load_token_parameters(dir.path(), &model).unwrap();
    // While the critic warmed up the policy was what it had been, and so was the loss of it.
    let lines = metrics(dir.path());
    assert_eq!(figures(&lines, "policy_loss").len(), 2);
    assert_eq!(figures(&lines, "value_loss").len(), 4);
    assert_eq!(figures(&lines, "explained_variance_updated").len(), 2);
    assert_eq!(figures(&lines, "lag_mean"), [0.0; 4]);
}

#[test]
fn a_checkpoint_is_not_continued_with_another_kind_of_critic() {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    complete(&with, SEPARATE, 3, true, false);
    complete(&without, &SEPARATE[..2], 3, true, false);
    let resumed = |run: &Path, changes: &[&str]| {
        let changes = [changes, &["stop.updates=4"]].concat();
        train(run, &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string()
    };
    for (run, changes) in [(&with, &SEPARATE[..2]), (&without, SEPARATE)] {
        assert!(resumed(run, changes).contains("learner.critic.trunk"));
    }
    let all = [SEPARATE, &["learner.critic.train=\"all\""]].concat();
    let error = resumed(&with, &all);
    assert!(error.contains("the critic's optimiser"), "{error}");
}

/// Rewards whatever is said to one half of its problems, and nothing that is said to the other.
struct Lucky;

impl Task for Lucky {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let prompt = if index.is_multiple_of(2) { "a" } else { "b" };
        let prompt = Prompt::Text(prompt.into());
        Ok(Problem { source: "lucky".into(), prompt, answer: "c".into(), data: (index % 2).into() })
    }

    fn grade(&self, problem: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(problem.data.as_f64().unwrap_or(0.0)))
    }

    fn alphabet(&self) -> Option<String> {
        Some("abc".into())
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        turns.is_empty().then(|| problem.answer.clone())
    }
}

#[test]
fn a_critic_that_was_pretrained_on_collected_answers_knows_more_when_learning_begins() {
    let dir = tempfile::tempdir().unwrap();
    let [corpus, critic, fresh, known] =
        ["corpus", "critic", "fresh", "known"].map(|name| dir.path().join(name));
    let settings = [
        "task={ name = \"lucky\" }",
        WARMUP,
        "learner.critic.warmup_updates=0",
        "learner.critic.train=\"all\"",
    ];
    let changes = [SEPARATE, &settings].concat();
    let found = collected(&corpus, &Policy::OfConfiguration, &changes).unwrap();
    // Groups of four, whole.
    assert_eq!((found.warmup_updates, found.corpus.trajectories), (3, 92));
    let found = pretrained(&corpus, &critic, &changes, None).unwrap();
    assert_eq!((found.trajectories, found.held_out), (72, 20));
    assert_eq!(found.explained_variance_before, Some(0.0));
    assert!(found.explained_variance.unwrap() > 0.5 && found.loss < found.loss_before, "{found:?}");
    let trained = |run: &Path, changes: &[&str], resume: bool| {
        let summary = train(run, &registry(), changes, true, resume).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        summary.explained_variance_initial.unwrap()
    };
    let path = format!("learner.critic.path={critic:?}");
    let with_path = [&changes[..], &[&path]].concat();
    let begun = trained(&fresh, &[&changes[..], &[ONE]].concat(), false);
    let pretrained = trained(&known, &[&with_path[..], &[ONE]].concat(), false);
    assert!(begun == 0.0 && pretrained > 0.5, "{begun} and {pretrained}");
    // Both had the same policy, and so the same answers.
    let rewards = |run: &Path| figures(&metrics(run), "response_length_mean");
    assert_eq!(rewards(&fresh), rewards(&known));
    // A critic of a checkpoint does, too; and a run goes on with its own.
    let path = format!("learner.critic.path={:?}", folder(&known, 1));
    trained(&dir.path().join("again"), &[&changes[..], &[&path, ONE]].concat(), false);
    assert_eq!(trained(&known, &[&with_path[..], &["stop.updates=2"]].concat(), true), pretrained);
}

#[test]
fn answers_are_collected_with_the_policy_that_a_run_begins_reinforcement_learning_with() {
    let dir = tempfile::tempdir().unwrap();
    let [corpus, run] = ["corpus", "run"].map(|name| dir.path().join(name));
    let changes = [SEPARATE, &["warmup={ updates = 40, target_loss = 1.2, batch = 6 }"]].concat();
    let found = collected(&corpus, &Policy::OfConfiguration, &changes).unwrap();
    // After an update of the critic alone the policy is what it was after the warm-up.
    let summary = complete(&run, &changes, 1, true, false);
    assert_eq!((found.warmup_updates, 1), (summary.warmup_updates, summary.critic_warmup_updates));
    let of_run = tensors(&folder(&run, 1).join("parameters.safetensors"));
    let of_corpus = tensors(&corpus.join("policy.safetensors"));
    assert_eq!(of_run.len(), of_corpus.len());
    let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (name, tensor) in &of_run {
        assert_eq!(values(tensor), values(&of_corpus[name]), "{name}");
    }
}

#[test]
fn the_command_line_collects_answers_and_pretrains_a_critic_on_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).into_os_string().into_string().unwrap();
    std::fs::write(path("run.toml"), SETTINGS).unwrap();
    let forebay = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments);
        for change in SEPARATE.iter().chain(&[ONE]) {
            command.args(["--set", change]);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (config, corpus, critic) = (path("run.toml"), path("corpus"), path("critic"));
    let collect: &[&str] = &["collect", &config, "--out", &corpus, "--trajectories", "30"];
    let (code, said, errors) = forebay(collect);
    assert!(code == Some(0) && said.starts_with("wrote 32 answers of "), "{said}{errors}");
    let (code, said, errors) =
        forebay(&["pretrain-value", &config, &corpus, "--out", &critic, "--epochs", "2"]);
    assert!(code == Some(0) && said.contains("28 answers, 6 steps; of 4 answers"), "{said}{errors}");
    let (code, _, errors) = forebay(collect);
    assert!(code == Some(1) && errors.contains("is not empty"), "{errors}");
    std::fs::write(dir.path().join("corpus/corpus.bin"), "damaged").unwrap();
    let (code, _, errors) = forebay(&["pretrain-value", &config, &corpus, "--out", &path("other")]);
    assert!(code == Some(1) && errors.contains("corpus.bin") && errors.contains("cut off"), "{errors}");
}

#[test]
fn a_corpus_repeats_itself_and_is_not_what_a_run_with_the_same_settings_sees() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other, run, of_run] = ["one", "other", "run", "of_run"].map(|name| dir.path().join(name));
    for out in [&one, &other] {
        collected(out, &Policy::OfConfiguration, SEPARATE).unwrap();
    }
    let groups = |corpus: &Path| Corpus::open(corpus).unwrap().groups().unwrap();
    assert_eq!(groups(&one), groups(&other));
    assert!(groups(&one).iter().all(|group| group.epoch >= 1 << 31));
    // A run's newest checkpoint answers in another way.
    complete(&run, &[SEPARATE, &["learner.schedule.learning_rate=0.05"]].concat(), 4, true, false);
    let found = collected(&of_run, &Policy::OfRun(run), SEPARATE).unwrap();
    assert_eq!((found.warmup_updates, found.corpus.version.0), (0, 4));
    assert_ne!(groups(&one)[0].members, groups(&of_run)[0].members);
    pretrained(&of_run, &dir.path().join("critic"), SEPARATE, Some(8)).unwrap();
}

#[test]
fn what_cannot_be_pretrained_on_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [corpus, out] = ["corpus", "out"].map(|name| dir.path().join(name));
    let refused = |changes: &[&str], trajectories| {
        let error = pretrained(&corpus, &out, changes, trajectories).unwrap_err().to_string();
        assert!(!out.exists());
        error
    };
    assert!(refused(SEPARATE, None).contains("corpus.bin is not there"));
    collected(&corpus, &Policy::OfConfiguration, SEPARATE).unwrap();
    let error = collected(&corpus, &Policy::OfConfiguration, SEPARATE).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    for (changes, words) in [
        (&SEPARATE[..2], "learner.critic.trunk"),
        (&[], "learner.advantage"),
        (
            &[SEPARATE, &["task={ name = \"copy\", options = { alphabet = \"abd\", min_length = 1, max_length = 3 } }"]].concat(),
            "other tokens",
        ),
    ] as [(&[&str], &str); 3]
    {
        assert!(refused(changes, None).contains(words), "{}", refused(changes, None));
    }
    assert!(refused(SEPARATE, Some(1000)).contains("1000 answers were asked for"));
    let file = corpus.join("rollouts-000000.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = refused(SEPARATE, None);
    assert!(error.contains("rollouts-000000.bin") && error.contains("checksum"), "{error}");
}

#[test]
fn a_critic_that_does_not_fit_the_policy_is_refused_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let [corpus, critic, run] = ["corpus", "critic", "run"].map(|name| dir.path().join(name));
    collected(&corpus, &Policy::OfConfiguration, SEPARATE).unwrap();
    pretrained(&corpus, &critic, SEPARATE, None).unwrap();
    let path = format!("learner.critic.path={critic:?}");
    let refused = |change: &str| {
        let changes = [SEPARATE, &[&path, change, ONE]].concat();
        train(&run, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string()
    };
    for (change, words) in [
        ("model.decoder.context=32", "positions"),
        (
            "task={ name = \"copy\", options = { alphabet = \"abd\", min_length = 1, max_length = 3 } }",
            "other tokens",
        ),
        ("learner.critic.frozen=[\"no.such.*\"]", "learner.critic.frozen"),
        ("learner.critic.path=\"/nowhere/at/all\"", "/nowhere/at/all"),
    ] {
        let error = refused(change);
        assert!(error.contains(words), "{change}: {error}");
        assert!(!run.exists());
    }
    let file = critic.join("critic.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(refused("seed=7").contains("critic.safetensors"));
}
