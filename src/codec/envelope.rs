//! The envelope of every record that is written or sent.
//!
//! ```text
//! offset  bytes  content (numbers little-endian)
//!      0      4  "FRBY"
//!      4      4  format version
//!      8      4  kind of record, four letters
//!     12      8  length of the payload
//!     20      4  CRC-32C of bytes 0..20 and the payload
//!     24         payload
//! ```
//!
//! Any change of up to three bits, any burst of up to 32, and any cut is detected. Nothing is allocated before the
//! length was compared with the reader's limit and with the bytes there. The payload is bincode with integers of fixed
//! width; bincode is known to this file only, and a change of encoding is a change of [`FORMAT_VERSION`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CodecError;

/// Version of the header and of the payload's encoding.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes before the payload.
pub const HEADER_LENGTH: usize = 24;

const MAGIC: [u8; 4] = *b"FRBY";

/// What a record is: four ASCII letters, readable in a dump. A record of one kind is never taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind([u8; 4]);

impl Kind {
    /// A kind, as in `Kind::new(*b"unrl")`.
    #[must_use]
    pub const fn new(letters: [u8; 4]) -> Self {
        Self(letters)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())
    }
}

/// The record of `value`: header and payload. Equal values give equal bytes as long as they hold no hash maps.
///
/// # Errors
/// [`CodecError::Payload`] when the type cannot be encoded, for example a sequence of unknown length.
pub fn encode<T: Serialize + ?Sized>(kind: Kind, value: &T) -> Result<Vec<u8>, CodecError> {
    let mut record = vec![0; HEADER_LENGTH];
    bincode::serde::encode_into_std_write(value, &mut record, bincode::config::legacy())
        .map_err(|error| CodecError::Payload { kind, why: error.to_string() })?;
    let length = (record.len() - HEADER_LENGTH) as u64;
    record[0..4].copy_from_slice(&MAGIC);
    record[4..8].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    record[8..12].copy_from_slice(&kind.0);
    record[12..20].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&record);
    record[20..24].copy_from_slice(&checksum.to_le_bytes());
    Ok(record)
}

/// Reads back what [`encode`] wrote: one whole record and nothing else. `limit` is the largest payload, in bytes, that
/// the caller expects.
///
/// # Errors
/// When the bytes are not a whole, undamaged record of this kind and type within the limit.
pub fn decode<T: DeserializeOwned>(kind: Kind, record: &[u8], limit: u64) -> Result<T, CodecError> {
    let length = payload_length(kind, record, limit)?;
    let payload = &record[HEADER_LENGTH..];
    let found = payload.len() as u64;
    if found < length {
        let whole = HEADER_LENGTH as u64;
        return Err(CodecError::Truncated { kind, found: whole + found, expected: whole + length });
    }
    if found > length {
        return Err(CodecError::TrailingBytes { kind, count: found - length });
    }
    if checksum(record) != number(record, 20) as u32 {
        return Err(CodecError::Checksum { kind });
    }
    decode_payload(kind, payload)
}

/// Checks a header, whatever follows it, and returns the length of the payload in bytes. A reader of a stream learns
/// from it how much to read next; `decode` then checks the whole.
///
/// # Errors
/// When the bytes do not begin with a header of this kind, or the payload is longer than `limit` bytes.
pub fn payload_length(kind: Kind, record: &[u8], limit: u64) -> Result<u64, CodecError> {
    if record.len() < HEADER_LENGTH {
        let found = record.len() as u64;
        return Err(CodecError::Truncated { kind, found, expected: HEADER_LENGTH as u64 });
    }
    if record[0..4] != MAGIC {
        return Err(CodecError::NotARecord { kind });
    }
    let version = number(record, 4) as u32;
    if version != FORMAT_VERSION {
        return Err(CodecError::Version { kind, found: version, supported: FORMAT_VERSION });
    }
    let found = Kind([record[8], record[9], record[10], record[11]]);
    if found != kind {
        return Err(CodecError::WrongKind { expected: kind, found });
    }
    let length = number(record, 12);
    if length > limit {
        return Err(CodecError::TooLarge { kind, length, limit });
    }
    Ok(length)
}

/// The eight bytes from `offset`, little-endian; the low half is the four-byte number there.
fn number(record: &[u8], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    let available = &record[offset..record.len().min(offset + 8)];
    bytes[..available.len()].copy_from_slice(available);
    u64::from_le_bytes(bytes)
}

fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..20]), &record[HEADER_LENGTH..])
}

