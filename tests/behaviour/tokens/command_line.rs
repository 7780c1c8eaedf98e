//! A token run as it is met on the command line: continued, talked to, evaluated, exported, and learned from again.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{ADAPTERS, complete};

/// Exit code, what is printed and what is said besides.
fn forebay(arguments: &[&str], typed: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What must go well.
fn said(arguments: &[&str], typed: &str) -> String {
    let (code, said, errors) = forebay(arguments, typed);
    assert_eq!(code, Some(0), "{arguments:?}: {errors}");
    said
}

#[test]
fn a_run_goes_on_from_a_prompt_and_line_by_line_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &["warmup={ updates = 20, batch = 16, learning_rate = 1e-2 }"], 1, true, false);
    let run = text(dir.path());
    let generate = |prompt: &str| said(&["generate", run, "--prompt", prompt, "--max-new-tokens", "5"], "");
    let chat = |lines: &str| said(&["chat", run, "--max-new-tokens", "5"], lines);
    let (one, other) = (generate("ab>"), generate("c>"));
    assert!(one.ends_with('\n') && other.ends_with('\n'), "{one:?}, {other:?}");
    // A model from scratch holds no conversation: each line stands for itself, and empty ones for nothing.
    assert_eq!(chat("ab>\n\nc>\n"), [one.clone(), other.clone()].concat());
    assert_eq!(chat(""), "");
    // Drawn answers repeat themselves by seed.
    let drawn = |seed: &str| {
        let sampling = ["--temperature", "2", "--seed", seed, "--max-new-tokens", "20"];
        said(&[&["generate", run, "--prompt", "ab>"][..], &sampling].concat(), "")
    };
    assert_eq!(drawn("1"), drawn("1"));
    let others: Vec<String> = (2..8).map(|seed| drawn(&seed.to_string())).collect();
    assert!(others.iter().any(|answer| *answer != drawn("1") && answer.len() > 1), "{others:?}");
}

#[test]
fn a_run_is_evaluated_on_as_many_problems_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[], 1, true, false);
    let run = text(dir.path());
    let told = said(&["eval", run, "--problems", "30"], "");
    assert!(
        told.starts_with("copy after 1 updates: accuracy ") && told.contains("over 30 problems (95 %"),
        "{told}"
    );
    let json = said(&["eval", run, "--problems", "30", "--json"], "");
    let found: Value = serde_json::from_str(&json).unwrap();
    let answers = found["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 30);
    let right = answers.iter().filter(|answer| answer["reward"].as_f64() == Some(1.0)).count();
    assert!(told.contains(&format!("accuracy {:.1} %", 100.0 * right as f64 / 30.0)), "{told}");
    // The problems are held out, and those of a seed are the same every time.
    assert_eq!(json, said(&["eval", run, "--problems", "30", "--json"], ""));
    assert_ne!(json, said(&["eval", run, "--problems", "30", "--seed", "99", "--json"], ""));
}

#[test]
fn an_exported_run_is_a_model_to_begin_from_and_to_chat_with() {
    let dir = tempfile::tempdir().unwrap();
    let [run, next, model] = ["run", "next", "model"].map(|name| dir.path().join(name));
    complete(&run, &[ADAPTERS, "learner.schedule.learning_rate=0.02"], 2, true, false);
    let export: &[&str] = &["export", text(&run), text(&model)];
    assert!(said(export, "").contains("(2 updates)"));
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert!(model.join(file).exists(), "{file}");
    }
    let (code, _, errors) = forebay(export, "");
    assert!(code == Some(1) && errors.contains("model"), "{errors}");
    let adapters = dir.path().join("adapters");
    said(&["export", text(&run), text(&adapters), "--adapters"], "");
    assert!(adapters.join("adapter_config.json").exists());

    let begun = format!("model={{ path = {model:?} }}");
    complete(&next, &[&begun, "learner.schedule.learning_rate=1e-30"], 1, true, false);
    let prompt = |run: &Path| said(&["generate", text(run), "--raw", "--prompt", "abc>"], "");
    assert_eq!(prompt(&run), prompt(&next));
    // Now it is a pretrained model with a template: two turns of one conversation.
    let chat = ["chat", text(&next), "--max-new-tokens", "2", "--system", "c"];
    let told = said(&chat, "a\nb\n");
    assert_eq!(told.lines().count(), 2, "{told:?}");
}

#[test]
fn what_is_no_token_run_is_refused_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let out = dir.path().join("out");
    for command in [
        &["chat", text(&nowhere)][..],
        &["generate", text(&nowhere), "--prompt", "a"],
        &["eval", text(&nowhere)],
        &["export", text(&nowhere), text(&out)],
    ] {
        let (code, _, errors) = forebay(command, "");
        assert!(code == Some(1) && errors.contains("is not a run directory"), "{command:?}: {errors}");
    }
    complete(&nowhere, &[], 1, true, false);
    let (code, _, errors) = forebay(&["generate", text(&nowhere), "--prompt", &"a".repeat(24)], "");
    assert!(code == Some(1) && errors.contains("24 tokens") && errors.contains("context is 24"), "{errors}");
    let (code, _, errors) = forebay(&["generate", text(&nowhere), "--prompt", "a", "--temperature=-1"], "");
    assert!(code == Some(1) && errors.contains("temperature"), "{errors}");
}
