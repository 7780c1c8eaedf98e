//! What a language model generated: token records, trajectories, groups.
//!
//! Tokens go in as tokens and stay tokens: the prompt and everything after it are never encoded a second time. Every
//! array of a [`Trajectory`] that is indexed by its tokens has exactly one entry for each.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Version;

/// Which trajectory. It is also the key of its random draws, so that no scheduling changes what is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TrajectoryId {
    /// Pass over the task's problems.
    pub epoch: u32,
    /// Index of the problem.
    pub prompt: u32,
    /// Member of its group.
    pub member: u16,
    /// How often it was begun anew.
    pub attempt: u16,
}

impl TrajectoryId {
    /// Counters of the random draw for the token at `position` of the sequence (prompt included).
    #[must_use]
    pub fn counters(self, position: u32) -> [u32; 4] {
        [self.epoch, self.prompt, u32::from(self.member) << 16 | u32::from(self.attempt), position]
    }
}

impl std::fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.epoch, self.prompt, self.member, self.attempt)
    }
}

/// Why a trajectory goes on no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its answer: an end token or a stop string. The task's end is terminal.
    Stop,
    /// The budget of new tokens was used up: truncated, not terminal.
    Length,
    /// The model's context was full: truncated, not terminal.
    Context,
    /// The model had begun to repeat itself and was stopped: truncated, not terminal.
    Repetition,
}

impl Finish {
    /// Whether the model ended by itself; otherwise the trajectory was cut off.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self == Self::Stop
    }
}

/// A grade: the number that is learned from and what it is made of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reward {
    /// What is learned from.
    pub value: f64,
    /// Named parts, for reports and for graders that combine them.
    pub parts: Vec<(String, f64)>,
}

impl Reward {
    /// A reward of one part.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self { value, parts: Vec::new() }
    }

    /// The part of that name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<f64> {
        self.parts.iter().find(|(own, _)| own == name).map(|&(_, score)| score)
    }
}

/// A maximal run of tokens that were sampled under one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Positions in the trajectory's tokens.
    pub tokens: Range<usize>,
    /// The version.
    pub version: Version,
}

/// A prompt and what followed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// Which one.
    pub id: TrajectoryId,
    /// Token ids of the prompt, shared by the members of a group.
    pub prompt: Arc<[u32]>,
    /// Token ids after the prompt: actions of the model, and observations of the task between its turns.
    pub tokens: Vec<u32>,
    /// Log-probability of each action when it was sampled, under the sampling temperature; 0 for observations.
    pub log_probs: Vec<f32>,
    /// Version that sampled each action; an observation has the version that was current when it was appended.
    pub versions: Vec<Version>,
    /// Whether each token was sampled by the model.
    pub is_action: Vec<bool>,
    /// Experts chosen for each token that went through the model, `[positions, MoE layers, experts a token]`, from the
    /// prompt's first token to the last but one of all; empty for a dense model or when not recorded.
    pub experts: Vec<u16>,
    /// Tokens that each action was sampled among, when the sampling was restricted to some of them (top-k, top-p):
    /// how many for each token, and their ids one after another. Empty when unrestricted.
    pub candidates: Vec<Vec<u32>>,
    /// Why it ended; `None` while it goes on.
    pub finish: Option<Finish>,
    /// Its grade; `None` before grading and after a grader failed.
    pub reward: Option<Reward>,
}

impl Trajectory {
    /// A trajectory of which nothing is generated yet.
    #[must_use]
    pub fn new(id: TrajectoryId, prompt: Arc<[u32]>) -> Self {
        Self {
            id,
            prompt,
            tokens: Vec::new(),
            log_probs: Vec::new(),
            versions: Vec::new(),
            is_action: Vec::new(),
            experts: Vec::new(),
            candidates: Vec::new(),
            finish: None,
            reward: None,
        }
    }

