//! A corpus: graded answers on disk, to pretrain a critic on.
//!
//! ```text
//! corpus.bin                what it is and how many files follow; written last, so that a folder without it is not whole
//! rollouts-000000.bin …     groups of answers, in the codec's envelope
//! model/                    tokenizer and shape of the model that answered
//! policy.safetensors        its parameters, where they are not those that the configuration names
//! ```
//!
//! Of an answer its tokens, turns, log-probabilities and grade are kept; prompts once for a group. Everything that is
//! read is checked: format, checksums, and that there is as much as the description says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::decoder_file::DecoderFile;
use crate::codec::{self, CodecError, Kind, write_atomically};
use crate::trajectory::{Finish, Group, Reward, Trajectory, TrajectoryId, Version};

/// What the envelope of the description says it holds.
const DESCRIPTION: Kind = Kind::new(*b"CORP");
/// What that of a file of groups says.
const ROLLOUTS: Kind = Kind::new(*b"ROLL");
/// Format of both.
const FORMAT: u32 = 1;
/// Name of the description.
const FILE: &str = "corpus.bin";
/// Name of the policy's parameters.
const POLICY: &str = "policy.safetensors";
/// Tokens at which a file of groups is full: a few megabytes.
const FILE_TOKENS: usize = 1 << 19;
/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 31;

/// Why a corpus cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// There is something in the folder.
    #[error("{} is not empty; choose another directory for the corpus", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// There is no whole corpus.
    #[error(
        "{} is not there: the directory holds no corpus, or one whose collection was interrupted; collect it anew",
        path.display()
    )]
    Incomplete {
        /// The file that is missing.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{}: {source}; collect the corpus anew or put the file back from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        source: CodecError,
    },
    /// A file does not hold what the description says.
    #[error("{}: {why}; collect the corpus anew", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's account.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("the corpus cannot be written: {0}")]
    Write(#[source] CodecError),
}

