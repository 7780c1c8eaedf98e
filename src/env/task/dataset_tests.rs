use std::io::Write;

use super::*;
use crate::env::task::TaskRegistry;
use crate::trajectory::Finish;

/// A file with these bytes, and the dataset that `options` make of it.
fn load(bytes: &[u8], options: &str) -> Result<Dataset, TaskError> {
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut table: toml::Table = toml::from_str(options).unwrap();
    table.insert("path".into(), file.path().to_str().unwrap().into());
    Dataset::from_options(&TaskOptions::new("dataset", &table))
}

fn refused(bytes: &[u8], options: &str) -> String {
    load(bytes, options).unwrap_err().to_string()
}

const GOOD: &str = r#"{"prompt": "1+1=", "answer": "2"}"#;

#[test]
fn problems_are_read_with_all_their_fields() {
    let text = "\u{feff}{\"prompt\": \"1+1=\", \"answer\": \"2\", \"source\": \"sums\", \"level\": 3}\r\n\n\
                {\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\"}], \"answer\": 4, \"split\": \"evaluation\"}";
    let dataset = load(text.as_bytes(), "").unwrap();
    assert_eq!((dataset.len(Split::Train), dataset.len(Split::Evaluation)), (Some(1), Some(1)));
    let first = dataset.problem(Split::Train, 0).unwrap();
    assert_eq!((&*first.source, &first.prompt), ("sums", &Prompt::Text("1+1=".into())));
    assert_eq!(first.data, serde_json::json!({"level": 3}));
    let second = dataset.problem(Split::Evaluation, 0).unwrap();
    assert_eq!(second.prompt, Prompt::Messages(vec![Message::user("2+2?")]));
    assert_eq!((second.answer.as_str(), &second.data), ("4", &Value::Null));
    assert!(dataset.problem(Split::Train, 1).unwrap_err().to_string().contains("there are 1"));
}

#[test]
fn a_bad_line_is_refused_by_file_and_line() {
    for (bad, why) in [
        (&b"{"[..], "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\"text\"", "not a JSON object"),
        (b"{\"prompt\": \"x\"}", "`answer` is missing"),
        (b"{\"prompt\": \"x\", \"answer\": null}", "`answer`"),
        (b"{\"prompt\": \"x\", \"answer\": [1]}", "`answer`"),
        (b"{\"answer\": \"1\"}", "`prompt` is missing"),
        (b"{\"prompt\": \"\", \"answer\": \"1\"}", "`prompt` is empty"),
        (b"{\"prompt\": 3, \"answer\": \"1\"}", "`prompt` is not text"),
        (b"{\"messages\": [], \"answer\": \"1\"}", "`messages` is empty"),
        (b"{\"messages\": [{\"role\": \"user\"}], \"answer\": \"1\"}", "`content`"),
        (b"{\"messages\": \"x\", \"answer\": \"1\"}", "`messages`"),
        (b"{\"prompt\": \"x\", \"messages\": [], \"answer\": \"1\"}", "both `prompt` and `messages`"),
        (b"{\"prompt\": \"x\", \"answer\": \"1\", \"split\": \"test\"}", "`split` is `test`"),
        (b"{\"prompt\": \"x\", \"answer\": \"1\", \"source\": 1}", "`source` is not text"),
        (b"{\"prompt\": \"\xff\", \"answer\": \"1\"}", "not UTF-8"),
        (
            b"{\"prompt\": \"1+1=\", \"answer\": \"2\", \"split\": \"evaluation\"}",
            "in the train split already, at line 1",
        ),
    ] {
        let bytes = [GOOD.as_bytes(), b"\n\n", bad, b"\n"].concat();
        let message = refused(&bytes, "");
        let placed =
            message.contains(".jsonl, line 3: ") && message.contains(why) && message.contains("on_bad_line");
        assert!(placed, "{message}");
        let dataset = load(&bytes, "on_bad_line = 'skip'").unwrap();
        assert_eq!((dataset.len(Split::Train), dataset.skipped()), (Some(1), 1));
        assert!(dataset.bad_lines()[0].to_string().contains(why));
    }
}

