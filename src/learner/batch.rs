//! A batch: unrolls side by side, in the layout the network and the estimators read.
//!
//! Columns keep the order of the unrolls. Everything is time-major; T is the same for all unrolls of a run.

use crate::policy::{SequenceInput, StepInput};
use crate::trajectory::{Unroll, Version};

/// T steps of B columns.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// T.
    pub steps: usize,
    /// B.
    pub columns: usize,
    /// `[T + 1, B, observation_len]`.
    pub observations: Vec<f32>,
    /// `[T, B, mask_len]`.
    pub action_masks: Vec<bool>,
    /// `[T, B, action width]`.
    pub actions: Vec<f32>,
    /// Log-probabilities recorded while sampling, `[T, B]`.
    pub behaviour_log_probs: Vec<f32>,
    /// `[T, B]`.
    pub rewards: Vec<f32>,
    /// `[T, B]`.
    pub terminated: Vec<bool>,
    /// `[T, B]`.
    pub truncated: Vec<bool>,
    /// Version of every step, `[T, B]`.
    pub versions: Vec<Version>,
    /// Action before each row, `[T + 1, B, action width]`.
    pub previous_actions: Vec<f32>,
    /// Reward before each row, `[T + 1, B]`.
    pub previous_rewards: Vec<f32>,
    /// Whether an episode starts at a row, `[T + 1, B]`.
    pub starts: Vec<bool>,
    /// Recurrent state before row 0, `[B, core_len]`.
    pub core_state: Vec<f32>,
    /// The true final observations of truncated episodes.
    pub finals: Finals,
}

/// True final observations, in order of their places.
#[derive(Debug, Clone, Default)]
pub struct Finals {
    /// (step, column) at which each episode was cut off.
    pub places: Vec<(usize, usize)>,
    /// `[n, observation_len]`.
    pub observations: Vec<f32>,
    /// Actions that led there, `[n, action width]`.
    pub previous_actions: Vec<f32>,
    /// Rewards that came with them, `[n]`.
    pub previous_rewards: Vec<f32>,
    /// `[n]`, all false.
    pub starts: Vec<bool>,
}

/// Appends row `row` of an array with `width` values a row.
fn push_row<T: Copy>(to: &mut Vec<T>, from: &[T], row: usize, width: usize) {
    to.extend_from_slice(&from[row * width..(row + 1) * width]);
}

impl Batch {
    /// Puts unrolls of the same T side by side. There must be at least one.
    #[must_use]
    pub fn collate(unrolls: &[&Unroll]) -> Self {
        let steps = unrolls[0].steps;
        let columns = unrolls.iter().map(|unroll| unroll.columns).sum();
        let mut batch = Self { steps, columns, ..Self::default() };
        let widths = |unroll: &Unroll| {
            let observation = unroll.observations.len() / (steps + 1);
            let mask = unroll.action_masks.len() / (steps + 1);
            (observation, mask, unroll.actions.len() / steps, unroll.columns)
        };
        batch.observations.reserve_exact(unrolls.iter().map(|unroll| unroll.observations.len()).sum());
        for t in 0..steps {
            for unroll in unrolls {
                let (observation, mask, action, entry) = widths(unroll);
                push_row(&mut batch.observations, &unroll.observations, t, observation);
                push_row(&mut batch.action_masks, &unroll.action_masks, t, mask);
                push_row(&mut batch.actions, &unroll.actions, t, action);
                push_row(&mut batch.behaviour_log_probs, &unroll.log_probs, t, entry);
                push_row(&mut batch.rewards, &unroll.rewards, t, entry);
                push_row(&mut batch.terminated, &unroll.terminated, t, entry);
                push_row(&mut batch.truncated, &unroll.truncated, t, entry);
                batch.versions.extend(std::iter::repeat_n(unroll.versions[t], entry));
            }
        }
        for unroll in unrolls {
            push_row(&mut batch.observations, &unroll.observations, steps, widths(unroll).0);
            batch.previous_actions.extend_from_slice(&unroll.previous_actions);
            batch.previous_rewards.extend_from_slice(&unroll.previous_rewards);
            batch.starts.extend_from_slice(&unroll.starts);
            batch.core_state.extend_from_slice(&unroll.core_state);
        }
        batch.previous_actions.extend_from_slice(&batch.actions);
        batch.previous_rewards.extend_from_slice(&batch.rewards);
        batch.starts.extend(batch.terminated.iter().zip(&batch.truncated).map(|(a, b)| *a || *b));
        batch.collect_finals(unrolls);
        batch
    }

