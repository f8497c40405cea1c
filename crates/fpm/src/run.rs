//! Starts weir instead of PHP-FPM: in the background if requested, and then like `weir serve`.

use std::{
    cell::Cell,
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::fd::AsFd,
    path::Path,
    process::ExitCode,
    sync::Mutex,
};

use weir_config::{
    Environment,
    fpm::{self, Diagnostics, Fpm, Level, Message, Options, Translated},
};
use weir_manager::{EX_CONFIG, EX_SOFTWARE, FpmMode, Origin};
use weir_observe::error_log;
use weir_sys::{
    daemon::{self, Fork},
    limits,
};

use super::{
    NOT_STARTED,
    arguments::Arguments,
    php,
    printer::{Printer, uses_log},
    this_machine::ThisMachine,
};

/// Starts, and serves until a signal stops it.
pub(super) fn run(options: &Options, arguments: &Arguments, mut origin: Origin) -> ExitCode {
    let mut printer = Printer::new();
    let mut diagnostics = Diagnostics::default();
    let read = read(options, arguments, &mut diagnostics);
    let user = read.as_ref().ok().and_then(|(fpm, _)| fpm.pools.first());
    // PHP-FPM starts PHP before it reads anything else.
    if let Err(code) = php::try_start(options.php, arguments, user) {
        return code;
    }
    printer.tell(&diagnostics, arguments.force_stderr);
    let (fpm, translated) = match read {
        Ok(read) => read,
        Err(unfit) => {
            printer.error(NOT_STARTED);
            return ExitCode::from(match unfit {
                // PHP-FPM is already in the background at this point, so its starter learns only that it failed.
                Unfit::Start { daemonize: true } => EX_SOFTWARE,
                Unfit::Start { daemonize: false } | Unfit::Configuration => EX_CONFIG,
            });
        }
    };
    origin.program.is_daemon = fpm.global.daemonize;
    // A process that takes over was started by the daemon.
    let starter = match fpm.global.daemonize && origin.predecessor.is_none() {
        false => None,
        true => match leave() {
            Ok(Left::Starter(code)) => return code,
            Ok(Left::Daemon(starter)) => Some(starter),
            Err(error) => {
                printer.error(format!("failed to daemonize: {error}"));
                printer.error(NOT_STARTED);
                return ExitCode::from(EX_CONFIG);
            }
        },
    };
    if let Err(error) = set_standard(&fpm, &printer) {
        printer.error(format!("failed to init stdio: {error}"));
        return fail(printer, starter);
    }
    let title = format!("php-fpm: master process ({})", fpm.file);
    // An error affects only process lists.
    let _ = daemon::set_title(&title);
    let _ = fs::write("/proc/self/comm", &arguments.process_name);
    error_log::init("manager");
    serve(
        options,
        arguments,
        (fpm, translated),
        (printer, starter, origin),
    )
}

/// Why the start is not possible.
enum Unfit {
    /// The configuration is invalid.
    Configuration,
    /// It is valid, but cannot work on this machine.
    Start { daemonize: bool },
}

