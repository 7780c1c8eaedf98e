//! Every state that a kill or a damaged disk can leave, and what becomes of it.

use std::fs;
use std::path::Path;

use super::reader::names;
use super::*;

const FILES: [(&str, &[u8]); 3] =
    [("state.bin", b"some state"), ("model.safetensors", &[7; 100]), ("empty", b"")];

fn open(folder: &Path, keep: usize) -> CheckpointStore {
    CheckpointStore::open(folder, CheckpointPolicy { keep }).unwrap()
}

fn save(store: &CheckpointStore, update: u64, is_best: bool) {
    store.save(update, &FILES, is_best).unwrap();
}

fn found(store: &CheckpointStore) -> Option<u64> {
    store.latest_valid().unwrap().found.map(|loaded| loaded.update)
}

/// A folder with the whole checkpoints of updates 1 and 2.
fn two() -> (tempfile::TempDir, CheckpointStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 9);
    save(&store, 1, false);
    save(&store, 2, false);
    (folder, store)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from).unwrap() {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_checkpoint_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a/checkpoints"), 3);
    assert_eq!(store.latest_valid().unwrap(), Search { found: None, torn: vec![] });
    let path = store.save(123, &FILES, true).unwrap();
    assert!(path.ends_with("checkpoints/000000000123"));
    let loaded = store.latest_valid().unwrap().found.unwrap();
    assert_eq!((loaded.update, loaded.best, &loaded.path), (123, true, &path));
    assert_eq!(loaded.files.len(), 3);
    for ((name, contents), (read_name, read)) in FILES.iter().zip(&loaded.files) {
        assert_eq!((*name, *contents), (read_name.as_str(), read.as_slice()));
    }
    assert_eq!(loaded.file("state.bin").unwrap(), b"some state");
    let message = loaded.file("other").unwrap_err().to_string();
    assert!(message.starts_with("checkpoint of update 123: it has no file `other`"), "{message}");
}

#[test]
fn one_checkpoint_is_read_by_its_folder_and_what_is_none_or_torn_is_refused() {
    let (folder, _store) = two();
    let reader = CheckpointReader::new(folder.path());
    let newest = reader.latest_valid().unwrap().found.unwrap();
    assert_eq!(CheckpointReader::read(&newest.path).unwrap(), newest);
    let refused = |path: &Path| CheckpointReader::read(path).unwrap_err().to_string();
    assert!(refused(folder.path()).contains("not that of a checkpoint"));
    assert!(refused(&folder.path().join("000000000777")).contains("000000000777"));
    fs::write(newest.path.join(FILES[0].0), b"torn").unwrap();
    assert!(refused(&newest.path).contains("is not used"));
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let (first, second) = (two(), two());
    for name in names(&first.0.path().join("000000000002")).unwrap() {
        let read =
            |folder: &tempfile::TempDir| fs::read(folder.path().join("000000000002").join(&name)).unwrap();
        assert_eq!(read(&first.0), read(&second.0), "{name}");
    }
}

#[test]
fn names_sort_like_updates() {
    let updates = [0, 9, 10, 123, 99_999, 1_000_000, 999_999_999_999];
    assert!(updates.map(folder_name).is_sorted());
    for update in updates.into_iter().chain([u64::MAX]) {
        assert_eq!(update_of(&folder_name(update)), Some(update));
    }
    for name in ["123", "+00000000123", "000000000x23", ".saving-000000000123", "0000000000123"] {
        assert_eq!(update_of(name), None, "{name}");
    }
}

