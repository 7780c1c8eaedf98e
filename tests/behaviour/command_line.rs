//! The command line as other programs meet it.

use std::process::{Command, Stdio};

#[test]
fn what_only_prints_ends_quietly_with_its_reader() {
    for command in ["objectives", "tasks", "envs", "config", "doctor"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .arg(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Its output has no reader from here on, as behind `head`.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{command}: {said}");
    }
}

#[test]
fn objectives_are_listed_with_all_that_there_is_to_know_and_an_unknown_one_is_refused_with_those_known() {
    let forebay =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap();
    let listed = forebay(&["objectives", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let entries = listed.as_array().unwrap();
    assert_eq!(entries.len(), 24);
    for entry in entries {
        for field in ["name", "formula", "defaults", "source", "refuses"] {
            assert!(entry[field].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
        }
    }
    let one = String::from_utf8(forebay(&["objectives", "ppo"]).stdout).unwrap();
    assert!(one.contains("arXiv 1707.06347") && !one.contains("gspo"), "{one}");
    let refused = forebay(&["objectives", "popo"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("popo") && said.contains("online_dpo"), "{said}");
}
