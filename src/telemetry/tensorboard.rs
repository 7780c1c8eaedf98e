//! TensorBoard event files, written without TensorFlow.
//!
//! An event file is a sequence of records (the TFRecord framing): payload length as `u64`, masked CRC-32C of the
//! length, payload, masked CRC-32C of the payload; all little-endian. A payload is an `Event` message of
//! `tensorflow/core/util/event.proto`, in protocol-buffer encoding, of which three shapes are used: the file version
//! first, a session start (which makes TensorBoard forget what an interrupted run wrote beyond this step), and
//! scalars.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::record::Record;
use super::{MetricsLine, TelemetryError};

/// Writes scalars to one event file. The step of a scalar is the count of environment steps, or of tokens.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Starts a new event file in `run_dir`; those of earlier sessions stay. `first_step` is the step from which this
    /// session continues (0 for a new run): what earlier sessions wrote from there on is superseded.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(run_dir: &Path, first_step: u64) -> Result<Self, TelemetryError> {
        let now = unix_time();
        // The name must contain "tfevents"; a name that sorts by time and is unique keeps sessions apart.
        let name = format!("events.out.tfevents.{:017.6}.{}", now, std::process::id());
        let path = run_dir.join(name);
        let file = File::create(&path).map_err(TelemetryError::write(&path))?;
        let mut writer = Self { path, file };
        let mut version = event(now, 0);
        put_bytes(&mut version, 3, b"brain.Event:2");
        let mut start = event(now, first_step);
        // SessionLog { status: START }
        put_bytes(&mut start, 7, &[0x08, 0x01]);
        let mut bytes = frame(&version);
        bytes.extend(frame(&start));
        writer.append(&bytes)?;
        Ok(writer)
    }

    /// Writes every number of a line at its environment step or token.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_line<R: Record>(&mut self, line: &MetricsLine<R>) -> Result<(), TelemetryError> {
        self.scalars(line.record.produced(), &line.record.scalars())
    }

    /// Writes scalars of one step.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<(), TelemetryError> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            // Summary.Value { tag = 1, simple_value = 2 (float) }
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, tag.as_bytes());
            put_key(&mut entry, 2, WireType::Fixed32);
            entry.extend((*value as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &entry);
        }
        let mut event = event(unix_time(), step);
        put_bytes(&mut event, 5, &summary);
        self.append(&frame(&event))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TelemetryError> {
        self.file.write_all(bytes).map_err(TelemetryError::write(&self.path))
    }
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The beginning of every `Event`: wall_time = 1 (double), step = 2 (int64).
fn event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_key(&mut bytes, 1, WireType::Fixed64);
    bytes.extend(wall_time.to_le_bytes());
    put_key(&mut bytes, 2, WireType::Varint);
    put_varint(&mut bytes, step);
    bytes
}

/// How a protocol-buffer field is laid out.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

fn put_key(out: &mut Vec<u8>, field: u64, wire_type: WireType) {
    put_varint(out, field << 3 | wire_type as u64);
}

/// Seven bits a byte, the least significant first; the high bit tells that more follow.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut framed = Vec::with_capacity(payload.len() + 16);
    framed.extend(length);
    framed.extend(masked_crc(&length).to_le_bytes());
    framed.extend(payload);
    framed.extend(masked_crc(payload).to_le_bytes());
    framed
}

/// The framing rotates and shifts each checksum, so that a record within a record is not taken for valid.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_event_has_the_published_encoding() {
        let mut bytes = event(1.0, 300);
        put_bytes(&mut bytes, 3, b"x");
        assert_eq!(bytes, [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02, 0x1a, 0x01, b'x']);
    }

    #[test]
    fn a_record_is_framed_by_masked_checksums() {
        // CRC-32C of "123456789" is e3069283 (RFC 3720, appendix B.4 uses the same polynomial).
        assert_eq!(masked_crc(b"123456789"), 0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8));
        let framed = frame(b"abc");
        assert_eq!(framed.len(), 8 + 4 + 3 + 4);
        assert_eq!(framed[..8], 3_u64.to_le_bytes());
        assert_eq!(framed[8..12], masked_crc(&framed[..8]).to_le_bytes());
    }

    #[test]
    fn each_session_writes_a_file_that_tensorboard_looks_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(dir.path(), 0).unwrap();
        writer.scalars(10, &[("return/mean_of_100", 1.5)]).unwrap();
        let entry = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        assert!(entry.file_name().to_string_lossy().contains("tfevents"));
        let bytes = std::fs::read(entry.path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("brain.Event:2") && text.contains("return/mean_of_100"));
    }
}
