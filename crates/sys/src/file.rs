//! Files: opened below a folder, read without waiting for the disk, sent without a copy.
//!
//! A server with one thread per core must know, before it reads, whether the kernel has the data in memory.
//! [`open_beneath`] (`cached_only`), [`read_cached`] and [`is_cached`] tell that; [`populate`] and the other calls
//! belong on a thread that may block.

use std::{
    ffi::{CString, OsStr},
    io::{self, IoSliceMut},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{self, Access, Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::{Errno, ReadWriteFlags, retry_on_intr},
};

use crate::{access::ACL_NAME, random};

/// Options of [`open_beneath`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Symbolic links may lead out of the root. The path itself may not: `..` in it is refused.
    pub follow_symlinks_out: bool,
    /// Return `EAGAIN` (`WouldBlock`) instead of waiting for the disk.
    pub cached_only: bool,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link (only where links are not followed).
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Device; with `ino` the file's identity.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the contents, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of contents or attributes, nanoseconds since 1970.
    pub ctime_ns: i64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Opens `path` (relative; empty: the folder itself) beneath `root` for reading.
///
/// Neither `..` nor a symbolic link leads out (but see [`Open::follow_symlinks_out`]); such a path is refused with
/// `EXDEV`. The descriptor is close-on-exec and non-blocking, so that a pipe cannot block the caller: check [`fstat`]
/// before reading.
///
/// With `cached_only`, `WouldBlock` means that the kernel would have to read from the disk, or cannot tell: ask again
/// on a thread that may block.
///
/// # Errors
/// `ENOENT`, `EACCES`, `ELOOP`, `ENOTDIR`, `ENAMETOOLONG` … as open(2); `EXDEV` for a path that leads out; `EINVAL`
/// for a NUL.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], open: Open) -> io::Result<OwnedFd> {
    open_as(root, path, open, READ)
}

fn open_as(root: BorrowedFd<'_>, path: &[u8], open: Open, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    if path[0] == b'/' || (open.follow_symlinks_out && has_parent(path)) {
        return Err(Errno::XDEV.into());
    }
    let mut resolve = ResolveFlags::NO_MAGICLINKS;
    if !open.follow_symlinks_out {
        resolve |= ResolveFlags::BENEATH;
    }
    if open.cached_only {
        resolve |= ResolveFlags::CACHED;
    }
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        // If a rename races with `..`, the kernel gives up with EAGAIN: try again, but not forever.
        for _ in 0..8 {
            match fs::openat2(root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if !open.cached_only => {}
                // RESOLVE_CACHED is newer (Linux 5.12) than openat2 (5.6).
                Err(Errno::INVAL) if open.cached_only && !path.contains(&0) => {
                    return Err(Errno::AGAIN.into());
                }
                // Sandboxes that do not know the call return EPERM. A file may also cause that error, so the call is
                // tested with the root itself before it is given up.
                Err(Errno::NOSYS) => {
                    NO_OPENAT2.store(true, Ordering::Relaxed);
                    break;
                }
                Err(Errno::PERM) if openat2_is_refused(root) => {
                    NO_OPENAT2.store(true, Ordering::Relaxed);
                    break;
                }
                result => return Ok(result?),
            }
        }
    }
    if open.cached_only {
        return Err(Errno::AGAIN.into());
    }
    if open.follow_symlinks_out {
        return Ok(fs::openat(root, path, flags, Mode::empty())?);
    }
    walk_beneath(root, path, flags)
}

/// Opens a folder, for [`open_beneath`] and [`temp_file`]; the permission to list it is not needed.
///
/// # Errors
/// As open(2); `ENOTDIR` if it is no folder.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = NAME | OFlags::DIRECTORY;
    Ok(fs::open(path, flags, Mode::empty())?)
}

/// Opens a folder below another one, as [`open_beneath`] does; the permission to list it is not needed.
///
/// # Errors
/// As [`open_beneath`]; `ENOTDIR` if it is no folder.
pub fn open_dir_beneath(root: BorrowedFd<'_>, path: &[u8], open: Open) -> io::Result<OwnedFd> {
    open_as(root, path, open, NAME | OFlags::DIRECTORY)
}

