//! Distillation: teachers from files, each of its own answers, and what cannot be taught.

use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::Device;
use forebay::actors::token::{LanguageModel, load_token_parameters};
use forebay::env::task::{
    Completion, GradeError, Problem, Prompt, Reward, Split, Task, TaskEntry, TaskError, TaskRegistry,
};
use forebay::policy::pretrained;
use forebay::telemetry::RunOutcome;

use super::exactness::assert_repeats_and_resumes;
use super::{assert_books, complete, figures, train};
use crate::support::checkpoints::{contents, folder};
use crate::support::metrics;

const MOPD: &str = "learner.loss.objective={ kind = \"mopd\" }";
const MIXTURE: &str = "task={ name = \"mixture\", options = { parts = [\
    { name = \"copy\", options = { alphabet = \"abc\", min_length = 1, max_length = 3 } }, \
    { name = \"reverse\", source = \"back\", options = { alphabet = \"abc\", min_length = 1, max_length = 3 } }] } }";
const EFFORTS: &str = "learner.efforts=[{ name = \"low\", instruction = \"?\" }, { name = \"high\" }]";
/// Learns enough for its answers to differ from those of a model that knows nothing.
const SCHOOL: &str = "warmup={ updates = 40, batch = 8, learning_rate = 0.01 }";
const ALL: &[&str] = &[MIXTURE, EFFORTS];

/// Two expert runs with the tokens of `ALL`, and the first one's parameters as a folder to start from.
struct Experts {
    _dir: tempfile::TempDir,
    one: PathBuf,
    other: PathBuf,
    start: PathBuf,
}

impl Experts {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [one, other, start] = ["one", "other", "start"].map(|name| dir.path().join(name));
        complete(&one, &[ALL, &[SCHOOL]].concat(), 1, true, false);
        complete(&other, &[ALL, &[SCHOOL, "seed=8"]].concat(), 2, true, false);
        let model = LanguageModel::of_run(&one, &Device::Cpu).unwrap();
        let (_, parameters) = load_token_parameters(&one, &model).unwrap();
        pretrained::save(&start, &model.decoder, &parameters, &model.tokenizer).unwrap();
        Self { _dir: dir, one, other, start }
    }

    /// Settings of a student that begins as the first expert.
    fn student(&self) -> Vec<String> {
        vec![MIXTURE.into(), EFFORTS.into(), MOPD.into(), format!("model={{ path = {:?} }}", self.start)]
    }
}

fn teachers(of: &[(&str, &Path)]) -> String {
    let of: Vec<String> = of
        .iter()
        .map(|(subject, path)| {
            let comma = if subject.is_empty() { "" } else { ", " };
            let path = path.to_str().unwrap();
            format!("{{ {subject}{comma}path = {path:?} }}")
        })
        .collect();
    format!("learner.teachers=[{}]", of.join(", "))
}

/// One update; gives its divergence from the teachers and the norm of its gradient.
fn first_update(changes: &[String]) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    complete(dir.path(), &changes, 1, true, false);
    let lines = metrics(dir.path());
    (figures(&lines, "teacher_kl")[0], figures(&lines, "gradient_norm")[0])
}

#[test]
fn a_teacher_that_is_the_student_gives_no_gradient_at_all_from_whatever_file_it_comes() {
    let experts = Experts::new();
    let checkpoint = folder(&experts.one, 1);
    for path in [&experts.start, &experts.one, &checkpoint] {
        for sampling in ["seed=7", "generate.top_k=3", "generate.temperature=0.7"] {
            let changes = [experts.student(), vec![teachers(&[("", path)]), sampling.into()]].concat();
            assert_eq!(first_update(&changes), (0.0, 0.0), "{path:?} {sampling}");
        }
    }
    // The outcome's share moves it.
    let mixed = MOPD.replace("\"mopd\"", "\"mopd\", alpha = 0.5");
    let changes = [experts.student(), vec![teachers(&[("", &experts.one)]), mixed]].concat();
    let (divergence, norm) = first_update(&changes);
    assert!(divergence == 0.0 && norm > 0.0, "{divergence} {norm}");
}

