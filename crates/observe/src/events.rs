//! Events of pools and workers in the two wordings of the log, weir's own and PHP-FPM's (`[log] error_format`). There
//! is one function per event, so that the texts that people search for are in one place.
//!
//! PHP-FPM's texts are those of 8.2 (sapi/fpm/fpm: fpm_children.c, fpm_process_ctl.c, fpm_request.c, fpm_events.c,
//! fpm_stdio.c) with its levels, so that scripts that search for PHP-FPM's lines find them. Events that PHP-FPM has
//! no text for are logged by `tell!` and the `log` crate's macros, in either format.

use std::{fmt, io, net::IpAddr, os::fd::RawFd, panic::Location, path::Path, time::Duration};

use log::Level;
use weir_config::{Address, fpm::in_c_words};
use weir_sys::{process::Exit, signal};

use crate::error_log::{self, About, Format, about_pool, about_program, about_worker};

/// The manager has started: its gateway accepts connections. `pid` is the manager's.
pub fn serving(pid: u32) {
    let version = weir_sys::version::version();
    tell(
        "serving",
        &About::default(),
        (
            Level::Info,
            format_args!("weir {version} serves (process {pid})"),
        ),
        (Level::Info, format_args!("fpm is running, pid {pid}")),
    );
    if error_log::format() == Format::Fpm {
        log::info!("ready to handle connections");
    }
}

/// How often weir notifies the service manager, ms; 0: never. PHP-FPM logs this after each start.
pub fn monitored(interval: i64) {
    match interval {
        0 => log::info!("systemd monitor disabled"),
        interval => log::info!("systemd monitor interval set to {interval}ms"),
    }
}

/// A reload begins.
pub fn reloading() {
    tell(
        "reloading",
        &About::default(),
        (Level::Debug, format_args!("reloading")),
        (Level::Info, format_args!("Reloading in progress ...")),
    );
}

/// A reload succeeded. `pid` is the manager's; `command` is its command line; `sockets` are those that it inherited.
pub fn reloaded(pid: u32, command: &[String], sockets: &[(Address, RawFd)]) {
    if error_log::format() == Format::Fpm {
        log::info!("reloading: {}", Command(command));
        for (address, fd) in sockets {
            log::info!("using inherited socket fd={fd}, \"{}\"", SocketKey(address));
        }
        return serving(pid);
    }
    log::info!("reloaded: the new configuration serves; running requests finish with the old one");
}

/// Logs were reopened; `access`: access logs are among them.
pub fn logs_reopened(access: bool) {
    if error_log::format() == Format::Weir {
        return log::info!("logs reopened");
    }
    log::info!("error log file re-opened");
    if access {
        log::info!("access log file re-opened");
    }
}

/// weir ends when running requests are finished, or after `limit`; zero: no limit.
pub fn finishing(limit: Duration) {
    let limit = match limit.as_secs() {
        0 => String::new(),
        seconds => format!(", for at most {seconds} s"),
    };
    tell(
        "finishing",
        &About::default(),
        (
            Level::Info,
            format_args!("stopping: running requests may finish{limit}"),
        ),
        (Level::Info, format_args!("Finishing ...")),
    );
}

/// weir ends at once.
pub fn terminating() {
    tell(
        "terminating",
        &About::default(),
        (Level::Info, format_args!("stopping at once")),
        (Level::Info, format_args!("Terminating ...")),
    );
}

/// weir has ended.
pub fn stopped() {
    tell(
        "stopped",
        &About::default(),
        (Level::Info, format_args!("stopped")),
        (Level::Info, format_args!("exiting, bye-bye!")),
    );
}

/// A pool's PHP is loaded: workers can be requested. PHP-FPM loads PHP once for all pools and logs nothing. `profile`: the
/// AppArmor profile that is enforced for it.
pub fn php_loaded(pool: &str, version: &str, profile: Option<&str>) {
    let limits = profile.map_or(String::new(), |profile| {
        format!(", and the AppArmor profile {profile} says what it may do")
    });
    tell(
        "php_loaded",
        &about_pool(pool),
        (Level::Info, format_args!("PHP {version} is loaded{limits}")),
        (
            Level::Debug,
            format_args!("[pool {pool}] PHP {version} is loaded{limits}"),
        ),
    );
}

/// A worker of a pool has started. `replaces`: it replaces one that ended; otherwise the pool grows.
pub fn worker_started(pool: &str, pid: u32, replaces: bool) {
    tell(
        "worker_started",
        &about_worker(pool, pid),
        (Level::Debug, format_args!("worker started")),
        (
            if replaces { Level::Info } else { Level::Debug },
            format_args!("[pool {pool}] child {pid} started"),
        ),
    );
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, or by a signal that did not come from weir.
    Unasked,
    /// weir killed it because of its request, for example one that ran too long or had an invalid answer.
    Killed,
    /// The worker has served its maximum number of requests, or uses too much memory.
    Spent,
    /// The worker was idle and is not needed any more.
    Idle,
    /// weir ended it: after its last request, for a newer generation, or because weir stops.
    Requested,
}

