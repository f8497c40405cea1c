//! Where a name of a privileged process leads: logs, the pid file, sockets.
//!
//! If another user may write to a folder on the way, that user decides what the name means. So root resolves the path step
//! by step: after the first folder that others may write to, no symbolic link is followed any more. In folders that only
//! root may write to, links were made by root, and are followed.
//!
//! A process that is not root usually has no more rights than the owner of its folders, and uses names as usual.

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

/// Where a path leads.
pub(crate) struct Place {
    /// The folder; `None`: `name` is a whole path.
    pub(crate) folder: Option<OwnedFd>,
    /// The name in it.
    pub(crate) name: Vec<u8>,
    /// The kernel follows the name: it is a link in /proc, or we are not root.
    pub(crate) follow: bool,
    /// The existing file; `None`: there is none, or it was not checked.
    pub(crate) found: Option<Stat>,
    /// The path with links resolved.
    pub(crate) shown: PathBuf,
    /// The first folder on the way that others may write to.
    pub(crate) shared: Option<PathBuf>,
}

impl Place {
    /// For root, goes there part by part, and refuses links that others may have made. Otherwise the kernel goes there.
    /// `groups`: as for [`crate::log_file::open`].
    pub(crate) fn find(path: &Path, groups: &[u32]) -> Result<Self, Refused> {
        match identity::is_root() {
            true => walk(path, groups, true),
            false => Ok(Self::whole(path)),
        }
    }

    /// Refuses what root must not write to if others may have placed it.
    pub(crate) fn check(&self, found: Option<&Stat>) -> Result<(), Refused> {
        match (&self.shared, found.and_then(hazard)) {
            (Some(folder), Some(what)) => Err(Refused::Unsafe {
                path: self.shown.clone(),
                what,
                folder: folder.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The folder that [`name`](Self::name) is in.
    pub(crate) fn at(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, AsFd::as_fd)
    }

    /// The path, as the kernel understands it.
    pub(crate) fn whole(path: &Path) -> Self {
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
pub(crate) fn walk(path: &Path, groups: &[u32], strict: bool) -> Result<Place, Refused> {
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
                let found = match is_proc {
                    true => fs::statat(here, &*part, fs::AtFlags::empty()).ok(),
                    false => found,
                };
                let folder = way.pop().map(|step| step.folder);
                return Ok(Place {
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
    /// Who besides root may create and rename entries in the folder.
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

pub(crate) fn same(one: &Stat, other: &Stat) -> bool {
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

/// The kernel's limit.
const MOST_LINKS: usize = 40;