/// What a corpus is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorpusDescription {
    format: u32,
    /// Name of the task.
    pub task: String,
    /// Version of the policy that answered.
    pub version: Version,
    /// Sampling temperature.
    pub temperature: f32,
    /// Answers.
    pub trajectories: u64,
    /// Tokens after the prompts.
    pub tokens: u64,
    /// Mean reward of the answers that were graded.
    pub reward_mean: f64,
    /// Answers that could not be graded; they are in the corpus without a reward.
    pub grading_errors: u64,
    /// Groups in each of the files, in order.
    groups: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredGroup {
    epoch: u32,
    prompt: u32,
    source: String,
    /// Base budget of new tokens.
    budget: Option<u64>,
    /// Prompts that differ, by the efforts that were asked for.
    prompts: Vec<Vec<u32>>,
    members: Vec<StoredAnswer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredAnswer {
    member: u16,
    /// Which of the group's prompts it answers.
    prompt: u16,
    tokens: Vec<u32>,
    /// Of the actions alone.
    log_probs: Vec<f32>,
    /// Lengths of the runs of actions and observations in turn, actions first.
    turns: Vec<u32>,
    finish: Option<Finish>,
    reward: Option<Reward>,
}

impl StoredAnswer {
    fn new(trajectory: &Trajectory, prompt: u16) -> Self {
        let runs = trajectory.is_action.chunk_by(|a, b| a == b).map(|run| run.len() as u32);
        // A trajectory that begins with an observation has no actions before it.
        let begins_late = trajectory.is_action.first() == Some(&false);
        Self {
            member: trajectory.id.member,
            prompt,
            tokens: trajectory.tokens.clone(),
            log_probs: trajectory.actions().map(|index| trajectory.log_probs[index]).collect(),
            turns: begins_late.then_some(0).into_iter().chain(runs).collect(),
            finish: trajectory.finish,
            reward: trajectory.reward.clone(),
        }
    }

    fn restore(self, id: TrajectoryId, prompt: Arc<[u32]>, version: Version) -> Result<Trajectory, String> {
        let total: u64 = self.turns.iter().map(|&length| u64::from(length)).sum();
        let actions: u64 = self.turns.iter().step_by(2).map(|&length| u64::from(length)).sum();
        if total != self.tokens.len() as u64 || actions != self.log_probs.len() as u64 {
            return Err(format!("answer {id} has turns of {total} tokens, but {} tokens", self.tokens.len()));
        }
        let mut trajectory = Trajectory::new(id, prompt);
        let (mut tokens, mut log_probs) = (self.tokens.as_slice(), self.log_probs.iter());
        for (turn, &length) in self.turns.iter().enumerate() {
            let (own, rest) = tokens.split_at(length as usize);
            tokens = rest;
            if turn % 2 == 0 {
                let sampled = own.iter().zip(&mut log_probs);
                sampled.for_each(|(&token, &log_prob)| trajectory.push_action(token, log_prob, version));
            } else {
                trajectory.push_observation(own, version);
            }
        }
        trajectory.finish = self.finish;
        trajectory.reward = self.reward;
        Ok(trajectory)
    }
}

impl StoredGroup {
    fn new(group: &Group) -> Self {
        let mut prompts: Vec<&Arc<[u32]>> = Vec::new();
        let mut place = |prompt| {
            prompts.iter().position(|known| *known == prompt).unwrap_or_else(|| {
                prompts.push(prompt);
                prompts.len() - 1
            })
        };
        let answer = |member| StoredAnswer::new(member, place(&member.prompt) as u16);
        Self {
            epoch: group.epoch,
            prompt: group.prompt,
            source: group.source.to_string(),
            budget: group.budget,
            members: group.members.iter().map(answer).collect(),
            prompts: prompts.into_iter().map(|prompt| prompt.to_vec()).collect(),
        }
    }

    fn restore(self, version: Version) -> Result<Group, String> {
        let (epoch, prompt) = (self.epoch, self.prompt);
        let prompts: Vec<Arc<[u32]>> = self.prompts.into_iter().map(Arc::from).collect();
        if prompts.iter().any(|prompt| prompt.is_empty()) || self.members.is_empty() {
            return Err(format!("group {epoch}/{prompt} has an empty prompt or no answer"));
        }
        let members = self.members.into_iter().map(|stored| {
            let id = TrajectoryId { epoch, prompt, member: stored.member, attempt: 0 };
            let own = prompts.get(usize::from(stored.prompt));
            let own = own.ok_or_else(|| format!("answer {id} answers a prompt that its group lacks"))?;
            stored.restore(id, Arc::clone(own), version)
        });
        let members = members.collect::<Result<_, _>>()?;
        Ok(Group { epoch, prompt, source: self.source.into(), budget: self.budget, members })
    }
}

fn rollouts(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("rollouts-{index:06}.bin"))
}

/// Writes a corpus, group by group.
pub(super) struct CorpusWriter {
    folder: PathBuf,
    description: CorpusDescription,
    rewards: (f64, u64),
    pending: Vec<StoredGroup>,
    pending_tokens: usize,
}

impl CorpusWriter {
    /// Creates the folder.
    ///
    /// # Errors
    /// When it is not empty or cannot be created.
    pub(super) fn create(
        folder: &Path,
        task: String,
        version: Version,
        temperature: f32,
    ) -> Result<Self, CorpusError> {
        if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(CorpusError::NotEmpty { path: folder.into() });
        }
        let failed = |source| CorpusError::Io { path: folder.into(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let description = CorpusDescription {
            format: FORMAT,
            task,
            version,
            temperature,
            trajectories: 0,
            tokens: 0,
            reward_mean: 0.0,
            grading_errors: 0,
            groups: Vec::new(),
        };
        let folder = folder.to_owned();
        Ok(Self { folder, description, rewards: (0.0, 0), pending: Vec::new(), pending_tokens: 0 })
    }

    /// Puts the policy's parameters beside the answers.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn put_policy(&self, policy: &DecoderFile) -> Result<(), CorpusError> {
        let path = self.folder.join(POLICY);
        let wrong = |why: String| CorpusError::Wrong { path: path.clone(), why };
        write_atomically(&path, &policy.to_bytes().map_err(wrong)?).map_err(CorpusError::Write)
    }

