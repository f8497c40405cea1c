//! CONTROL PLANE: one process, one thread. It starts everything and never reads bytes of clients.
//!
//! Trust between the processes:
//!
//! - The manager keeps the rights that weir was started with. It reads the configuration, binds the listening sockets,
//!   opens the logs, starts the gateway and the workers, and waits.
//! - The gateway ([`children::jail`]) handles the internet. It has only what `control::Heritage` lists, gives up root before it
//!   reads anything, and can request from the manager what `control::ToManager` lists: for example a connection to
//!   one of its own workers, or that worker's end. A gateway that dies is replaced; the sockets stay open meanwhile.
//! - Workers ([`workers`]) run application code. They have a listening socket that only the manager can connect to.
//!   Their output is read as lines of text and never interpreted, and they die with the manager.
//!
//! What to read next: [`supervise`], the loop; [`generation`], what one configuration runs, and `generation/plan`, the checks before
//! anything is started. Then what a generation has: [`sockets`], [`certificates`], [`children`] (gateway, keeper, acme), [`workers`]
//! and the PHP processes that they come from ([`php`]), and [`output`], the logs. [`programs`] run beside the generations. [`upgrade`] passes all of it on to a new weir.
#![forbid(unsafe_code)]

mod certificates;
mod children;
mod generation;
mod output;
mod php;
mod programs;
mod sockets;
mod supervise;
mod upgrade;
mod workers;

use std::{fmt, net::SocketAddr, path::PathBuf};

use weir_config::{Config, Diagnostic, Diagnostics, Environment, Places, Severity, SocketPath};

pub use children::jail;
use generation::plan::Problem;
pub use generation::plan::loads::of_pools as php_loads;
pub use sockets::listen;
pub use supervise::fpm_mode::FpmMode;
pub use upgrade::program::{Origin, Program};
pub use workers::memory;

/// The arguments of `weir serve`.
#[derive(Debug)]
pub struct Start<'a> {
    /// The configuration's name in messages: its file as the user gave it.
    pub name: String,
    /// The configuration's text.
    pub text: String,
    /// The values besides the text that are needed to interpret it.
    pub environment: Environment,
    /// The file, which a reload reads again; `None`: there is only the text.
    pub file: Option<PathBuf>,
    /// The admin interface, if the command line sets it: on a unix socket, and on TCP.
    pub admin: Option<SocketPath>,
    /// See `admin`.
    pub admin_tcp: Option<SocketAddr>,
    /// Whether to write each step of each request to stderr.
    pub trace: bool,
    /// The folder of `weir serve FOLDER`; a banner then says how to reach it.
    pub folder: Option<PathBuf>,
    /// Checks of the configuration that read many files: made once weir serves, on a thread of their own. Their lines are
    /// logged as warnings.
    pub late_checks: Option<fn(&Config) -> Vec<String>>,
    /// Differences for running in place of PHP-FPM.
    pub fpm_mode: Option<FpmMode<'a>>,
    /// How this process was started.
    pub origin: Origin,
}

/// Why weir ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code: [`EX_CONFIG`] or [`EX_SOFTWARE`].
    pub code: u8,
    /// The message: place, cause, fix. One line or several.
    pub message: String,
}

/// Wrong command line (sysexits.h).
pub const EX_USAGE: u8 = 64;

/// Wrong configuration, or one that cannot work on this machine (sysexits.h; PHP-FPM uses the same code).
pub const EX_CONFIG: u8 = 78;

/// Any other error (sysexits.h).
pub const EX_SOFTWARE: u8 = 70;

/// Serves until a signal stops it.
///
/// # Errors
/// If it cannot start; nothing is left running then.
pub fn run(start: Start<'_>) -> Result<(), Failure> {
    supervise::run(start)
}

/// A valid configuration.
#[derive(Debug, Clone)]
struct Loaded {
    name: String,
    text: String,
    environment: Environment,
    config: Config,
    /// The parser's warnings.
    warnings: Option<String>,
    /// The admin interface, if the command line sets it.
    admin: Option<SocketPath>,
    admin_tcp: Option<SocketAddr>,
    trace: bool,
    /// The text is not the user's: it was made for `weir serve FOLDER` or from PHP-FPM's configuration.
    generated: bool,
}

impl Loaded {
    /// Parses a text; the error has all diagnostics.
    fn parse(start: &Start<'_>, text: String) -> Result<Self, Failure> {
        match weir_config::load(&start.name, &text, &start.environment) {
            Ok((config, warnings)) => Ok(Self {
                name: start.name.clone(),
                text,
                environment: start.environment.clone(),
                config,
                warnings: (!warnings.is_empty()).then(|| warnings.to_string()),
                admin: start.admin.clone(),
                admin_tcp: start.admin_tcp,
                trace: start.trace,
                generated: start.folder.is_some() || start.fpm_mode.is_some(),
            }),
            Err(diagnostics) => Err(Failure::configuration(diagnostics.to_string())),
        }
    }

    /// The address of the admin interface.
    fn admin(&self) -> &SocketPath {
        self.admin.as_ref().unwrap_or(&self.config.server.admin)
    }

    /// Its TCP address, if it has one.
    fn admin_tcp(&self) -> Option<SocketAddr> {
        self.admin_tcp.or(self.config.server.admin_tcp)
    }

    /// Turns problems into a failure that shows their place in the text.
    fn failure(&self, problems: Vec<Problem>) -> Failure {
        if self.generated {
            // The user has never seen that text, so its lines are not shown.
            let plain = |problem: &Problem| format!("{}\n  {}", problem.cause, problem.mend);
            let lines: Vec<String> = problems.iter().map(plain).collect();
            return Failure::configuration(lines.join("\n"));
        }
        let places = Places::of_text(&self.text, &self.environment);
        let diagnostic = |problem: Problem| Diagnostic {
            severity: Severity::Error,
            span: places.of(&problem.key),
            message: format!("{}: {}", problem.key, problem.cause),
            hint: Some(problem.mend),
        };
        let list = problems.into_iter().map(diagnostic).collect();
        let diagnostics = Diagnostics::new(&self.name, self.text.as_str().into(), list);
        Failure::configuration(diagnostics.to_string())
    }
}

impl Failure {
    fn configuration(message: impl Into<String>) -> Self {
        Self {
            code: EX_CONFIG,
            message: message.into(),
        }
    }

    fn internal(message: impl Into<String>) -> Self {
        Self {
            code: EX_SOFTWARE,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
