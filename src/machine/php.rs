//! Where the program of a PHP version is: `weir-php8.2`, beside weir or where both were installed.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The program for a version of PHP (`8.2`); none: for the newest there is. With the version.
///
/// # Errors
/// What is wrong, and what mends it.
pub fn find(wanted: Option<&str>) -> Result<(String, PathBuf), (String, String)> {
    find_in(&folders(), wanted)
}

/// The programs of all versions of PHP, the oldest first, with their versions (`8.2`).
pub fn all() -> Vec<(String, PathBuf)> {
    let found = all_in(&folders()).into_iter();
    found
        .map(|(version, path)| (version.to_string(), path))
        .collect()
}

fn find_in(
    folders: &[PathBuf],
    wanted: Option<&str>,
) -> Result<(String, PathBuf), (String, String)> {
    let mut found = all_in(folders);
    let names: Vec<String> = found
        .iter()
        .map(|(version, _)| version.to_string())
        .collect();
    let chosen = match wanted {
        None => found.pop(),
        Some(wanted) => found
            .into_iter()
            .find(|(version, _)| version.to_string() == wanted),
    };
    if let Some((version, path)) = chosen {
        return Ok((version.to_string(), path));
    }
    let package = format!("libphp{}-embed", wanted.unwrap_or_default());
    let mend = format!("install PHP for embedding (Debian: {package}) and run `make`");
    Err(match (wanted, names.is_empty()) {
        (Some(wanted), false) => (
            format!("PHP {wanted} was asked for; found: {}", names.join(", ")),
            format!("write one of those, or {mend}"),
        ),
        (wanted, _) => {
            let asked = wanted.map_or("PHP".to_owned(), |wanted| format!("PHP {wanted}"));
            let name = format!("weir-php{}", wanted.unwrap_or("8.2"));
            let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
            (
                format!(
                    "{asked} was asked for, and there is no program for it ({name}) in {}",
                    places.join(", ")
                ),
                mend,
            )
        }
    })
}

/// The programs in these folders by version: of several for one version, that of the first folder.
fn all_in(folders: &[PathBuf]) -> Vec<(Version, PathBuf)> {
    let mut found: Vec<(Version, PathBuf)> = Vec::new();
    for folder in folders {
        for (version, path) in programs(folder) {
            if found.iter().all(|(other, _)| *other != version) {
                found.push((version, path));
            }
        }
    }
    found.sort();
    found
}

/// Major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Where to look, first to last: beside weir, beside a weir that was just built, where `make install` put it, and where
/// packages do.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let own = program.parent();
    let near = own.and_then(Path::parent).into_iter();
    let near = near.flat_map(|above| ["php", "lib/weir"].map(|name| above.join(name)));
    let mut folders: Vec<PathBuf> = own.map(Path::to_owned).into_iter().chain(near).collect();
    for usual in ["/usr/lib/weir", "/usr/local/lib/weir"].map(PathBuf::from) {
        if !folders.contains(&usual) {
            folders.push(usual);
        }
    }
    folders
}

fn programs(folder: &Path) -> Vec<(Version, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let program = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let version = Version::parse(name.to_str()?.strip_prefix("weir-php")?)?;
        let metadata = fs::metadata(entry.path()).ok()?;
        let runs = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        runs.then(|| (version, entry.path()))
    };
    entries.flatten().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_or_the_one_asked_for_is_found_and_others_are_named() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths = [folders[0].path().to_owned(), folders[1].path().to_owned()];
        let (cause, mend) = find_in(&paths, None).unwrap_err();
        assert!(cause.contains("no program for it"), "{cause}");
        assert!(
            mend.contains("libphp-embed") && mend.contains("make"),
            "{mend}"
        );
        let program = |folder: usize, name: &str, mode: u32| {
            let path = paths[folder].join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let old = program(1, "weir-php8.3", 0o755);
        let new = program(1, "weir-php8.10", 0o755);
        let first = program(0, "weir-php8.3", 0o755);
        program(0, "weir-php9.0", 0o644);
        program(0, "weir-phpx", 0o755);
        assert_ne!(old, first);
        assert_eq!(find_in(&paths, None), Ok(("8.10".into(), new)));
        assert_eq!(find_in(&paths, Some("8.3")), Ok(("8.3".into(), first)));
        let (cause, _) = find_in(&paths, Some("8.2")).unwrap_err();
        assert_eq!(cause, "PHP 8.2 was asked for; found: 8.3, 8.10");
    }
}