#[test]
fn every_way_to_tear_a_checkpoint_is_noticed_and_the_one_before_is_used() {
    type Tear = (&'static str, fn(&Path));
    let tear: [Tear; 8] = [
        ("state.bin", |folder| fs::write(folder.join("state.bin"), b"some stat").unwrap()),
        ("state.bin", |folder| fs::write(folder.join("state.bin"), b"some statf").unwrap()),
        ("empty", |folder| fs::write(folder.join("empty"), b"x").unwrap()),
        ("model.safetensors", |folder| fs::remove_file(folder.join("model.safetensors")).unwrap()),
        ("manifest.json", |folder| fs::remove_file(folder.join("manifest.json")).unwrap()),
        ("manifest.json", |folder| fs::write(folder.join("manifest.json"), b"").unwrap()),
        ("manifest.json", |folder| {
            let text = fs::read_to_string(folder.join("manifest.json")).unwrap();
            fs::write(folder.join("manifest.json"), text.replace("\"best\": false", "\"best\": true"))
                .unwrap();
        }),
        ("update 1", |folder| {
            fs::copy(
                folder.with_file_name("000000000001").join("manifest.json"),
                folder.join("manifest.json"),
            )
            .unwrap();
        }),
    ];
    for (position, (culprit, tear)) in tear.into_iter().enumerate() {
        let (folder, store) = two();
        tear(&folder.path().join("000000000002"));
        let search = store.latest_valid().unwrap();
        assert_eq!(search.found.unwrap().update, 1, "case {position}");
        let [torn] = search.torn.as_slice() else { panic!("case {position}: {:?}", search.torn) };
        assert!(torn.to_string().contains("000000000002 is not used: "), "{torn}");
        assert!(torn.why.contains(culprit), "case {position}: {torn}");
    }
}

#[test]
fn no_flipped_bit_changes_what_is_read() {
    let (folder, store) = two();
    let whole = store.latest_valid().unwrap().found.unwrap();
    let mut unnoticed = 0;
    for name in ["state.bin", "manifest.json"] {
        let path = folder.path().join("000000000002").join(name);
        let bytes = fs::read(&path).unwrap();
        // Seven is coprime to eight: every bit of the eight is met, in bytes of every part of the file.
        for bit in (0..bytes.len() * 8).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).unwrap();
            let loaded = store.latest_valid().unwrap().found.unwrap();
            unnoticed += usize::from(loaded.update == 2);
            assert!(loaded.update == 1 || loaded == whole, "bit {bit} of {name}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    // Only white space of the manifest can change without harm.
    assert!(unnoticed < 10, "{unnoticed}");
}

#[test]
fn only_torn_ones_are_found_as_none_with_every_reason() {
    let (folder, store) = two();
    for update in ["000000000001", "000000000002"] {
        fs::remove_file(folder.path().join(update).join("empty")).unwrap();
    }
    let search = store.latest_valid().unwrap();
    assert_eq!((search.found, search.torn.len()), (None, 2));
}

#[test]
fn a_kill_while_saving_leaves_the_checkpoint_before() {
    for written in 0..=4 {
        let (folder, store) = two();
        // The files appear one by one, the manifest last; the folder never got its final name.
        let temporary = folder.path().join(".saving-000000000003");
        copy(&folder.path().join("000000000002"), &temporary);
        for name in ["manifest.json", "empty", "model.safetensors", "state.bin"].iter().skip(written) {
            fs::remove_file(temporary.join(name)).unwrap();
        }
        assert_eq!(found(&store), Some(2));
        let store = open(folder.path(), 9);
        assert_eq!(names(folder.path()).unwrap(), ["000000000001", "000000000002"]);
        save(&store, 3, false);
        assert_eq!(found(&store), Some(3));
    }
}

#[test]
fn a_kill_while_replacing_loses_neither() {
    // Set aside, and the new one not yet in place.
    let (folder, _) = two();
    let (path, replaced) = (folder.path().join("000000000002"), folder.path().join(".replaced-000000000002"));
    copy(&path, &folder.path().join(".saving-000000000002"));
    fs::rename(&path, &replaced).unwrap();
    assert_eq!(found(&open(folder.path(), 9)), Some(2));
    assert_eq!(names(folder.path()).unwrap(), ["000000000001", "000000000002"]);

    // In place, and the old one not yet deleted.
    copy(&path, &replaced);
    fs::write(path.join("not-listed"), "newer").unwrap();
    let store = open(folder.path(), 9);
    assert_eq!(found(&store), Some(2));
    assert!(path.join("not-listed").exists() && !replaced.exists());
}

#[test]
fn a_kill_while_pruning_leaves_nothing_that_looks_whole() {
    let (folder, _) = two();
    fs::rename(folder.path().join("000000000001"), folder.path().join(".removing-000000000001")).unwrap();
    let store = open(folder.path(), 9);
    assert_eq!(names(folder.path()).unwrap(), ["000000000002"]);
    assert_eq!(found(&store), Some(2));
}

#[test]
fn saving_the_same_update_again_replaces_it_and_keeps_the_mark() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 3);
    save(&store, 5, true);
    store.save(5, &[("other", b"x")], false).unwrap();
    let loaded = store.best().unwrap().found.unwrap();
    assert_eq!(loaded.files, [("other".to_owned(), b"x".to_vec())]);
    assert_eq!(names(folder.path()).unwrap(), ["000000000005"]);
}

