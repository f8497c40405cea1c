//! Reads from the kernel the accept queues of listening sockets, and the inode numbers of connected sockets, of any
//! process (sock_diag(7)): TCP with `INET_DIAG`, unix stream sockets with `UNIX_DIAG`. It needs no permissions, no
//! file system and no access to the socket itself.
//!
//! The kernel answers for one network namespace: the one in which the [`Diag`] was opened. A unix socket belongs to
//! the namespace of the process that created it, wherever its path is visible.

mod connection;
pub mod reply;

use std::{
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    time::Duration,
};

use rustix::{
    fs,
    io::Errno,
    net::{
        self, AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags,
        SocketType, netlink, sockopt,
    },
};

use reply::{Bad, Progress};
pub use reply::{Connected, Listener, Name, UnixFile};

/// The listening sockets to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// TCP over IPv4. A port, or 0 for all.
    Tcp4(u16),
    /// TCP over IPv6, including sockets that also accept IPv4. A port, or 0 for all.
    Tcp6(u16),
    /// Unix stream and packet sockets.
    Unix,
}

/// A netlink socket for requests to the kernel.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    /// Number of the last request, to skip answers to earlier requests.
    sequence: u32,
    space: Vec<u8>,
}

impl Diag {
    /// Opens the netlink socket, close-on-exec.
    ///
    /// # Errors
    /// As socket(2): `Unsupported` or `PermissionDenied` if a sandbox permits no netlink sockets
    /// (`RestrictAddressFamilies=` of systemd.exec(5) without `AF_NETLINK`).
    pub fn open() -> io::Result<Self> {
        let socket = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        // The kernel answers within the call. The timeout is for a kernel that does not.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            socket,
            sequence: 0,
            space: vec![0; SPACE],
        })
    }

    /// Returns all listening sockets of a family.
    ///
    /// If the list changed while it was read, it is read again. If it changes every time, the last list is returned,
    /// in which a socket may be missing.
    ///
    /// # Errors
    /// As sendmsg(2) and recvmsg(2). `NotFound` if the kernel was built without it (CONFIG_INET_DIAG,
    /// CONFIG_UNIX_DIAG). `InvalidData` for an invalid answer, `OutOfMemory` for more than [`MOST`] sockets.
    pub fn listeners(&mut self, family: Family) -> io::Result<Vec<Listener>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.dump(family) {
                Ok((found, complete)) if complete || attempts == ATTEMPTS => return Ok(found),
                Ok(_) => {}
                // The kernel had too little memory for the answer, or lost a part of it.
                Err(error) if attempts < ATTEMPTS && is_overrun(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the list, and whether it stayed unchanged while it was read.
    fn dump(&mut self, family: Family) -> io::Result<(Vec<Listener>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, self.sequence);
        // The default address is the kernel's: netlink(7).
        loop {
            match net::send(&self.socket, &request, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        let (mut found, mut complete) = (Vec::new(), true);
        for _ in 0..MOST_PACKETS {
            let length = self.receive()?;
            let Progress { done, interrupted } =
                reply::read(&self.space[..length], self.sequence, &mut found).map_err(bad)?;
            complete &= !interrupted;
            if found.len() > MOST {
                return Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "there are too many listening sockets",
                ));
            }
            if done {
                return Ok((found, complete));
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer does not end",
        ))
    }

    fn receive(&mut self) -> io::Result<usize> {
        loop {
            let slices = &mut [IoSliceMut::new(&mut self.space)];
            let mut nothing = RecvAncillaryBuffer::default();
            match net::recvmsg(&self.socket, slices, &mut nothing, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(message) if message.flags.contains(ReturnFlags::TRUNC) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the kernel's answer was cut short",
                    ));
                }
                Ok(message) => return Ok(message.bytes),
            }
        }
    }
}

/// The inode number of a socket, to find it among [`Listener`]s.
///
/// # Errors
/// As fstat(2).
pub fn inode(socket: impl AsFd) -> io::Result<u32> {
    // Inode numbers of sockets have 32 bits (get_next_ino of the kernel).
    Ok(fs::fstat(socket)?.st_ino as u32)
}

