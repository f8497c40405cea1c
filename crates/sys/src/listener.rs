//! Creates listening sockets with their final properties before anybody can connect.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags},
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt},
};

use crate::{
    access::ACL_NAME,
    file::{FileId, id, random_name},
    walk::{Hazard, Place, Refused},
};

/// Owner and permissions of a unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Owner; `None`: our user.
    pub uid: Option<u32>,
    /// Group; `None`: our group.
    pub gid: Option<u32>,
    /// Permission bits; connecting needs write permission.
    pub mode: u32,
    /// Additional users that may connect, by an access control list.
    pub acl_users: Vec<u32>,
    /// Additional groups that may connect.
    pub acl_groups: Vec<u32>,
}

/// Why a unix socket cannot be created.
#[derive(Debug)]
pub enum UnixError {
    /// Somebody listens there.
    InUse,
    /// The path belongs to something other than a socket, which is not touched.
    NotASocket,
    /// The path is longer than 107 bytes, the maximum of an address.
    TooLong,
    /// Owner and group could not be set.
    Owner(io::Error),
    /// The access control list could not be set; `Unsupported` if the file system has none.
    Acl(io::Error),
    /// Another user decides what the path means. The text says where.
    Unsafe(String),
    /// Anything else, as bind(2) and listen(2).
    Io(io::Error),
}

/// Listening TCP sockets for `address`, `count` of them that share the connections (`SO_REUSEPORT`),
/// non-blocking, close-on-exec. IPv6 sockets take IPv6 only.
///
/// `alone`: nobody listens there yet; another listener is an error, even if it allows sharing its port. Otherwise the
/// sockets join those that we already have.
///
/// # Errors
/// As bind(2): `AddrInUse`, `PermissionDenied` (a port below 1024), `AddrNotAvailable`.
pub fn tcp(
    address: SocketAddr,
    ipv6only: bool,
    backlog: u32,
    count: usize,
    alone: bool,
) -> io::Result<Vec<OwnedFd>> {
    let mut address = address;
    let mut sockets = Vec::with_capacity(count);
    for index in 0..count {
        let socket = tcp_socket(address, ipv6only)?;
        bind_shared(&socket, address, alone && index == 0)?;
        // Port 0 means any port. The other sockets need the same port.
        if address.port() == 0 {
            address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        }
        sockets.push(socket);
    }
    for socket in &sockets {
        set_backlog(socket, backlog)?;
    }
    Ok(sockets)
}

/// Binds a socket to an address that others of ours have, too. `first_alone`: it is the first, and other programs may not have
/// the address.
fn bind_shared(socket: &OwnedFd, address: SocketAddr, first_alone: bool) -> io::Result<()> {
    // The kernel lets two programs of one user share a port if both set the option before bind. The first socket
    // sets it afterwards: so it cannot join other programs' sockets, and our other sockets can join it.
    if !first_alone {
        sockopt::set_socket_reuseport(socket, true)?;
    }
    net::bind(socket, &address)?;
    if first_alone {
        sockopt::set_socket_reuseport(socket, true)?;
    }
    Ok(())
}

/// UDP sockets for `address`, `count` of them among which the kernel distributes datagrams by their addresses (`SO_REUSEPORT`),
/// non-blocking, close-on-exec. `alone` as in [`tcp`].
///
/// # Errors
/// Those of [`tcp`].
pub fn udp(
    address: SocketAddr,
    ipv6only: bool,
    count: usize,
    alone: bool,
) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::with_capacity(count);
    for index in 0..count {
        let socket = udp_socket(address, ipv6only)?;
        bind_shared(&socket, address, alone && index == 0)?;
        set_udp_buffers(&socket);
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Bytes of datagrams that the kernel keeps for a socket of [`udp`] until they are read, as this process may have them: at most
/// [`UDP_BUFFER`].
///
/// # Errors
/// As socket(2).
pub fn udp_buffer() -> io::Result<usize> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = udp_socket(any, false)?;
    set_udp_buffers(&socket);
    // The kernel counts its own data, too, and reports twice the size.
    Ok(sockopt::socket_recv_buffer_size(&socket)? / 2)
}

