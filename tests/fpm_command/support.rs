//! Runs php-fpm and weir called as php-fpm, and asks both.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};
use weir_test::{
    fcgi::{END_REQUEST, STDERR, STDOUT},
    front::{self, Params},
    process::{newest, wait},
    weir::program,
};

pub use weir_test::{LIMIT, goes_on_as_root, is_root, process::is_alive, wait_until, web_user};

/// The real program: `/usr/sbin/php-fpm8.2`.
pub static PHP_FPM: LazyLock<PathBuf> = LazyLock::new(|| newest("/usr/sbin", "php-fpm"));

/// `8.2`
pub fn version() -> String {
    let name = PHP_FPM.file_name().unwrap().to_string_lossy();
    name.strip_prefix("php-fpm").unwrap().to_owned()
}

/// A folder with weir under PHP-FPM's name.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The workers run as another user.
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let weir = program();
        let place = Self { folder };
        std::os::unix::fs::symlink(weir, place.weir()).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// weir as `php-fpm8.2`.
    pub fn weir(&self) -> PathBuf {
        self.path(&format!("php-fpm{}", version()))
    }

    /// Writes a file; `@/` stands for the folder.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let text = text.as_ref();
        match str::from_utf8(text) {
            Ok(text) => {
                let root = self.folder.path().to_str().unwrap();
                fs::write(&path, text.replace("@/", &format!("{root}/"))).unwrap();
            }
            Err(_) => fs::write(&path, text).unwrap(),
        }
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The output of both for `-tt` with this configuration.
    pub fn test_both(&self, text: impl AsRef<[u8]>) -> (Said, Said) {
        let file = self.write("php-fpm.conf", text);
        self.both(&["-tt", "-y", file.to_str().unwrap()])
    }

    /// Runs both with the same arguments.
    pub fn both(&self, arguments: &[&str]) -> (Said, Said) {
        (
            say(PHP_FPM.as_path(), arguments),
            say(&self.weir(), arguments),
        )
    }
}

/// The standard output and error of a program, without times, and its exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub code: Option<i32>,
    pub text: String,
}

pub fn say(program: &Path, arguments: &[&str]) -> Said {
    let output = Command::new(program)
        .args(arguments)
        .env("FPM_TEST", "from outside")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = [output.stdout, output.stderr].concat();
    Said {
        code: output.status.code(),
        text: without_times(&String::from_utf8_lossy(&text)),
    }
}

/// `[20-Nov-2026 15:13:20] NOTICE: x` → `NOTICE: x`
pub fn without_times(text: &str) -> String {
    let plain = |line: &str| match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        Some((time, rest)) if time.contains('-') && time.contains(':') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(plain).collect();
    lines.join("\n")
}

/// One of the two programs, running.
pub struct Running {
    /// The started process; a daemon is another process.
    child: Option<Child>,
    pub pid: u32,
    pub program: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Starts it with a configuration, in the foreground, and waits until it is ready.
    pub fn start(program: &Path, place: &Place, arguments: &[&str]) -> Self {
        Self::start_in(program, place, arguments, &[])
    }

    /// The same, with more variables in the environment.
    pub fn start_in(
        program: &Path,
        place: &Place,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self::launch(program, place, "error.log", |command| {
            command.args(arguments).envs(environment.iter().copied())
        })
    }

    /// The same, with the log in the file `log`.
    pub fn start_with(
        program: &Path,
        place: &Place,
        arguments: &[&str],
        stderr: Stdio,
        log: &str,
    ) -> Self {
        Self::launch(program, place, log, |command| {
            command.args(arguments).stderr(stderr)
        })
    }

    fn launch(
        program: &Path,
        place: &Place,
        log: &str,
        complete: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let log = place.path(log);
        let mut command = Command::new(program);
        command
            .args(["-F", "-y"])
            .arg(place.path("php-fpm.conf"))
            .env("FPM_TEST", "from outside")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = complete(&mut command).spawn().unwrap();
        let pid = child.id();
        let mut running = Self {
            child: Some(child),
            pid,
            program: program.to_owned(),
            log,
        };
        running.wait_for_start();
        running
    }