#[test]
fn every_answer_is_scored_by_the_teacher_of_its_own_source_and_effort() {
    let experts = Experts::new();
    let (own, other) = (&*experts.one, &*experts.other);
    let divergence = |of: &[(&str, &Path)]| first_update(&[experts.student(), vec![teachers(of)]].concat()).0;
    let whole = divergence(&[("", other)]);
    assert!(whole > 0.0, "{whole}");
    // The answers of the first update are the same, so that what each part adds is the whole.
    for [one, two] in [["source = \"copy\"", "source = \"back\""], ["effort = \"low\"", "effort = \"high\""]]
    {
        let parts = [divergence(&[(one, own), (two, other)]), divergence(&[(one, other), (two, own)])];
        assert!(parts.iter().all(|&part| part > 0.0 && part < whole), "{parts:?} of {whole}");
        assert!((parts[0] + parts[1] - whole).abs() < 1e-9 * whole, "{parts:?} of {whole}");
    }
    // The closest teacher counts: of everything only what has no other.
    let cell = "source = \"copy\", effort = \"low\"";
    let rest = divergence(&[("", other), (cell, own)]);
    let alone = divergence(&[("", own), (cell, other)]);
    assert!((rest + alone - whole).abs() < 1e-9 * whole, "{rest} + {alone}, {whole}");
}

#[test]
fn a_student_comes_closer_to_its_teacher() {
    let experts = Experts::new();
    let dir = tempfile::tempdir().unwrap();
    let teachers = teachers(&[("", &experts.other)]);
    let changes = [MIXTURE, EFFORTS, MOPD, &teachers, "seed=9", "learner.schedule.learning_rate=0.01"];
    complete(dir.path(), &changes, 60, true, false);
    let divergences = figures(&metrics(dir.path()), "teacher_kl");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (before, after) = (mean(&divergences[..5]), mean(&divergences[55..]));
    assert!(after < 0.5 * before, "{before} and {after}");
}

#[test]
fn distilling_runs_write_the_same_bytes_and_so_does_one_that_was_stopped_and_resumed() {
    let experts = Experts::new();
    let teachers = teachers(&[("source = \"copy\"", &experts.one), ("", &experts.other)]);
    assert_repeats_and_resumes(&[MIXTURE, EFFORTS, MOPD, &teachers, "learner.minibatches=2"]);
}

#[test]
fn a_run_is_not_continued_with_other_teachers_than_it_began_with() {
    let experts = Experts::new();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let pinned = folder(&experts.one, 1);
    let both = [("source = \"copy\"", &*pinned), ("", &*experts.other)];
    let base = [MIXTURE, EFFORTS, MOPD];
    complete(&run, &[&base[..], &[&teachers(&both)]].concat(), 2, true, false);
    let before = contents(&run, 2);
    let refused = |teachers: &str| {
        let changes = [&base[..], &[teachers, "stop.updates=3"]].concat();
        train(&run, &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string()
    };
    let error = refused(&teachers(&both[1..]));
    assert!(error.contains("learner.teachers") && error.contains("source `copy`"), "{error}");
    let error = refused(&teachers(&[both[0], ("", &pinned)]));
    assert!(error.contains("teacher of all sources") && error.contains("began with"), "{error}");
    let changes = [ALL, &["stop.updates=3"]].concat();
    let error = train(&run, &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
    assert!(error.contains("not of nothing"), "{error}");
    // Both experts go on: one was named by its directory, the other by a checkpoint, which stays what it is.
    complete(&experts.other, &[ALL, &[SCHOOL, "seed=8"]].concat(), 3, true, true);
    complete(&experts.one, &[ALL, &[SCHOOL]].concat(), 2, true, true);
    let error = refused(&teachers(&both));
    assert!(error.contains(experts.other.to_str().unwrap()) && error.contains("checkpoints"), "{error}");
    assert_eq!(contents(&run, 2), before);
    let held = folder(&experts.other, 2);
    let pinned = teachers(&[both[0], ("", &held)]);
    complete(&run, &[&base[..], &[&pinned]].concat(), 3, true, true);
}

#[test]
fn what_cannot_be_taught_is_refused_before_anything_is_written() {
    let experts = Experts::new();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let one = &*experts.one;
    let stranger = dir.path().join("stranger");
    complete(&stranger, &[], 1, true, false);
    let damaged = dir.path().join("damaged");
    std::fs::create_dir_all(damaged.join("checkpoints/000000000001")).unwrap();
    std::fs::create_dir_all(damaged.join("model")).unwrap();
    let of = |subject: &str| teachers(&[(subject, one)]);
    let only_copy = of("source = \"copy\"");
    let two = teachers(&[("source = \"copy\"", one), ("source = \"copy\"", &experts.other), ("", one)]);
    let no_use = teachers(&[("", one), ("source = \"sums\"", &experts.other)]);
    let unknown = teachers(&[("", one), ("effort = \"huge\"", &experts.other)]);
    let half = of("effort = \"low\"");
    let all = of("");
    let own = [
        teachers(&[("", Path::new("/nowhere/at/all"))]),
        teachers(&[("", &stranger)]),
        teachers(&[("", &damaged)]),
        teachers(&[("", &damaged.join("checkpoints/000000000001"))]),
        teachers(&[("", Path::new("${NO_SUCH_VARIABLE_HERE}/a"))]),
    ];
    let larger = [MIXTURE, EFFORTS, MOPD, &all, "model.decoder.context=30"];
    for (changes, words) in [
        (&[MIXTURE, EFFORTS, MOPD][..], "`learner.loss.objective`, `learner.teachers`"),
        (&[MIXTURE, EFFORTS, &all], "`learner.teachers`, `learner.loss.objective`"),
        (&[MIXTURE, EFFORTS, MOPD, &only_copy], "source `back` at effort `low`"),
        (&[MIXTURE, EFFORTS, MOPD, &half], "source `copy` at effort `high`"),
        (&[MIXTURE, MOPD, &only_copy], "`learner.teachers`, `task`"),
        (&[MIXTURE, EFFORTS, MOPD, &two], "two of source `copy`"),
        (&[MIXTURE, EFFORTS, MOPD, &no_use], "`copy`, `back`"),
        (&[MIXTURE, EFFORTS, MOPD, &unknown], "`learner.teachers`, `learner.efforts`"),
        (
            &[MIXTURE, EFFORTS, MOPD, &all, "learner.drop_zero_variance=true"],
            "`learner.drop_zero_variance`, `learner.loss.objective`",
        ),
        (&[MIXTURE, EFFORTS, MOPD, &own[0]], "/nowhere/at/all"),
        (&[MIXTURE, EFFORTS, MOPD, &own[1]], "other tokens"),
        (&[MIXTURE, EFFORTS, MOPD, &own[2]], "decoder.json"),
        (&[MIXTURE, EFFORTS, MOPD, &own[3]], "decoder.json"),
        (&[MIXTURE, EFFORTS, MOPD, &own[4]], "NO_SUCH_VARIABLE_HERE"),
        (&larger, "30"),
    ] {
        let changes = [changes, &["stop.updates=1"]].concat();
        let error = train(&run, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("teacher"), "{changes:?}: {error}");
        assert!(!run.exists());
    }
}

/// Has a second source that it does not tell of.
struct Quiet;

impl Task for Quiet {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let source = if index < 6 { "copy" } else { "surprise" };
        let prompt = Prompt::Text("a".into());
        Ok(Problem { source: source.into(), prompt, answer: "a".into(), data: serde_json::Value::Null })
    }

    fn grade(&self, _: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(1.0))
    }
}

