//! Checks whether a user may do something with a path. Every folder on the way is checked, and the first obstacle is
//! reported.
//!
//! The path is resolved as the kernel does it (path_resolution(7)): symbolic links are followed; those that begin
//! with a slash start at the root that the process sees, perhaps a chroot. Each step is checked by owner, group,
//! permission bits and access control list (acl(5)); root may do everything. If root runs the doctor and there is no
//! chroot, the kernel itself is asked last, with that identity, because it may know more: a security module, a
//! network file system, or a read-only mount.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fmt, fs,
    io::{self, ErrorKind},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Component, Path, PathBuf},
};

use weir_sys::{
    access::{self, AclEntry},
    identity::{self, Identity},
};

use super::people::Who;

/// The intended operation on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Read a file.
    Read,
    /// Enter a folder: open files below it by name.
    Enter,
    /// Write a file, or connect to a socket.
    Write,
    /// Create files in a folder.
    MakeFiles,
    /// Execute a program.
    Execute,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// It is possible.
    Yes,
    /// It is not possible.
    No(Barrier),
    /// We may not look at this path.
    Unseen(PathBuf),
}

/// The obstacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Barrier {
    /// Its place, as seen from outside of a chroot.
    pub(super) at: PathBuf,
    pub(super) cause: Cause,
}

/// The kind of obstacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The name does not exist.
    Missing,
    /// It is not a folder.
    NotFolder,
    /// Links form a loop.
    Circle,
    /// Missing permission.
    Denied { need: Need, rights: String },
    /// Another error of the kernel.
    Other(String),
}

/// Whether `who` may do this with `path`. With `root`, as seen from inside of that folder.
pub(super) fn may(who: &Who, root: Option<&Path>, path: &Path, need: Need) -> Access {
    let identity = &who.identity;
    let computed = walk(root.unwrap_or(Path::new("/")), path, |step, wanted| {
        judge(identity, step, wanted.unwrap_or(need))
    });
    if root.is_some() || !(identity::is_root() || is_us(identity)) {
        return computed;
    }
    match (ask_kernel(identity, path, need), computed) {
        // The kernel's answer counts, because it knows best.
        (Ok(()), _) => Access::Yes,
        (Err(_), Access::No(barrier)) => Access::No(barrier),
        (Err(error), _) => barrier_of(path, &error),
    }
}

/// Turns a path inside of a folder into the path outside; links are not resolved.
pub(super) fn seen_from_outside(root: Option<&Path>, path: &Path) -> PathBuf {
    match root {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// Where a path leads to, with links resolved, as seen from outside of `root`; `None`: it does not exist, or is not
/// visible.
pub(super) fn resolve(root: Option<&Path>, path: &Path) -> Option<PathBuf> {
    let mut last = PathBuf::new();
    let answer = walk(root.unwrap_or(Path::new("/")), path, |step, _| {
        last = step.to_owned();
        fs::symlink_metadata(step).map_or_else(|error| barrier_of(step, &error), |_| Access::Yes)
    });
    (answer == Access::Yes).then_some(last)
}

impl Barrier {
    /// A command that gives `who` access; empty if there is none.
    pub(super) fn mend(&self, who: &Who) -> String {
        let at = quoted(&self.at);
        match &self.cause {
            Cause::Missing => String::new(),
            Cause::Denied { need, .. } => {
                let letters = need.letters();
                let (user, entry) = (&who.name, need.for_lists());
                match who.name.contains(' ') {
                    true => format!("chmod o+{letters} {at}"),
                    false => format!(
                        "chmod o+{letters} {at}, or for {user} alone: setfacl -m u:{user}:{entry} {at}"
                    ),
                }
            }
            Cause::NotFolder | Cause::Circle | Cause::Other(_) => format!("check {at}"),
        }
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.display();
        match &self.cause {
            Cause::Missing => write!(f, "{at} does not exist"),
            Cause::NotFolder => write!(f, "{at} is not a folder"),
            Cause::Circle => write!(f, "symbolic links form a loop at {at}"),
            Cause::Denied { need, rights } => {
                let verb = match need {
                    Need::Read => "read",
                    Need::Enter => "entered",
                    Need::Write => "written",
                    Need::MakeFiles => "given new files",
                    Need::Execute => "executed",
                };
                write!(f, "{at} ({rights}) may not be {verb}")
            }
            Cause::Other(error) => write!(f, "{at}: {error}"),
        }
    }
}

impl Need {
    /// Read 4, write 2, enter or execute 1.
    fn bits(self) -> u16 {
        match self {
            Self::Read => 4,
            Self::Write => 2,
            Self::Enter | Self::Execute => 1,
            Self::MakeFiles => 3,
        }
    }

    fn letters(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::Enter | Self::Execute => "x",
            Self::MakeFiles => "wx",
        }
    }

    fn for_lists(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "rw",
            Self::Enter => "x",
            Self::MakeFiles => "rwx",
            Self::Execute => "rx",
        }
    }
}

