//! What every workload's update records have in common, and the line of `metrics.jsonl` that several of them become.
//!
//! A workload has one record type, [`UpdateRecord`] for control and [`TokenRecord`](super::TokenRecord) for tokens;
//! the files, the server and the report are written against [`Record`].

use std::fmt::Debug;

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::lag::LagHistogram;
use super::update_record::UpdateRecord;
use crate::trajectory::DropReason;

/// What one learner update has to tell, whatever the workload.
///
/// A record is a flat struct of numbers: its serde names are the fields of `metrics.jsonl`, absent values are `None`
/// there and left out of the line, and none of them is called like a field of [`MetricsLine`].
pub trait Record: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned {
    /// Name of the line's rate: what is produced in a second.
    const RATE: &'static str;
    /// Name of the field that counts what is produced. It tells one workload's files from the other's.
    const PRODUCED: &'static str;

    /// Policy version after the update.
    fn update(&self) -> u64;

    /// What the run has produced so far: environment steps, or tokens.
    fn produced(&self) -> u64;

    /// Time since the run began, earlier sessions of a resumed run included (seconds).
    fn wall_seconds(&self) -> f64;

    /// Time spent computing the update (seconds).
    fn update_seconds(&self) -> f64;

    /// Time the learner waited for experience (seconds).
    fn starved_seconds(&self) -> f64;

    /// Mean time that the batch stood in the queue (seconds).
    fn queue_wait_seconds(&self) -> Option<f64>;

    /// Updates that left the parameters as they were, by reason.
    fn skipped(&self) -> [(DropReason, u64); 2];

    /// What was consumed, by its lag.
    fn lag(&self) -> &LagHistogram;

    /// The record without the figures that depend on the clock.
    #[must_use]
    fn without_clock(&self) -> Self;

    /// Several consecutive records as one, each field by its own rule; `None` of none.
    #[must_use]
    fn merge(records: &[Self]) -> Option<Self>;

    /// The values worth a curve, each under its TensorBoard tag; absent ones are left out.
    #[must_use]
    fn scalars(&self) -> Vec<(&'static str, f64)>;
}

/// One line of `metrics.jsonl`: the updates since the previous line, merged.
///
/// Serialised as one flat object: the fields of the record, `merged_updates`, and the rate under the name that the
/// workload gives it ([`Record::RATE`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricsLine<R = UpdateRecord> {
    /// The merged updates.
    pub record: R,
    /// How many updates this line stands for.
    pub merged_updates: u64,
    /// Environment steps taken, or tokens generated, in a second since the previous line.
    pub per_second: Option<f64>,
}

impl<R> MetricsLine<R> {
    const MERGED_UPDATES: &'static str = "merged_updates";
}

impl<R: Record> MetricsLine<R> {
    /// As one line of JSON without the newline; absent values are left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl<R: Record> Serialize for MetricsLine<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = serde_json::to_value(&self.record).map_err(serde::ser::Error::custom)?;
        let fields = record.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let mut line = serializer.serialize_map(None)?;
        for (name, value) in fields {
            line.serialize_entry(name, value)?;
        }
        line.serialize_entry(Self::MERGED_UPDATES, &self.merged_updates)?;
        if let Some(rate) = self.per_second.filter(|rate| rate.is_finite()) {
            line.serialize_entry(R::RATE, &rate)?;
        }
        line.end()
    }
}

impl<'de, R: Record> Deserialize<'de> for MetricsLine<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        let merged_updates = fields.get(Self::MERGED_UPDATES).map(u64::deserialize).transpose();
        let per_second = fields.get(R::RATE).map(f64::deserialize).transpose();
        let (merged_updates, per_second) = match (merged_updates, per_second) {
            (Ok(updates), Ok(rate)) => (updates.unwrap_or_default(), rate),
            (Err(error), _) | (_, Err(error)) => return Err(D::Error::custom(error)),
        };
        let record = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        Ok(Self { record, merged_updates, per_second })
    }
}
