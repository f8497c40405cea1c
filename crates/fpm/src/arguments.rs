//! PHP-FPM's command line, parsed like PHP's php_getopt(): `-yFILE`, `-y=FILE`, `-y FILE`, `--fpm-config=FILE`,
//! `-tt`, `-nF`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::php;

/// The parsed command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// The process name of PHP-FPM: `php-fpm8.2`.
    pub(super) process_name: String,
    /// The whole command line, the program first.
    pub(super) command: Vec<String>,
    /// `-y`
    pub(super) file: Option<String>,
    /// `-p`
    pub(super) prefix: Option<String>,
    /// `-g`
    pub(super) pid: Option<String>,
    /// `-c`
    pub(super) php_ini: Option<OsString>,
    /// `-n`
    pub(super) no_php_ini: bool,
    /// `-d`, in order.
    pub(super) defines: Vec<OsString>,
    /// How often `-t` was given.
    pub(super) test: u32,
    /// `-D` or `-F`.
    pub(super) daemonize: Option<bool>,
    /// `-O`
    pub(super) force_stderr: bool,
    /// `-R`
    pub(super) run_as_root: bool,
}

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Start, or test.
    Run,
    /// `-h`
    Help,
    /// `-v`
    Version,
    /// `-i`
    Information,
    /// `-m`
    Modules,
    /// The command line is wrong.
    Usage,
}

/// Parses the arguments after the program's name. For options that end the parsing early (`-v`, `-m`, `-h`), the
/// result has the arguments up to there.
pub(super) fn read(typed: &[OsString]) -> (Arguments, Action) {
    let mut arguments = Arguments::default();
    let mut information = false;
    let mut words = typed.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        let mut rest = match word {
            b"--" => {
                let more = words.next().is_some();
                return (
                    arguments,
                    if more {
                        Action::Usage
                    } else {
                        end(information)
                    },
                );
            }
            [b'-', b'-', long @ ..] => {
                let end = long.iter().position(|&byte| byte == b'=');
                let name = &long[..end.unwrap_or(long.len())];
                let Some(option) = OPTIONS.iter().find(|option| option.long.as_bytes() == name)
                else {
                    return (arguments, Action::Usage);
                };
                let value = match (option.takes_value, end) {
                    (false, _) => None,
                    (true, Some(end)) => Some(&long[end + 1..]),
                    (true, None) => match words.next() {
                        Some(value) => Some(value),
                        None => return (arguments, Action::Usage),
                    },
                };
                match arguments.take(option.short, value) {
                    Taken::Noted => {}
                    Taken::Information => information = true,
                    Taken::Stop(action) => return (arguments, action),
                }
                continue;
            }
            [b'-', rest @ ..] if !rest.is_empty() => rest,
            // There is no script that could be given.
            _ => return (arguments, Action::Usage),
        };
        while let Some((&letter, after)) = rest.split_first() {
            let Some(option) = OPTIONS.iter().find(|option| option.short == letter) else {
                return (arguments, Action::Usage);
            };
            rest = after;
            let value = match option.takes_value {
                false => None,
                true if rest.is_empty() => match words.next() {
                    Some(value) => Some(value),
                    None => return (arguments, Action::Usage),
                },
                true => {
                    let value = rest.strip_prefix(b"=").unwrap_or(rest);
                    rest = b"";
                    Some(value)
                }
            };
            match arguments.take(letter, value) {
                Taken::Noted => {}
                Taken::Information => information = true,
                Taken::Stop(action) => return (arguments, action),
            }
        }
    }
    (arguments, end(information))
}

fn end(information: bool) -> Action {
    match information {
        true => Action::Information,
        false => Action::Run,
    }
}

/// Result of handling an option.
enum Taken {
    Noted,
    Information,
    Stop(Action),
}

impl Arguments {
    fn take(&mut self, letter: u8, value: Option<&[u8]>) -> Taken {
        let value = value.unwrap_or_default();
        let text = || Some(String::from_utf8_lossy(value).into_owned());
        let word = || OsString::from_vec(value.to_vec());
        match letter {
            b'c' => self.php_ini = Some(word()),
            b'd' => self.defines.push(word()),
            b'y' => self.file = text(),
            b'p' => self.prefix = text(),
            b'g' => self.pid = text(),
            b'n' => self.no_php_ini = true,
            b't' => self.test += 1,
            b'D' => self.daemonize = Some(true),
            b'F' => self.daemonize = Some(false),
            b'O' => self.force_stderr = true,
            b'R' => self.run_as_root = true,
            b'i' => return Taken::Information,
            b'm' => return Taken::Stop(Action::Modules),
            b'v' => return Taken::Stop(Action::Version),
            b'h' | b'?' => return Taken::Stop(Action::Help),
            // -e: information for debuggers; extensions that need it request it themselves.
            _ => {}
        }
        Taken::Noted
    }

    /// Names and values of `-d`; a name alone is switched on.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let pair = |define: &OsString| {
            let define = define.to_string_lossy();
            match define.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (define.into_owned(), "1".to_owned()),
            }
        };
        self.defines.iter().map(pair).collect()
    }
}

struct Known {
    short: u8,
    long: &'static str,
    takes_value: bool,
}

const fn option(short: u8, long: &'static str, takes_value: bool) -> Known {
    Known {
        short,
        long,
        takes_value,
    }
}

const OPTIONS: &[Known] = &[
    option(b'c', "php-ini", true),
    option(b'd', "define", true),
    option(b'e', "profile-info", false),
    option(b'h', "help", false),
    option(b'i', "info", false),
    option(b'm', "modules", false),
    option(b'n', "no-php-ini", false),
    option(b'?', "usage", false),
    option(b'v', "version", false),
    option(b'y', "fpm-config", true),
    option(b't', "test", false),
    option(b'p', "prefix", true),
    option(b'g', "pid", true),
    option(b'R', "allow-to-run-as-root", false),
    option(b'D', "daemonize", false),
    option(b'F', "nodaemonize", false),
    option(b'O', "force-stderr", false),
];

