//! Limits the system calls of a process, with a filter (seccomp(2)).

use std::io;

/// From now on this process and all of its threads, also those that it starts, can compute, use the descriptors that they
/// have, receive others through them, and start threads. Other calls fail with `EPERM`: it can open no file, make no
/// socket, start no program and touch no other process. Returns false if the kernel has no such filters. Needs
/// [`crate::identity::no_new_privileges`] before, or root's rights.
///
/// # Errors
/// As seccomp(2).
pub fn only_compute() -> io::Result<bool> {
    let Some(architecture) = ARCHITECTURE else {
        return Ok(false);
    };
    let program = program(architecture, ALLOWED);
    let filter = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(true),
        // Another thread has a filter of its own.
        1.. => Err(io::ErrorKind::ResourceBusy.into()),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(false),
            error => Err(error),
        },
    }
}

/// The filter: is it our architecture, and is the call in the list?
fn program(architecture: u32, allowed: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let unless_equal = |k: u32, jump: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: jump,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let result = libc::BPF_RET | libc::BPF_K;
    let refuse = statement(result, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    // The fields of seccomp_data: the number of the call at 0, the architecture at 4.
    let mut program = vec![
        statement(load, 4),
        unless_equal(architecture, 2),
        statement(load, 0),
        unless_equal(u32::MAX, 1),
        refuse,
    ];
    for call in allowed {
        program.push(unless_equal(*call as u32, 1));
        program.push(statement(result, libc::SECCOMP_RET_ALLOW));
    }
    program.push(refuse);
    program
}

/// The kernel's number of this architecture (linux/audit.h); `None`: weir has no filter for it.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// Calls that only compute, wait, allocate, or use descriptors that are there.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter of a process cannot be taken off, so another one tries it: [`crate::process`] and the keeper's tests do.
    /// Here is only what the kernel checks as well: jumps stay inside.
    #[test]
    fn every_jump_stays_inside_and_every_way_ends() {
        let program = program(7, ALLOWED);
        for (index, step) in program.iter().enumerate() {
            let target = index + 1 + usize::from(step.jt.max(step.jf));
            let ends = u32::from(step.code) == libc::BPF_RET | libc::BPF_K;
            assert!(ends || target < program.len(), "{index}");
        }
        assert!(program.len() < 4096);
    }
}