#[test]
fn an_answer_of_a_source_that_nobody_told_of_and_nobody_teaches_ends_the_run_by_name() {
    let experts = Experts::new();
    let dir = tempfile::tempdir().unwrap();
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("quiet", "two sources", |_, _| Ok(Box::new(Quiet))));
    let teachers = teachers(&[("source = \"copy\"", &experts.one)]);
    let path = format!("model={{ path = {:?} }}", experts.start);
    let changes = ["task={ name = \"quiet\" }", MOPD, &path, &teachers, "stop.updates=4"];
    let summary = train(&dir.path().join("run"), &registry, &changes, true, false).unwrap();
    assert_eq!((summary.status, summary.updates), (RunOutcome::Failed, 2));
    assert!(
        summary.cause.contains("no teacher") && summary.cause.contains("`surprise`"),
        "{}",
        summary.cause
    );
    assert_books(&summary);
}

#[test]
fn an_evaluation_tells_each_source_and_effort_apart() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let parts = "task={ name = \"mixture\", options = { parts = [{ name = \"copy\" }, { name = \"sort\", weight = 2 }] } }";
    complete(&run, &[parts, EFFORTS, "evaluation.final_problems=12"], 1, true, false);
    let summary: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(run.join("summary.json")).unwrap()).unwrap();
    let found: Vec<_> = summary["eval_parts"].as_array().unwrap().iter().collect();
    let cell = |part: &serde_json::Value| {
        let text = |name: &str| part[name].as_str().unwrap().to_owned();
        (text("source"), text("effort"), part["graded"].as_u64().unwrap())
    };
    let expected = [("copy", "high", 2), ("copy", "low", 2), ("sort", "high", 4), ("sort", "low", 4)];
    let cells: Vec<_> = found.into_iter().map(cell).collect();
    assert_eq!(
        cells,
        expected.map(|(source, effort, graded)| (source.to_owned(), effort.to_owned(), graded))
    );
    let eval = |arguments: &[&str]| {
        let run = run.to_str().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["eval", run, "--problems", "12"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = eval(&[]);
    assert!(said.contains("\n  sort, low   accuracy"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&eval(&["--json"])).unwrap();
    assert_eq!(
        (&json["answers"][0]["source"], &json["answers"][0]["effort"]),
        (&"sort".into(), &"low".into())
    );
}
