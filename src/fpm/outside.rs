//! This machine, as PHP-FPM's configuration asks about it.

use std::{
    fs, io,
    net::{IpAddr, TcpListener, ToSocketAddrs},
    path::Path,
};

use weir_config::fpm::{Outside, User};
use weir_sys::{
    glob, identity, limits,
    log_file::{self, Refused},
};

/// See [`Outside`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ThisMachine;

impl Outside for ThisMachine {
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
        // As PHP-FPM creates its logs: only for their owner.
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
        let found = (host, 0_u16).to_socket_addrs();
        let addresses = found.map_err(|error| {
            let text = error.to_string();
            let reason = text.rsplit(": ").next().unwrap_or(&text);
            reason.to_owned()
        })?;
        Ok(addresses.map(|address| address.ip()).collect())
    }

    fn has_address(&self, address: IpAddr) -> bool {
        TcpListener::bind((address, 0)).is_ok()
    }

    fn has_ipv6(&self) -> bool {
        Path::new("/proc/net/if_inet6").exists()
    }
}

fn known(user: identity::User) -> User {
    User {
        name: user.name,
        uid: user.uid,
        gid: user.gid,
        home: user.home.to_string_lossy().into_owned(),
    }
}
