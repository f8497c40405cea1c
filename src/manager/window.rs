//! The socket of the operator's window: bound by the manager, answered by the gateway, kept over reloads.

use std::{fs, io, os::fd::OwnedFd, os::unix::fs::PermissionsExt, path::PathBuf, rc::Rc};

use weir_config::Window;
use weir_sys::listener::{self, Rights, UnixError};

use super::plan::Problem;
use crate::{
    error_log::{self, Format},
    machine,
};

/// Where operators come in. Its name is removed with the last copy of it.
#[derive(Debug, Clone)]
pub(super) struct WindowSocket(Rc<Bound>);

#[derive(Debug)]
struct Bound {
    path: PathBuf,
    socket: OwnedFd,
}

impl WindowSocket {
    /// The window that is wanted: the one of `before` if it is the same, else a new one. The usual one is done without
    /// where it cannot be had, as where another weir of the same user has it.
    pub(super) fn open(wanted: &Window, before: Option<&Self>) -> Result<Option<Self>, Problem> {
        let path = match wanted {
            Window::Off => return Ok(None),
            Window::At(path) => path.clone(),
            Window::Usual => match machine::usual_window() {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        if let Some(before) = before.filter(|before| before.0.path == path) {
            return Ok(Some(before.clone()));
        }
        let usual = *wanted == Window::Usual;
        if usual && let Some(folder) = path.parent() {
            // What is in the way is told when the socket is bound.
            let _ = make_folder(folder);
        }
        match listener::unix(&path, BACKLOG, &OWNER_ALONE) {
            Ok(socket) => Ok(Some(Self(Rc::new(Bound { path, socket })))),
            Err(error) if usual => {
                let shown = path.display();
                // PHP-FPM has no such window, and says nothing of it.
                let level = match error_log::format() {
                    Format::Weir => log::Level::Info,
                    Format::Fpm => log::Level::Debug,
                };
                match error {
                    UnixError::InUse => log::log!(
                        level,
                        "another weir has the operator's window {shown}; --admin unix:PATH gives this one its own"
                    ),
                    error => {
                        let cause = cause(&error);
                        log::log!(level, "there is no operator's window: {shown}: {cause}")
                    }
                }
                Ok(None)
            }
            Err(error) => Err(Problem::new(
                "server.admin",
                format!("{}: {}", path.display(), cause(&error)),
                "name another path, or write admin = \"off\"",
            )),
        }
    }

    /// For the gateway.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        self.0.socket.try_clone()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Err(error) = weir_sys::file::remove(&self.path) {
            log::warn!("cannot remove the socket {}: {error}", self.path.display());
        }
    }
}

/// Others of the machine have no business in it.
fn make_folder(folder: &std::path::Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

fn cause(error: &UnixError) -> String {
    match error {
        UnixError::InUse => "somebody listens there".into(),
        UnixError::NotASocket => "there is something that is no socket".into(),
        UnixError::TooLong => "the path is too long for a socket".into(),
        UnixError::Owner(error) | UnixError::Acl(error) | UnixError::Io(error) => error.to_string(),
    }
}

/// Operators that wait to be let in.
const BACKLOG: u32 = 16;

/// Who started weir may do with it as they like, and nobody else.
const OWNER_ALONE: Rights = Rights {
    uid: None,
    gid: None,
    mode: 0o600,
    acl_users: Vec::new(),
    acl_groups: Vec::new(),
};
