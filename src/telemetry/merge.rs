//! How the fields of several records become one.
//!
//! Each field has one rule: *last* (the latest value), *sum*, *mean* over the records that have a value, *least* and
//! *greatest*. Non-finite numbers count as absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lag::LagHistogram;
use crate::trajectory::TokenFates;

/// Reads one optional number of a record.
pub(super) type Field<R> = fn(&R) -> Option<f64>;

/// Consecutive records, oldest first, whose fields are asked for one by one.
#[derive(Debug)]
pub(super) struct Merge<'a, R>(pub &'a [R]);

impl<'a, R> Merge<'a, R> {
    fn values(&self, field: Field<R>) -> impl DoubleEndedIterator<Item = f64> + use<'a, R> {
        self.0.iter().filter_map(field).filter(|value| value.is_finite())
    }

    /// The latest value.
    pub fn last(&self, field: Field<R>) -> Option<f64> {
        self.values(field).next_back()
    }

    /// The mean of the values.
    pub fn mean(&self, field: Field<R>) -> Option<f64> {
        mean(self.values(field).map(|value| (value, 1.0)))
    }

    /// The mean of the values, each of them counting as much as its record weighs.
    pub fn weighted_mean(&self, field: Field<R>, weight: fn(&R) -> f64) -> Option<f64> {
        mean(self.0.iter().filter_map(|record| Some((finite(field(record))?, weight(record)))))
    }

    /// The least value.
    pub fn least(&self, field: Field<R>) -> Option<f64> {
        self.values(field).reduce(f64::min)
    }

    /// The greatest value.
    pub fn greatest(&self, field: Field<R>) -> Option<f64> {
        self.values(field).reduce(f64::max)
    }

    /// The greatest count.
    pub fn greatest_count(&self, field: fn(&R) -> Option<u64>) -> Option<u64> {
        self.0.iter().filter_map(field).max()
    }

    /// The sum of quantities.
    pub fn sum(&self, field: fn(&R) -> f64) -> f64 {
        self.0.iter().map(field).filter(|value| value.is_finite()).sum()
    }

    /// The sum of counts.
    pub fn count(&self, field: fn(&R) -> u64) -> u64 {
        self.0.iter().map(field).sum()
    }

    /// The sums of counts by name.
    pub fn counts(&self, field: fn(&R) -> &BTreeMap<Arc<str>, u64>) -> BTreeMap<Arc<str>, u64> {
        let mut sums = BTreeMap::new();
        for (name, count) in self.0.iter().flat_map(field) {
            *sums.entry(Arc::clone(name)).or_default() += count;
        }
        sums
    }

    /// Tokens by what became of them in all records.
    pub fn fates(&self, field: fn(&R) -> &TokenFates) -> TokenFates {
        let mut fates = TokenFates::default();
        self.0.iter().for_each(|record| fates.merge(field(record)));
        fates
    }

    /// Everything that the records' histograms counted.
    pub fn lag(&self, field: fn(&R) -> &LagHistogram) -> LagHistogram {
        let mut lag = LagHistogram::default();
        for record in self.0 {
            lag.merge(field(record));
        }
        lag
    }
}

/// Scalars by their tags, without those that are absent or not finite.
pub(super) fn present<const N: usize>(scalars: [(&'static str, Option<f64>); N]) -> Vec<(&'static str, f64)> {
    scalars.into_iter().filter_map(|(tag, value)| Some((tag, finite(value)?))).collect()
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// Mean of (value, weight); `None` when the weights sum to zero.
fn mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, total), (value, w)| (sum + value * w, total + w));
    (weight > 0.0).then(|| sum / weight)
}