/// The owners and rights of a file or folder.
struct PathRights {
    uid: u32,
    gid: u32,
    mode: u32,
    /// The access control list; empty: there is none.
    list: Vec<AclEntry>,
}

/// By owner, group and bits, or by the access control list: the first entry that matches this identity; for groups,
/// any entry that allows it.
fn allows(who: &Identity, path: &PathRights, bits: u16) -> bool {
    let PathRights {
        uid,
        gid,
        mode,
        ref list,
    } = *path;
    let gives = |entry: u16| entry & bits == bits;
    let of_mode = |shift: u32| (mode >> shift) as u16 & 0o7;
    let in_group = |group: u32| who.gid == group || who.groups.contains(&group);
    if who.uid == uid {
        return gives(of_mode(6));
    }
    if list.is_empty() {
        return gives(of_mode(if in_group(gid) { 3 } else { 0 }));
    }
    let mask = list.iter().find_map(|entry| match entry {
        AclEntry::Mask(mask) => Some(*mask),
        _ => None,
    });
    let mask = mask.unwrap_or(0o7);
    let own = list.iter().find_map(|entry| match entry {
        AclEntry::User(user, given) if *user == who.uid => Some(*given),
        _ => None,
    });
    if let Some(given) = own {
        return gives(given & mask);
    }
    let mut is_member = false;
    for entry in list {
        let given = match entry {
            AclEntry::OwningGroup(given) if in_group(gid) => *given,
            AclEntry::Group(group, given) if in_group(*group) => *given,
            _ => continue,
        };
        is_member = true;
        if gives(given & mask) {
            return true;
        }
    }
    !is_member && gives(of_mode(0))
}

fn judge(who: &Identity, step: &Path, need: Need) -> Access {
    let metadata = match fs::metadata(step) {
        Ok(metadata) => metadata,
        Err(error) => return barrier_of(step, &error),
    };
    let must_be_folder = matches!(need, Need::Enter | Need::MakeFiles);
    if must_be_folder && !metadata.is_dir() {
        return no(step, Cause::NotFolder);
    }
    if who.uid == 0 {
        return Access::Yes;
    }
    let list = match access::access_list(step) {
        Ok(list) => list,
        Err(error) => return barrier_of(step, &error),
    };
    let has_list = !list.is_empty();
    let path = PathRights {
        uid: metadata.uid(),
        gid: metadata.gid(),
        mode: metadata.mode(),
        list,
    };
    if allows(who, &path, need.bits()) {
        return Access::Yes;
    }
    let rights = rights(&metadata, has_list);
    no(step, Cause::Denied { need, rights })
}

/// In the form of `ls -l`: `drwx--x--- shop www-data`.
fn rights(metadata: &fs::Metadata, list: bool) -> String {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_socket() => 's',
        () => '-',
    };
    let mode = metadata.mode();
    let mut text = String::from(kind);
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode >> bit & 1 == 1 { letter } else { '-' });
    }
    if list {
        text.push('+');
    }
    let user = identity::user_by_id(metadata.uid()).ok().flatten();
    let user = user.map_or_else(|| metadata.uid().to_string(), |user| user.name);
    let group = group_name(metadata.gid());
    format!("{text} {user} {group}")
}

