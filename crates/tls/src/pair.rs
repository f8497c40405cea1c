//! A certificate with its chain and its private key, from the texts of their files (PEM, RFC 7468).

use std::sync::Arc;

use rustls::{
    InconsistentKeys,
    crypto::aws_lc_rs::sign::any_supported_type,
    sign::{CertifiedKey, SigningKey},
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use crate::x509::Parsed;

/// A certificate and its key, which fit together.
pub struct Pair {
    /// The certificate, and those of the authorities that signed it.
    pub chain: Vec<CertificateDer<'static>>,
    /// Signs with the private key.
    pub key: Arc<dyn SigningKey>,
}

impl Pair {
    /// Reads the texts of both files.
    ///
    /// # Errors
    /// What is wrong with one of them and how to mend it, without a byte of the key. Only `in_key` says which file it is.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Pair, Unusable> {
        let of_chain = |message: String| Unusable {
            message,
            in_key: false,
        };
        let of_key = |message: String| Unusable {
            message,
            in_key: true,
        };
        let chain = read_chain(chain).map_err(of_chain)?;
        let der =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| of_key(without_key(&error, key)))?;
        let key = any_supported_type(&der).map_err(|_| of_key(
            "its private key cannot be used; weir takes RSA keys of 2048 to 8192 bits, ECDSA keys with P-256, P-384 or \
             P-521, and Ed25519 keys".into(),
        ))?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(of_key(
                "this is not the key of the certificate: both files must come from the same order; wait until both are \
                 written, or name the right one".into(),
            )),
        }
        Ok(Pair {
            chain: pair.cert,
            key: pair.key,
        })
    }

    /// What an operator should know of the certificate at the time `now` (seconds since 1970).
    pub fn warnings(chain: &[CertificateDer<'_>], now: i64) -> Vec<String> {
        let Some(Ok(leaf)) = chain.first().map(|leaf| Parsed::read(leaf)) else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        let left = leaf.not_after - now;
        if left <= 0 {
            let ago = time(-left);
            warnings.push(format!(
                "it expired {ago} ago, so browsers refuse it; get a new one"
            ));
        } else if left < SOON && left < (leaf.not_after - leaf.not_before) / 4 {
            warnings.push(format!("it expires in {}; renew it", time(left)));
        }
        if leaf.not_before > now {
            warnings.push("it is not valid yet; check this machine's clock".into());
        }
        if leaf.dns.is_empty() && leaf.addresses.is_empty() {
            warnings.push(
                "it is for no name (subjectAltName), so it is used only where a site or `default_certificate` names it, \
                 and browsers refuse it".into(),
            );
        }
        warnings
    }
}

/// A time in seconds, as people say it.
fn time(seconds: i64) -> String {
    match seconds / 3600 {
        hours @ 0..48 => format!("{hours} hours"),
        hours => format!("{} days", hours / 24),
    }
}

/// Why a pair cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The cause and what to do, without the name of the file.
    pub message: String,
    /// The cause is in the file of the key.
    pub in_key: bool,
}

fn read_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain
        .map_err(|error| format!("it is not PEM text ({error}); write the certificates again"))?;
    let Some(leaf) = chain.first() else {
        return Err(
            "it has no certificate; it must have a line -----BEGIN CERTIFICATE-----".into(),
        );
    };
    if chain.len() > MOST_CERTIFICATES
        || chain.iter().map(|one| one.len()).sum::<usize>() > MOST_BYTES
    {
        return Err(format!(
            "its chain is too long: {MOST_CERTIFICATES} certificates of {} KiB together are allowed",
            MOST_BYTES / 1024
        ));
    }
    for (index, one) in chain.iter().enumerate() {
        if Parsed::read(one).is_err() {
            return Err(format!(
                "its certificate number {} cannot be read; write it again",
                index + 1
            ));
        }
    }
    let kind = Parsed::read(leaf).ok().and_then(|leaf| leaf.kind);
    if kind.is_none() {
        return Err("its certificate has a kind of key that browsers do not accept; order one with an ECDSA (P-256) or RSA key".into());
    }
    Ok(chain)
}

/// The message for a text without a usable key.
fn without_key(error: &pem::Error, text: &[u8]) -> String {
    let has = |what: &[u8]| text.windows(what.len()).any(|part| part == what);
    match error {
        _ if has(b"ENCRYPTED") => {
            "its private key is protected by a password, and nobody is there to type it; remove the password \
             (openssl pkey -in FILE -out FILE.new), and let only root read the file".into()
        }
        pem::Error::NoItemsFound => {
            "it has no private key; it must have a line -----BEGIN PRIVATE KEY----- or -----BEGIN RSA/EC PRIVATE KEY-----".into()
        }
        _ => "it is not PEM text; write the key again".into(),
    }
}

/// Certificates in a chain. Those of the web have two to four.
const MOST_CERTIFICATES: usize = 16;

/// Bytes of a chain: it must fit into one message of the keeper, and clients refuse longer ones.
const MOST_BYTES: usize = 64 * 1024;

const DAY: i64 = 86_400;

/// An end that is nearer than this is worth a warning, if most of the certificate's life is over.
const SOON: i64 = 21 * DAY;
