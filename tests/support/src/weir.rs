//! A real weir: a folder with a weir.toml and a document root, the binary, and its logs.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, descendants, is_alive, signal, table, wait};
use crate::{Client, GROUP, LIMIT, Response, USER, free_address, is_root, wait_for, wait_until};

/// What is prepared before weir starts. It may be started more than once: the folder and the address stay the same.
#[derive(Clone)]
pub struct Setup {
    folder: Arc<TempDir>,
    address: SocketAddr,
    server: String,
    listen: String,
    site: String,
    pool: String,
    log: String,
    more: String,
    wrapper: Vec<String>,
    program: PathBuf,
    traced: bool,
    stderr_is_read: bool,
}

/// A running weir. It is stopped at the end of the test. The test fails if weir does not stop or leaves anything
/// behind.
pub struct Weir {
    child: Child,
    stopped: bool,
    folder: Arc<TempDir>,
    address: SocketAddr,
    /// The lines of stderr that [`Weir::log_line`] has returned, by their number.
    returned: Mutex<Vec<usize>>,
    /// A pipe that nobody reads.
    _unread: Option<ChildStderr>,
}

impl Setup {
    /// A folder with an empty document root, and a site for it on its own address.
    pub fn new() -> Setup {
        let folder = TempDir::with_prefix("weir-test-").expect("a temporary folder");
        for name in ["root", "log", "spool"] {
            fs::create_dir(folder.path().join(name)).expect("mkdir");
        }
        // weir's gateway and workers may run as other users than the tests.
        mode(folder.path(), 0o755);
        mode(&folder.path().join("spool"), 0o1777);
        Setup {
            folder: folder.into(),
            address: free_address(),
            server: String::new(),
            listen: String::new(),
            site: String::new(),
            pool: String::new(),
            log: "format = \"json\"\n".to_owned(),
            more: String::new(),
            wrapper: Vec::new(),
            program: program().into(),
            traced: false,
            stderr_is_read: true,
        }
    }

