//! The kinds of private keys, their signature schemes, and which messages they may sign.

use rustls::{SignatureAlgorithm, SignatureScheme};

/// The kind of a certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Rsa,
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
}

impl KeyKind {
    /// The schemes that the key can sign with, the best first (RFC 8446 §4.2.3).
    pub fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            KeyKind::Rsa => &[
                SignatureScheme::RSA_PSS_SHA512,
                SignatureScheme::RSA_PSS_SHA384,
                SignatureScheme::RSA_PSS_SHA256,
                SignatureScheme::RSA_PKCS1_SHA512,
                SignatureScheme::RSA_PKCS1_SHA384,
                SignatureScheme::RSA_PKCS1_SHA256,
            ],
            KeyKind::EcdsaP256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            KeyKind::EcdsaP384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
            KeyKind::EcdsaP521 => &[SignatureScheme::ECDSA_NISTP521_SHA512],
            KeyKind::Ed25519 => &[SignatureScheme::ED25519],
        }
    }

    /// As TLS 1.2 names it.
    pub fn algorithm(self) -> SignatureAlgorithm {
        match self {
            KeyKind::Rsa => SignatureAlgorithm::RSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
            _ => SignatureAlgorithm::ECDSA,
        }
    }

    /// The kind of a SubjectPublicKeyInfo (RFC 5280 §4.1.2.7); `None`: TLS servers do not use it.
    pub(crate) fn of_spki(algorithm: &[u8], parameters: &[u8]) -> Option<KeyKind> {
        match (algorithm, parameters) {
            (RSA, _) => Some(KeyKind::Rsa),
            (ED25519, _) => Some(KeyKind::Ed25519),
            (EC, P256) => Some(KeyKind::EcdsaP256),
            (EC, P384) => Some(KeyKind::EcdsaP384),
            (EC, P521) => Some(KeyKind::EcdsaP521),
            _ => None,
        }
    }
}

/// Whether a server may be asked to sign this in this way in a handshake. The keeper signs nothing else, so that a gateway that was
/// taken over gets no signature for anything but a handshake.
pub fn may_sign(scheme: SignatureScheme, message: &[u8]) -> bool {
    is_tls13(message) && !is_pkcs1(scheme) || is_tls12(message)
}

/// RFC 8446 §4.4.3: 64 spaces, the context and a zero, and the hash of the handshake.
fn is_tls13(message: &[u8]) -> bool {
    let Some((spaces, rest)) = message.split_first_chunk::<64>() else {
        return false;
    };
    let hash = rest.strip_prefix(b"TLS 1.3, server CertificateVerify\0");
    spaces == &[b' '; 64] && hash.is_some_and(|hash| matches!(hash.len(), 32 | 48))
}

/// RFC 8446 §4.2.3: only certificates are signed in this way in TLS 1.3.
fn is_pkcs1(scheme: SignatureScheme) -> bool {
    matches!(
        scheme,
        SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
    )
}

/// RFC 8422 §5.4: both random numbers, and the server's share: a point with its length before it on one of the named curves that
/// weir uses in TLS 1.2.
fn is_tls12(message: &[u8]) -> bool {
    let Some((_, share)) = message.split_first_chunk::<64>() else {
        return false;
    };
    let is_share = match share {
        [3, 0, X25519, 32, point @ ..] => point.len() == 32,
        [3, 0, SECP256R1, 65, UNCOMPRESSED, point @ ..] => point.len() == 64,
        [3, 0, SECP384R1, 97, UNCOMPRESSED, point @ ..] => point.len() == 96,
        _ => false,
    };
    is_share && !may_be_certificate(message)
}

/// Whether the message may be what certificates, requests for them, lists of revoked ones, answers of OCSP or signed mails have
/// under their signature: one value of ASN.1 that begins with a sequence, a number or a tag of its own. A gateway that was taken
/// over chooses nearly every byte of the form of TLS 1.2, and a certificate can have the few fixed ones in a name or a key. A client's
/// random number looks like this once in half a million handshakes; such a handshake fails.
fn may_be_certificate(message: &[u8]) -> bool {
    let [SEQUENCE | SET, length, rest @ ..] = message else {
        return false;
    };
    let content = match usize::from(*length) {
        // Without a length: a value that ends with two zeros. Not DER, but programs read it.
        0x80 => rest.strip_suffix(&[0, 0]),
        // DER has no zeros before a length, but programs read them.
        long @ 0x81.. => rest
            .split_at_checked(long - 0x80)
            .and_then(|(length, content)| {
                let length = length.iter().try_fold(0_usize, |length, byte| {
                    Some(length.checked_mul(256)? + usize::from(*byte))
                });
                (length == Some(content.len())).then_some(content)
            }),
        short => (short == rest.len()).then_some(rest),
    };
    matches!(content, Some([INTEGER | SEQUENCE | OWN..=LAST_OWN, ..]))
}

/// Named curves (RFC 8422 §5.1.1), whose first byte is 0, and the form of their points (§5.4.1).
const SECP256R1: u8 = 23;
const SECP384R1: u8 = 24;
const X25519: u8 = 29;
const UNCOMPRESSED: u8 = 4;

/// Tags of ASN.1 (X.690 §8.1.2): of values that others define, the constructed ones.
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OWN: u8 = 0xa0;
const LAST_OWN: u8 = 0xbf;

/// Object identifiers, as in DER without their tag and length.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

#[cfg(test)]
mod tests;
