//! Finds PHP for weir's own workers: a PHP program that is installed (php-fpm, php-cgi or php), and weir-php's object for
//! it, `weir-php-API20220829-NTS.so`, which is beside weir or in the folders of an installation.

mod elf;
mod host;
mod program;

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use weir_sys::version::version;

pub use host::apparmor_profile;
pub use program::Program;

/// The program for a version of PHP (`8.2`), or for a file: `/opt/php/sbin/php-fpm`. `None`: for the newest version.
///
/// # Errors
/// What is wrong, and how to fix it.
pub fn find(wanted: Option<&str>) -> Result<Program, (String, String)> {
    match wanted.filter(|wanted| wanted.starts_with('/')) {
        Some(path) => at(&folders(), Path::new(path)),
        None => find_in(&folders(), &host_folders(), wanted),
    }
}

/// Notes what PHP has told when it was tried: its version, and ` exposed` if its answers may name that.
pub fn has_started(told: &str) {
    let version = told.strip_suffix(" exposed");
    let _ = TRIED.set((version.unwrap_or(told).to_owned(), version.is_some()));
}

/// The version of a PHP that was tried before the start, and whether its answers may name that; empty if none was.
pub fn tried() -> (String, bool) {
    TRIED.get().cloned().unwrap_or_default()
}

static TRIED: OnceLock<(String, bool)> = OnceLock::new();

/// Version of the protocol between weir and weir-php: the messages between the manager and a master
/// (`manager::php::wire`), and the records of a worker's stream (`gateway::fastcgi`). Raise it, here and in
/// php/protocol.c, whenever one of them changes.
pub const PROTOCOL: u32 = 9;

