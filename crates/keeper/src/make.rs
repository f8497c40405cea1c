//! New keys, and their public part: requests for certificates, and certificates of weir's local authority.
//!
//! A new key goes to the descriptor that the manager has opened for it, and nowhere else. Keys are for ECDSA with P-256, which
//! every client knows.

use std::{
    fs::File,
    io::Write,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PublicKeyData, date_time_ymd,
};
use weir_sys::memory;

use crate::{MAX_FILE, Order, Product};

/// Makes a key, writes it to `order.key`, and returns the public result. `now`: seconds since 1970.
///
/// # Errors
/// What is wrong, without a byte of a key.
pub(crate) fn make(order: Order<OwnedFd>, now: u64) -> Result<Vec<u8>, String> {
    let failed = |error: rcgen::Error| format!("it cannot be made: {error}");
    let key = KeyPair::generate().map_err(failed)?;
    let public = match &order.product {
        Product::Request => request(&key, order.names).map_err(failed)?,
        Product::Authority => {
            let mut params = authority(&key).map_err(failed)?;
            params.name_constraints = Some(only_for(&order.names)?);
            valid(&mut params, now, order.days);
            let signed = params.self_signed(&key).map_err(failed)?;
            signed.pem().into_bytes()
        }
        Product::Certificate { authority_key } => {
            let authority_key = read_key(authority_key)?;
            certificate(&key, order.names, (now, order.days), authority_key)
                .map_err(failed)?
                .into_bytes()
        }
    };
    let written = File::from(order.key).write_all(key.serialize_pem().as_bytes());
    written.map_err(|error| format!("its key cannot be written: {error}"))?;
    Ok(public)
}

/// A request for a certificate (PKCS #10, DER).
fn request(key: &KeyPair, names: Vec<String>) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

/// A certificate of the local authority (PEM).
fn certificate(
    key: &KeyPair,
    names: Vec<String>,
    (now, days): (u64, u32),
    authority_key: KeyPair,
) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid(&mut params, now, days);
    // Only its name and the identifier of its key matter here, which depend on the key alone.
    let issuer = Issuer::new(authority(&authority_key)?, authority_key);
    Ok(params.signed_by(key, &issuer)?.pem())
}

/// The local authority with this key.
fn authority(key: &KeyPair) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    let digest = weir_tls::sha256(&key.subject_public_key_info());
    let digits: String = digest[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = DistinguishedName::new();
    // The name tells authorities of several machines apart.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("weir local CA {digits}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The domains and networks that an authority may sign for. So a stolen key is of no use for the sites of others.
fn only_for(places: &[String]) -> Result<NameConstraints, String> {
    let mut permitted = Vec::with_capacity(places.len());
    for place in places {
        permitted.push(match place.split_once('/') {
            None => GeneralSubtree::DnsName(place.clone()),
            Some((address, length)) => {
                let wrong = || format!("{place} is no network");
                let address: IpAddr = address.parse().map_err(|_| wrong())?;
                let length = length.parse().map_err(|_| wrong())?;
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, length))
            }
        });
    }
    Ok(NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: Vec::new(),
    })
}

/// Valid from an hour ago, because clocks differ.
fn valid(params: &mut CertificateParams, now: u64, days: u32) {
    let from = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.saturating_sub(3600));
    params.not_before = from;
    params.not_after = from + DAY * days;
}

fn read_key(file: &OwnedFd) -> Result<KeyPair, String> {
    let bytes = memory::read(file.as_fd(), MAX_FILE)
        .map_err(|error| format!("the authority's key cannot be read: {error}"))?;
    let key = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| KeyPair::from_pem(text).ok());
    key.ok_or_else(|| "the authority's key is not a private key (PEM)".to_owned())
}

const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use weir_tls::{Pair, x509::Parsed};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// Makes it; returns the text of the key, and what is public.
    fn made(product: Product<OwnedFd>, names: &[&str], days: u32) -> (String, Vec<u8>) {
        let mut file = tempfile::tempfile().expect("a file");
        let order = Order {
            product,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            days,
            key: file.try_clone().expect("a copy").into(),
        };
        let public = make(order, NOW).expect("made");
        let mut key = String::new();
        file.rewind().expect("the begin");
        file.read_to_string(&mut key).expect("text");
        (key, public)
    }

    #[test]
    fn a_certificate_of_the_local_authority_fits_its_key_and_names() {
        let (authority_key, root) = made(Product::Authority, &["test", "127.0.0.0/8"], 3650);
        let authority = Pair::read(&root, authority_key.as_bytes()).expect("an authority");
        let authority_key = memory::file(c"key", authority_key.as_bytes()).expect("a file");
        let product = Product::Certificate { authority_key };
        let (key, chain) = made(product, &["*.shop.test", "127.0.0.1"], 30);
        let pair = Pair::read(&chain, key.as_bytes()).expect("a pair");
        let [leaf, root] = [&pair.chain[0], &authority.chain[0]].map(|der| {
            let parsed = Parsed::read(der);
            parsed.expect("a certificate")
        });
        assert_eq!(leaf.dns, ["*.shop.test"]);
        assert_eq!(leaf.addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(leaf.issuer(), root.subject());
        assert!(root.subject().starts_with("CN=weir local CA "));
        assert_eq!(leaf.not_before, NOW as i64 - 3600);
        assert_eq!(leaf.not_after - leaf.not_before, 30 * 86_400);
    }

    #[test]
    fn a_request_has_the_names_and_every_key_is_new() {
        let (one, request) = made(Product::Request, &["shop.example", "192.0.2.1"], 0);
        let (other, _) = made(Product::Request, &["shop.example"], 0);
        assert!(one.starts_with("-----BEGIN PRIVATE KEY-----"), "{one}");
        assert_ne!(one, other);
        let has = |what: &[u8]| request.windows(what.len()).any(|part| part == what);
        assert!(has(b"shop.example") && has(&[0x87, 4, 192, 0, 2, 1]));
    }

    #[test]
    fn what_is_no_key_is_refused_without_its_bytes() {
        let authority_key = memory::file(c"key", b"secret").expect("a file");
        let order = Order {
            product: Product::Certificate { authority_key },
            names: vec!["a.test".into()],
            days: 1,
            key: tempfile::tempfile().expect("a file").into(),
        };
        let wrong = make(order, NOW).unwrap_err();
        assert!(wrong.contains("not a private key") && !wrong.contains("secret"));
    }
}
