//! The lag of consumed experience: how many updates old it was when it was learned from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How much was consumed at which lag (in updates): environment steps, or tokens.
///
/// Lags below 32 are kept exactly, greater ones under the power of two below them, so the size stays bounded.
/// Written as a list of (lag, count).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct LagHistogram(BTreeMap<u64, u64>);

impl From<Vec<(u64, u64)>> for LagHistogram {
    fn from(buckets: Vec<(u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (lag, count) in buckets {
            histogram.add(lag, count);
        }
        histogram
    }
}

impl From<LagHistogram> for Vec<(u64, u64)> {
    fn from(histogram: LagHistogram) -> Self {
        histogram.0.into_iter().collect()
    }
}

impl LagHistogram {
    /// Counts `count` steps or tokens that were consumed `lag` updates after they were produced.
    pub fn add(&mut self, lag: u64, count: u64) {
        let bucket = if lag < 32 { lag } else { 1 << lag.ilog2() };
        *self.0.entry(bucket).or_default() += count;
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (&bucket, &count) in &other.0 {
            *self.0.entry(bucket).or_default() += count;
        }
    }

    /// Everything counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Share of what was counted that has a lag at all; `None` of nothing.
    #[must_use]
    pub fn old_fraction(&self) -> Option<f64> {
        let (total, fresh) = (self.total(), self.0.get(&0).copied().unwrap_or_default());
        (total > 0).then(|| (total - fresh) as f64 / total as f64)
    }

    /// The least lag of each non-empty bucket and the count in it, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&lag, &count)| (lag, count))
    }
}

/// Counts `count` steps or tokens of one lag in a record's three figures: histogram, running mean and greatest lag.
pub(super) fn count_lag(
    (histogram, mean, greatest): (&mut LagHistogram, &mut Option<f64>, &mut Option<u64>),
    lag: u64,
    count: u64,
) {
    if count == 0 {
        return;
    }
    let before = histogram.total() as f64;
    let old = mean.unwrap_or_default();
    *mean = Some(old + (lag as f64 - old) * count as f64 / (before + count as f64));
    *greatest = (*greatest).max(Some(lag));
    histogram.add(lag, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn great_lags_share_buckets() {
        let mut lag = LagHistogram::default();
        for value in [31, 32, 63, 64, u64::MAX] {
            lag.add(value, 1);
        }
        assert_eq!(lag.buckets().collect::<Vec<_>>(), [(31, 1), (32, 2), (64, 1), (1 << 63, 1)]);
    }

    #[test]
    fn the_mean_lag_is_that_of_the_steps_and_nothing_is_no_lag() {
        let (mut histogram, mut mean, mut greatest) = (LagHistogram::default(), None, None);
        for (lag, count) in [(7, 0), (0, 30), (4, 10)] {
            count_lag((&mut histogram, &mut mean, &mut greatest), lag, count);
        }
        assert_eq!((histogram.total(), mean, greatest), (40, Some(1.0), Some(4)));
        assert_eq!((histogram.old_fraction(), LagHistogram::default().old_fraction()), (Some(0.25), None));
    }
}
