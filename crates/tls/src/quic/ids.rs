//! Connection IDs that name the gateway and reactor of a connection, so that each packet finds them, also after a
//! reload.
//!
//! An ID is one block of AES-128: the place, and random bits. All gateways of a weir share the key, and nobody else can make
//! such IDs, read them, or see that two of them are of the same connection (RFC 9000 §5.1).

use std::{fmt, sync::Arc, time::Duration};

use aws_lc_rs::{
    cipher::{AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey},
    hkdf::{self, HKDF_SHA256, KeyType, Prk, Salt},
    hmac,
};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Bytes of an ID.
pub const ID: usize = 16;

/// Bytes of the secret that all gateways share.
pub const SECRET: usize = 32;

/// Where a connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The number of the gateway; later ones have higher numbers.
    pub gateway: u32,
    /// Its reactor.
    pub reactor: u16,
    /// Index into that gateway's listeners.
    pub listener: u16,
}

/// Makes and reads IDs.
pub struct Ids {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
    /// For stateless resets (RFC 9000 §10.3).
    pub reset: Arc<hmac::Key>,
    /// For tokens that validate addresses (RFC 9000 §8.1).
    pub tokens: Arc<Prk>,
}

/// How long a derived key is.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Ids {
    /// With the secret that the manager has made, [`SECRET`] bytes.
    ///
    /// # Errors
    /// If it is not that long.
    pub fn new(secret: &[u8]) -> Result<Ids, String> {
        if secret.len() != SECRET {
            return Err("the secret of connection IDs has a wrong length".into());
        }
        let secret = Salt::new(HKDF_SHA256, &[]).extract(secret);
        let derive = |label: &[u8], bytes: &mut [u8]| {
            let info = [label];
            let derived = secret.expand(&info, Length(bytes.len()));
            derived.and_then(|key| key.fill(bytes))
        };
        let (mut block, mut reset, mut tokens) = ([0; 16], [0; 32], [0; 32]);
        let mut keys = || {
            derive(b"weir connection ids", &mut block)?;
            derive(b"weir stateless resets", &mut reset)?;
            derive(b"weir address tokens", &mut tokens)?;
            let encrypt = EncryptingKey::ecb(UnboundCipherKey::new(&AES_128, &block)?)?;
            let decrypt = DecryptingKey::ecb(UnboundCipherKey::new(&AES_128, &block)?)?;
            Ok((encrypt, decrypt))
        };
        let (encrypt, decrypt) =
            keys().map_err(|_: aws_lc_rs::error::Unspecified| "keys of connection IDs failed")?;
        Ok(Ids {
            encrypt,
            decrypt,
            reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &reset)),
            tokens: Arc::new(Prk::new_less_safe(hkdf::HKDF_SHA256, &tokens)),
        })
    }

    /// A new ID for a connection at this place.
    pub fn make(&self, place: Place) -> [u8; ID] {
        let mut id = [0; ID];
        id[..4].copy_from_slice(&place.gateway.to_be_bytes());
        id[4..6].copy_from_slice(&place.reactor.to_be_bytes());
        id[6..8].copy_from_slice(&place.listener.to_be_bytes());
        // Zeros follow the place: they show that the ID was made here. If the kernel has no random numbers, the ID is
        // already in use, and quinn asks again.
        let _ = crate::random(&mut id[8 + CHECK..]);
        // Cannot fail: it is one block.
        let _ = self.encrypt.encrypt(&mut id);
        id
    }

    /// The place that an ID says; `None`: it is none of ours.
    pub fn read(&self, id: &[u8]) -> Option<Place> {
        let mut block: [u8; ID] = id.try_into().ok()?;
        self.decrypt
            .decrypt(&mut block, DecryptionContext::None)
            .ok()?;
        let [a, b, c, d, e, f, g, h, rest @ ..] = block;
        (rest[..CHECK] == [0; CHECK]).then_some(Place {
            gateway: u32::from_be_bytes([a, b, c, d]),
            reactor: u16::from_be_bytes([e, f]),
            listener: u16::from_be_bytes([g, h]),
        })
    }

    /// Makes the IDs of the connections at this place.
    pub fn generator(self: &Arc<Self>, place: Place) -> Box<dyn ConnectionIdGenerator> {
        Box::new(Generator {
            ids: self.clone(),
            place,
        })
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

struct Generator {
    ids: Arc<Ids>,
    place: Place,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.ids.make(self.place))
    }

    /// Packets with IDs that are not valid are dropped; for others of unknown connections the client gets a stateless reset.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match self.ids.read(id) {
            // A later gateway may know it.
            Some(place) if place.gateway <= self.place.gateway => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Zeros behind the place, bytes.
const CHECK: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_its_place_to_those_who_have_the_secret_and_to_nobody_else() {
        let ids = |byte: u8| Ids::new(&[byte; SECRET]).unwrap();
        let (ours, theirs) = (ids(1), ids(2));
        let place = Place {
            gateway: 70_000,
            reactor: 3,
            listener: 258,
        };
        let (one, other) = (ours.make(place), ours.make(place));
        assert_ne!(one, other);
        assert_eq!(ours.read(&one), Some(place));
        assert_eq!(ids(1).read(&other), Some(place));
        assert_ne!(theirs.read(&one), Some(place));
        assert_eq!(ours.read(&one[..15]), None);
        let forged = (0..=255).filter(|byte| {
            let mut forged = one;
            forged[15] ^= byte;
            ours.read(&forged).is_some()
        });
        assert_eq!(forged.count(), 1);
        assert!(Ids::new(&[0; 31]).is_err());
    }

    #[test]
    fn ids_of_later_gateways_are_left_to_them() {
        let ids = Arc::new(Ids::new(&[1; SECRET]).unwrap());
        let place = |gateway| Place {
            gateway,
            reactor: 0,
            listener: 0,
        };
        let generator = ids.generator(place(5));
        let is_valid = |gateway| {
            let id = ConnectionId::new(&ids.make(place(gateway)));
            generator.validate(&id).is_ok()
        };
        assert!(is_valid(5) && is_valid(4) && !is_valid(6));
    }
}
