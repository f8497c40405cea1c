//! Parses listeners on the command line to a [`Target`], and finds their listening sockets.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

use weir_sys::sock_diag::{self, Listener, Name, UnixFile};

/// A listener as given by a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every TCP socket of this port.
    Port(u16),
    /// TCP: the listener that a connection to one of these addresses would reach.
    Tcp(String, Vec<SocketAddr>),
    /// A unix socket by its path, absolute.
    Path(PathBuf),
    /// A unix socket in the abstract namespace: its bytes without the zero before them.
    Abstract(Vec<u8>),
}

/// Why a target cannot be watched.
#[derive(Debug)]
pub enum Absent {
    /// Nobody listens there now.
    Nobody,
    /// The file does not exist.
    NoFile,
    /// The file is not a socket.
    NotASocket,
    /// The file may not be inspected.
    Barred(io::Error),
}

impl Target {
    /// Reads `host:port`, `:port`, `[::]:port`, `unix:PATH`, a path, `@NAME` or `unix:@NAME`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text
            .strip_prefix("unix:@")
            .or_else(|| text.strip_prefix('@'))
        {
            return Ok(Self::Abstract(name.as_bytes().to_owned()));
        }
        let path = text.strip_prefix("unix:");
        let path = path.or_else(|| Some(text).filter(|text| text.contains('/')));
        if let Some(path) = path {
            return match std::path::absolute(path) {
                Ok(path) => Ok(Self::Path(path)),
                Err(_) => Err("a path is missing: unix:/run/php/php-fpm.sock".into()),
            };
        }
        let port = text.strip_prefix("*:").or_else(|| text.strip_prefix(':'));
        let port =
            port.or_else(|| Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit())));
        if let Some(port) = port {
            return match port.parse() {
                Ok(port) if port > 0 => Ok(Self::Port(port)),
                _ => Err(format!(
                    "{port:?} is not a port: write a number from 1 to 65535"
                )),
            };
        }
        match text.to_socket_addrs() {
            Ok(addresses) => {
                let addresses: Vec<SocketAddr> = addresses.collect();
                match addresses.iter().any(|address| address.port() == 0) {
                    true => Err("port 0 cannot be used: write a number from 1 to 65535".into()),
                    false => Ok(Self::Tcp(text.to_owned(), addresses)),
                }
            }
            Err(error) => Err(format!(
                "{error}; write host:port, :port, [::1]:port, unix:PATH, /PATH or @NAME"
            )),
        }
    }

    /// The indices of the matching `listeners`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, listeners: &[Listener]) -> Result<Vec<usize>, Absent> {
        let found = match self {
            Self::Port(port) => places(
                listeners,
                |l| matches!(l.name, Name::Tcp(address, _) if address.port() == *port),
            ),
            Self::Tcp(_, addresses) => {
                let of = |address: &SocketAddr| reached(*address, listeners);
                let mut found: Vec<usize> = addresses.iter().flat_map(of).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
            Self::Abstract(name) => places(
                listeners,
                |l| matches!(&l.name, Name::Abstract(other) if other == name),
            ),
            Self::Path(path) => return at_path(path, listeners),
        };
        match found.is_empty() {
            true => Err(Absent::Nobody),
            false => Ok(found),
        }
    }
}

/// In the notation of the command line.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, ":{port}"),
            Self::Tcp(typed, _) => f.write_str(typed),
            Self::Path(path) => f.write_str(&shown(path.as_os_str().as_bytes(), "unix:")),
            Self::Abstract(name) => f.write_str(&shown(name, "@")),
        }
    }
}

/// With advice.
impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str(
                "nothing is listening there. A program in a container is in another network namespace: use nsenter --net -t ITS_PID weir watch ...",
            ),
            Self::NoFile => f.write_str("this file does not exist"),
            Self::NotASocket => f.write_str("this is a file, not a socket"),
            Self::Barred(error) => {
                write!(f, "{error}; run this as root, or as a user who can enter that folder")
            }
        }
    }
}

/// A listener's address in the notation of the command line.
pub fn name(name: &Name) -> String {
    match name {
        // A socket that also accepts IPv4 is written as ss(8) does.
        Name::Tcp(address, true) if address.ip().is_unspecified() => {
            format!("*:{}", address.port())
        }
        Name::Tcp(address, _) => address.to_string(),
        Name::Path(path) => shown(path.as_os_str().as_bytes(), "unix:"),
        Name::Abstract(name) => shown(name, "@"),
        Name::Unnamed => "unix: needs a name".into(),
    }
}

/// Names are bytes of other programs: they must not move the cursor or change colours.
fn shown(bytes: &[u8], before: &str) -> String {
    let text = String::from_utf8_lossy(bytes);
    format!("{before}{}", weir_observe::log_text::shown(&text))
}

fn places(listeners: &[Listener], is: impl Fn(&Listener) -> bool) -> Vec<usize> {
    let places = listeners.iter().enumerate().filter(|(_, l)| is(l));
    places.map(|(place, _)| place).collect()
}

