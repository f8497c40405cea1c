//! What stands in the files of a cache's folder. All numbers are little-endian.
//!
//! ```text
//! NUMBER.objects   records, one behind the other:
//!                  check 8 | magic 4 | kind 4 | asked 8 | names 4 | head 4 | body 8 | file 8 | check of the file 8 | names, head, body
//! NUMBER.index     where they are, an entry for each:
//!                  hash 16 | file 8 | length of the file 8 | offset 4 | length 4 | check 8
//! bodies/NUMBER    one large body, without anything else
//! ```
//!
//! A check is an XXH3. What does not agree with its check is not there.

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::KeyHash;

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record<B> {
    pub(super) kind: Kind,
    /// [`Asked`](crate::purges::Asked) of the object.
    pub(super) asked: u64,
    /// As the object has them; of variants the names of their fields.
    pub(super) names: B,
    pub(super) head: B,
    pub(super) body: Content<B>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Variants,
}

/// Where the body of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<B> {
    Here(B),
    /// In a file of its own.
    File(BodyFile),
}

/// A body in a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BodyFile {
    /// Never 0.
    pub(super) number: u64,
    pub(super) length: u64,
    pub(super) check: u64,
}

/// An entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: KeyHash,
    /// The number of the file with the body; 0: the body is in the record.
    pub(super) file: u64,
    pub(super) file_length: u64,
    /// Where the record is.
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// Bytes of an [`Entry`].
pub(super) const ENTRY: usize = 48;

/// Bytes of a record before its names.
pub(super) const HEADER: usize = 56;

const MAGIC: u32 = u32::from_le_bytes(*b"weir");

pub(super) fn check_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

impl Record<&[u8]> {
    /// `None`: it would be too large.
    pub(super) fn write(&self) -> Option<Vec<u8>> {
        let (inline, length, file) = match self.body {
            Content::Here(body) => (body, body.len() as u64, (0, 0)),
            Content::File(file) => (&[][..], file.length, (file.number, file.check)),
        };
        let kind: u32 = match self.kind {
            Kind::Object => 1,
            Kind::Variants => 2,
        };
        let whole = HEADER + self.names.len() + self.head.len() + inline.len();
        u32::try_from(whole).ok()?;
        let mut bytes = Vec::with_capacity(whole);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&self.asked.to_le_bytes());
        bytes.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.head.len() as u32).to_le_bytes());
        for number in [length, file.0, file.1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for part in [self.names, self.head, inline] {
            bytes.extend_from_slice(part);
        }
        let check = check_of(&bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        Some(bytes)
    }
}

impl Record<Bytes> {
    /// Reads a record that takes all of these bytes. `None`: it is damaged.
    pub(super) fn read(bytes: &Bytes) -> Option<Record<Bytes>> {
        let mut reader = Reader(bytes);
        let is_right = reader.u64()? == check_of(reader.0) && reader.u32()? == MAGIC;
        let kind = match (is_right, reader.u32()?) {
            (true, 1) => Kind::Object,
            (true, 2) => Kind::Variants,
            _ => return None,
        };
        let asked = reader.u64()?;
        let (names, head) = (reader.u32()? as usize, reader.u32()? as usize);
        let (length, number, check) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let head_at = HEADER.checked_add(names)?;
        let body_at = head_at.checked_add(head)?;
        let inline = bytes.len().checked_sub(body_at)? as u64;
        let body = match number {
            0 if length == inline && check == 0 => Content::Here(bytes.slice(body_at..)),
            0 => return None,
            _ if inline > 0 => return None,
            number => Content::File(BodyFile {
                number,
                length,
                check,
            }),
        };
        Some(Record {
            kind,
            asked,
            names: bytes.slice(HEADER..head_at),
            head: bytes.slice(head_at..body_at),
            body,
        })
    }
}

impl Entry {
    /// `segment`: the number of the file. An entry that was written for another one is none.
    pub(super) fn write(&self, segment: u32) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..16].copy_from_slice(&self.hash.to_bytes());
        bytes[16..24].copy_from_slice(&self.file.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.file_length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.offset.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.length.to_le_bytes());
        let check = xxh3_64_with_seed(&bytes[..40], segment.into());
        bytes[40..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The entries up to the first one that is damaged.
    pub(super) fn read_all(bytes: &[u8], segment: u32) -> impl Iterator<Item = Entry> {
        let pieces = bytes.chunks_exact(ENTRY);
        pieces.map_while(move |piece| Entry::read(piece, segment))
    }

    /// Makes the check fit.
    #[cfg(any(test, feature = "checks"))]
    pub(super) fn repair(bytes: &mut [u8], segment: u32) {
        let check = xxh3_64_with_seed(&bytes[..40], segment.into());
        bytes[40..].copy_from_slice(&check.to_le_bytes());
    }

    fn read(bytes: &[u8], segment: u32) -> Option<Entry> {
        let (own, check) = bytes.split_at_checked(40)?;
        let is_right = Reader(check).u64()? == xxh3_64_with_seed(own, segment.into());
        let (hash, rest) = own.split_first_chunk()?;
        let mut reader = Reader(rest);
        is_right.then_some(Entry {
            hash: KeyHash::from_bytes(*hash),
            file: reader.u64()?,
            file_length: reader.u64()?,
            offset: reader.u32()?,
            length: reader.u32()?,
        })
    }
}

/// Takes numbers from the front.
pub(super) struct Reader<'r>(pub(super) &'r [u8]);

impl<'r> Reader<'r> {
    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.chunk()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.chunk()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.chunk()?))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'r [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'r [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }
}
