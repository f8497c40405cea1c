//! Name-value pairs (FastCGI 1.0 §3.4): the contents of `FCGI_PARAMS`, `FCGI_GET_VALUES` and `FCGI_GET_VALUES_RESULT`.
//!
//! A pair is the length of its name, the length of its value, the name, the value. A length of at most 127 takes one
//! byte; a longer one takes four, the first bit set.
//!
//! ```
//! use weir_fcgi::nv::{self, Limits};
//!
//! let mut bytes = Vec::new();
//! nv::encode(&mut bytes, b"SERVER_PORT", b"80");
//! nv::encode(&mut bytes, b"SERVER_ADDR", b"199.170.183.42");
//!
//! let mut decoder = nv::Decoder::new(Limits::default());
//! for piece in bytes.chunks(3) {
//!     decoder.feed(piece)?;
//! }
//! let pairs = decoder.finish()?;
//! assert_eq!(pairs.get(b"SERVER_PORT"), Some(&b"80"[..]));
//! assert_eq!(pairs.iter().count(), 2);
//! # Ok::<(), nv::NvError>(())
//! ```

use alloc::vec::Vec;
use core::{fmt, mem};

/// Maximum length of a name or value in the encoding, bytes: lengths have 31 bits.
pub const MAX_LEN: usize = 0x7fff_ffff;

/// How many bytes a pair takes.
#[inline]
#[must_use]
pub const fn encoded_len(name_len: usize, value_len: usize) -> usize {
    length_len(name_len) + length_len(value_len) + name_len + value_len
}

/// Appends a pair.
///
/// # Panics
///
/// If the name or the value is longer than [`MAX_LEN`].
#[inline]
pub fn encode(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(encoded_len(name.len(), value.len()));
    encode_lengths(out, name.len(), value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Appends the two lengths before a pair's name and value.
///
/// # Panics
///
/// If one of them is more than [`MAX_LEN`].
#[inline]
pub fn encode_lengths(out: &mut Vec<u8>, name_len: usize, value_len: usize) {
    if name_len <= SHORT && value_len <= SHORT {
        out.extend_from_slice(&[name_len as u8, value_len as u8]);
    } else {
        encode_length(out, name_len);
        encode_length(out, value_len);
    }
}

/// Limits for the stored pairs of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all pairs together, as encoded.
    pub bytes: usize,
    /// Number of pairs.
    pub pairs: usize,
}

impl Default for Limits {
    /// 256 KiB and 4096 pairs: several times the usual limits of web servers for a request head.
    fn default() -> Self {
        Self {
            bytes: 256 * 1024,
            pairs: 4096,
        }
    }
}

/// Errors in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvError {
    /// Together longer than [`Limits::bytes`]. Detected as soon as a length shows it, before the bytes arrive.
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// More pairs than [`Limits::pairs`].
    TooManyPairs {
        /// The limit, in pairs.
        limit: usize,
    },
    /// The bytes end within a pair.
    Truncated,
}

impl fmt::Display for NvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLarge { limit } => write!(f, "more than {limit} bytes of name-value pairs"),
            Self::TooManyPairs { limit } => write!(f, "more than {limit} name-value pairs"),
            Self::Truncated => f.write_str("name-value pairs end within a pair"),
        }
    }
}

impl core::error::Error for NvError {}

/// Collects pairs from pieces that may be cut anywhere, even within a length.
///
/// Stores the bytes as they arrive, never more than [`Limits::bytes`].
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    limits: Limits,
    bytes: Vec<u8>,
    pairs: usize,
    /// Where the next pair begins whose lengths were not read yet; beyond the end of `bytes` while the name and value
    /// before it are incomplete.
    next: usize,
}

