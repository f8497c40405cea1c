//! Memory files, to pass text to another process.

use std::{
    ffi::CStr,
    io::{self, Read, Seek, Write},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::fs::{self, MemfdFlags, SealFlags};

/// A memory file with these contents, sealed against changes. `name` is visible only in /proc.
///
/// # Errors
/// As memfd_create(2): `EMFILE`, `ENOMEM`.
pub fn file(name: &CStr, contents: &[u8]) -> io::Result<OwnedFd> {
    let fd = fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(contents)?;
    file.rewind()?;
    let fd = OwnedFd::from(file);
    fs::fcntl_add_seals(
        &fd,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(fd)
}

/// An empty memory file that the receiver may write to. `name` is visible only in /proc.
///
/// # Errors
/// As memfd_create(2): `EMFILE`, `ENOMEM`.
pub fn empty(name: &CStr) -> io::Result<OwnedFd> {
    Ok(fs::memfd_create(name, MemfdFlags::CLOEXEC)?)
}

/// The length of a file, bytes.
///
/// # Errors
/// As fstat(2).
pub fn len(file: &OwnedFd) -> io::Result<u64> {
    Ok(u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0))
}

/// Reads a file from its beginning, at most `limit` bytes.
///
/// # Errors
/// As read(2); `InvalidData` for a longer file.
pub fn read(fd: BorrowedFd<'_>, limit: usize) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::from(fd.try_clone_to_owned()?);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(bytes)
}

/// Allows huge pages for this process's memory again. Children inherit the setting, also through exec(2): otherwise
/// children of a process whose allocator has disabled huge pages would have none. If the kernel does not know the
/// setting, nothing changes.
pub fn use_huge_pages() {
    // SAFETY: the call takes numbers only, and changes nothing but how the kernel backs later pages.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
}

/// Gives memory back to the kernel that the calling thread has freed. The allocator does this itself while it is
/// used, but not on an idle thread.
pub fn give_back() {
    // SAFETY: may be called at any time; it touches only what is free, of the calling thread and of none.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn contents_are_read_from_the_start_and_cannot_change() {
        let fd = file(c"weir-test", b"text").unwrap();
        assert_eq!(read(fd.as_fd(), 4).unwrap(), b"text");
        assert_eq!(read(fd.as_fd(), 4).unwrap(), b"text");
        assert!(read(fd.as_fd(), 3).is_err());
        assert!(std::fs::File::from(fd).write_all(b"x").is_err());
    }
}