/// A worker has ended.
pub fn worker_exited(pool: &str, pid: u32, exit: Exit, lived: Duration, why: Ending) {
    let about = about_worker(pool, pid);
    let (level, what) = match why {
        Ending::Unasked if exit != Exit::Code(0) => (Level::Error, "died"),
        Ending::Unasked | Ending::Killed => (Level::Info, "ended"),
        Ending::Spent | Ending::Idle | Ending::Requested => (Level::Debug, "ended"),
    };
    let (bad, how) = in_fpm_words(exit);
    let bad = match why {
        Ending::Unasked | Ending::Killed | Ending::Spent => bad,
        // No request was lost.
        Ending::Requested | Ending::Idle => Level::Debug,
    };
    let after = format!("after {} seconds from start", Seconds(lived));
    let message = match why {
        Ending::Idle => {
            format!("[pool {pool}] child {pid} has been killed by the process management {after}")
        }
        _ => format!("[pool {pool}] child {pid} exited {how} {after}"),
    };
    let lived = lived.as_secs_f64();
    tell(
        "worker_exited",
        &about,
        (
            level,
            format_args!("worker {what}: {exit}, lived {lived:.1} s"),
        ),
        (bad, format_args!("{message}")),
    );
}

/// The kernel killed a worker because it was out of memory; this is the `count`th killed process of weir.
pub fn worker_without_memory(pool: &str, pid: u32, count: u64) {
    let about = about_worker(pool, pid);
    error_log::tell!(
        error,
        about,
        "the kernel killed the worker because memory ran out ({count} processes of weir so far): add \
         memory to the machine or its control group, or lower max_children, memory_limit or max_memory"
    );
}

/// All workers that a pool may have are busy; `on_demand`: the pool has `pm = "ondemand"`. To be called once each
/// time the limit is reached.
pub fn pool_reached_max_children(pool: &str, max_children: usize, on_demand: bool) {
    // PHP-FPM has different texts for its two kinds of pools.
    let key = match on_demand {
        true => "max_children",
        false => "pm.max_children",
    };
    tell(
        "pool_reached_max_children",
        &about_pool(pool),
        (
            Level::Warn,
            format_args!(
                "all {max_children} workers (max_children) are busy and \
                 requests wait; raise max_children if the machine has enough memory and cores"
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "[pool {pool}] server reached {key} setting ({max_children}), consider raising it"
            ),
        ),
    );
}

/// A pool starts many workers at once, and still has too few idle ones.
pub fn pool_seems_busy(pool: &str, starting: usize, idle: usize, total: usize) {
    tell(
        "pool_seems_busy",
        &about_pool(pool),
        (
            Level::Info,
            format_args!(
                "the pool grows quickly: {starting} workers are starting, {idle} of \
                 {total} are idle; raise start_servers or min_spare_servers to avoid waiting"
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "[pool {pool}] seems busy (you may need to increase pm.start_servers, or \
                 pm.min/max_spare_servers), spawning {starting} children, there are {idle} idle, \
                 and {total} total children"
            ),
        ),
    );
}

/// All pools together have as many workers as `process_max` allows. To be called once each time.
pub fn process_max_reached(process_max: usize) {
    tell(
        "process_max_reached",
        &About::default(),
        (
            Level::Warn,
            format_args!(
                "all pools together have {process_max} workers, the limit of \
                 [server] process_max: no more are started"
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "The maximum number of processes has been reached. Please review your \
                 configuration and consider raising 'process.max'"
            ),
        ),
    );
}

/// A pool is restarted because this many workers crashed (`SIGSEGV`, `SIGBUS`) within the interval.
pub fn emergency_restart(pool: &str, threshold: usize, interval: Duration) {
    let seconds = interval.as_secs();
    tell(
        "emergency_restart",
        &about_pool(pool),
        (
            Level::Warn,
            format_args!(
                "{threshold} workers crashed within {seconds} s (emergency_restart_threshold): \
                 the pool is restarted"
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "failed processes threshold ({threshold} in {seconds} sec) is reached, \
                 initiating reload"
            ),
        ),
    );
}

/// The request of a worker, as events report it.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// The worker's process.
    pub pid: u32,
    /// SCRIPT_FILENAME.
    pub script: &'a str,
    /// REQUEST_METHOD.
    pub method: &'a str,
    /// REQUEST_URI with its query, as received.
    pub uri: &'a str,
    /// How long it has run.
    pub elapsed: Duration,
    /// Number of the request, if it has one.
    pub request: Option<u64>,
}