/// Checks that the weir-php at `path` has the same version and protocol as this weir. Both are
/// read from the file. A file that changes later is found out by the first message of weir-php.
///
/// # Errors
/// The problem, and how to fix it.
pub fn check_build(path: &Path) -> Result<(), (String, String)> {
    let Ok(file) = fs::File::open(path) else {
        // The start of weir reports why the file cannot be read.
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

/// Why weir finds neither its own program nor what the kernel tells of processes, and what to do; `None`: /proc is there.
pub fn without_proc() -> Option<(String, String)> {
    let error = fs::metadata("/proc/self/exe").err()?;
    Some((
        format!("/proc is not there ({error}), and weir needs it to find its own program and files, and to watch its processes"),
        "mount it: mount -t proc proc /proc (in a chroot or container that was made by hand), and start weir again".into(),
    ))
}

/// The programs of all versions of PHP, the oldest first.
pub fn all() -> Vec<Program> {
    Search::new(&folders(), &host_folders()).programs()
}

/// The objects of weir-php that were found, whether there is a PHP for them or not.
pub fn all_objects() -> Vec<PathBuf> {
    let objects = objects(&folders()).into_iter();
    objects.map(|(_, path)| path).collect()
}

fn find_in(
    folders: &[PathBuf],
    host_folders: &[PathBuf],
    wanted: Option<&str>,
) -> Result<Program, (String, String)> {
    let mut search = Search::new(folders, host_folders);
    let mut found = search.programs();
    if found.is_empty()
        && let Some(why) = without_proc()
    {
        return Err(why);
    }
    let names: Vec<String> = found.iter().map(|found| found.version.clone()).collect();
    let chosen = match wanted {
        None => found.pop(),
        Some(wanted) => found.into_iter().find(|found| found.version == wanted),
    };
    if let Some(program) = chosen {
        return Ok(program);
    }
    search.refused.retain(|(version, _)| {
        wanted.is_none_or(|wanted| version.is_none_or(|version| version.to_string() == wanted))
    });
    if let Some((_, why)) = search.refused.first() {
        return Err((
            format!("{} cannot be used: {why}", asked_for(wanted)),
            "use a php-fpm, php-cgi or php without that, or name one: php = \"/usr/sbin/php-fpm8.2\"".into(),
        ));
    }
    let package = format!("php{}-fpm", wanted.unwrap_or_default());
    let mend =
        format!("install PHP (Debian: {package}), and PHP's headers (php-dev) to run `make`");
    Err(match (wanted, names.is_empty()) {
        (Some(wanted), false) => (
            format!(
                "PHP {wanted} is configured, but only these are installed: {}",
                names.join(", ")
            ),
            format!("use one of those, or {mend}"),
        ),
        (wanted, _) if search.objects.is_empty() => {
            let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
            (
                format!(
                    "{} is configured, but weir-php (weir-php-API…-NTS.so) was not found in {}",
                    asked_for(wanted),
                    places.join(", ")
                ),
                mend,
            )
        }
        (wanted, _) => {
            let places: Vec<String> = host_folders
                .iter()
                .map(|f| f.display().to_string())
                .collect();
            (
                format!(
                    "{} is configured, but no php-fpm, php-cgi or php of it was found in {}",
                    asked_for(wanted),
                    places.join(", ")
                ),
                format!("{mend}; or name the program: php = \"/opt/php/sbin/php-fpm\""),
            )
        }
    })
}

fn asked_for(wanted: Option<&str>) -> String {
    wanted.map_or("PHP".to_owned(), |wanted| format!("PHP {wanted}"))
}

/// The PHP in this file.
fn at(folders: &[PathBuf], path: &Path) -> Result<Program, (String, String)> {
    let shown = path.display();
    let no = |why: String, mend: &str| Err((format!("{shown} {why}"), mend.to_owned()));
    match fs::metadata(path) {
        Err(error) => return no(format!("cannot be used as PHP: {error}"), MEND_PATH),
        Ok(metadata) if metadata.is_dir() => {
            return no("is a folder, not a PHP program".into(), MEND_PATH);
        }
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            return no(
                "cannot be used as PHP: it is not executable".into(),
                MEND_PATH,
            );
        }
        Ok(_) => {}
    }
    let Some(host) = host::at(path) else {
        let mut begin = [0; 4];
        let read = fs::File::open(path).and_then(|mut file| file.read(&mut begin));
        let why = match &begin {
            _ if read.is_err() => "cannot be read",
            [b'#', b'!', ..] => {
                "is no PHP program: it is a script; name the program itself, not what starts it"
            }
            begin if *begin != ELF => "is no PHP program: it is no program for Linux (ELF)",
            _ => "is no PHP program: its file has no text like API20220829,NTS",
        };
        return no(why.into(), MEND_PATH);
    };
    if !host.is_plain {
        return no(
            format!("is PHP {} {}", host.version, OTHER_BUILD),
            MEND_PATH,
        );
    }
    let objects = objects(folders);
    let Some((_, object)) = objects.iter().find(|(build, _)| *build == host.build) else {
        let name = format!("{OBJECT}{}{SO}", host.build);
        return no(
            format!(
                "is PHP {}, and weir-php for it ({name}) was not found",
                host.version
            ),
            "build it with the headers of this PHP: make php PHP_CONFIGS=/opt/php/bin/php-config",
        );
    };
    match host::obstacle(path, &host, object) {
        Some(why) => no(format!("cannot be used: {why}"), MEND_PATH),
        None => Ok(Program {
            version: host.version.to_string(),
            path: path.to_owned(),
            object: object.clone(),
        }),
    }
}

/// A search for all programs.
struct Search<'a> {
    host_folders: &'a [PathBuf],
    /// The objects of weir-php: the build that they are for, and the path.
    objects: Vec<(String, PathBuf)>,
    /// Programs that were found but cannot be used: the version, if it is known, and the reason.
    refused: Vec<(Option<Version>, String)>,
}

impl<'a> Search<'a> {
    fn new(folders: &[PathBuf], host_folders: &'a [PathBuf]) -> Self {
        Self {
            host_folders,
            objects: objects(folders),
            refused: Vec::new(),
        }
    }

    /// One program for each version, the oldest first.
    fn programs(&mut self) -> Vec<Program> {
        let mut found: Vec<(Version, Program)> = Vec::new();
        for (build, object) in self.objects.clone() {
            if let Some((version, path)) = self.host_of(&build, &object) {
                let program = Program {
                    version: version.to_string(),
                    path,
                    object,
                };
                found.push((version, program));
            }
        }
        found.sort_by_key(|(version, _)| *version);
        found.into_iter().map(|(_, program)| program).collect()
    }

    /// The first program that this object can be loaded into.
    fn host_of(&mut self, build: &str, object: &Path) -> Option<(Version, PathBuf)> {
        if !program::can_be_preloaded(object) {
            let why = format!(
                "the loader (LD_PRELOAD) accepts no path with a space, a colon or a dollar sign: {}",
                object.display()
            );
            self.refused.push((None, why));
            return None;
        }
        for path in candidates(self.host_folders, build) {
            let Some(host) = host::at(&path).filter(|host| host.build == build) else {
                continue;
            };
            match host::obstacle(&path, &host, object) {
                None => return Some((host.version, path)),
                Some(why) => self
                    .refused
                    .push((Some(host.version), format!("{}: {why}", path.display()))),
            }
        }
        None
    }
}

