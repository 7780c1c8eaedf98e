//! What stands in the checkpoints of a run directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use forebay::actors::checkpoint::{MAX_STATE_BYTES, RUN_STATE, RunState, files};
use forebay::actors::token::checkpoint::{TOKEN_RUN_STATE, TokenRunState};
use forebay::codec::{CheckpointReader, decode};

/// The folder of the checkpoint after an update.
pub fn folder(run_dir: &Path, update: u64) -> PathBuf {
    run_dir.join("checkpoints").join(format!("{update:012}"))
}

/// The updates of which there is a checkpoint.
pub fn updates(run_dir: &Path) -> Vec<u64> {
    CheckpointReader::new(run_dir.join("checkpoints")).updates().unwrap()
}

/// Every file of a checkpoint, by name.
pub fn contents(run_dir: &Path, update: u64) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder(run_dir, update)).unwrap();
    let read =
        |path: PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap());
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

/// Fails, naming the files, unless both checkpoints have the same bytes.
pub fn assert_same(one: (&Path, u64), other: (&Path, u64)) {
    let (one, other) = (contents(one.0, one.1), contents(other.0, other.1));
    assert!(one.contains_key(files::STATE) && one.contains_key(files::PARAMETERS));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    let differing: Vec<_> =
        one.iter().filter(|(name, bytes)| &other[*name] != *bytes).map(|both| both.0).collect();
    if differing.contains(&&files::STATE.to_owned()) {
        let token_state =
            |bytes: &[u8]| decode::<TokenRunState>(TOKEN_RUN_STATE, bytes, MAX_STATE_BYTES).ok();
        match [&one, &other].map(|contents| token_state(&contents[files::STATE])) {
            [Some(one), Some(other)] => assert_eq!(one, other),
            _ => assert_eq!(state_of(&one[files::STATE]), state_of(&other[files::STATE])),
        }
    }
    assert!(differing.is_empty(), "{differing:?} differ");
}

/// The state in a checkpoint of a token run.
pub fn token_state(run_dir: &Path, update: u64) -> TokenRunState {
    decode(TOKEN_RUN_STATE, &contents(run_dir, update)[files::STATE], MAX_STATE_BYTES).unwrap()
}

/// The state in a checkpoint.
pub fn state(run_dir: &Path, update: u64) -> RunState {
    state_of(&contents(run_dir, update)[files::STATE])
}

fn state_of(bytes: &[u8]) -> RunState {
    decode(RUN_STATE, bytes, MAX_STATE_BYTES).unwrap()
}
