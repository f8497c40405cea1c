//! PHP-FPM's configuration: read, checked and reported as PHP-FPM 8.2 does it, and translated to weir's
//! configuration.
//!
//! ```text
//! php-fpm.conf ── scan, line ──► statements ── load ──► Global, Pools ── check ──► Fpm ── translate ──► weir.toml
//!                                                                                   └─ dump ──► what -tt prints
//! ```
//!
//! weir accepts a file that PHP-FPM accepts, and refuses a file that PHP-FPM refuses, with the same messages. The
//! tests compare both with the real php-fpm. Known differences: line numbers are correct after an include, a value
//! must be UTF-8, and `${name}` means environment variables only, not settings of php.ini.
//!
//! This module opens nothing itself: it accesses the machine through [`System`].

mod access_format;
mod check;
mod directives;
mod dump;
mod line;
mod load;
mod paths;
mod scan;
mod translate;

use std::io;

pub use directives::{DEFAULT_BACKLOG, Global, Level, Pm, Pool, UNSET_PRIORITY};
pub use dump::dump;
pub use translate::{Start, Translated, refuse, translate};

/// The command-line options of PHP-FPM that its configuration depends on.
#[derive(Debug, Clone)]
pub struct Options {
    /// PHP version, major and minor. The default paths and the syntax of variables depend on it.
    pub php: (u32, u32),
    /// `-p`
    pub prefix: Option<String>,
    /// `-y`. `None`: the path of Debian's packages, or the default below the prefix.
    pub file: Option<String>,
    /// `-g`
    pub pid: Option<String>,
    /// `-D` and `-F`. `None`: as in the file.
    pub daemonize: Option<bool>,
    /// `-R`
    pub run_as_root: bool,
}

impl Options {
    /// Path of the file to read.
    pub fn configuration(&self) -> String {
        let (major, minor) = self.php;
        match (self.file.as_deref(), &self.prefix) {
            (Some(file), _) if !file.is_empty() => file.to_owned(),
            (_, Some(prefix)) => format!("{prefix}/etc/php-fpm.conf"),
            (_, None) => format!("/etc/php/{major}.{minor}/fpm/php-fpm.conf"),
        }
    }
}

/// The questions that the configuration asks about the machine.
pub trait System {
    /// Reads a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
    /// The files that match a pattern, sorted, folders with a slash at the end, as glob(3) returns them.
    ///
    /// # Errors
    /// The error number of glob(3).
    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32>;
    /// Whether the path is a folder.
    fn is_folder(&self, path: &str) -> bool;
    /// Opens a log for appending, creates it if it does not exist, and closes it.
    ///
    /// # Errors
    /// As open(2).
    fn try_log(&self, path: &str) -> io::Result<()>;
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Whether this process runs as root.
    fn is_root(&self) -> bool;

    /// Whether this process may raise hard limits. If not, only the global `rlimit_files` applies.
    fn raises_limits(&self) -> bool;
    /// Finds a user by name or number.
    fn user(&self, name: &str) -> Option<User>;
    /// The user of this process.
    fn current_user(&self) -> Option<User>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
    /// Resolves a host name to addresses.
    ///
    /// # Errors
    /// Why there are none, as text.
    fn resolve(&self, host: &str) -> Result<Vec<std::net::IpAddr>, String>;
    /// Whether that address can be listened on, with IPv4 on an IPv6 socket. An address that was found to be free before is.
    ///
    /// # Errors
    /// As socket(2) and bind(2).
    fn try_listen(&self, address: std::net::SocketAddr) -> io::Result<()>;
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
    /// Home folder.
    pub home: String,
}

/// A message of PHP-FPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Severity. `None`: a message of PHP's parser, on standard error and without a time.
    pub level: Option<Level>,
    /// The text, without time and level.
    pub text: String,
}

