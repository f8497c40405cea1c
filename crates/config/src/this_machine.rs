//! The machine that weir runs on, as far as [`check_environment`](crate::check_environment) asks.

use std::{
    env,
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use crate::machine::{Machine, Obstacle};

/// This machine: /etc/passwd and /etc/group (and what getent knows besides), /proc, PATH and the file system.
#[derive(Debug, Clone)]
pub struct ThisMachine {
    uid: u32,
    path: Vec<PathBuf>,
}

impl ThisMachine {
    /// Looks who we are and what PATH is.
    pub fn new() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        Self {
            // The owner of a process's own folder in /proc is its effective user.
            uid: fs::metadata("/proc/self").map_or(u32::MAX, |metadata| metadata.uid()),
            path: env::split_paths(&path)
                .filter(|folder| folder.is_absolute())
                .collect(),
        }
    }
}

impl ThisMachine {
    /// Name of the user with this number.
    pub fn user_of_uid(&self, uid: u32) -> Option<String> {
        let line = entry("passwd", &uid.to_string())?;
        User::read(&line).map(|user| user.name.to_owned())
    }
}

impl Default for ThisMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for ThisMachine {
    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn current_user(&self) -> Option<String> {
        let users = fs::read_to_string("/etc/passwd").ok()?;
        let user = users
            .lines()
            .filter_map(User::read)
            .find(|user| user.uid == self.uid)?;
        Some(user.name.to_owned())
    }

    fn has_user(&self, name: &str) -> bool {
        entry("passwd", name).is_some()
    }

    fn has_group(&self, name: &str) -> bool {
        entry("group", name).is_some()
    }

    fn folder(&self, path: &Path) -> Result<(), Obstacle> {
        let shown = path.display();
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(Obstacle::Absent(format!("{shown} is no folder"))),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Err(Obstacle::Absent(format!(
                    "{shown}: there is no such folder"
                ))),
                ErrorKind::PermissionDenied => {
                    Err(Obstacle::Barred(format!("{shown}: permission denied")))
                }
                _ => Err(Obstacle::Absent(format!("{shown}: {error}"))),
            },
        }
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let candidates: Vec<PathBuf> = match name.contains('/') {
            true => vec![name.into()],
            false => self.path.iter().map(|folder| folder.join(name)).collect(),
        };
        let runs =
            |metadata: Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        candidates
            .into_iter()
            .find(|candidate| fs::metadata(candidate).is_ok_and(runs))
    }

    fn barred(&self, path: &Path, user: Option<&str>) -> Option<PathBuf> {
        let who = match user {
            Some(name) => Identity::of_name(name)?,
            None => return fs::read_dir(path).is_err().then(|| path.to_owned()),
        };
        let real = fs::canonicalize(path).ok()?;
        let mut way: Vec<&Path> = real.ancestors().collect();
        way.reverse();
        let barred = way.into_iter().find(|step| {
            let needed = if *step == real { 0o5 } else { 0o1 };
            fs::metadata(step).is_ok_and(|metadata| !who.may(&metadata, needed))
        });
        barred.map(Path::to_owned)
    }

    fn somaxconn(&self) -> Option<u32> {
        let text = fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
        text.trim().parse().ok()
    }
}

/// A line of /etc/passwd (passwd(5)).
struct User<'l> {
    name: &'l str,
    uid: u32,
    gid: u32,
}

impl<'l> User<'l> {
    fn read(line: &'l str) -> Option<Self> {
        let mut fields = line.split(':');
        Some(Self {
            name: fields.next()?,
            uid: fields.nth(1)?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    }
}

/// A user and the groups it is in.
struct Identity {
    uid: u32,
    gids: Vec<u32>,
}

impl Identity {
    fn of_name(name: &str) -> Option<Self> {
        let line = entry("passwd", name)?;
        let user = User::read(&line)?;
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let member_of = groups.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let gid = fields.nth(2)?.parse::<u32>().ok()?;
            fields
                .next()?
                .split(',')
                .any(|member| member == name)
                .then_some(gid)
        });
        Some(Self {
            uid: user.uid,
            gids: core::iter::once(user.gid).chain(member_of).collect(),
        })
    }

    /// The permission bits give this user all of `needed` (read 4, write 2, enter 1).
    fn may(&self, metadata: &Metadata, needed: u32) -> bool {
        let mode = metadata.mode();
        let bits = match () {
            () if self.uid == 0 => 0o7,
            () if metadata.uid() == self.uid => mode >> 6,
            () if self.gids.contains(&metadata.gid()) => mode >> 3,
            () => mode,
        };
        bits & needed == needed
    }
}

/// The line of a name, or of a number in digits, in a database of users or groups; getent also asks what the
/// machine has besides files.
fn entry(database: &str, key: &str) -> Option<String> {
    let number = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
    let is_meant = |line: &&str| line.split(':').nth(if number { 2 } else { 0 }) == Some(key);
    let file = fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    if let Some(line) = file.lines().find(is_meant) {
        return Some(line.to_owned());
    }
    let output = process::Command::new("getent")
        .args(["--", database, key])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find(is_meant).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_every_machine_has() {
        let machine = ThisMachine::new();
        assert!(machine.has_user("root") && machine.has_group("root"));
        assert!(!machine.has_user("no-such-user-here") && !machine.has_group(""));
        assert!(machine.program("sh").is_some() && machine.program("/bin/sh").is_some());
        assert!(
            machine.program("no-such-program-here").is_none() && machine.program("/").is_none()
        );
        assert_eq!(machine.folder(Path::new("/")), Ok(()));
        assert!(machine.folder(Path::new("/etc/passwd")).is_err());
        assert!(machine.somaxconn().is_some());
    }

    #[test]
    fn permission_bits_are_read_as_the_kernel_does() {
        let machine = ThisMachine::new();
        assert_eq!(machine.barred(Path::new("/"), Some("root")), None);
        assert_eq!(
            machine.barred(Path::new("/usr/share"), Some("nobody")),
            None
        );
        let folder = env::temp_dir().join(format!("weir-config-barred-{}", process::id()));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let barred = machine.barred(&inner, Some("nobody"));
        let real = fs::canonicalize(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(barred, Some(real));
    }
}
