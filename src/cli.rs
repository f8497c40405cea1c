//! Commands and flags: parses the command line to a [`Command`], runs it, and returns an exit code.
//!
//! Exit codes are those of sysexits(3): 0 success, 64 wrong command line, 69 no weir runs, 70 internal error, 78
//! wrong configuration.

mod admin;
mod advise;
mod alerts;
mod cache;
mod certificates;
mod folder;
mod hints;
mod init;
mod man;
#[cfg(test)]
mod reference;
mod running;
mod trust;
mod version;

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;
use weir_config::{parse_address, parse_host, to_toml};
use weir_manager::EX_USAGE;
use weir_observe::{console, error_log};
use weir_tools::{
    bench::{self, BenchArgs},
    command::{Source, default_config, print, refuse_config},
    doctor, watch,
};

use self::admin::{Admin, AdminArgs, Request, admin_address, ask, limit};
use self::alerts::AlertsArgs;
use self::cache::CacheAction;
use self::certificates::CertificatesArgs;
use self::init::InitArgs;
use self::man::ManArgs;
use self::trust::TrustArgs;

/// No weir is running (sysexits.h).
pub const EX_UNAVAILABLE: u8 = 69;

/// The command to run.
#[derive(Debug)]
pub enum Command {
    /// `weir serve`
    Serve(ServeArgs),
    /// `weir check`
    Check(CheckArgs),
    /// `weir doctor`
    Doctor(doctor::Args),
    /// `weir status`, `weir reload`, `weir upgrade`, `weir stop`, `weir pool`, `weir cache`
    Ask(Request, AdminArgs),
    /// `weir watch`
    Watch(watch::Flags, AdminArgs),
    /// `weir bench`
    Bench(Box<BenchArgs>),
    /// `weir trust`
    Trust(TrustArgs),
    /// `weir certificates`
    Certificates(CertificatesArgs),
    /// `weir alerts`
    Alerts(AlertsArgs),
    /// `weir init`
    Init(InitArgs),
    /// `weir man`
    Man(ManArgs),
    /// `weir completions`
    Completions(Shell),
}

/// Flags of `weir serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The folder to serve, without -c
    #[arg(value_name = "ROOT", conflicts_with = "config")]
    pub root: Option<PathBuf>,

    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address to serve ROOT on: host:port or unix:PATH (can be repeated) [default: 127.0.0.1:8080; with a public --domain :80]
    #[arg(short, long, value_name = "ADDR", value_parser = listen_address, conflicts_with = "config")]
    pub listen: Vec<String>,

    /// Name of the site, which gets a certificate by itself and is served over https (can be repeated)
    ///
    /// Public names get one from Let's Encrypt, and are served on ports 80 and 443. Names that no public authority signs (localhost,
    /// names that end in .localhost, .test, .local or .internal, private addresses) get one of weir's local CA: weir trust. Requests
    /// without TLS are redirected.
    #[arg(long, value_name = "NAME", value_parser = domain, conflicts_with = "config")]
    pub domain: Vec<String>,

    /// Address for https, with --domain: host:port (can be repeated) [default: 127.0.0.1:8443; for public names :443]
    #[arg(long, value_name = "ADDR", value_parser = listen_address, conflicts_with = "config", requires = "domain")]
    pub listen_https: Vec<String>,

    /// Number of PHP workers for ROOT [default: from cores and memory]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "config")]
    pub workers: Option<u32>,

    /// Print each step of each request as it happens
    ///
    /// Each line is written when the step happens. Steps in the queue are included, so you can watch requests pile up.
    #[arg(long)]
    pub trace: bool,

    /// Address of the admin interface: unix:PATH, or off [default: unix:RUNTIME_DIR/weir/admin.sock]; host:port adds TCP
    #[arg(long, value_name = "ADDR", value_parser = admin_address)]
    pub admin: Vec<Admin>,
}

/// Flags of `weir check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file [default: ./weir.toml, else /etc/weir/weir.toml]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print all values in force, defaults included
    #[arg(long)]
    pub print: bool,
}

