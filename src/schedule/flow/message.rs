//! What a driver says to the scheduler, and what it is told to do.

use serde::{Deserialize, Serialize};

use crate::schedule::axes::EngineLoad;

/// A member of a group. Groups are numbered in the order of their dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// Its group.
    pub group: u64,
    /// Which of the group.
    pub member: u32,
}

/// A run of tokens that the model sampled under one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The version.
    pub version: u64,
    /// Number of tokens.
    pub tokens: u64,
}

/// Why a group is not learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// Whoever grades rejected it: no advantage, failed graders.
    Rejected,
    /// Its oldest token is too many updates behind.
    Stale,
    /// All its tokens would be left out of the loss.
    Masked,
    /// Its answers are short while the run warms up.
    Short,
    /// It was lost and its task cannot be repeated.
    Lost,
    /// The update that learned from it was thrown away.
    Skipped,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FlowEvent {
    /// The initial policy, or that of a checkpoint, is ready.
    Started,
    /// The data set's own order goes on with prompts of these sources.
    Offered {
        /// Indices of sources.
        sources: Vec<u32>,
    },
    /// An answer has ended, for whatever reason, with all that was sampled of it. It may cross a pause on its way here.
    Finished {
        /// Which.
        id: MemberId,
        /// Its tokens by version, oldest first.
        stretches: Vec<Stretch>,
    },
    /// An answer has used up its budget of tokens of this round, and pauses by itself.
    Exhausted {
        /// Which.
        id: MemberId,
    },
    /// An answer was lost with its generator.
    Lost {
        /// Which.
        id: MemberId,
    },
    /// A group is graded.
    Graded {
        /// Which.
        group: u64,
        /// Whether it stays.
        keep: bool,
    },
    /// A group cannot be begun: its problem does not fit the model. Another takes its place.
    Unusable {
        /// Which.
        group: u64,
    },
    /// Groups that are launched from now on have so many members, where their source does not say.
    Members {
        /// How many.
        members: u32,
    },
    /// The learner completed an update and published it.
    Published,
    /// The learner made nothing of its batch: an empty one, or one that left no finite update.
    Skipped,
    /// The engines show this.
    Load {
        /// What they show.
        load: EngineLoad,
    },
    /// The learner measured the spread of importance ratios.
    Measured {
        /// Standard deviation of log ratios.
        spread: f64,
    },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum FlowCommand {
    /// Generators take up this version: for every token from here on where answers can be interrupted, otherwise for
    /// what is launched from here on.
    Load {
        /// The version.
        version: u64,
    },
    /// All members of a new group begin.
    Launch {
        /// The group.
        group: u64,
        /// Index of the source that its prompt is of.
        source: u32,
        /// Number of members.
        members: u32,
    },
    /// An answer stops at its next token and keeps what it has.
    Pause {
        /// Which.
        id: MemberId,
    },
    /// A paused answer goes on.
    Resume {
        /// Which.
        id: MemberId,
    },
    /// An answer begins anew with nothing of before.
    Restart {
        /// Which.
        id: MemberId,
    },
    /// What was stored of an answer beside its tokens is needed no more.
    Free {
        /// Which.
        id: MemberId,
    },
    /// A group is complete: it can be graded, and whatever else needs no update can be done, at once.
    Grade {
        /// Which.
        group: u64,
    },
    /// The learner learns from these groups, then answers `Published` or `Skipped`. Without any, a round ended in which
    /// nothing became complete; the answer is `Skipped`.
    Train {
        /// Which, in the order of consumption.
        groups: Vec<u64>,
    },
    /// A group is given up, with all members that are still in flight.
    Drop {
        /// Which.
        group: u64,
        /// Why.
        cause: DropCause,
    },
}
