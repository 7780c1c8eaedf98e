//! From the grades of a group to what is learned from: rubric, shaping, and which answers are compared.
//!
//! A pure function of a group, the settings, the way its source is graded and the version. The plane asks it whether a
//! group says anything, the learner what it says, so that both agree. Grades in records are left as they are.

use super::advantage::{GroupAdvantages, RubricGrading, RubricScores, Shaped, ShapedAnswer};
use super::settings::{Compare, TokenLearnerConfig};
use crate::learner::advantage::AdvantageError;
use crate::trajectory::{Group, Trajectory, Version};

/// A group's rewards after rubric and shaping.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRewards {
    shaped: Vec<Shaped>,
    scores: Vec<Option<RubricScores>>,
    /// Passes of the rubric that are within their budget.
    passed: Vec<bool>,
    /// How the rubric grades it; `None` without a rubric, and where a score is missing.
    grading: Option<RubricGrading>,
    /// Whether a score is missing.
    rubric_failed: bool,
}

/// The advantages of a group's members.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compared {
    /// One for each member, 0 where it has no reward.
    pub advantages: Vec<f64>,
    /// Whether no two answers that are compared differ.
    pub zero_variance: bool,
    /// GAR's factors, one for each set of compared answers in which it was used.
    pub lambdas: Vec<f64>,
}

/// What rubric and shaping did to the groups of an update, in sums and counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RewardFigures {
    /// Graded answers.
    pub answers: u64,
    /// Sum of the rewards that are learned from.
    pub shaped: f64,
    /// Sum of the weighted length rewards, without their signs.
    pub length_rewards: f64,
    /// Answers with an overlong penalty.
    pub overlong: u64,
    /// Answers over their budget.
    pub over_budget: u64,
    /// Answers confirmed to be hacks.
    pub hacks: u64,
    /// Groups graded by GRS.
    pub grs_groups: u64,
    /// Groups graded by GAR.
    pub gar_groups: u64,
    /// Groups that keep their plain advantages since a score is missing.
    pub rubric_failures: u64,
    /// Groups in which no two answers that are compared differ.
    pub alike_groups: u64,
    /// Sum of GAR's factors.
    pub lambdas: f64,
    /// How many there are.
    pub lambda_count: u64,
}

impl RewardFigures {
    /// A sum as a mean over the graded answers; `None` without any.
    #[must_use]
    pub fn share(&self, sum: f64) -> Option<f64> {
        (self.answers > 0).then(|| sum / self.answers as f64)
    }

    /// Mean of GAR's factors; `None` where it was not used.
    #[must_use]
    pub fn lambda_mean(&self) -> Option<f64> {
        (self.lambda_count > 0).then(|| self.lambdas / self.lambda_count as f64)
    }

    /// Adds a group.
    pub fn add(&mut self, rewards: &GroupRewards) {
        for (shaped, scores) in rewards.shaped.iter().zip(&rewards.scores) {
            let Some(reward) = shaped.reward else { continue };
            self.answers += 1;
            self.shaped += reward;
            self.length_rewards += shaped.length_reward.abs();
            self.overlong += u64::from(shaped.overlong_penalty < 0.0);
            self.over_budget += u64::from(shaped.over_budget);
            self.hacks += u64::from(scores.is_some_and(|scores| scores.hacked));
        }
        self.grs_groups += u64::from(rewards.grading == Some(RubricGrading::Grs));
        self.gar_groups += u64::from(rewards.grading == Some(RubricGrading::Gar));
        self.rubric_failures += u64::from(rewards.rubric_failed);
    }

    /// Adds what comparing a group's answers came to.
    pub fn add_compared(&mut self, compared: &Compared) {
        self.alike_groups += u64::from(compared.zero_variance);
        self.lambdas += compared.lambdas.iter().sum::<f64>();
        self.lambda_count += compared.lambdas.len() as u64;
    }
}