impl Message {
    /// Creates a message with a level.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Self {
            level: Some(level),
            text: text.into(),
        }
    }

    /// Creates an error message with the system's reason.
    fn system(text: String, error: &io::Error) -> Self {
        Self::new(Level::Error, format!("{text}: {}", in_c_words(error)))
    }

    fn of_php(text: &str) -> Self {
        Self {
            level: None,
            text: format!("PHP:  {text}"),
        }
    }
}

/// The messages of PHP-FPM while it reads its configuration.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    /// The messages, in PHP-FPM's order.
    pub messages: Vec<Message>,
    /// The log, once it could be opened.
    pub log: Option<OpenedLog>,
}

/// The error log of the configuration. It is known before the pools are checked.
#[derive(Debug, Clone)]
pub struct OpenedLog {
    /// Number of messages before the log was opened.
    pub before: usize,
    /// The file. `None`: syslog.
    pub path: Option<String>,
    /// The name of messages to syslog.
    pub syslog_ident: String,
    /// Their facility, numbered as in syslog(3) (daemon: 3).
    pub syslog_facility: u8,
    /// The least severe level that is written.
    pub level: Option<Level>,
    /// PHP-FPM runs in the background.
    pub daemonize: bool,
}

impl Diagnostics {
    fn push(&mut self, message: Message) {
        self.messages.push(message);
    }
}

/// `Permission denied (13)`
pub fn in_c_words(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return error.to_string();
    };
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    format!("{text} ({number})")
}

/// A configuration that PHP-FPM would start with.
#[derive(Debug, Clone)]
pub struct Fpm {
    /// Path of the file.
    pub file: String,
    /// `[global]`, with defaults filled in.
    pub global: Global,
    /// The pools in their order, followed by those that PHP-FPM creates for `pm.status_listen`.
    pub pools: Vec<Pool>,
}

/// Reads and checks the configuration. Adds all messages to `diagnostics`, in PHP-FPM's order. With `Err`, the messages
/// contain the reason, but not the last line, `FPM initialization failed`.
///
/// # Errors
/// PHP-FPM would not start with it: exit code 78.
pub fn read(
    options: &Options,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<Fpm, Refused> {
    let refuse = |diagnostics: &mut Diagnostics, message: String| {
        diagnostics.push(Message::new(Level::Error, message));
        Refused
    };
    if let Some(prefix) = options
        .prefix
        .as_deref()
        .filter(|prefix| !prefix.is_empty())
        && !system.is_folder(prefix)
    {
        let message = format!("the global prefix '{prefix}' does not exist or is not a directory");
        return Err(refuse(diagnostics, message));
    }
    let file = options.configuration();
    let Ok(mut loaded) = load::load(&file, options, system, diagnostics) else {
        let message = format!("failed to load configuration file '{file}'");
        return Err(refuse(diagnostics, message));
    };
    if let Some(pid) = options.pid.as_deref().filter(|pid| !pid.is_empty())
        && loaded.global.pid.is_none()
    {
        loaded.global.pid = Some(pid.to_owned());
    }
    match check::check(&mut loaded, options, system, diagnostics) {
        Ok(()) => Ok(Fpm {
            file,
            global: loaded.global,
            pools: loaded.pools,
        }),
        Err(check::Failed) => Err(refuse(
            diagnostics,
            "failed to post process the configuration".into(),
        )),
    }
}

/// The additional checks of `-t`: whether users and groups exist.
///
/// # Errors
/// One does not exist. It was reported.
pub fn test(fpm: &Fpm, system: &dyn System, diagnostics: &mut Diagnostics) -> Result<(), Refused> {
    check::test(fpm, system, diagnostics).map_err(|check::Failed| Refused)
}

/// The additional checks of a start: the user and group of each pool, for the user who starts it.
///
/// # Errors
/// A user or a group does not exist, or is root. It was reported.
pub fn start(
    fpm: &Fpm,
    options: &Options,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<(), Refused> {
    check::start(fpm, options, system, diagnostics).map_err(|check::Failed| Refused)
}

/// PHP-FPM would not start. The reason was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;
