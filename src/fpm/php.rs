//! PHP's own answers: `-v`, `-i` and `-m` are given by `weir-php`, which is PHP.

use std::{fs, os::unix::process::CommandExt, process::Command};

use super::arguments::Arguments;
use crate::machine;

/// Becomes `weir-php` and asks it. Returns where that cannot be done, with why.
pub(super) fn ask(version: (u32, u32), arguments: &Arguments, question: &str) -> String {
    let (major, minor) = version;
    let (_, program) = match machine::php::find(Some(&format!("{major}.{minor}"))) {
        Ok(found) => found,
        Err((cause, mend)) => return format!("{cause}; {mend}"),
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
    if let Ok((version, _)) = machine::php::find(None) {
        return parse(&version);
    }
    let entries = fs::read_dir("/etc/php").into_iter().flatten().flatten();
    let configured = entries.filter(|entry| entry.path().join("fpm/php-fpm.conf").exists());
    let versions = configured.filter_map(|entry| parse(entry.file_name().to_str()?));
    versions.max()
}

fn parse(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