    /// Takes over a daemon.
    pub fn daemon(place: &Place, pid: u32) -> Self {
        Self {
            child: None,
            pid,
            program: PathBuf::new(),
            log: place.path("error.log"),
        }
    }

    fn wait_for_start(&mut self) {
        wait_until("PHP-FPM or weir starts", || {
            // The line about systemd is the last one of a start.
            if self.log().contains("NOTICE: systemd monitor ") || self.is_quietly_ready() {
                return true;
            }
            let child = self.child.as_mut().unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    stderr.read_to_string(&mut said).unwrap();
                }
                panic!("ended: {status}\n{said}\n{}", self.log());
            }
            false
        });
    }

    /// A log with errors only does not have that line: then check whether somebody listens.
    fn is_quietly_ready(&self) -> bool {
        let folder = self.log.parent().unwrap();
        let configured = fs::read_to_string(folder.join("php-fpm.conf")).unwrap_or_default();
        let is_quiet = ["error", "warning"].map(|level| format!("log_level = {level}\n"));
        is_quiet.iter().any(|line| configured.contains(line))
            && UnixStream::connect(folder.join("fpm.sock")).is_ok()
    }

    /// The error log without changes.
    pub fn raw_log(&self) -> Vec<u8> {
        fs::read(&self.log).unwrap_or_default()
    }

    /// The error log, without times.
    pub fn log(&self) -> String {
        without_times(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        self.wait_for_logs(text, 1);
    }

    #[track_caller]
    pub fn wait_for_logs(&self, text: &str, times: usize) {
        let until = Instant::now() + LIMIT;
        wait_until(text, || {
            let log = self.log();
            assert!(Instant::now() < until, "{text}:\n{log}");
            log.matches(text).count() >= times
        });
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let pid = self.pid;
        match self.child.take() {
            Some(mut child) => {
                let status = wait(&mut child, LIMIT);
                assert!(status.is_some(), "does not end:\n{}", self.log());
                status
            }
            None => {
                wait_until("the daemon ends", || !is_alive(pid));
                None
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.is_none() && !is_alive(self.pid) {
            return;
        }
        let pid = rustix::process::Pid::from_raw(self.pid as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(10);
        let mut ended = || match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
            None => !is_alive(self.pid),
        };
        while !ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// The processes whose parent is `pid`, with their command lines.
pub fn children(pid: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default();
        if rest.split_whitespace().nth(1) == Some(&pid.to_string()) {
            found.push((child, command_line(child)));
        }
    }
    found
}

pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    text.trim().to_owned()
}

/// The answer of a FastCGI server: its output and its error stream.
#[derive(Debug)]
pub struct Answer {
    pub out: String,
    pub err: String,
}

/// One GET over a new connection.
pub fn get(socket: &Path, script: &Path, uri: &str) -> Answer {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let script = script.to_str().unwrap();
    ask(
        stream,
        &[
            ("SCRIPT_FILENAME", script),
            ("SCRIPT_NAME", path),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_URI", uri),
            ("QUERY_STRING", query),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("REMOTE_ADDR", "192.0.2.1"),
        ],
        "",
    )
}

/// The records of a request with these parameters and this body (FastCGI 1.0, section 3.3).
pub fn encode(params: &[(&str, &str)], body: &str) -> Vec<u8> {
    front::request(1, false, &Params::of(params), body.as_bytes())
}

/// Makes such a request, and reads the answer.
pub fn ask(mut stream: impl Read + Write, params: &[(&str, &str)], body: &str) -> Answer {
    stream.write_all(&encode(params, body)).unwrap();
    answer(stream)
}

/// Reads an answer.
pub fn answer(mut stream: impl Read) -> Answer {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        let mut head = [0; 8];
        if stream.read_exact(&mut head).is_err() {
            break;
        }
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let mut content = vec![0; length + usize::from(head[6])];
        stream.read_exact(&mut content).unwrap();
        content.truncate(length);
        match head[1] {
            STDOUT => out.extend(content),
            STDERR => err.extend(content),
            END_REQUEST => break,
            _ => {}
        }
    }
    Answer {
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}
