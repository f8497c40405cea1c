//! Symbolic links that lead out of a folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Links in the upper three levels of a folder that lead out of it, with their targets, sorted by name. The list may
/// be incomplete if there are very many files.
pub fn out_of(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let Ok(real) = root.canonicalize() else {
        return Vec::new();
    };
    let mut left = MOST_ENTRIES;
    let mut out = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if left == 0 {
                break;
            }
            left -= 1;
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < DEPTH {
                folders.push((path, depth + 1));
            } else if kind.is_symlink()
                && let Ok(target) = path.canonicalize()
                && !target.starts_with(&real)
            {
                out.push((path, target));
            }
        }
    }
    out.sort();
    out
}

/// Maximum number of entries that are checked.
const MOST_ENTRIES: usize = 5_000;
/// Maximum depth below the folder.
const DEPTH: usize = 2;
