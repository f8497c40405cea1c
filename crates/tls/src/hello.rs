//! The first message of a client (ClientHello): collected until it is complete, and kept so that another thread can
//! process it again.

use std::io;

use rustls::{
    Error,
    server::{Accepted, AcceptedAlert, Acceptor},
};

/// A ClientHello that comes.
pub(crate) struct Hello {
    acceptor: Acceptor,
    /// Its bytes, if they may be needed again.
    bytes: Option<Vec<u8>>,
}

impl Hello {
    /// `is_kept`: its bytes may be needed again.
    pub(crate) fn new(is_kept: bool) -> Hello {
        Hello {
            acceptor: Acceptor::default(),
            bytes: is_kept.then(Vec::new),
        }
    }

    /// Takes bytes that came.
    ///
    /// # Errors
    /// They are too many.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        let before = *bytes;
        self.acceptor.read_tls(bytes)?;
        if let Some(kept) = &mut self.bytes {
            kept.extend_from_slice(&before[..before.len() - bytes.len()]);
        }
        Ok(())
    }

    /// The message, if it is whole.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn accept(&mut self) -> Result<Option<Accepted>, (Error, AcceptedAlert)> {
        self.acceptor.accept()
    }

    /// Its bytes, if they are kept.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        self.bytes.take().unwrap_or_default()
    }
}

/// The message with these bytes again. `None`: they are none.
pub(crate) fn again(mut bytes: &[u8]) -> Option<Accepted> {
    let mut hello = Hello::new(false);
    while !bytes.is_empty() {
        let left = bytes.len();
        hello.read(&mut bytes).ok()?;
        if let Ok(Some(accepted)) = hello.accept() {
            return Some(accepted);
        }
        if bytes.len() == left {
            return None;
        }
    }
    None
}

/// Whether a ClientHello has a ticket of an earlier connection.
pub(crate) fn has_ticket(bytes: &[u8]) -> bool {
    ticket(bytes).unwrap_or(false)
}

/// `None`: it is no ClientHello.
fn ticket(mut records: &[u8]) -> Option<bool> {
    let mut message = Vec::new();
    while let Some(([HANDSHAKE, _, _, a, b], behind)) = records.split_first_chunk() {
        let (part, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes([*a, *b])))?;
        message.extend_from_slice(part);
        records = behind;
    }
    let rest = &mut message.get(BEFORE_SESSION..)?;
    // The number of a session, ciphers, and compressions (RFC 8446 §4.1.2).
    for bytes in [1, 2, 1] {
        vector(rest, bytes)?;
    }
    let mut extensions = vector(rest, 2)?;
    while let Some((kind, behind)) = extensions.split_first_chunk() {
        extensions = behind;
        let value = vector(&mut extensions, 2)?;
        let kind = u16::from_be_bytes(*kind);
        if kind == PRE_SHARED_KEY || (kind == SESSION_TICKET && !value.is_empty()) {
            return Some(true);
        }
    }
    Some(false)
}

/// Takes a vector: its length in this number of bytes, then its content.
fn vector<'b>(rest: &mut &'b [u8], bytes: usize) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_at_checked(bytes)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (value, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(value)
}

/// The type of records with messages of the handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// Type and length of the message, version and random number.
const BEFORE_SESSION: usize = 4 + 2 + 32;

/// Extensions (RFC 8446 §4.2.11, RFC 5077 §3.2).
const PRE_SHARED_KEY: u16 = 41;
const SESSION_TICKET: u16 = 35;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// A ClientHello with these extensions in records of so many bytes.
    fn hello(extensions: &[(u16, &[u8])], size: usize) -> Vec<u8> {
        let prefixed = |value: &[u8]| [&(value.len() as u16).to_be_bytes(), value].concat();
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, value)| [&kind.to_be_bytes()[..], &prefixed(value)].concat())
            .collect();
        let mut body = [&[3, 3][..], &[7; 32], &[2, 8, 8], &[0, 2, 19, 1], &[1, 0]].concat();
        body.extend(prefixed(&extensions));
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[1][..], &length[1..], &body].concat();
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &prefixed(part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn tickets_are_found_in_any_records() {
        let other: (u16, &[u8]) = (13, &[0, 2, 4, 3]);
        for (extensions, has) in [
            (&[other][..], false),
            (&[other, (PRE_SHARED_KEY, &[1; 50])], true),
            (&[(SESSION_TICKET, &[]), other], false),
            (&[(SESSION_TICKET, &[5]), other], true),
        ] {
            for size in [1, 40, 1000] {
                assert_eq!(has_ticket(&hello(extensions, size)), has, "{extensions:?}");
            }
            let whole = hello(extensions, 1000);
            for end in 0..whole.len() {
                assert!(!has_ticket(&whole[..end]));
            }
        }
    }

    #[test]
    fn a_message_is_accepted_again() {
        let config = ClientConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = "main.test".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut sent = Vec::new();
        client.write_tls(&mut sent).unwrap();
        let mut hello = Hello::new(true);
        let (mut first, mut rest) = sent.split_at(100);
        hello.read(&mut first).unwrap();
        assert!(hello.accept().unwrap().is_none());
        hello.read(&mut rest).unwrap();
        let accepted = hello.accept().ok().unwrap().unwrap();
        let bytes = hello.take_bytes();
        assert_eq!(accepted.client_hello().server_name(), Some("main.test"));
        assert_eq!(bytes, sent);
        let second = again(&bytes).unwrap();
        assert_eq!(second.client_hello().server_name(), Some("main.test"));
        assert!(again(&bytes[..90]).is_none());
    }
}