    /// The test's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The document root.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Where weir will listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes a file below the document root, and creates its folders.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Setup {
        write(&self.root().join(path), content.as_ref());
        self
    }

    /// Lines of `[server]`. In this and the following tables, a key that is set again replaces the earlier value.
    pub fn server(mut self, lines: &str) -> Setup {
        set(&mut self.server, lines);
        self
    }

    /// Lines of the listener.
    pub fn listen(mut self, lines: &str) -> Setup {
        set(&mut self.listen, lines);
        self
    }

    /// Lines of the site. Its tables (`[[site.main.route]]`) belong in [`Setup::more`].
    pub fn site(mut self, lines: &str) -> Setup {
        set(&mut self.site, lines);
        self
    }

    /// Lines of the pool in which the site's scripts run.
    pub fn pool(mut self, lines: &str) -> Setup {
        set(&mut self.pool, lines);
        self
    }

    /// Lines of `[log]`, instead of the JSON format.
    pub fn log(mut self, lines: &str) -> Setup {
        self.log = ended(lines);
        self
    }

    /// An admin interface in the test's folder, which [`Weir::status`], [`Weir::admin_get`] and [`Weir::command`] ask.
    pub fn admin(self) -> Setup {
        let line = format!("admin = \"unix:{}/admin.sock\"", self.folder().display());
        self.server(&line)
    }

    /// Whole tables.
    pub fn more(mut self, text: &str) -> Setup {
        self.more.push_str(&ended(text));
        self
    }

    /// Another program than the weir under test.
    pub fn program(mut self, path: &Path) -> Setup {
        self.program = path.to_owned();
        self
    }

    /// weir writes stderr to a pipe that nobody reads, and not to the test's error log.
    pub fn stderr_unread(mut self) -> Setup {
        self.stderr_is_read = false;
        self
    }

    /// A command that runs weir. Its words come before weir's own.
    pub fn under(mut self, words: &[&str]) -> Setup {
        self.wrapper = words.iter().map(|word| word.to_string()).collect();
        self
    }

    /// Writes the steps of each request to stderr too, and shows them if the test fails.
    pub fn traced(mut self) -> Setup {
        self.traced = true;
        self
    }

    /// The resulting weir.toml. It has `access` and `error` unless `[log]` sets them itself.
    pub fn toml(&self) -> String {
        let folder = self.folder.path().display();
        let mut server = self.server.clone();
        if is_root() && !server.contains("user =") {
            server.push_str(&format!("user = \"{USER}\"\ngroup = \"{GROUP}\"\n"));
        }
        let mut defaults = |key: &str, line: String| {
            if !says(&server, key) {
                server.push_str(&line);
            }
        };
        defaults("spool_dir", format!("spool_dir = \"{folder}/spool\"\n"));
        // The default place would be the same for all the tests' weirs.
        defaults("admin", "admin = \"off\"\n".to_owned());
        defaults(
            "shutdown_timeout",
            "shutdown_timeout = \"10s\"\n".to_owned(),
        );
        let mut log = self.log.clone();
        if !says(&log, "access") {
            log.push_str(&format!("access = \"{folder}/log/access.log\"\n"));
        }
        let mut site = self.site.clone();
        if !says(&site, "root") {
            site.push_str(&format!("root = \"{folder}/root\"\n"));
        }
        let mut pool = String::new();
        if !self.pool.is_empty() {
            site.push_str("pool = \"app\"\n");
            pool.push_str("[pool.app]\n");
            if !says(&self.pool, "read_timeout") {
                // Scripts that wait until a test goes on may wait for long on a busy machine.
                pool.push_str("read_timeout = \"300s\"\n");
            }
            if !says(&self.pool, "queue.timeout") {
                // The tests wait for other things than the queue's timeout.
                pool.push_str("queue.timeout = \"60s\"\n");
            }
            pool.push_str(&self.pool);
        }
        format!(
            "[server]\n{server}\n[listen.web]\naddress = \"{}\"\n{}\n[site.main]\n{site}\n{pool}\n[log]\n{log}\n{}",
            self.address, self.listen, self.more,
        )
    }

    /// Writes weir.toml and starts weir. Returns when weir serves, or, if its log does not show that, when it accepts
    /// connections.
    #[track_caller]
    pub fn start(&self) -> Weir {
        self.start_toml(&self.toml())
    }

    /// Starts weir with this weir.toml instead of the generated one. It has to listen on [`Setup::address`].
    #[track_caller]
    pub fn start_toml(&self, text: &str) -> Weir {
        let file = self.write_config(text);
        let mut arguments = vec!["serve", "-c", &file];
        if self.traced {
            arguments.push("--trace");
        }
        let weir = self.start_with(&arguments);
        if self.stderr_is_read && shows_start(text) {
            // The manager's sockets accept connections before there is a gateway or an admin interface.
            weir.wait_for_error(&["serves (process"]);
        }
        weir
    }

    /// Runs `weir serve FOLDER` on the document root, followed by `arguments`.
    #[track_caller]
    pub fn start_folder(&self, arguments: &[&str]) -> Weir {
        let listen = self.address.to_string();
        let root = self.root();
        let root = root.to_str().expect("a path in UTF-8");
        let mut all = vec!["serve", root, "--listen", &listen];
        all.extend(arguments);
        self.start_with(&all)
    }

    /// Starts weir and waits for its end, for starts that must fail. Returns the status and stderr. Fails if a process
    /// that weir started still runs.
    #[track_caller]
    pub fn start_in_vain(&self) -> (ExitStatus, String) {
        self.start_toml_in_vain(&self.toml())
    }

    /// The same, with this weir.toml instead of the generated one.
    #[track_caller]
    pub fn start_toml_in_vain(&self, text: &str) -> (ExitStatus, String) {
        let file = self.write_config(text);
        let mut child = self.spawn(&["serve", "-c", &file], Stdio::piped());
        let mut stderr = child.stderr.take().expect("a pipe");
        // This ends when no process has the pipe open any more, so nothing still runs.
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).expect("stderr");
            String::from_utf8_lossy(&said).into_owned()
        });
        let status = wait(&mut child, LIMIT);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        wait_until("everything that weir started has ended", || {
            reader.is_finished()
        });
        let said = reader.join().expect("stderr");
        let status = status.unwrap_or_else(|| panic!("weir started, and should not have:\n{said}"));
        (status, said)
    }

    /// Writes weir.toml and returns its path.
    pub fn write_toml(&self) -> PathBuf {
        self.write_config(&self.toml()).into()
    }

    /// Writes this text to weir.toml and returns the file's path.
    pub fn write_config(&self, text: &str) -> String {
        let file = self.path("weir.toml");
        fs::write(&file, text).expect("weir.toml");
        file.into_os_string()
            .into_string()
            .expect("a path in UTF-8")
    }

    #[track_caller]
    fn start_with(&self, arguments: &[&str]) -> Weir {
        let stderr = match self.stderr_is_read {
            true => self.create_log("stderr"),
            false => Stdio::piped(),
        };
        let mut child = self.spawn(arguments, stderr);
        let mut weir = Weir {
            _unread: child.stderr.take(),
            child,
            stopped: false,
            folder: self.folder.clone(),
            address: self.address,
            returned: Mutex::default(),
        };
        wait_until("weir accepts connections", || {
            if let Some(status) = weir.child.try_wait().expect("a child of ours") {
                weir.stopped = true;
                panic!("weir ended at its start with {status}:\n{}", weir.stderr());
            }
            TcpStream::connect(weir.address).is_ok()
        });
        weir
    }

    fn create_log(&self, name: &str) -> Stdio {
        let path = self.path("log").join(name);
        File::create(path).expect("a log").into()
    }

    fn spawn(&self, arguments: &[&str], stderr: Stdio) -> Child {
        let mut words = self.wrapper.clone();
        words.push(self.program.to_str().expect("a path in UTF-8").to_owned());
        words.extend(arguments.iter().map(|word| word.to_string()));
        Command::new(&words[0])
            .args(&words[1..])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(self.create_log("stdout"))
            .stderr(stderr)
            .spawn()
            .expect("weir")
    }
}