impl Decoder {
    /// An empty decoder.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: Vec::new(),
            pairs: 0,
            next: 0,
        }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    ///
    /// [`NvError::TooLarge`] and [`NvError::TooManyPairs`]; after that the decoder must be [`clear`ed](Self::clear).
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), NvError> {
        let limit = self.limits.bytes;
        // The part that fits is checked before the rest is refused, so that the error does not depend on how the
        // bytes were cut.
        let fits = piece.len().min(limit - self.bytes.len());
        let length = self.bytes.len() + fits;
        if length > self.bytes.capacity() {
            // Grow by doubling as usual, but never past the limit.
            let capacity = length.max(self.bytes.capacity() * 2).min(limit);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(&piece[..fits]);
        while let Some(pair) = self.bytes.get(self.next..).and_then(Lengths::read) {
            if self.pairs == self.limits.pairs {
                return Err(NvError::TooManyPairs { limit: self.pairs });
            }
            // A pair can be at most 8 + 2 × 2^31 bytes, so that even a 32-bit sum has to be checked.
            self.next = pair
                .total()
                .and_then(|total| total.checked_add(self.next))
                .filter(|&end| end <= limit)
                .ok_or(NvError::TooLarge { limit })?;
            self.pairs += 1;
        }
        if fits < piece.len() {
            return Err(NvError::TooLarge { limit });
        }
        Ok(())
    }

    /// All pairs; the decoder is empty afterwards.
    ///
    /// # Errors
    ///
    /// [`NvError::Truncated`] if the last pair is not whole.
    pub fn finish(&mut self) -> Result<Pairs, NvError> {
        let whole = self.next == self.bytes.len();
        let (bytes, count) = (mem::take(&mut self.bytes), self.pairs);
        self.clear();
        if whole {
            Ok(Pairs { bytes, count })
        } else {
            Err(NvError::Truncated)
        }
    }

    /// Drops the stored bytes and frees their memory.
    pub fn clear(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Memory held, in bytes; never more than [`Limits::bytes`].
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Complete pairs in order of arrival, in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    bytes: Vec<u8>,
    count: usize,
}

impl Pairs {
    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of the last pair of that name: where a name comes twice, PHP and others keep the later one.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .filter(|pair| pair.0 == name)
            .last()
            .map(|pair| pair.1)
    }

    /// Each pair as (name, value).
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.bytes }
    }

    /// The pairs as they are encoded, ready for another peer's records.
    #[must_use]
    pub fn as_encoded(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'p> IntoIterator for &'p Pairs {
    type Item = (&'p [u8], &'p [u8]);
    type IntoIter = Iter<'p>;

    fn into_iter(self) -> Iter<'p> {
        self.iter()
    }
}

/// Iterates over [`Pairs`] as (name, value).
#[derive(Clone, Debug)]
pub struct Iter<'p> {
    rest: &'p [u8],
}

impl<'p> Iterator for Iter<'p> {
    type Item = (&'p [u8], &'p [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // `Pairs` has only complete pairs, so `None` means the end.
        let lengths = Lengths::read(self.rest)?;
        let body = self.rest.get(lengths.size..)?;
        let (name, body) = body.split_at_checked(lengths.name)?;
        let (value, rest) = body.split_at_checked(lengths.value)?;
        self.rest = rest;
        Some((name, value))
    }
}

/// The lengths before a pair.
struct Lengths {
    /// Bytes that the lengths themselves take: 2, 5 or 8.
    size: usize,
    name: usize,
    value: usize,
}

impl Lengths {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = read_length(bytes)?;
        let (value, rest) = read_length(rest)?;
        Some(Self {
            size: bytes.len() - rest.len(),
            name,
            value,
        })
    }

    #[inline]
    fn total(&self) -> Option<usize> {
        self.size.checked_add(self.name)?.checked_add(self.value)
    }
}

#[inline]
fn read_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if usize::from(first) <= SHORT {
        return Some((usize::from(first), rest));
    }
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    Some(((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize, rest))
}

const fn length_len(length: usize) -> usize {
    if length <= SHORT { 1 } else { 4 }
}

