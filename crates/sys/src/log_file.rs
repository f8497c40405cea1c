//! Opens files that a privileged process writes by name: logs, the pid file.
//!
//! Root could append to a file that has another name as well, or block on a pipe that others have made. So behind the
//! first folder that others may write to ([`crate::walk`]), only a regular file with a single name is accepted. In
//! folders that only root may write to, pipes and devices were made by root, and are used.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, FileType, Mode, OFlags},
    io::Errno,
};

pub use crate::walk::{Hazard, Refused};
use crate::{
    file::{FileId, id},
    walk::{Place, same, walk},
};

/// An opened log.
#[derive(Debug)]
pub struct Opened {
    /// For appending.
    pub file: OwnedFd,
    /// The log is a pipe without a reader: data stays in the pipe, and is lost when the pipe is full.
    pub unread: bool,
    /// The file did not exist: it was created, and is this one.
    pub created: Option<FileId>,
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
pub fn open_whole(path: &Path, mode: u32, groups: &[u32]) -> Result<Opened, Refused> {
    open_as(path, OFlags::RDWR, mode, groups)
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
    let place = Place::find(path, groups)?;
    place.check(place.found.as_ref())?;
    let flags = access | COMMON;
    let flags = match place.follow {
        true => flags,
        false => flags | OFlags::NOFOLLOW,
    };
    let at = place.at();
    let kind = place
        .found
        .map(|stat| FileType::from_raw_mode(stat.st_mode));
    let mut opened = match kind {
        Some(FileType::Fifo) => open_pipe(at, &place.name, flags)?,
        _ => Opened {
            // An existing file is opened without O_CREAT: the kernel may refuse that flag in folders that everybody may
            // write to (proc_sys_fs(5), protected_regular).
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
            created: None,
        },
    };
    let stat = fs::fstat(&opened.file)?;
    place.check(Some(&stat))?;
    opened.created = kind.is_none().then(|| id(&stat));
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
        // A file that may not be read is opened only for writing.
        Err(Errno::ACCESS) => for_writing?,
        opened => opened?,
    };
    Ok(Opened {
        file,
        unread,
        created: None,
    })
}

/// For every open: close-on-exec, no controlling terminal, non-blocking.
const COMMON: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK);

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs as std_fs,
        io::{Read, Write},
        os::{
            fd::AsFd,
            unix::fs::{PermissionsExt, symlink},
        },
    };

    use rustix::fs::CWD;

    /// A folder inside a folder of root: only /run exists on every machine and may be used by tests.
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
        let open = || open_whole(&path, 0o644, &[]).unwrap().file;
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
