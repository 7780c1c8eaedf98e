//! The configurations that users are told to start from.

use std::path::{Path, PathBuf};

use forebay::config::{RunConfig, Source};
use forebay::env::Registry;
use forebay::env::task::TaskRegistry;
use forebay::simulate::SimulateConfig;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_preset_is_read_and_contradicts_nothing() {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("configs"), &mut found);
    assert!(found.len() > 8, "{found:?}");
    for path in found {
        let (name, text) = (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let source = Source::parse(&text, &name, &[]).unwrap_or_else(|error| panic!("{error}"));
        if path.parent().is_some_and(|folder| folder.ends_with("simulate")) {
            let config: SimulateConfig = source.read().unwrap_or_else(|error| panic!("{error}"));
            config.settings().unwrap_or_else(|error| panic!("{name}: {error}"));
            continue;
        }
        match RunConfig::read(&source).unwrap_or_else(|error| panic!("{error}")) {
            RunConfig::Control(config) => {
                config.check(&Registry::builtin()).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            RunConfig::Token(config) => {
                config.check(&TaskRegistry::builtin()).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
}
