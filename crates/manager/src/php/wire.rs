//! The packets between the manager and a PHP master: a type, then fields in network byte order.
//!
//! Reports of a master are not trusted: a script that breaks out of PHP may send them. Decoding never panics and
//! accepts only the fixed fields and a text of limited length. The receiver looks every number up.
//!
//! | to the master | fields | descriptors | the master |
//! |---|---|---|---|
//! | 1 CONFIG | keys and values; the first is the protocol's number | the slow log; the variables that PHP starts with | starts PHP, enters the chroot, gives up capabilities; comes first, and once |
//! | 2 FORK | number, kind: 0 worker, 1 list, 2 warm (with the paths that have changed), 3 zygote, 4 worker of a zygote (with the zygote's number) | 0, 4: the worker's stream, output and error; 3: a socket that is open as long as the zygote is wanted, output and error; 1, 2: the list, a file in memory | forks a process, or lets the zygote fork it |
//! | 3 SIGNAL | number, signal | | sends the signal to the process |
//! | 4 TRACE | number | | the worker writes its PHP stack to the slow log |
//! | end of the channel | | | kills its workers and ends |
//!
//! | from the master | fields | meaning |
//! |---|---|---|
//! | 1 READY | PHP's version, the files that configured it, the protocol's number, the libraries | PHP is loaded |
//! | 2 FAILED | text | PHP could not be loaded; the master ends |
//! | 3 FORKED | number, process id | |
//! | 4 EXITED | number, process id, exit code or signal | |
//! | 5 FORK_FAILED | number, errno | |
//! | 7 BOOTED | number | the application of that worker or zygote is booted |
//! | 8 OPCACHE_IS_FULL | | OPcache waits until no process uses its memory |
//! | 9 DECLINED | number, text | that zygote cannot be forked, and ends |
//!
//! The manager chooses the numbers and never uses one again. The reports of a zygote's worker come in the order FORKED, BOOTED, EXITED:
//! the master reads what zygotes report before all else.
//!
//! On the slow log's channel one packet is one entry: the worker's process id, then its stack in PHP-FPM's format.

use std::{os::unix::ffi::OsStrExt, path::PathBuf};

use weir_sys::{identity::Identity, process::Exit};

/// To a master.
#[derive(Debug)]
pub(super) enum Order<'a> {
    /// The pool's settings: keys and values, some of them repeated. The slow log's socket may be attached.
    Config(&'a [(&'static str, Vec<u8>)]),
    /// Fork a process with this number; its descriptors are attached.
    Fork(u32, Task<'a>),
    /// Send a signal to a process.
    Signal(u32, u8),
    /// A worker must write its position to the slow log.
    Trace(u32),
    /// To a template: fork the master with this number, which becomes this user; `None`: it stays the template's. Its channel, standard
    /// output and error are attached.
    Master(u32, Option<&'a Identity>),
}

/// The task of a forked process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task<'a> {
    /// Serve requests from the attached stream.
    Work,
    /// Write the list of scripts in OPcache to the attached file.
    List,
    /// Compile the scripts in the attached list. Paths that begin with the first path of a pair begin with the second
    /// one now.
    Warm(&'a [(PathBuf, PathBuf)]),
    /// Boot the application, and have workers forked from it. It ends when the other end of the attached socket is closed.
    Zygote,
    /// As [`Work`](Self::Work), forked from the zygote with this number.
    WorkOf(u32),
}

/// From a master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// PHP is loaded.
    Ready {
        /// `8.2.29`
        version: String,
        /// `expose_php`: whether answers name the version.
        exposed: bool,
        /// The configuration files and folders that it has read.
        inputs: Vec<PathBuf>,
        /// Its protocol version; `None`: it does not report one.
        protocol: Option<u32>,
        /// weir's version that it was built with; `None`: it does not report one.
        build: Option<String>,
        /// The libraries that it has loaded.
        libraries: Vec<Library>,
    },
    /// PHP cannot be loaded; with the reason.
    Failed(String),
    /// A process was forked. A master that was forked from a template tells it of itself.
    Forked {
        /// Number of the process.
        number: u32,
        /// Process id of the process, according to the master.
        pid: u32,
    },
    /// A process has ended.
    Exited {
        /// Number of the process.
        number: u32,
        /// How it ended.
        exit: Exit,
    },
    /// A process could not be forked.
    ForkFailed {
        /// Number of the process.
        number: u32,
        /// The kernel's error.
        errno: i32,
    },
    /// A worker has booted its application, and waits for requests.
    Booted {
        /// Number of the process.
        number: u32,
    },
    /// OPcache's memory must be cleared, which it cannot do while processes use it: the pool must be restarted.
    OpcacheIsFull,
    /// A zygote has booted its application, and cannot be forked.
    Declined {
        /// Number of the process.
        number: u32,
        /// What the template has opened that processes cannot share.
        why: String,
    },
}