/// A request runs longer than `request_slowlog_timeout`: its position goes to the slow log.
pub fn request_slow(running: &Running<'_>) {
    let told = InFpmWords(running);
    let seconds = running.elapsed.as_secs_f64();
    tell(
        "request_slow",
        &running.about(),
        (
            Level::Warn,
            format_args!(
                "slow: {} {} has been running for {seconds:.1} s in {}; its stack is in the slow log",
                running.method, running.uri, running.script
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "{told} executing too slow ({} sec), logging",
                Seconds(running.elapsed)
            ),
        ),
    );
}

/// A request ran longer than `request_terminate_timeout`: its worker is ended.
pub fn request_terminated(running: &Running<'_>) {
    let told = InFpmWords(running);
    let seconds = running.elapsed.as_secs_f64();
    tell(
        "request_terminated",
        &running.about(),
        (
            Level::Error,
            format_args!(
                "{} {} ran for {seconds:.1} s in {}, longer than request_terminate_timeout: \
                 the worker is killed",
                running.method, running.uri, running.script
            ),
        ),
        (
            Level::Warn,
            format_args!(
                "{told} execution timed out ({} sec), terminating",
                Seconds(running.elapsed)
            ),
        ),
    );
}

/// A worker is about to write the position of its script to the slow log.
pub fn tracing(pool: &str, pid: u32) {
    if error_log::format() == Format::Fpm {
        log::info!("child {pid} stopped for tracing");
    }
    tell(
        "tracing",
        &about_worker(pool, pid),
        (Level::Debug, format_args!("asked where its script is")),
        (Level::Info, format_args!("about to trace {pid}")),
    );
}

/// The entry of a worker is in the slow log.
pub fn traced(pool: &str, pid: u32) {
    tell(
        "traced",
        &about_worker(pool, pid),
        (Level::Debug, format_args!("told where its script is")),
        (Level::Info, format_args!("finished trace of {pid}")),
    );
}

/// The stream to which a worker wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// A worker wrote a line to its standard output or error. `decorate`: the log adds time, pool and worker
/// (`decorate_output`); otherwise it has only the line.
pub fn worker_said(pool: &str, pid: u32, stream: Stream, line: &[u8], decorate: bool) {
    if !decorate {
        return error_log::write_plain(line);
    }
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let text = error_log::Lossless(line);
    tell(
        "worker_said",
        &about_worker(pool, pid),
        (Level::Warn, format_args!("said: {text}")),
        (
            Level::Warn,
            format_args!("[pool {pool}] child {pid} said into {stream}: \"{text}\""),
        ),
    );
}

/// A program wrote a line to its standard output or error, as [`worker_said`].
pub fn program_said(program: &str, pid: u32, stream: Stream, line: &[u8], decorate: bool) {
    if !decorate {
        return error_log::write_plain(line);
    }
    let level = match stream {
        Stream::Stdout => Level::Info,
        Stream::Stderr => Level::Warn,
    };
    let text = error_log::Lossless(line);
    let about = about_program(program, Some(pid));
    error_log::write(level, &about, format_args!("said: {text}"));
}

/// The log of the workers of a listener's pool.
#[derive(Debug, Clone, Copy)]
pub struct WorkersLog<'p> {
    pub pool: &'p str,
    /// What they say is in the error log (`output_log` is not written).
    pub caught: bool,
    /// `decorate_output`
    pub decorated: bool,
}

/// A FastCGI client that is not in `allowed_clients` was rejected. In PHP-FPM its worker says so (`workers`), on its standard
/// error.
pub fn client_turned_away(listener: &str, client: IpAddr, workers: Option<WorkersLog<'_>>) {
    let dropped = format!("Connection disallowed: IP address '{client}' has been dropped.");
    if error_log::format() == Format::Fpm
        && let Some(log) = workers
    {
        let line = format!("ERROR: {dropped}");
        if log.caught {
            let pid = std::process::id();
            worker_said(
                log.pool,
                pid,
                Stream::Stderr,
                line.as_bytes(),
                log.decorated,
            );
        }
        return;
    }
    tell(
        "client_turned_away",
        &About::default(),
        (
            Level::Error,
            format_args!(
                "connection from {client} closed: it is not in allowed_clients of [listen.{listener}]"
            ),
        ),
        (Level::Error, format_args!("{dropped}")),
    );
}

/// Somebody who is not `trusted` has connected to a listener with `proxy_protocol`.
pub fn untrusted_proxy(listener: &str, peer: Option<IpAddr>) {
    match peer {
        Some(peer) => log::error!(
            "connection from {peer} closed: [listen.{listener}] has proxy_protocol, and {peer} is not in trusted of [server]"
        ),
        None => log::error!(
            "connection over a unix socket closed: [listen.{listener}] has proxy_protocol, and \"unix:\" is not in trusted of \
             [server]"
        ),
    }
}

