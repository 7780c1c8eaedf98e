//! The scheduler: events in, commands out.

use serde::{Deserialize, Serialize};

use super::admission::Admission;
use super::config::ScheduleConfig;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The initial policy is ready.
    Started,
    /// A group is complete and graded, and stays.
    Accepted,
    /// A group was given up (no variance, failed graders, a lost generator): another takes its place.
    Rejected,
    /// An accepted group was thrown away before an update learned from it.
    Discarded,
    /// The learner completed an update and published it.
    Published,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Generators take up this version before anything that is dispatched after this command; what is in flight goes
    /// on with it.
    Load(u64),
    /// So many new groups.
    Dispatch(u64),
}

/// What a scheduler follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSettings {
    /// Groups of a batch (B).
    pub batch: u64,
    /// How many batches generation may be ahead (η).
    pub lead: u64,
    /// Most groups in flight.
    pub max_groups: Option<u64>,
    /// Whether a batch is dispatched whole, when nothing of the one before it is in flight, under one version.
    pub whole_batches: bool,
    /// With whole batches: batch t is generated under version t − k exactly, however early it could begin.
    pub forced_lag: Option<u64>,
}

impl SchedulerSettings {
    /// The settings of a schedule with B groups a batch; a forced lag overrides the schedule's own.
    #[must_use]
    pub fn new(config: &ScheduleConfig, batch: u64, forced_lag: Option<u64>) -> Self {
        let plain = Self { batch, lead: 0, max_groups: None, whole_batches: false, forced_lag: None };
        match (config, forced_lag) {
            (_, Some(lag)) => Self { lead: lag, whole_batches: true, forced_lag: Some(lag), ..plain },
            (ScheduleConfig::Sync, None) => plain,
            (ScheduleConfig::OneStep, None) => Self { lead: 1, whole_batches: true, ..plain },
            (ScheduleConfig::Async { lead, max_groups, .. }, None) => {
                Self { lead: *lead, max_groups: *max_groups, ..plain }
            }
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    settings: SchedulerSettings,
    admission: Admission,
    started: bool,
    /// Version that generators were last told to load.
    loaded: Option<u64>,
}

impl Scheduler {
    /// A scheduler that has not started.
    #[must_use]
    pub fn new(settings: SchedulerSettings) -> Self {
        let admission = Admission::new(settings.batch, settings.lead, settings.max_groups);
        Self { settings, admission, started: false, loaded: None }
    }

    /// Counts of what was admitted.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// What it follows.
    #[must_use]
    pub fn settings(&self) -> &SchedulerSettings {
        &self.settings
    }

    /// A run goes on from a checkpoint: it starts anew, with what was admitted still admitted.
    pub fn restart(&mut self) {
        self.started = false;
    }

    /// How many batches generation may be ahead of learning.
    #[must_use]
    pub fn lead(&self) -> u64 {
        self.settings.lead
    }

    /// The version that generators use now.
    #[must_use]
    pub fn loaded(&self) -> Option<u64> {
        self.loaded
    }

    /// Takes an event; the commands are to be carried out in order.
    pub fn on(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Started => self.started = true,
            Event::Accepted => self.admission.accept(),
            Event::Rejected => self.admission.reject(),
            Event::Discarded => self.admission.discard(),
            Event::Published => self.admission.advance(),
        }
        let mut commands = Vec::new();
        if self.started {
            if self.settings.whole_batches {
                self.whole_batch(event, &mut commands);
            } else {
                self.stream(&mut commands);
            }
        }
        commands
    }

    fn load(&mut self, version: u64, commands: &mut Vec<Command>) {
        if self.loaded.is_none_or(|loaded| loaded < version) {
            self.loaded = Some(version);
            commands.push(Command::Load(version));
        }
    }

    fn dispatch(&mut self, groups: u64, commands: &mut Vec<Command>) {
        if groups > 0 {
            (0..groups).for_each(|_| self.admission.start());
            commands.push(Command::Dispatch(groups));
        }
    }

    /// Weights as they come, groups as they fit.
    fn stream(&mut self, commands: &mut Vec<Command>) {
        self.load(self.admission.version(), commands);
        let groups = self.admission.capacity().max(0) as u64;
        self.dispatch(groups, commands);
    }

    /// A replacement at once and under the same version; a new batch when nothing is in flight.
    fn whole_batch(&mut self, event: Event, commands: &mut Vec<Command>) {
        let (batch, accepted) = (self.admission.batch(), self.admission.accepted());
        if event == Event::Rejected && (self.admission.running() > 0 || !accepted.is_multiple_of(batch)) {
            return self.dispatch(1, commands);
        }
        if self.admission.running() > 0 {
            return;
        }
        // What is missing of the batch in formation: all of it, unless groups of it were given back.
        let missing = batch - accepted % batch;
        if self.admission.capacity() < missing as i64 {
            return;
        }
        let index = accepted / batch;
        let version = match self.settings.forced_lag {
            Some(lag) => index.saturating_sub(lag),
            None => self.admission.version(),
        };
        self.load(version, commands);
        self.dispatch(missing, commands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::CounterRng;
    use std::collections::VecDeque;

    /// Drives a scheduler with random completion times; returns for every consumed batch the lags of its groups.
    fn run(config: &ScheduleConfig, forced: Option<u64>, batch: u64, seed: u64) -> Vec<Vec<u64>> {
        let mut rng = CounterRng::new(seed);
        let mut scheduler = Scheduler::new(SchedulerSettings::new(config, batch, forced));
        let (mut flying, mut ready, mut batches) = (Vec::new(), VecDeque::new(), Vec::new());
        let (mut loaded, mut version) = (0, 0_u64);
        let mut events = VecDeque::from([Event::Started]);
        while batches.len() < 12 {
            let event = match events.pop_front() {
                Some(event) => event,
                // Learning or one of the groups in flight is next.
                None if ready.len() as u64 >= batch && (flying.is_empty() || rng.below(3) == 0) => {
                    batches.push(
                        (0..batch).filter_map(|_| ready.pop_front()).map(|v: u64| version - v).collect(),
                    );
                    version += 1;
                    Event::Published
                }
                None => {
                    let group = flying.swap_remove(rng.below(flying.len()));
                    if rng.below(4) == 0 {
                        Event::Rejected
                    } else {
                        ready.push_back(group);
                        Event::Accepted
                    }
                }
            };
            for command in scheduler.on(event) {
                match command {
                    Command::Load(version) => {
                        assert!(version >= loaded);
                        loaded = version;
                    }
                    Command::Dispatch(groups) => flying.extend((0..groups).map(|_| loaded)),
                }
            }
            assert_eq!(scheduler.admission().running(), flying.len() as u64);
        }
        batches
    }

    #[test]
    fn synchronous_batches_have_no_lag() {
        for seed in 0..20 {
            assert!(run(&ScheduleConfig::Sync, None, 5, seed).iter().flatten().all(|&lag| lag == 0));
        }
    }

    #[test]
    fn one_step_batches_are_one_update_behind_after_the_first() {
        for seed in 0..20 {
            let batches = run(&ScheduleConfig::OneStep, None, 5, seed);
            for (t, batch) in batches.iter().enumerate() {
                assert!(batch.iter().all(|&lag| lag == (t as u64).min(1)), "batch {t}: {batch:?}");
            }
        }
    }

    #[test]
    fn a_forced_lag_is_exact_once_the_pipeline_is_full() {
        for lag in [0, 1, 3, 6] {
            for seed in 0..10 {
                let batches = run(&ScheduleConfig::Sync, Some(lag), 4, seed);
                for (t, batch) in batches.iter().enumerate() {
                    assert!(
                        batch.iter().all(|&found| found == lag.min(t as u64)),
                        "lag {lag}, batch {t}: {batch:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn asynchronous_generation_is_never_further_ahead_than_its_lead() {
        for lead in 0..4 {
            let config = ScheduleConfig::Async {
                lead,
                max_groups: Some(7),
                resume: super::super::KvResume::Reprefill,
            };
            for seed in 0..10 {
                let lags: Vec<u64> = run(&config, None, 3, seed).into_iter().flatten().collect();
                assert!(lead > 0 || lags.iter().all(|&lag| lag == 0));
            }
            let mut scheduler = Scheduler::new(SchedulerSettings::new(&config, 3, None));
            assert_eq!(
                scheduler.on(Event::Started),
                [Command::Load(0), Command::Dispatch((3 * (lead + 1)).min(7))]
            );
        }
    }

    #[test]
    fn a_discarded_group_gives_its_place_back() {
        let mut scheduler = Scheduler::new(SchedulerSettings::new(&ScheduleConfig::Sync, 2, None));
        scheduler.on(Event::Started);
        assert_eq!(scheduler.on(Event::Accepted), []);
        assert_eq!(scheduler.on(Event::Accepted), []);
        assert_eq!(scheduler.on(Event::Discarded), [Command::Dispatch(1)]);
    }
}
