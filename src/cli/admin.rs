//! `weir status`, `reload`, `stop`, `drain`, `pool`, `cache`: finds the running weir, sends the request, and prints the
//! answer.

use std::{
    fs,
    io::{IsTerminal, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_admin::client::Endpoint;
use weir_config::{Address, SocketPath, parse_address};
use weir_manager::{EX_CONFIG, EX_SOFTWARE};
use weir_observe::{console, log_text};
use weir_sys::{process, terminal};

use super::{EX_UNAVAILABLE, EX_USAGE, Source, cache::CacheRequest, print, refuse_config, running};

/// The address of the admin interface, from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    /// `unix:PATH` or `off`
    Socket(SocketPath),
    /// `host:port`
    Tcp(SocketAddr),
}

/// Flags that say which running weir is meant.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// Admin address of the running weir: unix:PATH or host:port [default: from -c, else
    /// unix:RUNTIME_DIR/weir/admin.sock]
    #[arg(long, value_name = "ADDR", value_parser = admin_address)]
    pub admin: Option<Admin>,

    /// File with the token for an admin address on TCP
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Configuration file of the running weir
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    pub config: Option<PathBuf>,
}

/// A request to a running weir.
#[derive(Debug)]
pub enum Request {
    /// `weir status`
    Status {
        /// Print the JSON, for programs.
        json: bool,
        /// Repeat every two seconds.
        watch: bool,
        /// Show only this pool.
        pool: Option<String>,
    },
    /// `weir status --healthy`
    Healthy,
    /// `weir drain`
    Drain {
        /// End the drain.
        off: bool,
    },
    /// `weir pool NAME set`
    SetPool {
        /// Its name.
        pool: String,
        /// `max_children=N`, `maxconn=N`
        limits: Vec<String>,
    },
    /// `weir reload`
    Reload,
    Upgrade,
    /// `weir stop`
    Stop {
        /// At once.
        now: bool,
    },
    /// `weir pool NAME restart`
    RestartPool {
        /// Its name.
        pool: String,
    },
    /// `weir cache`
    Cache(CacheRequest),
}

impl Request {
    /// The word on the command line.
    fn command(&self) -> &'static str {
        match self {
            Self::Status { .. } | Self::Healthy => "status",
            Self::Drain { .. } => "drain",
            Self::SetPool { .. } | Self::RestartPool { .. } => "pool",
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
            Self::Stop { .. } => "stop",
            Self::Cache(_) => "cache",
        }
    }

    /// Method and path at the admin interface.
    fn sent(&self) -> (Method, String) {
        match self {
            Self::Status { pool, .. } => (Method::GET, status_path(pool.as_deref())),
            Self::Healthy => (Method::GET, "/readyz".to_owned()),
            Self::Reload => (Method::POST, "/reload".to_owned()),
            Self::Upgrade => (Method::POST, "/upgrade".to_owned()),
            Self::Stop { now: false } => (Method::POST, "/stop".to_owned()),
            Self::Stop { now: true } => (Method::POST, "/stop?now".to_owned()),
            Self::RestartPool { pool } => {
                let pool = utf8_percent_encode(pool, NON_ALPHANUMERIC);
                (Method::POST, format!("/pool/{pool}/restart"))
            }
            Self::Cache(request) => (request.method.clone(), request.path.clone()),
            Self::Drain { off: false } => (Method::POST, "/drain".to_owned()),
            Self::Drain { off: true } => (Method::POST, "/drain?off".to_owned()),
            Self::SetPool { pool, limits } => {
                let pool = utf8_percent_encode(pool, NON_ALPHANUMERIC);
                (
                    Method::POST,
                    format!("/pool/{pool}/set?{}", limits.join("&")),
                )
            }
        }
    }
}

