//! A real weir: a folder with a weir.toml and a document root, the binary, and its logs.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, descendants, signal, table, wait};
use crate::{Client, GROUP, LIMIT, Response, USER, free_address, is_root, wait_for, wait_until};

/// What is prepared before weir starts.
pub struct Setup {
    folder: TempDir,
    address: SocketAddr,
    server: String,
    listen: String,
    site: String,
    pools: String,
    log: String,
    more: String,
    wrapper: Vec<String>,
    traced: bool,
}

/// A running weir. It is stopped at the end of the test. The test fails if weir does not stop or leaves anything
/// behind.
pub struct Weir {
    child: Child,
    stopped: bool,
    folder: TempDir,
    address: SocketAddr,
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
            folder,
            address: free_address(),
            server: String::new(),
            listen: String::new(),
            site: String::new(),
            pools: String::new(),
            log: "format = \"json\"\n".to_owned(),
            more: String::new(),
            wrapper: Vec::new(),
            traced: false,
        }
    }

    /// The test's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The document root.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
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

    /// Lines of `[server]`.
    pub fn server(mut self, lines: &str) -> Setup {
        self.server.push_str(&ended(lines));
        self
    }

    /// Lines of the listener.
    pub fn listen(mut self, lines: &str) -> Setup {
        self.listen.push_str(&ended(lines));
        self
    }

    /// Lines of the site. Its tables (`[[site.main.route]]`) belong in [`Setup::more`].
    pub fn site(mut self, lines: &str) -> Setup {
        self.site.push_str(&ended(lines));
        self
    }

    /// Adds a pool. The site's scripts run in it.
    pub fn pool(mut self, lines: &str) -> Setup {
        self.site.push_str("pool = \"app\"\n");
        self.pools.push_str("[pool.app]\n");
        if !says(lines, "read_timeout") {
            // Scripts that wait until a test goes on may wait for long on a busy machine.
            self.pools.push_str("read_timeout = \"300s\"\n");
        }
        self.pools.push_str(&ended(lines));
        if !says(lines, "queue.timeout") {
            // The tests wait for other things than the queue's timeout.
            self.pools.push_str("queue.timeout = \"60s\"\n");
        }
        self
    }

    /// Lines of `[log]`, instead of the JSON format.
    pub fn log(mut self, lines: &str) -> Setup {
        self.log = ended(lines);
        self
    }

    /// An admin interface in the test's folder, which [`Weir::taken`] asks.
    pub fn window(self) -> Setup {
        let line = format!("admin = \"unix:{}/admin.sock\"", self.folder().display());
        self.server(&line)
    }

    /// Whole tables.
    pub fn more(mut self, text: &str) -> Setup {
        self.more.push_str(&ended(text));
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
        format!(
            "[server]\n{server}\n[listen.web]\naddress = \"{}\"\n{}\n[site.main]\n{site}\n{}\n[log]\n{log}\n{}",
            self.address, self.listen, self.pools, self.more,
        )
    }

    /// Writes weir.toml and starts weir. Returns when weir serves, or, if its log does not show that, when it accepts
    /// connections.
    #[track_caller]
    pub fn start(self) -> Weir {
        let file = self.write_toml();
        let mut arguments = vec!["serve", "-c", file.to_str().expect("a path in UTF-8")];
        if self.traced {
            arguments.push("--trace");
        }
        let says_so = !self.log.contains("error") && !self.log.contains("level");
        let weir = self.start_with(&arguments);
        if says_so {
            // The manager's sockets accept connections before there is a gateway or an admin interface.
            weir.wait_for_error(&["serves (process"]);
        }
        weir
    }

    /// Starts weir with this weir.toml instead of the generated one. It has to listen on [`Setup::address`].
    #[track_caller]
    pub fn start_toml(self, text: &str) -> Weir {
        let file = self.folder.path().join("weir.toml");
        fs::write(&file, text).expect("weir.toml");
        self.start_with(&["serve", "-c", file.to_str().expect("a path in UTF-8")])
    }

    /// Runs `weir serve FOLDER` on the document root, followed by `arguments`.
    #[track_caller]
    pub fn start_folder(self, arguments: &[&str]) -> Weir {
        let listen = self.address.to_string();
        let root = self.root();
        let root = root.to_str().expect("a path in UTF-8");
        let mut all = vec!["serve", root, "--listen", &listen];
        all.extend(arguments);
        self.start_with(&all)
    }

    /// Starts weir and waits for its end, for starts that must fail. Returns the status and stderr.
    #[track_caller]
    pub fn start_in_vain(self) -> (ExitStatus, String) {
        let file = self.write_toml();
        let mut child = self.spawn(&["serve", "-c", file.to_str().expect("a path in UTF-8")]);
        let status = wait(&mut child, LIMIT);
        let said = fs::read_to_string(self.folder.path().join("log/stderr")).expect("stderr");
        let Some(status) = status else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("weir started, and should not have:\n{said}");
        };
        (status, said)
    }

    /// Writes weir.toml and returns its path.
    pub fn write_toml(&self) -> PathBuf {
        let file = self.folder.path().join("weir.toml");
        fs::write(&file, self.toml()).expect("weir.toml");
        file
    }

    #[track_caller]
    fn start_with(self, arguments: &[&str]) -> Weir {
        let child = self.spawn(arguments);
        let mut weir = Weir {
            child,
            stopped: false,
            folder: self.folder,
            address: self.address,
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

    fn spawn(&self, arguments: &[&str]) -> Child {
        let mut words = self.wrapper.clone();
        words.push(program().to_owned());
        words.extend(arguments.iter().map(|word| word.to_string()));
        let log =
            |name: &str| File::create(self.folder.path().join("log").join(name)).expect("a log");
        Command::new(&words[0])
            .args(&words[1..])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log("stdout"))
            .stderr(log("stderr"))
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

    /// The document root.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
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

    /// How many requests for scripts have arrived at the pools, whatever came of them. Needs [`Setup::window`].
    #[track_caller]
    pub fn taken(&self) -> u64 {
        let window = self.folder().join("admin.sock");
        let mut stream = UnixStream::connect(window).expect("the window");
        let request = b"GET /status HTTP/1.0\r\nHost: weir\r\n\r\n";
        stream.write_all(request).expect("a question");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = &answer[answer.find('{').expect("JSON")..];
        let status: Value = serde_json::from_str(status).expect("a status");
        let pools = status["pools"].as_array().expect("pools").iter();
        pools
            .map(|pool| pool["requests"]["taken"].as_u64().expect("a number"))
            .sum()
    }

    /// Sends with `send`, and waits until that many requests for scripts have arrived at the pools: they run, wait or
    /// are refused. Needs [`Setup::window`].
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

    /// Stops it gracefully. Fails unless it ends without an error and leaves nothing running.
    #[track_caller]
    pub fn stop(&mut self) {
        let processes = self.processes();
        self.signal(Signal::TERM);
        let status = self.wait_for_end();
        assert!(
            status.code() == Some(0),
            "weir ended with {:?}, signal {:?}:\n{}",
            status.code(),
            status.signal(),
            self.stderr()
        );
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

fn ended(lines: &str) -> String {
    let mut text = lines.trim().to_owned();
    text.push('\n');
    text
}

fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}
