//! Finds the program of a PHP version: `weir-php8.2`, beside weir or in the folders of an installation.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use weir_sys::version::version;

/// The program for a version of PHP (`8.2`); `None`: for the newest one. Returns the version, too.
///
/// # Errors
/// What is wrong, and how to fix it.
pub fn find(wanted: Option<&str>) -> Result<(String, PathBuf), (String, String)> {
    find_in(&folders(), wanted)
}

/// Version of the protocol between weir and weir-php: the messages between the manager and a master
/// (`manager::php::wire`), and the records of a worker's stream (`gateway::fastcgi`). Raise it, here and in
/// php/protocol.c, whenever one of them changes.
pub const PROTOCOL: u32 = 4;

/// Checks that the weir-php at `path` has the same version and protocol as this weir. Both are
/// read from the file. If the file does not contain them (for example a script that starts the
/// program), the first message to weir-php finds out.
///
/// # Errors
/// The problem, and how to fix it.
pub fn check_build(path: &Path) -> Result<(), (String, String)> {
    let Ok(file) = fs::File::open(path) else {
        // The start reports why it cannot be read.
        return Ok(());
    };
    let mut bytes = Vec::new();
    if file.take(MOST_READ).read_to_end(&mut bytes).is_err() || !bytes.starts_with(ELF) {
        return Ok(());
    }
    match spoken(&bytes) {
        Some(PROTOCOL) if built(&bytes) == Some(version()) => Ok(()),
        other => Err(other_build(path, other, built(&bytes))),
    }
}

/// The message about a weir-php with another protocol or, with the same protocol, of another version, and the fix. `None`:
/// it does not report that.
pub fn other_build(path: &Path, spoken: Option<u32>, built: Option<&str>) -> (String, String) {
    if spoken == Some(PROTOCOL) {
        let cause = format!(
            "weir-php is version {} ({}), weir is version {} ({})",
            built.unwrap_or("unknown"),
            path.display(),
            version(),
            own_program().display()
        );
        return (cause, MEND_BUILD.into());
    }
    let spoken = spoken.map_or("an unknown version".to_owned(), |number| number.to_string());
    (
        format!(
            "weir and weir-php are from different builds: {} uses protocol {PROTOCOL}, {} uses protocol {spoken}",
            own_program().display(),
            path.display()
        ),
        MEND_BUILD.into(),
    )
}

/// This program, for messages.
pub fn own_program() -> PathBuf {
    let path = std::env::current_exe().unwrap_or_else(|_| "weir".into());
    // The kernel adds this to the path of a file that was replaced.
    match path
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"))
    {
        Some(path) => path.into(),
        None => path,
    }
}

/// The protocol version after the text that php/protocol.c puts before it.
fn spoken(program: &[u8]) -> Option<u32> {
    let at = memchr::memmem::find(program, PROTOCOL_WORDS)?;
    let rest = &program[at + PROTOCOL_WORDS.len()..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// The version after the text that php/protocol.c puts before it.
fn built(program: &[u8]) -> Option<&str> {
    let at = memchr::memmem::find(program, VERSION_WORDS)?;
    let rest = &program[at + VERSION_WORDS.len()..];
    let end = rest
        .iter()
        .take(LONGEST_VERSION)
        .position(|byte| *byte == b'\n')?;
    std::str::from_utf8(&rest[..end]).ok()
}

const VERSION_WORDS: &[u8] = b"weir-php was built as version ";

/// Maximum length of a version in a program, bytes.
const LONGEST_VERSION: usize = 64;

const PROTOCOL_WORDS: &[u8] = b"weir-php speaks protocol ";

/// The first bytes of a Linux program (elf(5)).
const ELF: &[u8] = b"\x7fELF";

/// Maximum size that is read, bytes: more than any weir-php has.
const MOST_READ: u64 = 64 << 20;

const MEND_BUILD: &str = "install both from one build (in weir's source: `make`, `make install`; for a weir that runs from \
                          there: `make php`), and run `weir upgrade` if it runs";

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
            format!(
                "PHP {wanted} is configured, but only these are installed: {}",
                names.join(", ")
            ),
            format!("use one of those, or {mend}"),
        ),
        (wanted, _) => {
            let asked = wanted.map_or("PHP".to_owned(), |wanted| format!("PHP {wanted}"));
            let name = format!("weir-php{}", wanted.unwrap_or("8.2"));
            let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
            (
                format!(
                    "{asked} is configured, but its program ({name}) was not found in {}",
                    places.join(", ")
                ),
                mend,
            )
        }
    })
}

/// The programs in these folders by version. If several folders have a version, the first folder counts.
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

/// Major and minor version.
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

/// Folders to search, in this order: beside weir, beside a weir that was just built, the folder of `make install`,
/// and the folder of packages.
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
    fn both_sides_have_the_same_protocol() {
        let source = include_str!("../../../php/protocol.c");
        let words = str::from_utf8(PROTOCOL_WORDS).unwrap();
        assert!(source.contains(&format!("#define WORDS \"{words}\"")));
        assert!(source.contains(&format!("= WORDS \"{PROTOCOL}\\n\";")));
        let words = str::from_utf8(VERSION_WORDS).unwrap();
        assert!(source.contains(&format!("#define VERSION_WORDS \"{words}\"")));
    }

    #[test]
    fn programs_of_other_builds_are_known_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let check = |text: &str| {
            let path = folder.path().join("weir-php8.2");
            fs::write(&path, text).unwrap();
            check_build(&path)
        };
        let cause = |text: &str| check(text).unwrap_err().0;
        let of = |number: &str, version: &str| {
            let words = "weir-php speaks protocol";
            format!("\x7fELF\0\0{words} {number}\n\0weir-php was built as version {version}\n\0")
        };
        let file = |number: &str| of(number, version());
        assert_eq!(check(&file(&PROTOCOL.to_string())), Ok(()));
        let other = cause(&of(&PROTOCOL.to_string(), "0.0.7"));
        assert!(other.starts_with("weir-php is version 0.0.7 ("), "{other}");
        assert!(
            other.contains(&format!("weir is version {} (", version())),
            "{other}"
        );
        assert!(cause(&file("77")).ends_with("weir-php8.2 uses protocol 77"));
        for old in ["\x7fELF\0nothing", &file("x"), &file("99999999999")] {
            assert!(cause(old).ends_with("uses protocol an unknown version"));
        }
        // A script that only starts the program.
        assert_eq!(check("#!/bin/sh\n"), Ok(()));
        assert_eq!(check_build(&folder.path().join("none")), Ok(()));
    }

    #[test]
    fn the_newest_or_the_one_asked_for_is_found_and_others_are_named() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths = [folders[0].path().to_owned(), folders[1].path().to_owned()];
        let (cause, mend) = find_in(&paths, None).unwrap_err();
        assert!(cause.contains("its program ("), "{cause}");
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
        assert_eq!(
            cause,
            "PHP 8.2 is configured, but only these are installed: 8.3, 8.10"
        );
    }
}
