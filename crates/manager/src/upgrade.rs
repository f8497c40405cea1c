//! An upgrade: a running weir starts the new program, hands its sockets and keys over, and finishes its own requests.
//!
//! ```text
//! the old weir (successor.rs)                      the new weir (predecessor.rs)
//! starts it, sends Hello, sockets, keys, Start ──► reads and checks its configuration, loads PHP, starts its gateway
//!     serves as before                         ◄── Hello
//!     sends lists of compiled scripts          ──► compiles them
//!                                              ◄── Ready: its gateway serves; both accept connections now
//! drains as at a reload, gives up pid file and
//! names of sockets, sends Yours                ──► is in charge: pid file, certificates, service manager
//!     reports what it still finishes           ──► shows it in its status; passes on that logs are reopened
//! ends when all is finished
//! ```
//!
//! Until Yours the old weir keeps everything. If the new one sends Failed, ends, or takes too long, the old one
//! continues.
//!
//! The messages go between two versions of weir, so they are JSON, in which a version may add fields. Each side checks
//! [`HANDOVER`] first. Both trust each other: they are the same user, and the old one has started the new one.
//!
//! A program outside may watch the process that it has started: a container ends with its process 1, and a shell or
//! runit waits for its child. That process then stays ([`anchor`]).

mod anchor;
mod predecessor;
pub(crate) mod program;
mod scripts;
mod successor;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use weir_config::Address;
use weir_control::{DrainStatus, OldGeneration};
use weir_sys::{memory, message};

use crate::programs::Handed;

pub(super) use anchor::{Anchor, ToAnchor};
pub(super) use predecessor::{Predecessor, PredecessorMessage};
pub(super) use scripts::{Inherited, InheritedLists, Listing, ScriptList};
pub(super) use successor::{Outcome, Successor};

/// Number of this protocol. Raise it if a version must not take over from an older one.
pub(super) const HANDOVER: u32 = 1;

/// From the old weir to the new one. Some have a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToSuccessor {
    /// The first message, with the old one's standard error.
    Hello {
        /// [`HANDOVER`]
        handover: u32,
        /// Its version.
        version: String,
    },
    /// A listening socket.
    Socket(SocketPlace),
    /// A UDP socket of the same listener, for QUIC.
    Datagrams(SocketPlace),
    /// The secret of the IDs of QUIC's connections, and the number of the last gateway.
    Quic { secret: Vec<Vec<u8>>, last: u32 },
    /// The inbox of a gateway that still finishes: the end that others send to.
    Inbox { gateway: u32, reactor: u16 },
    /// The unix socket of the admin interface: its path, and device and inode of that.
    Admin {
        path: PathBuf,
        name: Option<(u64, u64)>,
    },
    /// The TCP socket of the admin interface, as configured.
    AdminTcp { wanted: SocketAddr },
    /// The locked pid file.
    PidFile { path: PathBuf },
    /// The keys of session tickets, the current one first, and when the next one is due.
    Tickets { keys: Vec<Vec<u8>>, due: Duration },
    /// The channel to the process that is watched from outside ([`Anchor`]).
    Anchor,
    /// The remaining items, and the end of the handover.
    Start {
        /// Operators have turned the drain for load balancers on.
        declines: bool,
        /// Number of configurations so far.
        generations: u32,
        /// Last known addresses of servers' names.
        #[serde(default)]
        addresses: BTreeMap<String, Vec<IpAddr>>,
        /// Pools whose lists of scripts follow.
        #[serde(default)]
        lists: Vec<String>,
    },
    /// The scripts that a pool's PHP has compiled. The descriptor is the list; without one, there is none.
    Scripts(ScriptList),
    /// The new one is in charge. The descriptor is the channel on which its gateway takes idle connections.
    Yours,
    /// What the old one still finishes.
    Report {
        old: Vec<Finishing>,
        /// Processes of workers, with their pool's NAME.
        workers: Vec<(u32, String)>,
    },
    /// A reload was asked for while the new one started.
    Reload,
    /// What the new one must know of the programs: before Yours, and when one of their processes has ended.
    Programs(Vec<Handed>),
}

/// From the new weir to the old one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToPredecessor {
    /// The new weir has received everything.
    Hello { version: String },
    /// The new weir serves.
    Ready,
    /// The new weir cannot serve, for this reason.
    Failed(String),
    /// The logs are to be opened again.
    ReopenLogs,
    /// All is to end now.
    StopNow,
    /// The new weir stops, and the old one is to end its programs.
    EndPrograms,
}

/// Which listening socket it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SocketPlace {
    /// For the application's calls, not for clients.
    pub(super) egress: bool,
    /// As configured.
    pub(super) address: Place,
    pub(super) ipv6only: bool,
    /// Device and inode of the path of a unix socket that weir has made.
    pub(super) name: Option<(u64, u64)>,
    /// The service manager has made it.
    pub(super) given: bool,
}

/// An address, in a form that does not depend on the configuration's types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// [`OldGeneration`]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Finishing {
    number: u32,
    gateway: u32,
    since: u64,
    left: u64,
    connections: u32,
    requests: u32,
    calls: bool,
    longest: u64,
    request: String,
}

impl From<Address> for Place {
    fn from(address: Address) -> Self {
        match address {
            Address::Tcp(address) => Self::Tcp(address),
            Address::Unix(path) => Self::Unix(path),
        }
    }
}