/// Runs the command from the command line.
pub fn main() -> ExitCode {
    let origin = weir_manager::Origin::take();
    let typed: Vec<OsString> = env::args_os().collect();
    match &typed[..] {
        [name, arguments @ ..] if weir_fpm::is_name(name) => {
            return weir_fpm::main(name, arguments, origin);
        }
        [name, command, arguments @ ..] if command == "fpm" => {
            return weir_fpm::main(name, arguments, origin);
        }
        [_, asked]
            if ["--version", "-V", "version"]
                .iter()
                .any(|version| asked == version) =>
        {
            return print(&version::text());
        }
        _ => {}
    }
    match parse() {
        Ok(Command::Check(args)) => check(&args),
        Ok(Command::Doctor(args)) => doctor::main(&args),
        Ok(Command::Serve(args)) => serve(&args, origin),
        Ok(Command::Ask(asked, args)) => ask(&asked, &args),
        Ok(Command::Watch(flags, args)) => match args.place_if_any() {
            Ok(admin) => {
                let named = args.admin.is_some() || args.config.is_some();
                watch::main(&flags, admin.as_ref(), named)
            }
            Err(code) => code,
        },
        Ok(Command::Alerts(args)) => alerts::main(&args),
        Ok(Command::Man(args)) => man::main(&args),
        Ok(Command::Completions(shell)) => completions(shell),
        Ok(Command::Trust(args)) => trust::main(&args),
        Ok(Command::Certificates(args)) => certificates::main(&args),
        Ok(Command::Init(args)) => init::main(&args),
        Ok(Command::Bench(args)) if args.advise => advise::main(&args),
        Ok(Command::Bench(args)) => bench::main(&args),
        Err(code) => code,
    }
}

/// Parses the command line. Help, version and errors are printed here.
///
/// # Errors
/// The exit code, if there is nothing more to do.
pub fn parse() -> Result<Command, ExitCode> {
    parse_from(env::args_os()).map_err(|stop| stop.say())
}

/// Runs `weir serve`: serves until a signal stops it.
pub fn serve(args: &ServeArgs, origin: weir_manager::Origin) -> ExitCode {
    error_log::init("manager");
    let takes_over = origin.predecessor.is_some();
    let source = match args.source() {
        Ok(source) => source,
        Err(code) => return code,
    };
    let start = weir_manager::Start {
        name: source.name,
        text: source.text,
        environment: source.environment,
        file: source.file,
        admin: args.admin.iter().find_map(Admin::admin),
        admin_tcp: args.admin.iter().find_map(Admin::tcp),
        trace: args.trace,
        folder: source.folder,
        late_checks: args
            .config
            .as_ref()
            .map(|_| doctor::lines_of_sites as fn(&_) -> _),
        fpm_mode: None,
        origin,
    };
    match weir_manager::run(start) {
        Ok(()) => ExitCode::SUCCESS,
        // The previous weir reports this, or there is nothing to report.
        Err(failure) if takes_over || failure.message.is_empty() => ExitCode::from(failure.code),
        Err(failure) => {
            console::say(format_args!("weir: cannot start\n{failure}\n"));
            ExitCode::from(failure.code)
        }
    }
}

/// Runs `weir completions`.
fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Typed::command(), "weir", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Runs `weir check`: all problems go to stderr; `ok` and how PHP is loaded, or the effective configuration, to stdout.
pub fn check(args: &CheckArgs) -> ExitCode {
    let file = match &args.config {
        Some(file) => Ok(file.clone()),
        None => default_config(),
    };
    let config = file
        .and_then(|file| Source::of_file(&file))
        .and_then(|source| source.check_and_tell());
    match config {
        Ok((config, _)) if args.print => print(&to_toml(&config)),
        Ok((_, told)) => {
            let lines = told.iter().map(|line| format!("{line}\n"));
            print(&format!("ok\n{}", lines.collect::<String>()))
        }
        Err(code) => code,
    }
}

#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "Web server for FastCGI applications: static files, PHP workers and one queue",
    long_about = "Web server for FastCGI applications, PHP first. It accepts HTTP, serves static files, runs the \
                  workers and gives each request to a free one. When all workers are busy, requests wait in one \
                  queue, each with a deadline.",
    after_help = "To serve a folder: weir serve FOLDER",
    after_long_help = "To serve a folder: weir serve FOLDER\n\n\
                       Exit codes: 0 success, 64 wrong command line, 69 no weir is running there, \
                       70 internal error, 78 wrong configuration."
)]
struct Typed {
    #[command(subcommand)]
    command: TypedCommand,
}

