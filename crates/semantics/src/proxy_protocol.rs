//! The PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt): the header in which a proxy in front names the
//! client of a connection.
//!
//! The header comes before everything else on a connection, and the bytes behind it belong to another protocol. So a
//! [`Parser`] tells how many of the given bytes belong to the header. Additional values of version 2 (TLVs) are
//! skipped.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The proxy's own: a health check (`LOCAL`), or the proxy does not say whose it is (`UNKNOWN`). The addresses of the
    /// connection itself count.
    Own,
    /// A client's, over IP.
    Ip {
        /// The client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// A client's, over a unix socket of the proxy's machine.
    Unix,
}

/// Why the bytes are no header. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The bytes do not begin as a header of version 1 or 2.
    Missing,
    /// A line of version 1 that is wrong or too long.
    Line,
    /// A version, command, family or length of version 2 that is wrong.
    Binary,
    /// A header of version 2 that is longer than the limit.
    TooLong,
}

/// What [`Parser::push`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// So many of the bytes belong to the header.
    pub used: usize,
    /// `None`: the header is not complete.
    pub origin: Option<Origin>,
}

/// Reads one header, however its bytes are cut.
#[derive(Debug, Clone)]
pub struct Parser {
    /// The part of the header that has arrived, without the TLVs.
    kept: [u8; LINE],
    len: usize,
    /// Bytes of this header that were not kept.
    skipped: usize,
    most: usize,
}

impl Parser {
    /// `most`: the greatest length of a header of version 2 with its TLVs, bytes.
    #[must_use]
    pub fn new(most: usize) -> Parser {
        Parser {
            kept: [0; LINE],
            len: 0,
            skipped: 0,
            most,
        }
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// [`Error`], as soon as no further bytes could make it a header.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Progress, Error> {
        for (index, byte) in bytes.iter().enumerate() {
            if let Some(origin) = self.take(*byte)? {
                return Ok(Progress {
                    used: index + 1,
                    origin: Some(origin),
                });
            }
        }
        Ok(Progress {
            used: bytes.len(),
            origin: None,
        })
    }

    fn take(&mut self, byte: u8) -> Result<Option<Origin>, Error> {
        if self.len < LINE {
            self.kept[self.len] = byte;
            self.len += 1;
        } else {
            self.skipped += 1;
        }
        let kept = &self.kept[..self.len];
        if begins_as(kept, PREFIX) {
            return match kept.last() {
                Some(b'\n') => line(kept).map(Some),
                _ if kept.len() == LINE => Err(Error::Line),
                _ => Ok(None),
            };
        }
        if !begins_as(kept, SIGNATURE) {
            return Err(Error::Missing);
        }
        let Some(head) = kept.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = HEAD + usize::from(u16::from_be_bytes([head[14], head[15]]));
        if self.len == HEAD {
            check(head)?;
            if length > self.most {
                return Err(Error::TooLong);
            }
        }
        match self.len + self.skipped == length {
            true => Ok(Some(binary(kept))),
            false => Ok(None),
        }
    }
}

/// Whether one of both is the beginning of the other.
fn begins_as(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.iter().zip(prefix).all(|(one, other)| one == other)
}

/// A line of version 1 (section 2.1).
fn line(line: &[u8]) -> Result<Origin, Error> {
    let text = line.strip_suffix(b"\r\n").ok_or(Error::Line)?;
    let text = std::str::from_utf8(&text[PREFIX.len()..]).map_err(|_| Error::Line)?;
    let mut words = text.split(' ');
    let family = words.next().unwrap_or_default();
    // Whatever follows is ignored.
    if family == "UNKNOWN" {
        return Ok(Origin::Own);
    }
    let words: Vec<&str> = words.collect();
    let [source, destination, source_port, destination_port] = words[..] else {
        return Err(Error::Line);
    };
    let ends = match family {
        "TCP4" => addresses::<Ipv4Addr>(source, destination),
        "TCP6" => addresses::<Ipv6Addr>(source, destination),
        _ => None,
    };
    let (source, destination) = ends.ok_or(Error::Line)?;
    let port = |text: &str| port(text).ok_or(Error::Line);
    Ok(Origin::Ip {
        source: SocketAddr::new(source, port(source_port)?),
        destination: SocketAddr::new(destination, port(destination_port)?),
    })
}

fn addresses<A: FromStr + Into<IpAddr>>(one: &str, other: &str) -> Option<(IpAddr, IpAddr)> {
    let address = |text: &str| text.parse::<A>().ok().map(Into::into);
    Some((address(one)?, address(other)?))
}

/// A port without leading zeros.
fn port(text: &str) -> Option<u16> {
    let usual =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| usual)
}

/// The first part of version 2 (section 2.2). Values that the protocol does not define must be refused.
fn check(head: &[u8; HEAD]) -> Result<(), Error> {
    let (version, command) = (head[12] >> 4, head[12] & 0xf);
    let (family, transport) = (head[13] >> 4, head[13] & 0xf);
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    // A connection of the proxy itself may have any family, which is ignored.
    let needed = match (command, family) {
        (LOCAL, _) | (_, 0) => 0,
        (_, INET) => INET_LEN,
        (_, INET6) => INET6_LEN,
        _ => UNIX_LEN,
    };
    let is_known = version == 2 && command <= PROXY && family <= UNIX && transport <= 2;
    (is_known && length >= needed)
        .then_some(())
        .ok_or(Error::Binary)
}