impl GroupRewards {
    /// The rewards of a group whose source is graded by `grading`, at a version.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn of(
        config: &TokenLearnerConfig,
        group: &Group,
        grading: RubricGrading,
        version: Version,
    ) -> Result<Self, AdvantageError> {
        let rubric = config.advantage.rubric();
        let score = |member: &Trajectory| Some(rubric?.scores(member.reward.as_ref()?));
        let scores: Vec<_> = group.members.iter().map(score).collect();
        let rubric_failed = scores.iter().flatten().any(|scores| scores.quality.is_none());
        let grading = rubric.filter(|_| !rubric_failed).map(|_| grading);
        let rewards = rubric.map_or_else(|| group.rewards(), |rubric| rubric.rewards(&scores, grading));
        let correct_at = config.shaping.length.unwrap_or_default().correct_at;
        let members = group.members.iter().enumerate().zip(rewards).zip(&scores);
        let answer =
            |(((index, member), reward), scores): (((usize, &Trajectory), _), &Option<RubricScores>)| {
                let value = member.reward.as_ref().map(|reward| reward.value);
                ShapedAnswer {
                    reward,
                    correct: scores.map_or_else(
                        || value.is_some_and(|value| value >= correct_at),
                        |scores| scores.passed,
                    ),
                    length: member.action_count(),
                    tau: config.effort_of(index).map(|effort| effort.tau),
                }
            };
        let answers: Vec<ShapedAnswer> = members.map(answer).collect();
        let shaped = config.shaping.shape(&answers, group.budget, version)?;
        let passed = scores.iter().zip(&shaped);
        let passed = passed.map(|(scores, shaped)| scores.is_some_and(|s| s.passed) && !shaped.over_budget);
        Ok(Self { passed: passed.collect(), shaped, scores, grading, rubric_failed })
    }

    /// The rewards that are learned from; `None` where grading failed.
    #[must_use]
    pub fn rewards(&self) -> Vec<Option<f64>> {
        self.shaped.iter().map(|shaped| shaped.reward).collect()
    }

    /// The advantages where they compare answers, `None` where they do not. `rewards` are those of
    /// [`GroupRewards::rewards`], perhaps less what the divergence from a reference policy costs.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn compared(
        &self,
        config: &TokenLearnerConfig,
        rewards: &[Option<f64>],
    ) -> Result<Option<Compared>, AdvantageError> {
        let mut all =
            Compared { advantages: vec![0.0; rewards.len()], zero_variance: true, lambdas: Vec::new() };
        for set in config.compared_sets(rewards.len()) {
            let own: Vec<Option<f64>> = set.iter().map(|&member| rewards[member]).collect();
            let Some((found, lambda)) = self.of_set(config, &set, &own)? else { return Ok(None) };
            all.zero_variance &= found.zero_variance;
            all.lambdas.extend(lambda);
            for (member, advantage) in set.into_iter().zip(found.advantages) {
                all.advantages[member] = advantage;
            }
        }
        Ok(Some(all))
    }

    fn of_set(
        &self,
        config: &TokenLearnerConfig,
        set: &[usize],
        rewards: &[Option<f64>],
    ) -> Result<Option<(GroupAdvantages, Option<f64>)>, AdvantageError> {
        let Some(rubric) = config.advantage.rubric() else {
            return Ok(config.advantage.group(rewards).map(|found| (found, None)));
        };
        let scores: Vec<_> = set.iter().map(|&member| self.scores[member]).collect();
        let passed: Vec<bool> = set.iter().map(|&member| self.passed[member]).collect();
        rubric.advantages(rewards, &scores, &passed, self.grading).map(Some)
    }

    /// Graded answers and passes of the rubric among them, for the pass rate of the source.
    #[must_use]
    pub fn passes(&self) -> super::advantage::PassCount {
        let graded = self.scores.iter().flatten();
        super::advantage::PassCount {
            answers: graded.clone().count() as u64,
            passes: graded.filter(|scores| scores.passed).count() as u64,
        }
    }
}

