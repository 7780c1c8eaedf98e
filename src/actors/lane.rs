//! A lane: environments of one rollout actor that step together and fill one unroll after the other.
//!
//! Invariants, whatever the inference in front of it:
//! - row `t` of an unroll holds the observation at which its action was taken, and the last row of an unroll is the
//!   first of the next: no step is lost, repeated or shifted at a border, a reset or a restart;
//! - every environment step is booked in the ledger in the call that took it, also when a later environment of the
//!   same row fails;
//! - every random choice is a function of (seed, environment id, episode, step) alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::control::Heartbeat;
use super::faults::ActorFaults;
use super::snapshot::{LaneSnapshot, SavedEnv, SlotSnapshot};
use crate::env::{Action, Checked, EnvError};
use crate::policy::{Policy, StepInput, StepOutput};
use crate::random::{Stream, derive_seed, draw};
use crate::trajectory::{
    BufferedTicket, DropReason, EpisodeEnd, FinalObservation, Ledger, LiveTicket, Unroll, UnrollId, Version,
};

/// Most actions kept for replaying an episode of an environment that cannot save.
const REPLAY_LIMIT: usize = 100_000;

/// The next episode index of every environment of the run. Outlives the actors, so that a restarted environment takes
/// the next episode instead of repeating one.
#[derive(Debug)]
pub struct EpisodeCounters(Vec<AtomicU32>);

impl EpisodeCounters {
    /// Counters that continue from `next`.
    #[must_use]
    pub fn new(next: Vec<u32>) -> Self {
        Self(next.into_iter().map(AtomicU32::new).collect())
    }

    fn take(&self, env: u32) -> u32 {
        self.0[env as usize].fetch_add(1, Ordering::Relaxed)
    }

    /// The next index of every environment.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u32> {
        self.0.iter().map(|next| next.load(Ordering::Relaxed)).collect()
    }
}

/// What a lane shares with the rest of the run.
#[derive(Debug, Clone)]
pub struct LaneContext {
    /// The run's seed.
    pub seed: u64,
    /// The architecture, for its action distribution and core size.
    pub policy: Arc<Policy>,
    /// T.
    pub unroll_length: usize,
    /// Rewards are clipped to ± this before the learner sees them.
    pub reward_clip: Option<f32>,
    /// The run's account.
    pub ledger: Ledger,
    /// Next episode of every environment.
    pub episodes: Arc<EpisodeCounters>,
    /// Shown before every call into an environment.
    pub heartbeat: Arc<Heartbeat>,
    /// Faults of this actor.
    pub faults: Arc<ActorFaults>,
}

/// A complete unroll and its place in the ledger.
#[derive(Debug)]
pub struct Experience {
    /// The unroll.
    pub unroll: Unroll,
    /// Its place in the ledger.
    pub ticket: BufferedTicket,
    /// The version that was the latest when it entered the queue; divides its lag into a part in flight and a part
    /// in the queue.
    pub queued_at: Version,
}

/// Counts the steps of a row and books them when it ends, also when it ends in a panic.
struct BookedRow<'a> {
    ticket: &'a mut LiveTicket,
    taken: u64,
}

impl Drop for BookedRow<'_> {
    fn drop(&mut self) {
        self.ticket.step(self.taken);
    }
}

struct Slot {
    env: Checked,
    id: u32,
    episode: u32,
    step: u32,
    episode_return: f64,
    /// Actions of this episode as the environment received them, when it cannot save its state.
    replay: Option<Vec<f32>>,
}

/// See the module's documentation.
pub struct Lane {
    context: LaneContext,
    slots: Vec<Slot>,
    unroll: Unroll,
    ticket: Option<LiveTicket>,
    /// Steps of the current unroll already taken.
    step: usize,
    /// Whether an episode starts at the current row, `[E]`.
    starts: Vec<bool>,
    /// Recurrent state before the current row, `[E, core_len]`.
    core_state: Vec<f32>,
    env_action: Vec<f32>,
}

