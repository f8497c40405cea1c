//! Fields of a packet: numbers in network byte order; texts, paths and lists with their length before them.
//!
//! [`fields!`] and [`messages!`] make the code for structs and enums from the order of their fields and the codes of
//! their variants.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::IpAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use super::{
    BadMessage, CertificateOrder, GivenCertificate, GivenChallenge, MOST_ADDRESSES, MOST_READY,
    MOST_USES, PoolUse, ProgramProcess, ProgramReport, ToManager,
};

/// A value that a packet can contain.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Writer);

    /// # Errors
    /// If the bytes are not what [`Self::put`] makes.
    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage>;
}

/// A message, perhaps with a descriptor `F` that is attached to its packet.
pub(super) trait Message<F>: Sized {
    /// Returns the descriptor to attach.
    fn put<'m>(&'m self, out: &mut Writer) -> Option<&'m F>;

    /// Takes the descriptor, if the message has one.
    ///
    /// # Errors
    /// If the bytes are not what [`Self::put`] makes, or the descriptor is missing.
    fn take(from: &mut Reader<'_>, attached: &mut Option<F>) -> Result<Self, BadMessage>;
}

/// A packet that is being made.
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    /// Texts are cut to this length, bytes.
    longest_text: usize,
}

/// The rest of a packet that is being decoded.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
}

impl Writer {
    /// For a message. Its texts are meant for people, and are cut so that they fit.
    pub(super) fn of_message() -> Writer {
        Writer {
            bytes: Vec::new(),
            longest_text: MAX_TEXT,
        }
    }

    /// For a file: nothing is cut.
    pub(super) fn of_file() -> Writer {
        Writer {
            bytes: Vec::new(),
            longest_text: usize::MAX,
        }
    }

    fn chunk(&mut self, bytes: &[u8]) {
        (bytes.len() as u32).put(self);
        self.bytes.extend(bytes);
    }
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(BadMessage)?;
        self.bytes = rest;
        Ok(*array)
    }

    /// The next field.
    pub(super) fn next<T: Field>(&mut self) -> Result<T, BadMessage> {
        T::take(self)
    }

    /// The packet must have ended.
    pub(super) fn end(&self) -> Result<(), BadMessage> {
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(BadMessage),
        }
    }
}

/// Makes structs a [`Field`]: their fields in this order.
macro_rules! fields {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Writer) {
                let $name { $($field),* } = self;
                $( $field.put(out); )*
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
                Ok($name { $($field: from.next()?),* })
            }
        }
    )*};
}

/// Makes an enum a [`Message`]: a byte for the variant, then its fields in this order. What follows a semicolon is the
/// descriptor.
macro_rules! messages {
    (
        $enum:ty, attaching $attached:ty $(, for any $generic:ident)?;
        $(
            $code:literal => $variant:ident
                $( { $($field:ident),* $(; $file:ident)? } )?
                $( ( $($only:ident)? $(; $only_file:ident)? ) )?
        ),* $(,)?
    ) => {
        impl $(<$generic>)? Message<$attached> for $enum {
            fn put<'m>(&'m self, out: &mut Writer) -> Option<&'m $attached> {
                match self {
                    $(
                        Self::$variant
                            $( { $($field,)* $($file,)? } )?
                            $( ( $($only)? $($only_file)? ) )?
                        => {
                            out.bytes.push($code);
                            $( $( Field::put($field, out); )* )?
                            $( $( Field::put($only, out); )? )?
                            None$( $( .or(Some($file)) )? )?$( $( .or(Some($only_file)) )? )?
                        }
                    )*
                }
            }

            #[allow(unused_variables)]
            fn take(from: &mut Reader<'_>, attached: &mut Option<$attached>) -> Result<Self, BadMessage> {
                match from.next::<u8>()? {
                    $(
                        $code => Ok(Self::$variant
                            $( {
                                $($field: from.next()?,)*
                                $($file: attached.take().ok_or(BadMessage)?,)?
                            } )?
                            $( (
                                $({ let $only = from.next()?; $only })?
                                $({ let $only_file = attached.take().ok_or(BadMessage)?; $only_file })?
                            ) )?
                        ),
                    )*
                    _ => Err(BadMessage),
                }
            }
        }
    };
}