/// A string's bytes are allocated on the word of its length, so a payload that lies (with a checksum to match) could
/// ask for any amount. bincode's limit stops that, but is a constant: it is the next of a few steps above the payload.
fn decode_payload<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, CodecError> {
    const SMALL: usize = 1 << 20;
    const MEDIUM: usize = 1 << 28;
    const LARGE: usize = 1 << 36;
    let plain = bincode::config::legacy();
    let decoded = if payload.len() <= SMALL {
        bincode::serde::decode_from_slice(payload, plain.with_limit::<SMALL>())
    } else if payload.len() <= MEDIUM {
        bincode::serde::decode_from_slice(payload, plain.with_limit::<MEDIUM>())
    } else {
        bincode::serde::decode_from_slice(payload, plain.with_limit::<LARGE>())
    };
    let (value, read) = decoded.map_err(|error| CodecError::Payload { kind, why: error.to_string() })?;
    if read < payload.len() {
        return Err(CodecError::Payload {
            kind,
            why: format!("{} bytes are left over", payload.len() - read),
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const KIND: Kind = Kind::new(*b"test");
    const LIMIT: u64 = 1 << 16;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Record {
        id: u64,
        signed: i32,
        values: Vec<f32>,
        flags: Vec<bool>,
        name: String,
        letter: char,
        choice: Option<Choice>,
        table: BTreeMap<String, (u8, f64)>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Choice {
        Empty,
        Pair(u16, i64),
        Named { bytes: Vec<u8> },
    }

    fn choices() -> impl Strategy<Value = Choice> {
        prop_oneof![
            Just(Choice::Empty),
            any::<(u16, i64)>().prop_map(|(a, b)| Choice::Pair(a, b)),
            any::<Vec<u8>>().prop_map(|bytes| Choice::Named { bytes }),
        ]
    }

    prop_compose! {
        fn records()(
            (id, signed, letter) in any::<(u64, i32, char)>(),
            values in prop::collection::vec(-1e9f32..1e9, 0..40),
            flags in any::<Vec<bool>>(),
            name in ".{0,20}",
            choice in prop::option::of(choices()),
            table in prop::collection::btree_map(".{0,5}", (any::<u8>(), -1e9f64..1e9), 0..5),
        ) -> Record {
            Record { id, signed, values, flags, name, letter, choice, table }
        }
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(record in records()) {
            let bytes = encode(KIND, &record).unwrap();
            prop_assert_eq!(&bytes, &encode(KIND, &record).unwrap());
            prop_assert_eq!(decode::<Record>(KIND, &bytes, LIMIT).unwrap(), record);
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in any::<Vec<u8>>()) {
            prop_assert!(decode::<Record>(KIND, &bytes, LIMIT).is_err());
        }

        #[test]
        fn a_lying_payload_is_refused_or_read_without_a_panic(
            record in records(), position in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut payload = encode(KIND, &record).unwrap().split_off(HEADER_LENGTH);
            let position = position.index(payload.len());
            payload[position] = byte;
            if let Ok(read) = decode::<Record>(KIND, &sealed(&payload), LIMIT) {
                prop_assert!(read.values.len() * 4 + read.name.len() <= payload.len());
            }
        }
    }

    fn small() -> Vec<u8> {
        encode(KIND, &(7u32, "name", vec![1.5f32, -2.0], Some(true))).unwrap()
    }

    type Small = (u32, String, Vec<f32>, Option<bool>);

    /// A record around any payload, with the right checksum.
    fn sealed(payload: &[u8]) -> Vec<u8> {
        let mut record = encode(KIND, &()).unwrap();
        record.extend_from_slice(payload);
        record[12..20].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        let checksum = checksum(&record);
        record[20..24].copy_from_slice(&checksum.to_le_bytes());
        record
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let record = small();
        assert!(decode::<Small>(KIND, &record, LIMIT).is_ok());
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<Small>(KIND, &damaged, LIMIT).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_detected() {
        let record = small();
        for length in 0..record.len() {
            let error = decode::<Small>(KIND, &record[..length], LIMIT).unwrap_err();
            assert!(matches!(error, CodecError::Truncated { .. }), "{length}: {error}");
        }
        let mut longer = record.clone();
        longer.push(0);
        assert!(matches!(
            decode::<Small>(KIND, &longer, LIMIT),
            Err(CodecError::TrailingBytes { count: 1, .. })
        ));
    }

    #[test]
    fn a_record_above_the_limit_is_refused_from_its_header_alone() {
        let record = small();
        let length = (record.len() - HEADER_LENGTH) as u64;
        assert_eq!(payload_length(KIND, &record, length).unwrap(), length);
        for available in [HEADER_LENGTH, record.len()] {
            let error = decode::<Small>(KIND, &record[..available], length - 1).unwrap_err();
            assert!(matches!(error, CodecError::TooLarge { .. }), "{error}");
        }
    }

    #[test]
    fn a_string_that_claims_to_be_huge_is_not_allocated() {
        for claim in [1u64 << 40, u64::MAX] {
            let error = decode::<String>(KIND, &sealed(&claim.to_le_bytes()), LIMIT).unwrap_err();
            assert!(error.to_string().contains("LimitExceeded"), "{error}");
        }
    }

    #[test]
    fn another_kind_format_or_type_is_named() {
        let other = encode(Kind::new(*b"othr"), &()).unwrap();
        let error = decode::<()>(KIND, &other, LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "expected a `test` record, found a `othr` record");

        let mut newer = encode(KIND, &()).unwrap();
        newer[4] = 9;
        let error = decode::<()>(KIND, &newer, LIMIT).unwrap_err();
        assert!(error.to_string().contains("format version 9, this build reads 1"), "{error}");

        let error = decode::<u32>(KIND, &encode(KIND, &3u64).unwrap(), LIMIT).unwrap_err();
        assert!(error.to_string().ends_with("4 bytes are left over"), "{error}");
        assert!(matches!(
            decode::<u64>(KIND, &encode(KIND, &3u32).unwrap(), LIMIT),
            Err(CodecError::Payload { .. })
        ));
        assert!(matches!(decode::<()>(KIND, &[b'x'; 64], LIMIT), Err(CodecError::NotARecord { .. })));
    }

    #[test]
    fn the_bytes_of_format_1_stay_as_they_are() {
        let record = encode(KIND, &(0x0102_0304u32, "ab")).unwrap();
        assert_eq!(record[..20], *b"FRBY\x01\0\0\0test\x0e\0\0\0\0\0\0\0");
        assert_eq!(record[24..], *b"\x04\x03\x02\x01\x02\0\0\0\0\0\0\0ab");
    }
}
