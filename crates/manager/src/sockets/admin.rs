//! The sockets of the admin interface: the manager binds them, the gateway answers on them, and they are kept
//! across reloads. Also the token for access over TCP.

use std::{
    fs, io,
    net::SocketAddr,
    os::fd::OwnedFd,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_config::SocketPath;
use weir_control::ToGateway;
use weir_observe::error_log::{self, Format};
use weir_sys::{
    file::{self, FileId},
    listener::{self, Rights, UnixError},
};

use super::own_path::{OwnFolder, OwnPath};
use crate::{Loaded, generation::plan::Problem, output::banner};

/// All sockets of the admin interface.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdminListeners {
    unix: Option<AdminSocket>,
    tcp: Option<Rc<BoundTcp>>,
    token: Option<String>,
}

#[derive(Debug)]
struct BoundTcp {
    wanted: SocketAddr,
    socket: OwnedFd,
}

/// The unix socket of another weir: its path, the path's identity, and the socket.
pub(crate) type TakenUnix = (PathBuf, Option<FileId>, OwnedFd);

/// The unix socket's path, the path's identity, and the socket.
type UnixPart<'a> = (&'a Path, Option<FileId>, &'a OwnedFd);

/// The unix socket.
#[derive(Debug, Clone)]
struct AdminSocket {
    path: PathBuf,
    socket: Rc<OwnedFd>,
    /// The path, if we have created it.
    name: Option<Rc<OwnPath>>,
}

impl AdminSocket {
    /// Opens the configured socket, or keeps that of `before` if it is the same. If the default one
    /// cannot be opened, for example because another weir of the same user has it, weir runs
    /// without it.
    fn open(
        wanted: &SocketPath,
        before: Option<&Self>,
        groups: &[u32],
    ) -> Result<Option<Self>, Problem> {
        let path = match wanted {
            SocketPath::Off => return Ok(None),
            SocketPath::At(path) => path.clone(),
            SocketPath::Default => match weir_machine::default_admin_socket() {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        if let Some(before) = before.filter(|before| before.path == path) {
            if file::named(&path) == before.file() {
                return Ok(Some(before.clone()));
            }
            log::warn!(
                "the socket {} of the admin interface was removed or replaced; it is created again",
                path.display()
            );
        }
        let usual = *wanted == SocketPath::Default;
        let folder = usual.then(|| OwnFolder::of(&path)).flatten();
        match listener::unix(&path, BACKLOG, &OWNER_ALONE, groups) {
            Ok((socket, file)) => Ok(Some(Self {
                name: Some(OwnPath::new(&path, file, folder)),
                path,
                socket: Rc::new(socket),
            })),
            Err(error) if usual => {
                let shown = path.display();
                // PHP-FPM has no admin interface, so its format has no message about it.
                let level = match error_log::format() {
                    Format::Weir => log::Level::Info,
                    Format::Fpm => log::Level::Debug,
                };
                match error {
                    UnixError::InUse => log::log!(
                        level,
                        "another weir already uses the admin interface {shown}; give this weir another address with --admin unix:PATH"
                    ),
                    error => {
                        let cause = cause(&path, &error);
                        log::log!(
                            level,
                            "weir runs without an admin interface: {shown}: {cause}"
                        )
                    }
                }
                Ok(None)
            }
            Err(error) => Err(Problem::new(
                "server.admin",
                format!("{}: {}", path.display(), cause(&path, &error)),
                mend(&error),
            )),
        }
    }

    /// The identity of its path, if we have created it.
    fn file(&self) -> Option<FileId> {
        self.name.as_ref().map(|name| name.file)
    }
}

fn cause(path: &Path, error: &UnixError) -> String {
    match error {
        UnixError::InUse => match listener::owner(path) {
            Some(pid) => format!("another program is listening there: process {pid}"),
            None => "another program is listening there".into(),
        },
        UnixError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            "its folder does not exist".into()
        }
        UnixError::NotASocket => "a file that is not a socket exists there".into(),
        UnixError::TooLong => "the path is too long for a socket".into(),
        UnixError::Unsafe(text) => text.clone(),
        UnixError::Owner(error) | UnixError::Acl(error) | UnixError::Io(error) => error.to_string(),
    }
}

fn mend(error: &UnixError) -> &'static str {
    match error {
        UnixError::InUse => "if that is another weir, use another path here, or stop it first",
        UnixError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            "create the folder; with systemd: RuntimeDirectory=weir"
        }
        UnixError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "give the user who starts weir write access to its folder, or use another path"
        }
        _ => "use another path, or write admin = \"off\"",
    }
}

impl AdminListeners {
    /// Opens the configured sockets: those of `before` if they are the same, otherwise new ones.
    pub(crate) fn open(
        loaded: &Loaded,
        before: Option<&Self>,
        groups: &[u32],
    ) -> Result<Self, Problem> {
        let server = &loaded.config.server;
        let token = server.admin_token_file.as_deref().map(token).transpose()?;
        let before_unix = before.and_then(|before| before.unix.as_ref());
        let unix = AdminSocket::open(loaded.admin(), before_unix, groups)?;
        let tcp = loaded.admin_tcp().map(|wanted| {
            let same = before.and_then(|before| before.tcp.as_ref());
            match same.filter(|before| before.wanted == wanted) {
                Some(same) => Ok(same.clone()),
                None => BoundTcp::open(wanted).map(Rc::new),
            }
        });
        let tcp = tcp.transpose()?;
        if let Some(tcp) = &tcp
            && !tcp.wanted.ip().is_loopback()
            && token.is_none()
        {
            log::warn!(
                "server.admin_tcp: other machines can reach {} and get metrics, but no status, so the page is \
                 empty for them: set admin_token_file",
                tcp.wanted
            );
        }
        Ok(Self { unix, tcp, token })
    }

