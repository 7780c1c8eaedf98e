//! Checkpoint folders: `checkpoints/000000000123/` holds what was saved after update 123, and a manifest.
//!
//! What is kept, whatever kills the process or the machine in between:
//! - a folder under a checkpoint's name was complete when it got that name; names sort like updates;
//! - a folder that was damaged later is recognised and passed over, with the reason;
//! - the newest checkpoint and the newest that was marked best are never pruned;
//! - the same files give the same bytes, manifest included.
//!
//! Names that begin with a dot are work in progress and never read as checkpoints: `.saving-…` is being written,
//! `.replaced-…` is the older of two of the same update, `.removing-…` is being deleted. What a killed process left of
//! them is finished or removed when the folder is opened for writing.
//!
//! What the files mean is up to whoever saves them.

mod config;
mod manifest;
mod reader;
mod store;

pub use config::CheckpointConfig;
pub use reader::{CheckpointReader, Loaded, Search, TornCheckpoint};
pub use store::{CheckpointPolicy, CheckpointStore, WrittenCheckpoint};

/// Digits of an update in a folder's name: at a thousand updates a second they last for thirty years.
const DIGITS: usize = 12;

fn folder_name(update: u64) -> String {
    format!("{update:0DIGITS$}")
}

/// The update of a folder's name, if it is a checkpoint's name.
fn update_of(name: &str) -> Option<u64> {
    let update = name.parse().ok()?;
    (folder_name(update) == name).then_some(update)
}

#[cfg(test)]
mod tests;