#[test]
fn the_newest_are_kept_and_the_newest_best_besides() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), 2);
    let kept = |store: &CheckpointStore, update, is_best| {
        save(store, update, is_best);
        let names = names(folder.path()).unwrap();
        names.iter().map(|name| update_of(name).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&store, 1, true), [1]);
    assert_eq!(kept(&store, 2, false), [1, 2]);
    assert_eq!(kept(&store, 3, false), [1, 2, 3]);
    assert_eq!(kept(&store, 4, true), [3, 4]);
    assert_eq!(kept(&store, 5, false), [4, 5]);
    assert_eq!(kept(&store, 6, false), [4, 5, 6]);
    assert_eq!(store.best().unwrap().found.unwrap().update, 4);
    assert_eq!(found(&store), Some(6));
    // A smaller number takes effect at the next save; the newest stays even at none.
    assert_eq!(kept(&open(folder.path(), 0), 7, false), [4, 7]);
}

#[test]
fn damaged_later_ones_make_way_when_a_run_continues_from_an_earlier_one() {
    let (folder, store) = two();
    fs::remove_file(folder.path().join("000000000002").join("empty")).unwrap();
    let narrow = open(folder.path(), 1);
    assert_eq!(found(&narrow), Some(1));
    save(&narrow, 1, false);
    assert_eq!(names(folder.path()).unwrap(), ["000000000001"]);
    assert_eq!(found(&store), Some(1));
}

#[test]
fn a_whole_later_one_is_never_lost_to_an_earlier_one() {
    let (folder, store) = two();
    let message = store.save(1, &FILES, false).unwrap_err().to_string();
    assert!(
        message.contains("holds a later one, of update 2; resume from that, or move it away"),
        "{message}"
    );
    assert_eq!(names(folder.path()).unwrap(), ["000000000001", "000000000002"]);
}

#[test]
fn impossible_names_are_refused_before_anything_is_written() {
    let (folder, store) = two();
    for name in ["", ".hidden", "a/b", "..", "a b", "manifest.json"] {
        let message = store.save(3, &[(name, b"x")], false).unwrap_err().to_string();
        assert!(message.starts_with("checkpoint of update 3: `"), "{message}");
    }
    let twice = store.save(3, &[("a", b"x"), ("a", b"y")], false).unwrap_err().to_string();
    assert!(twice.contains("two files of the name `a`"), "{twice}");
    assert_eq!(names(folder.path()).unwrap(), ["000000000001", "000000000002"]);
}

#[test]
fn a_reader_changes_nothing() {
    let (folder, _) = two();
    fs::create_dir(folder.path().join(".saving-000000000003")).unwrap();
    let reader = CheckpointReader::new(folder.path());
    assert_eq!(reader.latest_valid().unwrap().found.unwrap().update, 2);
    assert_eq!(reader.updates().unwrap(), [1, 2]);
    assert_eq!(names(folder.path()).unwrap().len(), 3);
    let nowhere = CheckpointReader::new(folder.path().join("missing"));
    assert_eq!(nowhere.best().unwrap(), Search { found: None, torn: vec![] });
    assert!(!folder.path().join("missing").exists());
}
