//! Every Prometheus instrument of a run, as typed handles: no string is looked up where experience flows.
//!
//! Each workload has its own set, [`Metrics`] for control and [`TokenMetrics`] for tokens, made of the same groups
//! where both have the same: queue, ledger, learner, roles, process.
//!
//! Labels are bounded: actors, kinds, roles and reasons are as many as the configuration says. Counters begin at zero
//! in each process, except those taken from the ledger, which a resumed run continues.

mod control;
mod host_cache;
mod label_set;
mod learner;
mod learning;
mod ledger;
mod queue;
mod system;
mod token;

use prometheus::IntCounter;

pub use control::{ActorMetrics, Metrics};
pub use host_cache::HostCacheMetrics;
pub use queue::QueueMetrics;
pub use system::RoleMetrics;
pub use token::{GeneratorMetrics, TokenMetrics};

/// What the server can show at `/metrics`.
pub trait Exposition: Send + Sync + 'static {
    /// Everything in Prometheus' text format, the figures of the process taken now.
    fn render(&self) -> String;
}

/// How a workload calls its experience.
#[derive(Debug, Clone, Copy)]
struct Units {
    /// What stands in the queue, with its article.
    one: &'static str,
    /// Several of it, also in names.
    many: &'static str,
    /// What it consists of, in words.
    parts: &'static str,
    /// What it consists of, in names.
    parts_name: &'static str,
}

/// Upper bounds of histograms of time, in seconds.
const SECOND_BUCKETS: [f64; 14] =
    [0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Upper bounds of histograms of time where a language model is at work, in seconds.
const LONG_SECOND_BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 180.0, 600.0];
/// Upper bounds of the lag histograms, in updates.
const LAG_BUCKETS: [f64; 12] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0];

/// The text with its first letter in upper case; the words of this module are ASCII.
fn capitalised(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    first.to_ascii_uppercase() + rest
}

/// Brings a counter up to a total that is counted elsewhere.
fn raise_to(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The value of a series in the rendered page.
    pub fn value(metrics: &impl Exposition, series: &str) -> Option<f64> {
        let text = metrics.render();
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }
}
