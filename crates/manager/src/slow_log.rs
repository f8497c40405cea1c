//! The slow log of a pool: the positions of scripts that ran too long, in PHP-FPM's format.
//!
//! ```text
//!
//! [20-Nov-2026 15:13:20]  [pool www] pid 1234
//! script_filename = /srv/slow.php
//! [0x00007f0d4a0120a0] sleep() /srv/slow.php:3
//! ```
//!
//! A worker sends its position as one message to a socket that its master got ([`crate::php`]). The worker
//! controls this text, so only requested entries are accepted, and they are cut and escaped.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::SystemTime,
};

use weir_config::{LogTarget, Php};
use weir_observe::{
    error_log::{About, tell},
    events, log_text,
};
use weir_sys::message;

use super::{line_log::LineLog, plan::Problem};

/// Where entries are written.
#[derive(Debug)]
pub(super) struct SlowLog {
    pool: String,
    /// `None`: the error log.
    log: Option<LineLog>,
}

/// The socket to which the workers of a master send entries.
#[derive(Debug)]
pub(super) struct SlowSocket {
    end: OwnedFd,
    /// Number of requested entries.
    expected: u32,
}

impl SlowLog {
    /// Opens it.
    ///
    /// # Errors
    /// The problem, with its fix.
    pub(super) fn open(pool: &str, php: &Php, groups: &Rc<[u32]>) -> Result<Self, Problem> {
        let key = format!("pool.{pool}.slowlog");
        let open = |path| LineLog::open(key, &LogTarget::File(path), groups);
        Ok(Self {
            pool: pool.to_owned(),
            log: php.slowlog.clone().map(open).transpose()?,
        })
    }

    /// Reopens it, as after the file was moved away.
    pub(super) fn reopen(&self) -> Result<(), Problem> {
        self.log.as_ref().map_or(Ok(()), LineLog::reopen)
    }

    fn write(&self, pid: u32, trace: &[u8]) {
        let mut entry = Vec::with_capacity(trace.len() + 80);
        entry.extend(b"\n[");
        log_text::put_time_php(SystemTime::now(), false, &mut entry);
        log_text::put_formatted(
            format_args!("]  [pool {}] pid {pid}", self.pool),
            &mut entry,
        );
        entry.push(b'\n');
        for line in lines(trace) {
            log_text::put_message(line, &mut entry);
            entry.push(b'\n');
        }
        let written = self.log.as_ref().is_some_and(|log| log.write(&entry));
        if !written {
            let about = About {
                pool: Some(&self.pool),
                worker: Some(log_text::Worker::Pid(pid)),
                ..About::default()
            };
            for line in lines(trace) {
                tell!(warning, about, "slow: {}", String::from_utf8_lossy(line));
            }
        }
        events::traced(&self.pool, pid);
    }
}

impl SlowSocket {
    /// Two ends: ours, and the master's.
    ///
    /// # Errors
    /// As socketpair(2).
    pub(super) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (end, theirs) = message::pair()?;
        Ok((Self { end, expected: 0 }, theirs))
    }

    /// An entry was requested from a worker.
    pub(super) fn expect(&mut self) {
        self.expected = self.expected.saturating_add(1).min(MAX_EXPECTED);
    }

    /// Writes new entries to `log`. `false`: no more will come.
    pub(super) fn read(&mut self, log: &SlowLog) -> bool {
        let mut buffer = vec![0; MAX_ENTRY];
        for _ in 0..ENTRIES_AT_ONCE {
            let received = message::receive(self.end.as_fd(), &mut buffer, false);
            let entry = match received {
                Ok((0, _)) => return false,
                Ok((n, _)) => &buffer[..n],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                // Longer than an entry can be: skipped.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Err(_) => return false,
            };
            if let Some((pid, trace)) = entry.split_first_chunk()
                && self.expected > 0
            {
                self.expected -= 1;
                log.write(u32::from_be_bytes(*pid), trace);
            }
        }
        true
    }
}

impl AsFd for SlowSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

fn lines(trace: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = trace.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// Maximum size of an entry, bytes.
const MAX_ENTRY: usize = 256 << 10;

/// How many entries are read before others get their turn.
const ENTRIES_AT_ONCE: usize = 16;

/// Maximum number of requested entries that are remembered.
const MAX_EXPECTED: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_php_fpm_writes_them_and_only_those_that_were_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.log");
        let target = LogTarget::File(path.clone());
        let log = SlowLog {
            pool: "www".into(),
            log: Some(LineLog::open("pool.www.slowlog".into(), &target, &Rc::default()).unwrap()),
        };
        let (mut socket, theirs) = SlowSocket::pair().unwrap();
        let send = |bytes: &[u8]| message::send(theirs.as_fd(), bytes, &[], true).unwrap();
        send(b"\0\0\0\x01never asked for");
        assert!(socket.read(&log));
        socket.expect();
        send(b"\0\0\x04\xd2script_filename = /a.php\n[0x1] sleep() /a.php:3\n\x1b[31m\n");
        send(b"\0\0\0\x01once too often");
        assert!(socket.read(&log));
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("]  ").unwrap();
        assert!(head.starts_with("\n[") && head.len() == "\n[20-Nov-2026 15:13:20".len());
        assert_eq!(
            rest,
            "[pool www] pid 1234\nscript_filename = /a.php\n[0x1] sleep() /a.php:3\n\\x1B[31m\n"
        );
        drop(theirs);
        assert!(!socket.read(&log));
    }
}
