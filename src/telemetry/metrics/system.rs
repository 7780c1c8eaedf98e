//! The instruments of the tree of actors and of the process.

use prometheus::{Counter, GaugeVec, IntCounterVec};

use crate::telemetry::process::process_usage;
use crate::telemetry::reference::{CountGauge, LateGauge, Registrar};

/// Which additive features this binary was built with, the label of `build_info`.
const FEATURES: &str = if cfg!(feature = "cuda") { "cuda" } else { "" };

/// Declares what tells one binary from another.
pub(super) fn declare_build_info(r: &mut Registrar) {
    r.gauges(
        "build_info",
        "Always 1; the labels tell the version and the features.",
        &["version", "features"],
    )
    .with_label_values(&[env!("CARGO_PKG_VERSION"), FEATURES])
    .set(1);
}

/// How busy the roles are, and how often their actors were restarted.
#[derive(Debug)]
pub struct RoleMetrics {
    busy_fraction: GaugeVec,
    overlap_efficiency: LateGauge,
    restarts: IntCounterVec,
}

impl RoleMetrics {
    pub(super) fn declare(r: &mut Registrar) -> Self {
        Self {
            busy_fraction: r.float_gauges(
                "busy_fraction",
                "Fraction of its time that the role computed instead of waiting.",
                &["role"],
            ),
            overlap_efficiency: r.late_gauge(
                "overlap_efficiency",
                "Time of the slower of rollout and update, divided by the time of a whole round; 1 is full overlap.",
                &[],
            ),
            restarts: r.counters("restarts_total", "Actors restarted after a failure.", &["kind"]),
        }
    }

    /// Counts a restart of an actor of this kind (`rollout`, `inference`, `generation`, …).
    pub fn record_restart(&self, kind: &str) {
        self.restarts.with_label_values(&[kind]).inc();
    }

    /// Shows which fraction of its time a role computed, over the last interval.
    pub fn set_busy_fraction(&self, role: &str, fraction: f64) {
        self.busy_fraction.with_label_values(&[role]).set(fraction);
    }

    /// Shows max(rollout time, update time) / round time, over the last interval.
    pub fn set_overlap_efficiency(&self, efficiency: f64) {
        self.overlap_efficiency.set(Some(efficiency));
    }
}

/// What the process costs.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    resident_memory: CountGauge,
    cpu_seconds: Counter,
}

impl ProcessMetrics {
    pub fn declare(r: &mut Registrar) -> Self {
        Self {
            resident_memory: r.gauge("resident_memory_bytes", "Memory of the process in RAM (Linux only)."),
            cpu_seconds: r.second_counter(
                "cpu_seconds_total",
                "Processor time of all threads of the process (Linux only).",
            ),
        }
    }

    /// Takes the figures as they are now.
    pub fn refresh(&self) {
        let usage = process_usage();
        if let Some(bytes) = usage.resident_bytes {
            self.resident_memory.set(bytes);
        }
        if let Some(seconds) = usage.cpu_seconds {
            self.cpu_seconds.inc_by((seconds - self.cpu_seconds.get()).max(0.0));
        }
    }
}
