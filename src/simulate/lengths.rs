//! How long answers are, and which groups are kept: functions of (seed, group, member).

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::SimulateError;
use crate::random::{Stream, draw, normal_pair, unit_f32};

/// How one source differs from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceModel {
    /// Factor of its answers' lengths.
    pub length: f64,
    /// Share of its groups that are kept.
    pub acceptance: f64,
}

impl Default for SourceModel {
    fn default() -> Self {
        Self { length: 1.0, acceptance: 1.0 }
    }
}

/// How long answers are: median · exp(σ_prompt z_group + σ_within z_member), between 1 and the cap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LengthConfig {
    /// Median, tokens.
    pub median: f64,
    /// Spread between prompts (σ of the logarithm).
    pub prompt_sigma: f64,
    /// Spread within a group (σ of the logarithm).
    pub within_sigma: f64,
    /// Longest answer, tokens.
    pub cap: u64,
    /// Tokens of a prompt, which are computed when an answer starts.
    pub prompt_tokens: u64,
    /// Sources in the order of `schedule.sources`; those that are missing are like the rest.
    pub sources: Vec<SourceModel>,
    /// A file of recorded lengths instead: the answers of one group on each line, groups taken in turn.
    pub recorded: Option<PathBuf>,
}

impl Default for LengthConfig {
    fn default() -> Self {
        Self {
            median: 3000.0,
            prompt_sigma: 0.6,
            within_sigma: 0.6,
            cap: 32_768,
            prompt_tokens: 0,
            sources: Vec::new(),
            recorded: None,
        }
    }
}

impl LengthConfig {
    pub(super) fn check(&self) -> Result<(), SimulateError> {
        let field = |field, why: &str| Err(SimulateError::Field { field, why: why.to_owned() });
        if !(self.median.is_finite() && self.median >= 1.0) {
            return field("lengths.median", "must be at least 1");
        }
        if !(self.prompt_sigma >= 0.0 && self.within_sigma >= 0.0) {
            return field("lengths.prompt_sigma", "and `lengths.within_sigma` must be 0 or positive numbers");
        }
        if self.cap == 0 {
            return field("lengths.cap", "must be at least 1");
        }
        let fits =
            |source: &SourceModel| source.length > 0.0 && source.acceptance > 0.0 && source.acceptance <= 1.0;
        if !self.sources.iter().all(fits) {
            return field(
                "lengths.sources",
                "need a positive `length` and an `acceptance` above 0 and at most 1",
            );
        }
        Ok(())
    }
}

/// The model, ready to be asked.
pub(super) struct Lengths {
    config: LengthConfig,
    seed: u64,
    recorded: Vec<Vec<u64>>,
}

impl Lengths {
    pub fn new(config: &LengthConfig, seed: u64) -> Result<Self, SimulateError> {
        let recorded = config.recorded.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { config: config.clone(), seed, recorded })
    }

    /// Recorded lengths that are at hand.
    pub fn of_groups(config: &LengthConfig, seed: u64, recorded: Vec<Vec<u64>>) -> Self {
        Self { config: config.clone(), seed, recorded }
    }

    fn words(&self, group: u64, place: u32) -> [u32; 4] {
        draw(self.seed, Stream::Length, [group as u32, (group >> 32) as u32, place, 0])
    }

    fn of_source(&self, source: u32) -> SourceModel {
        self.config.sources.get(source as usize).copied().unwrap_or_default()
    }

    /// Tokens of an answer.
    pub fn tokens(&self, source: u32, group: u64, member: u32) -> u64 {
        if !self.recorded.is_empty() {
            let lengths = &self.recorded[(group % self.recorded.len() as u64) as usize];
            return lengths[member as usize % lengths.len()];
        }
        let config = &self.config;
        let normal = |place: u32| {
            let words = self.words(group, place);
            f64::from(normal_pair([words[0], words[1]])[0])
        };
        let logarithm = config.prompt_sigma * normal(0) + config.within_sigma * normal(member + 1);
        let length = config.median * self.of_source(source).length * logarithm.exp();
        (length.round() as u64).clamp(1, config.cap)
    }

    /// Whether a group is kept.
    pub fn keeps(&self, source: u32, group: u64) -> bool {
        f64::from(unit_f32(self.words(group, 0)[2])) < self.of_source(source).acceptance
    }
}

fn read(path: &Path) -> Result<Vec<Vec<u64>>, SimulateError> {
    let wrong = |why: String| SimulateError::Recorded { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut groups = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let line = line.map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
        if line.contains(&0) {
            return Err(wrong(format!("line {}: an answer has at least one token", number + 1)));
        }
        if !line.is_empty() {
            groups.push(line);
        }
    }
    if groups.is_empty() { Err(wrong("it has no lengths".to_owned())) } else { Ok(groups) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_median_their_spreads_and_their_cap() {
        let config = LengthConfig { median: 1000.0, cap: 4000, ..LengthConfig::default() };
        let lengths = Lengths::new(&config, 3).unwrap();
        let mut all: Vec<u64> = (0..4000)
            .flat_map(|group| (0..2).map(move |m| (group, m)))
            .map(|(g, m)| lengths.tokens(0, g, m))
            .collect();
        all.sort_unstable();
        assert!((950..1050).contains(&all[4000]), "median {}", all[4000]);
        assert_eq!(all[7999], 4000);
        let within: f64 = (0..4000)
            .map(|group| {
                (lengths.tokens(0, group, 0) as f64 / lengths.tokens(0, group, 1) as f64).ln().powi(2)
            })
            .sum::<f64>()
            / 4000.0;
        assert!((within.sqrt() - 0.6 * 2_f64.sqrt()).abs() < 0.05, "spread within groups {within}");
        let flat = LengthConfig { prompt_sigma: 0.0, within_sigma: 0.0, ..config };
        assert_eq!(Lengths::new(&flat, 3).unwrap().tokens(0, 7, 1), 1000);
    }

    #[test]
    fn groups_are_kept_by_the_acceptance_of_their_source() {
        let sources = vec![SourceModel { length: 2.0, acceptance: 0.25 }];
        let config = LengthConfig { sources, ..LengthConfig::default() };
        let lengths = Lengths::new(&config, 1).unwrap();
        let kept = (0..4000).filter(|&group| lengths.keeps(0, group)).count();
        assert!((900..1100).contains(&kept), "{kept}");
        assert!((0..100).all(|group| lengths.keeps(1, group)), "a source that is not described keeps all");
    }

    #[test]
    fn recorded_lengths_are_taken_in_turn_and_faults_name_their_line() {
        let folder = std::env::temp_dir().join(format!("forebay-lengths-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lengths.txt");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = LengthConfig { recorded: Some(path.clone()), ..LengthConfig::default() };
            Lengths::new(&config, 0)
        };
        let lengths = with("5 6\n\n7\n").unwrap();
        assert_eq!(
            [(0, 0), (0, 1), (0, 2), (1, 1), (2, 1)].map(|(g, m)| lengths.tokens(0, g, m)),
            [5, 6, 5, 7, 6]
        );
        for (text, why) in [("", "no lengths"), ("1 2\nx", "line 2"), ("0", "at least one token")] {
            let error = with(text).err().unwrap().to_string();
            assert!(error.contains(why) && error.starts_with("`lengths.recorded`"), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
