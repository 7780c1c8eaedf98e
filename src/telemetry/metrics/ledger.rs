//! The ledger as instruments: the figures of every state, and the drops as counters that never disagree with it.

use prometheus::IntCounterVec;

use super::{Units, capitalised, raise_to};
use crate::telemetry::reference::{CountGaugeVec, Registrar};
use crate::trajectory::{Amount, DropReason, LedgerSnapshot};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LedgerMetrics {
    dropped_units: IntCounterVec,
    dropped_parts: IntCounterVec,
    units: CountGaugeVec,
    parts: CountGaugeVec,
}

impl LedgerMetrics {
    pub fn declare(r: &mut Registrar, units: &Units) -> Self {
        let Units { many, parts, parts_name, .. } = *units;
        let (many_title, parts_title) = (capitalised(many), capitalised(parts));
        let metrics = Self {
            dropped_units: r.counters(
                &format!("dropped_{many}_total"),
                format!("{many_title} lost."),
                &["reason"],
            ),
            dropped_parts: r.counters(
                &format!("dropped_{parts_name}_total"),
                format!("{parts_title} lost."),
                &["reason"],
            ),
            units: r.gauges(
                &format!("ledger_{many}"),
                format!("{many_title} by what became of them."),
                &["state"],
            ),
            parts: r.gauges(
                &format!("ledger_{parts_name}"),
                format!("{parts_title} by what became of them."),
                &["state"],
            ),
        };
        // Every reason is visible from the start, so that a first loss is a change and not a new series.
        for reason in DropReason::ALL {
            let _ = metrics.dropped_units.with_label_values(&[reason.as_str()]);
            let _ = metrics.dropped_parts.with_label_values(&[reason.as_str()]);
        }
        metrics
    }

    /// Shows the ledger as it is now.
    pub fn observe(&self, ledger: &LedgerSnapshot) {
        let dropped = ledger.dropped.values().fold(Amount::default(), |sum, amount| Amount {
            unrolls: sum.unrolls + amount.unrolls,
            steps: sum.steps + amount.steps,
        });
        for (state, amount) in [
            ("submitted", ledger.submitted),
            ("live", ledger.live),
            ("buffered", ledger.buffered),
            ("consumed", ledger.consumed),
            ("dropped", dropped),
        ] {
            self.units.with_label_values(&[state]).set(amount.unrolls);
            self.parts.with_label_values(&[state]).set(amount.steps);
        }
        for (reason, amount) in &ledger.dropped {
            raise_to(&self.dropped_units.with_label_values(&[reason.as_str()]), amount.unrolls);
            raise_to(&self.dropped_parts.with_label_values(&[reason.as_str()]), amount.steps);
        }
    }
}
