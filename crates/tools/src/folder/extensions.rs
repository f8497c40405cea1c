//! Which extensions of PHP an application needs, and which are missing.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::Found;

/// What applications and the composer.json of a folder ask for, in lower case.
pub(super) fn needed(folder: &Path, applications: &[Found]) -> Vec<String> {
    let rows = applications
        .iter()
        .flat_map(|found| found.application.extensions);
    let mut all: BTreeSet<String> = rows.map(|name| (*name).to_owned()).collect();
    all.extend(of_composer(folder));
    all.into_iter().collect()
}

fn of_composer(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("composer.json")).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let required = value.get("require").and_then(Value::as_object);
    let names = required.into_iter().flat_map(|required| required.keys());
    let names = names.filter_map(|name| name.strip_prefix("ext-"));
    names
        .map(|name| name.to_ascii_lowercase().replace('-', " "))
        .collect()
}

/// Those of `needed` that this program of PHP does not have, by its `-m`. None if it does not say what it has.
pub fn missing(program: &Path, needed: &[String]) -> Vec<String> {
    let Some(said) = modules(program).filter(|_| !needed.is_empty()) else {
        return Vec::new();
    };
    let there: BTreeSet<String> = said
        .lines()
        .map(|line| line.trim().to_lowercase())
        .collect();
    let is_missing =
        |name: &&String| !there.contains(*name) && !there.contains(&format!("zend {name}"));
    needed.iter().filter(is_missing).cloned().collect()
}

fn modules(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("-m").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut out = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        let read = Read::by_ref(&mut out)
            .take(MOST_BYTES)
            .read_to_end(&mut said);
        read.ok()
            .map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let began = Instant::now();
    while !reader.is_finished() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.wait();
    reader.join().ok()?
}

/// The packages of Debian with these extensions.
pub fn packages(missing: &[String]) -> String {
    let package = |name: &String| {
        let other = PACKAGES
            .iter()
            .find(|(_, names)| names.contains(&name.as_str()));
        other.map_or_else(
            || format!("php-{name}"),
            |(package, _)| (*package).to_owned(),
        )
    };
    let all: BTreeSet<String> = missing.iter().map(package).collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

/// Packages whose name is not that of their extension.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("php-mysql", &["mysqli", "mysqlnd", "pdo_mysql"]),
    ("php-sqlite3", &["sqlite3", "pdo_sqlite"]),
    (
        "php-xml",
        &["dom", "simplexml", "xml", "xmlreader", "xmlwriter", "xsl"],
    ),
];

/// How long PHP may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much it may say.
const MOST_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_composer_are_read_and_packages_named() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            r#"{"require": {"php": "^8.1", "ext-GD": "*", "ext-pdo_mysql": "*", "a/b": "1"}}"#;
        fs::write(folder.path().join("composer.json"), text).unwrap();
        let needed = needed(folder.path(), &[]);
        assert_eq!(needed, ["gd", "pdo_mysql"]);
        assert_eq!(packages(&needed), "php-gd php-mysql");
        assert_eq!(packages(&["dom".into(), "xml".into()]), "php-xml");
    }

    #[test]
    fn what_a_program_does_not_name_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let needed = ["gd", "simplexml", "opcache"].map(str::to_owned);
        let program = |text: &str| {
            let file = folder.path().join(format!("php{}", text.len()));
            fs::write(&file, format!("#!/bin/sh\n{text}")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&file, mode).unwrap();
            file
        };
        let some = program("printf '[PHP Modules]\\nSimpleXML\\nZend OPcache\\n'");
        assert_eq!(missing(&some, &needed), ["gd"]);
        assert!(missing(Path::new("/nowhere"), &needed).is_empty());
    }
}
