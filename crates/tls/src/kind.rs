//! The kinds of private keys, what they can sign with, and what they are asked to sign.

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

/// Whether a server may be asked to sign this in a handshake. The keeper signs nothing else, so that a gateway that was
/// taken over gets no signature for anything but a handshake.
pub fn may_sign(message: &[u8]) -> bool {
    is_tls13(message) || is_tls12(message)
}

/// RFC 8446 §4.4.3: 64 spaces, the context and a zero, and the hash of the handshake.
fn is_tls13(message: &[u8]) -> bool {
    let Some((spaces, rest)) = message.split_first_chunk::<64>() else {
        return false;
    };
    let hash = rest.strip_prefix(b"TLS 1.3, server CertificateVerify\0");
    spaces == &[b' '; 64] && hash.is_some_and(|hash| matches!(hash.len(), 32 | 48))
}

/// RFC 8422 §5.4: both random numbers, and the server's share on a named curve.
fn is_tls12(message: &[u8]) -> bool {
    let Some((_, share)) = message.split_first_chunk::<64>() else {
        return false;
    };
    // A named curve, its number, and a point with its length before it.
    matches!(share, [3, _, _, length, point @ ..] if !point.is_empty() && point.len() == usize::from(*length))
}

/// Object identifiers, as in DER without their tag and length.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_handshakes_need_is_signed() {
        let tls13 = |context: &[u8], hash: usize| [&[b' '; 64], context, &vec![7; hash]].concat();
        let context = b"TLS 1.3, server CertificateVerify\0";
        assert!(may_sign(&tls13(context, 32)) && may_sign(&tls13(context, 48)));
        assert!(!may_sign(&tls13(context, 31)) && !may_sign(&tls13(context, 64)));
        assert!(!may_sign(&tls13(
            b"TLS 1.3, client CertificateVerify\0",
            32
        )));
        let tls12 = |share: &[u8]| [&[9; 64], share].concat();
        assert!(may_sign(&tls12(&[&[3, 0, 29, 32][..], &[1; 32]].concat())));
        assert!(!may_sign(&tls12(&[&[3, 0, 29, 32][..], &[1; 33]].concat())));
        assert!(!may_sign(&tls12(&[1, 0, 29, 1, 1])) && !may_sign(&tls12(&[3, 0, 29, 0])));
        // The part of a certificate that an authority signs, and the hash of a program.
        let certificate = [&[0x30, 0x82, 1, 0][..], &[5; 256]].concat();
        assert!(!may_sign(&certificate) && !may_sign(&[1; 32]) && !may_sign(b""));
    }
}
