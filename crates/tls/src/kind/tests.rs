//! What the keeper signs, and that nobody can shape a certificate of it.

use proptest::prelude::*;
use rustls::SignatureScheme as Scheme;

use super::*;

/// The shares of TLS 1.2 up to the part of the point that is free, and the length of that part.
const SHARES: [(&[u8], usize); 3] = [
    (&[3, 0, 29, 32], 32),
    (&[3, 0, 23, 65, 4], 64),
    (&[3, 0, 24, 97, 4], 96),
];

const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";

fn tls12(randoms: &[u8], (share, rest): (&[u8], usize)) -> Vec<u8> {
    [randoms, share, &vec![1; rest]].concat()
}

fn tls13(context: &[u8], hash: usize) -> Vec<u8> {
    [&[b' '; 64], context, &vec![7; hash]].concat()
}

/// Whether the keeper signs it with any key.
fn signs(message: &[u8]) -> bool {
    let kinds = [
        KeyKind::Rsa,
        KeyKind::EcdsaP256,
        KeyKind::EcdsaP384,
        KeyKind::EcdsaP521,
        KeyKind::Ed25519,
    ];
    let mut schemes = kinds.iter().flat_map(|kind| kind.schemes());
    schemes.any(|scheme| may_sign(*scheme, message))
}

#[test]
fn only_what_handshakes_need_is_signed() {
    for hash in [32, 48] {
        let message = tls13(CONTEXT, hash);
        for scheme in [
            Scheme::RSA_PSS_SHA256,
            Scheme::ECDSA_NISTP256_SHA256,
            Scheme::ED25519,
        ] {
            assert!(may_sign(scheme, &message));
        }
        assert!(!may_sign(Scheme::RSA_PKCS1_SHA256, &message));
        assert!(!may_sign(Scheme::RSA_PKCS1_SHA512, &message));
    }
    for (context, hash) in [
        (CONTEXT, 31),
        (CONTEXT, 64),
        (b"TLS 1.3, client CertificateVerify\0", 32),
        (b"TLS, server delegated credentials\0", 48),
    ] {
        assert!(!signs(&tls13(context, hash)));
    }
    for share in SHARES {
        let message = tls12(&[9; 64], share);
        assert!(
            may_sign(Scheme::RSA_PKCS1_SHA256, &message) && may_sign(Scheme::ED25519, &message)
        );
        // Clients may send bytes that look similar.
        let ours = tls12(&[0x30; 64], share);
        assert!(signs(&ours), "{share:?}");
        let longer = [&message[..], &[1]].concat();
        assert!(!signs(&longer) && !signs(&message[..message.len() - 1]));
    }
    // Unknown curves, other forms of points, explicit curves, wrong lengths.
    for share in [
        (&[3, 0, 30, 56][..], 56),
        (&[3, 0x30, 29, 32], 32),
        (&[3, 0, 22, 65, 4], 64),
        (&[3, 0, 25, 133, 4], 132),
        (&[3, 0, 23, 65, 2], 64),
        (&[3, 0, 23, 33, 2], 32),
        (&[3, 0, 29, 33], 33),
        (&[3, 0, 23, 32], 32),
        (&[3, 0x11, 0xec, 32], 32),
        (&[1, 0, 29, 32], 32),
        (&[3, 0, 29, 0], 0),
    ] {
        assert!(!signs(&tls12(&[9; 64], share)), "{share:?}");
    }
    assert!(!signs(&[1; 32]) && !signs(b""));
}

/// One value of ASN.1. `zeros`: how many its length has before it, beyond DER; 100: it has no length, but an end.
fn value(tag: u8, content: &[u8], zeros: usize) -> Vec<u8> {
    let length = content.len();
    let (head, end): (Vec<u8>, &[u8]) = match (zeros, length) {
        (100, _) => (vec![tag, 0x80], &[0, 0]),
        (0, 0..=127) => (vec![tag, length as u8], &[]),
        _ => {
            let digits = length.to_be_bytes();
            let used = digits.iter().position(|digit| *digit != 0).unwrap_or(7);
            let digits = [&vec![0; zeros][..], &digits[used..]].concat();
            (
                [&[tag, 0x80 | digits.len() as u8], &digits[..]].concat(),
                &[],
            )
        }
    };
    [&head[..], content, end].concat()
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    value(tag, &parts.concat(), 0)
}

