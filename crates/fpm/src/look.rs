//! Reads PHP-FPM's configuration only for information: nothing is opened for writing or started.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    process::ExitCode,
};

use weir_config::fpm::{self, Diagnostics, Fpm, Options, System, User};
use weir_manager::EX_CONFIG;

use super::{DEFAULT_PHP, arguments, php, printer::Printer, this_machine::ThisMachine};

/// The weir.toml that `weir fpm -y FILE` would run: its name in messages, and its text.
///
/// # Errors
/// The exit code; the error was printed as PHP-FPM prints it.
pub fn weir_toml(file: &Path) -> Result<(String, String), ExitCode> {
    let options = options(file);
    let mut diagnostics = Diagnostics::default();
    let translated = fpm::read(&options, &ReadOnly, &mut diagnostics).and_then(|fpm| {
        match fpm::translate(&fpm, &options, &fpm::Start::default(), &ReadOnly) {
            Ok(translated) => Ok(translated.text),
            Err(messages) => {
                diagnostics.messages.extend(messages);
                Err(fpm::Refused)
            }
        }
    });
    diagnostics.log = None;
    match translated {
        Ok(text) => Ok((format!("weir.toml made of {}", file.display()), text)),
        Err(fpm::Refused) => {
            Printer::new().tell(&diagnostics, true);
            Err(ExitCode::from(EX_CONFIG))
        }
    }
}

/// A PHP-FPM configuration, if it can be read and is valid.
pub fn pools(file: &Path) -> Option<Fpm> {
    fpm::read(&options(file), &ReadOnly, &mut Diagnostics::default()).ok()
}

fn options(file: &Path) -> Options {
    let of_path = arguments::version_of_path(file.as_os_str().to_str().unwrap_or_default());
    Options {
        php: of_path.or_else(php::newest).unwrap_or(DEFAULT_PHP),
        prefix: None,
        file: Some(file.display().to_string()),
        pid: None,
        daemonize: None,
        run_as_root: false,
    }
}

/// This machine, without changes to it.
struct ReadOnly;

impl System for ReadOnly {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        ThisMachine.read(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32> {
        ThisMachine.glob(pattern)
    }

    fn is_folder(&self, path: &str) -> bool {
        ThisMachine.is_folder(path)
    }

    /// A test would create a missing log.
    fn try_log(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<String> {
        ThisMachine.variable(name)
    }

    fn is_root(&self) -> bool {
        ThisMachine.is_root()
    }

    fn raises_limits(&self) -> bool {
        ThisMachine.raises_limits()
    }

    fn user(&self, name: &str) -> Option<User> {
        ThisMachine.user(name)
    }

    fn current_user(&self) -> Option<User> {
        ThisMachine.current_user()
    }

    fn group(&self, name: &str) -> Option<u32> {
        ThisMachine.group(name)
    }

    /// The running server may listen there now.
    fn try_listen(&self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        ThisMachine.resolve(host)
    }
}
