//! The update in hand, and how generation and learning slow each other down where they share cores.

use super::Simulation;
use crate::schedule::flow::FlowEvent;
use crate::schedule::trace::UpdateStatistics;
use crate::simulate::config::SimulateError;
use crate::simulate::queue::Planned;

/// The update in hand.
pub(super) struct Learning {
    /// When it began, and when the report's figures begin to count it.
    began: f64,
    pub since: f64,
    /// Seconds of work that are left, at a pace of 1, at a time.
    left: f64,
    at: f64,
    /// Factor of the time that it takes.
    pace: f64,
    statistics: UpdateStatistics,
    /// Trajectories of the batch by source.
    sources: Vec<u64>,
    /// Its stretches: tokens, lag, and whether their answer went on under another version.
    tokens: Vec<(u64, u64, bool)>,
    /// Seconds for which each answer waited for the last of its group.
    waits: Vec<f64>,
}

impl Simulation<'_> {
    /// The learner takes a batch; whether it is empty.
    pub(super) fn train(&mut self, groups: &[u64]) -> bool {
        if groups.is_empty() {
            return true;
        }
        let version = self.scheduler.version();
        let mut update = UpdateStatistics {
            version: version + 1,
            groups: groups.len() as u64,
            waiting_seconds: self.now - self.free_since,
            ..UpdateStatistics::default()
        };
        let (mut lags, mut tokens, mut waits) = (0, Vec::new(), Vec::new());
        let mut sources = vec![0; self.report.consumed_by_source.len()];
        for group in groups {
            let Some(ending) = self.endings.remove(group) else { continue };
            let last = ending.members.iter().map(|(at, _)| *at).fold(0.0, f64::max);
            for (at, stretches) in ending.members {
                update.answers += 1;
                waits.push(last - at);
                sources[ending.source as usize] += 1;
                let ended_at = stretches.last().map_or(version, |last| last.version);
                for stretch in stretches {
                    let lag = version.saturating_sub(stretch.version);
                    tokens.push((stretch.tokens, lag, stretch.version < ended_at));
                    update.tokens += stretch.tokens;
                    update.old_tokens += if lag > 0 { stretch.tokens } else { 0 };
                    update.lag_max = update.lag_max.max(lag);
                    lags += lag * stretch.tokens;
                }
            }
        }
        update.lag_mean = lags as f64 / update.tokens.max(1) as f64;
        if version == 0 {
            self.report.first_batch_mean_length = update.tokens as f64 / update.answers.max(1) as f64;
        }
        let costs = &self.config.costs;
        let all = update.tokens as f64;
        let left = costs.update_seconds + all * costs.train_seconds_per_token / self.trainers;
        self.learning = Some(Learning {
            began: self.now,
            since: self.now,
            left,
            at: self.now,
            pace: 1.0,
            statistics: update,
            sources,
            tokens,
            waits,
        });
        self.plan_update(self.now + left);
        false
    }

    /// Instead of whenever it was to end before.
    fn plan_update(&mut self, at: f64) {
        self.update_stamp += 1;
        self.plan.add(at, Planned::Update { stamp: self.update_stamp });
    }

    /// The update is done.
    pub(super) fn publish(&mut self) -> Result<(), SimulateError> {
        let Some(learning) = self.learning.take() else { return Ok(()) };
        self.sums.learned += self.now - learning.since;
        self.sums.answers += learning.statistics.answers;
        for (sum, of) in self.report.consumed_by_source.iter_mut().zip(&learning.sources) {
            *sum += of;
        }
        learning.waits.iter().for_each(|seconds| self.sums.waited(*seconds));
        for (tokens, lag, carried) in &learning.tokens {
            self.sums.learned_from(*tokens, *lag, *carried);
        }
        self.report.timeline.learning.push((learning.since, self.now));
        self.free_since = self.now;
        self.tell(FlowEvent::Published)?;
        let Some(trace) = &mut self.trace else { return Ok(()) };
        for (index, engine) in self.engines.iter_mut().enumerate() {
            engine.advance(self.now);
            trace.engine(self.now, index, &engine.take_statistics())?;
        }
        let learning_seconds = self.free_since - learning.began;
        trace.update(self.now, &UpdateStatistics { learning_seconds, ..learning.statistics })?;
        Ok(())
    }

    /// Where both go on at once on shared cores, engines are slower beside the learner.
    pub(super) fn pace_engines(&mut self) {
        if !self.decoupled {
            return;
        }
        let beside = self.learning.is_some();
        let pace = if beside { self.config.contention.generation } else { 1.0 };
        let begins = self.scheduler.loaded().is_none();
        if beside == self.beside && !begins {
            return;
        }
        self.beside = beside;
        for (index, engine) in self.engines.iter_mut().enumerate() {
            engine.advance(self.now);
            engine.set_pace(pace, beside);
            self.touched.push(index);
        }
    }

    /// And the learner is slower beside engines at work.
    pub(super) fn pace_learner(&mut self) {
        let Some(learning) = &mut self.learning else { return };
        let factor = self.config.contention.learning;
        if !self.decoupled || factor == 1.0 {
            return;
        }
        let working = self.engines.iter().filter(|engine| engine.decoding() > 0).count();
        let pace = 1.0 + (factor - 1.0) * working as f64 / self.engines.len() as f64;
        if pace == learning.pace {
            return;
        }
        learning.left -= (self.now - learning.at) / learning.pace;
        (learning.at, learning.pace) = (self.now, pace);
        let end = self.now + learning.left.max(0.0) * pace;
        self.plan_update(end);
    }
}
