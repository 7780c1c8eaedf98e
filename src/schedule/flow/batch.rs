//! When a batch is formed, of which groups, and what follows the update.

use super::group::Stage;
use super::message::{DropCause, FlowCommand};
use super::scheduler::FlowScheduler;
use crate::schedule::axes::{ConsumeOrder, Dispatch, MixerState, RoundEnd, exact_ceiling};

impl FlowScheduler {
    /// Hands a batch to the learner if it is free and the round's rule says so.
    pub(super) fn train_if_due(&mut self, out: &mut Vec<FlowCommand>) {
        if self.learning.is_some() || !(self.generating || self.closing) {
            return;
        }
        self.close_by_fraction(true, out);
        // Whether a batch is fresh enough is costly to say, and changes only with what is ready.
        let by_age = matches!(self.settings.round_end, RoundEnd::Ready { .. });
        if by_age && !std::mem::take(&mut self.ready_changed) {
            return;
        }
        let Some(batch) = self.next_batch() else { return };
        if self.settings.takes_turns() {
            self.pause_all(out);
            (self.generating, self.closing) = (false, false);
            self.quantum = 0;
        }
        if matches!(self.settings.dispatch, Dispatch::Mixer(_)) {
            self.mixer.iter_mut().for_each(MixerState::close_batch);
        }
        let mut members = 0;
        for id in &batch {
            members += self.groups.remove(id).map_or(0, |group| group.size());
        }
        self.ready.retain(|id| !batch.contains(id));
        self.learning = Some((batch.clone(), members));
        out.push(FlowCommand::Train { groups: batch });
    }

    fn next_batch(&self) -> Option<Vec<u64>> {
        let ready = self.ready.len() as u64;
        match self.settings.round_end {
            RoundEnd::Batch | RoundEnd::Streaming => self.ordered(),
            RoundEnd::Budget { .. } => {
                let stopped = self.live.is_empty() && !self.is_grading();
                stopped.then(|| self.ready())
            }
            RoundEnd::Groups { .. } => {
                let first = self.ready.iter().copied().take(self.settings.batch as usize);
                (self.round.accepted >= self.settings.batch && ready >= self.settings.batch)
                    .then(|| first.collect())
            }
            RoundEnd::Fraction { .. } => (self.closing && !self.is_grading()).then(|| self.ready()),
            RoundEnd::Ready { max_old_fraction, .. } => self.fresh_enough(max_old_fraction),
        }
    }

    /// A round that ends with a share of its answers pauses with the event that makes enough of them; what is being
    /// graded then is still of its batch. Once `filled`, a round also ends when nothing is left that could make enough.
    pub(super) fn close_by_fraction(&mut self, filled: bool, out: &mut Vec<FlowCommand>) {
        let RoundEnd::Fraction { lambda, min_ready, .. } = self.settings.round_end else { return };
        if self.closing {
            return;
        }
        let enough = self.round.done >= exact_ceiling(lambda, self.settings.pool())
            && self.ready.len() as u64 >= min_ready;
        // Where places are not filled again, too few may be left to make enough.
        let over = filled && self.live.is_empty() && !self.is_grading();
        if enough || over {
            self.pause_all(out);
            (self.generating, self.closing) = (false, true);
        }
    }

    fn is_grading(&self) -> bool {
        self.groups.values().any(|group| group.stage == Stage::Grading)
    }

    /// A batch by the order of consumption, or the mixer's quotas.
    fn ordered(&self) -> Option<Vec<u64>> {
        let batch = self.settings.batch as usize;
        if !self.mixer.is_empty() {
            return self.by_quota();
        }
        if self.ready.len() < batch {
            return None;
        }
        match self.settings.order {
            ConsumeOrder::Completion => Some(self.ready.iter().copied().take(batch).collect()),
            ConsumeOrder::OldestReady => {
                let mut ready = self.ready();
                ready.sort_unstable();
                ready.truncate(batch);
                Some(ready)
            }
            ConsumeOrder::Submission => {
                let first = self.groups.iter().take(batch);
                first.map(|(id, group)| (group.stage == Stage::Ready).then_some(*id)).collect()
            }
        }
    }