    /// Tokens of the prompt and after it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prompt.len() + self.tokens.len()
    }

    /// Whether it has no token at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Token at a position of the sequence, the prompt's first token being at 0.
    #[must_use]
    pub fn token(&self, position: usize) -> u32 {
        if position < self.prompt.len() {
            self.prompt[position]
        } else {
            self.tokens[position - self.prompt.len()]
        }
    }

    /// Tokens that the model sampled.
    #[must_use]
    pub fn action_count(&self) -> usize {
        self.is_action.iter().filter(|&&action| action).count()
    }

    /// Appends a sampled token.
    pub fn push_action(&mut self, token: u32, log_prob: f32, version: Version) {
        self.push(token, log_prob, version, true);
    }

    /// Appends tokens of the task's.
    pub fn push_observation(&mut self, tokens: &[u32], version: Version) {
        for &token in tokens {
            self.push(token, 0.0, version, false);
        }
    }

    fn push(&mut self, token: u32, log_prob: f32, version: Version, is_action: bool) {
        self.tokens.push(token);
        self.log_probs.push(log_prob);
        self.versions.push(version);
        self.is_action.push(is_action);
    }

    /// Maximal runs of tokens of one version, in order.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        let mut start = 0;
        let runs = self.versions.chunk_by(|a, b| a == b).map(|run| {
            let tokens = start..start + run.len();
            start = tokens.end;
            Segment { tokens, version: run[0] }
        });
        runs.collect()
    }

    /// How many versions sampled its actions.
    #[must_use]
    pub fn version_count(&self) -> usize {
        let versions: Vec<Version> = self.actions().map(|index| self.versions[index]).collect();
        versions.chunk_by(|a, b| a == b).count()
    }

    /// Version of the oldest action; `None` without actions.
    #[must_use]
    pub fn oldest_version(&self) -> Option<Version> {
        self.actions().map(|index| self.versions[index]).min()
    }

    /// Indices of the actions among the tokens.
    pub fn actions(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tokens.len()).filter(|&index| self.is_action[index])
    }
}

/// The trajectories sampled from one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Pass over the task's problems.
    pub epoch: u32,
    /// Index of the problem.
    pub prompt: u32,
    /// Where the problem comes from.
    pub source: Arc<str>,
    /// Tokens that an answer should need, where the problem says.
    pub budget: Option<u64>,
    /// All members, in order.
    pub members: Vec<Trajectory>,
}

impl Group {
    /// Tokens after the prompts.
    #[must_use]
    pub fn token_count(&self) -> u64 {
        self.members.iter().map(|member| member.tokens.len() as u64).sum()
    }

    /// Version of the oldest action of all members.
    #[must_use]
    pub fn oldest_version(&self) -> Option<Version> {
        self.members.iter().filter_map(Trajectory::oldest_version).min()
    }

    /// Version of the newest action of all members.
    #[must_use]
    pub fn newest_version(&self) -> Option<Version> {
        let of_member = |member: &Trajectory| member.actions().map(|index| member.versions[index]).max();
        self.members.iter().filter_map(of_member).max()
    }

    /// Rewards of the members; `None` where grading failed.
    #[must_use]
    pub fn rewards(&self) -> Vec<Option<f64>> {
        self.members.iter().map(|member| member.reward.as_ref().map(|reward| reward.value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_array_keeps_one_entry_a_token_and_segments_cover_them() {
        let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([1, 2]));
        trajectory.push_action(5, -0.5, Version(3));
        trajectory.push_action(6, -0.25, Version(4));
        trajectory.push_observation(&[7, 8], Version(4));
        trajectory.push_action(9, -1.0, Version(6));
        let n = trajectory.tokens.len();
        assert_eq!(
            [trajectory.log_probs.len(), trajectory.versions.len(), trajectory.is_action.len()],
            [n; 3]
        );
        assert_eq!(trajectory.action_count(), 3);
        assert_eq!((trajectory.oldest_version(), trajectory.version_count()), (Some(Version(3)), 3));
        assert_eq!(
            (0..trajectory.len()).map(|i| trajectory.token(i)).collect::<Vec<_>>(),
            [1, 2, 5, 6, 7, 8, 9]
        );
        let segments = trajectory.segments();
        assert_eq!(
            segments.iter().map(|s| (s.tokens.clone(), s.version.0)).collect::<Vec<_>>(),
            [(0..1, 3), (1..4, 4), (4..5, 6)]
        );
    }
}