/// Stats `path` beneath `root` as [`open_beneath`] would open it (needs no right to read the file).
///
/// # Errors
/// As [`open_beneath`].
pub fn stat_beneath(root: BorrowedFd<'_>, path: &[u8], open: Open) -> io::Result<FileStat> {
    fstat(as_borrowed(&open_as(root, path, open, NAME)?))
}

/// Stats `path` from `root`, following symbolic links wherever they lead.
///
/// Only for checking whether a name that was opened with [`open_beneath`] is still the same file (`dev`, `ino` and
/// times of a descriptor that is still open): one system call instead of three.
///
/// # Errors
/// As stat(2).
pub fn stat_at(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<FileStat> {
    Ok(file_stat(&fs::statat(root, path, AtFlags::empty())?))
}

/// Stats an open file.
///
/// # Errors
/// As fstat(2).
pub fn fstat(fd: BorrowedFd<'_>) -> io::Result<FileStat> {
    Ok(file_stat(&fs::fstat(fd)?))
}

/// Stats a path, following symbolic links.
///
/// # Errors
/// As stat(2).
pub fn stat_path(path: &Path) -> io::Result<FileStat> {
    Ok(file_stat(&fs::stat(path)?))
}

/// Reads what the page cache has at `offset`, without waiting for the disk (preadv2(2), `RWF_NOWAIT`).
///
/// `Ok(None)`: nothing can be read without waiting, or the file system cannot tell. `Ok(Some(0))`: end of file. Fewer
/// bytes than requested do not mean the end.
///
/// # Errors
/// As read(2).
pub fn read_cached(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<Option<usize>> {
    let read = retry_on_intr(|| {
        let slices = &mut [IoSliceMut::new(buffer)];
        rustix::io::preadv2(fd, slices, offset, ReadWriteFlags::NOWAIT)
    });
    match read {
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Appends to `buffer` what the file has at `offset`: `most` bytes at most, and no more than `buffer` has room for. This memory
/// need not be filled before. `cached_only`: as [`read_cached`]; otherwise as [`read_at`]. Returns the number of bytes.
///
/// # Errors
/// As preadv2(2).
pub fn append_from(
    fd: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    (offset, most): (u64, usize),
    cached_only: bool,
) -> io::Result<Option<usize>> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from(Errno::INVAL))?;
    let flags = if cached_only { libc::RWF_NOWAIT } else { 0 };
    let spare = buffer.spare_capacity_mut();
    let part = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: spare.len().min(most),
    };
    let count = loop {
        // SAFETY: `part` is the unused capacity of `buffer`, which is borrowed for this call alone.
        let count = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, offset, flags) };
        match usize::try_from(count) {
            Ok(count) => break count,
            Err(_) => match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
                    if cached_only =>
                {
                    return Ok(None);
                }
                error => return Err(error.unwrap_or(Errno::IO).into()),
            },
        }
    };
    // SAFETY: the kernel has written so many bytes to the beginning of the unused capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(Some(count))
}

/// Whether there is something at this path, if the kernel knows that without waiting for a disk; `None`: it does not.
#[must_use]
pub fn is_there_cached(path: &Path) -> Option<bool> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(_) => Some(true),
        // The same result as for a program that calls stat(2).
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG) => {
            Some(false)
        }
        Err(_) => None,
    }
}

/// Reads at `offset`; may wait for the disk. Only 0 means the end of the file.
///
/// # Errors
/// As pread(2).
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        rustix::io::pread(fd, &mut *buffer, offset)
    })?)
}

/// Writes at `offset`; may wait for the disk; may write fewer bytes than asked.
///
/// # Errors
/// As pwrite(2): `ENOSPC` for a full disk.
pub fn write_at(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwrite(fd, bytes, offset))?)
}

/// Sends at most `len` bytes of `file` from `*offset` on `socket` without copying them, and moves `*offset`.
///
/// `Ok(0)`: the file ends here. Waits for the disk if the bytes are not cached ([`is_cached`]).
///
/// # Errors
/// As sendfile(2); `WouldBlock` where the socket's buffer is full.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    len: usize,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        fs::sendfile(socket, file, Some(&mut *offset), len)
    })?)
}