impl Weir {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The test's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The document root.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// A file that scripts may write.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.path("spool").join(name)
    }

    /// Waits until a script has written something to that file, and returns it.
    #[track_caller]
    pub fn written(&self, name: &str) -> String {
        crate::written(&self.scratch(name))
    }

    /// Opens a connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends GET over a new connection.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    /// Sends GET until the answer is as wanted, each time over a new connection. Returns that answer.
    #[track_caller]
    pub fn get_until(&self, path: &str, wanted: impl Fn(&Response) -> bool) -> Response {
        wait_for(&format!("the wanted answer to {path}"), || {
            Some(self.get(path)).filter(&wanted)
        })
    }

    /// Sends any request over a new connection.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut client = self.client();
        client.send(request(method, path, headers, body));
        client.response_to(method)
    }

    /// The option that makes weir's commands ask this weir. Needs [`Setup::admin`].
    pub fn admin_option(&self) -> String {
        format!("--admin=unix:{}/admin.sock", self.folder().display())
    }

    /// A command of weir (`status`, `reload`) that asks this weir. Needs [`Setup::admin`].
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).arg(self.admin_option());
        command
    }

    /// Sends GET to the admin interface. Returns the status and the body. Needs [`Setup::admin`].
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.path("admin.sock")).expect("the admin interface");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.0\r\nHost: weir\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Fails unless Prometheus's promtool finds nothing wrong with this text of `/metrics`.
    #[track_caller]
    pub fn expect_sound_metrics(&self, text: &str) {
        let file = self.path("metrics.txt");
        fs::write(&file, text).expect("a file");
        let output = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(File::open(&file).expect("a file"))
            .output()
            .expect("promtool");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }

    /// What the admin interface says of this weir, as `weir status --json` prints it. Needs [`Setup::admin`].
    #[track_caller]
    pub fn status(&self) -> Value {
        let (status, body) = self.admin_get("/status");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// How many workers of the first pool are busy, and how many requests wait for one. Needs [`Setup::admin`].
    #[track_caller]
    pub fn busy_and_waiting(&self) -> (u64, u64) {
        let pool = &self.status()["pools"][0];
        let numbers = [&pool["workers"]["busy"], &pool["queue"]["waiting"]];
        let numbers = numbers.map(|number| number.as_u64().expect("a number"));
        numbers.into()
    }

    /// How many requests for scripts have arrived at the pools, whatever came of them. Needs [`Setup::admin`].
    #[track_caller]
    pub fn taken(&self) -> u64 {
        let status = self.status();
        let pools = status["pools"].as_array().expect("pools").iter();
        pools
            .map(|pool| pool["requests"]["taken"].as_u64().expect("a number"))
            .sum()
    }

    /// Sends with `send`, and waits until that many requests for scripts have arrived at the pools: they run, wait or
    /// are refused. Needs [`Setup::admin`].
    #[track_caller]
    pub fn after<T>(&self, requests: u64, send: impl FnOnce() -> T) -> T {
        let before = self.taken();
        let sent = send();
        wait_until("all have arrived", || self.taken() >= before + requests);
        sent
    }

    /// The manager's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processes whose parent is the manager.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace()
            .map(|pid| pid.parse().expect("a process id"))
            .collect()
    }

    /// Everything that it has started.
    pub fn processes(&self) -> Vec<Process> {
        descendants(self.child.id())
    }

    /// The gateway: the child that runs the same program and calls itself so.
    pub fn gateway(&self) -> Process {
        self.role("weir: gateway")
    }

    /// The keeper of private keys.
    pub fn keeper(&self) -> Process {
        self.role("weir: keeper")
    }

    fn role(&self, role: &str) -> Process {
        wait_for(role, || {
            self.processes().into_iter().find(|process| {
                let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
                words.starts_with(role.as_bytes())
            })
        })
    }

    /// The workers: children that run another program, by its name.
    pub fn workers(&self) -> Vec<Process> {
        let own = executable(self.pid());
        let all = self.processes().into_iter();
        all.filter(|process| executable(process.pid).is_some_and(|path| Some(path) != own))
            .collect()
    }

    /// Its stderr so far, which is the error log of the tests.
    pub fn stderr(&self) -> String {
        self.read("log/stderr")
    }

    /// Its stdout so far.
    pub fn stdout(&self) -> String {
        self.read("log/stdout")
    }

    /// A file in the test's folder as text, or an empty string if it does not exist.
    pub fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for a line on stderr that contains all these words, and returns it.
    #[track_caller]
    pub fn wait_for_error(&self, words: &[&str]) -> String {
        self.wait_for_line("log/stderr", words)
    }

    /// Waits for a line of a file that contains all these words, and returns it.
    #[track_caller]
    pub fn wait_for_line(&self, file: &str, words: &[&str]) -> String {
        wait_for(&format!("a line with {words:?} in {file}"), || {
            let text = self.read(file);
            let mut lines = text.lines();
            lines
                .find(|line| words.iter().all(|word| line.contains(word)))
                .map(str::to_owned)
        })
    }

    /// Waits for a line on stderr that contains this and that it has not returned before.
    #[track_caller]
    pub fn log_line(&self, part: &str) -> String {
        wait_for(&format!("a new line with {part:?} on stderr"), || {
            let mut returned = self.returned.lock().expect("no holder panics");
            let text = self.stderr();
            let lines = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let (number, line) = lines
                .enumerate()
                .find(|(number, line)| line.contains(part) && !returned.contains(number))?;
            returned.push(number);
            Some(line.trim_end().to_owned())
        })
    }

    /// Waits for the line of this URI in the access log (JSON), and returns its fields.
    #[track_caller]
    pub fn logged(&self, uri: &str) -> Value {
        wait_for(&format!("{uri} in the access log"), || {
            let text = self.read("log/access.log");
            let mut lines = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            lines.find_map(|line| {
                let value: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                (value["uri"] == uri).then_some(value)
            })
        })
    }

    /// Sends a signal to the manager.
    pub fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let status = wait(&mut self.child, LIMIT);
        let status = status.unwrap_or_else(|| panic!("weir still runs:\n{}", self.stderr()));
        self.stopped = true;
        status
    }

    /// Kills the manager. Fails if something that weir has started outlives it.
    #[track_caller]
    pub fn kill(&mut self) {
        let processes = self.processes();
        self.child.kill().expect("a child of ours");
        self.wait_for_end();
        expect_gone(&processes);
    }

    /// Stops it gracefully. Fails unless it ends without an error and leaves nothing running. The manager waits for its
    /// own children.
    #[track_caller]
    pub fn stop(&mut self) {
        let (children, processes) = (self.children(), self.processes());
        self.signal(Signal::TERM);
        let status = self.wait_for_end();
        assert!(
            status.code() == Some(0),
            "weir ended with {:?}, signal {:?}:\n{}",
            status.code(),
            status.signal(),
            self.stderr()
        );
        let left: Vec<_> = children.into_iter().filter(|pid| is_alive(*pid)).collect();
        assert!(left.is_empty(), "{left:?} of {processes:?} outlive weir");
        expect_gone(&processes);
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let toml = self.read("weir.toml");
            eprintln!(
                "--- weir.toml\n{toml}\n--- stderr\n{}\n--- access log",
                self.stderr()
            );
            let log = self.read("log/access.log");
            let lines: Vec<&str> = log.lines().rev().take(20).collect();
            lines.iter().rev().for_each(|line| eprintln!("{line}"));
            eprint!("--- processes\n{}", table(self.pid()));
            if !self.stopped {
                let processes = self.processes();
                let _ = self.child.kill();
                let _ = self.child.wait();
                processes
                    .iter()
                    .filter(|left| left.runs())
                    .for_each(|left| signal(left.pid, Signal::KILL));
            }
        } else if !self.stopped {
            self.stop();
        }
    }
}

