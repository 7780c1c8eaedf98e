//! What a scheduler shows of itself.

use super::group::Place;
use super::ledger::FlowLedger;
use super::message::MemberId;
use super::scheduler::FlowScheduler;
use super::settings::FlowSettings;
use crate::schedule::Admission;
use crate::schedule::axes::{MixerState, ThrottleState};

impl FlowScheduler {
    /// What it follows.
    #[must_use]
    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version that generators use now.
    #[must_use]
    pub fn loaded(&self) -> Option<u64> {
        self.loaded
    }

    /// When the last event was, seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Source of a group and number of its members, while it is neither given up nor in the learner's hands.
    #[must_use]
    pub fn group(&self, id: u64) -> Option<(u32, u32)> {
        self.groups.get(&id).map(|group| (group.source, group.members.len() as u32))
    }

    /// Whether a member is in flight: begun, or waiting to, and not ended.
    #[must_use]
    pub fn is_in_flight(&self, id: MemberId) -> bool {
        let member = self.groups.get(&id.group).and_then(|group| group.members.get(id.member as usize));
        member.is_some_and(|member| member.place != Place::Done)
    }

    /// Prompts that were offered and not launched.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.queue.offered()
    }

    /// Counts of groups that were admitted.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Every trajectory.
    #[must_use]
    pub fn ledger(&self) -> FlowLedger {
        FlowLedger { live: self.live.len() as u64, paused: self.paused_members(), ..self.ledger.clone() }
    }

    /// Trajectories that are being generated.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.len() as u64
    }

    /// In flight by source, paused ones included.
    #[must_use]
    pub fn in_flight(&self) -> &[u64] {
        &self.in_flight
    }

    /// Free places of the pool (K): those of samples that have ended. Negative when the pool was made smaller.
    #[must_use]
    pub fn credit(&self) -> i64 {
        self.settings.pool() as i64 - self.in_flight.iter().sum::<u64>() as i64
    }

    /// Complete and accepted groups, as they became so.
    #[must_use]
    pub fn ready(&self) -> Vec<u64> {
        self.ready.iter().copied().collect()
    }

    /// Stopped trajectories, in the order in which they go on.
    #[must_use]
    pub fn paused(&self) -> Vec<MemberId> {
        self.paused.iter().copied().collect()
    }

    /// Groups that a round left over, where rounds draw groups.
    #[must_use]
    pub fn buffer(&self) -> Vec<u64> {
        self.buffer.iter().copied().collect()
    }

    /// Answers that ended in this round.
    #[must_use]
    pub fn done_in_round(&self) -> u64 {
        self.round.done
    }

    /// Groups of this round that were not filtered out, where rounds draw groups.
    #[must_use]
    pub fn pending_in_round(&self) -> u64 {
        self.round.drawn.len() as u64 - self.round.filtered
    }

    /// Whether the learner has a batch.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.learning.is_some()
    }

    /// Most requests that the engines may have now.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let throttle = self.throttle.as_ref().map_or(u64::MAX, ThrottleState::limit);
        throttle.min(self.settings.admission.concurrency.unwrap_or(u64::MAX))
    }

    /// What the mixer knows of each source.
    #[must_use]
    pub fn mixer(&self) -> &[MixerState] {
        &self.mixer
    }
}