/// Paths where a PHP of this build may be: php-fpm in all folders, then php-cgi, then php.
fn candidates(folders: &[PathBuf], build: &str) -> Vec<PathBuf> {
    let api = build.strip_prefix("API").and_then(|rest| rest.get(..8));
    let known = APIS.iter().find(|(number, _)| Some(*number) == api);
    let mut names = Vec::new();
    for kind in ["php-fpm", "php-cgi", "php"] {
        if let Some((_, version)) = known {
            names.push(format!("{kind}{version}"));
            // If weir is installed under the name of php-fpm (dpkg-divert(1)).
            names.push(format!("{kind}{version}.distrib"));
            names.push(format!("{kind}{}", version.replace('.', "")));
        }
        names.push(kind.to_owned());
    }
    let in_folders = |name: String| folders.iter().map(move |folder| folder.join(&name));
    names.into_iter().flat_map(in_folders).collect()
}

/// The objects in these folders, with the build that they are for. If several folders have one, the first counts.
fn objects(folders: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for entry in folders.iter().flat_map(fs::read_dir).flatten().flatten() {
        let name = entry.file_name();
        let build = name
            .to_str()
            .and_then(|name| name.strip_prefix(OBJECT)?.strip_suffix(SO));
        if let Some(build) = build
            && found.iter().all(|(other, _)| other != build)
        {
            found.push((build.to_owned(), entry.path()));
        }
    }
    found.sort();
    found
}

/// Major and minor version of PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The version in a text such as `8.2` or `8.2.29`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
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

/// Folders with PHP programs, in this order. A PHP in another folder must be named in the configuration.
fn host_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = HOST_FOLDERS.map(PathBuf::from).into();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path).filter(|folder| folder.is_absolute()) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Distributions' folders come first: /usr/local has what was built by hand, or the only PHP, as in PHP's images.
const HOST_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// The numbers of PHP's API, and the versions that have them. Names of programs have the version.
const APIS: [(&str, &str); 5] = [
    ("20210902", "8.1"),
    ("20220829", "8.2"),
    ("20230831", "8.3"),
    ("20240924", "8.4"),
    ("20250925", "8.5"),
];

/// What the names of objects begin and end with.
const OBJECT: &str = "weir-php-";
const SO: &str = ".so";

const OTHER_BUILD: &str = "as a thread-safe or debug build, which weir-php does not support";

