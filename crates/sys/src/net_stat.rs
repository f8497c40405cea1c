//! TCP's counters of connections that found an accept queue full: `TcpExt` of /proc/net/netstat (proc_pid_net(5)),
//! for all listeners of a network namespace together. The kernel has no such counters for unix sockets.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

/// Connections that were rejected since the network namespace was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overflows {
    /// Because the accept queue was full (`ListenOverflows`).
    pub overflows: u64,
    /// For any reason, including a full queue: also no memory, or a filter (`ListenDrops`).
    pub drops: u64,
}

/// The file of the counters; if it was opened before, it also works after a chroot.
#[derive(Debug)]
pub struct Counters(File);

impl Counters {
    /// Opens the counters of our network namespace.
    ///
    /// # Errors
    /// As open(2): `NotFound` without /proc.
    pub fn open() -> io::Result<Self> {
        File::open(PATH).map(Self)
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// As pread(2); `InvalidData` if the kernel does not have these counters.
    pub fn read(&self) -> io::Result<Overflows> {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while text.len() < LONGEST {
            match self.0.read_at(&mut part, text.len() as u64) {
                Ok(0) => break,
                Ok(length) => text.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{PATH} has no ListenOverflows and ListenDrops"),
            )
        })
    }
}

/// An open file that another process has opened at [`PATH`].
impl From<OwnedFd> for Counters {
    fn from(file: OwnedFd) -> Self {
        Self(File::from(file))
    }
}

impl From<Counters> for OwnedFd {
    fn from(counters: Counters) -> Self {
        counters.0.into()
    }
}

/// Parses /proc/net/netstat: a line of names and a line of numbers for each group.
pub fn parse(text: &[u8]) -> Option<Overflows> {
    let text = str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let (Some(names), Some(numbers)) = (names.strip_prefix(GROUP), numbers.strip_prefix(GROUP))
        else {
            continue;
        };
        let numbers = || numbers.split_ascii_whitespace();
        let of = |wanted: &str| {
            let place = names
                .split_ascii_whitespace()
                .position(|name| name == wanted)?;
            numbers().nth(place)?.parse().ok()
        };
        return Some(Overflows {
            overflows: of("ListenOverflows")?,
            drops: of("ListenDrops")?,
        });
    }
    None
}

/// The counters of our own network namespace.
pub const PATH: &str = "/proc/net/netstat";

const GROUP: &str = "TcpExt: ";

/// The file has about 4 KiB.
const LONGEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_which_number_is_meant() {
        let text = b"IpExt: InNoRoutes ListenDrops\nIpExt: 0 99\n\
                     TcpExt: SyncookiesSent ListenOverflows ListenDrops Other\nTcpExt: 1 20 300 4\n";
        let expected = Overflows {
            overflows: 20,
            drops: 300,
        };
        assert_eq!(parse(text), Some(expected));
    }

    #[test]
    fn what_is_missing_or_no_number_is_none() {
        for text in [
            "",
            "TcpExt: ListenOverflows ListenDrops\n",
            "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1\n",
            "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1 -2\n",
            "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1 99999999999999999999999\n",
            "TcpExt: ListenOverflows\nTcpExt: 1\n",
            "TcpExt: ListenOverflows ListenDrops\nIpExt: 1 2\n",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"TcpExt: \xff\nTcpExt: 1\n"), None);
    }

    #[test]
    fn this_kernel_counts_them() {
        let counters = Counters::open().unwrap();
        let first = counters.read().unwrap();
        let again = Counters::from(OwnedFd::from(counters)).read().unwrap();
        assert!(again.drops >= first.drops && first.drops >= first.overflows);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(TcpExt: |ListenOverflows |ListenDrops |[0-9]{1,22} |\n|.){0,60}") {
            let _ = parse(text.as_bytes());
        }
    }
}
