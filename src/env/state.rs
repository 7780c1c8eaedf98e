//! The bytes of a saved environment: a label, then the state.
//!
//! The label is the environment's or wrapper's name. It refuses bytes of something else, which could otherwise
//! decode by accident when both happen to hold the same numbers of values.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::environment::EnvError;

const FORMAT: bincode::config::Configuration = bincode::config::standard();

/// The bytes of `state`. `None` only if the state cannot be serialised, which plain data always can.
pub(crate) fn save<T: Serialize>(label: &str, state: &T) -> Option<Vec<u8>> {
    bincode::serde::encode_to_vec((label, state), FORMAT).ok()
}

/// The state in `bytes` that [`save`] wrote under the same label; `env` is the name to use in an error.
pub(crate) fn restore<T: DeserializeOwned>(env: &str, label: &str, bytes: &[u8]) -> Result<T, EnvError> {
    let (saved_label, label_length) = bincode::serde::decode_from_slice::<String, _>(bytes, FORMAT)
        .map_err(|error| refuse(env, &format!("the bytes are no saved state ({error})")))?;
    if saved_label != label {
        return Err(refuse(env, &format!("the bytes were saved by `{saved_label}`, not by `{label}`")));
    }
    let body = &bytes[label_length..];
    let (state, length) = bincode::serde::decode_from_slice::<T, _>(body, FORMAT)
        .map_err(|error| refuse(env, &format!("the state of `{label}` is damaged ({error})")))?;
    if length != body.len() {
        return Err(refuse(env, &format!("{} bytes follow the state of `{label}`", body.len() - length)));
    }
    Ok(state)
}

/// An error that says why the environment `env` does not take a saved state.
pub(crate) fn refuse(env: &str, why: &str) -> EnvError {
    EnvError::Restore { env: env.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was() {
        let bytes = save("Maze", &(3_u32, vec![0.1_f64, -0.0])).unwrap();
        let (count, values): (u32, Vec<f64>) = restore("Maze", "Maze", &bytes).unwrap();
        assert_eq!((count, values[0], values[1].to_bits()), (3, 0.1, (-0.0_f64).to_bits()));
    }

    #[test]
    fn bytes_of_another_owner_are_refused_by_both_names() {
        let bytes = save("Catch", &1_u8).unwrap();
        let message = restore::<u8>("Maze", "Maze", &bytes).unwrap_err().to_string();
        assert!(message.contains("`Catch`") && message.contains("`Maze`"), "{message}");
    }

    #[test]
    fn cut_and_extended_bytes_are_refused() {
        let bytes = save("Maze", &7_u8).unwrap();
        for length in 0..bytes.len() {
            assert!(restore::<u8>("Maze", "Maze", &bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(restore::<u8>("Maze", "Maze", &[bytes, vec![0]].concat()).is_err());
    }
}
