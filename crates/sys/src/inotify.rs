//! Changes of files and folders (inotify(7)). For network file systems, inotify does not report changes of other
//! machines.

use std::{
    ffi::OsStr,
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

/// Folders that are watched.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// Which changes of a folder's entries are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Entries that are added, removed or renamed.
    Names,
    /// The same, and that one is written to, or its owner or rights change.
    Contents,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'e> {
    /// To an entry of the folder with this number.
    Entry(i32, &'e OsStr),
    /// The folder with this number is itself gone, renamed or not watched any more.
    Folder(i32),
    /// More than the kernel keeps: anything may have changed.
    Lost,
}

impl Inotify {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// As inotify_init1(2): `EMFILE` at `fs.inotify.max_user_instances`.
    pub fn new() -> io::Result<Inotify> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        Ok(Inotify(inotify::init(flags)?))
    }

    /// Watches a folder, also if it is watched already. Returns its number, which is the same each time.
    ///
    /// # Errors
    /// As inotify_add_watch(2): `ENOSPC` at `fs.inotify.max_user_watches`, `ENOTDIR`, `ENOENT`, `EACCES`.
    pub fn watch(&self, folder: &Path, watch: Watch) -> io::Result<i32> {
        let mut flags = WatchFlags::ONLYDIR | WatchFlags::MASK_ADD | WatchFlags::CREATE;
        flags |= WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::DELETE_SELF;
        flags |= WatchFlags::MOVE_SELF;
        if watch == Watch::Contents {
            flags |= WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY | WatchFlags::ATTRIB;
        }
        Ok(inotify::add_watch(&self.0, folder, flags)?)
    }

    /// Gives all changes since the last call to `each`.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, mut each: impl FnMut(Change<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            each(match event.file_name() {
                _ if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => Change::Lost,
                Some(name) => Change::Entry(event.wd(), OsStr::from_bytes(name.to_bytes())),
                None => Change::Folder(event.wd()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_of_entries_are_told_and_those_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inotify = Inotify::new().unwrap();
        let number = inotify.watch(folder.path(), Watch::Names).unwrap();
        let changes = || {
            let mut changes = Vec::new();
            let note = |change: Change<'_>| changes.push(format!("{change:?}"));
            inotify.read(note).unwrap();
            changes
        };
        assert!(changes().is_empty());
        let (file, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "a").unwrap();
        assert_eq!(changes(), [format!("Entry({number}, \"a\")")]);
        fs::write(&file, "b").unwrap();
        assert!(changes().is_empty());
        assert_eq!(
            inotify.watch(folder.path(), Watch::Contents).unwrap(),
            number
        );
        fs::write(&file, "c").unwrap();
        assert!(changes().contains(&format!("Entry({number}, \"a\")")));
        fs::rename(&file, &other).unwrap();
        assert_eq!(
            changes(),
            ["a", "b"].map(|name| format!("Entry({number}, {name:?})"))
        );
        inotify.watch(&other, Watch::Names).unwrap_err();
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(changes().contains(&format!("Folder({number})")));
    }
}