/// Reads the configuration, at the start and at each reload.
fn read(
    options: &Options,
    arguments: &Arguments,
    diagnostics: &mut Diagnostics,
) -> Result<(Fpm, Translated), Unfit> {
    let fpm = fpm::read(options, &ThisMachine, diagnostics)
        .map_err(|fpm::Refused| Unfit::Configuration)?;
    let unfit = Unfit::Start {
        daemonize: fpm.global.daemonize,
    };
    let files = fpm.global.rlimit_files;
    if u64::try_from(files).is_ok_and(|files| !limits::may_set_open_files(files)) {
        let text = format!(
            "failed to set rlimit_files for this pool. Please check your system limits or decrease rlimit_files. \
             setrlimit(RLIMIT_NOFILE, {files}): Operation not permitted (1)"
        );
        diagnostics.messages.push(Message::new(Level::Error, text));
        return Err(Unfit::Configuration);
    }
    if fpm::start(&fpm, options, &ThisMachine, diagnostics).is_err() {
        return Err(unfit);
    }
    let start = fpm::Start {
        log_to_stderr: !uses_log(fpm.global.daemonize, arguments.force_stderr),
        php_ini: arguments
            .php_ini
            .as_deref()
            .map(|path| absolute(path).to_string_lossy().into_owned()),
        no_php_ini: arguments.no_php_ini,
        defines: arguments.settings(),
        listens: true,
    };
    match fpm::translate(&fpm, options, &start, &ThisMachine) {
        Ok(translated) => {
            diagnostics.messages.extend(translated.said.iter().cloned());
            Ok((fpm, translated))
        }
        Err(messages) => {
            diagnostics.messages.extend(messages);
            Err(unfit)
        }
    }
}

/// Problems that would prevent weir's start, though PHP-FPM accepts the configuration, so that a successful test is
/// reliable. Problems that PHP-FPM itself finds only at the start are found only then here, too.
pub(super) fn look_ahead(fpm: &Fpm, options: &Options) -> Vec<Message> {
    let start = fpm::Start::default();
    if fpm::start(fpm, options, &ThisMachine, &mut Diagnostics::default()).is_err() {
        return Vec::new();
    }
    if let Err(message) = fpm::refuse(fpm, &ThisMachine) {
        return vec![message];
    }
    let Ok(translated) = fpm::translate(fpm, options, &start, &ThisMachine) else {
        return Vec::new();
    };
    let (major, minor) = options.php;
    if let Err((cause, mend)) = weir_machine::php::find(Some(&format!("{major}.{minor}"))) {
        return vec![Message::new(Level::Error, format!("{cause}; {mend}"))];
    }
    let environment = Environment::of_this_machine(Path::new("/"));
    match weir_config::read(&made_of(fpm), &translated.text, &environment) {
        Ok(_) => Vec::new(),
        Err(wrong) => causes(&wrong.to_string())
            .map(|cause| Message::new(Level::Error, cause))
            .collect(),
    }
}

/// The name of the translation in messages.
fn made_of(fpm: &Fpm) -> String {
    format!("weir.toml made of {}", fpm.file)
}

/// The lines with causes, each once, though it may concern many pools. Lines with fixes are indented, and are about keys that the user has
/// not written.
fn causes(message: &str) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    let is_cause = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let causes = message.lines().filter(is_cause);
    causes.filter(move |cause| seen.insert(*cause))
}

fn serve(
    options: &Options,
    arguments: &Arguments,
    (fpm, translated): (Fpm, Translated),
    (printer, starter, origin): (Printer, Option<PipeWriter>, Origin),
) -> ExitCode {
    let takes_over = origin.predecessor.is_some();
    let printer = Mutex::new((Some(printer), starter));
    let monitor = Cell::new(monitor_interval(&fpm));
    let reread = {
        let monitor = &monitor;
        let (options, arguments) = (options.clone(), arguments.clone());
        // Whether there is a terminal was determined at the start: it may be gone by now.
        let log_to_stderr = !uses_log(fpm.global.daemonize, arguments.force_stderr);
        let arguments = Arguments {
            force_stderr: log_to_stderr,
            ..arguments
        };
        move || {
            let (fpm, translated) = read_again(&options, &arguments)?;
            monitor.set(monitor_interval(&fpm));
            Ok(translated.text)
        }
    };
    let ready = || {
        let mut printer = printer
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Reports to the process that started us that weir runs. That process then ends and frees the terminal.
        if let Some(mut starter) = printer.1.take() {
            let _ = starter.write_all(&[READY]);
        }
        printer.0 = None;
    };
    let start = weir_manager::Start {
        name: made_of(&fpm),
        text: translated.text,
        environment: Environment::of_this_machine(Path::new("/")),
        file: None,
        // PHP-FPM has no admin interface; it is controlled by signals.
        admin: Some(weir_config::SocketPath::Off),
        admin_tcp: None,
        trace: false,
        folder: None,
        late_checks: None,
        fpm_mode: Some(FpmMode {
            reread: &reread,
            command: &arguments.command,
            monitor: &monitor,
            ready: &ready,
        }),
        origin,
    };
    let ended = weir_manager::run(start);
    let (printer_left, starter) = printer
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if takes_over || failure.message.is_empty() => ExitCode::from(failure.code),
        Err(failure) => {
            let mut printer = printer_left.unwrap_or_else(Printer::new);
            for cause in causes(&failure.message) {
                printer.error(cause);
            }
            match failure.code {
                // For PHP-FPM, a port that is in use is a configuration error.
                EX_CONFIG => fail(printer, starter),
                code => {
                    fail(printer, starter);
                    ExitCode::from(code)
                }
            }
        }
    }
}