/// The file at `path`, to compare it with [`Listener::file`].
///
/// # Errors
/// As stat(2).
pub fn unix_file(path: &Path) -> io::Result<UnixFile> {
    let metadata = std::fs::metadata(path)?;
    let (major, minor) = (fs::major(metadata.dev()), fs::minor(metadata.dev()));
    Ok(UnixFile {
        inode: metadata.ino() as u32,
        // The kernel's internal format: 12 bits and 20 bits (linux/kdev_t.h).
        device: (major << 20) | (minor & 0xf_ffff),
    })
}

/// A request for all listening sockets (linux/inet_diag.h, linux/unix_diag.h).
fn request(family: Family, sequence: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    match family {
        Family::Tcp4(port) | Family::Tcp6(port) => {
            let family = match family {
                Family::Tcp4(_) => AddressFamily::INET,
                _ => AddressFamily::INET6,
            };
            body.push(family.as_raw() as u8);
            body.extend([IPPROTO_TCP, SHOW_MEMORY, 0]);
            body.extend((1_u32 << reply::LISTEN).to_ne_bytes());
            body.extend(port.to_be_bytes());
            // The other port, two addresses, the interface: any.
            body.resize(body.len() + 2 + 32 + 4, 0);
            body.extend([0xff; 8]);
        }
        Family::Unix => {
            body.push(AddressFamily::UNIX.as_raw() as u8);
            body.extend([0; 3]);
            body.extend((1_u32 << reply::LISTEN).to_ne_bytes());
            body.extend(0_u32.to_ne_bytes());
            body.extend(UDIAG_SHOW.to_ne_bytes());
            body.extend([0xff; 8]);
        }
    }
    let mut bytes = Vec::with_capacity(80);
    bytes.extend((body.len() as u32 + reply::HEADER as u32).to_ne_bytes());
    bytes.extend(reply::SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn bad(bad: Bad) -> io::Error {
    match bad {
        Bad::Kernel(errno) => io::Error::from_raw_os_error(errno),
        Bad::Overrun => io::Error::from(Errno::NOBUFS),
        Bad::Malformed => io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer is not understood",
        ),
    }
}

fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

/// Maximum number of listening sockets that are listed.
pub const MOST: usize = 1 << 16;

/// Each packet contains at least one socket.
const MOST_PACKETS: usize = MOST + 1;

/// Maximum number of attempts to read a list that changes meanwhile.
const ATTEMPTS: u32 = 4;

/// The kernel sends packets of at most 32 KiB.
const SPACE: usize = 64 << 10;

const PATIENCE: Duration = Duration::from_secs(2);

const IPPROTO_TCP: u8 = 6;

/// `INET_DIAG_SKMEMINFO` as a bit: this attribute contains the drop counter (linux/inet_diag.h).
const SHOW_MEMORY: u8 = 1 << (reply::INET_DIAG_SKMEMINFO - 1);

/// linux/netlink.h
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;

/// Name, file, length and limit of the queue, and user (linux/unix_diag.h).
const UDIAG_SHOW: u32 = 0x1 | 0x2 | 0x10 | 0x40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream},
        },
        time::Instant,
    };

    use crate::listener;

    /// Polls until `inode` is a listener with the wanted state: the last step of TCP's handshake may arrive late.
    fn look_until(family: Family, inode: u32, wanted: impl Fn(&Listener) -> bool) -> Listener {
        let mut diag = Diag::open().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let found = diag.listeners(family).unwrap();
            let ours = found.into_iter().find(|found| found.inode == inode);
            let ours = ours.expect("our listener is in the list");
            if wanted(&ours) {
                return ours;
            }
            assert!(Instant::now() < end, "it stays {ours:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_queue_of_a_tcp_listener_grows_with_each_client_and_shrinks_when_it_accepts() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let inode = inode(&socket).unwrap();
        let family = Family::Tcp4(address.port());
        let empty = look_until(family, inode, |_| true);
        assert_eq!((empty.length, &empty.name), (0, &Name::Tcp(address, false)));
        assert!(empty.limit > 0);
        assert_eq!(empty.drops, Some(0));
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        look_until(family, inode, |found| found.length == 3);
        socket.accept().unwrap();
        look_until(family, inode, |found| found.length == 2);
        // Without a port, and with another port.
        look_until(Family::Tcp4(0), inode, |found| found.length == 2);
        let other = if address.port() == 1 { 2 } else { 1 };
        let found = Diag::open()
            .unwrap()
            .listeners(Family::Tcp4(other))
            .unwrap();
        assert!(found.iter().all(|found| found.inode != inode));
        drop(clients);
    }

    #[test]
    fn what_a_full_tcp_queue_turns_away_is_counted() {
        let socket = listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), true, 1, 1, true).unwrap();
        let address = listener::tcp_address(&socket[0]).unwrap();
        let (inode, family) = (inode(&socket[0]).unwrap(), Family::Tcp4(address.port()));
        let _two = [0, 1].map(|_| TcpStream::connect(address).unwrap());
        look_until(family, inode, |found| found.length == 2 && found.limit == 1);
        let third = net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        assert_eq!(net::connect(&third, &address), Err(Errno::INPROGRESS));
        look_until(family, inode, |found| found.drops > Some(0));
    }

    #[test]
    fn an_ipv6_listener_says_whether_it_takes_ipv4_too() {
        let own = listener::tcp((Ipv6Addr::LOCALHOST, 0).into(), true, 7, 1, true).unwrap();
        let address = listener::tcp_address(&own[0]).unwrap();
        let family = Family::Tcp6(address.port());
        let found = look_until(family, inode(&own[0]).unwrap(), |_| true);
        assert_eq!((&found.name, found.limit), (&Name::Tcp(address, false), 7));
        let dual = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let address = dual.local_addr().unwrap();
        let found = look_until(Family::Tcp6(0), inode(&dual).unwrap(), |_| true);
        assert_eq!(found.name, Name::Tcp(address, true));
    }

    #[test]
    fn listeners_of_one_address_are_told_apart() {
        let group = listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), true, 4, 3, true).unwrap();
        let port = listener::tcp_address(&group[0]).unwrap().port();
        let found = Diag::open().unwrap().listeners(Family::Tcp4(port)).unwrap();
        let mut inodes: Vec<u32> = found.iter().map(|found| found.inode).collect();
        let mut ours: Vec<u32> = group.iter().map(|s| inode(s).unwrap()).collect();
        inodes.sort_unstable();
        ours.sort_unstable();
        assert_eq!(inodes, ours);
        assert!(found.iter().all(|found| found.limit == 4));
    }

    /// A queue accepts one connection more than its limit (`sk_acceptq_is_full`, `unix_recvq_full`). The
    /// documentation says so.
    #[test]
    fn a_full_unix_queue_is_one_longer_than_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket with a space");
        let rights = listener::Rights {
            uid: None,
            gid: None,
            mode: 0o600,
            acl_users: Vec::new(),
            acl_groups: Vec::new(),
        };
        let (socket, _) = listener::unix(&path, 2, &rights, &[]).unwrap();
        let clients: Vec<UnixStream> = (0..3)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        let found = look_until(Family::Unix, inode(&socket).unwrap(), |_| true);
        assert_eq!((found.length, found.limit), (3, 2));
        assert_eq!(found.name, Name::Path(path.clone()));
        assert_eq!(found.file, Some(unix_file(&path).unwrap()));
        assert_eq!(found.uid, Some(rustix::process::getuid().as_raw()));
        let fourth = net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        );
        let address = net::SocketAddrUnix::new(&path).unwrap();
        assert_eq!(net::connect(fourth.unwrap(), &address), Err(Errno::AGAIN));
        drop(clients);
    }

    #[test]
    fn an_abstract_unix_socket_has_its_name() {
        let name = format!("weir test {}", std::process::id());
        let address = UnixAddress::from_abstract_name(&name).unwrap();
        let socket = UnixListener::bind_addr(&address).unwrap();
        let found = look_until(Family::Unix, inode(&socket).unwrap(), |_| true);
        assert_eq!(
            (found.name, found.file),
            (Name::Abstract(name.into()), None)
        );
    }

    #[test]
    fn many_listeners_come_in_several_packets() {
        let sockets: Vec<TcpListener> = (0..600)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .collect();
        let found = Diag::open().unwrap().listeners(Family::Tcp4(0)).unwrap();
        for socket in &sockets {
            let inode = inode(socket).unwrap();
            assert!(found.iter().any(|found| found.inode == inode));
        }
    }
}
