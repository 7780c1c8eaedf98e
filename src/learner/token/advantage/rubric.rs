//! Advantages from rubric scores: how well a task was solved, beside whether its tests pass.
//!
//! Each graded answer has the parts `test`, `solution` and `behaviour`, and perhaps `hacked`. A source of problems is
//! graded in one of two ways at a time:
//!
//! - GRS, a reward that is the product of the three, minus the group's mean: also a group of passes alone says
//!   something, so this is for what is mostly solved;
//! - GAR, the plain advantages of the tests with those of the passes weighed by solution · behaviour: failures stay as
//!   they are, so this is for what is still being learned.
//!
//! Which of them, is told by the source's tracked pass rate. A confirmed hack has reward 0 before any statistic, and is
//! no pass. A group in which a graded answer lacks a score keeps the plain advantages of the tests: a quality grader
//! that failed is no reward 0. Source: Xiaomi, "MiMo-V2.6", 2026; the threshold on the pass rate is our choice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GarConfig, GarMember, GroupAdvantages, GrsParts, MeanBaselineConfig, gar, grs_rewards};
use crate::learner::advantage::AdvantageError;
use crate::trajectory::Reward;

/// What decides between GRS and GAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RubricMethod {
    /// The tracked pass rate of the problem's source.
    #[default]
    PassRate,
    /// Always GRS.
    Grs,
    /// Always GAR.
    Gar,
}

/// How a group is graded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricGrading {
    /// Rewards are products of the scores.
    Grs,
    /// Advantages of passes are weighed by the scores.
    Gar,
}

/// Settings of advantages from rubric scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RubricConfig {
    /// What decides between GRS and GAR.
    pub method: RubricMethod,
    /// Pass rate of a source from which on it is graded by GRS; below, and before anything was graded, by GAR.
    pub threshold: f64,
    /// How much of a tracked pass rate an update leaves as it was.
    pub decay: f64,
    /// Least test score of a pass.
    pub pass_at: f64,
    /// GAR: largest factor that passes are brought back to their summed advantage with.
    pub lambda_max: f64,
    /// Rewards closer than this to their mean count as equal to it.
    pub zero_tolerance: f64,
    /// Name of the part that says whether the tests pass; without such a part the reward itself counts.
    pub test: String,
    /// Name of the part that grades the solution, usually 0 to 1.
    pub solution: String,
    /// Name of the part that grades the behaviour that led to it, usually 0 to 1.
    pub behaviour: String,
    /// Name of the part that is above 0 where a pass was confirmed to be a hack.
    pub hacked: String,
}

impl Default for RubricConfig {
    fn default() -> Self {
        Self {
            method: RubricMethod::default(),
            threshold: 0.8,
            decay: 0.9,
            pass_at: 1.0,
            lambda_max: 2.0,
            zero_tolerance: MeanBaselineConfig::default().zero_tolerance,
            test: "test".into(),
            solution: "solution".into(),
            behaviour: "behaviour".into(),
            hacked: "hacked".into(),
        }
    }
}

/// What the parts of one answer's reward say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RubricScores {
    /// Whether the tests pass; the reward itself where it has no such part.
    pub test: f64,
    /// Solution and behaviour; `None` where a part is missing.
    pub quality: Option<(f64, f64)>,
    /// Whether it passed, and not by a hack.
    pub passed: bool,
    /// Whether it was confirmed to be a hack.
    pub hacked: bool,
}

