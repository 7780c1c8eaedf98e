//! Groups as the flat arrays that objectives read: one row for each trajectory, one entry for each token after its
//! prompt.

use std::collections::BTreeMap;
use std::ops::Range;

use super::batch::{Shape, TokenBatch};
use super::settings::TokenLearnerConfig;
use crate::policy::{Pack, Place, Scores};
use crate::trajectory::{Finish, Group, TokenFate, TokenFates, Trajectory, Version};

/// Which tokens of a batch count: actions of answers that were graded, less those that the settings leave out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossMask {
    /// Answers that were cut off are left out.
    pub(super) without_truncated: bool,
    /// Tokens that were sampled more than so many updates before `version` are left out.
    pub(super) max_token_age: Option<u64>,
    /// The version that learns from the batch.
    pub(super) version: Version,
}

impl LossMask {
    /// What the settings leave out of a batch that this version learns from.
    pub(super) fn new(config: &TokenLearnerConfig, version: Version) -> Self {
        let TokenLearnerConfig { mask_truncated, max_token_age, .. } = *config;
        Self { without_truncated: mask_truncated, max_token_age, version }
    }

    /// What is left out of an answer as a whole, if anything.
    fn of_answer(&self, answer: &Trajectory) -> Option<TokenFate> {
        let cut_off = answer.finish.is_some_and(|finish: Finish| !finish.is_terminal());
        if answer.reward.is_none() {
            return Some(TokenFate::Ungraded);
        }
        (self.without_truncated && cut_off).then_some(TokenFate::Truncated)
    }

    /// Whether an action of this version is young enough.
    fn takes(&self, version: Version) -> bool {
        self.max_token_age.is_none_or(|most| self.version.lag_of(version) <= most)
    }
}

/// Flat arrays of a batch or a part of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Flat {
    pub(super) rows: Vec<Range<usize>>,
    /// Label of each row's prompt.
    pub(super) prompts: Vec<usize>,
    /// Reward of each row.
    pub(super) rewards: Vec<Option<f64>>,
    /// Actions of rows that are learned from, whatever their age: what returns and advantages are made over.
    pub(super) actions: Vec<bool>,
    /// Those that are young enough: the loss tokens.
    pub(super) mask: Vec<bool>,
    /// The other tokens of a whole batch, by why they are left out.
    pub(super) left_out: TokenFates,
    pub(super) behaviour: Vec<f32>,
    pub(super) versions: Vec<Version>,
    /// Filled in when they are known; empty before.
    pub(super) advantages: Vec<f32>,
    pub(super) proximal: Vec<f32>,
    pub(super) reference: Vec<f32>,
    pub(super) teacher: Vec<f32>,
    /// The critic's values at the start of the step, and what they should be.
    pub(super) values: Vec<f32>,
    pub(super) value_targets: Vec<f32>,
    /// First row of each group.
    pub(super) first_rows: Vec<usize>,
}

impl Flat {
    /// All rows of some groups, in order.
    pub(super) fn new(groups: &[&Group], of: LossMask) -> Self {
        let mut flat = Self::default();
        for (prompt, group) in groups.iter().enumerate() {
            flat.first_rows.push(flat.rows.len());
            for member in &group.members {
                let start = flat.mask.len();
                let whole = of.of_answer(member);
                for (&action, &version) in member.is_action.iter().zip(&member.versions) {
                    let young = of.takes(version);
                    flat.actions.push(action && whole.is_none());
                    flat.mask.push(action && whole.is_none() && young);
                    let left_out = match (action, whole, young) {
                        (false, _, _) => TokenFate::Observation,
                        (true, Some(fate), _) => fate,
                        (true, None, false) => TokenFate::Age,
                        (true, None, true) => continue,
                    };
                    flat.left_out.add(left_out, 1);
                }
                flat.behaviour.extend_from_slice(&member.log_probs);
                flat.versions.extend_from_slice(&member.versions);
                flat.rows.push(start..flat.mask.len());
                flat.prompts.push(prompt);
                flat.rewards.push(member.reward.as_ref().map(|reward| reward.value));
            }
        }
        flat
    }

    /// Number of tokens.
    pub(super) fn tokens(&self) -> usize {
        self.mask.len()
    }

    /// Row of a member of a group.
    pub(super) fn row_of(&self, group: usize, member: usize) -> usize {
        self.first_rows[group] + member
    }

    /// Whether anything is learned from a member of a group.
    pub(super) fn is_learned(&self, group: usize, member: usize) -> bool {
        self.mask[self.rows[self.row_of(group, member)].clone()].contains(&true)
    }

    /// Row of a token's trajectory.
    pub(super) fn row(&self, place: &Place) -> usize {
        self.row_of(place.group, place.member)
    }

    /// Entry of a token.
    pub(super) fn entry(&self, place: &Place) -> usize {
        self.rows[self.row(place)].start + place.token
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape { rows: &self.rows, prompts: &self.prompts, mask: &self.mask, rewards: Some(&self.rewards) }
    }

