//! Declaring instruments, and the reference of them that the documentation shows.
//!
//! Each instrument is declared once, through [`Registrar`], which registers it and keeps what the reference needs;
//! so the reference cannot miss one.

use std::fmt::Write as _;

use prometheus::core::{AtomicU64, Collector, GenericGauge, GenericGaugeVec, MetricVec, MetricVecBuilder};
use prometheus::{
    Counter, CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, TextEncoder,
};

use super::metrics::{Metrics, TokenMetrics};

/// The common beginning of all names.
const PREFIX: &str = "forebay";

/// A gauge of something that is counted.
pub type CountGauge = GenericGauge<AtomicU64>;

/// Gauges of something that is counted, by labels.
pub(super) type CountGaugeVec = GenericGaugeVec<AtomicU64>;

/// One instrument as the reference shows it.
#[derive(Debug, Clone)]
pub(super) struct Description {
    name: String,
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

/// A gauge that shows nothing until it has a value.
#[derive(Debug, Clone)]
pub(super) struct LateGauge {
    gauges: GaugeVec,
    label_values: Vec<String>,
}

/// Gauges of one name that show nothing until they have a value, by labels.
#[derive(Debug)]
pub(super) struct LateGauges(GaugeVec);

impl LateGauges {
    /// That of these values of the labels.
    pub fn labelled(&self, label_values: &[&str]) -> LateGauge {
        let label_values = label_values.iter().map(|&value| value.to_owned()).collect();
        LateGauge { gauges: self.0.clone(), label_values }
    }
}

impl LateGauge {
    /// Shows a finite value; anything else leaves what was shown.
    pub fn set(&self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.gauges.with_label_values(&self.label_values).set(value);
        }
    }
}

/// Declares instruments on a registry of its own.
///
/// Names, labels and buckets are constants of this crate, so a refusal is a mistake in it: declaring panics then,
/// which the first test that makes a [`Metrics`] shows.
#[derive(Debug)]
pub(super) struct Registrar {
    registry: Registry,
    descriptions: Vec<Description>,
}

impl Registrar {
    pub fn new() -> Self {
        let registry =
            Registry::new_custom(Some(PREFIX.into()), None).expect("a prefix that Prometheus accepts");
        Self { registry, descriptions: Vec::new() }
    }

    /// Everything declared so far in Prometheus' text format.
    pub fn encode(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            tracing::warn!("cannot encode metrics: {error}");
            String::new()
        })
    }

    /// Events, by labels.
    pub fn counters(&mut self, name: &str, help: impl Into<String>, labels: &[&str]) -> IntCounterVec {
        self.declare("counter", name, help, labels, |options| IntCounterVec::new(options, labels))
    }

    /// Events.
    pub fn counter(&mut self, name: &str, help: impl Into<String>) -> IntCounter {
        unlabelled(&self.counters(name, help, &[]))
    }

    /// Seconds, by labels.
    pub fn second_counters(&mut self, name: &str, help: impl Into<String>, labels: &[&str]) -> CounterVec {
        self.declare("counter", name, help, labels, |options| CounterVec::new(options, labels))
    }

    /// Seconds.
    pub fn second_counter(&mut self, name: &str, help: impl Into<String>) -> Counter {
        unlabelled(&self.second_counters(name, help, &[]))
    }

    /// Whole numbers that go up and down, by labels.
    pub fn gauges(&mut self, name: &str, help: impl Into<String>, labels: &[&str]) -> CountGaugeVec {
        self.declare("gauge", name, help, labels, |options| CountGaugeVec::new(options, labels))
    }

    /// A whole number that goes up and down.
    pub fn gauge(&mut self, name: &str, help: impl Into<String>) -> CountGauge {
        unlabelled(&self.gauges(name, help, &[]))
    }

    /// Fractions and the like, by labels.
    pub fn float_gauges(&mut self, name: &str, help: impl Into<String>, labels: &[&str]) -> GaugeVec {
        self.declare("gauge", name, help, labels, |options| GaugeVec::new(options, labels))
    }

    /// A number that may not exist yet, with the values of its labels.
    pub fn late_gauge(&mut self, name: &str, help: impl Into<String>, labels: &[(&str, &str)]) -> LateGauge {
        let (names, values): (Vec<_>, Vec<_>) = labels.iter().copied().unzip();
        self.late_gauges(name, help, &names).labelled(&values)
    }

    /// Numbers that may not exist yet, by labels.
    pub fn late_gauges(&mut self, name: &str, help: impl Into<String>, labels: &[&str]) -> LateGauges {
        LateGauges(self.float_gauges(name, help, labels))
    }

    /// A distribution with these upper bounds, by labels.
    pub fn histograms(
        &mut self,
        name: &str,
        help: impl Into<String>,
        labels: &[&str],
        bounds: &[f64],
    ) -> HistogramVec {
        self.declare("histogram", name, help, labels, |options| {
            HistogramVec::new(HistogramOpts::from(options).buckets(bounds.to_vec()), labels)
        })
    }

    /// A distribution with these upper bounds.
    pub fn histogram(&mut self, name: &str, help: impl Into<String>, bounds: &[f64]) -> Histogram {
        unlabelled(&self.histograms(name, help, &[], bounds))
    }

    fn declare<C: Collector + Clone + 'static>(
        &mut self,
        kind: &'static str,
        name: &str,
        help: impl Into<String>,
        labels: &[&str],
        make: impl FnOnce(Opts) -> prometheus::Result<C>,
    ) -> C {
        let help = help.into();
        self.descriptions.push(Description {
            name: format!("{PREFIX}_{name}"),
            kind,
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            help: help.clone(),
        });
        let instrument = make(Opts::new(name, help)).expect("a name and labels that Prometheus accepts");
        self.registry.register(Box::new(instrument.clone())).expect("a name that is declared once");
        instrument
    }
}

