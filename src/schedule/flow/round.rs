//! Rounds: what is counted in one, how one begins, and how it pauses.

use serde::{Deserialize, Serialize};

use super::group::Place;
use super::message::{FlowCommand, MemberId};
use super::scheduler::FlowScheduler;
use crate::schedule::axes::{OnUpdate, RoundEnd};

/// What is counted in a round.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Round {
    /// Whether it begins just now: the only time that places are filled where that is a rule.
    pub opening: bool,
    /// Answers that ended.
    pub done: u64,
    /// Groups that were accepted.
    pub accepted: u64,
    /// Groups that were given up, of those drawn.
    pub filtered: u64,
    /// Where rounds draw groups: those of this one, in order.
    pub drawn: Vec<u64>,
}

impl Round {
    pub fn given_up(&mut self, group: u64) {
        self.filtered += u64::from(self.drawn.contains(&group));
    }
}

impl FlowScheduler {
    /// Places can be filled again. Groups that were complete beyond what the last round needed are of this one.
    pub(super) fn begin_round(&mut self) {
        (self.generating, self.closing) = (true, false);
        self.round = Round { opening: true, ..Round::default() };
        if matches!(self.settings.round_end, RoundEnd::Groups { .. }) {
            self.round.drawn.extend(&self.ready);
            self.round.accepted = self.ready.len() as u64;
        }
    }

    /// Everything in flight stops, in the order in which it began.
    pub(super) fn pause_all(&mut self, out: &mut Vec<FlowCommand>) {
        if matches!(self.settings.round_end, RoundEnd::Groups { .. }) {
            self.put_back_drawn();
        }
        let to = match self.settings.on_update {
            OnUpdate::Carry => Place::Paused,
            OnUpdate::Discard => Place::Restarting,
        };
        let live: Vec<MemberId> = self.live.values().copied().collect();
        for id in live {
            out.push(FlowCommand::Pause { id });
            self.stop_one(id, to);
            if to == Place::Paused {
                self.carry(id);
            }
        }
        if to == Place::Restarting {
            // What had paused by itself has nothing left either.
            let paused: Vec<MemberId> = self.paused.iter().copied().collect();
            paused.into_iter().for_each(|id| self.stop_one(id, to));
        }
    }

    /// What a round drew and did not accept returns whole to the buffer, in the order in which it was drawn.
    fn put_back_drawn(&mut self) {
        for id in self.round.drawn.clone() {
            let accepted = self.ready.contains(&id);
            if let Some(group) = self.groups.get_mut(&id).filter(|_| !accepted) {
                group.in_buffer = true;
                self.buffer.push_back(id);
            }
        }
        self.paused.clear();
    }

    /// A paused answer is from now on one of a round before.
    fn carry(&mut self, id: MemberId) {
        let member =
            self.groups.get_mut(&id.group).and_then(|group| group.members.get_mut(id.member as usize));
        if let Some(member) = member.filter(|member| !member.carried) {
            member.carried = true;
            self.carried += 1;
        }
    }
}
