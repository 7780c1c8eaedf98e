//! Which workload a configuration is of: the tables that it has say so.

use toml::Value;

use super::{Config, ConfigError, Source, TokenConfig, system};

/// Tables that only a control run has.
const CONTROL: &[&str] = &["env", "policy", "rollout", "inference", "queue"];
/// Tables that only a token run has.
const TOKEN: &[&str] = &["task", "model", "generate", "grading", "schedule", "warmup"];

/// The configuration of a run of either workload.
#[derive(Debug, Clone, PartialEq)]
pub enum RunConfig {
    /// Environments stepped by a policy network.
    Control(Box<Config>),
    /// A language model that generates and is graded.
    Token(Box<TokenConfig>),
}

impl RunConfig {
    /// Reads a document as the configuration of its workload; one that has neither's tables is of control.
    ///
    /// # Errors
    /// The first fault with its place; when tables of both workloads are there.
    pub fn read(source: &Source) -> Result<Self, ConfigError> {
        // The one system of control runs chooses what these do anyway.
        let of_control = source.document().get(system::FIELD).and_then(Value::as_str) == Some("impala");
        let first =
            |names: &[&'static str]| names.iter().copied().find(|name| source.document().contains_key(*name));
        match (first(CONTROL), first(TOKEN)) {
            (Some(control), Some(token)) => {
                let why =
                    "the one belongs to control runs, the other to token runs; a run is of one workload";
                Err(source.error(&[control, token], why))
            }
            (None, None) if source.document().contains_key(system::FIELD) && !of_control => {
                Self::token(source)
            }
            (None, Some(_)) => Self::token(source),
            (_, None) => Ok(Self::Control(Box::new(source.read()?))),
        }
    }

    fn token(source: &Source) -> Result<Self, ConfigError> {
        let mut source = source.clone();
        system::expand(&mut source)?;
        Ok(Self::Token(Box::new(source.read()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RunConfig, ConfigError> {
        RunConfig::read(&Source::parse(text, "run.toml", &[]).unwrap())
    }

    #[test]
    fn the_tables_tell_the_workload() {
        assert!(matches!(read("seed = 1").unwrap(), RunConfig::Control(_)));
        assert!(matches!(read("[env]\nname = \"Catch-v0\"").unwrap(), RunConfig::Control(_)));
        assert!(matches!(read("[task]\nname = \"copy\"").unwrap(), RunConfig::Token(_)));
        let devices = "[devices]\nlearner = \"cuda:0\"\n";
        assert!(matches!(read(devices).unwrap(), RunConfig::Control(_)));
        assert!(matches!(read(&format!("{devices}[task]")).unwrap(), RunConfig::Token(_)));
    }

    #[test]
    fn tables_of_both_workloads_are_refused_with_both_names() {
        let message = read("[env]\n[learner]\n[task]\n").unwrap_err().to_string();
        assert!(message.contains("`env`") && message.contains("`task`"), "{message}");
    }
}
