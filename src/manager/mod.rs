//! CONTROL PLANE: one process, one thread, that starts everything and touches no client's byte.
//!
//! Who believes whom:
//!
//! - The manager keeps the rights that weir was started with. It reads the configuration, binds the listening sockets,
//!   opens the logs, starts the gateway and the workers, and waits.
//! - The gateway ([`jail`]) meets the internet. It has no more than `control::Heritage` lists, gives up root before it
//!   looks at anything, and can ask the manager for what `control::ToManager` lists: a connection to a worker of its
//!   own, or that worker's end. A gateway that dies is replaced; the sockets stay open meanwhile.
//! - Workers ([`workers`]) run somebody's program. They have a listening socket that only the manager can connect to,
//!   their output is read as lines of text and never interpreted, and they die with the manager.
//!
//! What to read next: [`supervise`], the loop; [`generation`], what one configuration runs; [`plan`], what is
//! found wrong before anything is started.

mod addresses;
mod banner;
mod egress;
mod gateway;
mod generation;
mod heritage;
pub mod jail;
mod line_log;
pub mod listen;
mod measure;
pub mod memory;
mod notify;
mod oom;
mod output;
mod owners;
mod php;
mod pid_file;
mod plan;
mod slow_log;
mod stand_in;
mod supervise;
mod window;
mod workers;

use std::{fmt, net::SocketAddr, path::PathBuf};

use weir_config::{Config, Diagnostic, Diagnostics, Environment, Places, Severity, Window};

use plan::Problem;
pub use stand_in::StandIn;

/// What `weir serve` was told.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The configuration's name in messages: its file as the user wrote it.
    pub name: String,
    /// The configuration's text.
    pub text: String,
    /// What its meaning depends on beside the text.
    pub environment: Environment,
    /// The file, which is read again at a reload; none: the text above is all there is.
    pub file: Option<PathBuf>,
    /// Where the operator's window is, if the command line says it: on a unix socket, and on TCP.
    pub window: Option<Window>,
    /// See `window`.
    pub window_tcp: Option<SocketAddr>,
    /// Say each step of each request on stderr.
    pub trace: bool,
    /// The folder, where `weir serve FOLDER` was said: then a banner says how to reach it.
    pub folder: Option<PathBuf>,
    /// What is otherwise where weir stands in for PHP-FPM.
    pub stand_in: Option<StandIn<'a>>,
}

/// Why weir ends without having been asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the process exits with: [`EX_CONFIG`] or [`EX_SOFTWARE`].
    pub code: u8,
    /// What a person reads: place, cause, mend. One line or several.
    pub message: String,
}

/// Wrong configuration, or one that cannot work on this machine (sysexits.h, as PHP-FPM exits).
pub const EX_CONFIG: u8 = 78;

/// Anything that is not the configuration's fault (sysexits.h).
pub const EX_SOFTWARE: u8 = 70;

/// Serves until told to stop by a signal.
///
/// # Errors
/// Where it cannot start; nothing is left running then.
pub fn run(start: Start<'_>) -> Result<(), Failure> {
    supervise::run(start)
}

/// A configuration that was read and found right.
#[derive(Debug, Clone)]
struct Loaded {
    name: String,
    text: String,
    environment: Environment,
    config: Config,
    places: Places,
    /// What will bite, as the parser found it.
    warnings: Option<String>,
    /// Where the operator's window is, if the command line says it.
    window: Option<Window>,
    window_tcp: Option<SocketAddr>,
    trace: bool,
    /// The text is not the user's, but what `weir serve FOLDER` means, or PHP-FPM's configuration.
    generated: bool,
}

impl Loaded {
    /// Parses a text; all its diagnostics are the error.
    fn parse(start: &Start<'_>, text: String) -> Result<Self, Failure> {
        match weir_config::read(&start.name, &text, &start.environment) {
            Ok(checked) => Ok(Self {
                name: start.name.clone(),
                text,
                environment: start.environment.clone(),
                config: checked.config,
                places: checked.places,
                warnings: (!checked.warnings.is_empty()).then(|| checked.warnings.to_string()),
                window: start.window.clone(),
                window_tcp: start.window_tcp,
                trace: start.trace,
                generated: start.folder.is_some() || start.stand_in.is_some(),
            }),
            Err(diagnostics) => Err(Failure::configuration(diagnostics.to_string())),
        }
    }

    /// Where operators come in.
    fn window(&self) -> &Window {
        self.window.as_ref().unwrap_or(&self.config.server.admin)
    }

    /// Where they come in over TCP, if they do.
    fn window_tcp(&self) -> Option<SocketAddr> {
        self.window_tcp.or(self.config.server.admin_tcp)
    }

    /// Problems as a failure that shows where in the text they come from.
    fn failure(&self, problems: Vec<Problem>) -> Failure {
        if self.generated {
            // Nobody has seen that text, so no line of it is shown.
            let plain = |problem: &Problem| format!("{}\n  {}", problem.cause, problem.mend);
            let lines: Vec<String> = problems.iter().map(plain).collect();
            return Failure::configuration(lines.join("\n"));
        }
        let diagnostic = |problem: Problem| Diagnostic {
            severity: Severity::Error,
            span: self.places.of(&problem.key),
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