#[test]
fn all_skipped_lines_are_counted_and_the_first_are_remembered() {
    let text = format!("{GOOD}\n{}", "x\n".repeat(25));
    let dataset = load(text.as_bytes(), "on_bad_line = 'skip'").unwrap();
    assert_eq!((dataset.skipped(), dataset.bad_lines().len()), (25, REMEMBERED));
}

#[test]
fn an_answer_that_the_verifier_cannot_use_is_a_bad_line() {
    let text = r#"{"prompt": "x", "answer": "many"}"#;
    let message = refused(text.as_bytes(), "verifier = 'numeric'");
    assert!(message.contains("line 1") && message.contains("`many`"), "{message}");
    assert!(load(text.as_bytes(), "verifier = 'exact'").is_ok());
}

#[test]
fn a_dataset_without_a_training_problem_is_refused() {
    assert!(refused(b"", "").contains("no problem to train on"));
    assert!(refused(b"\n  \n", "").contains("no problem to train on"));
    assert!(refused(b"x\nx\n", "on_bad_line = 'skip'").contains("2 bad lines, the first: "));
    let only_evaluation = br#"{"prompt": "x", "answer": "1", "split": "evaluation"}"#;
    assert!(refused(only_evaluation, "").contains("1 for evaluation"));
}

#[test]
fn a_missing_file_and_wrong_options_are_named() {
    let registry = TaskRegistry::builtin();
    let error = |options: &str| {
        registry.make("dataset", &toml::from_str(options).unwrap(), 0).err().unwrap().to_string()
    };
    assert!(error("path = 'nowhere.jsonl'").contains("nowhere.jsonl"));
    assert!(error("path = '.'").contains("cannot be read"));
    assert!(error("").contains("`path`"));
    for (option, part) in [
        ("evaluation_fraction = 1.0", "`evaluation_fraction`"),
        ("evaluation_fraction = -0.1", "`evaluation_fraction`"),
        ("evaluation_fraction = nan", "`evaluation_fraction`"),
        ("on_bad_line = 'ignore'", "`on_bad_line`"),
        ("verifier = 'numbers'", "`verifier`"),
        ("verifier = { kind = 'regex', pattern = '(' }", "`verifier`"),
    ] {
        let message = error(&format!("path = 'nowhere.jsonl'\n{option}"));
        assert!(message.contains(part) && message.contains("dataset"), "{message}");
    }
}

#[test]
fn the_fraction_is_held_out_by_prompt_and_kept_when_the_file_grows() {
    let lines = |count: u32| -> String {
        let line = |i| format!("{{\"prompt\": \"{}\", \"answer\": \"{i}\"}}\n", i % 400);
        (0..count).map(line).collect()
    };
    let prompts = |dataset: &Dataset, split| -> Vec<String> {
        dataset.problems(split).iter().map(|problem| prompt_text(&problem.prompt)).collect()
    };
    let small = load(lines(200).as_bytes(), "evaluation_fraction = 0.25").unwrap();
    let large = load(lines(800).as_bytes(), "evaluation_fraction = 0.25").unwrap();
    let held_out = prompts(&large, Split::Evaluation);
    assert!((130..270).contains(&held_out.len()), "{}", held_out.len());
    assert!(prompts(&large, Split::Train).iter().all(|prompt| !held_out.contains(prompt)));
    assert!(held_out.starts_with(&prompts(&small, Split::Evaluation)));
    let none = load(lines(200).as_bytes(), "").unwrap();
    assert_eq!(none.len(Split::Evaluation), Some(0));
}

#[test]
fn replies_are_graded_by_the_verifier_and_a_failure_is_no_zero() {
    let dataset = load(GOOD.as_bytes(), "verifier = { kind = 'numeric', tolerance = 0.5 }").unwrap();
    let mut problem = dataset.problem(Split::Train, 0).unwrap();
    let grade = |problem: &Problem, reply: &str| {
        dataset.grade(problem, &Completion { turns: &[reply.into()], finish: Finish::Stop })
    };
    assert_eq!(grade(&problem, "about 2.5"), Ok(Reward::of(1.0)));
    assert_eq!(grade(&problem, "3"), Ok(Reward::of(0.0)));
    assert_eq!(grade(&problem, ""), Ok(Reward::of(0.0)));
    problem.answer = "two".into();
    assert_eq!(grade(&problem, "2").unwrap_err().kind(), "reference");
}