/// The environment variable that names another weir to test than the one that was built with these tests.
pub const PROGRAM: &str = "WEIR_UNDER_TEST";

/// The weir under test. Cargo builds it before these tests, into the folder above theirs.
///
/// # Panics
/// If there is none.
pub fn program() -> &'static str {
    static FOUND: LazyLock<String> = LazyLock::new(|| {
        let found = env::var_os(PROGRAM).map_or_else(built_with_these_tests, PathBuf::from);
        assert!(found.is_file(), "{} is missing", found.display());
        found
            .into_os_string()
            .into_string()
            .expect("a path in UTF-8")
    });
    &FOUND
}

fn built_with_these_tests() -> PathBuf {
    let tests = env::current_exe().expect("the path of the tests");
    let folder = tests.ancestors().nth(2).expect("target/debug");
    folder.join("weir")
}

/// A request as bytes, with Host, Connection: close and the length added.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        text.push_str("Host: localhost\r\n");
    }
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("connection"))
    {
        text.push_str("Connection: close\r\n");
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend(body);
    bytes
}

/// Fails if one of these still runs a little later.
#[track_caller]
pub fn expect_gone(processes: &[Process]) {
    wait_until(&format!("all of {processes:?} have ended"), || {
        !processes.iter().any(Process::runs)
    });
}