const MEND_PATH: &str = "name the program of a PHP that is installed, php = \"/usr/sbin/php-fpm8.2\", or only its version, \
                         php = \"8.2\"";

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
            let path = folder.path().join("weir-php.so");
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
        assert!(cause(&file("77")).ends_with("weir-php.so uses protocol 77"));
        for old in ["\x7fELF\0nothing", &file("x"), &file("99999999999")] {
            assert!(cause(old).ends_with("uses protocol an unknown version"));
        }
        assert_eq!(check_build(&folder.path().join("none")), Ok(()));
    }

    #[test]
    fn the_newest_or_the_one_asked_for_is_found_and_others_are_named() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths = [folders[0].path().to_owned(), folders[1].path().to_owned()];
        let (cause, mend) = find_in(&paths, &[], None).unwrap_err();
        assert!(
            cause.contains("weir-php (weir-php-API…-NTS.so) was not found in /"),
            "{cause}"
        );
        assert!(mend.contains("php-fpm") && mend.contains("make"), "{mend}");
        let (first, second) = (
            paths[0].join("weir-php-API20220829-NTS.so"),
            paths[1].clone(),
        );
        let others =
            ["20220829", "20230831"].map(|api| second.join(format!("weir-php-API{api}-NTS.so")));
        for object in others.iter().chain([&first]) {
            // No PHP symbols are wanted by it, so every program has enough.
            fs::copy("/bin/sh", object).unwrap();
        }
        let hosts = tempfile::tempdir().unwrap();
        for (version, api) in [("8.2.7", "20220829"), ("8.3.1", "20230831")] {
            let path = hosts.path().join(format!("php{}", &version[..3]));
            php_like(&path, version, &format!("API{api},NTS"));
        }
        let hosts = [hosts.path().to_owned()];
        let found = |wanted| {
            let found = find_in(&paths, &hosts, wanted).unwrap();
            (found.version, found.object)
        };
        assert_eq!(found(None), ("8.3".into(), others[1].clone()));
        assert_eq!(found(Some("8.2")), ("8.2".into(), first));
        let (cause, _) = find_in(&paths, &hosts, Some("8.1")).unwrap_err();
        assert_eq!(
            cause,
            "PHP 8.1 is configured, but only these are installed: 8.2, 8.3"
        );
    }

    /// A file that looks like PHP: a program, with PHP's texts after it.
    fn php_like(path: &Path, version: &str, build: &str) {
        let mut bytes = fs::read("/bin/sh").unwrap();
        bytes.extend(format!("\0X-Powered-By: PHP/{version}\0{build}\0").bytes());
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn php_fpm_comes_before_php_cgi_and_that_before_php() {
        let (own, hosts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [own.path().to_owned()];
        let places = [hosts.path().join("none"), hosts.path().to_owned()];
        let object = own.path().join("weir-php-API20220829-NTS.so");
        // No PHP symbols are wanted by it, so every program has enough.
        fs::copy("/bin/sh", &object).unwrap();
        let (cause, mend) = find_in(&folders, &places, Some("8.2")).unwrap_err();
        assert!(
            cause.contains("no php-fpm, php-cgi or php of it"),
            "{cause}"
        );
        assert!(mend.contains("php = \"/opt"), "{mend}");
        let found = || find_in(&folders, &places, Some("8.2")).unwrap().path;
        for name in [
            "php",
            "php8.2",
            "php-cgi",
            "php-cgi8.2",
            "php-fpm",
            "php-fpm8.2.distrib",
        ] {
            let path = hosts.path().join(name);
            php_like(&path, "8.2.7", "API20220829,NTS");
            assert_eq!(found(), path);
        }
        // A weir in the place of php-fpm, another build, another version.
        let path = hosts.path().join("php-fpm8.2");
        fs::copy("/bin/sh", &path).unwrap();
        assert_eq!(found(), hosts.path().join("php-fpm8.2.distrib"));
        for build in ["API20220829,TS", "API20220829,NTS,debug", "API20230831,NTS"] {
            php_like(&path, "8.2.7", build);
            assert_eq!(found(), hosts.path().join("php-fpm8.2.distrib"), "{build}");
        }
        php_like(&path, "8.2.7", "API20220829,NTS");
        assert_eq!(found(), path);
        let program = at(&folders, &path).unwrap();
        assert_eq!((program.version.as_str(), program.object), ("8.2", object));
    }

    #[test]
    fn a_program_that_cannot_be_used_is_named_with_the_reason() {
        let (own, hosts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [own.path().to_owned()];
        let path = hosts.path().join("php-fpm");
        let refused = || at(&folders, &path).unwrap_err().0;
        assert!(refused().contains("No such file"), "{}", refused());
        for (text, why) in [
            ("#!/bin/sh\n", "it is a script"),
            ("hello", "it is no program"),
            ("", "it is no program"),
            ("\x7fELF\0", "has no text like"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            assert!(refused().contains("is not executable"), "{}", refused());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            assert!(refused().contains(why), "{}", refused());
        }
        let (cause, _) = at(&folders, hosts.path()).unwrap_err();
        assert!(cause.contains("is a folder"), "{cause}");
        php_like(&path, "8.2.7", "API20220829,TS");
        assert!(
            refused().contains("is PHP 8.2 as a thread-safe"),
            "{}",
            refused()
        );
        php_like(&path, "8.2.7", "API20220829,NTS");
        let missing = "weir-php for it (weir-php-API20220829-NTS.so) was not found";
        assert!(refused().contains(missing), "{}", refused());
        let object = own.path().join("weir-php-API20220829-NTS.so");
        fs::copy("/bin/sh", &object).unwrap();
        assert!(at(&folders, &path).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(refused().contains("(mode 4755)"), "{}", refused());
        let places = [hosts.path().to_owned()];
        let (cause, _) = find_in(&folders, &places, Some("8.2")).unwrap_err();
        assert!(
            cause.contains("php-fpm: it runs with the rights"),
            "{cause}"
        );
        let (cause, _) = find_in(&folders, &places, Some("8.3")).unwrap_err();
        assert!(cause.contains("no php-fpm, php-cgi or php"), "{cause}");
    }

    #[test]
    fn an_object_at_a_path_that_the_loader_does_not_take_is_refused() {
        let own = tempfile::tempdir().unwrap();
        let folders = [own.path().join("a folder")];
        fs::create_dir(&folders[0]).unwrap();
        fs::write(folders[0].join("weir-php-API20220829-NTS.so"), "").unwrap();
        let (cause, _) = find_in(&folders, &[], None).unwrap_err();
        assert!(cause.contains("no path with a space"), "{cause}");
    }
}