impl From<Place> for Address {
    fn from(place: Place) -> Self {
        match place {
            Place::Tcp(address) => Self::Tcp(address),
            Place::Unix(path) => Self::Unix(path),
        }
    }
}

impl From<OldGeneration> for Finishing {
    fn from(old: OldGeneration) -> Self {
        Self {
            number: old.number,
            gateway: old.gateway,
            since: old.since,
            left: old.left,
            connections: old.holding.connections,
            requests: old.holding.requests,
            calls: old.holding.calls,
            longest: old.holding.longest,
            request: old.holding.request,
        }
    }
}

impl From<Finishing> for OldGeneration {
    fn from(old: Finishing) -> Self {
        Self {
            number: old.number,
            gateway: old.gateway,
            since: old.since,
            left: old.left,
            holding: DrainStatus {
                connections: old.connections,
                requests: old.requests,
                calls: old.calls,
                longest: old.longest,
                request: old.request,
            },
        }
    }
}

/// Sends a message, with a descriptor if it has one. Does not wait. One that is longer than a packet may be goes in a file in
/// memory.
fn send(
    channel: BorrowedFd<'_>,
    message: &impl Serialize,
    attached: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let packet = serde_json::to_vec(message)?;
    if packet.len() <= MAX_PACKET {
        return message::send(channel, &packet, attached.as_slice(), false);
    }
    let file = memory::file(c"handover", &packet)?;
    let descriptors: Vec<BorrowedFd<'_>> = [file.as_fd()].into_iter().chain(attached).collect();
    message::send(channel, IN_FILE, &descriptors, false)
}

/// The next message, with its descriptor. `Ok(None)`: the other side has ended. Does not wait.
fn receive<T: DeserializeOwned>(
    channel: BorrowedFd<'_>,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut packet = vec![0; MAX_PACKET];
    match message::receive(channel.as_fd(), &mut packet, false)? {
        (0, _) => Ok(None),
        (length, attached) if packet[..length] == *IN_FILE => {
            let mut attached = attached.into_iter();
            let file = attached.next().ok_or(io::ErrorKind::InvalidData)?;
            let packet = memory::read(file.as_fd(), MAX_IN_FILE)?;
            Ok(Some((serde_json::from_slice(&packet)?, attached.next())))
        }
        (length, mut attached) => {
            let message = serde_json::from_slice(&packet[..length])?;
            Ok(Some((message, attached.pop())))
        }
    }
}

/// Bytes of the longest packet: less than the kernel takes at once (net.core.wmem_default).
const MAX_PACKET: usize = 160 * 1024;

/// In place of a longer message, which is the first descriptor.
const IN_FILE: &[u8] = b"in a file";

/// Bytes of the longest message: that of a hundred thousand pools is shorter.
const MAX_IN_FILE: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_may_add_fields_and_an_older_one_may_lack_those_with_a_default() {
        let newer = br#"{"Start":{"declines":true,"generations":7,"addresses":{},"more":[1]}}"#;
        let message: ToSuccessor = serde_json::from_slice(newer).unwrap();
        assert!(matches!(message, ToSuccessor::Start { generations: 7, .. }));
        let older = br#"{"Start":{"declines":false,"generations":1}}"#;
        serde_json::from_slice::<ToSuccessor>(older).unwrap();
    }

    #[test]
    fn the_message_of_many_pools_arrives_whole() {
        let (ours, theirs) = message::pair().unwrap();
        let file = weir_sys::memory::file(c"test", b"x").unwrap();
        for count in [1, 3_000, 100_000] {
            let lists: Vec<String> = (0..count).map(|n| format!("customer-{n:0>60}")).collect();
            let start = ToSuccessor::Start {
                declines: false,
                generations: count,
                addresses: BTreeMap::new(),
                lists: lists.clone(),
            };
            send(ours.as_fd(), &start, Some(file.as_fd())).unwrap();
            let (message, attached) = receive::<ToSuccessor>(theirs.as_fd()).unwrap().unwrap();
            let ToSuccessor::Start { lists: there, .. } = message else {
                panic!("{message:?}");
            };
            assert!(there == lists, "{count}");
            assert_eq!(memory::read(attached.unwrap().as_fd(), 9).unwrap(), b"x");
        }
    }

    #[test]
    fn messages_carry_a_descriptor_and_say_when_the_other_side_ends() {
        let (ours, theirs) = message::pair().unwrap();
        let file = weir_sys::memory::file(c"test", b"x").unwrap();
        let path = PathBuf::from("/run/a.pid");
        send(
            ours.as_fd(),
            &ToSuccessor::PidFile { path },
            Some(file.as_fd()),
        )
        .unwrap();
        let (message, attached) = receive::<ToSuccessor>(theirs.as_fd()).unwrap().unwrap();
        assert!(matches!(message, ToSuccessor::PidFile { .. }) && attached.is_some());
        let empty = receive::<ToSuccessor>(theirs.as_fd()).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        message::send(ours.as_fd(), b"{}", &[], true).unwrap();
        receive::<ToSuccessor>(theirs.as_fd()).unwrap_err();
        drop(ours);
        assert!(receive::<ToSuccessor>(theirs.as_fd()).unwrap().is_none());
    }
}