impl Lane {
    /// Starts a new episode in every environment. `envs` come with their ids.
    ///
    /// # Errors
    /// When an environment cannot start.
    pub fn new(id: UnrollId, envs: Vec<(u32, Checked)>, context: LaneContext) -> Result<Self, EnvError> {
        let core_state = vec![0.0; envs.len() * context.policy.core_len()];
        let starts = vec![true; envs.len()];
        let slot = |(id, env)| Slot { env, id, episode: 0, step: 0, episode_return: 0.0, replay: None };
        let mut lane = Self {
            unroll: empty_unroll(id, &context, envs.len()),
            slots: envs.into_iter().map(slot).collect(),
            context,
            ticket: None,
            step: 0,
            starts,
            core_state,
            env_action: Vec::new(),
        };
        for column in 0..lane.slots.len() {
            lane.begin_episode(column)?;
        }
        lane.begin_unroll();
        Ok(lane)
    }

    /// Continues from a snapshot. A lane with an environment that cannot be restored starts anew: its partial unroll
    /// is booked as dropped.
    ///
    /// # Errors
    /// When an environment fails in restoring or starting.
    pub fn restore(
        incarnation: u32,
        envs: Vec<(u32, Checked)>,
        context: LaneContext,
        snapshot: LaneSnapshot,
    ) -> Result<Self, EnvError> {
        let ticket = snapshot.live_steps.map(|steps| context.ledger.adopt_live(steps));
        let fresh = |ticket: Option<LiveTicket>, envs| {
            ticket.into_iter().for_each(|ticket| ticket.discard(DropReason::Shutdown));
            let id = UnrollId { incarnation, sequence: 0, ..snapshot.unroll.id };
            Self::new(id, envs, context.clone())
        };
        if snapshot.slots.iter().any(|slot| matches!(slot.state, SavedEnv::Lost)) {
            return fresh(ticket, envs);
        }
        let mut slots = Vec::with_capacity(envs.len());
        for ((id, mut env), saved) in envs.into_iter().zip(&snapshot.slots) {
            context.heartbeat.enter(id);
            let mut replay = None;
            match &saved.state {
                SavedEnv::State(bytes) => env.restore(bytes)?,
                SavedEnv::Replay(actions) => {
                    env.reset(episode_seed(context.seed, id, saved.episode))?;
                    for action in actions.chunks_exact(env.spec().action_space.width()) {
                        env.step(Action::new(action))?;
                    }
                    replay = Some(actions.clone());
                }
                SavedEnv::Lost => {}
            }
            slots.push(Slot {
                env,
                id,
                episode: saved.episode,
                step: saved.step,
                episode_return: saved.episode_return,
                replay,
            });
        }
        context.heartbeat.leave();
        Ok(Self {
            slots,
            unroll: snapshot.unroll,
            ticket,
            step: snapshot.step,
            starts: snapshot.starts,
            core_state: snapshot.core_state,
            env_action: Vec::new(),
            context,
        })
    }

    /// The state of the lane between two steps.
    #[must_use]
    pub fn snapshot(&self) -> LaneSnapshot {
        let slot = |slot: &Slot| SlotSnapshot {
            episode: slot.episode,
            step: slot.step,
            episode_return: slot.episode_return,
            state: match (slot.env.save(), &slot.replay) {
                (Some(bytes), _) => SavedEnv::State(bytes),
                (None, Some(actions)) => SavedEnv::Replay(actions.clone()),
                (None, None) => SavedEnv::Lost,
            },
        };
        LaneSnapshot {
            unroll: self.unroll.clone(),
            step: self.step,
            live_steps: self.ticket.as_ref().map(LiveTicket::steps),
            starts: self.starts.clone(),
            core_state: self.core_state.clone(),
            slots: self.slots.iter().map(slot).collect(),
        }
    }

