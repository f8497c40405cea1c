//! Reads certificates (X.509 version 3, RFC 5280) as far as a server needs them: names, time, key, and who a client is.
//!
//! Nothing is verified here. The bytes may come from a client, so reading never panics and never goes deeper than the
//! structure of a certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::KeyKind;

/// The parts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The serial number, big-endian.
    pub serial: &'a [u8],
    /// The names inside of the issuer, DER.
    issuer: &'a [u8],
    /// The names inside of the subject, DER.
    subject: &'a [u8],
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
    /// The kind of its key; `None`: not one that weir uses.
    pub kind: Option<KeyKind>,
    /// Host names for which it is, in lower case; the first label may be a star. Others are left out.
    pub dns: Vec<String>,
    /// Addresses for which it is.
    pub addresses: Vec<IpAddr>,
    /// The identifier of the key that signed it; empty: it says none.
    pub authority_key: &'a [u8],
}

/// A certificate cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Parsed<'a> {
    /// Reads a certificate (DER).
    ///
    /// # Errors
    /// If the bytes are not the structure of a certificate.
    pub fn read(der: &'a [u8]) -> Result<Parsed<'a>, Malformed> {
        let mut input = Der(der);
        let mut certificate = Der(input.expect(SEQUENCE)?);
        let mut tbs = Der(certificate.expect(SEQUENCE)?);
        tbs.optional(VERSION)?;
        let serial = tbs.expect(INTEGER)?;
        tbs.expect(SEQUENCE)?;
        let issuer = tbs.expect(SEQUENCE)?;
        let mut validity = Der(tbs.expect(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = tbs.expect(SEQUENCE)?;
        let mut spki = Der(tbs.expect(SEQUENCE)?);
        let mut algorithm = Der(spki.expect(SEQUENCE)?);
        let oid = algorithm.expect(OID)?;
        let parameters = algorithm.optional(OID)?.unwrap_or_default();
        let mut parsed = Parsed {
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            kind: KeyKind::of_spki(oid, parameters),
            dns: Vec::new(),
            addresses: Vec::new(),
            authority_key: &[],
        };
        while let Some((tag, value)) = tbs.next()? {
            if tag == EXTENSIONS {
                let mut list = Der(Der(value).expect(SEQUENCE)?);
                while let Some((_, extension)) = list.next()? {
                    parsed.extension(Der(extension))?;
                }
            }
        }
        Ok(parsed)
    }

    fn extension(&mut self, mut extension: Der<'a>) -> Result<(), Malformed> {
        let oid = extension.expect(OID)?;
        extension.optional(BOOLEAN)?;
        let value = extension.expect(OCTETS)?;
        if oid == AUTHORITY_KEY {
            let mut key = Der(Der(value).expect(SEQUENCE)?);
            self.authority_key = key.optional(KEY_IDENTIFIER)?.unwrap_or_default();
            return Ok(());
        }
        if oid != SUBJECT_ALT_NAME {
            return Ok(());
        }
        let mut names = Der(Der(value).expect(SEQUENCE)?);
        while let Some((tag, name)) = names.next()? {
            match tag {
                DNS_NAME if is_host(name) => {
                    let name = name.to_ascii_lowercase();
                    self.dns.extend(String::from_utf8(name).ok());
                }
                IP_ADDRESS => {
                    let v4 =
                        <[u8; 4]>::try_from(name).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
                    let v6 = || {
                        <[u8; 16]>::try_from(name).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))
                    };
                    self.addresses.extend(v4.or_else(|_| v6()).ok());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The subject as text (RFC 4514): `CN=Anna,O=Example`.
    pub fn subject(&self) -> String {
        distinguished_name(self.subject)
    }

    /// The issuer as text.
    pub fn issuer(&self) -> String {
        distinguished_name(self.issuer)
    }

    /// The serial number as upper-case hexadecimal digits.
    pub fn serial_text(&self) -> String {
        let digits = match self.serial {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        digits.iter().map(|byte| format!("{byte:02X}")).collect()
    }
}

/// Whether the bytes can be the name of a host: labels of letters, digits, dashes and underscores, and a star as the
/// whole first one.
fn is_host(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b"*.").unwrap_or(name);
    let is_label = |label: &[u8]| {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.iter().all(fits)
    };
    name.len() <= 253 && rest.split(|byte| *byte == b'.').all(is_label)
}

/// The names of a distinguished name, the last one first (RFC 4514 §2.1). Names that cannot be read are left out.
fn distinguished_name(names: &[u8]) -> String {
    let mut sets = Vec::new();
    let mut list = Der(names);
    while let Ok(Some((_, set))) = list.next() {
        let mut parts = Vec::new();
        let mut set = Der(set);
        while let Ok(Some((_, pair))) = set.next() {
            let mut pair = Der(pair);
            if let Ok(oid) = pair.expect(OID)
                && let Ok(Some((tag, value))) = pair.next()
            {
                parts.push(format!("{}={}", attribute(oid), escaped(&text(tag, value))));
            }
        }
        sets.push(parts.join("+"));
    }
    sets.reverse();
    sets.join(",")
}

/// The short name of an attribute, or its number (RFC 4514 §3, and what OpenSSL says).
fn attribute(oid: &[u8]) -> String {
    let known = ATTRIBUTES.iter().find(|(known, _)| *known == oid);
    if let Some((_, name)) = known {
        return (*name).to_owned();
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in oid {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    if let Some(first) = numbers.first().copied() {
        let top = (first / 40).min(2);
        numbers.splice(..1, [top, first - top * 40]);
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    numbers.join(".")
}

/// The text of a string of DER.
fn text(tag: u8, value: &[u8]) -> String {
    match tag {
        BMP_STRING => {
            let units = value
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        LATIN_STRING => value.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}

/// Escapes a value (RFC 4514 §2.4); control characters too, so that the text is one line.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, letter) in value.chars().enumerate() {
        let at_end = index == 0 || index == last;
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', letter]),
            ' ' if at_end => out.push_str("\\ "),
            '#' if index == 0 => out.push_str("\\#"),
            letter if letter.is_control() => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\{byte:02X}"));
                }
            }
            letter => out.push(letter),
        }
    }
    out
}

/// The rest of a DER text.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value with its tag; `None` at the end.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, Malformed> {
        let [tag, length, rest @ ..] = self.0 else {
            return match self.0 {
                [] => Ok(None),
                _ => Err(Malformed),
            };
        };
        // Tags of several bytes do not occur in certificates.
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (length, rest) = match usize::from(*length) {
            short @ 0..=0x7f => (short, rest),
            long @ 0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(long - 0x80).ok_or(Malformed)?;
                let length = digits
                    .iter()
                    .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
                (length, rest)
            }
            _ => return Err(Malformed),
        };
        let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Some((*tag, value)))
    }

    fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.next()? {
            Some((found, value)) if found == tag => Ok(value),
            _ => Err(Malformed),
        }
    }

    /// The next value if it has this tag.
    fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        match self.0.first() {
            Some(found) if *found == tag => self.expect(tag).map(Some),
            _ => Ok(None),
        }
    }

    /// A time, as seconds since 1970 (RFC 5280 §4.1.2.5).
    fn time(&mut self) -> Result<i64, Malformed> {
        let (tag, value) = self.next()?.ok_or(Malformed)?;
        let digits = value.strip_suffix(b"Z").ok_or(Malformed)?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = digits.split_at_checked(2).ok_or(Malformed)?;
                let year = number(year)?;
                (if year < 50 { year + 2000 } else { year + 1900 }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = digits.split_at_checked(4).ok_or(Malformed)?;
                (number(year)?, rest)
            }
            _ => return Err(Malformed),
        };
        if rest.len() != 10 {
            return Err(Malformed);
        }
        let part = |index: usize| number(&rest[index * 2..index * 2 + 2]);
        let (month, day) = (part(0)?, part(1)?);
        if !(1..=12).contains(&month) {
            return Err(Malformed);
        }
        let seconds = part(2)? * 3600 + part(3)? * 60 + part(4)?;
        Ok(days(year, month, day) * 86_400 + seconds)
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    digits.iter().try_fold(0, |sum, digit| match digit {
        b'0'..=b'9' => Ok(sum * 10 + i64::from(digit - b'0')),
        _ => Err(Malformed),
    })
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March: the leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap + (month * 153 + 2) / 5 + day - 719_469
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const LATIN_STRING: u8 = 0x14;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
/// Tag of the version in a certificate.
const VERSION: u8 = 0xa0;
/// Tag of the extensions in a certificate.
const EXTENSIONS: u8 = 0xa3;
/// Names of subjectAltName (RFC 5280 §4.2.1.6).
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
/// Tag of the key identifier in authorityKeyIdentifier (RFC 5280 §4.2.1.1).
const KEY_IDENTIFIER: u8 = 0x80;