    /// What an objective reads, with the current log-probabilities and entropies.
    pub(super) fn batch<'a>(
        &'a self,
        log_probs: &'a [f32],
        entropies: &'a [f32],
        version: Version,
    ) -> TokenBatch<'a, f32> {
        let known = |values: &'a [f32]| (!values.is_empty()).then_some(values);
        TokenBatch {
            advantages: known(&self.advantages),
            proximal: known(&self.proximal),
            reference: known(&self.reference),
            teacher: known(&self.teacher),
            entropies: Some(entropies),
            versions: Some(&self.versions),
            version,
            ..TokenBatch::new(self.shape(), log_probs, &self.behaviour)
        }
    }

    /// The part of some groups, in the order given.
    pub(super) fn of_groups(&self, groups: &[usize]) -> Self {
        let end = |group: usize| self.first_rows.get(group + 1).copied().unwrap_or(self.rows.len());
        let mut first_rows = Vec::with_capacity(groups.len());
        let mut rows = Vec::new();
        for &group in groups {
            first_rows.push(rows.len());
            rows.extend(self.first_rows[group]..end(group));
        }
        Self { first_rows, ..self.select(&rows) }
    }

    /// The part of some rows, in the order given; places no longer apply to it.
    pub(super) fn select(&self, rows: &[usize]) -> Self {
        fn gather<T: Copy>(values: &[T], ranges: &[Range<usize>]) -> Vec<T> {
            if values.is_empty() {
                return Vec::new();
            }
            ranges.iter().flat_map(|range| &values[range.clone()]).copied().collect()
        }
        let ranges: Vec<Range<usize>> = rows.iter().map(|&row| self.rows[row].clone()).collect();
        let mut start = 0;
        let own = ranges.iter().map(|range| {
            let own = start..start + range.len();
            start = own.end;
            own
        });
        Self {
            rows: own.collect(),
            prompts: rows.iter().map(|&row| self.prompts[row]).collect(),
            rewards: rows.iter().map(|&row| self.rewards[row]).collect(),
            actions: gather(&self.actions, &ranges),
            mask: gather(&self.mask, &ranges),
            left_out: TokenFates::default(),
            behaviour: gather(&self.behaviour, &ranges),
            versions: gather(&self.versions, &ranges),
            advantages: gather(&self.advantages, &ranges),
            proximal: gather(&self.proximal, &ranges),
            reference: gather(&self.reference, &ranges),
            teacher: gather(&self.teacher, &ranges),
            values: gather(&self.values, &ranges),
            value_targets: gather(&self.value_targets, &ranges),
            first_rows: Vec::new(),
        }
    }
}

/// Scores of packs as one flat array, 0 where nothing is predicted.
pub(super) fn spread(
    flat: &Flat,
    packs: &[Pack],
    scores: &[Scores],
    values: impl Fn(&Scores) -> &Vec<f32>,
) -> Vec<f32> {
    let mut spread = vec![0.0; flat.tokens()];
    for (pack, scores) in packs.iter().zip(scores) {
        for (place, value) in pack.places.iter().zip(values(scores)) {
            spread[flat.entry(place)] = *value;
        }
    }
    spread
}

/// The rows of a pack as flat arrays of their own.
pub(super) struct PackRows {
    /// Rows of the whole, in the pack's order.
    pub(super) rows: Vec<usize>,
    /// Those rows.
    pub(super) flat: Flat,
    /// Entry of each of the pack's predicted tokens in `flat`.
    entries: Vec<usize>,
}

impl PackRows {
    /// The rows of `whole` that a pack of the same groups holds.
    pub(super) fn new(whole: &Flat, pack: &Pack) -> Self {
        let mut rows: Vec<usize> = pack.places.iter().map(|place| whole.row(place)).collect();
        rows.dedup();
        let flat = whole.select(&rows);
        let starts: BTreeMap<usize, usize> =
            rows.iter().zip(&flat.rows).map(|(&row, range)| (row, range.start)).collect();
        debug_assert_eq!(starts.len(), rows.len(), "a trajectory stands in one place of one pack");
        let entry = |place: &Place| starts[&whole.row(place)] + place.token;
        let entries = pack.places.iter().map(entry).collect();
        Self { rows, flat, entries }
    }

    /// One value for each predicted token as an array over the tokens of `flat`, 0 elsewhere.
    pub(super) fn spread(&self, values: &[f32]) -> Vec<f32> {
        let mut spread = vec![0.0; self.flat.tokens()];
        self.entries.iter().zip(values).for_each(|(&entry, &value)| spread[entry] = value);
        spread
    }

    /// The entries of the predicted tokens.
    pub(super) fn gather(&self, values: &[f32]) -> Vec<f32> {
        self.entries.iter().map(|&entry| values[entry]).collect()
    }
}