/// Makes messages without a descriptor a [`Field`] of others.
macro_rules! nested {
    ($($name:ty),*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Writer) {
                Message::<()>::put(self, out);
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
                Message::<()>::take(from, &mut None)
            }
        }
    )*};
}

pub(super) use {fields, messages, nested};

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Writer) {
                out.bytes.extend(self.to_be_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
                from.array().map(Self::from_be_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32);

impl Field for usize {
    fn put(&self, out: &mut Writer) {
        (*self as u64).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        from.next::<u64>()?.try_into().map_err(|_| BadMessage)
    }
}

impl Field for bool {
    fn put(&self, out: &mut Writer) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        match from.next::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadMessage),
        }
    }
}

/// In ms.
impl Field for Duration {
    fn put(&self, out: &mut Writer) {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        from.next().map(Duration::from_millis)
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Writer) {
        out.chunk(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let len = from.next::<u32>()? as usize;
        let (chunk, rest) = from.bytes.split_at_checked(len).ok_or(BadMessage)?;
        from.bytes = rest;
        Ok(chunk.to_vec())
    }
}

impl Field for String {
    fn put(&self, out: &mut Writer) {
        let mut end = self.len().min(out.longest_text);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        out.chunk(&self.as_bytes()[..end]);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        String::from_utf8(from.next()?).map_err(|_| BadMessage)
    }
}

impl Field for PathBuf {
    fn put(&self, out: &mut Writer) {
        out.chunk(self.as_os_str().as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        Ok(OsString::from_vec(from.next()?).into())
    }
}

impl Field for IpAddr {
    fn put(&self, out: &mut Writer) {
        match self {
            IpAddr::V4(address) => out.chunk(&address.octets()),
            IpAddr::V6(address) => out.chunk(&address.octets()),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let bytes = from.next::<Vec<u8>>()?;
        let v4 = <[u8; 4]>::try_from(&bytes[..]).map(IpAddr::from);
        let v6 = || <[u8; 16]>::try_from(&bytes[..]).map(IpAddr::from);
        v4.or_else(|_| v6()).map_err(|_| BadMessage)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Writer) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        match from.next()? {
            true => from.next().map(Some),
            false => Ok(None),
        }
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Writer) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        Ok((from.next()?, from.next()?))
    }
}

/// A type that a packet can contain as a list.
trait Element: Field {
    /// Maximum length of the list. Further elements are not sent, and are refused when received.
    const MOST: usize;
}

/// Groups and users.
impl Element for u32 {
    const MOST: usize = 65_536;
}

/// Pools.
impl Element for u16 {
    const MOST: usize = MOST_READY;
}

impl Element for (u16, PoolUse) {
    const MOST: usize = MOST_USES;
}

impl Element for IpAddr {
    const MOST: usize = MOST_ADDRESSES;
}

/// Pools and workers.
impl Element for (u16, u32) {
    const MOST: usize = ToManager::MOST_ASKED;
}

/// Certificates.
impl Element for Vec<u8> {
    const MOST: usize = u32::MAX as usize;
}

impl Element for GivenChallenge {
    const MOST: usize = u32::MAX as usize;
}

impl Element for CertificateOrder {
    const MOST: usize = u32::MAX as usize;
}

impl Element for ProgramReport {
    const MOST: usize = u32::MAX as usize;
}

impl Element for ProgramProcess {
    const MOST: usize = u32::MAX as usize;
}

impl Element for GivenCertificate {
    const MOST: usize = u32::MAX as usize;
}

impl<T: Element> Field for Vec<T> {
    fn put(&self, out: &mut Writer) {
        let elements = &self[..self.len().min(T::MOST)];
        (elements.len() as u32).put(out);
        elements.iter().for_each(|element| element.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let count = from.next::<u32>()?;
        if count as usize > T::MOST {
            return Err(BadMessage);
        }
        (0..count).map(|_| from.next()).collect()
    }
}

impl<K: Field + Ord, V: Field> Field for BTreeMap<K, V> {
    fn put(&self, out: &mut Writer) {
        (self.len() as u32).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let count = from.next::<u32>()?;
        (0..count).map(|_| from.next()).collect()
    }
}

/// Maximum length of a text in a message, bytes.
pub(super) const MAX_TEXT: usize = 8 * 1024;
