//! Parses the kernel's answers to [`super::Diag`]: netlink messages (netlink(7)) with attributes.
//!
//! For any input, parsing ends, and needs memory only for the content of the input.

use std::{
    ffi::OsStr,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

/// A listening socket and its accept queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its address.
    pub name: Name,
    /// Its inode number, as in `/proc/PID/fd` (`socket:[N]`).
    pub inode: u32,
    /// Connections that are established but not yet accepted.
    pub length: u32,
    /// The backlog that the kernel granted. A queue accepts one connection more; it drops a connection if it is
    /// longer than this.
    pub limit: u32,
    /// Connections that were dropped since the socket listens, because the queue was full or for another reason. The
    /// counter wraps at 2^32. `None`: the kernel does not count (unix sockets).
    pub drops: Option<u32>,
    /// User that created it. `None`: unknown (unix sockets before Linux 5.3).
    pub uid: Option<u32>,
    /// The file that a unix socket was bound to, even if it was renamed.
    pub file: Option<UnixFile>,
}

/// Address of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// The address, and whether an IPv6 socket also accepts IPv4.
    Tcp(SocketAddr, bool),
    /// The path that was bound. It is relative to the folder, and inside of the chroot, of the process that bound it.
    Path(PathBuf),
    /// Bytes of an abstract name, without the leading zero.
    Abstract(Vec<u8>),
    /// No name: nobody can connect to it.
    Unnamed,
}

/// A socket's file: inode and device numbers in the kernel's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixFile {
    /// The lower 32 bits.
    pub inode: u32,
    /// Major in the upper 12 bits, minor in the lower 20.
    pub device: u32,
}

/// The state after one packet of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// It was the last packet.
    pub done: bool,
    /// The list changed while the kernel wrote it (`NLM_F_DUMP_INTR`).
    pub interrupted: bool,
}

/// Why an answer is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// The kernel returned an error: a positive errno.
    Kernel(i32),
    /// The kernel lost a part of the answer.
    Overrun,
    /// Lengths do not fit, or a field is missing.
    Malformed,
}

/// Parses one packet of the answer to request `sequence`, and appends the sockets to `found`. Skips messages of other
/// requests and types.
///
/// # Errors
/// See [`Bad`]. Sockets that were found before the error stay in `found`.
pub fn read(packet: &[u8], sequence: u32, found: &mut Vec<Listener>) -> Result<Progress, Bad> {
    let mut progress = Progress {
        done: false,
        interrupted: false,
    };
    let mut rest = packet;
    while !rest.is_empty() {
        let length = number(rest, 0)? as usize;
        let kind = short(rest, 4)?;
        let flags = short(rest, 6)?;
        let answers = number(rest, 8)?;
        let message = rest.get(..length).ok_or(Bad::Malformed)?;
        let body = message.get(HEADER..).ok_or(Bad::Malformed)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        if answers != sequence {
            continue;
        }
        progress.interrupted |= flags & NLM_F_DUMP_INTR != 0;
        match kind {
            SOCK_DIAG_BY_FAMILY => found.extend(listener(body)?),
            NLMSG_DONE => {
                // A dump that failed midway reports this in its last message.
                if let Ok(status) = number(body, 0)
                    && status.cast_signed() < 0
                {
                    return Err(Bad::Kernel(status.cast_signed().saturating_neg()));
                }
                progress.done = true;
                return Ok(progress);
            }
            NLMSG_ERROR => match number(body, 0)?.cast_signed() {
                0 => {}
                status => return Err(Bad::Kernel(status.saturating_abs())),
            },
            NLMSG_OVERRUN => return Err(Bad::Overrun),
            _ => {}
        }
    }
    Ok(progress)
}

/// A connected TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Its inode number, as in `/proc/PID/fd` (`socket:[N]`); 0: no process holds it, or it is a listener.
    pub inode: u32,
    /// The user of the process that created it, in our user namespace.
    pub uid: u32,
}

