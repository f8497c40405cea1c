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
    cell::Cell,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use weir_config::{LogTarget, Php};
use weir_control::SlowPlace;
use weir_observe::{
    error_log::{About, tell},
    events, log_text,
};
use weir_sys::message;

use super::{line_log::LineLog, log_files::LogFiles};
use crate::generation::plan::Problem;

/// Where entries are written.
#[derive(Debug)]
pub(crate) struct SlowLog {
    pool: String,
    /// `None`: the error log, which gets an entry from time to time only.
    log: Option<LineLog>,
    /// When the error log may get the next one, and how many were left out.
    next: Cell<(Option<Instant>, u64)>,
}

/// The socket to which the workers of a master send entries.
#[derive(Debug)]
pub(crate) struct SlowSocket {
    end: OwnedFd,
    /// Number of requested entries.
    expected: u32,
}

impl SlowLog {
    /// Opens it.
    ///
    /// # Errors
    /// The problem, with its fix.
    pub(crate) fn open(pool: &str, php: &Php, files: &Rc<LogFiles>) -> Result<Self, Problem> {
        let key = format!("pool.{pool}.slowlog");
        let open = |path| LineLog::open(key, &LogTarget::File(path), files);
        Ok(Self {
            pool: pool.to_owned(),
            log: php.slowlog.clone().map(open).transpose()?,
            next: Cell::default(),
        })
    }

    /// Reopens it, as after the file was moved away.
    pub(crate) fn reopen(&self) -> Result<(), Problem> {
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
            self.tell(pid, trace);
        }
        events::traced(&self.pool, pid);
    }

    /// Writes an entry to the error log, unless there was one a moment ago.
    fn tell(&self, pid: u32, trace: &[u8]) {
        let (next, left_out) = self.next.get();
        let now = Instant::now();
        if next.is_some_and(|next| now < next) {
            self.next.set((next, left_out + 1));
            return;
        }
        self.next.set((Some(now + PAUSE), 0));
        let about = || About {
            pool: Some(&self.pool),
            worker: Some(log_text::Worker::Pid(pid)),
            ..About::default()
        };
        if left_out > 0 {
            tell!(
                warning,
                about(),
                "slow: {left_out} more stacks were left out here; slowlog of the pool names a file for all"
            );
        }
        for line in lines(trace) {
            tell!(warning, about(), "slow: {}", String::from_utf8_lossy(line));
        }
    }
}

impl SlowSocket {
    /// Two ends: ours, and the master's.
    ///
    /// # Errors
    /// As socketpair(2).
    pub(crate) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (end, theirs) = message::pair()?;
        Ok((Self { end, expected: 0 }, theirs))
    }

    /// An entry was requested from a worker.
    pub(crate) fn expect(&mut self) {
        self.expected = self.expected.saturating_add(1).min(MAX_EXPECTED);
    }

    /// Writes new entries to `log`, and adds where the scripts are to `places`. `false`: no more will come.
    pub(crate) fn read(&mut self, log: &SlowLog, places: &mut Vec<SlowPlace>) -> bool {
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
                let pid = u32::from_be_bytes(*pid);
                let (class, trace) = split(trace);
                log.write(pid, trace);
                places.extend(innermost(class, trace).map(|(function, at)| SlowPlace {
                    pool: log.pool.clone(),
                    pid,
                    function,
                    at,
                }));
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

/// The class of the innermost function, if the worker tells one, and the entry for the log.
fn split(entry: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let class = entry.strip_prefix(CLASS);
    let split = class.and_then(|rest| {
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        Some((Some(&rest[..end]), &rest[end + 1..]))
    });
    split.unwrap_or((None, entry))
}

/// Function and position of the first frame: `[0x00007f0d4a0120a0] sleep() /srv/slow.php:3`.
fn innermost(class: Option<&[u8]>, trace: &[u8]) -> Option<(String, String)> {
    let frame = lines(trace).find_map(|line| line.strip_prefix(b"[0x"))?;
    let frame = String::from_utf8_lossy(frame);
    let (_, frame) = frame.split_once("] ")?;
    let (function, at) = frame.split_once("() ")?;
    let function = match class {
        Some(class) => format!("{}::{function}", String::from_utf8_lossy(class)),
        None => function.to_owned(),
    };
    Some((short(&function), short(at)))
}

/// The end of a text that is too long: the name of a function or file.
fn short(text: &str) -> String {
    let from = text.len().saturating_sub(MAX_PLACE);
    let from = (from..=text.len()).find(|&index| text.is_char_boundary(index));
    text[from.unwrap_or(0)..].to_owned()
}

const CLASS: &[u8] = b"class = ";

/// Maximum length of the name of a function and of a position, bytes.
const MAX_PLACE: usize = 300;

/// The error log gets at most one entry of a pool in this time.
const PAUSE: Duration = Duration::from_secs(10);

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
            log: Some(
                LineLog::open(
                    "pool.www.slowlog".into(),
                    &target,
                    &crate::output::log_files::LogFiles::new(Rc::default()),
                )
                .unwrap(),
            ),
            next: Cell::default(),
        };
        let mut places = Vec::new();
        let (mut socket, theirs) = SlowSocket::pair().unwrap();
        let send = |bytes: &[u8]| message::send(theirs.as_fd(), bytes, &[], true).unwrap();
        send(b"\0\0\0\x01never asked for");
        assert!(socket.read(&log, &mut places));
        socket.expect();
        send(b"\0\0\x04\xd2script_filename = /a.php\n[0x1] sleep() /a.php:3\n\x1b[31m\n");
        send(b"\0\0\0\x01once too often");
        assert!(socket.read(&log, &mut places));
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("]  ").unwrap();
        assert!(head.starts_with("\n[") && head.len() == "\n[20-Nov-2026 15:13:20".len());
        assert_eq!(
            rest,
            "[pool www] pid 1234\nscript_filename = /a.php\n[0x1] sleep() /a.php:3\n\\x1B[31m\n"
        );
        let place = &places[0];
        assert_eq!((place.pool.as_str(), place.pid), ("www", 1234));
        assert_eq!(
            (place.function.as_str(), place.at.as_str()),
            ("sleep", "/a.php:3")
        );
        assert_eq!(places.len(), 1);
        drop(theirs);
        assert!(!socket.read(&log, &mut places));
    }

    #[test]
    fn the_innermost_function_is_named_with_its_class() {
        let frame = "script_filename = /a.php\n[0x1] execute() /db.php:7\n[0x2] f() /a.php:1\n";
        let find = |entry: &str| {
            let (class, trace) = split(entry.as_bytes());
            innermost(class, trace)
        };
        let place = |function: &str, at: &str| Some((function.to_owned(), at.to_owned()));
        assert_eq!(find(frame), place("execute", "/db.php:7"));
        let with_class = format!("class = PDOStatement\n{frame}");
        assert_eq!(
            find(&with_class),
            place("PDOStatement::execute", "/db.php:7")
        );
        assert_eq!(split(with_class.as_bytes()).1, frame.as_bytes());
        for nothing in [
            "",
            "class = ",
            "class = x",
            "script_filename = /a.php\n",
            "[0x1] sleep",
        ] {
            assert_eq!(find(nothing), None, "{nothing}");
        }
        assert_eq!(short(&"ä".repeat(200)).len(), MAX_PLACE);
    }
}
