//! A group in flight.

use serde::{Deserialize, Serialize};

use super::message::Stretch;
use crate::schedule::axes::TokenMask;

/// Where a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// Being generated; when it began or resumed, as a number that orders all of them.
    Live(u64),
    /// Stopped, with what it has.
    Paused,
    /// Waiting to begin anew.
    Restarting,
    /// Ended.
    Done,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Member {
    pub place: Place,
    /// Whether it was begun in a round before this one.
    pub carried: bool,
    /// Once it has ended: its tokens by version.
    pub stretches: Vec<Stretch>,
    /// Version that was loaded when it was begun, for a member without tokens.
    pub begun: u64,
}

/// How far a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Members are missing.
    Open,
    /// All have ended; it is being graded.
    Grading,
    /// It stays.
    Ready,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Group {
    pub source: u32,
    pub members: Vec<Member>,
    pub finished: u32,
    pub stage: Stage,
    /// When it was launched, seconds.
    pub launched_at: f64,
    /// Whether it waits in the buffer of a schedule that draws groups.
    pub in_buffer: bool,
}

impl Group {
    pub fn size(&self) -> u64 {
        self.members.len() as u64
    }

    pub fn is_complete(&self) -> bool {
        self.finished as usize == self.members.len()
    }

    fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        self.members.iter().flat_map(|member| &member.stretches)
    }

    pub fn tokens(&self) -> u64 {
        self.stretches().map(|stretch| stretch.tokens).sum()
    }

    pub fn mean_length(&self) -> f64 {
        self.tokens() as f64 / self.size().max(1) as f64
    }

    /// Tokens of versions before `version`.
    pub fn old_tokens(&self, version: u64) -> u64 {
        self.stretches().filter(|stretch| stretch.version < version).map(|stretch| stretch.tokens).sum()
    }

    /// Updates between the oldest token of any member and `version`.
    pub fn head_lag(&self, version: u64) -> u64 {
        let head = |member: &Member| member.stretches.first().map_or(member.begun, |first| first.version);
        let oldest = self.members.iter().map(head).min().unwrap_or(version);
        version.saturating_sub(oldest)
    }

    /// Whether the mask leaves nothing of it. A group without tokens has nothing that a mask could leave out.
    pub fn is_masked(&self, mask: TokenMask, version: u64) -> bool {
        self.tokens() > 0
            && self.stretches().all(|stretch| stretch.tokens == 0 || !mask.keeps(version, stretch.version))
    }
}