/// Parses one packet of the answer to request `sequence` for one connected TCP socket. `None`: the packet answers another
/// request.
///
/// # Errors
/// See [`Bad`]. `Kernel(ENOENT)`: this socket does not exist.
pub fn connected(packet: &[u8], sequence: u32) -> Result<Option<Connected>, Bad> {
    let mut rest = packet;
    while !rest.is_empty() {
        let length = number(rest, 0)? as usize;
        let message = rest.get(..length).ok_or(Bad::Malformed)?;
        let body = message.get(HEADER..).ok_or(Bad::Malformed)?;
        let (kind, answers) = (short(rest, 4)?, number(rest, 8)?);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        match kind {
            _ if answers != sequence => {}
            // `idiag_state`, `idiag_uid` and `idiag_inode` of `struct inet_diag_msg`.
            SOCK_DIAG_BY_FAMILY => {
                let (uid, inode) = (number(body, 64)?, number(body, 68)?);
                let inode = if body[1] == LISTEN { 0 } else { inode };
                return Ok(Some(Connected { inode, uid }));
            }
            NLMSG_ERROR => match number(body, 0)?.cast_signed() {
                0 => {}
                status => return Err(Bad::Kernel(status.saturating_abs())),
            },
            _ => {}
        }
    }
    Ok(None)
}

/// Parses one socket. `None`: it is of another type, or does not listen.
fn listener(body: &[u8]) -> Result<Option<Listener>, Bad> {
    match *body.first().ok_or(Bad::Malformed)? {
        AF_UNIX => unix(body),
        AF_INET => tcp(body, false),
        AF_INET6 => tcp(body, true),
        _ => Ok(None),
    }
}

/// `struct inet_diag_msg` (linux/inet_diag.h).
fn tcp(body: &[u8], six: bool) -> Result<Option<Listener>, Bad> {
    let attributes = body.get(72..).ok_or(Bad::Malformed)?;
    if body[1] != LISTEN {
        return Ok(None);
    }
    let port = u16::from_be_bytes([body[4], body[5]]);
    let mut address = [0_u8; 16];
    address.copy_from_slice(&body[8..24]);
    let (mut dual, mut drops) = (false, None);
    each_attribute(attributes, |kind, value| match kind {
        INET_DIAG_SKV6ONLY => dual = six && value.first() == Some(&0),
        INET_DIAG_SKMEMINFO => drops = number(value, SK_MEMINFO_DROPS * 4).ok(),
        _ => {}
    })?;
    let address = match six {
        false => {
            let [a, b, c, d, ..] = address;
            SocketAddr::from((Ipv4Addr::new(a, b, c, d), port))
        }
        true => SocketAddr::from((Ipv6Addr::from(address), port)),
    };
    Ok(Some(Listener {
        name: Name::Tcp(address, dual),
        length: number(body, 56)?,
        limit: number(body, 60)?,
        drops,
        uid: Some(number(body, 64)?),
        inode: number(body, 68)?,
        file: None,
    }))
}

/// `struct unix_diag_msg` and its attributes (linux/unix_diag.h).
fn unix(body: &[u8]) -> Result<Option<Listener>, Bad> {
    let attributes = body.get(16..).ok_or(Bad::Malformed)?;
    if body[2] != LISTEN {
        return Ok(None);
    }
    let mut listener = Listener {
        name: Name::Unnamed,
        inode: number(body, 4)?,
        length: 0,
        limit: 0,
        drops: None,
        uid: None,
        file: None,
    };
    let mut queue = None;
    each_attribute(attributes, |kind, value| match kind {
        UNIX_DIAG_NAME => listener.name = unix_name(value),
        UNIX_DIAG_VFS => {
            listener.file = number(value, 0)
                .and_then(|inode| Ok((inode, number(value, 4)?)))
                .map(|(inode, device)| UnixFile { inode, device })
                .ok();
        }
        UNIX_DIAG_RQLEN => {
            queue = number(value, 0)
                .and_then(|n| Ok((n, number(value, 4)?)))
                .ok()
        }
        UNIX_DIAG_UID => listener.uid = number(value, 0).ok(),
        _ => {}
    })?;
    (listener.length, listener.limit) = queue.ok_or(Bad::Malformed)?;
    Ok(Some(listener))
}

/// A name as passed to bind(2): a path ends with a zero, an abstract name begins with one (unix(7)).
fn unix_name(value: &[u8]) -> Name {
    match value {
        [] => Name::Unnamed,
        [0, name @ ..] => Name::Abstract(name.to_owned()),
        path => {
            let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
            Name::Path(PathBuf::from(OsStr::from_bytes(path)))
        }
    }
}