fn set_udp_buffers(socket: &OwnedFd) {
    // The buffers may exceed net.core.rmem_max and wmem_max if this process has CAP_NET_ADMIN. Otherwise the kernel
    // cuts the sizes to these limits.
    if sockopt::set_socket_recv_buffer_size_force(socket, UDP_BUFFER).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, UDP_BUFFER);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, UDP_BUFFER).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, UDP_BUFFER);
    }
}

fn udp_socket(address: SocketAddr, ipv6only: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, ipv6only)?;
    }
    Ok(socket)
}

/// Bytes that the kernel keeps of datagrams that were not read, or not sent, if it is allowed to.
pub const UDP_BUFFER: usize = 4 << 20;

/// Whether [`tcp`] could bind there now, without sharing. Nobody can connect meanwhile: the socket does not listen.
///
/// # Errors
/// Those of [`tcp`].
pub fn try_tcp(address: SocketAddr, ipv6only: bool) -> io::Result<()> {
    let socket = tcp_socket(address, ipv6only)?;
    Ok(net::bind(&socket, &address)?)
}

/// The address of a TCP socket.
///
/// # Errors
/// As getsockname(2); `EAFNOSUPPORT` for a unix socket.
pub fn tcp_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// Sets the length of the accept queue of a listening socket.
///
/// # Errors
/// As listen(2).
pub fn set_backlog(socket: &OwnedFd, backlog: u32) -> io::Result<()> {
    Ok(listen(socket, backlog)?)
}

/// A listening unix socket at `path`, non-blocking, close-on-exec, and the identity of its name. Nobody but our user can
/// connect before owner, group and mode are set: the socket is created for us alone, listens, and gets them last.
///
/// A socket without a listener (left by a crash) is replaced. A socket in use, or any other file at that path, is an
/// error and is not touched.
///
/// Root follows no link that others may have made (`groups`: as for [`crate::log_file::open`]), and sets rights of what it
/// has proven to be the new socket.
///
/// # Errors
/// See [`UnixError`].
pub fn unix(
    path: &Path,
    backlog: u32,
    rights: &Rights,
    groups: &[u32],
) -> Result<(OwnedFd, FileId), UnixError> {
    let address = match SocketAddrUnix::new(path) {
        Err(Errno::NAMETOOLONG) => return Err(UnixError::TooLong),
        result => result?,
    };
    let place = Place::find(path, groups)?;
    let socket = unix_socket(true)?;
    // The new name gets the socket's mode.
    fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    match net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(&place)?;
            match net::bind(&socket, &address) {
                Err(Errno::ADDRINUSE) => return Err(UnixError::InUse),
                result => result?,
            }
        }
        result => result?,
    }
    listen(&socket, backlog)?;
    let name = Name::open(&place).and_then(|name| match &place.shared {
        Some(folder) if !name.is_of(&socket)? => Err(UnixError::Unsafe(format!(
            "{} was replaced while it was created, by somebody who may write in {}",
            path.display(),
            folder.display()
        ))),
        _ => Ok(name),
    })?;
    let file = name.id();
    name.set(rights).inspect_err(|_| {
        let _ = crate::file::remove_same(path, file, false);
    })?;
    Ok((socket, file))
}

