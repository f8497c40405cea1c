//! Session tickets: what a client keeps so that its next handshake is shorter (RFC 8446 §4.6.1, RFC 5077).
//!
//! The manager makes the keys and gives them to all gateways, so that a ticket of one gateway is valid at the next.
//! Nothing is stored for a client. A ticket is bound to the settings under which the client was verified: a ticket of a
//! site without client certificates is not valid for a site that requires one.

use std::sync::{Arc, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::server::ProducesTickets;

/// Bytes of a key as the manager gives it: its name, and the key itself.
pub const TICKET_KEY: usize = NAME + 32;

/// How long a client may keep a ticket, seconds: as long as its key is accepted at least.
const LIFETIME: u32 = 12 * 60 * 60;

/// Bytes of the public name by which a key is found.
const NAME: usize = 16;

/// Bytes of the number that is used once.
const NONCE: usize = 12;

/// The keys that are in force: the first encrypts, all decrypt.
#[derive(Debug, Default)]
pub struct TicketKeys {
    keys: RwLock<Arc<Vec<TicketKey>>>,
}

#[derive(Debug)]
struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl TicketKeys {
    /// Puts these keys in force, the current one first. One of another length than [`TICKET_KEY`] is left out.
    pub fn set(&self, keys: &[Vec<u8>]) {
        let keys = keys.iter().filter_map(|key| TicketKey::read(key)).collect();
        let mut current = self
            .keys
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        *current = Arc::new(keys);
    }

    fn get(&self) -> Arc<Vec<TicketKey>> {
        let keys = self
            .keys
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        keys.clone()
    }
}

impl TicketKey {
    fn read(bytes: &[u8]) -> Option<TicketKey> {
        let (name, key) = bytes.split_first_chunk::<NAME>()?;
        let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
        Some(TicketKey {
            name: *name,
            key: LessSafeKey::new(key),
        })
    }
}

/// Makes and reads the tickets of clients that were verified in the same way.
#[derive(Debug)]
pub(crate) struct Ticketer {
    pub(crate) keys: Arc<TicketKeys>,
    /// The way: a digest of the settings.
    pub(crate) binding: [u8; 32],
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.get();
        let TicketKey { name, key } = keys.first()?;
        let mut nonce = [0; NONCE];
        crate::random(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME + NONCE + plain.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let body = &mut ticket[NAME + NONCE..];
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(self.binding), body)
            .ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, body) = rest.split_first_chunk::<NONCE>()?;
        let keys = self.keys.get();
        let key = keys.iter().find(|key| key.name == *name)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut body = body.to_vec();
        let plain = key
            .key
            .open_in_place(nonce, Aad::from(self.binding), &mut body)
            .ok()?
            .len();
        body.truncate(plain);
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_last_through_one_change_of_keys_and_hold_only_for_their_settings() {
        let key = |number: u8| vec![number; TICKET_KEY];
        let keys = Arc::new(TicketKeys::default());
        let ticketer = |binding: u8| Ticketer {
            keys: keys.clone(),
            binding: [binding; 32],
        };
        assert_eq!(ticketer(0).encrypt(b"state"), None, "there is no key yet");
        keys.set(&[key(1)]);
        let ticket = ticketer(0).encrypt(b"state").unwrap();
        assert_eq!(ticketer(0).decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(ticketer(1).decrypt(&ticket), None);
        keys.set(&[key(2), key(1)]);
        assert_eq!(ticketer(0).decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        keys.set(&[key(3), key(2)]);
        assert_eq!(ticketer(0).decrypt(&ticket), None);
        let newer = ticketer(0).encrypt(b"state").unwrap();
        for at in 0..newer.len() {
            let mut forged = newer.clone();
            forged[at] ^= 1;
            assert_eq!(ticketer(0).decrypt(&forged), None, "byte {at}");
            assert_eq!(ticketer(0).decrypt(&newer[..at]), None);
        }
    }
}
