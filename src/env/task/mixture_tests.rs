use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use super::*;
use crate::env::task::{Completion, GradeError};
use crate::trajectory::Finish;

fn make(options: &str) -> Arc<dyn Task> {
    TaskRegistry::builtin().make(NAME, &toml::from_str(options).unwrap(), 5).unwrap()
}

fn refused(options: &str) -> String {
    TaskRegistry::builtin().make(NAME, &toml::from_str(options).unwrap(), 5).err().unwrap().to_string()
}

const THREE: &str = "parts = [{ name = 'copy', weight = 4 }, { name = 'chain', source = 'sums', options = { max = 4 } }, \
    { name = 'guess_number', weight = 2 }]";

fn sources(task: &dyn Task, split: Split, indices: std::ops::Range<u32>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for index in indices {
        *counts.entry(task.problem(split, index).unwrap().source.to_string()).or_default() += 1;
    }
    counts
}

/// A dataset of so many training and evaluation problems.
fn dataset(train: usize, evaluation: usize) -> (tempfile::NamedTempFile, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for index in 0..train + evaluation {
        let split = if index < train { "train" } else { "evaluation" };
        writeln!(
            file,
            r#"{{"prompt": "p{index}", "answer": "{index}", "split": "{split}", "source": "s{}", "budget": 7, "level": 2}}"#,
            index % 2
        )
        .unwrap();
    }
    let part = format!("{{ name = 'dataset', options = {{ path = {:?} }} }}", file.path());
    (file, part)
}

#[test]
fn every_window_as_long_as_the_weights_holds_each_part_exactly_as_often_as_it_weighs() {
    let task = make(THREE);
    let exact = BTreeMap::from([("copy".into(), 4), ("sums".into(), 1), ("guess_number".into(), 2)]);
    for split in [Split::Train, Split::Evaluation] {
        for start in [0, 1, 5, 7, 100, 70_003] {
            assert_eq!(sources(&*task, split, start..start + 7), exact, "{split} from {start}");
        }
    }
    assert_eq!((task.len(Split::Train), task.len(Split::Evaluation)), (None, None));
    // Turns are spread out: no part comes twice in a row that could be held apart.
    let names = |range: std::ops::Range<u32>| -> Vec<String> {
        range.map(|index| task.problem(Split::Train, index).unwrap().source.to_string()).collect()
    };
    assert!(names(0..70).windows(2).all(|pair| pair[0] != pair[1] || pair[0] == "copy"));
}

#[test]
fn a_parts_problems_are_those_of_its_task_alone_and_go_back_to_it() {
    let task = make(THREE);
    let alone = TaskRegistry::builtin();
    let chain = alone.make("chain", &toml::from_str("max = 4").unwrap(), 5).unwrap();
    let found: Vec<Problem> = (0..70)
        .map(|index| task.problem(Split::Train, index).unwrap())
        .filter(|problem| &*problem.source == "sums")
        .collect();
    assert_eq!(found.len(), 10);
    for (n, problem) in found.iter().enumerate() {
        let own = chain.problem(Split::Train, n as u32).unwrap();
        assert_eq!((&problem.prompt, &problem.answer), (&own.prompt, &own.answer));
        let shown = task.demonstration(problem, &[]).unwrap();
        for (reply, expected) in [(shown, 1.0), ("nothing".to_owned(), 0.0)] {
            let turns = [reply];
            let completion = Completion { turns: &turns, finish: Finish::Stop };
            assert_eq!(task.grade(problem, &completion).unwrap().value, expected);
        }
    }
    // The game is the only part of several turns.
    assert!(task.is_multi_turn());
    let game = (0..7).map(|index| task.problem(Split::Train, index).unwrap());
    let game = game.into_iter().find(|problem| &*problem.source == "guess_number").unwrap();
    assert!(matches!(task.respond(&game, &["1".into()]).unwrap(), Turn::Observe(_)));
    assert_eq!(task.respond(&found[0], &["1".into()]).unwrap(), Turn::End);
    let stray = Problem { data: serde_json::Value::Null, ..game };
    let completion = Completion { turns: &[], finish: Finish::Stop };
    assert!(matches!(task.grade(&stray, &completion), Err(GradeError::Reference(_))));
}

#[test]
fn every_part_meets_every_effort_where_efforts_are_dealt_by_place() {
    let task = make("parts = [{ name = 'copy' }, { name = 'sort' }, { name = 'reverse' }]");
    for split in [Split::Train, Split::Evaluation] {
        let cells: BTreeSet<(String, u32)> = (0..9)
            .map(|index| {
                (task.problem(split, index).unwrap().source.to_string(), task.place(split, index) % 3)
            })
            .collect();
        assert_eq!(cells.len(), 9);
    }
}

