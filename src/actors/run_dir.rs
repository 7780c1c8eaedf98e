//! The run directory: created or refused before anything else happens.
//!
//! `config.toml` (resolved), `metrics.jsonl`, `summary.json`, `checkpoints/`, TensorBoard events, `report.html`.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::codec::write_atomically;

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// There is something in it.
    #[error("run directory {} is not empty; choose another with --run-dir, or continue it with --resume", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Another process is using it.
    #[error("run directory {} is in use by another process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It, or a file in it, cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's account.
        source: io::Error,
    },
}

/// An opened run directory; locked against other processes while it lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

impl RunDir {
    /// The folder of checkpoints.
    pub const CHECKPOINTS: &'static str = "checkpoints";
    /// The resolved configuration.
    pub const CONFIG: &'static str = "config.toml";
    const LOCK: &'static str = ".lock";
    const ADDRESS: &'static str = "address.txt";

    /// Creates the directory, or opens an existing one to resume. What is in it stays as it is.
    ///
    /// # Errors
    /// When it is not empty (without `resume`), in use, or cannot be written.
    pub fn prepare(path: &Path, resume: bool) -> Result<Self, RunDirError> {
        let occupied = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        if occupied && !resume {
            return Err(RunDirError::NotEmpty { path: path.into() });
        }
        fs::create_dir_all(path).map_err(write(path))?;
        let lock_path = path.join(Self::LOCK);
        let lock = File::create(&lock_path).map_err(write(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(RunDirError::InUse { path: path.into() }),
            Err(fs::TryLockError::Error(source)) => return Err(write(&lock_path)(source)),
        }
        Ok(Self { path: path.into(), _lock: lock })
    }

    /// Saves the resolved configuration, in place of an earlier one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_config(&self, config: &impl Serialize) -> Result<(), RunDirError> {
        let path = self.path.join(Self::CONFIG);
        let text =
            toml::to_string(config).map_err(|error| write(&path)(io::Error::other(error.to_string())))?;
        write_atomically(&path, text.as_bytes())
            .map_err(|error| write(&path)(io::Error::other(error.to_string())))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its last component, as the run's name.
    #[must_use]
    pub fn name(&self) -> String {
        let absolute = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The folder of checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(Self::CHECKPOINTS)
    }

    /// Records where metrics are served.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_address(&self, address: SocketAddr) -> Result<(), RunDirError> {
        let path = self.path.join(Self::ADDRESS);
        fs::write(&path, format!("{address}\n")).map_err(|source| RunDirError::Write { path, source })
    }
}

fn write(path: &Path) -> impl FnOnce(io::Error) -> RunDirError {
    let path = path.to_owned();
    move |source| RunDirError::Write { path, source }
}
