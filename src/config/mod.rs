//! Configuration: loading with places, overrides, and the reference written from the types.

mod error;
mod explain;
mod load;
mod overrides;
mod path;
mod reference;
#[cfg(test)]
mod sample;
mod schema;
pub mod suggest;

pub use error::ConfigError;
pub use load::{Source, load};
pub use overrides::Override;
pub use reference::reference;
