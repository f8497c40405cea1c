//! PHP programs that are installed, into which weir-php can be loaded: php-fpm, php-cgi and php.
//!
//! weir finds out from its file what a program is. It does not run the program for this: `weir check` must start
//! nothing, and the program's name may be misleading (a weir may be installed as php-fpm8.2).

use std::{
    collections::HashMap,
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{Version, elf::Elf};

/// A PHP program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Its PHP: `8.2`.
    pub(super) version: Version,
    /// The number of PHP's API, and the kind of build, as in the name of weir-php's object: `API20220829-NTS`.
    pub(super) build: String,
    /// Whether weir-php supports this kind of build.
    pub(super) is_plain: bool,
    elf: Elf,
}

/// The PHP program in this file. `None`: it is not PHP.
pub(super) fn at(path: &Path) -> Option<Arc<Host>> {
    cached(&HOSTS, path, |bytes| {
        let build = build_of(bytes)?;
        let version = version_of(bytes)?;
        let (api, kind) = build.split_once(',')?;
        Some(Host {
            version,
            build: format!("{api}-{}", kind.replace(',', "-")),
            is_plain: kind == "NTS",
            elf: Elf::parse(bytes)?,
        })
    })
}

/// Why weir-php's object cannot be loaded into this program; `None`: nothing is known that prevents it.
pub(super) fn obstacle(path: &Path, host: &Host, object: &Path) -> Option<String> {
    if !host.elf.has_loader {
        return Some("it is linked statically, so nothing can be loaded into it".into());
    }
    if let Some(why) = ignores_preload(path) {
        return Some(why);
    }
    let Some(wanted) = cached(&OBJECTS, object, Elf::parse) else {
        return Some(format!(
            "{} is no shared object of this machine",
            object.display()
        ));
    };
    let missing: Vec<&str> = wanted
        .wanted
        .difference(&host.elf.defined)
        .map(String::as_str)
        .collect();
    match missing.as_slice() {
        [] => None,
        [one] => Some(format!("it does not export PHP's function {one}")),
        [first, ..] => Some(format!(
            "it does not export {} of PHP's functions, for example {first}",
            missing.len()
        )),
    }
}

/// Why the loader ignores LD_PRELOAD for this program (ld.so(8), "secure-execution mode").
fn ignores_preload(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some(format!(
            "it runs with the rights of its owner or group (mode {:04o}), so the loader ignores LD_PRELOAD",
            mode & 0o7777
        ));
    }
    if weir_sys::file::has_capabilities(path) {
        return Some("it has file capabilities (getcap), so the loader ignores LD_PRELOAD".into());
    }
    None
}

/// The AppArmor profile that is enforced for this program, if its name tells that: `php-fpm`. The profile may forbid
/// the program to load weir-php's object.
pub fn apparmor_profile(program: &Path) -> Option<String> {
    profile_in(&fs::read_to_string(PROFILES).ok()?, program)
}

fn profile_in(profiles: &str, program: &Path) -> Option<String> {
    let path = program.to_str()?;
    let name = program.file_name()?.to_str()?;
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let enforced = |line: &str| line.strip_suffix(" (enforce)").map(str::to_owned);
    let mut names = profiles.lines().filter_map(enforced);
    names.find(|profile| [path, name, plain].contains(&profile.as_str()))
}

/// `API20220829,NTS`, as PHP writes it into each of its modules.
fn build_of(file: &[u8]) -> Option<String> {
    let text = |at: usize| {
        let rest = &file[at..file.len().min(at + LONGEST_BUILD)];
        let end = memchr::memchr(0, rest)?;
        let text = str::from_utf8(&rest[..end]).ok()?;
        let (api, kind) = text.split_once(',')?;
        let digits = api.strip_prefix("API")?;
        let is_build = digits.len() == 8
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && (kind.starts_with("NTS") || kind.starts_with("TS"));
        is_build.then(|| text.to_owned())
    };
    memchr::memmem::find_iter(file, b"API20").find_map(text)
}

/// The version, from the header that PHP sends with `expose_php`.
fn version_of(file: &[u8]) -> Option<Version> {
    let at = memchr::memmem::find(file, POWERED)? + POWERED.len();
    let rest = &file[at..file.len().min(at + LONGEST_BUILD)];
    Version::parse(str::from_utf8(&rest[..memchr::memchr(0, rest)?]).ok()?)
}

/// What a file was when it was read.
type Stamp = (u64, u64, u64, i64, i64);

type Cache<T> = Mutex<Option<HashMap<PathBuf, (Stamp, Option<Arc<T>>)>>>;

/// What `parse` makes of a file. It is kept as long as the file does not change: a configuration may have a thousand
/// pools, and the files have some megabytes.
fn cached<T>(
    cache: &Cache<T>,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<Arc<T>> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let stamp = (
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    );
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = cache.get_or_insert_default();
    if let Some((known, parsed)) = cache.get(path)
        && *known == stamp
    {
        return parsed.clone();
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(super::MOST_READ).read_to_end(&mut bytes).ok()?;
    let parsed = parse(&bytes).map(Arc::new);
    cache.insert(path.to_owned(), (stamp, parsed.clone()));
    parsed
}

static HOSTS: Cache<Host> = Mutex::new(None);

static OBJECTS: Cache<Elf> = Mutex::new(None);

const POWERED: &[u8] = b"X-Powered-By: PHP/";

/// Maximum length of the text of a build or a version, bytes.
const LONGEST_BUILD: usize = 64;

/// The kernel's list of AppArmor profiles.
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_and_version_are_read_from_the_text_in_the_file() {
        let file = b"\0API20x\0X-Powered-By: PHP/8.10.3-dev\0API20220829,NTS,debug\0";
        assert_eq!(build_of(file), Some("API20220829,NTS,debug".into()));
        assert_eq!(version_of(file), Some(Version(8, 10)));
        for no in [
            &b"API2022082,NTS\0"[..],
            b"API20220829\0",
            b"API20220829,NTS",
            b"API20",
        ] {
            assert_eq!(build_of(no), None);
        }
        assert_eq!(version_of(b"X-Powered-By: PHP/\0"), None);
        assert_eq!(version_of(b"X-Powered-By: PHP/8"), None);
    }

    #[test]
    fn a_program_that_is_not_php_is_none() {
        assert_eq!(at(Path::new("/bin/sh")), None);
        assert_eq!(at(Path::new("/")), None);
        assert_eq!(at(Path::new("/no/such/file")), None);
    }

    #[test]
    fn the_profile_of_a_program_is_known_by_its_name() {
        let profiles = "man_filter (enforce)\nphp-fpm (enforce)\n/usr/bin/php8.2 (complain)\n";
        let of = |path: &str| profile_in(profiles, Path::new(path));
        assert_eq!(of("/usr/sbin/php-fpm8.2"), Some("php-fpm".into()));
        assert_eq!(of("/usr/bin/php8.2"), None);
        assert_eq!(of("/usr/bin/php-cgi8.2"), None);
    }
}
