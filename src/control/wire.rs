//! Fields of a packet: numbers in network byte order; texts and paths with their length before them.

use std::{
    ffi::OsString,
    net::IpAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use super::{BadMessage, Holding, MOST_ADDRESSES, ProcessUse};

/// A packet being made.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_be_bytes());
    }

    /// The kind of a packet, with a pool and either one of its workers or a count.
    pub(super) fn of_pool(&mut self, kind: u8, pool: u16, number: u32) {
        self.u8(kind);
        self.u16(pool);
        self.u32(number);
    }

    pub(super) fn of_process(&mut self, taken: ProcessUse) {
        self.u64(taken.cpu);
        self.u64(taken.memory);
        self.u64(taken.files);
    }

    /// A name and as many of its addresses as fit.
    pub(super) fn addresses(&mut self, name: &str, addresses: &[IpAddr]) {
        self.text(name);
        let addresses = &addresses[..addresses.len().min(MOST_ADDRESSES)];
        self.u8(addresses.len() as u8);
        for address in addresses {
            match address {
                IpAddr::V4(address) => self.chunk(&address.octets()),
                IpAddr::V6(address) => self.chunk(&address.octets()),
            }
        }
    }

    pub(super) fn holding(&mut self, holding: &Holding) {
        self.u32(holding.connections);
        self.u32(holding.requests);
        self.u8(holding.calls.into());
        self.u64(holding.longest);
        self.text(&holding.request);
    }

    /// Text, cut so that it fits into any message: it is meant for people.
    pub(super) fn text(&mut self, text: &str) {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.chunk(&text.as_bytes()[..end]);
    }

    pub(super) fn path(&mut self, path: &Path) {
        self.chunk(path.as_os_str().as_bytes());
    }

    /// Bytes, all of them.
    pub(super) fn chunk(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend(bytes);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// The rest of a packet that is being decoded.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(BadMessage)?;
        self.bytes = rest;
        Ok(*array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, BadMessage> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, BadMessage> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, BadMessage> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, BadMessage> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn of_process(&mut self) -> Result<ProcessUse, BadMessage> {
        Ok(ProcessUse {
            cpu: self.u64()?,
            memory: self.u64()?,
            files: self.u64()?,
        })
    }

    pub(super) fn addresses(&mut self) -> Result<(String, Vec<IpAddr>), BadMessage> {
        let name = self.text()?;
        let count = usize::from(self.u8()?);
        if count > MOST_ADDRESSES {
            return Err(BadMessage);
        }
        let address = |_| {
            let bytes = self.chunk()?;
            match (
                <[u8; 4]>::try_from(&bytes[..]),
                <[u8; 16]>::try_from(&bytes[..]),
            ) {
                (Ok(octets), _) => Ok(IpAddr::from(octets)),
                (_, Ok(octets)) => Ok(IpAddr::from(octets)),
                _ => Err(BadMessage),
            }
        };
        let addresses = (0..count).map(address).collect::<Result<_, _>>()?;
        Ok((name, addresses))
    }

    pub(super) fn holding(&mut self) -> Result<Holding, BadMessage> {
        Ok(Holding {
            connections: self.u32()?,
            requests: self.u32()?,
            calls: self.flag()?,
            longest: self.u64()?,
            request: self.text()?,
        })
    }

    pub(super) fn flag(&mut self) -> Result<bool, BadMessage> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadMessage),
        }
    }

    pub(super) fn chunk(&mut self) -> Result<Vec<u8>, BadMessage> {
        let len = self.u32()? as usize;
        let (chunk, rest) = self.bytes.split_at_checked(len).ok_or(BadMessage)?;
        self.bytes = rest;
        Ok(chunk.to_vec())
    }

    pub(super) fn text(&mut self) -> Result<String, BadMessage> {
        String::from_utf8(self.chunk()?).map_err(|_| BadMessage)
    }

    pub(super) fn path(&mut self) -> Result<PathBuf, BadMessage> {
        Ok(OsString::from_vec(self.chunk()?).into())
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, BadMessage>,
    ) -> Result<Option<T>, BadMessage> {
        match self.flag()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }
}

/// Maximum length of a text in a message, bytes.
pub(super) const MAX_TEXT: usize = 8 * 1024;
