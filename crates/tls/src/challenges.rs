//! Proofs for authorities that names lead to this machine: texts for paths (RFC 8555 §8.3), and certificates for
//! handshakes (RFC 8737).
//!
//! Nearly always there is no challenge, and the check costs one load.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustls::{
    crypto::aws_lc_rs::sign::any_supported_type, server::ClientHello, sign::CertifiedKey,
};
use rustls_pki_types::PrivatePkcs8KeyDer;

/// The answer to a challenge.
#[derive(Debug)]
pub struct Challenge {
    /// The host name, in lower case.
    pub name: String,
    /// The last part of the path.
    pub token: String,
    /// The text at that path.
    pub text: String,
    /// A certificate and its key (DER).
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// All answers that are in force.
#[derive(Debug, Default)]
pub struct Challenges {
    are_there: AtomicBool,
    texts: RwLock<HashMap<String, Arc<str>>>,
    certificates: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl Challenges {
    /// Puts these in force, instead of all others. One that cannot be used is left out.
    pub fn set(&self, list: Vec<Challenge>) {
        let mut texts = HashMap::new();
        let mut certificates = HashMap::new();
        for challenge in list {
            if let Some((certificate, key)) = challenge.certificate
                && let Ok(key) = any_supported_type(&PrivatePkcs8KeyDer::from(key).into())
            {
                let pair = CertifiedKey::new(vec![certificate.into()], key);
                certificates.insert(sni(&challenge.name), Arc::new(pair));
            }
            texts.insert(challenge.token, challenge.text.into());
        }
        self.are_there.store(!texts.is_empty(), Relaxed);
        *self.texts.write().unwrap_or_else(PoisonError::into_inner) = texts;
        let mut there = self
            .certificates
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *there = certificates;
    }

    /// The text for a path of a request; `None`: it is for no challenge that is in force.
    pub fn text(&self, path: &[u8]) -> Option<Arc<str>> {
        if !self.are_there.load(Relaxed) {
            return None;
        }
        let token = std::str::from_utf8(path.strip_prefix(PATH)?).ok()?;
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        texts.get(token).cloned()
    }

    /// Whether a client tries a name: it offers this protocol and no other.
    pub(crate) fn is_asked(&self, hello: &ClientHello<'_>) -> bool {
        self.are_there.load(Relaxed)
            && hello.alpn().is_some_and(|mut offered| {
                offered.next() == Some(PROOF) && offered.next().is_none()
            })
    }

    pub(crate) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let certificates = self.certificates.read();
        let certificates = certificates.unwrap_or_else(PoisonError::into_inner);
        certificates.get(&name.to_ascii_lowercase()).cloned()
    }
}

/// What a client says for this name in a handshake: for an address the name of its reverse mapping (RFC 8738 §6).
fn sni(name: &str) -> String {
    match name.parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let bytes = address.octets();
            let digits = bytes.iter().rev().flat_map(|byte| [byte & 0xf, byte >> 4]);
            let digits: Vec<String> = digits.map(|digit| format!("{digit:x}")).collect();
            format!("{}.ip6.arpa", digits.join("."))
        }
        Err(_) => name.to_owned(),
    }
}

/// The protocol of such handshakes, by ALPN.
pub(crate) const PROOF: &[u8] = b"acme-tls/1";

/// Where the texts are.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_name_of_their_reverse_mapping() {
        assert_eq!(sni("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let v6 = sni("2001:db8::567:89ab");
        assert_eq!(
            v6,
            "b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
        assert_eq!(sni("shop.example"), "shop.example");
    }
}