/// The text of `-h`. `program`: the name of the command.
pub fn help(program: &str) -> String {
    format!(
        "Usage: {program} [-n] [-e] [-h] [-i] [-m] [-v] [-t] [-p <prefix>] [-g <pid>] [-c <file>] [-d foo[=bar]] \
         [-y <file>] [-D] [-F [-O]] [-R]

weir takes PHP-FPM's command line and configuration, and runs its pools.

  -c, --php-ini <path>|<file>   php.ini, or the folder that it is in
  -n, --no-php-ini              read no php.ini
  -d, --define foo[=bar]        set foo to bar; overrides php.ini
  -e, --profile-info            accepted, without effect
  -h, --help                    show this help
  -i, --info                    show PHP's information (phpinfo)
  -m, --modules                 show PHP's modules
  -v, --version                 show PHP's version
  -p, --prefix <dir>            folder that relative paths start from (default: /usr)
  -g, --pid <file>              pid file, unless the configuration sets one
  -y, --fpm-config <file>       configuration file (default: /etc/php/VERSION/fpm/php-fpm.conf)
  -t, --test                    check the configuration and exit; twice: also print all values in force
  -D, --daemonize               run in the background; overrides the configuration
  -F, --nodaemonize             stay in the foreground; overrides the configuration
  -O, --force-stderr            in the foreground, write errors to standard error even if it is not a terminal
  -R, --allow-to-run-as-root    accept a pool without a user; its scripts run as the gateway's user, never as root

Exit codes: 0 success, 64 wrong command line, 70 could not start in the background, 78 wrong configuration.
"
    )
}

/// The version in a name: `php-fpm8.2`, `php-fpm82`, `php-fpm-8.2`.
pub(super) fn version_of_name(name: &OsStr) -> Option<(u32, u32)> {
    let name = name.to_str()?;
    let name = name.rsplit('/').next()?;
    let digits = name.strip_prefix("php-fpm")?.trim_start_matches('-');
    match digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => php::parse(&format!("{}.{}", &digits[..1], &digits[1..])),
        false => php::parse(digits),
    }
}

/// The version in the path of a configuration, in Debian's layout: `/etc/php/8.2/fpm/php-fpm.conf`.
pub(super) fn version_of_path(path: &str) -> Option<(u32, u32)> {
    let rest = path.split_once("/php/")?.1;
    let (version, rest) = rest.split_once('/')?;
    php::parse(version).filter(|_| rest.starts_with("fpm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> (Arguments, Action) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        read(&words)
    }

    #[test]
    fn values_come_in_every_way_that_php_takes() {
        for words in [
            &["-y", "f"][..],
            &["-yf"],
            &["-y=f"],
            &["--fpm-config", "f"],
            &["--fpm-config=f"],
            &["-nyf"],
        ] {
            let (arguments, action) = parse(words);
            assert_eq!(action, Action::Run, "{words:?}");
            assert_eq!(arguments.file.as_deref(), Some("f"), "{words:?}");
        }
    }

    #[test]
    fn everything_is_understood() {
        let (arguments, action) = parse(&[
            "-tt", "-F", "-O", "-R", "-n", "-e", "-c", "ini", "-d", "a=b", "-dc", "-p/x", "-g",
            "pid", "--",
        ]);
        assert_eq!(action, Action::Run);
        assert_eq!(arguments.test, 2);
        assert_eq!(arguments.daemonize, Some(false));
        assert!(arguments.force_stderr && arguments.run_as_root && arguments.no_php_ini);
        assert_eq!(
            arguments.settings(),
            [
                ("a".to_owned(), "b".to_owned()),
                ("c".to_owned(), "1".to_owned())
            ]
        );
        assert_eq!(arguments.prefix.as_deref(), Some("/x"));
        assert_eq!(arguments.pid.as_deref(), Some("pid"));
    }

    #[test]
    fn what_ends_the_reading_ends_it() {
        assert_eq!(parse(&["-v", "nonsense"]).1, Action::Version);
        assert_eq!(parse(&["-h"]).1, Action::Help);
        assert_eq!(parse(&["-?"]).1, Action::Help);
        assert_eq!(parse(&["-m"]).1, Action::Modules);
        assert_eq!(parse(&["-i", "-n"]).1, Action::Information);
        assert!(parse(&["-i", "-n"]).0.no_php_ini);
        for wrong in [
            &["-Z"][..],
            &["nonsense"],
            &["-t", "nonsense"],
            &["-y"],
            &["--fpm-config"],
            &["--nonsense"],
            &["-"],
            &["-C"],
            &["--", "x"],
        ] {
            assert_eq!(parse(wrong).1, Action::Usage, "{wrong:?}");
        }
    }

    #[test]
    fn names_and_paths_tell_the_version() {
        for (name, version) in [
            ("php-fpm8.2", Some((8, 2))),
            ("/usr/sbin/php-fpm8.10", Some((8, 10))),
            ("php-fpm82", Some((8, 2))),
            ("php-fpm-8.3", Some((8, 3))),
            ("php-fpm", None),
            ("weir", None),
        ] {
            assert_eq!(version_of_name(OsStr::new(name)), version, "{name}");
        }
        assert_eq!(
            version_of_path("/etc/php/8.1/fpm/php-fpm.conf"),
            Some((8, 1))
        );
        assert_eq!(version_of_path("/etc/php-fpm.conf"), None);
        assert_eq!(version_of_path("/etc/php/x/fpm/php-fpm.conf"), None);
    }
}