/// The name of a group in /etc/group, otherwise its number.
pub(super) fn group_name(gid: u32) -> String {
    let table = fs::read_to_string("/etc/group").unwrap_or_default();
    let known = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(gid)).then(|| name.to_owned())
    });
    known.unwrap_or_else(|| gid.to_string())
}

/// Walks from `root` to `path`, and calls `judge` for each step: with the need for a folder on the way, or `None` for
/// the end. Stops at the first answer that is not [`Access::Yes`].
fn walk(root: &Path, path: &Path, mut judge: impl FnMut(&Path, Option<Need>) -> Access) -> Access {
    let mut left: VecDeque<OsString> = parts(path);
    let mut at = root.to_owned();
    let mut depth = 0_usize;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        match judge(&at, Some(Need::Enter)) {
            Access::Yes => {}
            stopped => return stopped,
        }
        if part == ".." {
            // A process cannot go above the root that it sees.
            if depth > 0 {
                at.pop();
                depth -= 1;
            }
            continue;
        }
        let next = at.join(&part);
        let metadata = match fs::symlink_metadata(&next) {
            Ok(metadata) => metadata,
            Err(error) => return barrier_of(&next, &error),
        };
        if !metadata.is_symlink() {
            at = next;
            depth += 1;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return no(&next, Cause::Circle);
        }
        let target = match fs::read_link(&next) {
            Ok(target) => target,
            Err(error) => return barrier_of(&next, &error),
        };
        if target.is_absolute() {
            at = root.to_owned();
            depth = 0;
        }
        for part in parts(&target).into_iter().rev() {
            left.push_front(part);
        }
    }
    judge(&at, None)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

fn ask_kernel(who: &Identity, path: &Path, need: Need) -> io::Result<()> {
    match is_us(who) {
        true => access::may(path, need.bits()),
        false => access::may_as(who, path, need.bits()),
    }
}

/// Whether `who` may do each of these things, and nothing about the reason: with one question for all of them, because a
/// thousand users may be asked about.
pub(super) fn may_all(who: &Who, files: &[(PathBuf, Need)]) -> Vec<bool> {
    let kernel = |(path, need): &(PathBuf, Need)| access::may(path, need.bits()).is_ok();
    let all = || Ok(files.iter().map(kernel).collect());
    let answers = match is_us(&who.identity) {
        true => all(),
        false => access::as_identity(&who.identity, all),
    };
    // Without root, the rights of other users cannot be determined.
    answers.unwrap_or_else(|_| {
        let walk = |(path, need): &(PathBuf, Need)| may(who, None, path, *need) == Access::Yes;
        files.iter().map(walk).collect()
    })
}

fn is_us(who: &Identity) -> bool {
    identity::current() == (who.uid, who.gid)
}

/// The meaning of an error at a path: it does not exist, or we may not look.
fn barrier_of(path: &Path, error: &io::Error) -> Access {
    match error.kind() {
        ErrorKind::NotFound => no(path, Cause::Missing),
        ErrorKind::NotADirectory => no(path, Cause::NotFolder),
        ErrorKind::PermissionDenied if !identity::is_root() => Access::Unseen(path.to_owned()),
        _ => no(path, Cause::Other(error.to_string())),
    }
}

fn no(at: &Path, cause: Cause) -> Access {
    Access::No(Barrier {
        at: at.to_owned(),
        cause,
    })
}

