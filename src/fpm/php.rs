//! PHP's own answers: `-v`, `-i` and `-m` are given by `weir-php`, which is PHP.

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use super::arguments::Arguments;

/// Becomes `weir-php` and asks it. Returns where that cannot be done, with why.
pub(super) fn ask(version: (u32, u32), arguments: &Arguments, question: &str) -> String {
    let (major, minor) = version;
    let name = format!("weir-php{major}.{minor}");
    let folders = folders();
    let Some(program) = folders
        .iter()
        .map(|folder| folder.join(&name))
        .find(|p| runs(p))
    else {
        let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        return format!(
            "there is no program for PHP {major}.{minor} ({name}) in {}; install PHP for embedding \
             (Debian: libphp{major}.{minor}-embed) and run `make`",
            places.join(", ")
        );
    };
    let mut command = Command::new(&program);
    if arguments.no_php_ini {
        command.arg("-n");
    }
    if let Some(path) = &arguments.php_ini {
        command.arg("-c").arg(path);
    }
    for define in &arguments.defines {
        command.arg("-d").arg(define);
    }
    let error = command.arg(question).exec();
    format!("{}: {error}", program.display())
}

/// The newest PHP that there is: of those that weir can run, else of those that are configured.
pub(super) fn newest() -> Option<(u32, u32)> {
    let version = |name: OsString| parse(name.to_str()?.strip_prefix("weir-php")?);
    let built = folders().into_iter().flat_map(names).filter_map(version);
    built.max().or_else(|| {
        let configured = names(PathBuf::from("/etc/php"));
        let fpm = |version: &(u32, u32)| {
            let (major, minor) = version;
            Path::new(&format!("/etc/php/{major}.{minor}/fpm/php-fpm.conf")).exists()
        };
        let version = |name: OsString| parse(name.to_str()?);
        configured.filter_map(version).filter(fpm).max()
    })
}

fn names(folder: PathBuf) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name())
}

fn parse(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where `weir-php` is: beside weir, beside a weir that was just built, and where packages put it.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let own = program.parent().map(Path::to_owned);
    let built = own.as_deref().and_then(Path::parent);
    let built = built.map(|target| target.join("php"));
    let installed = ["/usr/lib/weir", "/usr/local/lib/weir"].map(PathBuf::from);
    own.into_iter().chain(built).chain(installed).collect()
}

fn runs(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