/// A library that a master has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// Device and inode; `None`: its path was removed or leads to another file now.
    pub(crate) file: Option<(u64, u64)>,
}

/// A packet that a master never sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadReport;

impl Order<'_> {
    /// The packet.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Config(fields) => {
                out.push(1);
                for (key, value) in *fields {
                    out.extend((key.len() as u16).to_be_bytes());
                    out.extend((value.len() as u32).to_be_bytes());
                    out.extend(key.as_bytes());
                    out.extend(value);
                }
            }
            Self::Fork(number, task) => {
                out.push(2);
                out.extend(number.to_be_bytes());
                match task {
                    Task::Work => out.push(0),
                    Task::List => out.push(1),
                    Task::Warm(moves) => {
                        out.push(2);
                        for path in moves.iter().flat_map(|(from, to)| [from, to]) {
                            let bytes = path.as_os_str().as_bytes();
                            out.extend((bytes.len() as u16).to_be_bytes());
                            out.extend(bytes);
                        }
                    }
                    Task::Zygote => out.push(3),
                    Task::WorkOf(zygote) => {
                        out.push(4);
                        out.extend(zygote.to_be_bytes());
                    }
                }
            }
            Self::Signal(number, signal) => {
                out.push(3);
                out.extend(number.to_be_bytes());
                out.push(*signal);
            }
            Self::Trace(number) => {
                out.push(4);
                out.extend(number.to_be_bytes());
            }
            Self::Master(number, who) => {
                out.push(5);
                out.extend(number.to_be_bytes());
                for Identity { uid, gid, groups } in who.iter().copied() {
                    let all = [uid, gid].into_iter().chain(groups);
                    out.extend(all.flat_map(|id| id.to_be_bytes()));
                }
            }
        }
        out
    }
}

impl Report {
    /// Decodes a packet.
    pub(super) fn decode(packet: &[u8]) -> Result<Self, BadReport> {
        let (kind, body) = packet.split_first().ok_or(BadReport)?;
        let numbers = |len: usize| match body.len() == len {
            true => Ok(()),
            false => Err(BadReport),
        };
        let number = |at: usize| -> u32 {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_be_bytes)
        };
        match kind {
            1 => {
                let body = text(body);
                let mut lines = body.lines();
                let first = lines.next().unwrap_or_default();
                let version = first.strip_suffix(" exposed");
                let lines: Vec<&str> = lines.collect();
                let libraries = lines.iter().filter_map(|line| Library::read(line));
                let inputs = lines.iter().filter(|line| !line.starts_with(LIBRARY));
                let mut builds = lines.iter().filter_map(|line| line.strip_prefix(BUILT));
                let mut numbers = lines.iter().filter_map(|line| line.strip_prefix(SPEAKS));
                Ok(Self::Ready {
                    version: version.unwrap_or(first).to_owned(),
                    exposed: version.is_some(),
                    protocol: numbers.next().and_then(|number| number.parse().ok()),
                    build: builds.next().map(str::to_owned),
                    libraries: libraries.take(MAX_LIBRARIES).collect(),
                    inputs: paths(inputs.copied()).take(MAX_INPUTS).collect(),
                })
            }
            2 => Ok(Self::Failed(text(body))),
            3 => {
                numbers(8)?;
                Ok(Self::Forked {
                    number: number(0),
                    pid: number(4),
                })
            }
            4 => {
                numbers(13)?;
                let value = number(9).cast_signed();
                Ok(Self::Exited {
                    number: number(0),
                    exit: match body[8] {
                        0 => Exit::Code(value),
                        1 => Exit::Signal(value),
                        _ => return Err(BadReport),
                    },
                })
            }
            5 => {
                numbers(8)?;
                Ok(Self::ForkFailed {
                    number: number(0),
                    errno: number(4).cast_signed(),
                })
            }
            7 => {
                numbers(4)?;
                Ok(Self::Booted { number: number(0) })
            }
            8 => {
                numbers(0)?;
                Ok(Self::OpcacheIsFull)
            }
            9 if body.len() >= 4 => Ok(Self::Declined {
                number: number(0),
                why: text(&body[4..]),
            }),
            _ => Err(BadReport),
        }
    }
}

