//! Paths of unix sockets that weir has made: weir removes them when no configuration uses them any more.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_sys::file::{self, FileId};

/// The path of a unix socket that weir has made. It is removed with the last copy of this.
#[derive(Debug)]
pub(crate) struct OwnPath {
    pub(crate) path: PathBuf,
    pub(crate) file: FileId,
    /// No other weir has it, too.
    is_ours: Cell<bool>,
    _folder: Option<OwnFolder>,
}

/// A folder that was made for a socket. It is removed after that, if nothing else is in it.
#[derive(Debug)]
pub(crate) struct OwnFolder(PathBuf);

impl OwnPath {
    pub(crate) fn new(path: &Path, file: FileId, folder: Option<OwnFolder>) -> Rc<Self> {
        Rc::new(Self {
            path: path.to_owned(),
            file,
            is_ours: Cell::new(true),
            _folder: folder,
        })
    }

    /// Another weir has it, too.
    pub(crate) fn of_other(path: &Path, file: FileId) -> Rc<Self> {
        let path = Self::new(path, file, None);
        path.set_ours(false);
        path
    }

    pub(crate) fn set_ours(&self, is_ours: bool) {
        self.is_ours.set(is_ours);
    }
}

impl OwnFolder {
    /// Makes weir's folder for this socket; `None`: it is there, or cannot be made. Then binding the socket reports the
    /// cause.
    pub(crate) fn of(socket: &Path) -> Option<Self> {
        let folder = socket.parent()?;
        weir_machine::make_runtime_folder(folder).ok()?;
        Some(Self(folder.to_owned()))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // It is left if something else is in it.
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        // If somebody else has replaced it, it must not be removed.
        if self.is_ours.get()
            && let Err(error) = file::remove_same(&self.path, self.file, false)
        {
            let shown = self.path.display();
            log::warn!("cannot remove the socket {shown}: {error}");
        }
    }
}
