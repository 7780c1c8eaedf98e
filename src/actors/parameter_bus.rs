//! The parameter bus: the learner publishes immutable versions, readers take the latest whole one.
//!
//! A published version is a deep copy that the learner never touches again, so a reader sees one version and not a
//! mixture. It lives in host memory, or in a token run on the learner's device; a reader on another device copies it
//! there once for each version it uses. Each reader notes the version it works with, so that lag is known for every
//! actor and not only for those whose experience is in the current batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::policy::{Normalizer, Parameters};
use crate::trajectory::Version;

/// One published version: everything a policy needs.
#[derive(Debug)]
pub struct Published {
    /// How many updates it is made of.
    pub version: Version,
    /// The parameters, in host memory or on the learner's device.
    pub parameters: Parameters,
    /// Observation statistics of the same moment, when observations are normalised.
    pub normalizer: Option<Normalizer>,
}

/// The bus. Cheap to read: one lock held for a pointer copy.
#[derive(Debug)]
pub struct ParameterBus {
    latest: RwLock<Arc<Published>>,
    readers: Vec<AtomicU64>,
}

impl ParameterBus {
    /// A bus with its first version, for a fixed number of readers.
    #[must_use]
    pub fn new(first: Published, readers: usize) -> Self {
        let version = first.version.0;
        Self {
            latest: RwLock::new(Arc::new(first)),
            readers: (0..readers).map(|_| AtomicU64::new(version)).collect(),
        }
    }

    /// Replaces the latest version.
    pub fn publish(&self, published: Published) {
        *self.latest.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }

    /// The latest version, without noting who reads it.
    #[must_use]
    pub fn latest(&self) -> Arc<Published> {
        Arc::clone(&self.latest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest version, which `reader` works with from now on.
    #[must_use]
    pub fn read_as(&self, reader: usize) -> Arc<Published> {
        let published = self.latest();
        self.readers[reader].store(published.version.0, Ordering::Relaxed);
        published
    }

    /// Notes that `reader` was given the work of `version` by somebody else (central inference).
    pub fn note(&self, reader: usize, version: Version) {
        self.readers[reader].store(version.0, Ordering::Relaxed);
    }

    /// How many updates each reader is behind `current`.
    pub fn lags(&self, current: Version) -> impl Iterator<Item = u64> {
        self.readers.iter().map(move |version| current.lag_of(Version(version.load(Ordering::Relaxed))))
    }
}
