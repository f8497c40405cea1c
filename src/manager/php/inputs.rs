//! What a running PHP was made of: its program, its libraries, its configuration files. While none of that has changed a
//! new one would be the same.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Files and folders, as they were.
#[derive(Debug, Default)]
pub(super) struct Inputs(Vec<(PathBuf, Option<Stamp>)>);

/// What a file is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Inputs {
    /// What a process that was started from `program` has loaded by now, and these files, with the folders they are in.
    pub(super) fn of(program: &Path, pid: u32, files: &[PathBuf]) -> Self {
        let mut paths = vec![program.to_owned()];
        for file in files {
            paths.push(file.clone());
            paths.extend(file.parent().map(Path::to_owned));
        }
        paths.extend(libraries(pid));
        paths.sort();
        paths.dedup();
        let stamp = |path: PathBuf| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        };
        Self(paths.into_iter().map(stamp).collect())
    }

    /// They are as they were.
    pub(super) fn are_the_same(&self) -> bool {
        self.0.iter().all(|(path, stamp)| Stamp::of(path) == *stamp)
    }
}

impl Stamp {
    /// None: it is not there.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// The shared libraries that a process has mapped (proc_pid_maps(5)); none where we may not look.
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

/// Libraries that are looked at.
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
            )
        };
        let inputs = take();
        assert!(
            inputs
                .0
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
}
