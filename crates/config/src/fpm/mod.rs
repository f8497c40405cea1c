//! PHP-FPM's configuration: read, checked and told about as PHP-FPM 8.2 does it, and put into weir's terms.
//!
//! ```text
//! php-fpm.conf ── scan, line ──► statements ── load ──► Global, Pools ── check ──► Fpm ── translate ──► weir.toml
//!                                                                                   └─ dump ──► what -tt prints
//! ```
//!
//! A file that PHP-FPM takes is taken, and one that it refuses is refused in its words; the tests compare both with the
//! real php-fpm. Where it is known to differ: lines are counted rightly after an include, a value must be UTF-8, and
//! `${name}` means environment variables only, not php.ini's settings.
//!
//! The room opens nothing itself: what it needs of the machine is [`Outside`].

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

/// What PHP-FPM was told on its command line, as far as its configuration depends on it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which PHP, major and minor: where files are, and how variables are read.
    pub php: (u32, u32),
    /// `-p`
    pub prefix: Option<String>,
    /// `-y`; none: where Debian's packages have it, or below the prefix.
    pub file: Option<String>,
    /// `-g`
    pub pid: Option<String>,
    /// `-D` and `-F`; none: as the file says.
    pub daemonize: Option<bool>,
    /// `-R`
    pub run_as_root: bool,
}

impl Options {
    /// The file to read.
    pub fn configuration(&self) -> String {
        let (major, minor) = self.php;
        match (self.file.as_deref(), &self.prefix) {
            (Some(file), _) if !file.is_empty() => file.to_owned(),
            (_, Some(prefix)) => format!("{prefix}/etc/php-fpm.conf"),
            (_, None) => format!("/etc/php/{major}.{minor}/fpm/php-fpm.conf"),
        }
    }
}

/// What the configuration asks of the machine.
pub trait Outside {
    /// A file's content.
    ///
    /// # Errors
    /// As open(2) and read(2).
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
    /// The files that a pattern matches, sorted, folders with a slash at the end, as glob(3) finds them.
    ///
    /// # Errors
    /// glob(3)'s number.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32>;
    /// There is such a folder.
    fn is_folder(&self, path: &str) -> bool;
    /// Opens a log for appending, makes it where it is not there, and closes it.
    ///
    /// # Errors
    /// As open(2).
    fn try_log(&self, path: &str) -> io::Result<()>;
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Who asks is root.
    fn is_root(&self) -> bool;

    /// Whether hard limits may be raised: who may not is left with the global `rlimit_files`.
    fn raises_limits(&self) -> bool;
    /// A user of this name or number: its name and its home.
    fn user(&self, name: &str) -> Option<User>;
    /// Whom who asks is.
    fn current_user(&self) -> Option<User>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
    /// The addresses of a host.
    ///
    /// # Errors
    /// Why it has none, in words.
    fn resolve(&self, host: &str) -> Result<Vec<std::net::IpAddr>, String>;
    /// That address can be listened on here, whatever the port.
    fn has_address(&self, address: std::net::IpAddr) -> bool;
    /// The machine speaks IPv6.
    fn has_ipv6(&self) -> bool;
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// As it logs in.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its own group's number.
    pub gid: u32,
    /// Its folder.
    pub home: String,
}

/// Something that PHP-FPM says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How bad it is; none: it is PHP's parser who speaks, on standard error and without a time.
    pub level: Option<Level>,
    /// Without time and level.
    pub text: String,
}

impl Message {
    /// What is said at a level.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Self {
            level: Some(level),
            text: text.into(),
        }
    }

    /// With why the system refused.
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

/// What PHP-FPM says while it reads its configuration.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// In its order.
    pub messages: Vec<Message>,
    /// The log, once it could be opened.
    pub log: Option<OpenedLog>,
}

/// The error log as the configuration has it, known before anything is known of pools.
#[derive(Debug, Clone)]
pub struct OpenedLog {
    /// Messages that came before.
    pub before: usize,
    /// The file; none: syslog.
    pub path: Option<String>,
    /// The least severe level that is written.
    pub level: Option<Level>,
    /// It is to run in the background.
    pub daemonize: bool,
}

impl Said {
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
    /// The file.
    pub file: String,
    /// `[global]`, with what was not written filled in.
    pub global: Global,
    /// The pools in their order, and at the end those that PHP-FPM makes for `pm.status_listen`.
    pub pools: Vec<Pool>,
}

/// Reads and checks the configuration. What there is to say is added to `said`, in PHP-FPM's order; where `Err` comes,
/// it says why, but for the last line, `FPM initialization failed`.
///
/// # Errors
/// PHP-FPM would not start with it: exit code 78.
pub fn read(options: &Options, outside: &dyn Outside, said: &mut Said) -> Result<Fpm, Refused> {
    let refuse = |said: &mut Said, message: String| {
        said.push(Message::new(Level::Error, message));
        Refused
    };
    if let Some(prefix) = options
        .prefix
        .as_deref()
        .filter(|prefix| !prefix.is_empty())
        && !outside.is_folder(prefix)
    {
        let message = format!("the global prefix '{prefix}' does not exist or is not a directory");
        return Err(refuse(said, message));
    }
    let file = options.configuration();
    let Ok(mut loaded) = load::load(&file, options, outside, said) else {
        let message = format!("failed to load configuration file '{file}'");
        return Err(refuse(said, message));
    };
    if let Some(pid) = options.pid.as_deref().filter(|pid| !pid.is_empty())
        && loaded.global.pid.is_none()
    {
        loaded.global.pid = Some(pid.to_owned());
    }
    match check::check(&mut loaded, options, outside, said) {
        Ok(()) => Ok(Fpm {
            file,
            global: loaded.global,
            pools: loaded.pools,
        }),
        Err(check::Failed) => Err(refuse(
            said,
            "failed to post process the configuration".into(),
        )),
    }
}

/// What `-t` tries beyond reading: whether users and groups are there.
///
/// # Errors
/// One is not; it was said which.
pub fn test(fpm: &Fpm, outside: &dyn Outside, said: &mut Said) -> Result<(), Refused> {
    check::test(fpm, outside, said).map_err(|check::Failed| Refused)
}

/// What a start tries beyond reading, as whoever starts it: whom each pool becomes.
///
/// # Errors
/// A user or a group is not there, or is root's; it was said which.
pub fn start(
    fpm: &Fpm,
    options: &Options,
    outside: &dyn Outside,
    said: &mut Said,
) -> Result<(), Refused> {
    check::start(fpm, options, outside, said).map_err(|check::Failed| Refused)
}

/// PHP-FPM would not start; why was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;