fn unlabelled<B: MetricVecBuilder>(instruments: &MetricVec<B>) -> B::M {
    instruments.with_label_values::<&str>(&[])
}

/// The reference of all metrics as a Markdown document: `docs/metrics.md` is its output.
#[must_use]
pub fn metrics_reference() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         <!-- Generated from the code: `FOREBAY_BLESS=1 cargo test telemetry::reference` rewrites this file. -->\n\n\
         A run serves these at `http://127.0.0.1:9464/metrics` (`telemetry.listen`) in Prometheus' text format. Time \
         is in seconds, memory in bytes; a lag is counted in learner updates. A gauge without a value yet (a return \
         before the first episode has ended) is absent. Counters start at zero when the process starts, except those \
         of the ledger (`forebay_dropped_…`), which a resumed run continues. What both workloads have goes by the \
         same name in both.\n",
    );
    let (control, token) = (Metrics::new(""), TokenMetrics::new(""));
    for (title, instruments) in [("Control runs", control.instruments()), ("Token runs", token.instruments())]
    {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n## {title}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|");
        for Description { name, kind, labels, help } in &instruments.descriptions {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_metrics_are_those_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let current = metrics_reference();
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let documented = std::fs::read_to_string(path).unwrap_or_default();
        assert!(documented == current, "docs/metrics.md is out of date: run the tests with FOREBAY_BLESS=1");
    }

    #[test]
    fn names_carry_the_prefix_and_counters_end_in_total() {
        let (control, token) = (Metrics::new(""), TokenMetrics::new(""));
        for instruments in [control.instruments(), token.instruments()] {
            for Description { name, kind, .. } in &instruments.descriptions {
                assert!(name.starts_with("forebay_"), "{name}");
                assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
            }
        }
    }

    #[test]
    fn an_instrument_of_both_workloads_has_one_type_and_one_set_of_labels() {
        let (control, token) = (Metrics::new(""), TokenMetrics::new(""));
        let mut shared = 0;
        for ours in &token.instruments().descriptions {
            for theirs in control.instruments().descriptions.iter().filter(|theirs| theirs.name == ours.name)
            {
                assert_eq!((ours.kind, &ours.labels), (theirs.kind, &theirs.labels), "{}", ours.name);
                shared += 1;
            }
        }
        assert!(shared >= 20, "only {shared} are shared");
    }
}
