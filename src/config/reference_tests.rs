//! `docs/configuration.md` is what the code says, under a title of its own.

use super::{Config, reference};

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the code: `FOREBAY_BLESS=1 cargo test config::` rewrites this file. -->

A run is described by one TOML file, `forebay train CONFIG`. Settings have defaults, so a file states only what differs,
and at least one stop condition; `configs/` has files to start from. `--set FIELD=VALUE`, as often as you like,
overrides any field by its full path: `--set learner.discount=0.97 --set rollout.actors=4`.

A field that does not exist, a value of the wrong type and settings that contradict each other are refused before
anything is written; the message names the field, its place in the file or on the command line, and what was
expected. The resolved configuration is saved as `config.toml` in the run directory.

`forebay config` prints the rest of this page, `forebay config --toml` the defaults as a file.

";

#[test]
fn the_documented_settings_are_those_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let sections = reference::<Config>();
    let current = format!("{INTRODUCTION}{}\n", sections.trim_end());
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let documented = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        documented == current,
        "docs/configuration.md is out of date: run the tests with FOREBAY_BLESS=1"
    );
}