    /// Exactly its quota of each source, as they became ready.
    fn by_quota(&self) -> Option<Vec<u64>> {
        if !self.mixer.iter().all(MixerState::is_satisfied) {
            return None;
        }
        let mut wanted: Vec<u64> = self.sources.iter().map(|source| source.quota.unwrap_or(0)).collect();
        let take = |id: &&u64| {
            let Some(group) = self.groups.get(id) else { return false };
            let left = &mut wanted[group.source as usize];
            let taken = *left > 0;
            *left -= u64::from(taken);
            taken
        };
        Some(self.ready.iter().filter(take).copied().collect())
    }

    /// A batch whose share of old tokens is within the bound: of all runs of equally old groups the oldest that is, so
    /// that old ones do not wait for ever behind fresh ones.
    fn fresh_enough(&self, bound: f64) -> Option<Vec<u64>> {
        if !self.mixer.is_empty() {
            let batch = self.by_quota()?;
            return (self.old_fraction(&batch) <= bound).then_some(batch);
        }
        let ordered = self.ordered()?;
        if self.old_fraction(&ordered) <= bound {
            return Some(ordered);
        }
        let counts = |id: &u64| {
            let group = &self.groups[id];
            (group.old_tokens(self.version), group.tokens(), *id)
        };
        let mut oldest_first: Vec<(u64, u64, u64)> = self.ready.iter().map(counts).collect();
        let share = |of: &(u64, u64, u64)| of.0 as f64 / of.1.max(1) as f64;
        oldest_first.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.2.cmp(&b.2)));
        let batch = self.settings.batch as usize;
        let (mut old, mut all) = (0, 0);
        for (end, counts) in oldest_first.iter().enumerate() {
            (old, all) = (old + counts.0, all + counts.1);
            if end >= batch {
                let left = oldest_first[end - batch];
                (old, all) = (old - left.0, all - left.1);
            }
            if end + 1 >= batch && old as f64 <= bound * all.max(1) as f64 {
                return Some(oldest_first[end + 1 - batch..=end].iter().map(|counts| counts.2).collect());
            }
        }
        None
    }

    /// Share of tokens of older versions in these groups.
    fn old_fraction(&self, groups: &[u64]) -> f64 {
        let groups = || groups.iter().filter_map(|id| self.groups.get(id));
        let old: u64 = groups().map(|group| group.old_tokens(self.version)).sum();
        let all: u64 = groups().map(super::group::Group::tokens).sum();
        old as f64 / all.max(1) as f64
    }

    /// Why a complete group cannot be learned from at the version that is next, if so.
    pub(super) fn unfit(&self, id: u64) -> Option<DropCause> {
        let group = self.groups.get(&id)?;
        let consume = &self.settings.consume;
        if consume.max_head_lag.is_some_and(|most| group.head_lag(self.version) > most) {
            return Some(DropCause::Stale);
        }
        group.is_masked(consume.mask, self.version).then_some(DropCause::Masked)
    }

    pub(super) fn published(&mut self, out: &mut Vec<FlowCommand>) {
        let Some((_, members)) = self.learning.take() else { return };
        self.version += 1;
        self.admission.advance();
        self.ready_changed = true;
        self.ledger.buffered -= members;
        self.ledger.consumed += members;
        for id in self.ready() {
            if let Some(cause) = self.unfit(id) {
                self.give_up(id, cause, out);
            }
        }
        self.after_learning();
    }

    pub(super) fn skipped(&mut self) {
        let Some((groups, members)) = self.learning.take() else { return };
        self.ledger.buffered -= members;
        if members > 0 {
            *self.ledger.dropped.entry(DropCause::Skipped).or_default() += members;
        }
        self.ready_changed = true;
        groups.iter().for_each(|_| self.admission.discard());
        self.after_learning();
    }

    fn after_learning(&mut self) {
        if self.settings.takes_turns() {
            self.begin_round();
        }
    }
}