/// The process that listens on the unix socket at `path`, or did when listening began; `None`: nobody does, or it is
/// not known, for example because it is in another pid namespace.
pub fn owner(path: &Path) -> Option<u32> {
    let socket = unix_socket(true).ok()?;
    net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    let credentials = sockopt::socket_peercred(&socket).ok()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

/// Changes owner, group, mode and access control list of the socket at `path`, which must be `file`. Returns what they were.
///
/// # Errors
/// See [`UnixError`]; then they are as before.
pub fn change_rights(path: &Path, file: FileId, rights: &Rights) -> Result<Before, UnixError> {
    // The owner of a folder on the way can let the path lead elsewhere, so only the socket's identity counts.
    let name = Name::open(&Place::whole(path))?;
    if name.id() != file {
        return Err(UnixError::Io(io::ErrorKind::NotFound.into()));
    }
    let before = Before {
        acl: name.acl()?,
        name,
    };
    match before.name.set(rights) {
        Ok(()) => Ok(before),
        Err(error) => {
            before.put_back()?;
            Err(error)
        }
    }
}

/// The rights of a socket before they were changed.
#[derive(Debug)]
pub struct Before {
    name: Name,
    acl: Option<Vec<u8>>,
}

impl Before {
    /// Gives the socket its rights back.
    ///
    /// # Errors
    /// See [`UnixError`].
    pub fn put_back(&self) -> Result<(), UnixError> {
        let was = &self.name.found;
        (self.name).set_owner(Some(was.st_uid), Some(was.st_gid))?;
        self.name.set_acl(self.acl.as_deref())?;
        self.name.set_mode(was.st_mode)
    }
}

impl Rights {
    fn has_acl(&self) -> bool {
        !self.acl_users.is_empty() || !self.acl_groups.is_empty()
    }
}

/// A listening unix socket whose path was removed: only processes that have it can connect to it.
#[derive(Debug)]
pub struct Private {
    /// The socket; accept(2) on it blocks. Close-on-exec.
    pub listening: OwnedFd,
    /// An open handle of the removed path.
    name: OwnedFd,
}

impl Private {
    /// Creates one. For a moment it is in a separate folder in `parent`, which nobody else may enter.
    ///
    /// # Errors
    /// As mkdir(2), bind(2), listen(2).
    pub fn new(parent: &Path, backlog: u32) -> io::Result<Self> {
        let folder = parent.join(random_name()?);
        fs::mkdir(&folder, Mode::RWXU)?;
        let path = folder.join("s");
        let made = Self::at(&path, backlog);
        let _ = fs::unlink(&path);
        let _ = fs::rmdir(&folder);
        Ok(made?)
    }

    fn at(path: &Path, backlog: u32) -> Result<Self, Errno> {
        let listening = unix_socket(false)?;
        net::bind(&listening, &SocketAddrUnix::new(path)?)?;
        listen(&listening, backlog)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = fs::open(path, flags, Mode::empty())?;
        Ok(Self { listening, name })
    }

    /// Connects to it without waiting; the stream is non-blocking, close-on-exec.
    ///
    /// # Errors
    /// As connect(2): `WouldBlock` if the accept queue is full, `ConnectionRefused` if nobody listens any more,
    /// `NotFound` without /proc.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let socket = unix_socket(true)?;
        // The link in /proc leads to the socket itself, even without a path (proc_pid_fd(5)).
        let path = format!("/proc/self/fd/{}", self.name.as_raw_fd());
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    }

    /// Ends listening for all processes that have the socket: a waiting accept(2) fails with `EINVAL`, and
    /// connections that were not accepted are refused.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn end(&self) -> io::Result<()> {
        Ok(net::shutdown(&self.listening, net::Shutdown::Both)?)
    }
}

/// Makes reads and writes of this open file blocking or non-blocking, for all processes that share it.
///
/// # Errors
/// As fcntl(2).
pub fn set_waiting(fd: &OwnedFd, wait: bool) -> io::Result<()> {
    let mut flags = fs::fcntl_getfl(fd)?;
    flags.set(OFlags::NONBLOCK, !wait);
    Ok(fs::fcntl_setfl(fd, flags)?)
}

impl From<Refused> for UnixError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Io(error) => Self::Io(error),
            Refused::Unsafe {
                what: Hazard::Symlink,
                ..
            } => Self::Unsafe(refused.to_string()),
            Refused::Unsafe { .. } => Self::NotASocket,
        }
    }
}

impl From<Errno> for UnixError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

fn listen(socket: &OwnedFd, backlog: u32) -> Result<(), Errno> {
    net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
}

fn tcp_socket(address: SocketAddr, ipv6only: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Connections of an earlier run in TIME_WAIT must not prevent a start.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, ipv6only)?;
    }
    Ok(socket)
}