/// Writes a file that everybody may read, and creates its folders.
pub fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
    fs::write(path, content).expect("write");
    mode(path, 0o644);
}

/// Sets the rights of a path.
pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// Whether a line sets this key.
fn says(lines: &str, key: &str) -> bool {
    lines.lines().any(|line| {
        line.split('=')
            .next()
            .is_some_and(|name| name.trim() == key)
    })
}

/// Adds lines to a table. A key that is set again replaces the earlier value.
fn set(text: &mut String, lines: &str) {
    let (keys, tables) = text.split_at(text.find("\n[").unwrap_or(text.len()));
    let kept = keys.lines().filter(|line| match line.split_once('=') {
        Some((key, _)) => !says(lines, key.trim()),
        None => true,
    });
    let mut table: String = kept.map(|line| format!("{line}\n")).collect();
    table.push_str(&ended(lines));
    table.push_str(tables.trim_start());
    *text = table;
}

/// Whether weir writes with this weir.toml to stderr that it serves.
fn shows_start(text: &str) -> bool {
    let log = text.split("[log]\n").nth(1).unwrap_or_default();
    let log = log.split("\n[").next().unwrap_or_default();
    let mut settings = log.lines().filter_map(|line| line.split_once('='));
    settings.all(|(key, value)| match (key.trim(), value.trim()) {
        ("error", value) => value == "\"stderr\"",
        ("error_format", value) => value == "\"weir\"",
        ("level", value) => matches!(value, "\"notice\"" | "\"debug\""),
        _ => true,
    })
}

fn ended(lines: &str) -> String {
    let mut text = lines.trim().to_owned();
    text.push('\n');
    text
}

fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}
