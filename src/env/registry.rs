//! The environments that can be asked for by name.
//!
//! [`Registry::builtin`] knows the environments of this crate; [`Registry::register`] adds one of your own, which is
//! from then on configured, wrapped and trained like the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::environment::{EnvError, Environment};
use super::hint::did_you_mean;
use super::options::EnvOptions;
use super::wrappers::WrapperConfig;
use super::{builtin, minatar};

type Factory = dyn Fn(&EnvOptions<'_>) -> Result<Box<dyn Environment>, EnvError> + Send + Sync;

/// One environment that can be made by name.
#[derive(Clone)]
pub struct EnvEntry {
    name: String,
    summary: String,
    time_limit: Option<u32>,
    factory: Arc<Factory>,
}

impl EnvEntry {
    /// An environment called `name`, described in one line, that `factory` makes from its options. It has no time
    /// limit of its own.
    pub fn new<F>(name: impl Into<String>, summary: impl Into<String>, factory: F) -> Self
    where
        F: Fn(&EnvOptions<'_>) -> Result<Box<dyn Environment>, EnvError> + Send + Sync + 'static,
    {
        Self { name: name.into(), summary: summary.into(), time_limit: None, factory: Arc::new(factory) }
    }

    /// Truncates episodes after `steps` steps unless the configuration says otherwise; 0 sets no limit.
    #[must_use]
    pub fn with_time_limit(mut self, steps: u32) -> Self {
        self.time_limit = Some(steps).filter(|&steps| steps > 0);
        self
    }

    /// The name to ask for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the environment is, in one line.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Steps after which episodes are truncated by default.
    #[must_use]
    pub fn time_limit(&self) -> Option<u32> {
        self.time_limit
    }
}

impl fmt::Debug for EnvEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EnvEntry")
            .field("name", &self.name)
            .field("summary", &self.summary)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}

/// Environments by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: BTreeMap<String, EnvEntry>,
}

impl Registry {
    /// A registry without environments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry of the environments that come with this crate.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self::new();
        builtin::register(&mut registry);
        minatar::register(&mut registry);
        registry
    }

    /// Adds an environment. One that had the same name is replaced and returned.
    pub fn register(&mut self, entry: EnvEntry) -> Option<EnvEntry> {
        self.entries.insert(entry.name.clone(), entry)
    }

    /// All environments, ordered by name.
    pub fn entries(&self) -> impl Iterator<Item = &EnvEntry> {
        self.entries.values()
    }

    /// The environment registered as `name`.
    ///
    /// # Errors
    /// [`EnvError::Unknown`], with the nearest name there is.
    pub fn get(&self, name: &str) -> Result<&EnvEntry, EnvError> {
        self.entries.get(name).ok_or_else(|| EnvError::Unknown {
            name: name.to_owned(),
            hint: did_you_mean(name, self.entries.keys().map(String::as_str)),
        })
    }

    /// Makes the environment registered as `name` from its options and puts the configured wrappers around it.
    ///
    /// # Errors
    /// When the name is unknown, an option is unknown or impossible, or the environment cannot be made.
    pub fn make(
        &self,
        name: &str,
        options: &toml::Table,
        wrappers: &WrapperConfig,
    ) -> Result<Box<dyn Environment>, EnvError> {
        let entry = self.get(name)?;
        let environment = (entry.factory)(&EnvOptions::new(&entry.name, options))?;
        wrappers.wrap(environment, entry.time_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::options::NoOptions;
    use crate::env::space::Action;
    use crate::env::wrappers::tests::Counter;

    fn counter() -> EnvEntry {
        EnvEntry::new("Counter", "counts its steps", |options| {
            options.parse::<NoOptions>()?;
            Ok(Box::new(Counter::vector(100)))
        })
    }

    fn error(result: Result<Box<dyn Environment>, EnvError>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn one_call_registers_an_environment_of_ones_own() {
        let mut registry = Registry::builtin();
        assert!(registry.register(counter().with_time_limit(2)).is_none());
        let mut environment =
            registry.make("Counter", &toml::Table::new(), &WrapperConfig::default()).unwrap();
        environment.reset(0).unwrap();
        let truncated = [(); 2].map(|()| environment.step(Action::new(&[0.0])).unwrap().truncated);
        assert_eq!(truncated, [false, true]);
    }

    #[test]
    fn a_replaced_environment_is_returned() {
        let mut registry = Registry::new();
        registry.register(counter().with_time_limit(2));
        assert_eq!(registry.register(counter()).unwrap().time_limit(), Some(2));
        assert_eq!(registry.entries().count(), 1);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let registry = Registry::builtin();
        let make = |name| error(registry.make(name, &toml::Table::new(), &WrapperConfig::default()));
        assert_eq!(
            make("cartpole"),
            "unknown environment `cartpole` (did you mean `CartPole-v1`?); `forebay envs` lists what there is"
        );
        assert_eq!(make("zzz"), "unknown environment `zzz`; `forebay envs` lists what there is");
    }

    #[test]
    fn options_reach_the_environment_and_bad_ones_are_named() {
        let registry = Registry::builtin();
        let make =
            |name, text| registry.make(name, &toml::from_str(text).unwrap(), &WrapperConfig::default());
        assert!(make("TMaze", "length = 3").is_ok());
        for (name, text, key) in [
            ("TMaze", "lenght = 3", "`lenght`"),
            ("TMaze", "length = 'long'", "`length`"),
            ("TMaze", "length = 0", "`length`"),
            ("CartPole-v1", "gravity = 3", "`gravity`"),
        ] {
            let message = error(make(name, text));
            assert!(message.contains(name) && message.contains(key), "{message}");
        }
    }

    #[test]
    fn classic_control_has_the_time_limits_of_gymnasium() {
        let registry = Registry::builtin();
        let limits = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"]
            .map(|name| registry.get(name).unwrap().time_limit());
        assert_eq!(limits, [Some(500), Some(500), Some(200), Some(200)]);
    }
}
