//! The options of one environment, as a configuration file gives them.
//!
//! Each environment has an options type of its own, which refuses unknown keys; a message about a bad option always
//! names the environment and the key.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::environment::EnvError;

/// The options given for one environment, not yet read.
#[derive(Debug, Clone)]
pub struct EnvOptions<'a> {
    env: &'a str,
    table: &'a toml::Table,
}

/// The options of an environment that has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// Reads a table of options; the error names the key.
pub(super) fn read_table<T: DeserializeOwned>(table: &toml::Table) -> Result<T, String> {
    serde_path_to_error::deserialize(toml::Value::Table(table.clone())).map_err(|error| {
        let path = error.path().to_string();
        let why = error.inner().message();
        // An unknown or missing key is named by the message itself; a bad value only by its path.
        if why.contains("field `") { why.to_owned() } else { format!("`{path}`: {why}") }
    })
}

impl<'a> EnvOptions<'a> {
    /// The options in `table` for the environment registered as `env`.
    #[must_use]
    pub fn new(env: &'a str, table: &'a toml::Table) -> Self {
        Self { env, table }
    }

    /// The name under which the environment is registered.
    #[must_use]
    pub fn env(&self) -> &'a str {
        self.env
    }

    /// Reads all options into the environment's own type, which should deny unknown fields.
    ///
    /// # Errors
    /// When an option is unknown, missing or of the wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, EnvError> {
        read_table(self.table).map_err(|why| EnvError::Options { env: self.env.to_owned(), why })
    }

    /// An error that says why the value of `key` cannot be used and what would be right.
    #[must_use]
    pub fn refuse(&self, key: &str, why: &str) -> EnvError {
        EnvError::Options { env: self.env.to_owned(), why: format!("`{key}` {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        length: u32,
        walls: Walls,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Walls {
        height: u32,
    }

    impl Default for Sample {
        fn default() -> Self {
            Self { length: 3, walls: Walls::default() }
        }
    }

    fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        EnvOptions::new("Maze", &table).parse().map_err(|error| error.to_string())
    }

    #[test]
    fn options_not_given_keep_their_defaults() {
        let options: Sample = parse("walls = { height = 2 }").unwrap();
        assert_eq!((options.length, options.walls.height), (3, 2));
    }

    #[test]
    fn an_unknown_key_is_named_with_the_environment_and_the_right_ones() {
        let message = parse::<Sample>("lenght = 4").unwrap_err();
        assert_eq!(
            message,
            "options of environment `Maze`: unknown field `lenght`, expected `length` or `walls`"
        );
        assert!(parse::<NoOptions>("length = 4").unwrap_err().contains("`length`"));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_by_its_path() {
        let message = parse::<Sample>("walls.height = 'tall'").unwrap_err();
        assert!(message.contains("`Maze`") && message.contains("`walls.height`"), "{message}");
    }
}
