//! `docs/configuration.md` and `docs/configuration_token.md` are what the code says, under titles of their own.

use super::{Config, TokenConfig, reference};

const CONTROL: &str = "\
# Configuration

<!-- Generated from the code: `FOREBAY_BLESS=1 cargo test config::` rewrites this file. -->

A run is described by one TOML file, `forebay train CONFIG`. Settings have defaults, so a file states only what differs,
and at least one stop condition; `configs/` has files to start from. `--set FIELD=VALUE`, as often as you like,
overrides any field by its full path: `--set learner.discount=0.97 --set rollout.actors=4`.

A field that does not exist, a value of the wrong type and settings that contradict each other are refused before
anything is written; the message names the field, its place in the file or on the command line, and what was
expected. The resolved configuration is saved as `config.toml` in the run directory.

This page is about control runs, in which environments are stepped. A file that has a `[task]` or a `[model]` describes
a token run instead: [configuration_token.md](configuration_token.md).

`forebay config` prints the rest of this page, `forebay config --toml` the defaults as a file.

";

const TOKEN: &str = "\
# Configuration of token runs

<!-- Generated from the code: `FOREBAY_BLESS=1 cargo test config::` rewrites this file. -->

A run in which a language model generates, is graded, and learns. How a file is written, overridden and checked is told
in [configuration.md](configuration.md).

`forebay config --token` prints the rest of this page, `forebay config --token --toml` the defaults as a file.

";

fn assert_documented(file: &str, introduction: &str, sections: &str) {
    let path = format!("{}/docs/{file}", env!("CARGO_MANIFEST_DIR"));
    let current = format!("{introduction}{}\n", sections.trim_end());
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(documented == current, "docs/{file} is out of date: run the tests with FOREBAY_BLESS=1");
}

#[test]
fn the_documented_settings_are_those_of_the_code() {
    assert_documented("configuration.md", CONTROL, &reference::<Config>());
    assert_documented("configuration_token.md", TOKEN, &reference::<TokenConfig>());
}
