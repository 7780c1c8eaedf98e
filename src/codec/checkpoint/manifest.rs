//! The list of a folder's files with their lengths and checksums: how a torn checkpoint is told from a whole one.
//!
//! The manifest is written last and carries a checksum of itself, so it vouches for everything beside it. It is JSON,
//! for people to read.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name of the manifest in its folder.
pub(super) const MANIFEST: &str = "manifest.json";

const FORMAT: u32 = 1;

/// Far above any real manifest.
const LARGEST: u64 = 1 << 20;

/// What a checkpoint folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Version of this format.
    format: u32,
    /// The update after which the checkpoint was taken.
    pub(super) update: u64,
    /// Whether it was the best of the run when it was taken.
    pub(super) best: bool,
    /// In the order in which they were given.
    files: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    length: u64,
    crc32c: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    /// Of the manifest as compact JSON.
    crc32c: u32,
}

impl Manifest {
    pub(super) fn new<'a>(update: u64, best: bool, files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let entry = |(name, contents): (&str, &[u8])| Entry {
            name: name.to_owned(),
            length: contents.len() as u64,
            crc32c: crc32c::crc32c(contents),
        };
        Self { format: FORMAT, update, best, files: files.map(entry).collect() }
    }

    /// The contents of the manifest file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let sealed = Sealed { manifest: self.clone(), crc32c: self.checksum() };
        let mut text = serde_json::to_vec_pretty(&sealed).expect("a manifest is plain data");
        text.push(b'\n');
        text
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&serde_json::to_vec(self).expect("a manifest is plain data"))
    }

    /// Reads the manifest of a folder, without looking at the files beside it.
    ///
    /// # Errors
    /// A sentence that says why it cannot be relied on.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let bytes = read_file(&folder.join(MANIFEST), None).map_err(|why| format!("`{MANIFEST}` {why}"))?;
        let sealed: Sealed = serde_json::from_slice(&bytes)
            .map_err(|error| format!("`{MANIFEST}` is not a manifest: {error}"))?;
        let Sealed { manifest, crc32c } = sealed;
        if manifest.format != FORMAT {
            return Err(format!("it has format {}, this build reads {FORMAT}", manifest.format));
        }
        if manifest.checksum() != crc32c {
            return Err(format!("`{MANIFEST}` is damaged: its checksum does not match"));
        }
        Ok(manifest)
    }

    /// Reads the listed files, in the order of the list; files that are not listed are not looked at.
    ///
    /// # Errors
    /// A sentence that names the first file that is missing or damaged.
    pub(super) fn read_files(&self, folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
        let read = |entry: &Entry| {
            let Entry { name, length, crc32c } = entry;
            check_name(name)?;
            let contents =
                read_file(&folder.join(name), Some(*length)).map_err(|why| format!("`{name}` {why}"))?;
            if crc32c::crc32c(&contents) != *crc32c {
                return Err(format!("`{name}` is damaged: its checksum does not match"));
            }
            Ok((name.clone(), contents))
        };
        self.files.iter().map(read).collect()
    }
}

/// Reads a file after looking at its length: exactly `expected` bytes, or any reasonable number.
fn read_file(path: &Path, expected: Option<u64>) -> Result<Vec<u8>, String> {
    let length = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    match expected {
        Some(expected) if length != expected => {
            return Err(format!("is torn: it has {length} bytes, not {expected}"));
        }
        None if length > LARGEST => return Err(format!("has {length} bytes, which is too many")),
        _ => {}
    }
    fs::read(path).map_err(|error| format!("cannot be read: {error}"))
}

/// Whether a name stays inside the folder and apart from the manifest.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("`{name}` is not a file name of letters, digits, `.`, `_` and `-`"));
    }
    if name == MANIFEST {
        return Err(format!("`{MANIFEST}` is the name of the list itself"));
    }
    Ok(())
}
