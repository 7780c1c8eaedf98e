//! Saving checkpoints and pruning old ones. One process at a time may have a folder open for writing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST, Manifest, check_name};
use super::reader::{CheckpointReader, Search, names};
use super::{folder_name, update_of};
use crate::codec::CodecError;
use crate::codec::atomic::{flush_folder, flush_name, rename_durably, write_durably};

const SAVING: &str = ".saving-";
const REPLACED: &str = ".replaced-";
const REMOVING: &str = ".removing-";

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// How many of the newest; the very newest is kept even at 0.
    pub keep: usize,
}

/// A checkpoint whose files are written and durable, and that does not have its name yet: until it has, a reader finds
/// what was there before. One that is dropped so is removed when the folder is opened or written to again.
#[derive(Debug)]
#[must_use = "a checkpoint without its name does not exist"]
pub struct WrittenCheckpoint<'a> {
    store: &'a CheckpointStore,
    update: u64,
    temporary: PathBuf,
    /// Damaged checkpoints that this one takes the place of.
    abandoned: Vec<u64>,
}

/// A folder of checkpoints, open for writing.
#[derive(Debug)]
pub struct CheckpointStore {
    reader: CheckpointReader,
    policy: CheckpointPolicy,
}

impl CheckpointStore {
    /// Opens `folder`, which is created when it is missing, and finishes or removes what a killed process left.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn open(folder: impl Into<PathBuf>, policy: CheckpointPolicy) -> Result<Self, CodecError> {
        let store = Self { reader: CheckpointReader::new(folder), policy };
        let folder = store.reader.folder();
        fs::create_dir_all(folder).map_err(CodecError::io("create", folder))?;
        flush_name(folder)?;
        for name in names(folder)? {
            let path = folder.join(&name);
            if let Some(update) = name.strip_prefix(REPLACED).and_then(update_of) {
                // Killed between setting the older one aside and giving its name to the newer one.
                if !store.reader.path(update).exists() {
                    rename_durably(&path, &store.reader.path(update))?;
                    continue;
                }
            }
            if [SAVING, REPLACED, REMOVING].iter().any(|prefix| name.starts_with(prefix)) {
                delete(&path)?;
            }
        }
        Ok(store)
    }

    /// Saves files under their names as the checkpoint of `update`, prunes old checkpoints, and returns its folder.
    ///
    /// A checkpoint of the same update is replaced; if that one was marked best, so is the new one. Damaged checkpoints
    /// of later updates, which a resumed run has passed over, are removed.
    ///
    /// # Errors
    /// When a name is not a plain file name, a whole checkpoint of a later update exists, or the file system refuses.
    /// Unless it is the pruning that fails, the folder then holds what it held before.
    pub fn save<N: AsRef<str>, B: AsRef<[u8]>>(
        &self,
        update: u64,
        files: &[(N, B)],
        is_best: bool,
    ) -> Result<PathBuf, CodecError> {
        self.write(update, files, is_best)?.put_in_place()
    }

    /// The first half of [`Self::save`]: all that takes long.
    ///
    /// # Errors
    /// As for [`Self::save`].
    pub fn write<N: AsRef<str>, B: AsRef<[u8]>>(
        &self,
        update: u64,
        files: &[(N, B)],
        is_best: bool,
    ) -> Result<WrittenCheckpoint<'_>, CodecError> {
        let impossible = |why| CodecError::Checkpoint { update, why };
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, contents)| (name.as_ref(), contents.as_ref())).collect();
        for (position, (name, _)) in files.iter().enumerate() {
            check_name(name).map_err(impossible)?;
            if files[..position].iter().any(|(earlier, _)| earlier == name) {
                return Err(impossible(format!("there are two files of the name `{name}`")));
            }
        }
        let abandoned = self.abandoned(update)?;

        let best = is_best || self.reader.manifest(update).is_ok_and(|replaced| replaced.best);
        let temporary = self.work(SAVING, update);
        delete(&temporary)?;
        let manifest = Manifest::new(update, best, files.iter().copied());
        or_delete(&temporary, write_folder(&temporary, &manifest, &files))?;
        Ok(WrittenCheckpoint { store: self, update, temporary, abandoned })
    }

    /// The newest checkpoint that is whole; see [`CheckpointReader::latest_valid`].
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn latest_valid(&self) -> Result<Search, CodecError> {
        self.reader.latest_valid()
    }

    /// The newest checkpoint that is whole and was marked best; see [`CheckpointReader::best`].
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn best(&self) -> Result<Search, CodecError> {
        self.reader.best()
    }

    /// Damaged checkpoints after `update`. They would count as newer than the one about to be saved.
    fn abandoned(&self, update: u64) -> Result<Vec<u64>, CodecError> {
        let later: Vec<u64> = self.reader.updates()?.into_iter().filter(|&known| known > update).collect();
        match later.iter().find(|&&known| self.reader.load(known, |_| true).is_ok()) {
            None => Ok(later),
            Some(whole) => Err(CodecError::Checkpoint {
                update,
                why: format!(
                    "{} holds a later one, of update {whole}; resume from that, or move it away",
                    self.reader.folder().display()
                ),
            }),
        }
    }

    fn put_in_place(&self, temporary: &Path, update: u64) -> Result<(), CodecError> {
        let path = self.reader.path(update);
        let replaced = self.work(REPLACED, update);
        if path.exists() {
            rename_durably(&path, &replaced)?;
        }
        rename_durably(temporary, &path)?;
        delete(&replaced)
    }

    fn prune(&self) -> Result<(), CodecError> {
        let updates = self.reader.updates()?;
        let marked = |update: &u64| self.reader.manifest(*update).is_ok_and(|manifest| manifest.best);
        let best = updates.iter().copied().rev().find(marked);
        let surplus = updates.len().saturating_sub(self.policy.keep.max(1));
        for &update in updates[..surplus].iter().filter(|&&update| Some(update) != best) {
            self.remove(update)?;
        }
        Ok(())
    }

    /// Takes the name away first, so that a half-deleted folder is never read as a checkpoint.
    fn remove(&self, update: u64) -> Result<(), CodecError> {
        let removing = self.work(REMOVING, update);
        delete(&removing)?;
        rename_durably(&self.reader.path(update), &removing)?;
        delete(&removing)
    }

    fn work(&self, prefix: &str, update: u64) -> PathBuf {
        self.reader.folder().join(format!("{prefix}{}", folder_name(update)))
    }
}

