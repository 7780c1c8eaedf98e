//! The tasks that can be asked for by name.
//!
//! [`TaskRegistry::builtin`] knows the tasks of this crate; [`TaskRegistry::register`] adds one of your own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::contract::Task;
use super::error::TaskError;
use super::options::TaskOptions;
use super::{builtin, dataset, mixture};
use crate::env::hint::did_you_mean;

type Factory = dyn Fn(&TaskOptions<'_>, u64, &TaskRegistry) -> Result<Box<dyn Task>, TaskError> + Send + Sync;

/// One task that can be made by name.
#[derive(Clone)]
pub struct TaskEntry {
    name: String,
    summary: String,
    factory: Arc<Factory>,
}

impl TaskEntry {
    /// A task called `name`, described in one line, that `factory` makes from its options and the seed of its
    /// problems.
    pub fn new<F>(name: impl Into<String>, summary: impl Into<String>, factory: F) -> Self
    where
        F: Fn(&TaskOptions<'_>, u64) -> Result<Box<dyn Task>, TaskError> + Send + Sync + 'static,
    {
        Self::composed(name, summary, move |options, seed, _| factory(options, seed))
    }

    /// A task made of others: `factory` also gets the registry that it is made from.
    pub fn composed<F>(name: impl Into<String>, summary: impl Into<String>, factory: F) -> Self
    where
        F: Fn(&TaskOptions<'_>, u64, &TaskRegistry) -> Result<Box<dyn Task>, TaskError>
            + Send
            + Sync
            + 'static,
    {
        Self { name: name.into(), summary: summary.into(), factory: Arc::new(factory) }
    }

    /// The name to ask for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the task is, in one line.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }
}

impl fmt::Debug for TaskEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TaskEntry")
            .field("name", &self.name)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// Tasks by name.
#[derive(Debug, Clone, Default)]
pub struct TaskRegistry {
    entries: BTreeMap<String, TaskEntry>,
}

impl TaskRegistry {
    /// A registry without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry of the tasks that come with this crate.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self::new();
        builtin::register(&mut registry);
        registry.register(dataset::entry());
        registry.register(mixture::entry());
        registry
    }

    /// Adds a task. One that had the same name is replaced and returned.
    pub fn register(&mut self, entry: TaskEntry) -> Option<TaskEntry> {
        self.entries.insert(entry.name.clone(), entry)
    }

    /// All tasks, ordered by name.
    pub fn entries(&self) -> impl Iterator<Item = &TaskEntry> {
        self.entries.values()
    }

    /// The task registered as `name`.
    ///
    /// # Errors
    /// [`TaskError::Unknown`], with the nearest name there is.
    pub fn get(&self, name: &str) -> Result<&TaskEntry, TaskError> {
        self.entries.get(name).ok_or_else(|| TaskError::Unknown {
            name: name.to_owned(),
            hint: did_you_mean(name, self.entries.keys().map(String::as_str)),
        })
    }

    /// Makes the task registered as `name` from its options; `seed` decides which problems a generated task has.
    ///
    /// # Errors
    /// When the name is unknown, an option is unknown or impossible, or the task cannot be made.
    pub fn make(&self, name: &str, options: &toml::Table, seed: u64) -> Result<Arc<dyn Task>, TaskError> {
        let entry = self.get(name)?;
        (entry.factory)(&TaskOptions::new(&entry.name, options), seed, self).map(Arc::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str, options: &str) -> String {
        let options = toml::from_str(options).unwrap();
        TaskRegistry::builtin().make(name, &options, 0).err().unwrap().to_string()
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        assert_eq!(
            error("revers", ""),
            "unknown task `revers` (did you mean `reverse`?); `forebay tasks` lists what there is"
        );
        assert_eq!(error("qqq", ""), "unknown task `qqq`; `forebay tasks` lists what there is");
    }

    #[test]
    fn a_replaced_task_is_returned() {
        let mut registry = TaskRegistry::builtin();
        let count = registry.entries().count();
        let entry = registry.get("copy").unwrap().clone();
        assert!(registry.register(entry).is_some());
        assert_eq!(registry.entries().count(), count);
    }

    #[test]
    fn bad_options_of_every_builtin_task_are_refused_by_name() {
        for entry in TaskRegistry::builtin().entries() {
            let message = error(entry.name(), "no_such_option = 1");
            assert!(message.contains(entry.name()) && message.contains("`no_such_option`"), "{message}");
        }
    }
}
