//! Which certificates' files may have changed.
//!
//! To check thousands of files several times a second would take a noticeable part of a processor. So the kernel
//! reports in which folders entries have changed (inotify), and only those are checked. All folders on a path are
//! watched, also behind links, because a changed link or a renamed folder leads to other files.
//!
//! The kernel does not report everything: neither changes of other machines on shared file systems, nor a mount over a
//! folder. So files on shared file systems, and files that cannot be watched, are checked each time. All other files
//! are checked too, a few at a time.

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map::DefaultHasher},
    ffi::OsStr,
    fs::File,
    hash::{Hash, Hasher},
    io,
    os::fd::AsFd,
    path::{Component, Path, PathBuf},
};

use weir_sys::{
    file,
    inotify::{Change, Inotify, Watch},
};

/// The files of certificates, each by the certificate's number.
#[derive(Debug, Default)]
pub(super) struct Changes {
    inotify: Option<Inotify>,
    /// Entries of folders that lead to files.
    folders: HashSet<Entry>,
    /// Entries that are files, or links to them, and the certificate. In order.
    files: Vec<(Entry, u32)>,
    /// Certificates that are looked at each time.
    unwatched: BTreeSet<u32>,
    /// Certificates that are checked once more.
    again: BTreeSet<u32>,
    /// Up to where all were looked at.
    swept: u32,
}

/// An entry of a folder: a hash of its name and the folder's number. Two with the same hash cost a look.
type Entry = u64;

/// Watches what a path leads through.
struct Watcher<'i> {
    inotify: &'i Inotify,
    /// The known folders: their entries that lead to a file, and the paths to which these lead.
    known: HashMap<PathBuf, (Vec<Entry>, PathBuf)>,
    /// Numbers of folders.
    numbers: HashMap<(PathBuf, bool), i32>,
}

/// The files of a certificate.
pub(super) type Files<'l> = [&'l Path; 2];

/// What a path leads through.
#[derive(Debug, Default)]
struct Way {
    folders: Vec<Entry>,
    files: Vec<Entry>,
}

