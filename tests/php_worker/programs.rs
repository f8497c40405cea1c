//! The PHP programs that weir-php is loaded into, and its own files.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
};

use super::support::Config;

/// The kinds of PHP that weir-php runs in. `WEIR_TEST_HOST` names the one to test: `fpm` (if it is not set), `cgi` or `cli`.
pub fn host() -> String {
    std::env::var("WEIR_TEST_HOST").unwrap_or_else(|_| "fpm".into())
}

/// `WEIR_TEST_PREFIX`: the folder of a PHP that was built from source, to be tested in the place of Debian's.
pub fn prefix() -> Option<PathBuf> {
    std::env::var_os("WEIR_TEST_PREFIX").map(PathBuf::from)
}

/// The PHP program that weir-php is loaded into.
pub fn executable() -> PathBuf {
    installed(&host())
}

/// The PHP program of this kind: `fpm`, `cgi` or `cli`.
pub fn installed(kind: &str) -> PathBuf {
    // Debian's names end with the version; those of PHP's own build do not.
    let (prefix, version) = match prefix() {
        Some(prefix) => (prefix, String::new()),
        None => (PathBuf::from("/usr"), version()),
    };
    let name = match kind {
        "fpm" => "sbin/php-fpm",
        "cgi" => "bin/php-cgi",
        "cli" => "bin/php",
        other => panic!("WEIR_TEST_HOST={other}: fpm, cgi or cli"),
    };
    prefix.join(format!("{name}{version}"))
}

/// Starts weir-php: a program and its first arguments.
pub fn program() -> Vec<OsString> {
    preloaded(&executable(), &object(), "")
}

/// Starts a PHP program with weir-php's object. `before`: LD_PRELOAD of who starts it.
pub fn preloaded(executable: &Path, object: &Path, before: &str) -> Vec<OsString> {
    let mut preload = object.as_os_str().to_owned();
    if !before.is_empty() {
        preload.push(":");
        preload.push(before);
    }
    let mut variable = OsString::from("LD_PRELOAD=");
    variable.push(preload);
    vec![
        "/usr/bin/env".into(),
        variable,
        format!("WEIR_PHP_PRELOAD={before}").into(),
        executable.into(),
        "--weir-php".into(),
    ]
}

/// A command of these words.
pub fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// `8.2`: the version of PHP-FPM, with which answers are compared.
pub fn version() -> String {
    let output = Command::new(super::fpm::newest_fpm())
        .args(["-n", "-v"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // PHP 8.2.32 (fpm-fcgi) ...
    let version = text.split(' ').nth(1).unwrap();
    version.rsplit_once('.').unwrap().0.to_owned()
}

/// Whether PHP has this version, such as `8.4`, or a newer one.
pub fn is_at_least(wanted: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        let parts = text.split('.').map(|part| part.parse().unwrap());
        parts.collect()
    };
    numbers(&version()) >= numbers(wanted)
}

/// The setting that loads OPcache, which is part of PHP since 8.5.
pub fn with_opcache(config: Config) -> Config {
    match is_at_least("8.5") {
        true => config,
        false => config.with("define", "zend_extension=opcache"),
    }
}

/// The object that is loaded into PHP programs, built from the current sources.
pub fn object() -> PathBuf {
    static BUILT: Once = Once::new();
    let folder = Path::new(weir_test::weir::program())
        .ancestors()
        .nth(2)
        .unwrap()
        .join("php");
    BUILT.call_once(|| {
        let built = Command::new("make")
            .args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/php")])
            .arg(format!("OUT={}", folder.display()))
            .status()
            .unwrap();
        assert!(built.success(), "php/ does not build");
    });
    let names = fs::read_dir(&folder).unwrap().flatten();
    let mut objects: Vec<PathBuf> = names
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("weir-php-API") && name.ends_with("-NTS.so")
        })
        .collect();
    objects.sort();
    objects.pop().expect("a weir-php was built")
}