    /// Answers so far.
    pub(super) fn trajectories(&self) -> u64 {
        self.description.trajectories
    }

    /// Adds a group.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn push(&mut self, group: &Group) -> Result<(), CorpusError> {
        self.description.trajectories += group.members.len() as u64;
        self.description.tokens += group.token_count();
        for reward in group.rewards() {
            match reward {
                Some(reward) => self.rewards = (self.rewards.0 + reward, self.rewards.1 + 1),
                None => self.description.grading_errors += 1,
            }
        }
        let prompts = group.members.first().map_or(0, |member| member.prompt.len());
        self.pending_tokens += prompts + group.token_count() as usize;
        self.pending.push(StoredGroup::new(group));
        if self.pending_tokens >= FILE_TOKENS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), CorpusError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = codec::encode(ROLLOUTS, &self.pending).map_err(CorpusError::Write)?;
        let path = rollouts(&self.folder, self.description.groups.len());
        write_atomically(&path, &bytes).map_err(CorpusError::Write)?;
        self.description.groups.push(self.pending.len() as u64);
        self.pending.clear();
        self.pending_tokens = 0;
        Ok(())
    }

    /// Writes what is left and the description.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn finish(mut self) -> Result<CorpusDescription, CorpusError> {
        self.flush()?;
        self.description.reward_mean = self.rewards.0 / self.rewards.1.max(1) as f64;
        let bytes = codec::encode(DESCRIPTION, &self.description).map_err(CorpusError::Write)?;
        write_atomically(&self.folder.join(FILE), &bytes).map_err(CorpusError::Write)?;
        Ok(self.description)
    }
}

/// A corpus to read.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
    description: CorpusDescription,
}

impl Corpus {
    /// Reads the description of a corpus.
    ///
    /// # Errors
    /// When it is not there or damaged.
    pub fn open(folder: &Path) -> Result<Self, CorpusError> {
        let path = folder.join(FILE);
        let description: CorpusDescription = read(DESCRIPTION, &path)?;
        if description.format != FORMAT {
            let why = format!("it has format {}, this build reads {FORMAT}", description.format);
            return Err(CorpusError::Wrong { path, why });
        }
        Ok(Self { folder: folder.into(), description })
    }

    /// What it is.
    #[must_use]
    pub fn description(&self) -> &CorpusDescription {
        &self.description
    }

    /// The policy that answered, where the corpus has it.
    ///
    /// # Errors
    /// When the file is damaged.
    pub(super) fn policy(&self) -> Result<Option<DecoderFile>, String> {
        let path = self.folder.join(POLICY);
        path.exists().then(|| DecoderFile::read(&path)).transpose()
    }

    /// All its groups, in the order of their collection.
    ///
    /// # Errors
    /// When a file is missing, damaged, or does not hold what the description says.
    pub fn groups(&self) -> Result<Vec<Group>, CorpusError> {
        let mut groups = Vec::new();
        let mut trajectories = 0;
        for (index, &count) in self.description.groups.iter().enumerate() {
            let path = rollouts(&self.folder, index);
            let stored: Vec<StoredGroup> = read(ROLLOUTS, &path)?;
            let wrong = |why: String| CorpusError::Wrong { path: path.clone(), why };
            if stored.len() as u64 != count {
                return Err(wrong(format!("it has {} groups, the description {count}", stored.len())));
            }
            for group in stored {
                let group = group.restore(self.description.version).map_err(wrong)?;
                trajectories += group.members.len() as u64;
                groups.push(group);
            }
        }
        if trajectories != self.description.trajectories {
            let told = self.description.trajectories;
            let why = format!("it tells of {told} answers, but there are {trajectories}");
            return Err(CorpusError::Wrong { path: self.folder.join(FILE), why });
        }
        Ok(groups)
    }
}

fn read<T: serde::de::DeserializeOwned>(kind: Kind, path: &Path) -> Result<T, CorpusError> {
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CorpusError::Incomplete { path: path.into() },
        _ => CorpusError::Io { path: path.into(), source },
    })?;
    codec::decode(kind, &bytes, MAX_BYTES)
        .map_err(|source| CorpusError::Damaged { path: path.into(), source })
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod tests;