impl TokenLearnerConfig {
    /// The members of a group of `count` that are compared with each other, set by set.
    fn compared_sets(&self, count: usize) -> Vec<Vec<usize>> {
        let sets = if self.compare == Compare::Effort { self.efforts.len().max(1) } else { 1 };
        (0..sets).map(|set| (set..count).step_by(sets).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::trajectory::{Reward, TrajectoryId};

    fn config(text: &str) -> TokenLearnerConfig {
        toml::from_str(text).unwrap()
    }

    fn group(members: &[(usize, Option<Reward>)]) -> Group {
        let member = |(length, reward): &(usize, Option<Reward>)| {
            let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([1]));
            (0..*length).for_each(|_| trajectory.push_action(2, -1.0, Version(0)));
            // What the task says is not the model's.
            trajectory.push_observation(&[3, 3, 3], Version(0));
            Trajectory { reward: reward.clone(), ..trajectory }
        };
        let members = members.iter().map(member).collect();
        Group { epoch: 0, prompt: 0, source: "test".into(), budget: None, members }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the members of a group have them")]
    fn plain(value: f64) -> Option<Reward> {
        Some(Reward::of(value))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the members of a group have them")]
    fn scored(test: f64, solution: f64) -> Option<Reward> {
        let parts = [("test", test), ("solution", solution), ("behaviour", 1.0)];
        let parts = parts.map(|(name, score)| (name.to_owned(), score)).to_vec();
        Some(Reward { value: test, parts })
    }

    fn advantages(config: &TokenLearnerConfig, group: &Group, grading: RubricGrading) -> Compared {
        let rewards = GroupRewards::of(config, group, grading, Version(0)).unwrap();
        rewards.compared(config, &rewards.rewards()).unwrap().unwrap()
    }

    #[test]
    fn shaping_gives_contrast_to_a_group_of_right_answers() {
        let group = group(&[(4, plain(1.0)), (8, plain(1.0)), (6, plain(1.0))]);
        let alike = config("advantage = { kind = 'mean_baseline' }");
        assert!(advantages(&alike, &group, RubricGrading::Gar).zero_variance);
        let shaped = config("advantage = { kind = 'mean_baseline' }\nshaping = { length = {} }");
        let found = advantages(&shaped, &group, RubricGrading::Gar);
        assert_eq!((found.advantages, found.zero_variance), (vec![0.5, -0.5, 0.0], false));
    }

    #[test]
    fn subgroups_are_compared_each_by_itself() {
        let text = "advantage = { kind = 'mean_baseline' }\nefforts = [{ name = 'low' }, { name = 'high' }]";
        let group = group(&[1.0, 4.0, 3.0, 8.0, 2.0, 6.0].map(|reward| (3, plain(reward))));
        let whole = advantages(&config(text), &group, RubricGrading::Gar);
        assert_eq!(whole.advantages, [-3.0, 0.0, -1.0, 4.0, -2.0, 2.0]);
        let apart = config(&format!("{text}\ncompare = 'effort'"));
        assert_eq!(
            advantages(&apart, &group, RubricGrading::Gar).advantages,
            [-1.0, -2.0, 1.0, 2.0, 0.0, 0.0]
        );
        // One subgroup with contrast is enough.
        let half = self::group(&[1.0, 4.0, 1.0, 8.0].map(|reward| (3, plain(reward))));
        let found = advantages(&apart, &half, RubricGrading::Gar);
        assert_eq!((found.advantages, found.zero_variance), (vec![0.0, -2.0, 0.0, 2.0], false));
    }

    #[test]
    fn each_effort_has_its_own_budget() {
        let text = "shaping = { effort_budget = { base = 4 } }\n\
                    efforts = [{ name = 'low', tau = 1.0 }, { name = 'high', tau = 3.0 }]";
        let group = group(&[(5, plain(1.0)), (5, plain(1.0)), (4, plain(1.0)), (13, plain(1.0))]);
        let rewards = GroupRewards::of(&config(text), &group, RubricGrading::Gar, Version(0)).unwrap();
        assert_eq!(rewards.rewards(), [Some(-1.0), Some(1.0), Some(1.0), Some(-1.0)]);
        let mut figures = RewardFigures::default();
        figures.add(&rewards);
        assert_eq!((figures.answers, figures.over_budget, figures.shaped), (4, 2, 0.0));
    }

    #[test]
    fn a_group_that_lacks_a_score_keeps_plain_advantages_and_is_counted() {
        let config = config("advantage = { kind = 'rubric', lambda_max = 9.0 }");
        let whole = group(&[(1, scored(1.0, 0.9)), (1, scored(1.0, 0.3)), (1, scored(0.0, 0.5)), (1, None)]);
        assert_ne!(advantages(&config, &whole, RubricGrading::Gar).advantages[0], 1.0 / 3.0);
        let lacking = group(&[(1, scored(1.0, 0.9)), (1, plain(1.0)), (1, scored(0.0, 0.5)), (1, None)]);
        for grading in [RubricGrading::Grs, RubricGrading::Gar] {
            let found = advantages(&config, &lacking, grading);
            assert!(found.lambdas.is_empty());
            assert_eq!(found.advantages[0], found.advantages[1]);
            assert!((found.advantages[0] - 1.0 / 3.0).abs() < 1e-12, "{found:?}");
            let rewards = GroupRewards::of(&config, &lacking, grading, Version(0)).unwrap();
            let mut figures = RewardFigures::default();
            figures.add(&rewards);
            assert_eq!((figures.rubric_failures, figures.grs_groups, figures.gar_groups), (1, 0, 0));
            assert_eq!((rewards.passes().passes, rewards.passes().answers), (2, 3));
        }
    }

    #[test]
    fn a_pass_over_its_budget_is_no_pass() {
        let config = config(
            "advantage = { kind = 'rubric', lambda_max = 9.0 }\nshaping = { effort_budget = { base = 4 } }",
        );
        let group = group(&[(4, scored(1.0, 0.5)), (5, scored(1.0, 1.0)), (1, scored(0.0, 1.0))]);
        let found = advantages(&config, &group, RubricGrading::Gar);
        // One pass keeps its whole advantage, whatever its quality.
        assert_eq!((found.advantages, found.lambdas), (vec![1.0, -1.0, 0.0], vec![2.0]));
    }

    #[test]
    fn estimators_that_compare_nothing_get_shaped_rewards() {
        let config = config("advantage = { kind = 'reinforce' }\nshaping = { effort_budget = { base = 4 } }");
        let group = group(&[(5, plain(1.0))]);
        let rewards = GroupRewards::of(&config, &group, RubricGrading::Gar, Version(0)).unwrap();
        assert_eq!(rewards.compared(&config, &rewards.rewards()).unwrap(), None);
        assert_eq!(rewards.rewards(), [Some(-1.0)]);
    }
}