    /// Books the partial unroll as lost with its actor. The lane must not be used again.
    pub fn abandon(&mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.discard(DropReason::ActorRestart));
    }

    /// Whether the next step is the first of an unroll: the moment to take newer parameters.
    #[must_use]
    pub fn at_border(&self) -> bool {
        self.step == 0
    }

    /// What the policy needs to choose the next actions.
    #[must_use]
    pub fn input(&self) -> StepInput<'_> {
        let columns = self.slots.len();
        let observation_len = self.unroll.observations.len() / (columns * (self.step + 1));
        let (previous_actions, previous_rewards) = match self.step.checked_sub(1) {
            None => (&self.unroll.previous_actions[..], &self.unroll.previous_rewards[..]),
            Some(before) => {
                let width = columns * self.context.policy.distribution().action_width();
                (&self.unroll.actions[before * width..], &self.unroll.rewards[before * columns..])
            }
        };
        StepInput {
            observations: &self.unroll.observations[self.step * columns * observation_len..],
            previous_actions,
            previous_rewards,
            starts: &self.starts,
            core_state: &self.core_state,
        }
    }

    /// Takes the actions that `output`, the answer of policy `version` to [`Lane::input`], leads to. Returns the
    /// unroll when this step completed it.
    ///
    /// # Errors
    /// When an environment fails; the unroll is then booked as dropped and the lane must not be used again.
    pub fn advance(
        &mut self,
        mut output: StepOutput,
        version: Version,
    ) -> Result<Option<Experience>, EnvError> {
        if self.ticket.is_none() {
            self.context.faults.unroll_begins();
        }
        let mut ticket = self.ticket.take().unwrap_or_else(|| self.context.ledger.begin());
        let outcome = {
            let mut row = BookedRow { ticket: &mut ticket, taken: 0 };
            self.step_environments(&mut output.distribution, &mut row.taken)
        };
        self.context.heartbeat.leave();
        if let Err(error) = outcome {
            ticket.discard(DropReason::BadEnv);
            return Err(error);
        }
        self.core_state = output.core_state;
        self.unroll.versions.push(version);
        self.step += 1;
        if self.step < self.context.unroll_length {
            self.ticket = Some(ticket);
            return Ok(None);
        }
        let unroll = self.finish_unroll();
        Ok(Some(Experience { unroll, ticket: ticket.complete(), queued_at: version }))
    }

    /// Steps every environment once; `taken` counts the steps also when one fails.
    fn step_environments(&mut self, rows: &mut [f32], taken: &mut u64) -> Result<(), EnvError> {
        let policy = Arc::clone(&self.context.policy);
        let distribution = policy.distribution();
        let (width, parameter_len) = (distribution.action_width(), distribution.parameter_len());
        let mask_len = self.slots[0].env.spec().mask_len();
        let columns = self.slots.len();
        let masks_before = self.step * columns * mask_len;
        for (column, row) in rows.chunks_exact_mut(parameter_len).enumerate() {
            let slot = &mut self.slots[column];
            let mask = &self.unroll.action_masks[masks_before + column * mask_len..][..mask_len];
            let at = self.unroll.actions.len();
            self.unroll.actions.resize(at + width, 0.0);
            let action = &mut self.unroll.actions[at..];
            let key = [slot.id, slot.episode, slot.step];
            let words = |block| draw(self.context.seed, Stream::Action, [key[0], key[1], key[2], block]);
            self.unroll.log_probs.push(distribution.sample(row, mask, words, action));
            distribution.to_env(action, &mut self.env_action);

            self.context.heartbeat.enter(slot.id);
            let step = slot.env.step(Action::new(&self.env_action))?;
            *taken += 1;
            slot.step += 1;
            slot.episode_return += f64::from(step.reward);
            if let Some(actions) = &mut slot.replay {
                actions.extend_from_slice(&self.env_action);
                if actions.len() > REPLAY_LIMIT {
                    slot.replay = None;
                }
            }
            let clip = self.context.reward_clip.unwrap_or(f32::INFINITY);
            self.unroll.rewards.push(step.reward.clamp(-clip, clip));
            self.unroll.terminated.push(step.terminated);
            self.unroll.truncated.push(step.truncated);
            self.starts[column] = step.done();
            if step.done() {
                self.unroll.episodes.push(EpisodeEnd {
                    env: slot.id,
                    episode_return: slot.episode_return,
                    length: slot.step,
                });
                if step.truncated && !step.terminated {
                    let mut observation = Vec::new();
                    slot.env.observe(&mut observation)?;
                    self.unroll.final_observations.push(FinalObservation {
                        step: self.step as u32,
                        column: column as u32,
                        observation,
                    });
                }
                self.begin_episode(column)?;
            } else {
                slot.env.observe(&mut self.unroll.observations)?;
                if mask_len > 0 {
                    slot.env.action_mask(&mut self.unroll.action_masks)?;
                }
            }
        }
        Ok(())
    }

    /// Resets an environment and appends its first observation and mask.
    fn begin_episode(&mut self, column: usize) -> Result<(), EnvError> {
        let slot = &mut self.slots[column];
        self.context.heartbeat.enter(slot.id);
        slot.episode = self.context.episodes.take(slot.id);
        (slot.step, slot.episode_return) = (0, 0.0);
        slot.env.reset(episode_seed(self.context.seed, slot.id, slot.episode))?;
        slot.replay = slot.env.save().is_none().then(Vec::new);
        slot.env.observe(&mut self.unroll.observations)?;
        if slot.env.spec().masks_actions {
            slot.env.action_mask(&mut self.unroll.action_masks)?;
        }
        Ok(())
    }

    /// Notes in the new unroll, whose row 0 is already there, what came before it.
    fn begin_unroll(&mut self) {
        self.step = 0;
        self.unroll.starts.clone_from(&self.starts);
        self.unroll.core_state.clone_from(&self.core_state);
    }

    /// Takes the full unroll out and begins the next one with its last row.
    fn finish_unroll(&mut self) -> Unroll {
        let mut id = self.unroll.id;
        id.sequence += 1;
        let next = empty_unroll(id, &self.context, self.slots.len());
        let full = std::mem::replace(&mut self.unroll, next);
        let (rows, columns) = (full.steps + 1, full.columns);
        let last_row = |values: &[f32], rows: usize| values[values.len() - values.len() / rows..].to_vec();
        self.unroll.observations.extend(last_row(&full.observations, rows));
        let masks = full.action_masks.len() / rows;
        self.unroll.action_masks.extend_from_slice(&full.action_masks[full.action_masks.len() - masks..]);
        self.unroll.previous_actions = last_row(&full.actions, full.steps);
        self.unroll.previous_rewards = full.rewards[full.rewards.len() - columns..].to_vec();
        self.begin_unroll();
        full
    }
}

