//! Looking for a whole checkpoint, newest first. Reading changes nothing, so it may run beside a writer.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::{folder_name, update_of};
use crate::codec::CodecError;

/// The checkpoints in a folder.
#[derive(Debug, Clone)]
pub struct CheckpointReader {
    folder: PathBuf,
}

/// A checkpoint that was verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The update after which it was taken.
    pub update: u64,
    /// Whether it was the best of the run when it was taken.
    pub best: bool,
    /// Its folder.
    pub path: PathBuf,
    /// Name and contents of each file, in the order in which they were saved.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Loaded {
    /// The contents of one file.
    ///
    /// # Errors
    /// When the checkpoint has no file of that name.
    pub fn file(&self, name: &str) -> Result<&[u8], CodecError> {
        let found = self.files.iter().find(|(known, _)| known == name);
        found.map(|(_, contents)| contents.as_slice()).ok_or_else(|| CodecError::Checkpoint {
            update: self.update,
            why: format!("it has no file `{name}`; it was saved by another kind of run"),
        })
    }
}

/// A checkpoint that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornCheckpoint {
    /// Its folder.
    pub path: PathBuf,
    /// The first thing that is wrong with it.
    pub why: String,
}

impl std::fmt::Display for TornCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoint {} is not used: {}", self.path.display(), self.why)
    }
}

/// The outcome of looking for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The first usable one.
    pub found: Option<Loaded>,
    /// Those that would have come before it, each to be reported as a warning.
    pub torn: Vec<TornCheckpoint>,
}

impl CheckpointReader {
    /// Looks in `folder`, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder of the checkpoints.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The updates of which there is a checkpoint, whole or not, oldest first.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn updates(&self) -> Result<Vec<u64>, CodecError> {
        let mut updates: Vec<u64> = names(&self.folder)?.iter().filter_map(|name| update_of(name)).collect();
        updates.sort_unstable();
        Ok(updates)
    }

    /// The newest checkpoint that is whole.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn latest_valid(&self) -> Result<Search, CodecError> {
        self.search(|_| true)
    }

    /// The newest checkpoint that is whole and was marked as the best so far.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn best(&self) -> Result<Search, CodecError> {
        self.search(|manifest| manifest.best)
    }

    /// The checkpoint in a folder of its own, such as `checkpoints/000000000123`.
    ///
    /// # Errors
    /// When it is none, or is not whole.
    pub fn read(path: &Path) -> Result<Loaded, TornCheckpoint> {
        let torn = |why: &str| TornCheckpoint { path: path.to_owned(), why: why.to_owned() };
        let name = path.file_name().and_then(|name| name.to_str()).and_then(update_of);
        let (Some(update), Some(folder)) = (name, path.parent()) else {
            return Err(torn("its name is not that of a checkpoint"));
        };
        let loaded = Self::new(folder).load(update, |_| true).map_err(|why| torn(&why))?;
        loaded.ok_or_else(|| torn("it is not there"))
    }

    fn search(&self, wanted: impl Fn(&Manifest) -> bool) -> Result<Search, CodecError> {
        let mut torn = Vec::new();
        for update in self.updates()?.into_iter().rev() {
            match self.load(update, &wanted) {
                Ok(None) => {}
                Ok(found) => return Ok(Search { found, torn }),
                Err(why) => torn.push(TornCheckpoint { path: self.path(update), why }),
            }
        }
        Ok(Search { found: None, torn })
    }

    pub(super) fn path(&self, update: u64) -> PathBuf {
        self.folder.join(folder_name(update))
    }

    /// Only the manifest, which says nothing about the state of the other files.
    pub(super) fn manifest(&self, update: u64) -> Result<Manifest, String> {
        let manifest = Manifest::read(&self.path(update))?;
        if manifest.update == update {
            Ok(manifest)
        } else {
            Err(format!("it says that it is of update {}", manifest.update))
        }
    }

    /// Verifies and reads a checkpoint, unless it is not one of those wanted.
    pub(super) fn load(
        &self,
        update: u64,
        wanted: impl Fn(&Manifest) -> bool,
    ) -> Result<Option<Loaded>, String> {
        let manifest = self.manifest(update)?;
        if !wanted(&manifest) {
            return Ok(None);
        }
        let path = self.path(update);
        let files = manifest.read_files(&path)?;
        Ok(Some(Loaded { update, best: manifest.best, path, files }))
    }
}

/// The names in a folder; none when there is no folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, CodecError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(CodecError::io("list", folder))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(CodecError::io("list", folder))?.file_name();
        names.extend(name.into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}
