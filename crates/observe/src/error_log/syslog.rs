//! The error log in syslog: one datagram per line to /dev/log (RFC 3164, as syslog(3) writes it).
//!
//! The manager opens the socket, because a gateway in a chroot cannot. A message that syslog does not accept at once
//! is lost and counted; weir does not wait.
//!
//! With `error_format = "fpm"` the messages are those of PHP-FPM 8.2, byte for byte: all have the severity of `level`,
//! the gateway uses the manager's process id, and control characters of a worker's output are escaped as PHP does it
//! (main/php_syslog.c).

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    time::SystemTime,
};

use log::{Level, LevelFilter, Record};

use super::Format;
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
pub struct Syslog {
    socket: UnixDatagram,
    tag: Tag,
    /// The process id in messages.
    pid: u32,
    /// Messages lost since the last one that was accepted.
    lost: u64,
}

/// Connects to syslog.
///
/// # Errors
/// As socket(2) and connect(2). When weir runs instead of PHP-FPM, a missing syslog is no error, as in PHP-FPM: each
/// message tries to connect again.
pub fn connect() -> io::Result<OwnedFd> {
    let socket = UnixDatagram::unbound()?;
    match socket.connect(SYSTEM_LOG) {
        Err(_) if super::format() == Format::Fpm => {}
        connected => connected?,
    }
    Ok(socket.into())
}

impl Syslog {
    /// Uses a socket of [`connect`]. `pid` is the process id in messages.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn new(socket: OwnedFd, tag: Tag, pid: u32) -> io::Result<Self> {
        let socket = UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            tag,
            pid,
            lost: 0,
        })
    }

    /// Continues with another socket.
    pub(super) fn reopen(&mut self, socket: OwnedFd) {
        if let Ok(new) = Self::new(socket, self.tag.clone(), self.pid) {
            self.socket = new.socket;
        }
    }

    /// Sends a message with this `text`.
    pub(super) fn send(&mut self, level: Level, text: &[u8]) {
        let severity = severity(match super::format() {
            Format::Weir => level.to_level_filter(),
            // The message's own level does not count.
            Format::Fpm => log::max_level(),
        });
        self.send_with(severity, text);
    }

    /// Sends lines of a worker's output, each as one message; a newline at the end does not begin another line. Nothing
    /// after a zero byte of a line is sent.
    pub(super) fn send_lines(&mut self, lines: &[u8]) {
        let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
        let mut text = Vec::new();
        for line in lines.split(|&byte| byte == b'\n') {
            text.clear();
            put_as_php(line, &mut text);
            self.send(Level::Warn, &text);
        }
    }

    /// Sends a message with this `text` and this severity, numbered as in syslog(3).
    pub fn send_with(&mut self, severity: u8, text: &[u8]) {
        let mut message = self.head(severity, SystemTime::now());
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
    fn head(&self, severity: u8, time: SystemTime) -> Vec<u8> {
        let priority = u32::from(self.tag.facility) * 8 + u32::from(severity);
        let mut head = format!("<{priority}>").into_bytes();
        text::put_time_syslog(time, &mut head);
        head.push(b' ');
        text::put_message(self.tag.ident.as_bytes(), &mut head);
        head.extend_from_slice(format!("[{}]: ", self.pid).as_bytes());
        head
    }
}

/// The number of a level in syslog(3).
fn severity(level: LevelFilter) -> u8 {
    match level {
        LevelFilter::Off | LevelFilter::Error => 3,
        LevelFilter::Warn => 4,
        LevelFilter::Info => 5,
        LevelFilter::Debug | LevelFilter::Trace => 7,
    }
}

/// Appends the text up to its first zero byte, with control characters escaped, as PHP sends text to syslog.
fn put_as_php(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text.iter().take_while(|&&byte| byte != 0) {
        match byte {
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            byte => out.push(byte),
        }
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
        let mut log = Syslog::new(ours.into(), tag, 4711).expect("a log");
        log.send(Level::Warn, b"[WARNING] a");
        let mut buffer = [0; 256];
        let length = theirs.recv(&mut buffer).expect("a message");
        let message = str::from_utf8(&buffer[..length]).expect("text");
        assert!(message.starts_with("<132>"), "{message}");
        assert!(
            message.ends_with(" php-fpm[4711]: [WARNING] a"),
            "{message}"
        );
        // 2026-11-05
        let time = UNIX_EPOCH + Duration::from_secs(1_793_880_000);
        let head = String::from_utf8(log.head(3, time)).expect("text");
        assert!(head.starts_with("<131>Nov  5 "), "{head}");

        log.send_lines(b"a\tb\x7f\xff\0c\n\nd\n");
        for expected in ["a\\x09b\\x7f\u{fffd}", "", "d"] {
            let length = theirs.recv(&mut buffer).expect("a message");
            let message = String::from_utf8_lossy(&buffer[..length]);
            let (_, text) = message.split_once("[4711]: ").expect("a head");
            assert_eq!(text, expected);
        }
    }
}