/// Sends the request to the admin interface of a running weir, and prints the answer.
pub fn ask(asked: &Request, args: &AdminArgs) -> ExitCode {
    let place = match args.place() {
        Ok(place) => place,
        Err(code) => return code,
    };
    if let Request::Status {
        watch: true, pool, ..
    } = asked
    {
        return watch(&place, pool.as_deref());
    }
    let (method, path) = asked.sent();
    match (weir_admin::client::ask(&place, method, &path), asked) {
        (
            Ok(status),
            Request::Status {
                json: true,
                pool: None,
                ..
            },
        ) => print(&log_text::json_shown(&status)),
        (Ok(status), Request::Status { json, pool, .. }) => {
            match status_of(&status, pool.as_deref()) {
                Ok(status) if *json => print(&log_text::json_shown(&format!("{status:#}\n"))),
                Ok(status) => print(&weir_admin::status_text(&status)),
                Err(code) => code,
            }
        }
        (Ok(answer), Request::Cache(request)) => request.print(&answer),
        (Ok(answer), _) => print(&answer),
        (Err(weir_admin::client::Error::Silent { .. }), Request::Reload)
            if let Endpoint::Unix(socket) = &place
                && let Some(manager) = weir_admin::manager_of(socket) =>
        {
            reload_by_signal(&place, manager)
        }
        // Other codes than 0 and 1 are reserved for health checks of containers.
        (Err(error), Request::Healthy) => {
            console::say_error(error.to_string(), "");
            ExitCode::FAILURE
        }
        (Err(error), _) => {
            let (hint, code) = match &error {
                weir_admin::client::Error::Unreachable {
                    place: Endpoint::Tcp { .. },
                    ..
                } => (
                    "is weir running, with this address in admin_tcp or --admin?".to_owned(),
                    EX_UNAVAILABLE,
                ),
                weir_admin::client::Error::Unreachable { .. } => {
                    (running::hint(asked.command()), EX_UNAVAILABLE)
                }
                weir_admin::client::Error::Silent { seen, .. } => {
                    let stopped: Vec<String> = (seen.iter())
                        .filter(|process| process.stopped)
                        .map(|process| process.pid.to_string())
                        .collect();
                    let hint = match &stopped[..] {
                        [] => HANGS.to_owned(),
                        stopped => format!("continue it with `kill -CONT {}`", stopped.join(" ")),
                    };
                    console::say_error(error.to_string(), &hint);
                    return ExitCode::from(EX_SOFTWARE);
                }
                weir_admin::client::Error::Refused(_) if matches!(asked, Request::Reload) => {
                    (String::new(), EX_CONFIG)
                }
                weir_admin::client::Error::Refused(_)
                    if let Request::Status { pool, .. } = asked =>
                {
                    let file = pool.as_ref().filter(|pool| pool.ends_with(".toml"));
                    let hint = file.map(|file| {
                        format!("a configuration is given with -c: weir status -c {file}")
                    });
                    (hint.unwrap_or_default(), EX_USAGE)
                }
                _ => (String::new(), EX_SOFTWARE),
            };
            console::say_error(error.to_string(), &hint);
            ExitCode::from(code)
        }
    }
}

/// Makes the manager reload although its gateway hangs, and waits for the result from the next gateway.
fn reload_by_signal(place: &Endpoint, manager: u32) -> ExitCode {
    console::say_error(
        format!(
            "the gateway does not answer, so SIGHUP is sent to the manager (process {manager})"
        ),
        "",
    );
    let begun = Instant::now();
    if let Err(error) = process::hang_up(manager) {
        console::say_error(format!("cannot send SIGHUP: {error}"), "");
        return ExitCode::from(EX_SOFTWARE);
    }
    while begun.elapsed() < SIGNAL_LIMIT {
        let status = weir_admin::client::ask(place, Method::GET, "/status");
        let status = status
            .ok()
            .and_then(|status| serde_json::from_str::<serde_json::Value>(&status).ok());
        let last = status.as_ref().map(|status| &status["reloads"]["last"]);
        if let Some(last) = last
            && let Some(ago) = last["ago"].as_f64()
            && ago <= begun.elapsed().as_secs_f64()
        {
            let text = last["text"].as_str().unwrap_or_default();
            if last["done"] == true {
                return print(&format!("{}\n", log_text::shown(text)));
            }
            let error = weir_admin::client::Error::Refused(text.to_owned());
            console::say_error(error.to_string(), "");
            return ExitCode::from(EX_CONFIG);
        }
        std::thread::sleep(ASK_AGAIN);
    }
    let seconds = SIGNAL_LIMIT.as_secs();
    console::say_error(
        format!("no result of the reload after {seconds} s"),
        "see the error log for what the manager does",
    );
    ExitCode::from(EX_SOFTWARE)
}

fn status_path(pool: Option<&str>) -> String {
    match pool {
        None => "/status".to_owned(),
        Some(pool) => format!(
            "/status?pool={}",
            utf8_percent_encode(pool, NON_ALPHANUMERIC)
        ),
    }
}

/// The status, or the part about `pool`.
fn status_of(status: &str, pool: Option<&str>) -> Result<serde_json::Value, ExitCode> {
    let mut status: serde_json::Value = serde_json::from_str(status).map_err(|error| {
        console::say_error(format!("the status is not valid JSON: {error}"), "");
        ExitCode::from(EX_SOFTWARE)
    })?;
    if let Some(name) = pool {
        weir_admin::of_pool(&mut status, name).map_err(|known| {
            let hint = match known.is_empty() {
                true => "it has no pools".to_owned(),
                false => format!("its pools: {}", known.join(", ")),
            };
            console::say_error(format!("the running weir has no pool {name:?}"), &hint);
            ExitCode::from(EX_USAGE)
        })?;
    }
    Ok(status)
}

