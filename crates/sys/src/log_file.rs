//! Opens files that a privileged process writes by name: logs, the pid file.
//!
//! If another user may write to a folder on the way, that user decides what the name means. Root could follow a
//! symbolic link that was placed there, append to a file that has another name as well, or block on a pipe. So root
//! resolves the path step by step: after the first folder that others may write to, no symbolic link is followed any
//! more, and the file must be a regular one with a single name. In folders that only root may write to, links, pipes
//! and devices were made by root, and are used.
//!
//! A process that is not root usually has no more rights than the owner of its folders, and opens names as usual.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use crate::identity;

/// Why a file is not opened.
#[derive(Debug)]
pub enum Refused {
    /// As open(2).
    Io(io::Error),
    /// Another user decides what the name means.
    Unsafe {
        /// The obstacle.
        path: PathBuf,
        /// Its kind.
        what: Hazard,
        /// The first folder on the way that users other than root may write to.
        folder: PathBuf,
    },
}

/// Things that root does not write to in a folder that others may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    /// A symbolic link.
    Symlink,
    /// A file that has other names as well.
    HardLink,
    /// A pipe, a socket or a device.
    Special,
}

/// An opened log.
#[derive(Debug)]
pub struct Opened {
    /// For appending.
    pub file: OwnedFd,
    /// It is a pipe without a reader: data stays in the pipe, and is lost when the pipe is full.
    pub unread: bool,
}

/// Opens a file for appending, and creates it with `mode` if it does not exist. Never blocks: a pipe without a reader
/// is opened, too, non-blocking.
///
/// `groups`: groups of the relevant ordinary users. A folder that one of these groups may write to counts as writable
/// by others.
///
/// # Errors
/// As open(2), and [`Refused::Unsafe`].
pub fn open(path: &Path, mode: u32, groups: &[u32]) -> Result<Opened, Refused> {
    open_as(path, OFlags::WRONLY | OFlags::APPEND, mode, groups)
}

/// Opens a file for reading and writing at its beginning; see [`open`].
///
/// # Errors
/// As [`open`].
pub fn open_whole(path: &Path, mode: u32, groups: &[u32]) -> Result<OwnedFd, Refused> {
    Ok(open_as(path, OFlags::RDWR, mode, groups)?.file)
}

/// The first folder on the way to `path` that users other than root may write to; `None`: there is none, or the path
/// does not exist.
pub fn folder_of_others(path: &Path, groups: &[u32]) -> Option<PathBuf> {
    walk(path, groups, false).ok()?.shared
}

/// Whether `path` still names this open file.
pub fn is_still(path: &Path, file: BorrowedFd<'_>) -> bool {
    match (fs::lstat(path), fs::fstat(file)) {
        (Ok(named), Ok(open)) => same(&named, &open),
        _ => false,
    }
}

