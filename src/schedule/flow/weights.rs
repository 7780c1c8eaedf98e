//! When generators take up which version.

use super::message::{FlowCommand, MemberId};
use super::scheduler::FlowScheduler;
use crate::schedule::axes::{Interrupt, OnUpdate, PushView, RoundEnd, WeightPush};

impl FlowScheduler {
    /// The first weights of a run.
    pub(super) fn load_first(&mut self, out: &mut Vec<FlowCommand>) {
        if self.loaded.is_none() && !matches!(self.settings.push, WeightPush::Behind { .. }) {
            self.load(self.version, out);
        }
    }

    /// Newer weights, when the rule says so.
    pub(super) fn push_if_due(&mut self, out: &mut Vec<FlowCommand>) {
        let Some(loaded) = self.loaded else { return };
        let view = PushView {
            version: self.version,
            loaded,
            idle: self.live.is_empty() && self.is_between_batches(),
            seconds_since: self.now - self.pushed_at,
            spread: self.spread,
        };
        if self.settings.push.is_due(view) {
            self.load(self.version, out);
        }
    }

    /// Whether no batch is in formation; without whole batches, nothing ever is.
    fn is_between_batches(&self) -> bool {
        let admission = &self.admission;
        self.settings.round_end != RoundEnd::Batch
            || (admission.running() == 0 && admission.accepted().is_multiple_of(admission.batch()))
    }

    /// Where batches are generated a fixed number of updates behind: the weights of the batch that begins.
    pub(super) fn load_for_batch(&mut self, out: &mut Vec<FlowCommand>) {
        if let WeightPush::Behind { lag } = self.settings.push
            && self.admission.running() == 0
        {
            let batch = self.admission.accepted() / self.admission.batch();
            self.load(batch.saturating_sub(lag), out);
        }
    }

    fn load(&mut self, version: u64, out: &mut Vec<FlowCommand>) {
        if self.loaded.is_some_and(|loaded| loaded >= version) {
            return;
        }
        self.loaded = Some(version);
        self.pushed_at = self.now;
        self.spread = 0.0;
        out.push(FlowCommand::Load { version });
        let in_flight = self.settings.interrupt == Interrupt::Token && self.generating;
        if in_flight && self.settings.on_update == OnUpdate::Discard {
            let live: Vec<MemberId> = self.live.values().copied().collect();
            for id in live {
                if let Some(member) =
                    self.groups.get_mut(&id.group).and_then(|group| group.members.get_mut(id.member as usize))
                {
                    member.begun = version;
                }
                out.push(FlowCommand::Restart { id });
            }
        }
    }
}
