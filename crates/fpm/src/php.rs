//! PHP's own output: `weir-php` contains PHP, so it answers `-v`, `-i` and `-m`, and reports problems in php.ini.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
};

use weir_config::fpm::Pool;
use weir_machine::php::Version;
use weir_manager::EX_SOFTWARE;
use weir_sys::identity;

use super::arguments::Arguments;

/// Replaces this process by `weir-php`. Returns only if that fails, with the reason.
pub(super) fn ask(version: (u32, u32), arguments: &Arguments, question: &str) -> String {
    let mut command = match command(version, arguments) {
        Ok(command) => command,
        Err((cause, mend)) => return format!("{cause}; {mend}"),
    };
    let error = command.arg(question).exec();
    format!("{}: {error}", command.get_program().display())
}

/// Starts PHP once to test php.ini and the extensions: a missing extension is reported on standard error, and an
/// error that prevents PHP's start prevents weir's, as in PHP-FPM. Does not run as root, but as the user of `pool`'s
/// workers.
///
/// # Errors
/// The exit code if PHP does not start. A missing `weir-php` is reported by the code that needs it.
pub(super) fn try_start(
    version: (u32, u32),
    arguments: &Arguments,
    pool: Option<&Pool>,
) -> Result<(), ExitCode> {
    let Ok(mut command) = command(version, arguments) else {
        return Ok(());
    };
    if identity::is_root() {
        let (uid, gid) = pool.and_then(user_of).unwrap_or_else(usual_user);
        command.uid(uid).gid(gid);
    }
    command.arg("-s").stdin(Stdio::null());
    let Ok(output) = command.stderr(Stdio::inherit()).output() else {
        return Ok(());
    };
    let (before, told) = told_apart(&output.stdout);
    // Nobody may read it.
    let _ = io::stdout().write_all(before);
    if let Some(told) = told {
        weir_machine::php::has_started(told);
    }
    if output.status.success() {
        return Ok(());
    }
    // A PHP that ended by a signal has reported nothing; PHP's own exit codes are the same as PHP-FPM's.
    let code = output
        .status
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Err(ExitCode::from(code.unwrap_or(EX_SOFTWARE)))
}

/// What PHP has printed at its start, and the line in which weir-php tells of its version.
fn told_apart(output: &[u8]) -> (&[u8], Option<&str>) {
    let mut places = output.windows(STARTED.len());
    let Some(at) = places.rposition(|place| place == STARTED) else {
        return (output, None);
    };
    let line = str::from_utf8(&output[at + STARTED.len()..]);
    (&output[..at], line.ok().map(str::trim_end))
}

/// How that line begins (php/cli.c).
const STARTED: &[u8] = b"weir-php started PHP ";

/// The user of a pool's workers; `None`: not known, or root.
fn user_of(pool: &Pool) -> Option<(u32, u32)> {
    let group = match &pool.group {
        Some(group) => Some(identity::group(group).ok()??),
        None => None,
    };
    let identity = identity::identity_of(pool.user.as_deref()?, group).ok()??;
    (identity.uid != 0 && identity.gid != 0).then_some((identity.uid, identity.gid))
}

/// The user for PHP if none is configured.
fn usual_user() -> (u32, u32) {
    let usual = weir_machine::USUAL_USERS.iter();
    let mut known = usual.filter_map(|name| identity::user(name).ok().flatten());
    known.next().map_or(NOBODY, |user| (user.uid, user.gid))
}

/// `weir-php` with the settings of the command line.
fn command(version: (u32, u32), arguments: &Arguments) -> Result<Command, (String, String)> {
    let (major, minor) = version;
    let program = weir_machine::php::find(Some(&format!("{major}.{minor}")))?;
    let mut command = program.command(env::vars_os().collect());
    if arguments.no_php_ini {
        command.arg("-n");
    }
    if let Some(path) = &arguments.php_ini {
        command.arg("-c").arg(path);
    }
    for define in &arguments.defines {
        command.arg("-d").arg(define);
    }
    Ok(command)
}

/// The newest PHP: among those that weir can run, otherwise among those with a configuration.
pub(super) fn newest() -> Option<(u32, u32)> {
    if let Ok(program) = weir_machine::php::find(None) {
        return parse(&program.version);
    }
    let entries = fs::read_dir("/etc/php").into_iter().flatten().flatten();
    let configured = entries.filter(|entry| entry.path().join("fpm/php-fpm.conf").exists());
    let versions = configured.filter_map(|entry| parse(entry.file_name().to_str()?));
    versions.max()
}

/// Major and minor version in a text such as `8.2`.
pub(super) fn parse(text: &str) -> Option<(u32, u32)> {
    Version::parse(text).map(|Version(major, minor)| (major, minor))
}

/// User and group of nobody, with their usual numbers.
const NOBODY: (u32, u32) = (65_534, 65_534);
