//! Logs that the manager itself writes to for workers: what they print, and where slow scripts are.
//!
//! Lines are written at once and whole. Where that fails the caller is told, and the error log gets them instead: a full
//! disk loses nothing that anybody else can still take.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, Write},
};

use weir_config::LogTarget;

use super::{heritage::open_log, plan::Problem};

/// A log, open.
#[derive(Debug)]
pub(super) struct LineLog {
    /// What it is called in the configuration: `pool.shop.output_log`.
    key: String,
    target: LogTarget,
    /// None: nothing is written.
    file: RefCell<Option<File>>,
    /// That it cannot be written was told.
    failing: Cell<bool>,
}

impl LineLog {
    /// Opens it, for appending where it is a file.
    ///
    /// # Errors
    /// With what mends it.
    pub(super) fn open(key: String, target: &LogTarget) -> Result<Self, Problem> {
        Ok(Self {
            file: RefCell::new(open_log(&key, target)?.map(File::from)),
            key,
            target: target.clone(),
            failing: Cell::new(false),
        })
    }

    /// Opens it again, as after the file was moved away. Where that fails the old file goes on.
    pub(super) fn reopen(&self) -> Result<(), Problem> {
        let opened = open_log(&self.key, &self.target)?.map(File::from);
        *self.file.borrow_mut() = opened;
        Ok(())
    }

    /// Writes lines, which bring their newlines. `false`: they could not be written.
    pub(super) fn write(&self, lines: &[u8]) -> bool {
        let mut file = self.file.borrow_mut();
        let Some(file) = file.as_mut() else {
            return true;
        };
        let failed = file.write_all(lines).err();
        self.tell_once(failed.as_ref());
        failed.is_none()
    }

    fn tell_once(&self, failed: Option<&io::Error>) {
        let before = self.failing.replace(failed.is_some());
        if let (Some(error), false) = (failed, before) {
            log::error!(
                "{} cannot be written: {error}; its lines go to the error log until it can be",
                self.key
            );
        }
    }
}

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
        let log = LineLog::open("pool.a.output_log".into(), &target).unwrap();
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
        let log = LineLog::open("pool.a.output_log".into(), &target).unwrap();
        assert!(!log.write(b"one\n"));
        let target = LogTarget::File("/no/such/folder/log".into());
        let problem = LineLog::open("pool.a.slowlog".into(), &target).unwrap_err();
        assert_eq!(problem.key, "pool.a.slowlog");
        let off = LineLog::open("pool.a.slowlog".into(), &LogTarget::Off).unwrap();
        assert!(off.write(b"one\n"));
    }
}
