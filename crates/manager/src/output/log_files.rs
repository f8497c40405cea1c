//! The files of a configuration's logs. If a configuration does not take effect, the files that were made for it are
//! removed, unless something was written to them.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_sys::{
    file::{self, FileId},
    log_file::{self, Opened, Refused},
};

/// Opens them.
#[derive(Debug)]
pub(crate) struct LogFiles {
    /// See [`crate::generation::plan::Plan::groups`].
    groups: Rc<[u32]>,
    /// The files that were made; `None`: the configuration has taken effect.
    made: RefCell<Option<Vec<(PathBuf, FileId)>>>,
}

impl LogFiles {
    pub(crate) fn new(groups: Rc<[u32]>) -> Rc<Self> {
        Rc::new(Self {
            groups,
            made: RefCell::new(Some(Vec::new())),
        })
    }

    /// Opens a log for appending; makes it with `mode` if there is none.
    ///
    /// # Errors
    /// See [`log_file::open`].
    pub(crate) fn open(&self, path: &Path, mode: u32) -> Result<Opened, Refused> {
        let opened = log_file::open(path, mode, &self.groups)?;
        if let (Some(file), Some(made)) = (opened.created, &mut *self.made.borrow_mut()) {
            made.push((path.to_owned(), file));
        }
        Ok(opened)
    }

    /// The configuration has taken effect: its files stay.
    pub(crate) fn keep(&self) {
        self.made.replace(None);
    }

    /// The configuration does not take effect.
    pub(crate) fn discard(&self) {
        for (path, file) in self.made.take().into_iter().flatten() {
            if let Err(error) = file::remove_same(&path, file, true) {
                let shown = path.display();
                log::warn!("cannot remove the log {shown}, which nothing uses: {error}");
            }
        }
    }
}

impl Drop for LogFiles {
    fn drop(&mut self) {
        self.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    #[test]
    fn what_was_made_for_nothing_goes_and_what_was_there_or_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("there"), "").unwrap();
        let files = LogFiles::new(Rc::new([]));
        for name in ["there", "new", "written", "replaced"] {
            let mut log = fs::File::from(files.open(&path(name), 0o640).unwrap().file);
            if name == "written" {
                log.write_all(b"line\n").unwrap();
            }
        }
        fs::rename(path("replaced"), path("replaced.1")).unwrap();
        fs::write(path("replaced"), "").unwrap();
        drop(files);
        let left = ["there", "new", "written", "replaced"].map(|name| path(name).exists());
        assert_eq!(left, [true, false, true, true]);
        let files = LogFiles::new(Rc::new([]));
        files.open(&path("new"), 0o640).unwrap();
        files.keep();
        drop(files);
        assert!(path("new").exists());
    }
}
