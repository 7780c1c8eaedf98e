//! `samples.jsonl`: what the model wrote, for human eyes. One JSON object a line.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TelemetryError;
use super::line_file::{LineFile, read_lines};
use crate::trajectory::Finish;

/// Name of the file in a run directory.
const SAMPLES_FILE: &str = "samples.jsonl";

/// One graded completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Policy version that was asked: of the update that learned from it, or that was evaluated.
    pub update: u64,
    /// Part of the task's problems that the prompt is of, where the task has parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// What the model was given.
    pub prompt: String,
    /// What it wrote.
    pub completion: String,
    /// Its grade; `None` when it could not be graded.
    pub reward: Option<f64>,
    /// The reference answer, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why it ended; `None` when it was cut off otherwise.
    pub finish: Option<Finish>,
    /// Length of the completion (tokens).
    pub tokens: u64,
}

/// Writes `samples.jsonl`. A resumed run goes on where its checkpoint stood, so that no sample is there twice.
#[derive(Debug)]
pub struct SampleWriter(LineFile);

impl SampleWriter {
    /// Starts an empty file, replacing one that is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(run_dir: &Path) -> Result<Self, TelemetryError> {
        Ok(Self(LineFile::create(run_dir.join(SAMPLES_FILE))?))
    }

    /// Continues a file after as many samples as [`position`](Self::position) told a checkpoint.
    ///
    /// # Errors
    /// When the file is missing, has fewer samples, or cannot be written.
    pub fn resume(run_dir: &Path, samples: u64) -> Result<Self, TelemetryError> {
        let (file, _) = LineFile::resume::<Sample>(run_dir.join(SAMPLES_FILE), samples)?;
        Ok(Self(file))
    }

    /// Writes one sample.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, sample: &Sample) -> Result<(), TelemetryError> {
        self.0.append(sample)
    }

    /// Samples written, for a checkpoint.
    ///
    /// # Errors
    /// When what was written cannot be made durable.
    pub fn position(&self) -> Result<u64, TelemetryError> {
        self.0.durable_lines()
    }
}

/// The last samples of a run, at most this many, oldest first; none when the run wrote none.
pub(super) fn read_samples(run_dir: &Path, most: usize) -> Result<Vec<Sample>, TelemetryError> {
    match read_lines(&run_dir.join(SAMPLES_FILE), most) {
        Err(TelemetryError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The sample of an update.
    pub fn sample(update: u64) -> Sample {
        Sample {
            update,
            split: None,
            prompt: "What is 2 + 2?\n".into(),
            completion: format!("It is {update}."),
            reward: Some(1.0),
            answer: Some("4".into()),
            finish: Some(Finish::Stop),
            tokens: 6,
        }
    }

    #[test]
    fn the_last_samples_read_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_samples(dir.path(), 3).unwrap(), []);
        let mut writer = SampleWriter::create(dir.path()).unwrap();
        (1..=5).for_each(|update| writer.write(&sample(update)).unwrap());
        assert_eq!(read_samples(dir.path(), 2).unwrap(), [sample(4), sample(5)]);
        assert_eq!(read_samples(dir.path(), 99).unwrap().len(), 5);
    }

    #[test]
    fn a_resumed_run_does_not_repeat_its_samples() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SampleWriter::create(dir.path()).unwrap();
        (1..=2).for_each(|update| writer.write(&sample(update)).unwrap());
        let position = writer.position().unwrap();
        writer.write(&sample(3)).unwrap();
        drop(writer);
        let mut writer = SampleWriter::resume(dir.path(), position).unwrap();
        (3..=4).for_each(|update| writer.write(&sample(update)).unwrap());
        let updates: Vec<_> = read_samples(dir.path(), 9).unwrap().iter().map(|s| s.update).collect();
        assert_eq!(updates, [1, 2, 3, 4]);
        let error = SampleWriter::resume(dir.path(), 5).unwrap_err();
        assert!(matches!(error, TelemetryError::Position { expected: 5, actual: 4, .. }), "{error}");
    }

    #[test]
    fn a_damaged_sample_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(SAMPLES_FILE), "{\"update\":1}\n").unwrap();
        let message = read_samples(dir.path(), 9).unwrap_err().to_string();
        assert!(message.contains("samples.jsonl, line 1") && message.contains("missing field"), "{message}");
    }
}
