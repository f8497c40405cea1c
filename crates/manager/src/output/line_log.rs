//! Logs that the manager writes for workers: their output, and the positions of slow scripts.
//!
//! Only whole lines are written: to files at once, to outputs that need a reader by a thread. If writing fails, the
//! caller is told and the lines go to the error log, so that a full disk loses nothing that can be kept elsewhere.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, IsTerminal, Write},
    os::{fd::OwnedFd, unix::fs::FileTypeExt},
    rc::Rc,
    time::Duration,
};

use weir_config::LogTarget;
use weir_observe::log_sink::{Options, Sink, Target};

use super::log_files::LogFiles;
use crate::{children::heritage::open_log, generation::plan::Problem};

/// An open log.
#[derive(Debug)]
pub(crate) struct LineLog {
    /// Its key in the configuration: `pool.shop.output_log`.
    key: String,
    target: LogTarget,
    files: Rc<LogFiles>,
    out: RefCell<Out>,
    /// Whether the error was already reported.
    failing: Cell<bool>,
}

/// The output.
#[derive(Debug)]
enum Out {
    /// No output.
    None,
    /// Written at once.
    File(File),
    /// Written by a thread: a pipe, terminal or socket accepts lines only while somebody reads, and the manager must
    /// not wait for that.
    Behind(Sink),
}

impl LineLog {
    /// Opens it, for appending if it is a file.
    ///
    /// # Errors
    /// The problem, with its fix.
    pub(crate) fn open(
        key: String,
        target: &LogTarget,
        files: &Rc<LogFiles>,
    ) -> Result<Self, Problem> {
        Ok(Self {
            out: RefCell::new(Out::to(&key, open_log(&key, target, files)?)),
            key,
            files: files.clone(),
            target: target.clone(),
            failing: Cell::new(false),
        })
    }

    /// Reopens it, as after the file was moved away. If that fails, the old file is used.
    pub(crate) fn reopen(&self) -> Result<(), Problem> {
        let opened = open_log(&self.key, &self.target, &self.files)?;
        let mut out = self.out.borrow_mut();
        match (&*out, opened) {
            (Out::Behind(sink), Some(fd)) => sink.reopen(fd),
            (_, opened) => *out = Out::to(&self.key, opened),
        }
        Ok(())
    }

    /// Writes lines, which have their own newlines. `false`: they could not be written.
    pub(crate) fn write(&self, lines: &[u8]) -> bool {
        let failed = match &mut *self.out.borrow_mut() {
            Out::None => None,
            Out::File(file) => file.write_all(lines).err(),
            // The sink counts lost lines.
            Out::Behind(sink) => {
                sink.push(lines);
                None
            }
        };
        self.tell_once(failed.as_ref());
        failed.is_none()
    }

    /// Waits until everything is written, at most for `limit`.
    pub(crate) fn flush(&self, limit: Duration) {
        if let Out::Behind(sink) = &*self.out.borrow() {
            sink.flush(limit);
        }
    }

    fn tell_once(&self, failed: Option<&io::Error>) {
        let before = self.failing.replace(failed.is_some());
        if let (Some(error), false) = (failed, before) {
            log::error!(
                "{} cannot be written: {error}; its lines go to the error log until it works again",
                self.key
            );
        }
    }
}

impl Out {
    fn to(key: &str, fd: Option<OwnedFd>) -> Self {
        let Some(file) = fd.map(File::from) else {
            return Self::None;
        };
        let waits = file.metadata().is_ok_and(|metadata| {
            let kind = metadata.file_type();
            kind.is_fifo() || kind.is_socket() || file.is_terminal()
        });
        if !waits {
            return Self::File(file);
        }
        let options = Options {
            max_delay: Duration::ZERO,
            ..Options::default()
        };
        match Sink::start(key, Target::Fd(file.into()), options) {
            Ok(sink) => Self::Behind(sink),
            Err(error) => {
                log::error!("{key} cannot be written: {error}");
                Self::None
            }
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Self::Behind(sink) = self {
            sink.close(LAST_WORDS);
        }
    }
}

/// How long a pipe without a reader may take for the last lines. Nobody waits for this.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lines_are_appended_and_a_reopened_log_goes_on_in_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        fs::write(&path, "before\n").unwrap();
        let target = LogTarget::File(path.clone());
        let log = LineLog::open(
            "pool.a.output_log".into(),
            &target,
            &LogFiles::new(Rc::default()),
        )
        .unwrap();
        assert!(log.write(b"one\n"));
        fs::rename(&path, &moved).unwrap();
        assert!(log.write(b"two\n"));
        log.reopen().unwrap();
        assert!(log.write(b"three\n"));
        assert_eq!(fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn what_cannot_be_written_is_said_so() {
        let target = LogTarget::File("/dev/full".into());
        let log = LineLog::open(
            "pool.a.output_log".into(),
            &target,
            &LogFiles::new(Rc::default()),
        )
        .unwrap();
        assert!(!log.write(b"one\n"));
        let target = LogTarget::File("/no/such/folder/log".into());
        let problem = LineLog::open(
            "pool.a.slowlog".into(),
            &target,
            &LogFiles::new(Rc::default()),
        )
        .unwrap_err();
        assert_eq!(problem.key, "pool.a.slowlog");
        let off = LineLog::open(
            "pool.a.slowlog".into(),
            &LogTarget::Off,
            &LogFiles::new(Rc::default()),
        )
        .unwrap();
        assert!(off.write(b"one\n"));
    }
}
