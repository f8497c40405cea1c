//! Checks that hold for all bytes. The property tests and the fuzz targets run them.

use std::net::IpAddr;

use weir_semantics::{
    forwarded::{self, XForwarded},
    proxy_protocol::{Error, Origin, Parser},
};

/// A header of the PROXY protocol has the same outcome however its bytes are cut, and takes no byte behind its end.
pub fn proxy_header(bytes: &[u8], cuts: &[usize]) {
    let whole = in_pieces(bytes, &[bytes.len()]);
    assert_eq!(in_pieces(bytes, cuts), whole);
    if let Ok((used, Some(origin))) = whole {
        assert_eq!(in_pieces(&bytes[..used], &[used]), Ok((used, Some(origin))));
        assert_eq!(in_pieces(&bytes[..used - 1], &[used]), Ok((used - 1, None)));
        assert!(used <= LONGEST);
    }
}

fn in_pieces(bytes: &[u8], cuts: &[usize]) -> Result<(usize, Option<Origin>), Error> {
    let mut parser = Parser::new(LONGEST);
    let (mut used, mut cuts) = (0, cuts.iter().cycle());
    while used < bytes.len() {
        let len = (*cuts.next().unwrap_or(&1)).clamp(1, bytes.len() - used);
        let progress = parser.push(&bytes[used..used + len])?;
        assert!(progress.used <= len);
        used += progress.used;
        if progress.origin.is_some() {
            return Ok((used, progress.origin));
        }
        assert_eq!(progress.used, len);
    }
    Ok((used, None))
}

/// A trusted proxy has appended the last value. The client is the one in this value, with any text before it.
pub fn forwarded(before: &[u8], address: IpAddr) {
    let nobody = |_| false;
    let address = address.to_canonical();
    let last = address.to_string();
    let x = |addresses| XForwarded {
        addresses,
        ..XForwarded::default()
    };
    let joined = [before, b", ", last.as_bytes()].concat();
    for values in [vec![before, last.as_bytes()], vec![&joined[..]]] {
        assert_eq!(x(values).client(nobody).address, Some(address));
    }
    let last = match address {
        IpAddr::V4(address) => format!("for={address};proto=https"),
        IpAddr::V6(address) => format!("for=\"[{address}]:8080\";proto=https"),
    };
    let joined = [before, b", ", last.as_bytes()].concat();
    for values in [vec![before, last.as_bytes()], vec![&joined[..]]] {
        let client = forwarded::client(&values, nobody);
        assert_eq!(
            (client.address, client.is_https),
            (Some(address), Some(true))
        );
    }
    // Nothing is trusted without a limit either.
    let everybody = |_| true;
    let _ = x(vec![before]).client(everybody);
    let _ = forwarded::client(&[before], everybody);
}

/// The limit of headers of version 2 in these checks.
const LONGEST: usize = 4096;