/// Locks an open file for this process and those that inherit the descriptor; `false`: another process has locked it.
///
/// # Errors
/// As flock(2).
pub fn lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    match fs::flock(file, fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open_as(path: &Path, access: OFlags, mode: u32, groups: &[u32]) -> Result<Opened, Refused> {
    let place = match identity::is_root() {
        true => walk(path, groups, true)?,
        false => Target::as_usual(path),
    };
    let flags = access | COMMON;
    let flags = match place.follow {
        true => flags,
        false => flags | OFlags::NOFOLLOW,
    };
    let at = place.folder.as_ref().map_or(CWD, AsFd::as_fd);
    let kind = place
        .found
        .map(|stat| FileType::from_raw_mode(stat.st_mode));
    let opened = match kind {
        Some(FileType::Fifo) => open_pipe(at, &place.name, flags)?,
        _ => Opened {
            // Without O_CREAT if it exists: the kernel may refuse that in folders that everybody may write to
            // (proc_sys_fs(5), protected_regular).
            file: fs::openat(
                at,
                &*place.name,
                match kind {
                    None => flags | OFlags::CREATE,
                    Some(_) => flags,
                },
                Mode::from_raw_mode(mode),
            )?,
            unread: false,
        },
    };
    let stat = fs::fstat(&opened.file)?;
    if let Some(folder) = place.shared
        && let Some(what) = hazard(&stat)
    {
        let path = place.shown;
        return Err(Refused::Unsafe { path, what, folder });
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        let flags = fs::fcntl_getfl(&opened.file)?;
        fs::fcntl_setfl(&opened.file, flags - OFlags::NONBLOCK)?;
    }
    Ok(opened)
}

/// Opens a pipe also for reading: so it can be opened without a reader, and data stays in it when its reader ends.
fn open_pipe(at: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<Opened, Errno> {
    let for_writing = fs::openat(at, name, flags, Mode::empty());
    let unread = matches!(for_writing, Err(Errno::NXIO));
    let both = (flags - OFlags::WRONLY) | OFlags::RDWR;
    let file = match fs::openat(at, name, both, Mode::empty()) {
        // If it may not be read, it is opened only for writing.
        Err(Errno::ACCESS) => for_writing?,
        opened => opened?,
    };
    Ok(Opened { file, unread })
}

/// The target of a path.
struct Target {
    /// The folder; `None`: `name` is a whole path.
    folder: Option<OwnedFd>,
    /// The name in it.
    name: Vec<u8>,
    /// The kernel follows the name: it is a link in /proc, or we are not root.
    follow: bool,
    /// The existing file; `None`: there is none, or it was not checked.
    found: Option<Stat>,
    /// The path with links resolved.
    shown: PathBuf,
    /// The first folder on the way that others may write to.
    shared: Option<PathBuf>,
}

impl Target {
    fn as_usual(path: &Path) -> Self {
        Self {
            folder: None,
            name: path.as_os_str().as_bytes().to_vec(),
            follow: true,
            found: fs::stat(path).ok(),
            shown: path.to_owned(),
            shared: None,
        }
    }
}

/// Goes to the last folder of a path, part by part. `strict`: unsafe links are errors.
fn walk(path: &Path, groups: &[u32], strict: bool) -> Result<Target, Refused> {
    let path = std::path::absolute(path).map_err(Refused::Io)?;
    let mut parts = parts_of(path.as_os_str().as_bytes());
    let mut way = vec![Step::into(CWD, b"/", PathBuf::from("/"), groups)?];
    let mut shared: Option<PathBuf> = None;
    let mut links = 0;
    loop {
        let Some(part) = parts.pop() else {
            return Err(Errno::ISDIR.into());
        };
        let last = parts.is_empty();
        if part == b"." {
            continue;
        }
        if part == b".." {
            way.truncate((way.len() - 1).max(1));
            continue;
        }
        let step = &way[way.len() - 1];
        let here = &step.folder;
        let shown = step.shown.join(std::ffi::OsStr::from_bytes(&part));
        let entry = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = match fs::openat(here, &*part, entry, Mode::empty()) {
            Err(Errno::NOENT) if last => None,
            result => Some(result?),
        };
        let found = entry.as_ref().map(fs::fstat).transpose()?;
        let kind = found.map(|stat| FileType::from_raw_mode(stat.st_mode));
        if shared.is_none() && step.leaves_to_others(found.as_ref()) {
            shared = Some(step.shown.clone());
        }
        let is_proc = kind == Some(FileType::Symlink) && last && is_in_proc(here);
        match (kind, entry, &shared) {
            (Some(FileType::Symlink), Some(_), Some(folder)) if strict => {
                return Err(Refused::Unsafe {
                    path: shown,
                    what: Hazard::Symlink,
                    folder: folder.clone(),
                });
            }
            // A link in /proc leads to an open file, whatever its text is.
            (Some(FileType::Symlink), Some(entry), _) if !is_proc => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target: CString = fs::readlinkat(&entry, "", Vec::new())?;
                if target.as_bytes().first() == Some(&b'/') {
                    way.truncate(1);
                }
                parts.extend(parts_of(target.as_bytes()));
            }
            (Some(FileType::Directory), Some(_), _) if !last => {
                let next = Step::into(here.as_fd(), &part, shown, groups)?;
                way.push(next);
            }
            (_, _, _) if !last => return Err(Errno::NOTDIR.into()),
            (_, _, _) => {
                if let (true, Some(folder), Some(what)) =
                    (strict, &shared, found.as_ref().and_then(hazard))
                {
                    return Err(Refused::Unsafe {
                        path: shown,
                        what,
                        folder: folder.clone(),
                    });
                }
                let found = match is_proc {
                    true => fs::statat(here, &*part, fs::AtFlags::empty()).ok(),
                    false => found,
                };
                let folder = way.pop().map(|step| step.folder);
                return Ok(Target {
                    folder,
                    name: part,
                    follow: is_proc,
                    found,
                    shown,
                    shared,
                });
            }
        }
    }
}

/// Things that root must not write to if others may have placed them.
fn hazard(stat: &Stat) -> Option<Hazard> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => Some(Hazard::HardLink),
        // Opening a folder fails anyway.
        FileType::RegularFile | FileType::Directory => None,
        FileType::Symlink => Some(Hazard::Symlink),
        _ => Some(Hazard::Special),
    }
}