    /// The sockets of the weir before this one, which still has them.
    pub(crate) fn taken_over(unix: Option<TakenUnix>, tcp: Option<(SocketAddr, OwnedFd)>) -> Self {
        let unix = unix.map(|(path, file, socket)| AdminSocket {
            name: file.map(|file| OwnPath::of_other(&path, file)),
            path,
            socket: Rc::new(socket),
        });
        let tcp = tcp.map(|(wanted, socket)| Rc::new(BoundTcp { wanted, socket }));
        Self {
            unix,
            tcp,
            token: None,
        }
    }

    /// The sockets, for another weir: the unix one with its path and the path's identity, the TCP one with its address.
    pub(crate) fn parts(&self) -> (Option<UnixPart<'_>>, Option<(SocketAddr, &OwnedFd)>) {
        let unix = self.unix.as_ref();
        (
            unix.map(|unix| (unix.path.as_path(), unix.file(), &*unix.socket)),
            self.tcp.as_ref().map(|tcp| (tcp.wanted, &tcp.socket)),
        )
    }

    /// For the banner: how to ask this weir for its status, and the page for browsers. `file`: its configuration.
    pub(crate) fn shown(&self, file: Option<&str>) -> String {
        let unix = self.unix.as_ref().map(|unix| unix.path.as_path());
        let command = match (unix, file) {
            (Some(path), _) if weir_machine::default_admin_socket().as_deref() == Some(path) => {
                Some("weir status".to_owned())
            }
            (Some(_), Some(file)) => Some(format!("weir status -c {file}")),
            (Some(path), None) => Some(format!("weir status --admin unix:{}", path.display())),
            (None, _) => None,
        };
        let page = self.tcp.as_ref().map(|tcp| {
            let address = listener::tcp_address(&tcp.socket).unwrap_or(tcp.wanted);
            banner::url(address)
        });
        match (command, page) {
            (Some(command), Some(page)) => format!("{command}, or {page}"),
            (Some(command), None) => {
                format!("{command} (--admin 127.0.0.1:9180 adds a page for browsers)")
            }
            (None, Some(page)) => page,
            (None, None) => "not available: there is no admin interface".to_owned(),
        }
    }

    /// Sets whether the unix socket's path is removed together with the socket, or belongs to another weir.
    pub(crate) fn set_ours(&self, is_ours: bool) {
        let name = self.unix.as_ref().and_then(|unix| unix.name.as_ref());
        if let Some(name) = name {
            name.set_ours(is_ours);
        }
    }

    /// The messages for the gateway.
    pub(crate) fn messages(&self) -> io::Result<Vec<ToGateway>> {
        let mut messages = Vec::new();
        if let Some(unix) = &self.unix {
            messages.push(ToGateway::AdminUnix(unix.socket.try_clone()?));
        }
        if let Some(tcp) = &self.tcp {
            messages.push(ToGateway::AdminTcp(tcp.socket.try_clone()?));
            messages.extend(self.token.clone().map(ToGateway::AdminToken));
        }
        Ok(messages)
    }
}

impl BoundTcp {
    fn open(wanted: SocketAddr) -> Result<Self, Problem> {
        let problem = |error: io::Error| {
            Problem::new(
                "server.admin_tcp",
                format!("{wanted}: {error}"),
                "use another address, or remove it: the unix socket works without it",
            )
        };
        let mut sockets = listener::tcp(wanted, true, TCP_BACKLOG, 1, true).map_err(problem)?;
        let socket = sockets
            .pop()
            .ok_or_else(|| problem(io::ErrorKind::AddrNotAvailable.into()))?;
        if wanted.port() == 0
            && let Ok(address) = listener::tcp_address(&socket)
        {
            log::info!("the admin interface is on {address}");
        }
        Ok(Self { wanted, socket })
    }
}

/// Reads the token from a file.
fn token(path: &Path) -> Result<String, Problem> {
    let shown = path.display();
    let problem = |cause: String, mend: &str| {
        Problem::new("server.admin_token_file", format!("{shown}: {cause}"), mend)
    };
    let make = "create one: openssl rand -hex 32";
    let text = fs::read_to_string(path).map_err(|error| problem(error.to_string(), make))?;
    let token = text.trim();
    let fits = (TOKEN_LEAST..=TOKEN_MOST).contains(&token.len());
    if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let cause = format!(
            "a token has {TOKEN_LEAST} to {TOKEN_MOST} characters without spaces, of ASCII"
        );
        return Err(problem(cause, make));
    }
    let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o007 != 0) {
        log::warn!("server.admin_token_file: everybody can read {shown}: chmod 600 {shown}");
    }
    Ok(token.to_owned())
}

/// Minimum number of characters of a token.
const TOKEN_LEAST: usize = 16;

/// Maximum number of characters of a token.
const TOKEN_MOST: usize = 4096;

/// Backlog of the TCP socket.
const TCP_BACKLOG: u32 = 128;

/// Backlog of the unix socket.
const BACKLOG: u32 = 16;

/// Only the user who started weir may use it.
const OWNER_ALONE: Rights = Rights {
    uid: None,
    gid: None,
    mode: 0o600,
    acl_users: Vec::new(),
    acl_groups: Vec::new(),
};
