//! A weir-php from another build than weir: they exchange requests in records that only builds of the same source
//! understand.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::*;

const SPEAKS: &[u8] = b"weir-php speaks protocol ";

/// weir and its PHP in a separate folder, where weir finds no other PHP: weir, and the path of its copy of `php`.
fn install(site: &Setup, php: &Path) -> (PathBuf, PathBuf) {
    let bin = folder(site, "bin");
    let weir = bin.join("weir");
    if fs::hard_link(program(), &weir).is_err() {
        // `cp` copies it: a program cannot be started while a child of another test has it open for writing.
        let copied = Command::new("cp").arg(program()).arg(&weir).status();
        assert!(copied.unwrap().success());
    }
    (weir, bin.join(php.file_name().unwrap()))
}

fn write_program(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
    mode(path, 0o755);
}

/// The file with a changed text: `words` replace the start of the text that names its protocol, and `number` what
/// follows that text.
fn saying(php: &Path, number: &[u8], words: &[u8]) -> Vec<u8> {
    let mut bytes = fs::read(php).unwrap();
    let found = bytes.windows(SPEAKS.len()).position(|at| at == SPEAKS);
    let at = found.expect("weir-php names what it speaks");
    bytes[at..at + words.len()].copy_from_slice(words);
    let at = at + SPEAKS.len();
    bytes[at..at + number.len()].copy_from_slice(number);
    bytes
}

/// The file as if it were of another version.
fn of_version(php: &Path, version: &str) -> Vec<u8> {
    let mut bytes = fs::read(php).unwrap();
    let words = format!(
        "weir-php was built as version {}",
        env!("CARGO_PKG_VERSION")
    );
    let mut places = bytes.windows(words.len());
    let at = places.position(|at| at == words.as_bytes()).unwrap();
    let other = format!("weir-php was built as version {version}\n");
    bytes[at..at + other.len()].copy_from_slice(other.as_bytes());
    bytes
}

fn says(weir: &Path, what: &str, site: &Setup) -> (bool, String) {
    let output = Command::new(weir)
        .arg(what)
        .arg("-c")
        .arg(site.path("weir.toml"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // The text may be wrapped.
    let words: Vec<&str> = text.split_whitespace().collect();
    (output.status.success(), words.join(" "))
}

#[test]
fn a_weir_php_of_another_build_is_refused_at_the_start_and_both_files_are_named() {
    let site = php_site("max_children = 1");
    let (weir, php) = install(&site, &php_object());
    let names = |said: &str, spoken: &str| {
        for part in [
            "are from different builds",
            &format!("{} uses protocol ", weir.display()),
            &format!("{} uses protocol {spoken}", php.display()),
            "make install",
            "make php",
        ] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    };
    for (bytes, spoken) in [
        (saying(&php_object(), b"0", SPEAKS), "0"),
        (
            saying(&php_object(), b"1", b"weir-php of long ago spok"),
            "an unknown version",
        ),
    ] {
        write_program(&php, &bytes);
        let (status, said) = site.clone().program(&weir).start_in_vain();
        assert_eq!(status.code(), Some(78), "{said}");
        names(&said, spoken);
        for what in ["check", "doctor"] {
            let (fine, said) = says(&weir, what, &site);
            assert!(!fine, "{what}: {said}");
            names(&said, spoken);
        }
    }
}

#[test]
fn a_weir_php_of_another_version_is_refused_by_name_also_with_the_same_protocol() {
    let site = php_site("max_children = 1");
    let (weir, php) = install(&site, &php_object());
    let own = env!("CARGO_PKG_VERSION");
    write_program(&php, &of_version(&php_object(), "0.0.7-x"));
    let (status, said) = site.clone().program(&weir).start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    let (weir_shown, shown) = (weir.display(), php.display());
    let both =
        format!("weir-php is version 0.0.7-x ({shown}), weir is version {own} ({weir_shown})");
    assert!(said.contains(&both), "{said}");
    assert!(said.contains("weir upgrade"), "{said}");
    let (fine, said) = says(&weir, "check", &site);
    assert!(!fine && said.contains(&both), "{said}");
    // The file changes while weir runs. The pool goes on with the file that it has loaded.
    fs::copy(php_object(), &php).unwrap();
    let running = site.program(&weir).admin().start();
    write_program(&php, &of_version(&php_object(), "0.0.7"));
    let restarted = running
        .command(&["pool", "app", "restart"])
        .output()
        .unwrap();
    let said = String::from_utf8(restarted.stderr).unwrap();
    let both = format!("weir-php is version 0.0.7 ({shown}), weir is version {own} ({weir_shown})");
    assert!(
        !restarted.status.success() && said.contains(&both),
        "{said}"
    );
    let answer = running.get_until("/hello.php", |answer| answer.status == 200);
    assert_eq!(answer.text(), "hello");
}