/// A folder on the way.
struct Step {
    folder: OwnedFd,
    shown: PathBuf,
    /// Who besides root may create and rename things in it.
    others: Others,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Nobody.
    None,
    /// Everybody may create things, and rename only their own (the sticky bit, inode(7)).
    Sticky,
    /// Others may do both.
    Some,
}

impl Step {
    fn into(
        at: BorrowedFd<'_>,
        name: &[u8],
        shown: PathBuf,
        groups: &[u32],
    ) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(at, name, flags, Mode::empty())?;
        let stat = fs::fstat(&folder)?;
        let by_group =
            stat.st_mode & 0o020 != 0 && (groups.contains(&stat.st_gid) || has_list(&folder));
        let others = match stat.st_mode {
            _ if stat.st_uid != 0 => Others::Some,
            mode if mode & 0o002 == 0 && !by_group => Others::None,
            mode if mode & 0o1000 != 0 => Others::Sticky,
            _ => Others::Some,
        };
        Ok(Self {
            folder,
            shown,
            others,
        })
    }

    /// Whether others may have placed what is found here, or may have removed it. A folder of root in a sticky folder
    /// belongs to root: nobody else could move it there (rename(2)).
    fn leaves_to_others(&self, found: Option<&Stat>) -> bool {
        let is_roots_folder = found.is_some_and(|stat| {
            stat.st_uid == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        });
        match self.others {
            Others::None => false,
            Others::Sticky => !is_roots_folder,
            Others::Some => true,
        }
    }
}

/// Whether an access control list adds to the permission bits, which are its mask then.
fn has_list(folder: &OwnedFd) -> bool {
    crate::file::has_access_list(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        folder.as_raw_fd()
    )))
}

fn is_in_proc(folder: &OwnedFd) -> bool {
    const PROC: u64 = 0x9fa0;
    fs::fstatfs(folder).is_ok_and(|kind| u64::try_from(kind.f_type).unwrap_or(0) == PROC)
}

/// The parts of a path, the last one first. A path that ends with `/` does not name a file.
fn parts_of(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&byte| byte == b'/');
    let mut parts: Vec<Vec<u8>> = parts
        .filter(|part| !part.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    parts.reverse();
    parts
}

fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Unsafe { path, what, folder } => {
                let what = match what {
                    Hazard::Symlink => "is a symbolic link",
                    Hazard::HardLink => "is a file that has other names too (hard links)",
                    Hazard::Special => "is no regular file",
                };
                write!(
                    f,
                    "{} {what}, and others than root may write in {}: root does not write there",
                    path.display(),
                    folder.display()
                )
            }
        }
    }
}

impl std::error::Error for Refused {}

/// For every open: close-on-exec, no controlling terminal, non-blocking.
const COMMON: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK);