    fn collect_finals(&mut self, unrolls: &[&Unroll]) {
        let width = self.actions.len() / (self.steps * self.columns);
        let mut first_column = 0;
        for unroll in unrolls {
            for last in &unroll.final_observations {
                let (step, column) = (last.step as usize, first_column + last.column as usize);
                let entry = step * self.columns + column;
                self.finals.places.push((step, column));
                self.finals.observations.extend_from_slice(&last.observation);
                push_row(&mut self.finals.previous_actions, &self.actions, entry, width);
                self.finals.previous_rewards.push(self.rewards[entry]);
                self.finals.starts.push(false);
            }
            first_column += unroll.columns;
        }
    }

    /// Number of steps, T · B.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.steps * self.columns
    }

    /// What the network reads.
    #[must_use]
    pub fn input(&self) -> SequenceInput<'_> {
        SequenceInput {
            rows: self.steps + 1,
            columns: self.columns,
            steps: StepInput {
                observations: &self.observations,
                previous_actions: &self.previous_actions,
                previous_rewards: &self.previous_rewards,
                starts: &self.starts,
                core_state: &self.core_state,
            },
            final_places: &self.finals.places,
            finals: StepInput {
                observations: &self.finals.observations,
                previous_actions: &self.finals.previous_actions,
                previous_rewards: &self.finals.previous_rewards,
                starts: &self.finals.starts,
                core_state: &[],
            },
        }
    }

    /// Values of the final observations spread over `[T, B]`; zero elsewhere, where nobody reads them.
    #[must_use]
    pub fn spread_final_values(&self, values: &[f32]) -> Vec<f32> {
        let mut spread = vec![0.0; self.entries()];
        for (&(step, column), &value) in self.finals.places.iter().zip(values) {
            spread[step * self.columns + column] = value;
        }
        spread
    }

    /// The batch of some of the columns, in the order given.
    #[must_use]
    pub fn select_columns(&self, chosen: &[usize]) -> Self {
        let mut place = vec![usize::MAX; self.columns];
        chosen.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let mut finals = Finals::default();
        for (i, &(step, column)) in self.finals.places.iter().enumerate() {
            if place[column] == usize::MAX {
                continue;
            }
            let n = self.finals.places.len();
            finals.places.push((step, place[column]));
            push_row(
                &mut finals.observations,
                &self.finals.observations,
                i,
                self.finals.observations.len() / n,
            );
            let width = self.finals.previous_actions.len() / n;
            push_row(&mut finals.previous_actions, &self.finals.previous_actions, i, width);
            finals.previous_rewards.push(self.finals.previous_rewards[i]);
            finals.starts.push(false);
        }
        Self {
            steps: self.steps,
            columns: chosen.len(),
            observations: self.select(&self.observations, self.steps + 1, chosen),
            action_masks: self.select(&self.action_masks, self.steps, chosen),
            actions: self.select(&self.actions, self.steps, chosen),
            behaviour_log_probs: self.select(&self.behaviour_log_probs, self.steps, chosen),
            rewards: self.select(&self.rewards, self.steps, chosen),
            terminated: self.select(&self.terminated, self.steps, chosen),
            truncated: self.select(&self.truncated, self.steps, chosen),
            versions: self.select(&self.versions, self.steps, chosen),
            previous_actions: self.select(&self.previous_actions, self.steps + 1, chosen),
            previous_rewards: self.select(&self.previous_rewards, self.steps + 1, chosen),
            starts: self.select(&self.starts, self.steps + 1, chosen),
            core_state: self.select(&self.core_state, 1, chosen),
            finals,
        }
    }

    /// Some of the steps, beginning with recurrent state `core_state`; the row after them stands as bootstrap row.
    /// Final observations are left out.
    #[must_use]
    pub fn select_rows(&self, steps: std::ops::Range<usize>, core_state: Vec<f32>) -> Self {
        fn cut<T: Copy>(from: &[T], rows: usize, steps: std::ops::Range<usize>) -> Vec<T> {
            let width = from.len() / rows;
            from[steps.start * width..steps.end * width].to_vec()
        }
        let with_next = steps.start..steps.end + 1;
        let (rows, all) = (self.steps, self.steps + 1);
        Self {
            steps: steps.len(),
            columns: self.columns,
            observations: cut(&self.observations, all, with_next.clone()),
            action_masks: cut(&self.action_masks, rows, steps.clone()),
            actions: cut(&self.actions, rows, steps.clone()),
            behaviour_log_probs: cut(&self.behaviour_log_probs, rows, steps.clone()),
            rewards: cut(&self.rewards, rows, steps.clone()),
            terminated: cut(&self.terminated, rows, steps.clone()),
            truncated: cut(&self.truncated, rows, steps.clone()),
            versions: cut(&self.versions, rows, steps),
            previous_actions: cut(&self.previous_actions, all, with_next.clone()),
            previous_rewards: cut(&self.previous_rewards, all, with_next.clone()),
            starts: cut(&self.starts, all, with_next),
            core_state,
            finals: Finals::default(),
        }
    }

    /// Columns `chosen` of an array `[rows, B, width]`.
    pub(super) fn select<T: Copy>(&self, from: &[T], rows: usize, chosen: &[usize]) -> Vec<T> {
        let width = from.len() / (rows * self.columns);
        let mut to = Vec::with_capacity(rows * chosen.len() * width);
        for row in 0..rows {
            for &column in chosen {
                push_row(&mut to, from, row * self.columns + column, width);
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::{FinalObservation, UnrollId};

    /// An unroll whose every value says where it came from.
    fn unroll(mark: f32, columns: usize) -> Unroll {
        let steps = 2;
        let entries = steps * columns;
        let numbered = |n: usize, base: f32| (0..n).map(|i| mark + base + i as f32).collect::<Vec<f32>>();
        Unroll {
            id: UnrollId { actor: 0, lane: 0, incarnation: 0, sequence: 0 },
            steps,
            columns,
            versions: vec![Version(mark as u64); steps],
            observations: numbered((steps + 1) * columns, 0.0),
            action_masks: vec![],
            actions: numbered(entries, 10.0),
            log_probs: numbered(entries, 20.0),
            rewards: numbered(entries, 30.0),
            terminated: vec![false; entries],
            truncated: (0..entries).map(|i| i == columns - 1).collect(),
            final_observations: vec![FinalObservation {
                step: 0,
                column: columns as u32 - 1,
                observation: vec![mark + 90.0],
            }],
            starts: vec![true; columns],
            previous_actions: vec![mark; columns],
            previous_rewards: vec![mark; columns],
            core_state: vec![mark; 2 * columns],
            episodes: vec![],
        }
    }

    #[test]
    fn unrolls_stand_side_by_side_in_time_major_order() {
        let batch = Batch::collate(&[&unroll(0.0, 1), &unroll(100.0, 2)]);
        assert_eq!((batch.steps, batch.columns), (2, 3));
        assert_eq!(batch.observations, [0.0, 100.0, 101.0, 1.0, 102.0, 103.0, 2.0, 104.0, 105.0]);
        assert_eq!(batch.actions, [10.0, 110.0, 111.0, 11.0, 112.0, 113.0]);
        assert_eq!(batch.previous_rewards, [0.0, 100.0, 100.0, 30.0, 130.0, 131.0, 31.0, 132.0, 133.0]);
        assert_eq!(batch.starts, [true, true, true, true, false, true, false, false, false]);
        assert_eq!(batch.finals.places, [(0, 0), (0, 2)]);
        assert_eq!(batch.finals.observations, [90.0, 190.0]);
        assert_eq!(batch.finals.previous_actions, [10.0, 111.0]);
        assert_eq!(batch.spread_final_values(&[7.0, 8.0]), [7.0, 0.0, 8.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn selected_columns_keep_everything_that_belongs_to_them() {
        let both = Batch::collate(&[&unroll(0.0, 1), &unroll(100.0, 2)]);
        let alone = Batch::collate(&[&unroll(100.0, 2)]);
        let selected = both.select_columns(&[1, 2]);
        assert_eq!(format!("{selected:?}"), format!("{alone:?}"));
    }
}
