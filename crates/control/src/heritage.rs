//! What a gateway gets from the manager, as it uses it.

use std::{
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use super::{Channel, EgressGiven, NameFiles, Reactors, TlsGiven, path_inside};

/// Everything that a gateway gets. It has nothing else.
#[derive(Debug)]
pub struct Heritage {
    /// What to serve.
    pub config: weir_config::Config,
    /// Cores of the machine.
    pub cores: usize,
    /// The reactors. Those that accept have their own sockets in `listeners`.
    pub reactors: Reactors,
    /// Index into `config.listeners`, reactor, listening socket. A reactor may have several sockets of one listener.
    pub listeners: Vec<(u16, u16, OwnedFd)>,
    /// The access log; `None`: no log.
    pub access_log: Option<OwnedFd>,
    /// Index into `config.pools`, and the pool's log in PHP-FPM's format.
    pub pool_logs: Vec<(u16, OwnedFd)>,
    /// The log for the application's calls; `None`: no log, or the access log.
    pub egress_log: Option<OwnedFd>,
    /// The error log; `None`: no log.
    pub error_log: Option<OwnedFd>,
    /// The folder for spooled bodies.
    pub spool_dir: Option<OwnedFd>,
    /// Whether to write each step of each request to stderr.
    pub trace: bool,
    /// The folder of the gateway's chroot; paths in `config` are as seen from outside.
    pub chroot: Option<PathBuf>,
    /// Folders and files outside of `chroot` that were opened before, by their path in `config`.
    pub opened: Vec<(PathBuf, OwnedFd)>,
    /// The files by which this machine resolves names.
    pub names: NameFiles,
    /// The last known addresses of servers' names.
    pub addresses: Vec<(String, Vec<IpAddr>)>,
    /// The admin interface.
    pub admin: AdminSockets,
    /// The password for the server of `bus`; `None`: there is none.
    pub bus_password: Option<String>,
    /// What the egress needs; `None`: `config` has no `[egress]`.
    pub egress: Option<EgressGiven>,
    /// What TLS needs; `None`: no listener has it.
    pub tls: Option<TlsGiven>,
    /// To the manager. `Worker` and the messages after it come from here.
    pub control: Channel,
}

/// The sockets of the admin interface.
#[derive(Debug, Default)]
pub struct AdminSockets {
    /// Its listening unix socket; `None`: there is none.
    pub unix: Option<OwnedFd>,
    /// Its listening TCP socket; `None`: there is none.
    pub tcp: Option<OwnedFd>,
    /// The token for actions over TCP; `None`: actions are not possible there.
    pub token: Option<String>,
}

impl Heritage {
    /// Opens a folder of the configuration, also if the gateway is in a chroot.
    ///
    /// # Errors
    /// As open(2); `NotFound` for a folder outside of the chroot that did not exist when the gateway started.
    pub fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.given(path) {
            Some(folder) => folder.try_clone(),
            None => weir_sys::file::open_dir(&self.inside(path)?),
        }
    }

    /// The path of the configuration as seen inside `chroot`.
    ///
    /// # Errors
    /// `NotFound` for paths outside of it.
    pub fn inside(&self, path: &Path) -> io::Result<PathBuf> {
        match &self.chroot {
            None => Ok(path.to_owned()),
            Some(chroot) => path_inside(chroot, path).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!(
                        "{} is not inside the chroot {}",
                        path.display(),
                        chroot.display()
                    ),
                )
            }),
        }
    }

    fn given(&self, path: &Path) -> Option<&OwnedFd> {
        let found = self.opened.iter().find(|(name, _)| name == path)?;
        Some(&found.1)
    }
}