impl Changes {
    /// Watches the files of `count` certificates. They may have changed already.
    pub(super) fn begin<'l>(&mut self, count: u32, files: &dyn Fn(u32) -> Files<'l>) {
        self.watch_all(count, files);
        self.again.extend(0..count);
    }

    /// Watches the files of a certificate that is new, or has other files than before.
    pub(super) fn watch_one<'l>(&mut self, number: u32, files: &dyn Fn(u32) -> Files<'l>) {
        self.files.retain(|(_, other)| *other != number);
        self.watch(files, std::iter::once(number));
        self.look_again(number);
    }

    /// Watches the files of `count` certificates anew.
    fn watch_all<'l>(&mut self, count: u32, files: &dyn Fn(u32) -> Files<'l>) {
        *self = Changes {
            inotify: Inotify::new()
                .inspect_err(|error| {
                    log::warn!(
                        "the kernel cannot watch the files of certificates ({error}), so weir checks all of them regularly"
                    );
                })
                .ok(),
            swept: self.swept,
            ..Changes::default()
        };
        self.watch(files, 0..count);
    }

    /// Watches the files of these certificates, as their paths lead to them now.
    fn watch<'l>(&mut self, files: &dyn Fn(u32) -> Files<'l>, which: impl Iterator<Item = u32>) {
        let Some(inotify) = &self.inotify else {
            return self.unwatched.extend(which);
        };
        let mut watcher = Watcher {
            inotify,
            known: HashMap::new(),
            numbers: HashMap::new(),
        };
        let mut is_told = !self.unwatched.is_empty();
        for number in which {
            self.unwatched.remove(&number);
            for path in files(number) {
                let mut way = Way::default();
                let watched = watcher.file(path, &mut way, MOST_LINKS);
                self.folders.extend(way.folders);
                self.files
                    .extend(way.files.into_iter().map(|entry| (entry, number)));
                if let Err(error) = watched {
                    if !std::mem::replace(&mut is_told, true) {
                        log::info!("{}: looked at regularly: {error}", path.display());
                    }
                    self.unwatched.insert(number);
                }
            }
        }
        self.files.sort_unstable();
        self.files.dedup();
    }

    /// Which of `count` certificates have files that must be checked now.
    pub(super) fn take<'l>(
        &mut self,
        count: u32,
        files: &dyn Fn(u32) -> Files<'l>,
    ) -> BTreeSet<u32> {
        let mut changed = BTreeSet::new();
        let mut is_all = false;
        if let Some(inotify) = &self.inotify {
            let read = inotify.read(|change| match change {
                Change::Entry(folder, name) => {
                    let entry = entry(folder, name);
                    is_all |= self.folders.contains(&entry);
                    let from = self.files.partition_point(|(other, _)| *other < entry);
                    let these = self.files[from..].iter();
                    let these = these.take_while(|(other, _)| *other == entry);
                    changed.extend(these.map(|(_, number)| *number));
                }
                Change::Folder(_) | Change::Lost => is_all = true,
            });
            is_all |= read.is_err();
        }
        if is_all {
            self.watch_all(count, files);
            return (0..count).collect();
        }
        if !changed.is_empty() {
            // A link may lead to another file.
            self.files.retain(|(_, number)| !changed.contains(number));
            self.watch(files, changed.iter().copied());
        }
        changed.append(&mut self.again);
        changed.extend(&self.unwatched);
        changed.extend(self.sweep(count));
        changed
    }

    /// The certificate is looked at the next time too.
    pub(super) fn look_again(&mut self, number: u32) {
        self.again.insert(number);
    }

    /// How many are looked at each time.
    pub(super) fn unwatched(&self) -> usize {
        self.unwatched.len()
    }

    /// The next few of all.
    fn sweep(&mut self, count: u32) -> std::ops::Range<u32> {
        let from = match self.swept < count {
            true => self.swept,
            false => 0,
        };
        self.swept = count.min(from + count.div_ceil(SWEEP));
        from..self.swept
    }
}

