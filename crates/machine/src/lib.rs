//! The properties of the machine that the check of a configuration needs.

#![forbid(unsafe_code)]

pub mod accounts;
pub mod findings;
pub mod limits;
pub mod links;
pub mod php;

use std::{
    env,
    fs::{self, Metadata},
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use weir_config::{Address, Egress, Machine, Obstacle};
use weir_htpasswd::Users;
use weir_sys::{
    file,
    identity::{self, Identity},
};
use weir_tls::{ClientAuthority, Pair};

/// This machine: its users, PATH, the file system and the kernel's limits.
#[derive(Debug, Clone, Copy)]
pub struct ThisMachine;

/// The default path of the admin socket. `None`: the user has no folder for such sockets.
pub fn default_admin_socket() -> Option<PathBuf> {
    Some(runtime_folder(identity::is_root())?.join("admin.sock"))
}

/// Default path of the workers' socket of the egress. The name contains the first TCP address of
/// `listen`, so it is unique on this machine and the same after each start. `None`: see
/// [`default_admin_socket`].
pub fn usual_egress(egress: &Egress) -> Option<PathBuf> {
    usual_egress_of(egress, identity::is_root())
}

/// As [`usual_egress`]. `root`: root starts weir.
pub fn usual_egress_of(egress: &Egress, root: bool) -> Option<PathBuf> {
    let tcp = egress.listen.iter().find_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    });
    let name = match tcp {
        Some(address) if address != USUAL_EGRESS => {
            format!("egress-{}-{}.sock", address.ip(), address.port())
        }
        _ => "egress.sock".to_owned(),
    };
    Some(runtime_folder(root)?.join(name))
}

/// Where weir notes the times of schedules if `state_dir` does not say it: the folder that systemd has made for weir
/// (systemd.exec(5)), otherwise the one that its package has made.
pub fn usual_state_dir() -> PathBuf {
    let given = env::var_os("STATE_DIRECTORY").unwrap_or_default();
    // There may be several.
    let first = env::split_paths(&given).next().unwrap_or_default();
    match first.is_absolute() {
        true => first,
        false => "/var/lib/weir".into(),
    }
}

/// The folder for weir's own sockets. It may not exist yet.
fn runtime_folder(root: bool) -> Option<PathBuf> {
    let folder = match root {
        true => PathBuf::from("/run"),
        false => {
            PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty())?)
        }
    };
    Some(folder.join("weir"))
}

/// Creates the folder of a default socket. Everybody may enter it: the sockets have their own permissions.
///
/// # Errors
/// As mkdir(2), also if it exists.
pub fn make_runtime_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// Default address of the egress.
const USUAL_EGRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8083);

impl Machine for ThisMachine {
    fn has_user(&self, name: &str) -> bool {
        matches!(identity::user(name), Ok(Some(_)))
    }

    fn has_group(&self, name: &str) -> bool {
        matches!(identity::group(name), Ok(Some(_)))
    }

    fn folder(&self, path: &Path) -> Result<(), Obstacle> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(Obstacle::Absent(format!(
                "{} is not a folder",
                path.display()
            ))),
            Err(error) => Err(obstacle(path, "folder", &error)),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn usual_state_dir(&self) -> PathBuf {
        usual_state_dir()
    }

    fn readable(&self, path: &Path) -> Result<(), Obstacle> {
        // Opening something other than a file could block forever.
        let opened = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(Obstacle::Absent(format!(
                    "{} is not a file",
                    path.display()
                )));
            }
            Ok(_) => fs::File::open(path).map(drop),
            Err(error) => Err(error),
        };
        opened.map_err(|error| obstacle(path, "file", &error))
    }

    fn certificate(&self, chain: &Path, key: &Path) -> Result<Vec<String>, (bool, String)> {
        let read =
            |path: &Path, in_key: bool| fs::read(path).map_err(|error| (in_key, error.to_string()));
        let pair = Pair::read(&read(chain, false)?, &read(key, true)?);
        let pair = pair.map_err(|wrong| (wrong.in_key, wrong.message))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs() as i64);
        Ok(Pair::warnings(&pair.chain, now))
    }

    fn authorities(&self, file: &Path) -> Result<(), String> {
        let text = fs::read(file).map_err(|error| error.to_string())?;
        ClientAuthority::read(&text).map(drop)
    }

    fn users(&self, file: &Path) -> Result<(), Vec<String>> {
        let text = fs::read(file).map_err(|error| vec![error.to_string()])?;
        let users = Users::parse(&text);
        let mut faults: Vec<_> = users
            .faults()
            .iter()
            .map(|fault| fault.to_string())
            .collect();
        if users.is_empty() && faults.is_empty() {
            faults.push("it has no user; add one: htpasswd -B FILE USER".to_owned());
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(faults),
        }
    }

    fn open_to_all(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o006 != 0)
    }

    fn has_variable(&self, name: &str) -> bool {
        env::var(name).is_ok()
    }

    fn real(&self, path: &Path) -> PathBuf {
        fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let runs = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(runs);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let mut candidates = env::split_paths(&path).map(|folder| folder.join(name));
        candidates.find(runs)
    }

    fn barred(&self, path: &Path, user: &str) -> Option<PathBuf> {
        let end = if path.is_file() { 0o4 } else { 0o5 };
        closed_step(
            path,
            &identity_of(user)?,
            |is_end| if is_end { end } else { 0o1 },
        )
    }

    fn link_out(&self, root: &Path) -> Option<(PathBuf, PathBuf)> {
        links::out_of(root).into_iter().next()
    }

    fn may_not_run(&self, program: &Path, user: &str) -> Option<PathBuf> {
        may_not_run(program, &identity_of(user)?)
    }

    fn may_write(&self, path: &Path, user: Option<&str>) -> bool {
        let Some(user) = user else {
            return file::may_write(path);
        };
        let user = identity::user(user).ok().flatten();
        user.and_then(|user| identity::identity(&user, None).ok())
            .is_none_or(|who| may_write(path, &who))
    }

    fn php(&self, version: Option<&str>) -> Result<(), (String, String)> {
        php::find(version).map(drop)
    }

    fn is_root(&self) -> bool {
        identity::is_root()
    }

    fn usual_user(&self) -> Option<String> {
        let known = USUAL_USERS.into_iter().find(|name| self.has_user(name));
        known.map(str::to_owned)
    }

    fn somaxconn(&self) -> Option<u32> {
        weir_sys::limits::somaxconn()
    }
}