/// Attributes: length including these four bytes, type, value; each at a multiple of four.
fn each_attribute(mut rest: &[u8], mut take: impl FnMut(u16, &[u8])) -> Result<(), Bad> {
    while !rest.is_empty() {
        let length = usize::from(short(rest, 0)?);
        let kind = short(rest, 2)?;
        let attribute = rest.get(..length).ok_or(Bad::Malformed)?;
        take(kind, attribute.get(4..).ok_or(Bad::Malformed)?);
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> Result<u32, Bad> {
    let bytes = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    Ok(u32::from_ne_bytes(bytes.ok_or(Bad::Malformed)?))
}

fn short(bytes: &[u8], at: usize) -> Result<u16, Bad> {
    let bytes = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    Ok(u16::from_ne_bytes(bytes.ok_or(Bad::Malformed)?))
}

/// Messages and attributes begin at multiples of four bytes.
fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// The state of a listening socket. Unix sockets use the same number as TCP (net/tcp_states.h).
pub(super) const LISTEN: u8 = 10;

/// Length of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;

/// linux/sock_diag.h
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;

/// linux/socket.h
const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// linux/inet_diag.h
pub(super) const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_SKV6ONLY: u16 = 11;

/// linux/sock_diag.h
const SK_MEMINFO_DROPS: usize = 8;

/// linux/unix_diag.h
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_RQLEN: u16 = 4;
const UNIX_DIAG_UID: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const SEQUENCE: u32 = 7;

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn pair(a: u32, b: u32) -> Vec<u8> {
        [a.to_ne_bytes(), b.to_ne_bytes()].concat()
    }

    /// Encodes a socket as the kernel does.
    fn written(listener: &Listener) -> Vec<u8> {
        let mut body;
        match &listener.name {
            Name::Tcp(address, dual) => {
                let six = address.is_ipv6();
                body = vec![if six { AF_INET6 } else { AF_INET }, LISTEN, 0, 0];
                body.extend(address.port().to_be_bytes());
                body.extend([0; 2]);
                match address {
                    SocketAddr::V4(v4) => body.extend(v4.ip().octets()),
                    SocketAddr::V6(v6) => body.extend(v6.ip().octets()),
                }
                body.resize(56, 0);
                body.extend(pair(listener.length, listener.limit));
                body.extend(pair(listener.uid.unwrap(), listener.inode));
                body.extend(attribute(8, &[0]));
                if let Some(drops) = listener.drops {
                    let memory = [[0; 4]; 8].concat();
                    let value = [memory, drops.to_ne_bytes().to_vec()].concat();
                    body.extend(attribute(INET_DIAG_SKMEMINFO, &value));
                }
                if six {
                    body.extend(attribute(INET_DIAG_SKV6ONLY, &[u8::from(!dual)]));
                }
            }
            name => {
                body = vec![AF_UNIX, 1, LISTEN, 0];
                body.extend(listener.inode.to_ne_bytes());
                body.extend([9; 8]);
                match name {
                    Name::Path(path) => {
                        let name = [path.as_os_str().as_bytes(), &[0]].concat();
                        body.extend(attribute(UNIX_DIAG_NAME, &name));
                    }
                    Name::Abstract(name) => {
                        let name = [&[0], &name[..]].concat();
                        body.extend(attribute(UNIX_DIAG_NAME, &name));
                    }
                    _ => {}
                }
                if let Some(file) = listener.file {
                    body.extend(attribute(UNIX_DIAG_VFS, &pair(file.inode, file.device)));
                }
                body.extend(attribute(
                    UNIX_DIAG_RQLEN,
                    &pair(listener.length, listener.limit),
                ));
                if let Some(uid) = listener.uid {
                    body.extend(attribute(UNIX_DIAG_UID, &uid.to_ne_bytes()));
                }
            }
        }
        body
    }

    fn names() -> impl Strategy<Value = Name> {
        let address = (
            any::<Option<[u8; 4]>>(),
            any::<[u8; 16]>(),
            any::<(u16, bool)>(),
        );
        prop_oneof![
            address.prop_map(|(four, six, (port, dual))| match four {
                Some(four) => Name::Tcp((four, port).into(), false),
                None => Name::Tcp((six, port).into(), dual),
            }),
            "/[a-z ]{0,100}".prop_map(|path| Name::Path(path.into())),
            vec(any::<u8>(), 0..107).prop_map(Name::Abstract),
            Just(Name::Unnamed),
        ]
    }

    fn listeners() -> impl Strategy<Value = Listener> {
        (names(), any::<[u32; 6]>(), any::<[bool; 2]>()).prop_map(|(name, n, [uid, file])| {
            let is_tcp = matches!(name, Name::Tcp(..));
            Listener {
                name,
                inode: n[0],
                length: n[1],
                limit: n[2],
                drops: (file && is_tcp).then_some(n[5]),
                uid: (uid || is_tcp).then_some(n[3]),
                file: (file && !is_tcp).then_some(UnixFile {
                    inode: n[4],
                    device: n[5],
                }),
            }
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(expected in vec(listeners(), 0..20), interrupted: bool, cut in 0..20_usize) {
            let mut packets = [Vec::new(), Vec::new()];
            for (index, listener) in expected.iter().enumerate() {
                let flags = if interrupted && index == 0 { 2 | NLM_F_DUMP_INTR } else { 2 };
                let message = message(SOCK_DIAG_BY_FAMILY, flags, SEQUENCE, &written(listener));
                packets[usize::from(index >= cut)].extend(message);
            }
            packets[1].extend(message(NLMSG_DONE, 2, SEQUENCE, &[0; 4]));
            let mut found = Vec::new();
            let first = read(&packets[0], SEQUENCE, &mut found).unwrap();
            let second = read(&packets[1], SEQUENCE, &mut found).unwrap();
            prop_assert!(!first.done && second.done);
            prop_assert_eq!(first.interrupted || second.interrupted, interrupted && !expected.is_empty());
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn an_answer_cut_short_is_no_answer(listener in listeners(), keep in any::<prop::sample::Index>()) {
            let body = written(&listener);
            let whole = message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &body);
            let cut = &whole[..keep.index(HEADER + body.len())];
            let mut found = Vec::new();
            let outcome = read(cut, SEQUENCE, &mut found);
            prop_assert_eq!(outcome.is_err(), !cut.is_empty());
            prop_assert!(found.is_empty());
        }

        #[test]
        fn any_bytes_end_and_are_no_more_than_they_hold(bytes in vec(any::<u8>(), 0..2000), header: bool, kind in 0..24_u16) {
            let bytes = match header {
                true => message(kind, 0, SEQUENCE, &bytes),
                false => bytes,
            };
            let mut found = Vec::new();
            let _ = read(&bytes, SEQUENCE, &mut found);
            let _ = connected(&bytes, SEQUENCE);
            prop_assert!(found.len() <= bytes.len() / HEADER);
        }

        #[test]
        fn a_changed_byte_is_survived(listener in listeners(), at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &written(&listener));
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = read(&bytes, SEQUENCE, &mut Vec::new());
        }
    }

    #[test]
    fn errors_of_the_kernel_are_told() {
        let read = |bytes: &[u8]| read(bytes, SEQUENCE, &mut Vec::new());
        let error = |status: i32| message(NLMSG_ERROR, 0, SEQUENCE, &status.to_ne_bytes());
        assert_eq!(read(&error(-2)), Err(Bad::Kernel(2)));
        assert_eq!(read(&error(i32::MIN)), Err(Bad::Kernel(i32::MAX)));
        assert!(!read(&error(0)).unwrap().done);
        let done = message(NLMSG_DONE, 2, SEQUENCE, &(-12_i32).to_ne_bytes());
        assert_eq!(read(&done), Err(Bad::Kernel(12)));
        assert_eq!(
            read(&message(NLMSG_OVERRUN, 0, SEQUENCE, &[])),
            Err(Bad::Overrun)
        );
    }

    #[test]
    fn what_an_earlier_request_asked_for_is_passed_over() {
        let stale = message(NLMSG_DONE, 2, SEQUENCE - 1, &[0; 4]);
        assert!(!read(&stale, SEQUENCE, &mut Vec::new()).unwrap().done);
    }

    #[test]
    fn a_message_that_claims_to_have_no_length_is_malformed() {
        for length in [0_u32, 15, 17, u32::MAX] {
            let mut bytes = message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &[]);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(
                read(&bytes, SEQUENCE, &mut Vec::new()),
                Err(Bad::Malformed),
                "{length}"
            );
        }
    }
}