/// A header of version 2 that [`check`] has accepted.
fn binary(kept: &[u8]) -> Origin {
    let (command, family) = (kept[12] & 0xf, kept[13]);
    let rest = &kept[HEAD..];
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let v4 = |at: usize| {
        let octets = rest[at..].first_chunk::<4>().copied();
        SocketAddr::new(
            Ipv4Addr::from(octets.unwrap_or_default()).into(),
            port(8 + at / 2),
        )
    };
    let v6 = |at: usize| {
        let octets = rest[at..].first_chunk::<16>().copied();
        SocketAddr::new(
            Ipv6Addr::from(octets.unwrap_or_default()).into(),
            port(32 + at / 8),
        )
    };
    match (command, family >> 4, family & 0xf) {
        (LOCAL, ..) | (_, 0, _) | (_, _, 0) => Origin::Own,
        (_, INET, _) => Origin::Ip {
            source: v4(0),
            destination: v4(4),
        },
        (_, INET6, _) => Origin::Ip {
            source: v6(0),
            destination: v6(16),
        },
        _ => Origin::Unix,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Missing => "the connection does not begin with a PROXY header",
            Error::Line => "its PROXY line (version 1) is wrong",
            Error::Binary => "its PROXY header (version 2) is wrong",
            Error::TooLong => "its PROXY header (version 2) is too long",
        })
    }
}

impl std::error::Error for Error {}

/// The longest line of version 1, with its end.
const LINE: usize = 107;
const PREFIX: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The part of a header of version 2 that all have.
const HEAD: usize = 16;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const INET: u8 = 1;
const INET6: u8 = 2;
const UNIX: u8 = 3;
const INET_LEN: usize = 12;
const INET6_LEN: usize = 36;
const UNIX_LEN: usize = 216;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Progress, Error> {
        Parser::new(600).push(bytes)
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([0x20 | command, family]);
        header.extend((rest.len() as u16).to_be_bytes());
        header.extend(rest);
        header
    }

    fn ip(source: &str, destination: &str) -> Origin {
        Origin::Ip {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    #[test]
    fn lines_of_version_1() {
        for (line, origin) in [
            (
                "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
                ip("192.0.2.1:56324", "198.51.100.2:443"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 0 65535\r\n",
                ip("[2001:db8::1]:0", "[::1]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", Origin::Own),
            ("PROXY UNKNOWN ffff::1 ::1 65535 65535\r\n", Origin::Own),
        ] {
            let with_more = format!("{line}GET / HTTP/1.1\r\n");
            let found = parse(with_more.as_bytes()).unwrap();
            assert_eq!(
                (found.used, found.origin),
                (line.len(), Some(origin)),
                "{line}"
            );
        }
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 65536\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 056324 443\r\n",
            "PROXY TCP4 ::1 ::1 1 1\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.1 1 1\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Error::Line), "{line}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(parse(&endless), Err(Error::Line));
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), Err(Error::Missing));
        assert_eq!(parse(b"\x16\x03\x01"), Err(Error::Missing), "TLS");
    }

    #[test]
    fn headers_of_version_2() {
        let inet = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 1, 187];
        let mut inet6 = [0; 36];
        (inet6[15], inet6[31], inet6[33], inet6[35]) = (1, 2, 7, 8);
        for (command, family, rest, origin) in [
            (
                PROXY,
                0x11,
                &inet[..],
                ip("192.0.2.1:56324", "198.51.100.2:443"),
            ),
            (
                PROXY,
                0x11,
                &[&inet[..], &[4, 0, 200], &[0; 200]].concat(),
                ip("192.0.2.1:56324", "198.51.100.2:443"),
            ),
            (PROXY, 0x21, &inet6, ip("[::1]:7", "[::2]:8")),
            (PROXY, 0x31, &[b'/'; 216], Origin::Unix),
            (PROXY, 0x00, b"anything", Origin::Own),
            (LOCAL, 0x00, b"", Origin::Own),
            (LOCAL, 0x11, &inet, Origin::Own),
        ] {
            let header = v2(command, family, rest);
            let found = parse(&[&header[..], b"GET /"].concat()).unwrap();
            assert_eq!((found.used, found.origin), (header.len(), Some(origin)));
        }
        for (header, error) in [
            (v2(2, 0x11, &inet), Error::Binary),
            (v2(PROXY, 0x41, &inet), Error::Binary),
            (v2(PROXY, 0x13, &inet), Error::Binary),
            (v2(PROXY, 0x11, &inet[..11]), Error::Binary),
            (v2(PROXY, 0x21, &inet), Error::Binary),
            (v2(PROXY, 0x11, &[0; 600]), Error::TooLong),
        ] {
            assert_eq!(parse(&header), Err(error));
        }
    }
}
