//! Everything that is written to disk or sent to another process: the envelope of records, tensors, atomic files and
//! checkpoint folders.
//!
//! The rule of the house: bytes from outside are checked (length, checksum, limit) before anything is allocated or
//! interpreted on their word, the same values always give the same bytes, and a file is either whole or not there.

pub mod as_json;
mod atomic;
mod checkpoint;
mod envelope;
mod error;
mod tensors;

pub use atomic::write_atomically;
pub use checkpoint::{
    CheckpointConfig, CheckpointPolicy, CheckpointReader, CheckpointStore, Loaded, Search, TornCheckpoint,
    WrittenCheckpoint,
};
pub use envelope::{FORMAT_VERSION, HEADER_LENGTH, Kind, decode, encode, payload_length};
pub use error::CodecError;
pub use tensors::{NamedTensors, tensors_from_bytes, tensors_to_bytes};
