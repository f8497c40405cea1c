//! Turns a program into a daemon: forks, leaves the terminal, and sets its title in process lists.

use std::{
    ffi::{CStr, CString, c_char},
    fs, io,
    os::fd::{AsFd, AsRawFd, RawFd},
    ptr,
};

use rustix::io::Errno;

use crate::identity::checked;

unsafe extern "C" {
    /// environ(7)
    static mut environ: *mut *mut c_char;
}

/// Which process continues after [`fork`].
#[derive(Debug, PartialEq, Eq)]
pub enum Fork {
    /// The calling process, with the new process's id.
    Parent(u32),
    /// The new process.
    Child,
}

/// Continues as two processes. Only a process with one thread may call it, because other threads would be missing in
/// the child.
///
/// # Errors
/// As fork(2); `Unsupported` where there are more threads, or it cannot be told.
pub fn fork() -> io::Result<Fork> {
    only_thread()?;
    // SAFETY: there is one thread. So no other thread, which the child would lack, holds a lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid.unsigned_abs())),
    }
}

/// Starts a session without a terminal.
///
/// # Errors
/// As setsid(2).
pub fn begin_session() -> io::Result<()> {
    match rustix::process::setsid() {
        // A group leader, such as a program that a shell starts, cannot start a session.
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Replaces one of the standard descriptors (0 to 2) by `file`.
///
/// # Errors
/// As dup2(2).
pub fn set_standard(number: RawFd, file: impl AsFd) -> io::Result<()> {
    if !(0..=2).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        // SAFETY: replaces one of the standard descriptors, which nobody owns.
        match checked(unsafe { libc::dup2(file.as_fd().as_raw_fd(), number) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Makes process lists show `title` instead of our command line, as far as the space of command line and environment
/// allows. Our arguments are lost; the environment does not change. It must be called once, by a program with one
/// thread.
///
/// # Errors
/// `Unsupported` if there are more threads; or if /proc cannot be read.
pub fn set_title(title: &str) -> io::Result<()> {
    only_thread()?;
    let (start, end) = arguments_area()?;
    let strings = copy_environment();
    // SAFETY: there is one thread, so nobody reads the list while it is replaced. The new list ends with a null
    // pointer. Neither the list nor its strings are ever freed.
    unsafe { environ = strings };
    let room = end - start;
    let title = &title.as_bytes()[..title.len().min(room.saturating_sub(1))];
    let area = ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel put arguments and environment there, one after the other, writable and for the process's whole
    // life. From here on the copy of the environment is used, and nobody reads the arguments meanwhile.
    unsafe {
        ptr::write_bytes(area, 0, room);
        ptr::copy_nonoverlapping(title.as_ptr(), area, title.len());
    }
    Ok(())
}

/// A copy of the environment that is never freed.
fn copy_environment() -> *mut *mut c_char {
    let mut copies: Vec<*mut c_char> = Vec::new();
    // SAFETY: there is one thread, so the list does not change while it is read.
    let mut next = unsafe { environ };
    while !next.is_null() {
        // SAFETY: the list's pointers are read up to the null pointer that ends it.
        let string = unsafe { *next };
        if string.is_null() {
            break;
        }
        // SAFETY: each is a C string.
        let copy: CString = unsafe { CStr::from_ptr(string) }.to_owned();
        copies.push(copy.into_raw());
        // SAFETY: this entry was not the null pointer at the end, so another entry follows.
        next = unsafe { next.add(1) };
    }
    copies.push(ptr::null_mut());
    copies.leak().as_mut_ptr()
}

/// Where our arguments and the environment after them are in memory: proc(5), fields 48 and 51 of stat.
fn arguments_area() -> io::Result<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name in parentheses and may contain anything.
    let fields: Vec<&str> = match stat.rsplit_once(')') {
        Some((_, rest)) => rest.split_whitespace().collect(),
        None => Vec::new(),
    };
    // The list begins with the third field.
    let field = |number: usize| fields.get(number - 3)?.parse::<usize>().ok();
    match (field(48), field(51)) {
        (Some(start), Some(end)) if start > 0 && start < end => Ok((start, end)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn only_thread() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // Tests run at the same time, each in its own thread.
        let other = std::thread::spawn(|| {
            let error = fork().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            let error = set_title("x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        });
        other.join().unwrap();
    }

    #[test]
    fn the_kernel_says_where_arguments_are() {
        let (start, end) = arguments_area().unwrap();
        assert!(end - start > std::env::args().next().unwrap().len());
    }
}
