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

/// Opens devices in order. A name that comes again is the same device, on which tensors can be shared.
///
/// # Errors
/// As [`open`], for the first that cannot be used.
pub fn open_all<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<NamedDevice>, DeviceError> {
    let mut opened: Vec<NamedDevice> = Vec::new();
    for name in names {
        let known = opened.iter().find(|device| device.name == name).cloned();
        opened.push(known.map_or_else(|| open(name), Ok)?);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_in_the_order_of_their_names() {
        let opened = open_all(["cpu", "cpu"]).unwrap();
        assert_eq!(opened.len(), 2);
        assert!(opened.iter().all(|device| device.name == "cpu" && device.device.is_cpu()));
    }

    #[test]
    fn what_is_no_name_of_a_device_is_refused_and_so_is_a_device_that_this_build_or_machine_lacks() {
        for name in ["gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "CPU", ""] {
            let error = open_all(["cpu", name]).unwrap_err().to_string();
            assert!(
                error.contains(&format!("unknown device `{name}`")) && error.contains("cuda:0"),
                "{error}"
            );
        }
        // No machine has so many.
        let error = open_all(["cuda:4096"]).unwrap_err().to_string();
        let expected = if cfg!(feature = "cuda") { "cannot be used" } else { "`cuda` feature" };
        assert!(error.contains("cuda:4096") && error.contains(expected), "{error}");
    }
}
