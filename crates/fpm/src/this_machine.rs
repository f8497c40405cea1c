//! This machine, as PHP-FPM's configuration asks about it.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::Path,
    sync::{Mutex, PoisonError},
};

use weir_config::fpm::{System, User};
use weir_sys::{
    glob, identity, limits, listener,
    log_file::{self, Refused},
};

/// See [`System`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ThisMachine;

impl System for ThisMachine {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32> {
        let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        Ok(glob::files(pattern)?.into_iter().map(text).collect())
    }

    fn is_folder(&self, path: &str) -> bool {
        Path::new(path).is_dir()
    }

    fn try_log(&self, path: &str) -> io::Result<()> {
        // Only the owner may read the file, as in PHP-FPM.
        match log_file::open(Path::new(path), 0o600, &[]) {
            Ok(_) => Ok(()),
            Err(Refused::Io(error)) => Err(error),
            Err(refused) => Err(io::Error::other(refused)),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn is_root(&self) -> bool {
        identity::is_root()
    }

    fn raises_limits(&self) -> bool {
        limits::may_raise_limits()
    }

    fn user(&self, name: &str) -> Option<User> {
        identity::user(name).ok().flatten().map(known)
    }

    fn current_user(&self) -> Option<User> {
        let (uid, _) = identity::current();
        identity::user_by_id(uid).ok().flatten().map(known)
    }

    fn group(&self, name: &str) -> Option<u32> {
        identity::group(name).ok().flatten()
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        if host == "*" {
            // getaddrinfo(3) takes `*` for no name, which means this machine. The address of a family that this machine
            // has comes first.
            let v6 = listener::try_tcp((Ipv6Addr::LOCALHOST, 0).into(), false).is_ok();
            let mut both = vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
            if !v6 {
                both.reverse();
            }
            return Ok(both);
        }
        let found = (host, 0_u16).to_socket_addrs();
        let addresses = found.map_err(|error| {
            let text = error.to_string();
            let reason = text.rsplit(": ").next().unwrap_or(&text);
            reason.to_owned()
        })?;
        Ok(addresses.map(|address| address.ip()).collect())
    }

    fn try_listen(&self, address: SocketAddr) -> io::Result<()> {
        let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        if !ours.contains(&address) {
            listener::try_tcp(address, false)?;
            ours.insert(address);
        }
        Ok(())
    }
}

/// Addresses that were free at the first check and that we use since then: a reload checks them again.
static OURS: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());

fn known(user: identity::User) -> User {
    User {
        name: user.name,
        uid: user.uid,
        gid: user.gid,
        home: user.home.to_string_lossy().into_owned(),
    }
}
