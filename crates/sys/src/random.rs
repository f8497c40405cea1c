//! Random numbers of the kernel: getrandom(2).
//!
//! They are as good for keys as those of a TLS library, and available at once: such a library first collects noise, which takes a
//! process some 20 ms.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`. Waits only if the machine has just started and the kernel has not collected enough yet.
///
/// # Errors
/// getrandom(2).
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A name that nobody can predict: 16 hexadecimal digits.
///
/// # Errors
/// As [`fill`].
pub fn name() -> io::Result<String> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
