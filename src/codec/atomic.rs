//! Files that are either whole or not there, whatever kills the process or the machine in between.
//!
//! A file is written under a hidden temporary name beside its target, flushed to the disk, renamed over the target,
//! and the folder is flushed too, so that the new name survives a power cut. One process at a time may write a target.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::CodecError;

/// Replaces the file at `path` by one with these contents; readers see the old or the new, never a part.
///
/// # Errors
/// When the file system refuses; the old file is then still there.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), CodecError> {
    let temporary = temporary_name(path);
    let written = write_durably(&temporary, contents).and_then(|()| rename_durably(&temporary, path));
    if written.is_err() {
        // The failure to report is the first one; a leftover is overwritten by the next attempt.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".partial-");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Writes a new file and flushes it to the disk.
pub(super) fn write_durably(path: &Path, contents: &[u8]) -> Result<(), CodecError> {
    let mut file = File::create(path).map_err(CodecError::io("create", path))?;
    file.write_all(contents).map_err(CodecError::io("write", path))?;
    file.sync_all().map_err(CodecError::io("flush", path))
}

/// Renames a file or folder and flushes the folder that the new name is in.
pub(super) fn rename_durably(from: &Path, to: &Path) -> Result<(), CodecError> {
    fs::rename(from, to).map_err(CodecError::io("rename to its final name", to))?;
    flush_name(to)
}

/// Makes the name of a file or folder durable, by flushing the folder that it is in.
pub(super) fn flush_name(path: &Path) -> Result<(), CodecError> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => flush_folder(folder),
        _ => flush_folder(Path::new(".")),
    }
}

/// Makes the names in a folder durable. Only Unix can; elsewhere the file system orders this by itself.
pub(super) fn flush_folder(folder: &Path) -> Result<(), CodecError> {
    if cfg!(unix) {
        let handle = File::open(folder).map_err(CodecError::io("open", folder))?;
        handle.sync_all().map_err(CodecError::io("flush", folder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_created_and_replaced_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        for contents in [&b"first, and longer"[..], b"second"] {
            write_atomically(&path, contents).unwrap();
            assert_eq!(fs::read(&path).unwrap(), contents);
            assert_eq!(names(folder.path()), ["summary.json"]);
        }
    }

    #[test]
    fn a_leftover_of_a_killed_writer_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(temporary_name(&path), "half").unwrap();
        write_atomically(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("a");
        let message = write_atomically(&missing, b"x").unwrap_err().to_string();
        assert!(message.starts_with("cannot create ") && message.contains(".partial-a"), "{message}");

        // A folder cannot be replaced by a file, so the rename fails after a complete write.
        let occupied = folder.path().join("occupied");
        fs::create_dir_all(occupied.join("inside")).unwrap();
        assert!(write_atomically(&occupied, b"x").is_err());
        assert_eq!(names(folder.path()), ["occupied"]);
    }
}