/// The kernel's limit.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs as std_fs,
        io::{Read, Write},
        os::unix::fs::{PermissionsExt, symlink},
    };

    /// A folder inside one of root's: /run is the only one that exists on every machine and that tests may use.
    fn folder(mode: u32) -> Option<tempfile::TempDir> {
        if !weir_test::goes_on_as_root() {
            return None;
        }
        let folder = tempfile::tempdir_in("/run").unwrap();
        std_fs::set_permissions(folder.path(), std_fs::Permissions::from_mode(mode)).unwrap();
        Some(folder)
    }

    fn what(path: &Path) -> Option<Hazard> {
        match open(path, 0o640, &[]) {
            Err(Refused::Unsafe { what, .. }) => Some(what),
            Ok(_) => None,
            Err(Refused::Io(error)) => panic!("{}: {error}", path.display()),
        }
    }

    fn make(folder: &Path) {
        std_fs::write(folder.join("plain"), "").unwrap();
        std_fs::write(folder.join("twice"), "").unwrap();
        std_fs::hard_link(folder.join("twice"), folder.join("hard")).unwrap();
        symlink("plain", folder.join("link")).unwrap();
        std_fs::create_dir(folder.join("inner")).unwrap();
        symlink("inner", folder.join("inner-link")).unwrap();
        fs::mknodat(
            CWD,
            folder.join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }

    #[test]
    fn in_a_folder_of_others_only_regular_files_with_one_name_are_written() {
        let Some(folder) = folder(0o777) else { return };
        let path = |name: &str| folder.path().join(name);
        make(folder.path());
        assert_eq!(what(&path("plain")), None);
        assert_eq!(what(&path("new")), None);
        assert_eq!(what(&path("inner/new")), None);
        assert_eq!(what(&path("hard")), Some(Hazard::HardLink));
        assert_eq!(what(&path("pipe")), Some(Hazard::Special));
        for link in ["link", "inner-link/new", "inner/../link"] {
            assert_eq!(what(&path(link)), Some(Hazard::Symlink), "{link}");
        }
        // Even if the link itself is in root's inner folder: the folder could be replaced.
        symlink("../plain", path("inner/link")).unwrap();
        assert_eq!(what(&path("inner/link")), Some(Hazard::Symlink));
        assert_eq!(
            folder_of_others(&path("plain"), &[]),
            Some(folder.path().to_owned())
        );
    }

    #[test]
    fn in_a_folder_of_root_links_and_pipes_are_what_root_made() {
        let Some(folder) = folder(0o755) else { return };
        make(folder.path());
        for name in ["plain", "hard", "link", "inner-link/new", "pipe"] {
            assert_eq!(what(&folder.path().join(name)), None, "{name}");
        }
        assert_eq!(folder_of_others(&folder.path().join("plain"), &[]), None);
        assert!(folder.path().join("inner/new").exists());
        symlink("/proc/self/fd/2", folder.path().join("stderr")).unwrap();
        assert!(open(&folder.path().join("stderr"), 0o640, &[]).is_ok());
        assert!(matches!(
            open(&folder.path().join("inner"), 0o640, &[]),
            Err(Refused::Io(_))
        ));
    }

    #[test]
    fn in_a_sticky_folder_only_a_folder_of_root_is_its_own() {
        let Some(folder) = folder(0o1777) else { return };
        make(folder.path());
        let path = |name: &str| folder.path().join(name);
        assert_eq!(what(&path("link")), Some(Hazard::Symlink));
        assert_eq!(what(&path("inner-link/new")), Some(Hazard::Symlink));
        symlink("../plain", path("inner/link")).unwrap();
        assert_eq!(what(&path("inner/link")), None);
        assert_eq!(folder_of_others(&path("inner/new"), &[]), None);
        fs::chown(path("inner"), Some(fs::Uid::from_raw(1)), None).unwrap();
        assert_eq!(what(&path("inner/link")), Some(Hazard::Symlink));
    }

    #[test]
    fn a_group_matters_where_somebody_of_concern_is_in_it() {
        let Some(folder) = folder(0o775) else { return };
        rustix::fs::chown(folder.path(), None, Some(fs::Gid::from_raw(54_321))).unwrap();
        make(folder.path());
        let link = folder.path().join("link");
        assert!(open(&link, 0o640, &[1, 2]).is_ok());
        assert!(matches!(
            open(&link, 0o640, &[54_321]),
            Err(Refused::Unsafe { .. })
        ));
    }

    #[test]
    fn a_pipe_without_a_reader_is_opened_and_keeps_what_is_written() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("pipe");
        fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // As root: the folders of this project belong to root, or the file is refused.
        let Ok(opened) = open(&path, 0o640, &[]) else {
            return;
        };
        assert!(opened.unread);
        std_fs::File::from(opened.file.try_clone().unwrap())
            .write_all(b"a line\n")
            .unwrap();
        let mut reader = std_fs::File::open(&path).unwrap();
        assert!(!open(&path, 0o640, &[]).unwrap().unread);
        let mut read = [0; 7];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"a line\n");
    }

    #[test]
    fn a_lock_is_one_processs_and_a_name_may_be_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let open = || open_whole(&path, 0o644, &[]).unwrap();
        let (one, other) = (open(), open());
        assert!(lock(one.as_fd()).unwrap());
        assert!(!lock(other.as_fd()).unwrap());
        assert!(is_still(&path, one.as_fd()));
        std_fs::remove_file(&path).unwrap();
        assert!(!is_still(&path, one.as_fd()));
        std_fs::write(&path, "").unwrap();
        assert!(!is_still(&path, one.as_fd()));
        drop(one);
        assert!(lock(other.as_fd()).unwrap());
    }
}
