//! Follows counting environments from unroll to unroll, and refuses whatever is lost, repeated or shifted.

use std::collections::BTreeMap;

use forebay::trajectory::{EpisodeEnd, FinalObservation, Unroll};

use super::counting::{CHOICES, Place};

/// Where an environment must stand next, and what came before.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    place: Place,
    previous_reward: f32,
    episode_return: f64,
}

impl Cursor {
    fn start(env: u32, episode: u32) -> Self {
        Self { place: Place::start(env, episode), previous_reward: 0.0, episode_return: 0.0 }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Follower {
    cursors: BTreeMap<u32, Cursor>,
    /// The next sequence number of each (actor, lane, incarnation).
    sequences: BTreeMap<(u32, u32, u32), u64>,
    /// Steps seen.
    pub steps: u64,
}

impl Follower {
    /// From now on environment `env` must start with this episode.
    pub fn expect_episode(&mut self, env: u32, episode: u32) {
        self.cursors.insert(env, Cursor::start(env, episode));
    }

    /// The next unroll of one of the lanes.
    pub fn follow(&mut self, unroll: &Unroll) {
        let id = unroll.id;
        let sequence = self.sequences.entry((id.actor, id.lane, id.incarnation)).or_default();
        assert_eq!(id.sequence, *sequence, "sequence of {id:?}");
        *sequence += 1;
        let (steps, columns) = (unroll.steps, unroll.columns);
        let entries = steps * columns;
        assert_eq!(unroll.versions.len(), steps);
        assert_eq!((unroll.actions.len(), unroll.rewards.len()), (entries, entries));
        assert_eq!((unroll.terminated.len(), unroll.truncated.len()), (entries, entries));
        assert_eq!((unroll.starts.len(), unroll.previous_rewards.len()), (columns, columns));
        assert_eq!(unroll.observations.len(), (entries + columns) * 4);
        assert_eq!(unroll.action_masks.len(), (entries + columns) * CHOICES as usize);
        assert_eq!(unroll.log_probs.len(), entries);
        assert!(unroll.log_probs.iter().all(|value| value.is_finite() && *value < 0.0));

        let (mut finals, mut ends) = (Vec::new(), Vec::new());
        for row in 0..=steps {
            for column in 0..columns {
                let (ended, last) = self.entry(unroll, row, column);
                ends.extend(ended);
                finals.extend(last);
            }
        }
        assert_eq!(unroll.final_observations, finals, "final observations of {id:?}");
        assert_eq!(unroll.episodes, ends, "episodes of {id:?}");
        self.steps += unroll.env_steps();
    }

    /// Checks what stands at one row of one column, and takes its step unless it is the bootstrap row.
    fn entry(
        &mut self,
        unroll: &Unroll,
        row: usize,
        column: usize,
    ) -> (Option<EpisodeEnd>, Option<FinalObservation>) {
        let entry = row * unroll.columns + column;
        let env = unroll.observations[column * 4] as u32;
        let cursor = self.cursors.entry(env).or_insert_with(|| Cursor::start(env, 0));
        let (place, at) = (cursor.place, format!("row {row}, column {column} of {:?}", unroll.id));
        assert_eq!(unroll.observations[entry * 4..][..4], place.observation(), "observation, {at}");
        let choices = CHOICES as usize;
        assert_eq!(unroll.action_masks[entry * choices..][..choices], place.mask(), "mask, {at}");
        assert_eq!(unroll.starts_at(row, column), place.step == 0, "start, {at}");
        if row == 0 && place.step > 0 {
            assert_eq!(unroll.previous_actions[column] + 1.0, place.came_by as f32, "previous action, {at}");
            assert_eq!(unroll.previous_rewards[column], cursor.previous_reward, "previous reward, {at}");
        }
        if row == unroll.steps {
            return (None, None);
        }

        let action = unroll.actions[entry] as u32;
        assert!(place.mask()[action as usize], "action {action} is masked, {at}");
        let (reward, next) = (place.reward(action), place.after(action));
        assert_eq!(unroll.rewards[entry], reward, "reward, {at}");
        let truncated = next.is_truncated();
        assert_eq!(unroll.terminated[entry], next.is_end() && !truncated, "terminated, {at}");
        assert_eq!(unroll.truncated[entry], next.is_end() && truncated, "truncated, {at}");
        cursor.episode_return += f64::from(reward);
        (cursor.place, cursor.previous_reward) = (next, reward);
        if !next.is_end() {
            return (None, None);
        }
        let ended = EpisodeEnd { env, episode_return: cursor.episode_return, length: next.step };
        *cursor = Cursor::start(env, next.episode + 1);
        let last = truncated.then(|| FinalObservation {
            step: row as u32,
            column: column as u32,
            observation: next.observation().to_vec(),
        });
        (Some(ended), last)
    }
}