/// The socket that a connection to `wanted` reaches: the one with that address, otherwise one with a wildcard
/// address.
fn reached(wanted: SocketAddr, listeners: &[Listener]) -> Vec<usize> {
    let wanted = SocketAddr::new(wanted.ip().to_canonical(), wanted.port());
    let at = |ip: IpAddr, for_ipv4: bool| {
        places(listeners, |listener| match listener.name {
            Name::Tcp(address, dual) => {
                let same = address.ip().to_canonical() == ip
                    || (ip.is_unspecified() && address.ip() == ip);
                same && address.port() == wanted.port() && (dual || !for_ipv4)
            }
            _ => false,
        })
    };
    let any4 = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let any6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let mut ways = vec![at(wanted.ip(), false)];
    if wanted.is_ipv4() {
        ways.push(at(any4, false));
        ways.push(at(any6, true));
    } else {
        ways.push(at(any6, false));
    }
    ways.into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// The listener at a path: the socket of that file, whatever path it was bound to. If the file may not be inspected,
/// or its file system has its own inode numbers (overlays), the path decides.
fn at_path(path: &Path, listeners: &[Listener]) -> Result<Vec<usize>, Absent> {
    let real = std::fs::canonicalize(path);
    let looked = looked_at(path);
    if let Ok(Some(file)) = &looked {
        let found = places(listeners, |listener| listener.file == Some(*file));
        if !found.is_empty() {
            return Ok(found);
        }
    }
    if matches!(looked, Ok(_) | Err(Absent::Barred(_))) {
        let named = |listener: &Listener| match &listener.name {
            Name::Path(other) => other == path || real.as_ref().is_ok_and(|real| other == real),
            _ => false,
        };
        let found = places(listeners, named);
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(looked.err().unwrap_or(Absent::Nobody))
}

fn looked_at(path: &Path) -> Result<Option<UnixFile>, Absent> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(sock_diag::unix_file(path).ok()),
        Ok(_) => Err(Absent::NotASocket),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Absent::Barred(error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Absent::NoFile),
        Err(error) => Err(Absent::Barred(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn listener(name: Name) -> Listener {
        Listener {
            name,
            inode: 1,
            length: 0,
            limit: 128,
            drops: None,
            uid: None,
            file: None,
        }
    }

    fn tcp(address: &str, dual: bool) -> Listener {
        listener(Name::Tcp(address.parse().unwrap(), dual))
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let parse = |text: &str| Target::parse(text).map(|target| target.to_string());
        for (text, same) in [
            (":9000", ":9000"),
            ("9000", ":9000"),
            ("*:9000", ":9000"),
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/a b.sock", "unix:/run/a b.sock"),
            ("/run/php.sock", "unix:/run/php.sock"),
            ("@name", "@name"),
            ("unix:@name", "@name"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(same), "{text}");
        }
        for wrong in [
            "",
            ":",
            ":0",
            ":65536",
            "unix:",
            "127.0.0.1",
            "127.0.0.1:0",
            "nonsense",
            "[::1]",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(Target::parse("./a.sock"), Ok(Target::Path(path)) if path.is_absolute()));
    }

    #[test]
    fn a_connection_reaches_the_nearest_listener() {
        let listeners = [
            tcp("0.0.0.0:80", false),
            tcp("127.0.0.1:80", false),
            tcp("127.0.0.1:80", false),
            tcp("[::]:80", false),
            tcp("[::]:81", true),
        ];
        let find = |text: &str| {
            Target::parse(text)
                .unwrap()
                .find(&listeners)
                .unwrap_or_default()
        };
        assert_eq!(find("127.0.0.1:80"), [1, 2]);
        assert_eq!(find("127.0.0.2:80"), [0]);
        assert_eq!(find("0.0.0.0:80"), [0]);
        assert_eq!(find("[::1]:80"), [3]);
        assert_eq!(find("[::]:80"), [3]);
        assert_eq!(find("127.0.0.1:81"), [4]);
        assert_eq!(find("[::ffff:127.0.0.1]:81"), [4]);
        assert_eq!(find(":80"), [0, 1, 2, 3]);
        assert_eq!(find(":82"), [0; 0]);
        assert_eq!(name(&listeners[4].name), "*:81");
        assert_eq!(name(&listeners[3].name), "[::]:80");
    }

    #[test]
    fn a_path_is_the_file_and_not_the_name_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _socket = UnixListener::bind(&path).unwrap();
        let moved = folder.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        let mut found = listener(Name::Path(path.clone()));
        found.file = Some(sock_diag::unix_file(&moved).unwrap());
        let at = |path: &Path| Target::Path(path.to_owned()).find(&[found.clone()]);
        assert_eq!(at(&moved).unwrap(), [0]);
        assert!(matches!(at(&path), Err(Absent::NoFile)));
        assert!(matches!(at(folder.path()), Err(Absent::NotASocket)));
        let stale = folder.path().join("stale");
        drop(UnixListener::bind(&stale).unwrap());
        assert!(matches!(at(&stale), Err(Absent::Nobody)));
    }

    #[test]
    fn names_cannot_write_to_the_terminal() {
        let name = name(&Name::Abstract(b"a\x1b[31mb\xff".to_vec()));
        assert!(!name.contains('\u{1b}') && name.starts_with("@a"), "{name}");
    }
}
