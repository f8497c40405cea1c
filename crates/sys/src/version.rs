//! The version of this build. weir's processes and weir-php exchange their versions first, and refuse a different one.

use std::{io, os::fd::BorrowedFd};

use crate::message;

/// The version, as in Cargo.toml: `0.1.0`.
pub fn version() -> &'static str {
    // Without this line the compiler would use the text of the source. Tests make a program of another version by
    // writing another text to its file.
    let text = std::hint::black_box(&TEXT);
    let text = text.strip_prefix(WORDS).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    str::from_utf8(&text[..end]).unwrap_or_default()
}

/// Why two parts of different versions do not work together: both with their names, for messages.
///
/// # Errors
/// If `theirs` is not [`version`].
pub fn agree(own: &str, other: &str, theirs: &str) -> Result<(), String> {
    match version() {
        ours if ours == theirs => Ok(()),
        ours => Err(format!(
            "{own} is version {ours}, {other} is version {theirs}: {MEND}"
        )),
    }
}

/// Tells a process that we have started our version, as the first message on its channel.
///
/// # Errors
/// As sendmsg(2).
pub fn greet(channel: BorrowedFd<'_>) -> io::Result<()> {
    let packet = [WORDS, version().as_bytes()].concat();
    message::send(channel, &packet, &[], false)
}

/// Receives what [`greet`] sends. `own`: what this process is called.
///
/// # Errors
/// If that is not our version, or no version at all.
pub fn be_greeted(channel: BorrowedFd<'_>, own: &str) -> Result<(), String> {
    let mut packet = [0; LONGEST];
    let (length, _) =
        message::receive(channel, &mut packet, true).map_err(|error| error.to_string())?;
    if length == 0 {
        return Err("the manager has ended".into());
    }
    let theirs = packet[..length].strip_prefix(WORDS);
    let theirs = theirs.map_or("unknown".into(), String::from_utf8_lossy);
    agree(own, "weir's manager", &theirs)
}

/// What to do if two parts have different versions.
pub const MEND: &str = "install both from one build, then run `weir upgrade`";

/// Maximum length of the first message, bytes.
const LONGEST: usize = 64 * 1024;

/// weir-php has a text like this, too (php/protocol.c).
const WORDS: &[u8] = b"weir is version ";

/// The words, the version, a newline, and room for longer versions.
static TEXT: [u8; 80] = {
    let mut text = [0; 80];
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut at = 0;
    while at < WORDS.len() {
        text[at] = WORDS[at];
        at += 1;
    }
    let mut taken = 0;
    while taken < version.len() {
        text[at + taken] = version[taken];
        taken += 1;
    }
    text[at + taken] = b'\n';
    text
};

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_version_is_that_of_the_package_and_another_is_refused() {
        assert_eq!(version(), env!("CARGO_PKG_VERSION"));
        assert_eq!(agree("a", "b", version()), Ok(()));
        let refused = agree("the gateway", "the manager", "0.0.7").unwrap_err();
        let both = format!(
            "the gateway is version {}, the manager is version 0.0.7: ",
            version()
        );
        assert!(refused.starts_with(&both), "{refused}");
    }

    #[test]
    fn the_first_message_has_the_version() {
        let (ours, theirs) = message::pair().unwrap();
        greet(ours.as_fd()).unwrap();
        assert_eq!(be_greeted(theirs.as_fd(), "the gateway"), Ok(()));
        message::send(ours.as_fd(), b"weir is version 0.0.7", &[], true).unwrap();
        let refused = be_greeted(theirs.as_fd(), "the gateway").unwrap_err();
        assert!(
            refused.contains("weir's manager is version 0.0.7"),
            "{refused}"
        );
        message::send(ours.as_fd(), b"\x01", &[], true).unwrap();
        let refused = be_greeted(theirs.as_fd(), "the gateway").unwrap_err();
        assert!(refused.contains("is version unknown"), "{refused}");
        drop(ours);
        be_greeted(theirs.as_fd(), "the gateway").unwrap_err();
    }
}