/// The first folder on the way to `program`, or the program itself, that does not let `who` execute it. If an access
/// control list adds to the permission bits, it is not one.
pub fn may_not_run(program: &Path, who: &Identity) -> Option<PathBuf> {
    closed_step(program, who, |_| 0o1)
}

fn identity_of(user: &str) -> Option<Identity> {
    let user = identity::user(user).ok()??;
    identity::identity(&user, None).ok()
}

/// The first folder on the way to `path`, or `path` itself, whose permission bits do not give
/// `who` the access that `needed` returns (read 4, write 2, enter 1).
fn closed_step(path: &Path, who: &Identity, needed: impl Fn(bool) -> u32) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let mut way: Vec<&Path> = real.ancestors().collect();
    way.reverse();
    let is_closed = |step: &&Path| {
        let needed = needed(*step == real);
        let is_closed = fs::metadata(step).is_ok_and(|metadata| !may(who, &metadata, needed));
        is_closed && !file::has_access_list(step)
    };
    way.into_iter().find(is_closed).map(Path::to_owned)
}

/// Why a path cannot be used. `what`: what should be there.
fn obstacle(path: &Path, what: &str, error: &io::Error) -> Obstacle {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => Obstacle::Absent(format!("{shown}: this {what} does not exist")),
        ErrorKind::PermissionDenied => Obstacle::Barred(format!("{shown}: permission denied")),
        _ => Obstacle::Absent(format!("{shown}: {error}")),
    }
}

/// Whether `who` may write this file, or create files in this folder. It does not check the folders above. If an
/// access control list adds to the permission bits, the answer is yes.
pub fn may_write(path: &Path, who: &Identity) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        let needed = if metadata.is_dir() { 0o3 } else { 0o2 };
        may(who, &metadata, needed) || file::has_access_list(path)
    })
}

/// The user of the gateway if root does not choose one: weir's own user, the web server's, nobody.
pub const USUAL_USERS: [&str; 3] = ["weir", "www-data", "nobody"];

/// The permission bits give this identity all of `needed` (read 4, write 2, enter 1).
fn may(who: &Identity, metadata: &Metadata, needed: u32) -> bool {
    let in_group = who.gid == metadata.gid() || who.groups.contains(&metadata.gid());
    let bits = match (metadata.uid() == who.uid, in_group) {
        _ if who.uid == 0 => 0o7,
        (true, _) => metadata.mode() >> 6,
        (false, true) => metadata.mode() >> 3,
        (false, false) => metadata.mode(),
    };
    bits & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_every_machine_has() {
        let machine = ThisMachine;
        assert!(machine.has_user("root") && machine.has_group("root"));
        assert!(!machine.has_user("no-such-user-here") && !machine.has_group(""));
        assert!(machine.program("sh").is_some() && machine.program("/bin/sh").is_some());
        assert!(machine.program("no-such-program-here").is_none());
        assert!(machine.program("/").is_none() && machine.program("/etc/passwd").is_none());
        assert_eq!(machine.folder(Path::new("/")), Ok(()));
        assert!(machine.folder(Path::new("/etc/passwd")).is_err());
        assert!(machine.somaxconn().is_some());
    }

    #[test]
    fn a_file_is_read_by_who_asks() {
        let machine = ThisMachine;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert!(matches!(machine.readable(&file), Err(Obstacle::Absent(_))));
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(machine.readable(&file), Ok(()));
        assert!(!machine.open_to_all(&file));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert!(machine.open_to_all(&file));
        let no_file = machine.readable(folder.path());
        assert!(matches!(no_file, Err(Obstacle::Absent(_))), "{no_file:?}");
        assert!(machine.has_variable("PATH") && !machine.has_variable("WEIR_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn who_may_write_is_told_by_the_folder_itself() {
        let machine = ThisMachine;
        let folder = tempfile::tempdir().unwrap();
        assert!(machine.may_write(folder.path(), None));
        assert!(!machine.may_write(folder.path(), Some("nobody")));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(machine.may_write(folder.path(), Some("nobody")));
        assert!(machine.may_write(folder.path(), Some("no-such-user-here")));
    }

    #[test]
    fn permission_bits_are_read_as_the_kernel_does() {
        let machine = ThisMachine;
        assert_eq!(machine.barred(Path::new("/"), "root"), None);
        assert_eq!(machine.barred(Path::new("/usr/share"), "nobody"), None);
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let real = fs::canonicalize(folder.path()).unwrap();
        assert_eq!(machine.barred(&inner, "nobody"), Some(real));
    }
}
