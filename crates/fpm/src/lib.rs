//! WEIR INSTEAD OF PHP-FPM: `weir fpm`, and weir started under a name that begins with php-fpm.
//!
//! Command line, configuration, log lines, signals and exit codes are PHP-FPM's, so that programs that start, watch
//! and reload it need no change. The configuration is translated to a weir.toml in memory ([`weir_config::fpm`]),
//! which the manager runs like any other. docs/php-fpm.md lists the differences.
#![forbid(unsafe_code)]

mod arguments;
pub mod look;
mod php;
mod printer;
mod run;
mod this_machine;

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    process::ExitCode,
};

use weir_config::fpm::{self, Options};

pub use arguments::help;
use arguments::{Action, Arguments};
use printer::Printer;
use this_machine::ThisMachine;
use weir_manager::{EX_CONFIG, EX_SOFTWARE, EX_USAGE, Origin};
use weir_observe::{console, error_log};

/// Whether a program's name means PHP-FPM: `php-fpm`, `/usr/sbin/php-fpm8.2`.
pub fn is_name(program: &OsStr) -> bool {
    let name = program.as_encoded_bytes();
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    name.starts_with(b"php-fpm")
}

/// Runs PHP-FPM's command line. `name`: weir's name in the command; `typed`: the arguments after it; `origin`: how this
/// process was started.
pub fn main(name: &OsStr, typed: &[OsString], origin: Origin) -> ExitCode {
    error_log::set_format(weir_config::ErrorFormat::Fpm);
    let (mut arguments, action) = arguments::read(typed);
    let words = match is_name(name) {
        true => vec![name],
        false => vec![name, OsStr::new("fpm")],
    };
    let words = words
        .into_iter()
        .chain(typed.iter().map(OsString::as_os_str));
    arguments.command = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let settings = arguments.settings();
    let setting = |wanted: &str| settings.iter().rev().find(|(name, _)| name == wanted);
    let file = match &arguments.file {
        Some(file) => Some(file.clone()),
        // Like PHP-FPM's own setting in PHP.
        None => setting("fpm.config").map(|(_, file)| file.clone()),
    };
    let php = arguments::version_of_name(name)
        .or_else(|| arguments::version_of_path(file.as_deref()?))
        .or_else(php::newest)
        .unwrap_or(DEFAULT_PHP);
    let own = name.to_string_lossy();
    arguments.process_name = match is_name(name) {
        true => own.rsplit('/').next().unwrap_or(&own).to_owned(),
        false => format!("php-fpm{}.{}", php.0, php.1),
    };
    let shown = match is_name(name) {
        true => name.to_string_lossy().into_owned(),
        false => "weir fpm".to_owned(),
    };
    let question = match action {
        Action::Help | Action::Usage => {
            let _ = std::io::stdout().write_all(arguments::help(&shown).as_bytes());
            return match action {
                Action::Help => ExitCode::SUCCESS,
                _ => ExitCode::from(EX_USAGE),
            };
        }
        Action::Version => "-v",
        Action::Information => "-i",
        Action::Modules => "-m",
        Action::Run => {
            let options = Options {
                php,
                prefix: arguments.prefix.clone(),
                file,
                pid: arguments.pid.clone(),
                daemonize: arguments.daemonize,
                run_as_root: arguments.run_as_root,
            };
            return match arguments.test {
                0 => run::run(&options, &arguments, origin),
                times => test(&options, &arguments, times > 1),
            };
        }
    };
    let failed = php::ask(php, &arguments, question);
    Printer::new().error(failed);
    ExitCode::from(EX_SOFTWARE)
}

/// `-t`: prints whether the configuration is valid; `dump`: prints the effective settings, too.
fn test(options: &Options, arguments: &Arguments, dump: bool) -> ExitCode {
    let mut printer = Printer::new();
    let mut diagnostics = fpm::Diagnostics::default();
    let read = fpm::read(options, &ThisMachine, &mut diagnostics);
    let user = read.as_ref().ok().and_then(|fpm| fpm.pools.first());
    if let Err(code) = php::try_start(options.php, arguments, user) {
        return code;
    }
    let read = read.and_then(
        |fpm| match fpm::test(&fpm, &ThisMachine, &mut diagnostics) {
            Ok(()) => Ok(fpm),
            Err(refused) => Err(refused),
        },
    );
    let read = read.and_then(|fpm| match run::look_ahead(&fpm, options) {
        wrong if wrong.is_empty() => Ok(fpm),
        wrong => {
            diagnostics.messages.extend(wrong);
            Err(fpm::Refused)
        }
    });
    printer.tell(&diagnostics, arguments.force_stderr);
    let Ok(fpm) = read else {
        printer.error(NOT_STARTED);
        return ExitCode::from(EX_CONFIG);
    };
    let mut notice = |text: String| {
        printer.say(&fpm::Message {
            level: Some(fpm::Level::Notice),
            text,
        });
    };
    if dump {
        fpm::dump(&fpm).into_iter().for_each(&mut notice);
    }
    notice(format!(
        "configuration file {} test is successful",
        fpm.file
    ));
    console::say("\n");
    ExitCode::SUCCESS
}

/// PHP-FPM's final error message.
const NOT_STARTED: &str = "FPM initialization failed";

/// The PHP version if nothing else is known.
const DEFAULT_PHP: (u32, u32) = (8, 2);