/// Shows the status repeatedly until it is interrupted.
fn watch(place: &Endpoint, pool: Option<&str>) -> ExitCode {
    loop {
        let size = match std::io::stdout().is_terminal() {
            true => Some(terminal::size(std::io::stdout()).unwrap_or(USUAL_SIZE)),
            false => None,
        };
        let text = match weir_admin::client::ask(place, Method::GET, &status_path(pool)) {
            Ok(status) => match (status_of(&status, pool), size) {
                (Ok(status), Some((columns, rows))) => {
                    weir_admin::status_on_screen(&status, columns, rows)
                }
                (Ok(status), None) => weir_admin::status_text(&status),
                (Err(code), _) => return code,
            },
            // The next try may succeed: the display continues during a reload or restart.
            Err(error) => format!("{error}\n"),
        };
        // Moves to the upper left corner and clears the rest (ECMA-48, CUP and ED).
        let frame = match size {
            Some(_) => format!("\x1b[H\x1b[2J{text}"),
            None => format!("{text}\n"),
        };
        let mut out = std::io::stdout();
        if out
            .write_all(frame.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

impl Admin {
    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Socket(_) => None,
        }
    }

    pub fn admin(&self) -> Option<SocketPath> {
        match self {
            Self::Socket(admin) => Some(admin.clone()),
            Self::Tcp(_) => None,
        }
    }
}

impl AdminArgs {
    /// The selected admin address; `None`: none was given, and there is no default one.
    pub fn place_if_any(&self) -> Result<Option<Endpoint>, ExitCode> {
        match (&self.admin, &self.config) {
            (None, None) => Ok(weir_machine::default_admin_socket().map(Endpoint::Unix)),
            _ => self.place().map(Some),
        }
    }

    /// The selected admin address.
    fn place(&self) -> Result<Endpoint, ExitCode> {
        let tcp = |address, token_file: Option<&Path>| {
            let token = token_file.map(token).transpose()?;
            Ok(Endpoint::Tcp { address, token })
        };
        let admin = match (&self.admin, &self.config) {
            (Some(Admin::Tcp(address)), _) => return tcp(*address, self.token_file.as_deref()),
            (Some(Admin::Socket(admin)), _) => admin.clone(),
            (None, Some(file)) => {
                let server = Source::of_file(file)?.server()?;
                match (server.admin, server.admin_tcp) {
                    (SocketPath::Off, Some(address)) => {
                        let token_file = self
                            .token_file
                            .as_ref()
                            .or(server.admin_token_file.as_ref());
                        return tcp(address, token_file.map(PathBuf::as_path));
                    }
                    (admin, _) => admin,
                }
            }
            (None, None) => SocketPath::Default,
        };
        let hint = "give its admin address: --admin unix:PATH, or --admin host:port";
        match admin {
            SocketPath::At(path) => Ok(Endpoint::Unix(path)),
            SocketPath::Off => Err(refuse_config(
                "this weir has no admin interface: the configuration has admin = \"off\"",
                hint,
            )),
            SocketPath::Default => weir_machine::default_admin_socket()
                .map(Endpoint::Unix)
                .ok_or_else(|| {
                    refuse_config(
                        "XDG_RUNTIME_DIR is not set, so the default admin address is not known",
                        hint,
                    )
                }),
        }
    }
}

/// Reads `unix:PATH`, `HOST:PORT` or `off`.
pub(super) fn admin_address(text: &str) -> Result<Admin, String> {
    match text {
        "off" => Ok(Admin::Socket(SocketPath::Off)),
        text => match parse_address(text)? {
            Address::Unix(path) => {
                let path = std::path::absolute(&path).unwrap_or(path);
                Ok(Admin::Socket(SocketPath::At(path)))
            }
            Address::Tcp(address) => Ok(Admin::Tcp(address)),
        },
    }
}

/// `KEY=N`, as the admin interface accepts it.
pub(super) fn limit(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("max_children" | "maxconn", number))
            if number.parse::<u32>().is_ok_and(|number| number > 0) =>
        {
            Ok(text.to_owned())
        }
        _ => Err("max_children=N or maxconn=N, with a whole number from 1".into()),
    }
}

/// Reads the token from a file.
fn token(file: &Path) -> Result<String, ExitCode> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(refuse_config(
            &format!("{}: {error}", file.display()),
            "--token-file takes the same file as that weir's admin_token_file",
        )),
    }
}

/// The advice if nothing is known about a weir that does not answer.
const HANGS: &str = "its gateway or manager hangs. Send a signal to the manager (\"weir serve\" in ps): SIGTERM stops it, \
     SIGHUP reloads";

/// Columns and rows of a terminal with unknown size.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// How long to wait for a gateway that hangs and its manager.
const SIGNAL_LIMIT: Duration = Duration::from_secs(120);

/// Pause between two requests.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Interval of `weir status --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
