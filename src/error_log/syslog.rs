//! The error log in syslog: one datagram per line to /dev/log (RFC 3164, as syslog(3) writes it).
//!
//! The manager opens the socket, because a gateway in a chroot cannot. A message that syslog does not accept at once
//! is lost and counted; weir does not wait.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    time::SystemTime,
};

use log::{Level, Record};

use crate::log_text as text;

/// The name and facility of messages to syslog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// `weir`
    pub ident: String,
    /// Numbered as in syslog(3) (daemon: 3).
    pub facility: u8,
}

impl From<&weir_config::Log> for Tag {
    fn from(log: &weir_config::Log) -> Self {
        Self {
            ident: log.syslog_ident.clone(),
            facility: log.syslog_facility,
        }
    }
}

/// A socket that is connected to syslog.
#[derive(Debug)]
pub(super) struct Syslog {
    socket: UnixDatagram,
    tag: Tag,
    /// Messages lost since the last one that was accepted.
    lost: u64,
}

/// Connects to syslog.
///
/// # Errors
/// As socket(2) and connect(2).
pub fn connect() -> io::Result<OwnedFd> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SYSTEM_LOG)?;
    Ok(socket.into())
}

impl Syslog {
    pub(super) fn new(socket: OwnedFd, tag: Tag) -> io::Result<Self> {
        let socket = UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            tag,
            lost: 0,
        })
    }

    /// Continues with another socket.
    pub(super) fn reopen(&mut self, socket: OwnedFd) {
        if let Ok(new) = Self::new(socket, self.tag.clone()) {
            self.socket = new.socket;
        }
    }

    /// Sends a message with this `text`.
    pub(super) fn send(&mut self, level: Level, text: &[u8]) {
        let mut message = self.head(level, SystemTime::now());
        message.extend_from_slice(text);
        if self.lost > 0 {
            message.extend_from_slice(format!(" lines_lost={}", self.lost).as_bytes());
        }
        let sent = self.socket.send(&message).or_else(|_| {
            // syslog may have been restarted.
            self.socket.connect(SYSTEM_LOG)?;
            self.socket.send(&message)
        });
        match sent {
            Ok(_) => self.lost = 0,
            Err(_) => self.lost += 1,
        }
    }

    /// `<27>Nov 20 12:14:00 weir[42]: `
    fn head(&self, level: Level, time: SystemTime) -> Vec<u8> {
        let severity = match level {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 5,
            Level::Debug | Level::Trace => 7,
        };
        let priority = u32::from(self.tag.facility) * 8 + severity;
        let mut head = format!("<{priority}>").into_bytes();
        text::put_time_syslog(time, &mut head);
        head.push(b' ');
        text::put_message(self.tag.ident.as_bytes(), &mut head);
        head.extend_from_slice(format!("[{}]: ", std::process::id()).as_bytes());
        head
    }
}

/// The text of a record in weir's own format, without time and level, for which syslog has its own fields.
pub(super) fn put_text(record: &Record<'_>, role: &str, out: &mut Vec<u8>) {
    text::put_formatted(format_args!("[{role}] {}", record.args()), out);
    let _ = record.key_values().visit(&mut super::Pairs(out));
}

/// The path of syslog's socket in the C library.
const SYSTEM_LOG: &str = "/dev/log";

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_message_says_priority_time_name_and_process() {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        let tag = Tag {
            ident: "php-fpm".to_owned(),
            facility: 16,
        };
        let mut log = Syslog::new(ours.into(), tag).expect("a log");
        log.send(Level::Warn, b"[WARNING] a");
        let mut buffer = [0; 256];
        let length = theirs.recv(&mut buffer).expect("a message");
        let message = str::from_utf8(&buffer[..length]).expect("text");
        assert!(message.starts_with("<132>"), "{message}");
        let tail = format!(" php-fpm[{}]: [WARNING] a", std::process::id());
        assert!(message.ends_with(&tail), "{message}");
        // 2026-11-05
        let time = UNIX_EPOCH + Duration::from_secs(1_793_880_000);
        let head = String::from_utf8(log.head(Level::Error, time)).expect("text");
        assert!(head.starts_with("<131>Nov  5 "), "{head}");
    }
}
