//! The options of one task, as a configuration file gives them.

use serde::de::DeserializeOwned;

use super::error::TaskError;
use crate::env::options::read_table;

/// The options given for one task, not yet read. Every message about a bad one names the task and the key.
#[derive(Debug, Clone)]
pub struct TaskOptions<'a> {
    task: &'a str,
    table: &'a toml::Table,
}

impl<'a> TaskOptions<'a> {
    /// The options in `table` for the task registered as `task`.
    #[must_use]
    pub fn new(task: &'a str, table: &'a toml::Table) -> Self {
        Self { task, table }
    }

    /// The name under which the task is registered.
    #[must_use]
    pub fn task(&self) -> &'a str {
        self.task
    }

    /// Reads all options into the task's own type, which should deny unknown fields.
    ///
    /// # Errors
    /// When an option is unknown, missing or of the wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        read_table(self.table).map_err(|why| TaskError::Options { task: self.task.to_owned(), why })
    }

    /// An error that says why the value of `key` cannot be used and what would be right.
    #[must_use]
    pub fn refuse(&self, key: &str, why: &str) -> TaskError {
        TaskError::Options { task: self.task.to_owned(), why: format!("`{key}` {why}") }
    }
}
