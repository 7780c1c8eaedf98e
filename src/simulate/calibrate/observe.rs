//! What the trace of a run shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings};
use crate::schedule::trace::{EngineStatistics, TraceEntry, TraceLine, TraceReader, UpdateStatistics};
use crate::simulate::SimulateError;

/// A run, as far as its trace has not gone on from a checkpoint.
#[derive(Debug)]
pub(super) struct Observed {
    pub path: PathBuf,
    pub settings: FlowSettings,
    pub engines: usize,
    /// Of all engines.
    pub statistics: EngineStatistics,
    pub updates: Vec<UpdateStatistics>,
    /// When the first thing happened, and when the last update was done, seconds.
    from: f64,
    until: f64,
    /// Lengths of answers by group and member, where they ended.
    lengths: BTreeMap<u64, Vec<Option<u64>>>,
    pub grading_seconds: f64,
    pub graded: u64,
    /// Of each source, groups that were kept and all that were graded.
    pub kept: Vec<(u64, u64)>,
    /// Seconds for which the learner worked, and of these with answers being generated.
    pub learned: f64,
    pub overlap: f64,
}

/// What is known of groups and of the learner on the way.
struct Walk {
    scheduler: FlowScheduler,
    sources: BTreeMap<u64, u32>,
    handed_on: BTreeMap<u64, f64>,
    learning: bool,
    last: f64,
}

impl Observed {
    /// Reads a trace, or that of a run directory.
    pub fn read(path: &Path) -> Result<Self, SimulateError> {
        let wrong = |why: &str| SimulateError::Calibrate { run: path.to_owned(), why: why.to_owned() };
        let mut lines = TraceReader::open(path)?;
        let Some((_, TraceLine::Header(header))) = lines.next().transpose()? else {
            return Err(wrong("its trace is empty"));
        };
        if header.scheduler.version() > 0 {
            return Err(wrong("its trace begins at a checkpoint; a run is simulated from its beginning"));
        }
        let mut observed = Self {
            path: path.to_owned(),
            settings: header.scheduler.settings().clone(),
            engines: header.engines,
            statistics: EngineStatistics::default(),
            updates: Vec::new(),
            from: f64::INFINITY,
            until: 0.0,
            lengths: BTreeMap::new(),
            grading_seconds: 0.0,
            graded: 0,
            kept: vec![(0, 0); header.scheduler.settings().sources().len()],
            learned: 0.0,
            overlap: 0.0,
        };
        let mut walk = Walk {
            scheduler: header.scheduler,
            sources: BTreeMap::new(),
            handed_on: BTreeMap::new(),
            learning: false,
            last: 0.0,
        };
        for line in lines {
            match line?.1 {
                // What follows goes on from a checkpoint.
                TraceLine::Header(_) => break,
                TraceLine::Entry(TraceEntry::Engine { statistics, .. }) => {
                    observed.statistics.merge(&statistics);
                }
                TraceLine::Entry(TraceEntry::Update { at, update }) => {
                    observed.updates.push(update);
                    observed.until = at;
                }
                TraceLine::Entry(TraceEntry::Decision { at, event, commands }) => {
                    observed.from = observed.from.min(at);
                    observed.decision(&mut walk, at, event, &commands);
                }
            }
        }
        if observed.updates.is_empty() || observed.until <= observed.from {
            return Err(wrong("its trace has no updates"));
        }
        Ok(observed)
    }

    fn decision(&mut self, walk: &mut Walk, at: f64, event: FlowEvent, commands: &[FlowCommand]) {
        if walk.learning {
            self.learned += at - walk.last;
            self.overlap += if walk.scheduler.live() > 0 { at - walk.last } else { 0.0 };
        }
        walk.last = at;
        match &event {
            FlowEvent::Finished { id, stretches } => {
                let tokens = stretches.iter().map(|stretch| stretch.tokens).sum::<u64>().max(1);
                let place =
                    self.lengths.get_mut(&id.group).and_then(|group| group.get_mut(id.member as usize));
                if let Some(place) = place {
                    *place = Some(tokens);
                }
            }
            FlowEvent::Graded { group, keep } => {
                if let Some(since) = walk.handed_on.remove(group) {
                    self.grading_seconds += at - since;
                    self.graded += 1;
                }
                let source = walk.sources.remove(group).unwrap_or_default() as usize;
                if let Some((kept, all)) = self.kept.get_mut(source) {
                    (*kept, *all) = (*kept + u64::from(*keep), *all + 1);
                }
            }
            FlowEvent::Published | FlowEvent::Skipped => walk.learning = false,
            _ => {}
        }
        for command in commands {
            match command {
                FlowCommand::Launch { group, source, members } => {
                    self.lengths.insert(*group, vec![None; *members as usize]);
                    walk.sources.insert(*group, *source);
                }
                FlowCommand::Grade { group } => drop(walk.handed_on.insert(*group, at)),
                FlowCommand::Train { groups } => walk.learning = !groups.is_empty(),
                _ => {}
            }
        }
        walk.scheduler.on(event, at);
    }

    /// The run's name: that of its directory, or of its file without the extension.
    pub fn name(&self) -> String {
        let name = if self.path.is_dir() { self.path.file_name() } else { self.path.file_stem() };
        name.map_or_else(|| self.path.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// Tokens learned from, a second.
    pub fn tokens_per_second(&self) -> f64 {
        let tokens: u64 = self.updates.iter().map(|update| update.tokens).sum();
        tokens as f64 / (self.until - self.from)
    }

    /// Tokens and seconds of each update.
    pub fn update_points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.updates.iter().map(|update| (update.tokens as f64, update.learning_seconds))
    }

    /// Lengths of groups all of whose answers ended.
    pub fn complete_groups(&self) -> impl Iterator<Item = Vec<u64>> {
        self.lengths.values().filter_map(|group| group.iter().copied().collect())
    }

    /// Lengths of all groups in the order of their dispatch. An answer that never ended is as long as the longest of its
    /// group, or of all.
    pub fn all_groups(&self) -> Vec<Vec<u64>> {
        let longest = self.lengths.values().flatten().flatten().copied().max().unwrap_or(1);
        let filled = |group: &Vec<Option<u64>>| {
            let most = group.iter().flatten().copied().max().unwrap_or(longest);
            group.iter().map(|length| length.unwrap_or(most)).collect()
        };
        self.lengths.values().map(filled).collect()
    }
}