impl Watcher<'_> {
    /// The way to a file.
    fn file(&mut self, path: &Path, way: &mut Way, links: u32) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            // A certificate that is gone.
            return Ok(());
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (entries, folder) = self.folder(folder, links)?;
        way.folders.extend(entries);
        let Some(number) = self.number(&folder, Watch::Contents)? else {
            return Ok(());
        };
        way.files.push(entry(number, name));
        match std::fs::read_link(folder.join(name)) {
            Ok(_) if links == 0 => Err(io::ErrorKind::InvalidInput.into()),
            Ok(target) => self.file(&folder.join(target), way, links - 1),
            Err(_) => Ok(()),
        }
    }

    /// The entries on the way to a folder, and where it is.
    fn folder(&mut self, path: &Path, links: u32) -> io::Result<(Vec<Entry>, PathBuf)> {
        if let Some(known) = self.known.get(path) {
            return Ok(known.clone());
        }
        let name = match path.components().next_back() {
            None => return self.folder(&std::env::current_dir()?, links),
            Some(Component::RootDir | Component::Prefix(_)) => return Ok((Vec::new(), "/".into())),
            Some(name) => name,
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let (mut entries, mut place) = self.folder(parent, links)?;
        match name {
            Component::ParentDir => drop(place.pop()),
            Component::Normal(name) => {
                // Nothing is in a folder that does not exist: its own entry is watched.
                if let Some(number) = self.number(&place, Watch::Names)? {
                    entries.push(entry(number, name));
                }
                place.push(name);
                match std::fs::read_link(&place) {
                    Ok(_) if links == 0 => return Err(io::ErrorKind::InvalidInput.into()),
                    Ok(target) => {
                        place.pop();
                        let (more, behind) = self.folder(&place.join(target), links - 1)?;
                        entries.extend(more);
                        place = behind;
                    }
                    Err(_) => {}
                }
            }
            _ => {}
        }
        self.known
            .insert(path.to_owned(), (entries.clone(), place.clone()));
        Ok((entries, place))
    }

    /// The number of a folder, which is watched from now on; `None`: there is no such folder.
    fn number(&mut self, folder: &Path, watch: Watch) -> io::Result<Option<i32>> {
        let key = (folder.to_owned(), watch == Watch::Contents);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(Some(*number));
        }
        let number = match self.inotify.watch(folder, watch) {
            Err(error) if is_missing(&error) => return Ok(None),
            number => number?,
        };
        if watch == Watch::Contents && file::is_remote(File::open(folder)?.as_fd())? {
            return Err(io::Error::other("another machine may change it"));
        }
        self.numbers.insert(key, number);
        Ok(Some(number))
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn entry(folder: i32, name: &OsStr) -> Entry {
    let mut hasher = DefaultHasher::new();
    (folder, name).hash(&mut hasher);
    hasher.finish()
}

/// How many links a path may lead through, as in the kernel.
const MOST_LINKS: u32 = 40;

/// After so many looks all files were looked at.
const SWEEP: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    /// Certificates for a look at some of them: more than the one whose turn it is and the changed one.
    struct Watched {
        changes: Changes,
        paths: Vec<[PathBuf; 2]>,
    }

    impl Watched {
        fn new(paths: Vec<[PathBuf; 2]>) -> Watched {
            let mut watched = Watched {
                changes: Changes::default(),
                paths,
            };
            let Watched { changes, paths } = &mut watched;
            changes.watch_all(paths.len() as u32, &|number| files(paths, number));
            assert!(changes.unwatched.is_empty());
            watched
        }

        fn looked_at(&mut self) -> Vec<u32> {
            let Watched { changes, paths } = self;
            let count = paths.len() as u32;
            // So the files that are checked by turns can be told apart below.
            changes.swept = count;
            let mut looked_at = changes.take(count, &|number| files(paths, number));
            let swept = 0..changes.swept;
            changes.swept = count;
            match looked_at.len() as u32 == count {
                true => {}
                false => looked_at.retain(|number| !swept.contains(number)),
            }
            looked_at.into_iter().collect()
        }
    }

    fn files(paths: &[[PathBuf; 2]], number: u32) -> Files<'_> {
        let [chain, key] = &paths[number as usize];
        [chain, key]
    }

    /// So many certificates in a folder; the first is never changed, because it is looked at in any case.
    fn in_folder(folder: &Path, count: usize) -> Vec<[PathBuf; 2]> {
        let path = |number: usize, end: &str| {
            let path = folder.join(format!("{number}.{end}"));
            fs::write(&path, "old").unwrap();
            path
        };
        (0..count)
            .map(|number| [path(number, "pem"), path(number, "key")])
            .collect()
    }

    #[test]
    fn only_what_has_changed_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = Watched::new(in_folder(folder.path(), 5));
        let path = |name: &str| folder.path().join(name);
        let nothing: [u32; 0] = [];
        assert_eq!(watched.looked_at(), nothing);
        fs::write(path("2.pem"), "new").unwrap();
        fs::write(path("other"), "new").unwrap();
        assert_eq!(watched.looked_at(), [2]);
        assert_eq!(watched.looked_at(), nothing);
        fs::rename(path("other"), path("3.key")).unwrap();
        fs::remove_file(path("4.pem")).unwrap();
        assert_eq!(watched.looked_at(), [3, 4]);
        watched.changes.look_again(4);
        fs::write(path("4.pem"), "new").unwrap();
        assert_eq!(watched.looked_at(), [4]);
        let mut permissions = fs::metadata(path("1.key")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(path("1.key"), permissions).unwrap();
        assert_eq!(watched.looked_at(), [1]);
    }

    #[test]
    fn links_lead_to_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // The links are as certbot makes them, and as Kubernetes mounts them.
        for name in ["archive", "live", "mount", "mount/1", "mount/2"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in [
            "archive/1.pem",
            "archive/2.pem",
            "mount/1/pem",
            "mount/2/pem",
        ] {
            fs::write(path(name), "old").unwrap();
        }
        symlink("../archive/1.pem", path("live/pem")).unwrap();
        symlink("1", path("mount/data")).unwrap();
        symlink("data/pem", path("mount/pem")).unwrap();
        let mut paths = in_folder(folder.path(), 1);
        for name in ["live/pem", "mount/pem"] {
            paths.push([path(name), path(name)]);
        }
        let mut watched = Watched::new(paths);
        let nothing: [u32; 0] = [];
        assert_eq!(watched.looked_at(), nothing);
        // What the link leads to is written to.
        fs::write(path("archive/1.pem"), "new").unwrap();
        assert_eq!(watched.looked_at(), [1]);
        fs::write(path("archive/2.pem"), "new").unwrap();
        assert_eq!(watched.looked_at(), nothing);
        // The link leads to another file, which is then watched.
        symlink("../archive/2.pem", path("live/next")).unwrap();
        fs::rename(path("live/next"), path("live/pem")).unwrap();
        assert_eq!(watched.looked_at(), [1]);
        fs::write(path("archive/2.pem"), "newer").unwrap();
        assert_eq!(watched.looked_at(), [1]);
        fs::write(path("archive/1.pem"), "newer").unwrap();
        assert_eq!(watched.looked_at(), nothing);
        // A link to a folder leads to another one: all are looked at.
        symlink("2", path("mount/next")).unwrap();
        fs::rename(path("mount/next"), path("mount/data")).unwrap();
        assert_eq!(watched.looked_at(), [0, 1, 2]);
        fs::write(path("mount/2/pem"), "new").unwrap();
        assert_eq!(watched.looked_at(), [2]);
    }

    #[test]
    fn files_and_folders_that_are_missing_may_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut paths = in_folder(folder.path(), 2);
        paths.push([path("made/later/pem"), path("made/later/key")]);
        let mut watched = Watched::new(paths);
        let nothing: [u32; 0] = [];
        assert_eq!(watched.looked_at(), nothing);
        fs::create_dir(path("made")).unwrap();
        assert_eq!(watched.looked_at(), [0, 1, 2]);
        fs::create_dir(path("made/later")).unwrap();
        assert_eq!(watched.looked_at(), [0, 1, 2]);
        fs::write(path("made/later/key"), "new").unwrap();
        assert_eq!(watched.looked_at(), [2]);
        // The folder is replaced by another one.
        fs::rename(path("made"), path("before")).unwrap();
        assert_eq!(watched.looked_at(), [0, 1, 2]);
        fs::create_dir_all(path("made/later")).unwrap();
        assert_eq!(watched.looked_at(), [0, 1, 2]);
        fs::write(path("made/later/pem"), "new").unwrap();
        assert_eq!(watched.looked_at(), [2]);
    }

    #[test]
    fn what_cannot_be_watched_is_looked_at_each_time_and_everything_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = in_folder(folder.path(), 200);
        // A link that leads to itself leads nowhere.
        symlink("loop", folder.path().join("loop")).unwrap();
        paths[100][1] = folder.path().join("loop");
        let mut changes = Changes::default();
        let of = |number: u32| files(&paths, number);
        changes.watch_all(200, &of);
        assert_eq!(changes.unwatched(), 1);
        let mut seen = BTreeSet::new();
        for _ in 0..SWEEP {
            let looked_at = changes.take(200, &of);
            assert!(looked_at.contains(&100));
            assert!(looked_at.len() <= 5, "{looked_at:?}");
            seen.extend(looked_at);
        }
        assert_eq!(seen.len(), 200);
        // Without any watch, all are looked at.
        changes.inotify = None;
        changes.watch(&of, 0..200);
        assert_eq!(changes.take(200, &of).len(), 200);
    }
}