fn unix_socket(non_blocking: bool) -> Result<OwnedFd, Errno> {
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, non_blocking);
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket without a listener.
fn remove_stale(place: &Place) -> Result<(), UnixError> {
    let name = match Name::open(place) {
        Err(UnixError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        name => name?,
    };
    match net::connect(unix_socket(true)?, &name.address()?) {
        Err(Errno::CONNREFUSED) => {}
        // EAGAIN: its queue is full; EPROTOTYPE: another kind of socket; EACCES: not known.
        Ok(()) | Err(_) => return Err(UnixError::InUse),
    }
    // The checked socket must be the removed one, in case another program started meanwhile.
    let now = fs::statat(place.at(), &*place.name, AtFlags::SYMLINK_NOFOLLOW)?;
    if id(&now) != name.id() {
        return Err(UnixError::InUse);
    }
    Ok(fs::unlinkat(place.at(), &*place.name, AtFlags::empty())?)
}

/// An open handle of a socket's name: what is done by it is done to that socket, wherever its path leads meanwhile.
#[derive(Debug)]
struct Name {
    handle: OwnedFd,
    found: Stat,
}

impl Name {
    fn open(place: &Place) -> Result<Name, UnixError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = fs::openat(place.at(), &*place.name, flags, Mode::empty())?;
        let found = fs::fstat(&handle)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Socket => Ok(Name { handle, found }),
            _ => Err(UnixError::NotASocket),
        }
    }

    fn id(&self) -> FileId {
        id(&self.found)
    }

    /// The link in /proc leads to the socket itself (proc_pid_fd(5)).
    fn link(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.handle.as_raw_fd()).into()
    }

    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new(self.link())
    }

    /// Whether it is the name of this socket, to which only our user can connect.
    fn is_of(&self, listening: &OwnedFd) -> Result<bool, UnixError> {
        let probe = unix_socket(true)?;
        if net::connect(&probe, &self.address()?).is_err() {
            return Ok(false);
        }
        Ok(net::accept(listening).is_ok())
    }

    fn set(&self, rights: &Rights) -> Result<(), UnixError> {
        self.set_owner(rights.uid, rights.gid)?;
        match rights.has_acl() {
            // It also sets the mode.
            true => self.set_acl(Some(&encode_acl(rights))),
            false => {
                self.set_acl(None)?;
                self.set_mode(rights.mode)
            }
        }
    }

    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), UnixError> {
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        fs::chownat(&self.handle, "", uid, gid, AtFlags::EMPTY_PATH)
            .map_err(|error| UnixError::Owner(error.into()))
    }

    fn set_mode(&self, mode: u32) -> Result<(), UnixError> {
        Ok(fs::chmod(self.link(), Mode::from_raw_mode(mode & 0o777))?)
    }

    /// `None`: there is none.
    fn acl(&self) -> Result<Option<Vec<u8>>, UnixError> {
        let mut list = vec![0; LONGEST_ACL];
        match fs::getxattr(self.link(), ACL_NAME, &mut list[..]) {
            Ok(length) => {
                list.truncate(length);
                Ok(Some(list))
            }
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(UnixError::Acl(error.into())),
        }
    }

    fn set_acl(&self, list: Option<&[u8]>) -> Result<(), UnixError> {
        let set = match list {
            Some(list) => fs::setxattr(self.link(), ACL_NAME, list, XattrFlags::empty()),
            None => match fs::removexattr(self.link(), ACL_NAME) {
                Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
                removed => removed,
            },
        };
        set.map_err(|error| UnixError::Acl(error.into()))
    }
}

/// Bytes of the longest value of an extended attribute (xattr(7)).
const LONGEST_ACL: usize = 64 << 10;