impl WrittenCheckpoint<'_> {
    /// The second half of [`CheckpointStore::save`]: gives it its name and prunes old ones; returns its folder.
    ///
    /// # Errors
    /// As for [`CheckpointStore::save`].
    pub fn put_in_place(self) -> Result<PathBuf, CodecError> {
        let Self { store, update, temporary, abandoned } = self;
        or_delete(&temporary, store.put_in_place(&temporary, update))?;
        for update in abandoned {
            store.remove(update)?;
        }
        store.prune()?;
        Ok(store.reader.path(update))
    }
}

/// What was to be done, or else the folder is deleted.
fn or_delete(temporary: &Path, done: Result<(), CodecError>) -> Result<(), CodecError> {
    if done.is_err() {
        // The failure to report is the first one; a leftover is removed at the next chance.
        let _ = delete(temporary);
    }
    done
}

/// Writes and flushes the files, then the manifest that vouches for them, then the folder's own list of names.
fn write_folder(path: &Path, manifest: &Manifest, files: &[(&str, &[u8])]) -> Result<(), CodecError> {
    fs::create_dir(path).map_err(CodecError::io("create", path))?;
    for (name, contents) in files {
        write_durably(&path.join(name), contents)?;
    }
    write_durably(&path.join(MANIFEST), &manifest.to_bytes())?;
    flush_folder(path)
}

/// Deletes a folder, if it is there.
fn delete(path: &Path) -> Result<(), CodecError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(CodecError::io("delete", path)(error)),
        _ => Ok(()),
    }
}