#[test]
fn a_finite_part_is_walked_through_over_and_over_in_orders_of_its_own() {
    let (_file, part) = dataset(5, 0);
    let orders = |options: &str| -> Vec<Vec<String>> {
        let task = make(options);
        let prompts = (0..40).map(|index| task.problem(Split::Train, index).unwrap());
        let of_dataset: Vec<String> =
            prompts.filter(|problem| problem.source.starts_with('s')).map(|problem| problem.answer).collect();
        of_dataset.chunks(5).map(<[String]>::to_vec).collect()
    };
    let drawn = orders(&format!("parts = [{part}, {{ name = 'copy' }}]"));
    assert_eq!(drawn.len(), 4);
    for order in &drawn {
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 5);
    }
    assert!(drawn.iter().collect::<BTreeSet<_>>().len() > 1);
    let fixed = part.replace("name", "shuffle = false, name");
    let kept = orders(&format!("parts = [{fixed}, {{ name = 'copy' }}]"));
    assert!(kept.iter().all(|order| *order == ["0", "1", "2", "3", "4"]));
    // Also when asked out of order, across a border.
    let task = make(&format!("parts = [{part}]"));
    let ask = |index| task.problem(Split::Train, index).unwrap().answer;
    let forward: Vec<String> = (0..12).map(ask).collect();
    let backward: Vec<String> = (0..12).rev().map(ask).collect();
    assert_eq!(forward, backward.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn evaluation_ends_before_a_part_runs_out_and_leaves_out_parts_without_problems() {
    let (_file, part) = dataset(3, 5);
    let task = make(&format!("parts = [{part}, {{ name = 'copy', weight = 2 }}]"));
    let len = task.len(Split::Evaluation).unwrap();
    let answers: Vec<String> =
        (0..len).map(|index| task.problem(Split::Evaluation, index).unwrap().answer).collect();
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), answers.len());
    let counts = sources(&*task, Split::Evaluation, 0..len);
    assert_eq!(counts["s0"] + counts["s1"], 5);
    assert!((10..=12).contains(&counts["copy"]), "{counts:?}");
    let error = task.problem(Split::Evaluation, len).unwrap_err().to_string();
    assert!(error.contains("mixture") && error.contains("evaluation"), "{error}");

    let (_file, none) = dataset(3, 0);
    let task = make(&format!("parts = [{none}, {{ name = 'copy' }}]"));
    assert_eq!(task.len(Split::Evaluation), None);
    assert_eq!(sources(&*task, Split::Evaluation, 0..9), BTreeMap::from([("copy".into(), 9)]));
    let (_file, none) = dataset(3, 0);
    assert_eq!(make(&format!("parts = [{none}]")).len(Split::Evaluation), Some(0));
}

#[test]
fn budgets_sources_and_characters_are_those_of_the_parts() {
    let (_file, part) = dataset(2, 0);
    let task = make(&format!("parts = [{part}, {{ name = 'chain', source = 'sums' }}, {{ name = 'copy' }}]"));
    let problem = task.problem(Split::Train, 0).unwrap();
    assert_eq!((problem.budget(), problem.data["data"]["level"].as_u64()), (Some(7), Some(2)));
    assert_eq!(
        task.sources().iter().map(|source| &**source).collect::<Vec<_>>(),
        ["s0", "s1", "sums", "copy"]
    );
    let alphabet = task.alphabet().unwrap();
    assert!("p01+-=>abz".chars().all(|character| alphabet.contains(character)), "{alphabet}");
    assert_eq!(alphabet.chars().collect::<BTreeSet<_>>().len(), alphabet.chars().count());
    // Parts of grades that every part of the mixture gives.
    let worked = "{ name = 'worked_chain' }";
    assert!(make(&format!("parts = [{worked}, {{ name = 'copy' }}]")).parts().is_empty());
    let rubric = make(&format!("parts = [{worked}]"));
    assert!(rubric.grades_groups() && rubric.parts().contains(&"solution".to_owned()));
}

#[test]
fn parts_that_cannot_work_are_refused_by_their_place() {
    for (options, words) in [
        ("", vec!["`parts`", "at least one"]),
        ("parts = [{ name = 'copy' }, { name = 'revers' }]", vec!["`parts[1]`", "`reverse`"]),
        ("parts = [{ name = 'copy', weight = 0 }]", vec!["`parts[0]`", "weight"]),
        ("parts = [{ name = 'copy', weight = 10001 }]", vec!["`parts`", "10000"]),
        ("parts = [{ name = 'copy', options = { alphabt = 'ab' } }]", vec!["`parts[0]`", "copy", "alphabt"]),
        ("parts = [{ name = 'copy', wait = 1 }]", vec!["mixture", "wait"]),
        ("parts = [{ name = 'copy', source = ' ' }]", vec!["`parts[0]`", "`source`"]),
        ("parts = [{ name = 'mixture' }]", vec!["`parts[0]`", "mixture"]),
        ("parts = [{ weight = 1 }]", vec!["mixture", "name"]),
    ] {
        let error = refused(options);
        assert!(words.iter().all(|word| error.contains(word)), "{options}: {error}");
    }
}
