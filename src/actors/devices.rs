//! Devices by name: `cpu`, or `cuda:N` in a build with the `cuda` feature.

use candle_core::Device;

use super::run::NamedDevice;

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Not a name.
    #[error("unknown device `{0}`; write `cpu` or `cuda:0`, `cuda:1`, …")]
    Unknown(String),
    /// This binary cannot use CUDA.
    #[error("device `{0}` needs a build with the `cuda` feature (cargo build --release --features cuda)")]
    NotBuilt(String),
    /// The driver or the device is missing.
    #[error("device `{name}` cannot be used: {why}; `forebay doctor` shows what there is")]
    Unavailable {
        /// Its name.
        name: String,
        /// The driver's account.
        why: String,
    },
}

/// Opens a device.
///
/// # Errors
/// When the name is not one, or the device cannot be used.
pub fn open(name: &str) -> Result<NamedDevice, DeviceError> {
    let device = if name == "cpu" {
        Device::Cpu
    } else {
        let ordinal = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse::<usize>().ok());
        let Some(ordinal) = ordinal else { return Err(DeviceError::Unknown(name.into())) };
        if !cfg!(feature = "cuda") {
            return Err(DeviceError::NotBuilt(name.into()));
        }
        // A stream of its own: candle's default is the per-thread stream, which orders nothing between threads.
        Device::new_cuda_with_stream(ordinal).map_err(|error| {
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            DeviceError::Unavailable { name: name.into(), why }
        })?
    };
    Ok(NamedDevice { name: name.into(), device })
}