/// A path for a command line.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The kernel's limit (path_resolution(7)).
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn nobody() -> Who {
        Who::named("nobody", None).unwrap()
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A folder that everybody may enter, with `a/b/file` in it.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        mode(folder.path(), 0o755);
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        mode(&folder.path().join("a"), 0o755);
        mode(&folder.path().join("a/b"), 0o755);
        fs::write(folder.path().join("a/b/file"), "").unwrap();
        mode(&folder.path().join("a/b/file"), 0o644);
        folder
    }

    #[test]
    fn the_first_folder_that_stops_is_named() {
        let tree = tree();
        let file = tree.path().join("a/b/file");
        let who = Who {
            name: "stranger".into(),
            ..Who::member("daemon").unwrap()
        };
        assert_eq!(may(&who, None, &file, Need::Read), Access::Yes);
        mode(&tree.path().join("a"), 0o750);
        let Access::No(barrier) = may(&who, None, &file, Need::Read) else {
            panic!("let through");
        };
        assert_eq!(barrier.at, tree.path().join("a"));
        assert!(barrier.to_string().contains("drwxr-x---"), "{barrier}");
        let mend = barrier.mend(&who);
        assert!(
            mend.starts_with("chmod o+x ") && mend.contains("setfacl -m u:stranger:x "),
            "{mend}"
        );
    }

    #[test]
    fn what_is_missing_and_what_is_no_folder_are_told_apart() {
        let tree = tree();
        let who = nobody();
        let cause = |path: &str| match may(&who, None, &tree.path().join(path), Need::Read) {
            Access::No(barrier) => Some(barrier.cause),
            _ => None,
        };
        assert_eq!(cause("a/c/file"), Some(Cause::Missing));
        assert_eq!(cause("a/b/file/more"), Some(Cause::NotFolder));
        symlink("circle", tree.path().join("circle")).unwrap();
        assert_eq!(cause("circle"), Some(Cause::Circle));
    }

    #[test]
    fn links_are_followed_from_the_root_that_is_seen() {
        let tree = tree();
        symlink("/a/b", tree.path().join("link")).unwrap();
        symlink("../../../../a", tree.path().join("a/up")).unwrap();
        let who = nobody();
        let inside = |path: &str| may(&who, Some(tree.path()), Path::new(path), Need::Read);
        assert_eq!(inside("/link/file"), Access::Yes);
        assert_eq!(inside("/a/up/b/file"), Access::Yes);
        assert_ne!(
            may(&who, None, &tree.path().join("link/file"), Need::Read),
            Access::Yes
        );
        let real = resolve(Some(tree.path()), Path::new("/link/file"));
        assert_eq!(real, Some(tree.path().join("a/b/file")));
        assert_eq!(resolve(None, &tree.path().join("nothing")), None);
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        let who = Identity {
            uid: 1000,
            gid: 100,
            groups: vec![100, 7],
        };
        let allows = |mode, list: &[AclEntry]| {
            let path = PathRights {
                uid: 5,
                gid: 9,
                mode,
                list: list.to_vec(),
            };
            allows(&who, &path, 4)
        };
        assert!(allows(0o604, &[]) && !allows(0o640, &[]));
        let list = |user, group, mask| {
            [
                AclEntry::Owner(7),
                AclEntry::User(1000, user),
                AclEntry::OwningGroup(0),
                AclEntry::Group(7, group),
                AclEntry::Mask(mask),
                AclEntry::Other(4),
            ]
        };
        assert!(allows(0o774, &list(4, 0, 7)));
        // The entry for a user counts before those of groups; the mask limits both.
        assert!(!allows(0o774, &list(0, 7, 7)));
        assert!(!allows(0o774, &list(4, 0, 1)));
        let group_only = [AclEntry::Group(7, 0), AclEntry::Mask(7), AclEntry::Other(4)];
        // A member of a group without permission does not get the permission of others.
        assert!(!allows(0o774, &group_only));
        assert!(allows(
            0o774,
            &[AclEntry::Group(8, 0), AclEntry::Mask(7), AclEntry::Other(4)]
        ));
    }

    #[test]
    fn a_folder_that_takes_no_files_is_told_and_paths_are_quoted() {
        let tree = tree();
        let who = Who::member("daemon").unwrap();
        let answer = may(&who, None, &tree.path().join("a"), Need::MakeFiles);
        let Access::No(barrier) = answer else {
            panic!("let through");
        };
        assert!(barrier.mend(&who).starts_with("chmod o+wx "));
        assert_eq!(quoted(Path::new("/srv/a b's")), r"'/srv/a b'\''s'");
        assert_eq!(quoted(Path::new("/srv/shop")), "/srv/shop");
    }
}