/// A reload: messages go to the log.
fn read_again(options: &Options, arguments: &Arguments) -> Result<(Fpm, Translated), String> {
    let mut diagnostics = Diagnostics::default();
    let read = read(options, arguments, &mut diagnostics);
    let tell = |message: &Message| {
        let text = message.text.trim_end();
        match message.level {
            Some(Level::Debug) => log::debug!("{text}"),
            Some(Level::Notice) => log::info!("{text}"),
            Some(Level::Warning) => log::warn!("{text}"),
            Some(Level::Error | Level::Alert) | None => log::error!("{text}"),
        }
    };
    diagnostics.messages.iter().for_each(tell);
    read.map_err(|_| String::new())
}

/// How often systemd is notified, ms.
fn monitor_interval(fpm: &Fpm) -> i64 {
    match fpm.global.systemd_watchdog {
        Some(millis) => i64::from(millis),
        None => i64::from(fpm.global.systemd_interval.max(0)) * 1000,
    }
}

fn fail(mut printer: Printer, starter: Option<PipeWriter>) -> ExitCode {
    printer.error(NOT_STARTED);
    if let Some(mut starter) = starter {
        let _ = starter.write_all(&[FAILED]);
    }
    ExitCode::from(EX_CONFIG)
}

/// Which process continues after [`leave`].
enum Left {
    /// The started process: it knows how the start went, and ends with this code.
    Starter(ExitCode),
    /// The daemon: it reports how the start goes.
    Daemon(PipeWriter),
}

/// Goes into the background. The started process stays until the daemon is ready or has failed.
fn leave() -> io::Result<Left> {
    let (told, tell) = io::pipe()?;
    match daemon::fork()? {
        Fork::Parent(_) => {
            drop(tell);
            Ok(Left::Starter(await_daemon(told)))
        }
        Fork::Child => {
            drop(told);
            daemon::begin_session()?;
            Ok(Left::Daemon(tell))
        }
    }
}

fn await_daemon(mut told: PipeReader) -> ExitCode {
    let mut word = [0];
    // If the daemon dies, the pipe is closed. The daemon has printed the reason on the shared standard error.
    match told.read_exact(&mut word) {
        Ok(()) if word == [READY] => ExitCode::SUCCESS,
        _ => ExitCode::from(EX_SOFTWARE),
    }
}

/// Connects input and output, and for a daemon also standard error, to /dev/null: messages go to the log.
fn set_standard(fpm: &Fpm, printer: &Printer) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    daemon::set_standard(0, null.as_fd())?;
    daemon::set_standard(1, null.as_fd())?;
    if fpm.global.daemonize {
        daemon::set_standard(2, printer.log().unwrap_or(&null).as_fd())?;
    }
    Ok(())
}

/// A path on the command line is relative to the current folder.
fn absolute(path: &OsStr) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// The daemon's report to its starter: success.
const READY: u8 = 1;

/// The daemon's report to its starter: failure.
const FAILED: u8 = 0;