impl RubricConfig {
    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        AdvantageError::check_fraction("threshold", self.threshold)?;
        let refuse = |name, value, expected| Err(AdvantageError::Setting { name, value, expected });
        if !(0.0..1.0).contains(&self.decay) {
            return refuse("decay", self.decay, "at least 0 and below 1");
        }
        if !self.pass_at.is_finite() {
            return refuse("pass_at", self.pass_at, "finite");
        }
        self.gar().validate()?;
        self.plain().validate()
    }

    fn gar(&self) -> GarConfig {
        GarConfig { lambda_max: Some(self.lambda_max) }
    }

    fn plain(&self) -> MeanBaselineConfig {
        MeanBaselineConfig { zero_tolerance: self.zero_tolerance }
    }

    /// Names of the parts that every grade must have.
    #[must_use]
    pub fn needed_parts(&self) -> [&str; 2] {
        [&self.solution, &self.behaviour]
    }

    /// How a source with this tracked pass rate is graded; `None`: nothing was graded yet.
    #[must_use]
    pub fn grading(&self, pass_rate: Option<f64>) -> RubricGrading {
        let mostly_solved = pass_rate.is_some_and(|rate| rate >= self.threshold);
        let by_product = match self.method {
            RubricMethod::PassRate => mostly_solved,
            RubricMethod::Grs => true,
            RubricMethod::Gar => false,
        };
        if by_product { RubricGrading::Grs } else { RubricGrading::Gar }
    }

    /// Reads the parts of a reward.
    #[must_use]
    pub fn scores(&self, reward: &Reward) -> RubricScores {
        let part = |name: &str| reward.part(name);
        let test = part(&self.test).unwrap_or(reward.value);
        let hacked = part(&self.hacked).is_some_and(|hacked| hacked > 0.0);
        RubricScores {
            test,
            quality: part(&self.solution).zip(part(&self.behaviour)),
            passed: test >= self.pass_at && !hacked,
            hacked,
        }
    }

    /// The rewards of a group before any shaping; plain test scores where `grading` is `None`.
    #[must_use]
    pub fn rewards(
        &self,
        scores: &[Option<RubricScores>],
        grading: Option<RubricGrading>,
    ) -> Vec<Option<f64>> {
        let of_tests = |scores: &RubricScores| if scores.hacked { 0.0 } else { scores.test };
        if grading != Some(RubricGrading::Grs) {
            return scores.iter().map(|scores| scores.as_ref().map(of_tests)).collect();
        }
        let parts = |scores: &RubricScores| {
            let (solution, behaviour) = scores.quality?;
            Some(GrsParts { test: of_tests(scores), solution, behaviour })
        };
        let parts: Vec<_> = scores.iter().map(|scores| scores.as_ref().and_then(parts)).collect();
        grs_rewards(&parts)
    }

    /// The advantages of answers that are compared with each other, and GAR's factor lambda where it was used. `rewards`
    /// are those of [`RubricConfig::rewards`] after shaping; `passed` is read for GAR only.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn advantages(
        &self,
        rewards: &[Option<f64>],
        scores: &[Option<RubricScores>],
        passed: &[bool],
        grading: Option<RubricGrading>,
    ) -> Result<(GroupAdvantages, Option<f64>), AdvantageError> {
        let mut plain = self.plain().advantages(rewards);
        if grading != Some(RubricGrading::Gar) || plain.zero_variance {
            return Ok((plain, None));
        }
        let graded: Vec<usize> = (0..rewards.len()).filter(|&member| rewards[member].is_some()).collect();
        let member = |&member: &usize| GarMember {
            reward: rewards[member].unwrap_or(0.0),
            passed: passed[member],
            factor: scores[member].and_then(|scores| scores.quality).map_or(0.0, |(s, b)| s * b),
            // Hacks have their reward of 0 and are no passes already.
            hacked: false,
        };
        let members: Vec<GarMember> = graded.iter().map(member).collect();
        let found = gar(&self.gar(), &members, false)?;
        for (&member, advantage) in graded.iter().zip(found.advantages) {
            plain.advantages[member] = advantage;
        }
        Ok((plain, found.lambda))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reward(value: f64, parts: &[(&str, f64)]) -> Reward {
        Reward { value, parts: parts.iter().map(|&(name, score)| (name.to_owned(), score)).collect() }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the members of a group have them")]
    fn graded(test: f64, solution: f64, hacked: f64) -> Option<RubricScores> {
        let parts = [("test", test), ("solution", solution), ("behaviour", 0.5), ("hacked", hacked)];
        Some(RubricConfig::default().scores(&reward(test, &parts)))
    }

    #[test]
    fn the_pass_rate_chooses_and_an_unknown_source_begins_with_gar() {
        use RubricGrading::{Gar, Grs};
        let config = RubricConfig::default();
        let chosen = [None, Some(0.0), Some(0.79), Some(0.8), Some(1.0)].map(|rate| config.grading(rate));
        assert_eq!(chosen, [Gar, Gar, Gar, Grs, Grs]);
        let always = RubricConfig { method: RubricMethod::Grs, ..RubricConfig::default() };
        assert_eq!(always.grading(None), Grs);
    }

    #[test]
    fn a_hack_has_reward_0_and_is_no_pass_in_either_way() {
        let config = RubricConfig::default();
        let scores = [graded(1.0, 1.0, 0.0), graded(1.0, 1.0, 1.0), graded(0.0, 1.0, 0.0), None];
        assert_eq!(scores.map(|s| s.is_some_and(|s| s.passed)), [true, false, false, false]);
        let of = |grading| config.rewards(&scores, grading);
        assert_eq!(of(Some(RubricGrading::Grs)), [Some(0.5), Some(0.0), Some(0.0), None]);
        assert_eq!(of(Some(RubricGrading::Gar)), [Some(1.0), Some(0.0), Some(0.0), None]);
        assert_eq!(of(None), of(Some(RubricGrading::Gar)));
    }

    #[test]
    fn gar_moves_credit_between_passes_and_leaves_failures_and_the_ungraded() {
        let config = RubricConfig { lambda_max: 10.0, ..RubricConfig::default() };
        let scores = [graded(1.0, 0.9, 0.0), graded(1.0, 0.3, 0.0), graded(0.0, 0.9, 0.0), None];
        let rewards = config.rewards(&scores, Some(RubricGrading::Gar));
        let passed = [true, true, false, false];
        let (found, lambda) =
            config.advantages(&rewards, &scores, &passed, Some(RubricGrading::Gar)).unwrap();
        assert!((found.advantages[0] / found.advantages[1] - 3.0).abs() < 1e-12, "{found:?}");
        assert!((found.advantages[2] + 2.0 / 3.0).abs() < 1e-12 && found.advantages[3] == 0.0);
        assert!((lambda.unwrap() - 1.0 / 0.3).abs() < 1e-12, "{lambda:?}");
        // Without scores, and where all passed, the plain advantages stay.
        let (plain, lambda) = config.advantages(&rewards, &scores, &passed, None).unwrap();
        assert_eq!((plain.advantages[0], lambda), (plain.advantages[1], None));
    }

    #[test]
    fn a_group_of_passes_says_something_by_grs_and_nothing_by_gar() {
        let config = RubricConfig::default();
        let scores = [graded(1.0, 0.9, 0.0), graded(1.0, 0.3, 0.0)];
        for (grading, says_nothing) in [(RubricGrading::Grs, false), (RubricGrading::Gar, true)] {
            let rewards = config.rewards(&scores, Some(grading));
            let (found, _) = config.advantages(&rewards, &scores, &[true, true], Some(grading)).unwrap();
            assert_eq!(found.zero_variance, says_nothing, "{grading:?}");
        }
    }

    #[test]
    fn a_missing_score_is_told_apart_from_a_score_of_0() {
        let config = RubricConfig::default();
        let none = config.scores(&reward(1.0, &[("solution", 0.0)]));
        assert_eq!((none.quality, none.test, none.passed), (None, 1.0, true));
        let zero = config.scores(&reward(1.0, &[("solution", 0.0), ("behaviour", 0.0)]));
        assert_eq!(zero.quality, Some((0.0, 0.0)));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        for (text, name) in [
            ("threshold = 1.5", "threshold"),
            ("decay = 1.0", "decay"),
            ("pass_at = nan", "pass_at"),
            ("lambda_max = 0.0", "lambda_max"),
            ("zero_tolerance = -1.0", "zero_tolerance"),
        ] {
            let config: RubricConfig = toml::from_str(text).unwrap();
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