/// PHP-FPM's text for an address that cannot be listened on.
pub fn cannot_listen(address: &Address, error: &io::Error) -> String {
    let shown = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    format!(
        "unable to bind listening socket for address '{shown}': {}",
        in_c_words(error)
    )
}

/// PHP-FPM's text for a socket that another program listens on.
pub fn listened_on_by_others(path: &Path) -> String {
    let path = path.display();
    format!("Another FPM instance seems to already listen on {path}")
}

/// PHP-FPM's text if the owner of a socket cannot be set.
pub fn cannot_give_away(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "failed to chown() the socket '{path}': {}",
        in_c_words(error)
    )
}

/// PHP-FPM's text for a pid file that cannot be written.
pub fn cannot_write_pid_file(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "Unable to create the PID file ({path}).: {}",
        in_c_words(error)
    )
}

/// PHP-FPM's text for a socket whose access control list cannot be set.
pub fn cannot_list(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "failed to write the ACL of the socket '{path}': {}",
        in_c_words(error)
    )
}

impl Running<'_> {
    fn about(&self) -> About<'_> {
        About {
            request: self.request,
            ..about_worker(self.pool, self.pid)
        }
    }
}

/// `execvp("php-fpm", {"php-fpm", "-F"})`
struct Command<'a>(&'a [String]);

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.0.first().map_or("", String::as_str);
        write!(f, "execvp(\"{program}\", {{\"{program}\"")?;
        for argument in self.0.iter().skip(1).take(SHOWN_ARGUMENTS) {
            write!(f, ", \"{argument}\"")?;
        }
        f.write_str("})")
    }
}

/// PHP-FPM shows this many arguments.
const SHOWN_ARGUMENTS: usize = 10;

/// `/run/php.sock`, `127.0.0.1:9000`, `::1:9000`
struct SocketKey<'a>(&'a Address);

impl fmt::Display for SocketKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Address::Tcp(address) => write!(f, "{}:{}", address.ip(), address.port()),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// `[pool www] child 7, script '/srv/a.php' (request: "GET /a.php?x=1")`
struct InFpmWords<'a>(&'a Running<'a>);

impl fmt::Display for InFpmWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running {
            pool,
            pid,
            script,
            method,
            uri,
            ..
        } = self.0;
        write!(
            f,
            "[pool {pool}] child {pid}, script '{script}' (request: \"{method} {uri}\")"
        )
    }
}

/// `5.104312`
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0.as_secs(), self.0.subsec_micros())
    }
}

/// How a worker ended, and PHP-FPM's level for that.
fn in_fpm_words(exit: Exit) -> (Level, String) {
    /// SIGQUIT of Linux: PHP-FPM ends its workers with it, so no request was lost.
    const QUIT: i32 = 3;
    match exit {
        Exit::Code(0) => (Level::Info, "with code 0".into()),
        Exit::Code(code) => (Level::Warn, format!("with code {code}")),
        Exit::Signal(number) => {
            let level = match number {
                QUIT => Level::Info,
                _ => Level::Warn,
            };
            let name = signal::name(number);
            (level, format!("on signal {number} ({name})"))
        }
    }
}

/// Logs an event in the wording of the log.
#[track_caller]
fn tell(
    event: &'static str,
    about: &About<'_>,
    weir: (Level, fmt::Arguments<'_>),
    fpm: (Level, fmt::Arguments<'_>),
) {
    let line = Location::caller().line();
    let (about, (level, message)) = match error_log::format() {
        Format::Weir => (about, weir),
        Format::Fpm => (&About::default(), fpm),
    };
    error_log::write_event(event, line, level, about, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_as_php_fpm_tells_it() {
        let running = Running {
            pool: "www",
            pid: 7,
            script: "/srv/a.php",
            method: "GET",
            uri: "/a.php?x=1",
            elapsed: Duration::from_micros(5_104_312),
            request: None,
        };
        assert_eq!(
            InFpmWords(&running).to_string(),
            "[pool www] child 7, script '/srv/a.php' (request: \"GET /a.php?x=1\")"
        );
        assert_eq!(Seconds(running.elapsed).to_string(), "5.104312");
    }

    #[test]
    fn ends_are_as_bad_as_php_fpm_finds_them() {
        for (exit, level, words) in [
            (Exit::Code(0), Level::Info, "with code 0"),
            (Exit::Code(255), Level::Warn, "with code 255"),
            (Exit::Signal(11), Level::Warn, "on signal 11 (SIGSEGV)"),
            (Exit::Signal(3), Level::Info, "on signal 3 (SIGQUIT)"),
        ] {
            assert_eq!(in_fpm_words(exit), (level, words.to_owned()));
        }
    }
}