/// Encodes an access control list for the kernel (linux/posix_acl_xattr.h): a version, then tag, permissions and id
/// of each entry, ordered by tag and id, little-endian. The mask allows everything that a group or named user may do.
fn encode_acl(rights: &Rights) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    const READ_WRITE: u16 = 0o6;
    let of_mode = |shift: u32| (rights.mode >> shift) as u16 & 0o7;
    let named = |tag: u16, ids: &[u32]| {
        let ids = std::collections::BTreeSet::from_iter(ids.iter().copied());
        ids.into_iter().map(move |id| (tag, READ_WRITE, id))
    };
    let mut entries = vec![(0x01, of_mode(6), NOBODY)];
    entries.extend(named(0x02, &rights.acl_users));
    entries.push((0x04, of_mode(3), NOBODY));
    entries.extend(named(0x08, &rights.acl_groups));
    entries.push((0x10, of_mode(3) | READ_WRITE, NOBODY));
    entries.push((0x20, of_mode(0), NOBODY));
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::TcpStream,
        os::unix::{
            fs::{FileTypeExt, MetadataExt, symlink},
            net::{UnixListener, UnixStream},
        },
    };

    const OURS: &Rights = &Rights {
        uid: None,
        gid: None,
        mode: 0o620,
        acl_users: Vec::new(),
        acl_groups: Vec::new(),
    };

    #[test]
    fn an_access_control_list_is_set_and_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let rights = Rights {
            acl_users: vec![12, 11, 12],
            acl_groups: vec![7],
            ..OURS.clone()
        };
        let (_socket, file) = unix(&path, 8, &rights, &[]).unwrap();
        let mut value = [0; 128];
        let length = fs::lgetxattr(&path, ACL_NAME, &mut value).unwrap();
        let entry =
            |tag: u8, permissions: u8, id: [u8; 4]| [&[tag, 0, permissions, 0][..], &id].concat();
        let expected = [
            vec![2, 0, 0, 0],
            entry(1, 6, [0xff; 4]),
            entry(2, 6, [11, 0, 0, 0]),
            entry(2, 6, [12, 0, 0, 0]),
            entry(4, 2, [0xff; 4]),
            entry(8, 6, [7, 0, 0, 0]),
            entry(16, 6, [0xff; 4]),
            entry(32, 0, [0xff; 4]),
        ];
        assert_eq!(value[..length], expected.concat());
        let before = change_rights(&path, file, OURS).unwrap();
        let with_list = |value: &mut [u8; 128]| fs::lgetxattr(&path, ACL_NAME, &mut value[..]);
        assert_eq!(with_list(&mut value), Err(Errno::NODATA));
        before.put_back().unwrap();
        assert_eq!(with_list(&mut value), Ok(expected.concat().len()));
        assert_eq!(value[..length], expected.concat());
        change_rights(&path, file, OURS).unwrap();
        assert_eq!(
            fs::lgetxattr(&path, ACL_NAME, &mut value),
            Err(Errno::NODATA)
        );
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o620);
    }

    #[test]
    fn sockets_of_one_address_share_its_port_and_strangers_cannot_join() {
        let sockets = tcp("127.0.0.1:0".parse().unwrap(), true, 16, 3, true).unwrap();
        let address = tcp_address(&sockets[0]).unwrap();
        for socket in &sockets {
            assert_eq!(tcp_address(socket).unwrap(), address);
        }
        TcpStream::connect(address).unwrap();
        let error = tcp(address, true, 16, 1, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        tcp(address, true, 16, 2, false).unwrap();
    }

    #[test]
    fn connections_reach_every_socket_that_shares_the_port() {
        let sockets = tcp("127.0.0.1:0".parse().unwrap(), true, 64, 2, true).unwrap();
        let address = tcp_address(&sockets[0]).unwrap();
        let _clients: Vec<_> = (0..40)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for socket in &sockets {
            rustix::net::accept(socket).expect("each socket gets its share");
        }
    }

    #[test]
    fn a_unix_socket_has_its_mode_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (socket, _) = unix(&path, 8, OURS, &[]).unwrap();
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.mode() & 0o7777, 0o620);
        UnixStream::connect(&path).unwrap();
        assert!(matches!(unix(&path, 8, OURS, &[]), Err(UnixError::InUse)));
        drop(socket);
        unix(&path, 8, OURS, &[]).unwrap();
    }

    #[test]
    fn a_private_socket_that_was_ended_lets_nobody_wait() {
        let dir = tempfile::tempdir().unwrap();
        let private = Private::new(dir.path(), 1).unwrap();
        private.end().unwrap();
        private.end().unwrap();
        assert_eq!(net::accept(&private.listening).unwrap_err(), Errno::INVAL);
        let error = private.connect().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_private_socket_leaves_no_name_and_can_be_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let private = Private::new(dir.path(), 1).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let connection = private.connect().unwrap();
        let accepted = rustix::net::accept(&private.listening).unwrap();
        rustix::io::write(&accepted, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&connection, &mut byte).unwrap(), 1);
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(
            unix(&path, 8, OURS, &[]),
            Err(UnixError::NotASocket)
        ));
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(
            unix(&link, 8, OURS, &[]),
            Err(UnixError::NotASocket)
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
        let (_socket, file) = unix(&dir.path().join("s"), 8, OURS, &[]).unwrap();
        assert!(change_rights(&link, file, OURS).is_err());
        let long = dir.path().join("x".repeat(120));
        assert!(matches!(unix(&long, 8, OURS, &[]), Err(UnixError::TooLong)));
    }
    /// Its folder is one of root's in /run: `None` for other users.
    fn folder_of_others() -> Option<tempfile::TempDir> {
        if !weir_test::goes_on_as_root() {
            return None;
        }
        let folder = tempfile::tempdir_in("/run").unwrap();
        for name in ["of-others", "other", "root"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let nobody = Some(Uid::from_raw(65_534));
        fs::chown(folder.path().join("of-others"), nobody, None).unwrap();
        Some(folder)
    }

    /// What others may tell by a socket.
    fn rights(path: &Path) -> (u32, u32, u32) {
        let about = std::fs::symlink_metadata(path).unwrap();
        (about.uid(), about.gid(), about.mode() & 0o777)
    }

    #[test]
    fn whoever_owns_a_folder_on_the_way_cannot_have_the_rights_of_other_sockets_changed() {
        let Some(folder) = folder_of_others() else {
            return;
        };
        let at = |path: &str| folder.path().join(path);
        let given = Rights {
            uid: Some(65_534),
            gid: Some(65_534),
            mode: 0o666,
            ..OURS.clone()
        };
        let (_victim, _) = unix(&at("other/s"), 8, OURS, &[]).unwrap();
        let before = rights(&at("other/s"));
        // A link in place of the folder.
        std::fs::create_dir(at("of-others/run")).unwrap();
        let (_own, file) = unix(&at("of-others/run/s"), 8, &given, &[]).unwrap();
        assert_eq!(rights(&at("of-others/run/s")), (65_534, 65_534, 0o666));
        std::fs::rename(at("of-others/run"), at("of-others/away")).unwrap();
        symlink(at("other"), at("of-others/run")).unwrap();
        assert!(change_rights(&at("of-others/run/s"), file, &given).is_err());
        crate::file::remove_same(&at("of-others/run/s"), file, false).unwrap();
        assert_eq!(rights(&at("other/s")), before);
        // Behind such a link, no stale socket of another user is removed, and no socket is made.
        drop(UnixListener::bind(at("other/stale")).unwrap());
        for name in ["stale", "new", "s"] {
            let made = unix(&at("of-others/run").join(name), 8, &given, &[]);
            assert!(
                matches!(made, Err(UnixError::Unsafe(_))),
                "{name}: {made:?}"
            );
        }
        assert!(at("other/stale").exists() && !at("other/new").exists());
        // Root's links are followed.
        symlink(at("other"), at("root/link")).unwrap();
        unix(&at("root/link/new"), 8, &given, &[]).unwrap();
        assert_eq!(rights(&at("other/new")), (65_534, 65_534, 0o666));
    }

    #[test]
    fn a_socket_that_is_swapped_while_it_is_made_keeps_its_rights() {
        let Some(folder) = folder_of_others() else {
            return;
        };
        let run = folder.path().join("of-others");
        let (_victim, _) = unix(&folder.path().join("other/s"), 8, OURS, &[]).unwrap();
        let victim = run.join("victim");
        std::fs::hard_link(folder.path().join("other/s"), &victim).unwrap();
        let before = rights(&victim);
        let given = Rights {
            uid: Some(65_534),
            mode: 0o666,
            ..OURS.clone()
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let mut refused = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(relaxed) {
                    // The victim's file replaces the socket that was made there.
                    let _ = std::fs::hard_link(&victim, run.join("next"));
                    if run.join("s").exists() {
                        let _ = std::fs::rename(run.join("next"), run.join("s"));
                    }
                    let _ = std::fs::remove_file(run.join("s"));
                }
            });
            for _ in 0..2_000 {
                match unix(&run.join("s"), 8, &given, &[]) {
                    Err(UnixError::Unsafe(_)) => refused += 1,
                    Ok(_) | Err(UnixError::InUse | UnixError::Io(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            done.store(true, relaxed);
        });
        assert_eq!(rights(&victim), before, "{refused} swaps were seen");
    }
}
