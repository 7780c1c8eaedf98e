//! Wrappers: environments that change how another one is seen.
//!
//! The order is fixed: the time limit counts the environment's own steps, then observations are stacked. Rewards
//! are never changed here, so that the returns reported for an episode are those of the environment.

mod frame_stack;
mod time_limit;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use frame_stack::FrameStack;
pub use time_limit::TimeLimit;

use super::environment::{EnvError, Environment};

/// Which wrappers stand around an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WrapperConfig {
    /// Steps after which an episode is truncated. Unset takes the environment's own default; 0 sets no limit.
    pub time_limit: Option<u32>,
    /// Number of last observations shown together, along the last axis; 1 shows only the newest.
    pub frame_stack: usize,
}

impl Default for WrapperConfig {
    fn default() -> Self {
        Self { time_limit: None, frame_stack: 1 }
    }
}

impl WrapperConfig {
    /// Puts the configured wrappers around `environment`; `default_time_limit` is used where the configuration sets
    /// no limit of its own.
    ///
    /// # Errors
    /// When `frame_stack` is 0.
    pub fn wrap(
        &self,
        environment: Box<dyn Environment>,
        default_time_limit: Option<u32>,
    ) -> Result<Box<dyn Environment>, EnvError> {
        let mut wrapped = environment;
        if let Some(limit) = self.time_limit.or(default_time_limit).filter(|&limit| limit > 0) {
            wrapped = Box::new(TimeLimit::new(wrapped, limit));
        }
        match self.frame_stack {
            0 => Err(EnvError::Options {
                env: wrapped.spec().name.clone(),
                why: "`frame_stack` is 0; the smallest is 1, which shows only the newest observation".into(),
            }),
            1 => Ok(wrapped),
            count => Ok(Box::new(FrameStack::new(wrapped, count))),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::env::environment::Step;
    use crate::env::space::{Action, ActionSpace, EnvSpec};
    use crate::env::state;

    /// Counts its steps since the reset and terminates at the `end`-th; the count is what it shows.
    pub(crate) struct Counter {
        spec: EnvSpec,
        count: u32,
        end: u32,
    }

    impl Counter {
        fn new(observation_shape: Vec<usize>, end: u32) -> Self {
            let spec = EnvSpec {
                name: "Counter".into(),
                observation_shape,
                action_space: ActionSpace::Discrete { n: 2 },
                masks_actions: false,
            };
            Self { spec, count: 0, end }
        }

        /// Shows `[count, -count]`.
        pub(crate) fn vector(end: u32) -> Self {
            Self::new(vec![2], end)
        }

        /// Shows a `[1, 2, 2]` image of `count`, `count + 0.1`, `count + 0.2`, `count + 0.3`.
        pub(crate) fn image(end: u32) -> Self {
            Self::new(vec![1, 2, 2], end)
        }

        /// Announces another shape than it shows.
        pub(crate) fn shape(&mut self, shape: Vec<usize>) {
            self.spec.observation_shape = shape;
        }
    }

    impl Environment for Counter {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }

        fn reset(&mut self, _seed: u64) -> Result<(), EnvError> {
            self.count = 0;
            Ok(())
        }

        fn step(&mut self, _action: Action<'_>) -> Result<Step, EnvError> {
            self.count += 1;
            Ok(Step { reward: 1.0, terminated: self.count >= self.end, truncated: false })
        }

        fn observe(&self, out: &mut Vec<f32>) {
            let count = self.count as f32;
            match self.spec.observation_shape.len() {
                1 => out.extend([count, -count]),
                _ => out.extend([count, count + 0.1, count + 0.2, count + 0.3]),
            }
        }

        fn save(&self) -> Option<Vec<u8>> {
            state::save("Counter", &self.count)
        }

        fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
            self.count = state::restore("Counter", "Counter", bytes)?;
            Ok(())
        }
    }

    fn first_truncated_step(config: &WrapperConfig, default_time_limit: Option<u32>) -> Option<u32> {
        let mut environment = config.wrap(Box::new(Counter::vector(u32::MAX)), default_time_limit).unwrap();
        environment.reset(0).unwrap();
        (1..=20).find(|_| environment.step(Action::new(&[0.0])).unwrap().truncated)
    }

    #[test]
    fn an_unset_limit_takes_the_default_and_zero_takes_none() {
        let with = |time_limit| WrapperConfig { time_limit, ..WrapperConfig::default() };
        assert_eq!(first_truncated_step(&with(None), Some(4)), Some(4));
        assert_eq!(first_truncated_step(&with(None), None), None);
        assert_eq!(first_truncated_step(&with(Some(7)), Some(4)), Some(7));
        assert_eq!(first_truncated_step(&with(Some(0)), Some(4)), None);
    }

    #[test]
    fn a_stack_of_no_frames_is_refused() {
        let config = WrapperConfig { frame_stack: 0, ..WrapperConfig::default() };
        let error = config.wrap(Box::new(Counter::vector(1)), None).err().unwrap();
        assert!(error.to_string().contains("`frame_stack`"), "{error}");
    }

    #[test]
    fn an_unknown_wrapper_is_refused() {
        assert!(toml::from_str::<WrapperConfig>("frame_stac = 2").is_err());
        let config: WrapperConfig = toml::from_str("frame_stack = 2").unwrap();
        assert_eq!(config, WrapperConfig { frame_stack: 2, ..WrapperConfig::default() });
    }
}