/// An unroll without rows, with room for all of them.
fn empty_unroll(id: UnrollId, context: &LaneContext, columns: usize) -> Unroll {
    let steps = context.unroll_length;
    let entries = steps * columns;
    let width = context.policy.distribution().action_width();
    Unroll {
        id,
        steps,
        columns,
        versions: Vec::with_capacity(steps),
        observations: Vec::with_capacity((steps + 1) * columns * context.policy.observation_len()),
        action_masks: Vec::new(),
        actions: Vec::with_capacity(entries * width),
        log_probs: Vec::with_capacity(entries),
        rewards: Vec::with_capacity(entries),
        terminated: Vec::with_capacity(entries),
        truncated: Vec::with_capacity(entries),
        final_observations: Vec::new(),
        starts: Vec::new(),
        previous_actions: vec![0.0; columns * width],
        previous_rewards: vec![0.0; columns],
        core_state: Vec::new(),
        episodes: Vec::new(),
    }
}

fn episode_seed(seed: u64, env: u32, episode: u32) -> u64 {
    derive_seed(seed, Stream::Episode, [env, episode, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_ends_in_a_panic_books_the_steps_it_took() {
        let ledger = Ledger::default();
        let inside = ledger.clone();
        let outcome = std::thread::spawn(move || {
            let mut ticket = inside.begin();
            let mut row = BookedRow { ticket: &mut ticket, taken: 0 };
            row.taken = 2;
            panic!("the third environment fell over");
        })
        .join();
        assert!(outcome.is_err());
        let snapshot = ledger.snapshot();
        assert_eq!((snapshot.submitted.steps, snapshot.dropped[&DropReason::ActorRestart].steps), (2, 2));
        assert!(snapshot.balances());
    }
}