#[derive(Debug, Subcommand)]
enum TypedCommand {
    /// Serve a folder or the sites of a weir.toml, in the foreground
    ///
    /// Without -c, weir serves the folder ROOT on 127.0.0.1:8080. If it has PHP scripts, weir's own PHP runs them.
    /// Signals: SIGTERM and SIGQUIT stop gracefully, SIGINT stops at once, SIGHUP reloads the configuration, SIGUSR1
    /// reopens the logs.
    Serve(ServeArgs),
    /// Write the weir.toml that fits a folder
    ///
    /// Recognises WordPress, Drupal, Joomla, Nextcloud, MediaWiki, DokuWiki, Matomo, Kanboard, phpMyAdmin, Roundcube, Laravel, Symfony
    /// and others, other PHP scripts, and folders with files alone. The file has a comment on what each line is for. It refuses what the
    /// application's .htaccess files deny; what of them it does not have is listed. Nothing else is changed, and an existing file is not
    /// replaced.
    Init(InitArgs),
    /// Print everything that is wrong with a configuration, or "ok"
    ///
    /// Prints all errors at once, each with its line and column and what to write instead. Also checks that the users,
    /// programs and folders exist on this machine. If there are several pools of weir's own PHP, it also says which share a load of PHP,
    /// and why others load it for themselves.
    Check(CheckArgs),
    /// Show the current state of pools, workers, queues and listeners
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Repeat every two seconds
        #[arg(long, conflicts_with = "json")]
        watch: bool,
        /// Only say whether weir can serve: exit code 0 or 1, for health checks
        ///
        /// As `/readyz` of the admin interface answers. If it cannot, the reason is printed.
        #[arg(long, conflicts_with_all = ["json", "watch", "pool", "only"])]
        healthy: bool,
        /// Show only this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// Show only this pool
        #[arg(value_name = "POOL", conflicts_with = "pool")]
        only: Option<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Make the running weir reload its configuration, and print what is wrong with it
    ///
    /// If the configuration is wrong or cannot start, nothing changes. Pools whose configuration, php.ini or code root
    /// changed get new workers. The old workers finish their requests first.
    Reload {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Replace the running weir by the program that is installed now, without a gap
    ///
    /// The running weir starts its program again, which takes over its sockets, keys of session tickets and pid file, and serves
    /// with workers of its own. The old one finishes its requests beside it. If the new one does not come up, the old one goes
    /// on, and this command says why. `weir reload` does the same if the program's file was replaced.
    Upgrade {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Stop the running weir; running requests may finish, for at most shutdown_timeout
    Stop {
        /// Stop at once, without waiting for running requests
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Prepare to stop: report not ready to load balancers, and close each connection after its
    /// answer
    ///
    /// /readyz answers 503 until `weir drain --off` or `weir stop`; a reload does not change this. Requests that still
    /// arrive are answered.
    Drain {
        /// End the drain: be ready again
        #[arg(long)]
        off: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Restart a pool of the running weir, or change its limits
    Pool {
        /// Name of the pool
        name: String,
        #[command(subcommand)]
        action: PoolAction,
    },
    /// Purge pages from the cache of the running weir, or ask what it has stored
    Cache {
        #[command(subcommand)]
        action: CacheAction,
    },
    /// Check limits, permissions, paths, timeouts and memory for problems
    ///
    /// Each finding says what is wrong, why it matters and how to fix it. Nothing is changed. Run it as root to check
    /// everything; as an ordinary user it lists what it could not check. If weir is running, its figures are used too.
    Doctor(doctor::Args),
    /// Show the kernel's accept queues of weir or any other program: length, limit, drops
    ///
    /// Shows accept queues as the kernel sees them. This also works for sockets that a program cannot see itself, such as
    /// PHP-FPM's unix socket. On a terminal it is a table that is updated every second; elsewhere, lines. It needs no
    /// special rights, but only root sees the names of all processes. It does not connect to anything. The counts of
    /// dropped TCP connections are for the whole network namespace.
    ///
    /// Exit codes: 0 success, 64 wrong command line, 69 nothing is listening there, 70 the kernel gives no information.
    Watch {
        #[command(flatten)]
        flags: watch::Flags,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Convert a PHP-FPM, HAProxy, nginx, Apache or Caddy configuration to weir.toml (not built yet)
    Import(Later),
    /// Send load to a URL and report the results
    ///
    /// -c sets the number of users; each waits for its answer and then asks again. -r sets the number of requests per
    /// second, independent of the answers; times count from the moment when a request should have been sent.
    Bench(Box<BenchArgs>),
    /// Print how to make browsers trust weir's local CA, which signs for localhost, *.test and private addresses
    Trust(TrustArgs),
    /// List certificates: their names, when they end, how and when each is renewed
    Certificates(CertificatesArgs),
    /// Print alert rules for Prometheus, or a dashboard for Grafana
    ///
    /// `weir alerts --prometheus > /etc/prometheus/weir.rules.yml`. Each alert says what to do. docs/alerts.md shows how Prometheus and Grafana
    /// are set up.
    Alerts(AlertsArgs),
    /// Print a manual page: of weir, of a command, or of weir.toml
    ///
    /// `weir man serve | man -l -` shows the page of weir serve.
    Man(ManArgs),
    /// Print the completions of a shell
    ///
    /// bash: `weir completions bash > /usr/share/bash-completion/completions/weir`; zsh: a file `_weir` in a folder of $fpath; fish:
    /// ~/.config/fish/completions/weir.fish.
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(value_name = "SHELL", hide_possible_values = true)]
        shell: Shell,
    },
    /// Run like PHP-FPM, with its command line and configuration: weir fpm -h
    #[command(disable_help_flag = true)]
    Fpm(Later),
}

#[derive(Debug, Subcommand)]
enum PoolAction {
    /// Start new workers with a fresh PHP; requests go to them when they are ready
    Restart {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Change limits until the next reload
    Set {
        /// max_children=N: maximum number of workers; maxconn=N: maximum number of requests that
        /// run at once
        #[arg(value_name = "KEY=N", required = true, value_parser = limit)]
        limits: Vec<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// The arguments of a command that is not implemented yet.
#[derive(Debug, Args)]
struct Later {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Why there is no command to run.
enum Stop {
    /// Help, version, or an error; with the command that was typed, if there is one.
    Clap(clap::Error, Option<String>),
    /// `weir import`, which is not implemented yet.
    NoImport,
}

impl Stop {
    fn code(&self) -> u8 {
        match self {
            Self::Clap(error, _) => match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                _ => EX_USAGE,
            },
            Self::NoImport => EX_USAGE,
        }
    }

    fn say(&self) -> ExitCode {
        match self {
            Self::Clap(error, command) => {
                if let Some((message, hint)) = hints::unknown_command(error) {
                    console::say_error(message, hint);
                } else {
                    // clap decides between stdout and stderr, and about colours.
                    let _ = error.print();
                    if let Some(hint) = hints::unknown_argument(error, command.as_deref()) {
                        console::say(format_args!("\n{hint}\n"));
                    }
                }
            }
            Self::NoImport => console::say_error(
                "`weir import` is not built yet",
                "weir init FOLDER writes a configuration for the application in a folder, and refuses what its .htaccess files deny; weir fpm \
                 reads a PHP-FPM configuration as it is (docs/php-fpm.md)",
            ),
        }
        ExitCode::from(self.code())
    }
}

fn parse_from(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Stop> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let typed = Typed::try_parse_from(&arguments).map_err(|error| {
        let commands = Typed::command();
        let typed = arguments.get(1).and_then(|command| command.to_str());
        let command = typed.filter(|typed| commands.find_subcommand(typed).is_some());
        Stop::Clap(error, command.map(str::to_owned))
    })?;
    Ok(match typed.command {
        TypedCommand::Serve(args) => {
            let listens: Vec<String> = [&args.listen[..], &args.listen_https].concat();
            if let Some(address) = repeated(&listens) {
                let message = format!("--listen {address} is given twice");
                let error = Typed::command().error(ErrorKind::ValueValidation, message);
                return Err(Stop::Clap(error, None));
            }
            Command::Serve(args)
        }
        TypedCommand::Check(args) => Command::Check(args),
        TypedCommand::Alerts(args) => Command::Alerts(args),
        TypedCommand::Man(args) => Command::Man(args),
        TypedCommand::Completions { shell } => Command::Completions(shell),
        TypedCommand::Doctor(args) => Command::Doctor(args),
        TypedCommand::Status {
            json,
            watch,
            healthy,
            pool,
            only,
            admin,
        } => {
            let pool = pool.or(only);
            let request = match healthy {
                true => Request::Healthy,
                false => Request::Status { json, watch, pool },
            };
            Command::Ask(request, admin)
        }
        TypedCommand::Upgrade { admin } => Command::Ask(Request::Upgrade, admin),
        TypedCommand::Reload { admin } => Command::Ask(Request::Reload, admin),
        TypedCommand::Stop { now, admin } => Command::Ask(Request::Stop { now }, admin),
        TypedCommand::Watch { flags, admin } => Command::Watch(flags, admin),
        TypedCommand::Drain { off, admin } => Command::Ask(Request::Drain { off }, admin),
        TypedCommand::Pool {
            name: pool,
            action: PoolAction::Restart { admin },
        } => Command::Ask(Request::RestartPool { pool }, admin),
        TypedCommand::Pool {
            name: pool,
            action: PoolAction::Set { limits, admin },
        } => Command::Ask(Request::SetPool { pool, limits }, admin),
        TypedCommand::Cache { action } => {
            let (request, admin) = action.split();
            Command::Ask(Request::Cache(request), admin)
        }
        TypedCommand::Import(_) => return Err(Stop::NoImport),
        TypedCommand::Bench(args) => Command::Bench(args),
        TypedCommand::Certificates(args) => Command::Certificates(args),
        TypedCommand::Init(args) => Command::Init(args),
        TypedCommand::Trust(args) => Command::Trust(args),
        // `fpm` as the first argument was handled before.
        TypedCommand::Fpm(_) => {
            let error = Typed::command().error(ErrorKind::InvalidSubcommand, "write: weir fpm");
            return Err(Stop::Clap(error, None));
        }
    })
}

fn listen_address(text: &str) -> Result<String, String> {
    parse_address(text).map(|_| text.to_owned())
}

/// A host of a site, as weir.toml has it.
fn domain(text: &str) -> Result<String, String> {
    let name = match text.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => text.to_ascii_lowercase(),
    };
    parse_host(&name).map(|()| name)
}

/// The first address that is given twice.
fn repeated(listen: &[String]) -> Option<&String> {
    let mut known = Vec::new();
    listen.iter().find(|text| {
        let address = parse_address(text).ok();
        let again = address.is_some() && known.contains(&address);
        known.push(address);
        again
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, u8> {
        parse_from(arguments.iter().map(OsString::from)).map_err(|stop| stop.code())
    }

    #[test]
    fn the_definition_is_sound() {
        Typed::command().debug_assert();
    }

    #[test]
    fn serve_takes_a_folder_or_a_file() {
        let Ok(Command::Serve(args)) = parse(&[
            "weir", "serve", "site", "-l", ":80", "-l", "unix:/a", "-w", "3", "--trace",
        ]) else {
            panic!("not understood");
        };
        assert_eq!(args.root.as_deref(), Some(Path::new("site")));
        assert_eq!(args.listen, [":80", "unix:/a"]);
        assert_eq!(args.workers, Some(3));
        assert!(args.trace);
        let Ok(Command::Serve(args)) = parse(&["weir", "serve", "-c", "weir.toml"]) else {
            panic!("not understood");
        };
        assert_eq!(args.config.as_deref(), Some(Path::new("weir.toml")));
    }

    #[test]
    fn a_wrong_command_line_is_64() {
        for wrong in [
            &["weir"][..],
            &["weir", "sreve"],
            &["weir", "serve", "a", "b"],
            &["weir", "serve", "-c", "x", "root"],
            &["weir", "serve", "-c", "x", "-w", "1"],
            &["weir", "serve", "-w", "0"],
            &["weir", "serve", "-l", "80"],
            &["weir", "serve", "-l", "127.0.0.1:1", "-l", "127.0.0.1:1"],
            &[
                "weir",
                "serve",
                "-l",
                ":1",
                "--domain",
                "a.test",
                "--listen-https",
                ":1",
            ],
            &["weir", "serve", "--listen-https", ":1"],
            &["weir", "serve", "-c", "x", "--domain", "localhost"],
            &["weir", "serve", "--domain", "https://shop.test/"],
            &["weir", "serve", "--domain", "shop.test:80"],
            &["weir", "check", "--what"],
            &["weir", "serve", "--admin", "127.0.0.1"],
            &["weir", "reload", "--admin", "unix:/a", "-c", "weir.toml"],
            &["weir", "pool", "shop"],
            &["weir", "drain", "--on"],
            &["weir", "alerts"],
            &["weir", "alerts", "--prometheus", "--grafana"],
            &["weir", "pool", "shop", "set"],
            &["weir", "pool", "shop", "set", "maxconn=0"],
            &["weir", "pool", "shop", "set", "pm=static"],
            &["weir", "status", "--json", "--watch"],
            &["weir", "cache"],
            &["weir", "cache", "purge"],
            &["weir", "cache", "purge", "--all", "--tag", "a"],
            &["weir", "cache", "purge", "--hard"],
            &["weir", "cache", "purge", "--all", "--site", "a"],
            &["weir", "cache", "purge", "--tag", "a", "--url", "http://a/"],
            &["weir", "cache", "purge", "--url", "/a"],
            &["weir", "cache", "why"],
            &["weir", "cache", "why", "shop.example/a"],
            &["weir", "cache", "why", "http://a/", "--cookie", "b"],
            &["weir", "bench"],
            &["weir", "bench", "http://127.0.0.1/", "-c", "1", "-r", "1"],
        ] {
            assert_eq!(parse(wrong).unwrap_err(), EX_USAGE, "{wrong:?}");
        }
    }

    #[test]
    fn a_running_weir_is_asked() {
        let Ok(Command::Ask(Request::Status { json: true, .. }, admin)) =
            parse(&["weir", "status", "--json", "--admin", "unix:/run/a.sock"])
        else {
            panic!("not understood");
        };
        let there = weir_config::SocketPath::At("/run/a.sock".into());
        assert_eq!(admin.admin, Some(Admin::Socket(there)));
        assert!(matches!(
            parse(&["weir", "drain", "--off", "--admin", "127.0.0.1:9180"]),
            Ok(Command::Ask(
                Request::Drain { off: true },
                AdminArgs {
                    admin: Some(Admin::Tcp(_)),
                    ..
                }
            ))
        ));
        assert!(matches!(
            parse(&["weir", "pool", "shop", "set", "max_children=3", "maxconn=2"]),
            Ok(Command::Ask(Request::SetPool { limits, .. }, _)) if limits.len() == 2
        ));
        assert!(matches!(
            parse(&["weir", "upgrade", "-c", "weir.toml"]),
            Ok(Command::Ask(
                Request::Upgrade,
                AdminArgs {
                    config: Some(_),
                    ..
                }
            ))
        ));
        assert!(matches!(
            parse(&["weir", "cache", "purge", "--tag", "a b", "--site", "shop", "--hard"]),
            Ok(Command::Ask(Request::Cache(request), _))
                if request.path == "/cache/purge?tag=a%20b&site=shop&hard=yes"
        ));
        assert!(matches!(
            parse(&["weir", "cache", "why", "http://a/?b", "--cookie", "c=d", "--header", "E: f"]),
            Ok(Command::Ask(Request::Cache(request), _))
                if request.path == "/cache/why?url=http%3A%2F%2Fa%2F%3Fb&cookie=c%3Dd&header=E%3A%20f"
        ));
        assert!(matches!(
            parse(&["weir", "stop", "--now"]),
            Ok(Command::Ask(Request::Stop { now: true }, _))
        ));
        assert!(matches!(
            parse(&["weir", "pool", "shop", "restart", "-c", "weir.toml"]),
            Ok(Command::Ask(Request::RestartPool { pool }, AdminArgs { config: Some(_), .. })) if pool == "shop"
        ));
    }

    #[test]
    fn help_and_version_are_fine() {
        for asked in ["-h", "--help", "--version", "help"] {
            assert_eq!(parse(&["weir", asked]).unwrap_err(), 0, "{asked}");
        }
    }
}
