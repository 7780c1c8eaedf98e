//! Shows the last `k` observations together, so that a policy without memory sees motion.
//!
//! Observations are joined along their last axis, oldest first: `[height, width, channels]` becomes
//! `[height, width, k * channels]`, a vector of `n` values one of `k * n`. A new episode starts with its first
//! observation repeated, so nothing of the episode before is ever shown.

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, EnvSpec};
use crate::env::state;

/// What this wrapper's own bytes are saved under.
const LABEL: &str = "frame stack";

/// An environment that shows its last observations together.
pub struct FrameStack {
    inner: Box<dyn Environment>,
    spec: EnvSpec,
    /// Values in one observation of the inner environment.
    frame_len: usize,
    /// Values along the last axis of one inner observation: the pieces that are joined.
    row_len: usize,
    /// `count` frames one after another, a ring: the oldest stands at `oldest`, the newest just before it.
    frames: Vec<f32>,
    count: usize,
    oldest: usize,
    /// The inner environment's newest observation, kept to reuse its memory.
    scratch: Vec<f32>,
}

impl FrameStack {
    /// Shows the last `count` observations of `inner`; `count` is at least 1.
    #[must_use]
    pub fn new(inner: Box<dyn Environment>, count: usize) -> Self {
        debug_assert!(count > 0, "a stack of 0 frames");
        let mut spec = inner.spec().clone();
        let frame_len = spec.observation_len();
        let row_len = spec.observation_shape.pop().unwrap_or(1);
        spec.observation_shape.push(count * row_len);
        let frames = vec![0.0; count * frame_len];
        Self {
            inner,
            spec,
            frame_len,
            row_len,
            frames,
            count,
            oldest: 0,
            scratch: Vec::with_capacity(frame_len),
        }
    }

    /// Reads the inner observation into `scratch`.
    fn look(&mut self, call: &'static str) -> Result<(), EnvError> {
        self.scratch.clear();
        self.inner.observe(&mut self.scratch);
        if self.scratch.len() == self.frame_len {
            return Ok(());
        }
        Err(EnvError::Contract {
            env: self.spec.name.clone(),
            call,
            why: format!(
                "an observation has {} values, the shape says {}",
                self.scratch.len(),
                self.frame_len
            ),
        })
    }

    /// The frames, oldest first.
    fn in_order(&self) -> impl Iterator<Item = &[f32]> {
        (0..self.count).map(|age| {
            let start = (self.oldest + age) % self.count * self.frame_len;
            &self.frames[start..start + self.frame_len]
        })
    }
}

impl Environment for FrameStack {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.inner.reset(seed)?;
        self.look("reset")?;
        self.frames.clear();
        for _ in 0..self.count {
            self.frames.extend_from_slice(&self.scratch);
        }
        self.oldest = 0;
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let step = self.inner.step(action)?;
        self.look("step")?;
        let start = self.oldest * self.frame_len;
        self.frames[start..start + self.frame_len].copy_from_slice(&self.scratch);
        self.oldest = (self.oldest + 1) % self.count;
        Ok(step)
    }

    fn observe(&self, out: &mut Vec<f32>) {
        for row in 0..self.frame_len / self.row_len.max(1) {
            let range = row * self.row_len..(row + 1) * self.row_len;
            for frame in self.in_order() {
                out.extend_from_slice(&frame[range.clone()]);
            }
        }
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        self.inner.action_mask(out);
    }

    fn save(&self) -> Option<Vec<u8>> {
        let frames: Vec<f32> = self.in_order().flatten().copied().collect();
        state::save(LABEL, &(frames, self.inner.save()?))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let (frames, inner): (Vec<f32>, Vec<u8>) = state::restore(&self.spec.name, LABEL, bytes)?;
        if frames.len() != self.frames.len() {
            let why = format!("it holds {} stacked values, not {}", frames.len(), self.frames.len());
            return Err(state::refuse(&self.spec.name, &why));
        }
        self.inner.restore(&inner)?;
        self.frames = frames;
        self.oldest = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::wrappers::tests::Counter;

    fn observation(environment: &FrameStack) -> Vec<f32> {
        let mut out = Vec::new();
        environment.observe(&mut out);
        out
    }

    fn step(environment: &mut FrameStack) {
        environment.step(Action::new(&[0.0])).unwrap();
    }

    #[test]
    fn vectors_are_concatenated_oldest_first() {
        let mut environment = FrameStack::new(Box::new(Counter::vector(100)), 3);
        assert_eq!(environment.spec().observation_shape, [6]);
        environment.reset(0).unwrap();
        assert_eq!(observation(&environment), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        step(&mut environment);
        assert_eq!(observation(&environment), [0.0, 0.0, 0.0, 0.0, 1.0, -1.0]);
        for _ in 0..3 {
            step(&mut environment);
        }
        assert_eq!(observation(&environment), [2.0, -2.0, 3.0, -3.0, 4.0, -4.0]);
    }

    #[test]
    fn images_are_stacked_along_the_channels() {
        let mut environment = FrameStack::new(Box::new(Counter::image(100)), 2);
        assert_eq!(environment.spec().observation_shape, [1, 2, 4]);
        environment.reset(0).unwrap();
        step(&mut environment);
        step(&mut environment);
        // Two pixels, each with the two channels of step 1 and then those of step 2.
        assert_eq!(observation(&environment), [1.0, 1.1, 2.0, 2.1, 1.2, 1.3, 2.2, 2.3]);
    }

    #[test]
    fn a_reset_shows_nothing_of_the_episode_before() {
        let mut environment = FrameStack::new(Box::new(Counter::vector(100)), 2);
        environment.reset(0).unwrap();
        step(&mut environment);
        environment.reset(0).unwrap();
        assert_eq!(observation(&environment), [0.0; 4]);
    }

    #[test]
    fn a_restored_stack_shows_the_same_frames_and_continues() {
        let mut environment = FrameStack::new(Box::new(Counter::image(100)), 3);
        environment.reset(0).unwrap();
        for _ in 0..4 {
            step(&mut environment);
        }
        let mut restored = FrameStack::new(Box::new(Counter::image(100)), 3);
        step(&mut restored);
        restored.restore(&environment.save().unwrap()).unwrap();
        assert_eq!(observation(&restored), observation(&environment));
        step(&mut environment);
        step(&mut restored);
        assert_eq!(observation(&restored), observation(&environment));
    }

    #[test]
    fn a_stack_of_another_size_is_refused() {
        let bytes = FrameStack::new(Box::new(Counter::vector(100)), 3).save().unwrap();
        assert!(FrameStack::new(Box::new(Counter::vector(100)), 2).restore(&bytes).is_err());
    }

    #[test]
    fn an_observation_of_the_wrong_length_breaks_the_contract() {
        let mut broken = Counter::vector(100);
        broken.shape(vec![3]);
        let error = FrameStack::new(Box::new(broken), 2).reset(0).unwrap_err();
        assert!(matches!(error, EnvError::Contract { call: "reset", .. }), "{error}");
    }
}