/// A name with one attribute, whose type has a short number, or none.
fn name(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return vec![0x30, 0];
    }
    let attribute = der(0x30, &[&[6, 1, 0x2a], &der(0x0c, &[text])]);
    der(0x30, &[&der(0x31, &[&attribute])])
}

/// The signed part of a certificate (RFC 5280 §4.1) or of a request for one (RFC 2986 §4.1), as short as possible, with
/// `serial`, `subject` and `end` of any length.
fn shaped(
    is_request: bool,
    algorithm: &[u8],
    [serial, subject, key, end]: [&[u8]; 4],
    zeros: usize,
) -> Vec<u8> {
    let key = der(
        0x30,
        &[
            &der(0x30, &[&[6, 3, 0x2b, 0x65, 0x70]]),
            &der(3, &[&[0], key]),
        ],
    );
    let subject = name(subject);
    let content = if is_request {
        [&[2, 1, 0], &subject[..], &key, &der(0xa0, &[end])].concat()
    } else {
        let validity = [&[23, 13][..], b"260101000000Z", &[23, 13], b"360101000000Z"].concat();
        let algorithm = der(0x30, &[&der(6, &[algorithm])]);
        let (serial, validity) = (der(2, &[serial]), der(0x30, &[&validity]));
        let end = match end {
            [] => Vec::new(),
            end => der(0x81, &[end]),
        };
        [
            serial,
            algorithm,
            vec![0x30, 0],
            validity,
            subject,
            key,
            end,
        ]
        .concat()
    };
    value(0x30, &content, zeros)
}

/// Overwrites the place where TLS 1.2 has the fixed bytes of a share.
fn with_share(mut message: Vec<u8>, (share, _): (&[u8], usize)) -> Vec<u8> {
    message[64..64 + share.len()].copy_from_slice(share);
    message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Nearly every message here passes if only the form of TLS 1.2 is looked at.
    #[test]
    fn no_certificate_and_no_request_is_signed_however_it_is_shaped(
        share in 0..3_usize,
        is_request: bool,
        is_ed25519: bool,
        zeros in prop_oneof![0..9_usize, Just(100)],
        (serial, end) in (1..21_usize, 0..40_usize),
        fill: u8,
    ) {
        let algorithm: &[u8] = if is_ed25519 { ED25519 } else { &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] };
        let share = SHARES[share];
        let wanted = 64 + share.0.len() + share.1;
        let (serial, end, key) = (vec![1; serial], vec![fill; end], [fill; 32]);
        // The subject fills the rest.
        for subject in 0..wanted {
            let subject = vec![fill; subject];
            let message = shaped(is_request, algorithm, [&serial, &subject, &key, &end], zeros);
            if message.len() == wanted {
                let message = with_share(message, share);
                prop_assert!(!signs(&message), "{message:x?}");
                prop_assert!(signs(&[&[9], &message[1..]].concat()));
            }
        }
    }

    #[test]
    fn random_numbers_of_clients_are_signed(randoms in prop::collection::vec(any::<u8>(), 64), share in 0..3_usize) {
        prop_assume!(!matches!(randoms[..2], [0x30 | 0x31, 0x62 | 0x80..]));
        prop_assert!(signs(&tls12(&randoms, SHARES[share])));
    }
}

/// The bytes that were found by hand: a certificate for any key, in the form of TLS 1.2 with each curve.
#[test]
fn the_fixed_bytes_fit_into_a_name_or_a_key() {
    let key = [&[7; 4][..], &[3, 0, 29, 32], &[7; 24]].concat();
    let in_key = shaped(false, ED25519, [&[1], &[], &key, &[5; 6]], 0);
    let p256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    for (share, message) in [(SHARES[1], 133), (SHARES[2], 165)] {
        let fits = (0..100).any(|length| {
            let message_of = |text: &[u8]| shaped(false, &p256, [&[1], text, &[7; 32], &[]], 0);
            let whole = message_of(&vec![7; length]);
            let shared = (whole.len() == message).then(|| with_share(whole, share));
            shared.is_some_and(|shared| {
                let text = &shared[shared.len() - 44 - length..shared.len() - 44];
                // Only the text has changed, so it is still a certificate.
                !signs(&shared) && message_of(text) == shared
            })
        });
        assert!(fits, "{share:?}");
    }
    assert!(
        !signs(&in_key) && in_key[64..].starts_with(&[3, 0, 29, 32]),
        "{in_key:x?}"
    );
}
