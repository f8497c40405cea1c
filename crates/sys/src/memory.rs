//! Memory files, to pass text to another process; the allocator.

use std::{
    alloc::{GlobalAlloc, Layout},
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
    // SAFETY: the call takes only numbers. It changes only the size of pages that the kernel gives later.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
}

/// Gives memory back to the kernel that the calling thread has freed. The allocator does this itself while it is
/// used, but not on an idle thread.
pub fn give_back() {
    // SAFETY: may be called at any time; it touches only free memory, of the calling thread or of no thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// mimalloc as the allocator of a program.
///
/// Nearly all objects need no more than the alignment that each block has. Asking for those without naming an alignment
/// takes the shortest way through the allocator.
#[derive(Debug)]
pub struct Allocator;

impl Allocator {
    /// Whether a block of this size has this alignment in any case: blocks of 16 bytes and more are aligned to 16, smaller
    /// ones to 8.
    const fn is_aligned(size: usize, align: usize) -> bool {
        align <= 8 || (align == 16 && size >= 16)
    }
}

// SAFETY: mimalloc's blocks do not overlap, are as large as was asked, aligned as was asked or as `is_aligned` says
// (MI_MAX_ALIGN_SIZE), and stay valid until they are freed; none of the calls unwinds. All of them take blocks of each
// other.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: the calls take any size, and any power of two as an alignment.
        unsafe {
            match Self::is_aligned(size, align) {
                true => libmimalloc_sys::mi_malloc(size).cast(),
                false => libmimalloc_sys::mi_malloc_aligned(size, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        unsafe {
            match Self::is_aligned(size, align) {
                true => libmimalloc_sys::mi_zalloc(size).cast(),
                false => libmimalloc_sys::mi_zalloc_aligned(size, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives a block of this allocator.
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let align = layout.align();
        // SAFETY: the caller gives a block of this allocator; otherwise as in `alloc`.
        unsafe {
            match Self::is_aligned(size, align) {
                true => libmimalloc_sys::mi_realloc(block.cast(), size).cast(),
                false => libmimalloc_sys::mi_realloc_aligned(block.cast(), size, align).cast(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn blocks_are_aligned_and_keep_their_contents() {
        for align in [1, 2, 4, 8, 16, 32, 128, 4096] {
            for size in [1, 7, 8, 9, 15, 16, 17, 24, 48, 100, 1000, 5000, 100_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout is not empty; the block is freed once, with its layout, and used within its size.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null());
                    assert_eq!(block.addr() % align, 0, "{size} aligned to {align}");
                    block.write_bytes(7, size);
                    let more = Allocator.realloc(block, layout, size * 2);
                    assert_eq!(more.addr() % align, 0, "{size} aligned to {align}, larger");
                    assert!((0..size).all(|at| *more.add(at) == 7));
                    Allocator.dealloc(more, Layout::from_size_align(size * 2, align).unwrap());
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert_eq!(
                        zeroed.addr() % align,
                        0,
                        "{size} aligned to {align}, zeroed"
                    );
                    assert!((0..size).all(|at| *zeroed.add(at) == 0));
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }

    #[test]
    fn contents_are_read_from_the_start_and_cannot_change() {
        let fd = file(c"weir-test", b"text").unwrap();
        assert_eq!(read(fd.as_fd(), 4).unwrap(), b"text");
        assert_eq!(read(fd.as_fd(), 4).unwrap(), b"text");
        assert!(read(fd.as_fd(), 3).is_err());
        assert!(std::fs::File::from(fd).write_all(b"x").is_err());
    }
}