const ATTRIBUTES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_counted_from_1970() {
        let time = |tag: u8, text: &str| {
            let der = [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            Der(&der).time()
        };
        assert_eq!(time(UTC_TIME, "700101000000Z"), Ok(0));
        assert_eq!(time(UTC_TIME, "491231235959Z"), Ok(2_524_607_999));
        assert_eq!(time(UTC_TIME, "500101000000Z"), Ok(-631_152_000));
        assert_eq!(time(GENERALIZED_TIME, "20240229120000Z"), Ok(1_709_208_000));
        assert_eq!(time(GENERALIZED_TIME, "20261123060000Z"), Ok(1_795_413_600));
        for wrong in [
            "20240229120000",
            "2024022912000Z",
            "20241329120000Z",
            "2024x229120000Z",
        ] {
            assert_eq!(time(GENERALIZED_TIME, wrong), Err(Malformed), "{wrong}");
        }
    }

    #[test]
    fn names_are_written_as_rfc_4514_says() {
        assert_eq!(
            escaped(" a,b+\"c\"; #\\<>"),
            "\\ a\\,b\\+\\\"c\\\"\\; #\\\\\\<\\>"
        );
        assert_eq!(
            (escaped("#x "), escaped("\n")),
            ("\\#x\\ ".into(), "\\0A".into())
        );
        assert_eq!(attribute(&[0x55, 4, 3]), "CN");
        assert_eq!(
            attribute(&[0x2b, 6, 1, 4, 1, 0x82, 0x37]),
            "1.3.6.1.4.1.311"
        );
        assert_eq!(text(BMP_STRING, &[0, b'J', 0, 0xf6]), "Jö");
    }

    #[test]
    fn only_names_of_hosts_count() {
        for good in [
            "shop.example",
            "*.shop.example",
            "a",
            "x_y.example",
            "xn--jdoe.example",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ".",
            "a..b",
            "*.*.example",
            "a.*.b",
            "*",
            "a\0.example",
            "a.example.",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Parsed::read(&bytes);
            let _ = distinguished_name(&bytes);
            let _ = attribute(&bytes);
        }
    }
}