/// Whether `[offset, offset + len)` is in the page cache, judged by one byte in each 64 KiB.
///
/// The kernel reads ahead and drops runs of pages, so this check rarely misses a gap. If it does, the reader waits
/// for the disk once. (cachestat(2) would tell exactly, but only to the file's owner.)
pub fn is_cached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Some(last) = len.checked_sub(1).map(|rest| offset.saturating_add(rest)) else {
        return true;
    };
    let mut probe = |at| matches!(read_cached(fd, &mut [0], at), Ok(Some(_)));
    (offset..last).step_by(PROBE_STEP).all(&mut probe) && probe(last)
}

/// Reads `[offset, offset + len)` into the page cache and waits for it. For a thread that may block.
///
/// # Errors
/// As read(2).
pub fn populate(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    // The advice starts the whole read at once; the reads after it wait for it.
    let _ = fs::fadvise(
        fd,
        offset,
        core::num::NonZeroU64::new(len),
        Advice::WillNeed,
    );
    let end = offset.saturating_add(len);
    let mut at = offset;
    let mut buffer = vec![0; 64 * 1024];
    while at < end {
        let want = buffer.len().min((end - at) as usize);
        match read_at(fd, &mut buffer[..want], at)? {
            0 => break,
            n => at += n as u64,
        }
    }
    Ok(())
}

/// A new file without a name in `dir`, for reading and writing, mode 0600: it is deleted when it is closed.
///
/// # Errors
/// As open(2): `EACCES`, `EROFS`, `ENOSPC`, `EMFILE` …
pub fn temp_file(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR) {
        // The file system, or a very old kernel, does not know O_TMPFILE (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => named_temp_file(dir),
        result => Ok(result?),
    }
}

/// Whether this process may write a file, or create files in a folder (access(2), with the effective identity).
pub fn may_write(path: &Path) -> bool {
    let wanted = match path.is_dir() {
        true => Access::WRITE_OK | Access::EXEC_OK,
        false => Access::WRITE_OK,
    };
    fs::accessat(fs::CWD, path, wanted, AtFlags::EACCESS).is_ok()
}

/// Whether an access control list (acl(5)) adds to a file's permission bits.
pub fn has_access_list(path: &Path) -> bool {
    fs::getxattr_query(path, ACL_NAME).is_ok_and(|length| length > 0)
}

/// Whether a program gets capabilities when it is executed (capabilities(7), "File capabilities").
pub fn has_capabilities(path: &Path) -> bool {
    fs::getxattr_query(path, c"security.capability").is_ok_and(|length| length > 0)
}

/// Free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that ordinary users may still write.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
    /// Files that may still be created; `None`: the file system does not count them.
    pub free_files: Option<u64>,
    /// It is in memory (tmpfs, ramfs).
    pub memory: bool,
    /// It is read-only.
    pub read_only: bool,
}

/// The free space of the file system with `path`.
///
/// # Errors
/// As statfs(2).
pub fn space(path: &Path) -> io::Result<Space> {
    let (counts, kind) = (fs::statvfs(path)?, fs::statfs(path)?);
    Ok(Space {
        free: counts.f_bavail.saturating_mul(counts.f_frsize),
        total: counts.f_blocks.saturating_mul(counts.f_frsize),
        free_files: (counts.f_files > 0).then_some(counts.f_favail),
        memory: [TMPFS, RAMFS].contains(&u64::try_from(kind.f_type).unwrap_or(0)),
        read_only: counts.f_flag.contains(fs::StatVfsMountFlags::RDONLY),
    })
}

/// Whether the file system of an open file is behind a network or another process, so that even stat(2) may wait for
/// long.
///
/// # Errors
/// As fstatfs(2), which itself may wait.
pub fn is_remote(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = fs::fstatfs(fd)?.f_type;
    // The kernel's numbers have 32 bits; the type of the field may be signed.
    Ok(REMOTE.contains(&(kind as u32)))
}

/// NFS, SMB (three numbers), FUSE, Ceph, AFS (two), Coda, 9P, Lustre, GPFS, OCFS2, GFS2, the shared folders of VirtualBox and
/// VMware. See statfs(2) and linux/magic.h.
const REMOTE: [u32; 16] = [
    0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x65735546, 0x00c36400, 0x5346414f, 0x6b414653,
    0x73757245, 0x01021997, 0x0bd00bd0, 0x47504653, 0x7461636f, 0x01161970, 0x786f4256, 0xbacbacbc,
];