fn encode_length(out: &mut Vec<u8>, length: usize) {
    if length <= SHORT {
        out.push(length as u8);
    } else {
        assert!(
            length <= MAX_LEN,
            "a name or value of {length} bytes cannot be encoded"
        );
        out.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes());
    }
}

/// The longest length that takes one byte.
pub(crate) const SHORT: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn decode(bytes: &[u8], step: usize, limits: Limits) -> Result<Pairs, NvError> {
        let mut decoder = Decoder::new(limits);
        for piece in bytes.chunks(step) {
            decoder.feed(piece)?;
            assert!(decoder.held() <= limits.bytes);
        }
        decoder.finish()
    }

    #[test]
    fn lengths_around_their_border_round_trip() {
        for name_len in [0, 1, 126, 127, 128, 129, 300] {
            for value_len in [0, 1, 126, 127, 128, 129, 70_000] {
                let (name, value) = (vec![b'n'; name_len], vec![b'v'; value_len]);
                let mut bytes = Vec::new();
                encode(&mut bytes, &name, &value);
                assert_eq!(bytes.len(), encoded_len(name_len, value_len));
                let pairs = decode(&bytes, 7, Limits::default()).unwrap();
                assert_eq!(pairs.len(), 1);
                assert!(pairs.iter().eq([(&name[..], &value[..])]));
                assert_eq!(pairs.as_encoded(), bytes);
            }
        }
    }

    #[test]
    fn four_bytes_for_a_short_length_are_taken_too() {
        let bytes = [0x80, 0, 0, 1, 0x80, 0, 0, 2, b'n', b'v', b'w'];
        let pairs = decode(&bytes, 1, Limits::default()).unwrap();
        assert_eq!(pairs.get(b"n"), Some(&b"vw"[..]));
    }

    #[test]
    fn the_later_of_two_pairs_counts() {
        let pairs = decode(b"\x01\x01n1\x01\x01n2\x01\x01m3", 100, Limits::default()).unwrap();
        assert_eq!(pairs.get(b"n"), Some(&b"2"[..]));
        assert_eq!(pairs.get(b"o"), None);
    }

    #[test]
    fn a_pair_that_is_not_whole_is_refused_at_the_end() {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"name", &[b'v'; 200]);
        for length in 1..bytes.len() {
            assert_eq!(
                decode(&bytes[..length], 3, Limits::default()),
                Err(NvError::Truncated)
            );
        }
        assert_eq!(
            decode(&[], 1, Limits::default()).map(|pairs| pairs.is_empty()),
            Ok(true)
        );
    }

    #[test]
    fn limits_are_met_exactly() {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"name", b"value");
        encode(&mut bytes, b"name", b"value");
        let limits = |bytes, pairs| Limits { bytes, pairs };
        let length = bytes.len();
        assert!(decode(&bytes, 1, limits(length, 2)).is_ok());
        let limit = length - 1;
        assert_eq!(
            decode(&bytes, 1, limits(limit, 2)),
            Err(NvError::TooLarge { limit })
        );
        assert_eq!(
            decode(&bytes, 1, limits(length, 1)),
            Err(NvError::TooManyPairs { limit: 1 })
        );
    }

    #[test]
    fn the_first_error_is_given_however_the_bytes_are_cut() {
        let limits = Limits { bytes: 8, pairs: 0 };
        for step in 1..20 {
            let error = decode(&[0; 16], step, limits);
            assert_eq!(error, Err(NvError::TooManyPairs { limit: 0 }));
        }
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::new(Limits::default());
        let limit = Limits::default().bytes;
        assert_eq!(decoder.feed(&[0xff; 8]), Err(NvError::TooLarge { limit }));
        assert!(decoder.held() < 100);
    }

    #[test]
    #[should_panic = "cannot be encoded"]
    fn a_length_of_32_bits_is_not_encoded() {
        encode_lengths(&mut Vec::new(), MAX_LEN + 1, 0);
    }
}
