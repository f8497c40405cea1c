//! The files that a running PHP was loaded from: its program, its libraries, its configuration files. If none of them
//! has changed, a new master would be the same.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::wire::Library;

/// Files and folders, with their state at that time.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// The time of the last check, and its result.
    seen: Cell<Option<(Look, bool)>>,
}

/// One look at the files of all masters, which may have the same: each file is looked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look(pub(super) u32);

/// The state by which changes are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Inputs {
    /// The inputs of a process that was started from `program`: these files, with their folders, and these libraries.
    /// If `loaded` is empty: the libraries that the kernel reports, if it permits that.
    pub(super) fn of(program: &Path, pid: u32, files: &[PathBuf], loaded: &[Library]) -> Self {
        let mut paths = vec![program.to_owned()];
        for file in files {
            paths.push(file.clone());
            paths.extend(file.parent().map(Path::to_owned));
        }
        if loaded.is_empty() {
            paths.extend(libraries(pid));
        }
        paths.sort();
        paths.dedup();
        let stamp = |path: PathBuf| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        };
        let library = |library: &Library| {
            let stamp = Stamp::of(&library.path);
            let is_it = stamp.is_some_and(|stamp| Some(stamp.file) == library.file);
            (
                library.path.clone(),
                Some(stamp.filter(|_| is_it).unwrap_or(GONE)),
            )
        };
        let stamped = paths.into_iter().map(stamp);
        Self {
            files: stamped.chain(loaded.iter().map(library)).collect(),
            seen: Cell::new(None),
        }
    }

    /// Whether they have not changed.
    pub(super) fn are_the_same(&self) -> bool {
        let mut files = self.files.iter();
        files.all(|(path, stamp)| Stamp::of(path) == *stamp)
    }

    /// The same, as this look shows.
    pub(super) fn are_the_same_at(&self, look: Look) -> bool {
        if let Some((seen, same)) = self.seen.get()
            && seen == look
        {
            return same;
        }
        let same = self.are_the_same();
        self.seen.set(Some((look, same)));
        same
    }
}

/// Marks a library whose file was replaced: no file has this state.
const GONE: Stamp = Stamp {
    file: (u64::MAX, u64::MAX),
    size: u64::MAX,
    changed: (i64::MIN, i64::MIN),
};

impl Stamp {
    /// `None`: it does not exist.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// The shared libraries that a process has mapped (proc_pid_maps(5)); empty if we may not look.
fn libraries(pid: u32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut libraries: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .filter(|path| path.contains(".so"))
        .map(PathBuf::from)
        .collect();
    libraries.dedup();
    libraries.truncate(MAX_LIBRARIES);
    libraries
}

/// Maximum number of libraries that are checked.
const MAX_LIBRARIES: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_or_comes_or_is_replaced_makes_a_difference() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (
            folder.path().join("php.ini"),
            folder.path().join("other.ini"),
        );
        fs::write(&file, "a").unwrap();
        let take = || {
            Inputs::of(
                Path::new("/bin/sh"),
                std::process::id(),
                std::slice::from_ref(&file),
                &[],
            )
        };
        let inputs = take();
        assert!(
            inputs
                .files
                .iter()
                .any(|(path, _)| path.to_string_lossy().contains("libc"))
        );
        assert!(inputs.are_the_same());
        fs::write(&other, "").unwrap();
        assert!(!inputs.are_the_same(), "a new file beside it");
        let inputs = take();
        assert!(inputs.are_the_same());
        fs::write(&file, "ab").unwrap();
        assert!(!inputs.are_the_same(), "a changed file");
        let inputs = take();
        fs::copy(&file, &other).unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(!inputs.are_the_same(), "another file of its name");
    }

    #[test]
    fn a_library_that_the_process_names_is_looked_at_without_looking_into_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("libphp.so"), folder.path().join("new"));
        fs::write(&path, "a").unwrap();
        let of = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            Some((metadata.dev(), metadata.ino()))
        };
        let take = |file| {
            let library = Library {
                path: path.clone(),
                file,
            };
            Inputs::of(Path::new("/bin/sh"), u32::MAX, &[], &[library])
        };
        let inputs = take(of(&path));
        assert!(inputs.are_the_same());
        let before = of(&path);
        fs::write(&other, "a").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!inputs.are_the_same(), "replaced since");
        assert!(
            !take(before).are_the_same(),
            "replaced before it was looked at"
        );
        assert!(!take(None).are_the_same(), "gone before it was told");
        fs::remove_file(&path).unwrap();
        assert!(
            !take(None).are_the_same(),
            "gone, and no other in its place"
        );
    }
}