/// See statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// See statfs(2).
const RAMFS: u64 = 0x8584_58f6;

/// Changes the owner of an open file. Only root may do that.
///
/// # Errors
/// As fchown(2).
pub fn give(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(fd, Some(uid), Some(gid))?)
}

/// Which file it is: device and inode.
pub type FileId = (u64, u64);

/// The identity of the file at `path`; a link is not followed. `None`: there is no file, or its identity is not known.
pub fn named(path: &Path) -> Option<FileId> {
    fs::lstat(path).ok().map(|stat| id(&stat))
}

pub(crate) fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// Removes a name if it is still that of this file. The owner of a folder on the way can let the path lead elsewhere at
/// any time, so the name is removed in the folder in which it was looked up. `if_empty`: only if the file is empty.
///
/// # Errors
/// As open(2), unlink(2).
pub fn remove_same(path: &Path, file: FileId, if_empty: bool) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let removed = fs::open(folder, flags, Mode::empty()).and_then(|folder| {
        let found = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match id(&found) == file && (!if_empty || found.st_size == 0) {
            true => fs::unlinkat(&folder, name, AtFlags::empty()),
            false => Ok(()),
        }
    });
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the kernel has no openat2(2).
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

fn openat2_is_refused(root: BorrowedFd<'_>) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let result = fs::openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
    matches!(result, Err(Errno::PERM))
}

fn has_parent(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').any(|part| part == b"..")
}

/// Replaces openat2's `RESOLVE_BENEATH` on kernels without it: each part is opened separately without following
/// links, each symbolic link is read and followed here, and `..` goes back to the previous folder.
fn walk_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let open_part = |at: BorrowedFd<'_>, name: &[u8], flags: OFlags| {
        fs::openat(
            at,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let mut folders: Vec<OwnedFd> = Vec::new();
    let mut parts = to_parts(path);
    let mut links = 0;
    while let Some(part) = parts.pop() {
        let here = folders.last().map_or(root, as_borrowed);
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                if folders.pop().is_none() {
                    return Err(Errno::XDEV.into());
                }
                continue;
            }
            _ => {}
        }
        let entry = open_part(here, &part, OFlags::PATH)?;
        match FileType::from_raw_mode(fs::fstat(&entry)?.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > 40 {
                    return Err(Errno::LOOP.into());
                }
                let target: CString = fs::readlinkat(&entry, "", Vec::new())?;
                if target.as_bytes().first() == Some(&b'/') {
                    return Err(Errno::XDEV.into());
                }
                parts.extend(to_parts(target.as_bytes()));
            }
            FileType::Directory => folders.push(entry),
            // A trailing slash leaves an empty last part, which only a folder may have.
            _ if !parts.is_empty() => return Err(Errno::NOTDIR.into()),
            _ => return Ok(open_part(here, &part, flags)?),
        }
    }
    let here = folders.last().map_or(root, as_borrowed);
    Ok(open_part(here, b".", flags)?)
}

/// The parts of a path, last one first.
fn to_parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.rsplit(|&b| b == b'/').map(<[u8]>::to_vec).collect()
}

fn as_borrowed(fd: &OwnedFd) -> BorrowedFd<'_> {
    use std::os::fd::AsFd;
    fd.as_fd()
}

fn file_stat(stat: &fs::Stat) -> FileStat {
    let nanoseconds = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
    FileStat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: stat.st_size as u64,
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        },
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// [`temp_file`] if files without a name are not supported: an unused name, removed at once.
fn named_temp_file(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let name = random_name()?;
        let name = OsStr::from_bytes(name.as_bytes());
        match fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(file) => {
                fs::unlinkat(dir, name, AtFlags::empty())?;
                return Ok(file);
            }
        }
    }
}

/// A file name that nobody can predict: `.weir-` and 16 hexadecimal digits.
pub(crate) fn random_name() -> io::Result<String> {
    Ok(format!(".weir-{}", random::name()?))
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// A place in the tree without the right to read what is there.
const NAME: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The page cache's unit where no larger one is in use. A larger page means that a page is asked for twice.
/// How far the looks of [`is_cached`] are apart, bytes.
const PROBE_STEP: usize = 64 * 1024;

#[cfg(test)]
mod tests;
