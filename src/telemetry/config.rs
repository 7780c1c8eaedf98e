//! The `[telemetry]` table of a configuration.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run shows itself. Nothing here changes what is learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Where Prometheus metrics and the status page are served: `"auto"` (127.0.0.1:9464, or a free port when that
    /// one is taken), `"off"`, or an address such as `"0.0.0.0:9100"`, which must be free (port 0: any free port).
    pub listen: Listen,
    /// Most lines written to `metrics.jsonl` in a second; the updates between two lines are merged into one.
    pub lines_per_second: NonZeroU32,
    /// Updates merged into one line of `metrics.jsonl` in a serial run, where no clock may decide.
    pub serial_updates_per_line: NonZeroU64,
    /// Whether to write TensorBoard event files beside `metrics.jsonl`.
    pub tensorboard: bool,
    /// What is shown on standard error while the run goes on.
    pub progress: ProgressMode,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            listen: Listen::Auto,
            lines_per_second: NonZeroU32::MIN.saturating_add(9),
            serial_updates_per_line: NonZeroU64::MIN.saturating_add(9),
            tensorboard: true,
            progress: ProgressMode::Auto,
        }
    }
}

/// What is shown on standard error while the run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressMode {
    /// A live line on a terminal, plain lines elsewhere.
    #[default]
    Auto,
    /// A plain line every five seconds.
    Plain,
    /// Nothing.
    Off,
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Listen {
    /// At [`Listen::DEFAULT`], or at a free port when that one is taken. Written `"auto"`.
    #[default]
    Auto,
    /// Nowhere. Written `"off"`.
    Off,
    /// At this address, or the run does not start.
    At(SocketAddr),
}

impl Listen {
    /// The address of `"auto"`: 127.0.0.1:9464.
    pub const DEFAULT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            address => address.parse().map(Self::At).map_err(|_| {
                format!("`{address}` is not an address such as \"127.0.0.1:9464\", nor \"auto\" or \"off\"")
            }),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolved_configuration_reads_back_as_itself() {
        for listen in [Listen::Auto, Listen::Off, Listen::At("[::1]:80".parse().unwrap())] {
            let config = TelemetryConfig { listen, ..TelemetryConfig::default() };
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<TelemetryConfig>(&text).unwrap(), config, "{text}");
        }
    }

    #[test]
    fn an_impossible_value_is_refused_with_what_would_be_right() {
        let error = |text| toml::from_str::<TelemetryConfig>(text).unwrap_err().to_string();
        assert!(error("listen = \"9464\"").contains("not an address such as"));
        assert!(error("lines_per_second = 0").contains("nonzero"));
        assert!(error("colour = true").contains("unknown field `colour`"));
    }
}