impl Library {
    /// "library DEVICE INODE PATH", or "library gone PATH".
    fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix(LIBRARY)?;
        let (file, path) = match rest.strip_prefix("gone ") {
            Some(path) => (None, path),
            None => {
                let mut parts = rest.splitn(3, ' ');
                let device = parts.next()?.parse().ok()?;
                let inode = parts.next()?.parse().ok()?;
                (Some((device, inode)), parts.next()?)
            }
        };
        path.starts_with('/').then(|| Self {
            path: path.into(),
            file,
        })
    }
}

/// The beginning of a line with a library.
const LIBRARY: &str = "library ";

/// The beginning of the line with its protocol version.
const SPEAKS: &str = "protocol ";

/// The beginning of the line with the version of weir that it was built with.
const BUILT: &str = "version ";

/// Maximum number of libraries per master.
const MAX_LIBRARIES: usize = 500;

/// Paths in PHP's lists: one per line, some with a comma after them, folders separated by colons.
fn paths<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = PathBuf> {
    let parts = lines.flat_map(|line| line.trim().trim_end_matches(',').split(':'));
    parts
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
}

/// Text for people, cut to a readable length.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
}

/// Maximum length of a text in a report, bytes.
const MAX_TEXT: usize = 16 * 1024;

/// Maximum number of files and folders per master.
const MAX_INPUTS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_are_as_a_master_reads_them() {
        let config = [("pool", b"www".to_vec()), ("no_ini", b"1".to_vec())];
        assert_eq!(
            Order::Config(&config).encode(),
            b"\x01\0\x04\0\0\0\x03poolwww\0\x06\0\0\0\x01no_ini1"
        );
        assert_eq!(Order::Fork(7, Task::Work).encode(), b"\x02\0\0\0\x07\0");
        assert_eq!(
            Order::Fork(258, Task::List).encode(),
            b"\x02\0\0\x01\x02\x01"
        );
        let moves = [("/a".into(), "/bc".into())];
        assert_eq!(
            Order::Fork(7, Task::Warm(&moves)).encode(),
            b"\x02\0\0\0\x07\x02\0\x02/a\0\x03/bc"
        );
        assert_eq!(Order::Fork(7, Task::Zygote).encode(), b"\x02\0\0\0\x07\x03");
        assert_eq!(
            Order::Fork(7, Task::WorkOf(258)).encode(),
            b"\x02\0\0\0\x07\x04\0\0\x01\x02"
        );
        assert_eq!(Order::Signal(7, 15).encode(), b"\x03\0\0\0\x07\x0f");
        assert_eq!(Order::Trace(7).encode(), b"\x04\0\0\0\x07");
        assert_eq!(Order::Master(7, None).encode(), b"\x05\0\0\0\x07");
        let who = Identity {
            uid: 258,
            gid: 2,
            groups: vec![3],
        };
        assert_eq!(
            Order::Master(7, Some(&who)).encode(),
            b"\x05\0\0\0\x07\0\0\x01\x02\0\0\0\x02\0\0\0\x03"
        );
    }

    #[test]
    fn reports_are_read_and_nothing_else_is() {
        let ready = |inputs: &[&str]| Report::Ready {
            version: "8.2.1".to_owned(),
            exposed: false,
            protocol: None,
            build: None,
            inputs: inputs.iter().map(PathBuf::from).collect(),
            libraries: Vec::new(),
        };
        assert_eq!(Report::decode(b"\x018.2.1"), Ok(ready(&[])));
        assert_eq!(
            Report::decode(
                b"\x018.2.1\n/a/php.ini\n/a/conf.d:/b\n/a/conf.d/1.ini,\n/b/2.ini\nx\nprotocol x\n"
            ),
            Ok(ready(&[
                "/a/php.ini",
                "/a/conf.d",
                "/b",
                "/a/conf.d/1.ini",
                "/b/2.ini"
            ]))
        );
        let library = |path: &str, file| Library {
            path: path.into(),
            file,
        };
        assert_eq!(
            Report::decode(
                b"\x018.2.1\n/a/php.ini\nlibrary 8 17 /lib/a b.so\nlibrary gone /lib/c.so\nlibrary x\nprotocol 7\nversion 0.1.0\nlibrary 1 2 d.so\n"
            ),
            Ok(Report::Ready {
                version: "8.2.1".to_owned(),
                exposed: false,
                protocol: Some(7),
                build: Some("0.1.0".to_owned()),
                inputs: vec!["/a/php.ini".into()],
                libraries: vec![
                    library("/lib/a b.so", Some((8, 17))),
                    library("/lib/c.so", None)
                ],
            })
        );
        assert_eq!(
            Report::decode(b"\x03\0\0\0\x07\0\0\x01\0"),
            Ok(Report::Forked {
                number: 7,
                pid: 256
            })
        );
        let exited = |kind: u8| Report::decode(&[4, 0, 0, 0, 7, 0, 0, 0, 9, kind, 0, 0, 0, 11]);
        let is = |exit| Ok(Report::Exited { number: 7, exit });
        assert_eq!(exited(0), is(Exit::Code(11)));
        assert_eq!(exited(1), is(Exit::Signal(11)));
        assert_eq!(exited(2), Err(BadReport));
        let booted = Report::decode(b"\x07\0\0\x01\x02");
        assert_eq!(booted, Ok(Report::Booted { number: 258 }));
        assert_eq!(Report::decode(b"\x08"), Ok(Report::OpcacheIsFull));
        let declined = Report::Declined {
            number: 7,
            why: "a socket".to_owned(),
        };
        assert_eq!(Report::decode(b"\x09\0\0\0\x07a socket"), Ok(declined));
        for bad in [
            &b""[..],
            b"\x03",
            b"\x03\0\0\0\x07\0\0\0\x01x",
            b"\x07",
            b"\x08x",
            b"\x09\0\0\0",
            b"\x06x",
            b"\x0a",
            b"\0",
        ] {
            assert_eq!(Report::decode(bad), Err(BadReport), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_packet_makes_it_panic_or_keep_much(
            kind in 0_u8..11,
            body in proptest::collection::vec(any::<u8>(), 0..2_000),
            times in 1_usize..50,
        ) {
            let mut packet = vec![kind];
            packet.extend(body.repeat(times));
            match Report::decode(&packet) {
                Ok(Report::Failed(text) | Report::Declined { why: text, .. }) => {
                    prop_assert!(text.len() <= 3 * MAX_TEXT);
                }
                Ok(Report::Ready {
                    version, inputs, ..
                }) => {
                    prop_assert!(version.len() <= 3 * MAX_TEXT && inputs.len() <= MAX_INPUTS);
                }
                _ => {}
            }
        }
    }
}
