//! PHP-FPM's configuration, looked at by who only wants to know: nothing is opened for writing, nothing started.

use std::{io, net::IpAddr, path::Path, process::ExitCode};

use weir_config::fpm::{self, Fpm, Options, Outside, Said, User};

use super::{DEFAULT_PHP, arguments, outside::ThisMachine, php, voice::Voice};
use crate::manager::EX_CONFIG;

/// The weir.toml that `weir fpm -y FILE` would run: what it is called in messages, and its text.
///
/// # Errors
/// The exit code; what is wrong has been said, in PHP-FPM's words.
pub fn weir_toml(file: &Path) -> Result<(String, String), ExitCode> {
    let options = options(file);
    let mut said = Said::default();
    let translated =
        fpm::read(&options, &Looking, &mut said).and_then(|fpm| {
            match fpm::translate(&fpm, &options, &fpm::Start::default(), &Looking) {
                Ok(translated) => Ok(translated.text),
                Err(message) => {
                    said.messages.push(message);
                    Err(fpm::Refused)
                }
            }
        });
    said.log = None;
    match translated {
        Ok(text) => Ok((format!("weir.toml made of {}", file.display()), text)),
        Err(fpm::Refused) => {
            Voice::new().tell(&said, true);
            Err(ExitCode::from(EX_CONFIG))
        }
    }
}

/// What a PHP-FPM configuration says, if it can be read and is right.
pub fn pools(file: &Path) -> Option<Fpm> {
    fpm::read(&options(file), &Looking, &mut Said::default()).ok()
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

/// This machine, for who only looks.
struct Looking;

impl Outside for Looking {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        ThisMachine.read(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32> {
        ThisMachine.glob(pattern)
    }

    fn is_folder(&self, path: &str) -> bool {
        ThisMachine.is_folder(path)
    }

    /// A log that is not there would be made by trying.
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

    fn has_address(&self, address: IpAddr) -> bool {
        ThisMachine.has_address(address)
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        ThisMachine.resolve(host)
    }

    fn has_ipv6(&self) -> bool {
        ThisMachine.has_ipv6()
    }
}
