//! A master of weir-php and its workers. The test takes the place of the manager and the gateway.
//!
//! The test reads and writes records and messages with its own code (FastCGI 1.0 §3.3), so it shares nothing with the
//! code that it tests. Every wait has a limit.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use weir_sys::{message, poll};

pub use super::programs::*;

pub use weir_test::{LIMIT, process::is_alive, wait_until};

pub fn kill(pid: u32) {
    weir_test::process::signal(pid, rustix::process::Signal::KILL);
}

/// The environment of the tested programs: few variables, the same for all.
pub fn environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("USER", "somebody")
        .env("PROCESS_VALUE", "of the process");
}

/// A folder with scripts, and a folder beside it for all other files.
pub struct Scripts {
    folder: TempDir,
    beside: TempDir,
}

impl Scripts {
    pub fn new() -> Scripts {
        Scripts {
            folder: TempDir::new().unwrap(),
            beside: TempDir::new().unwrap(),
        }
    }

    pub fn beside(&self) -> PathBuf {
        self.beside.path().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn root(&self) -> String {
        self.folder.path().to_str().unwrap().to_owned()
    }

    pub fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Settings for most tests: no php.ini, and PHP's messages go to the error stream of the response.
    pub fn config(&self) -> Config {
        Config::default()
            .with("pool", "test")
            .with("no_ini", "1")
            .with("define", "log_errors=1")
            .with("define", "display_errors=0")
            .with("define", "html_errors=0")
    }
}

/// Settings with which scripts may call functions of C: neither PHP-FPM nor weir-php has pcntl_fork().
pub fn calling_c(site: &Scripts) -> Config {
    site.config()
        .with("define", "extension=ffi")
        .with("define", "ffi.enable=1")
}

/// The content of the CONFIG message.
#[derive(Clone, Default, Debug)]
pub struct Config {
    fields: Vec<(String, String)>,
}

impl Config {
    pub fn with(mut self, key: &str, value: &str) -> Config {
        self.fields.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The values of a key.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_key =
            move |(name, value): &'a (String, String)| (name == key).then_some(value.as_str());
        self.fields.iter().filter_map(of_key)
    }

    fn message(&self) -> Vec<u8> {
        let mut bytes = vec![1];
        let own = [
            (
                "protocol".to_owned(),
                weir_machine::php::PROTOCOL.to_string(),
            ),
            (
                "weir_version".to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
        ];
        let says = |own: &&(String, String)| self.fields.iter().any(|(key, _)| *key == own.0);
        for (key, value) in own.iter().filter(|own| !says(own)).chain(&self.fields) {
            bytes.extend((key.len() as u16).to_be_bytes());
            bytes.extend((value.len() as u32).to_be_bytes());
            bytes.extend(key.as_bytes());
            bytes.extend(value.as_bytes());
        }
        bytes
    }
}

/// A message of a master.
#[derive(Debug, PartialEq)]
pub enum Told {
    Ready(String),
    Failed(String),
    Forked { number: u32, pid: u32 },
    Exited { number: u32, pid: u32, end: End },
    ForkFailed { number: u32, error: u32 },
    Booted(u32),
}

#[derive(Debug, PartialEq, Clone, Copy)]
pub enum End {
    Code(u32),
    Signal(u32),
}

/// A master. When it is dropped, it is killed together with its workers.
pub struct Master {
    process: Child,
    channel: Option<OwnedFd>,
    output: Arc<Mutex<String>>,
    passed_over: RefCell<VecDeque<Told>>,
    next: RefCell<u32>,
}

impl Master {
    /// Starts a master and waits until it is ready.
    pub fn start(config: &Config) -> Master {
        let master = Master::launch(config, &[]);
        match master.told() {
            Told::Ready(version) => assert!(version.starts_with("8."), "{version}"),
            other => panic!("{other:?}: {}", master.output()),
        }
        master
    }

    /// Starts a master with a slow log, and waits until it is ready. As with the manager, the master inherits no
    /// descriptor that the test runner has left open. Returns the slow log's end, too.
    pub fn start_alone_with_slow_log(config: &Config) -> (Master, OwnedFd) {
        let (ours, theirs) = message::pair().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", CLOSE_AND_EXEC]).args(program());
        let master = Master::launch_by(command, config, &[theirs]);
        assert!(matches!(master.told(), Told::Ready(_)));
        (master, ours)
    }

    /// Starts a master with a slow log, and waits until it is ready. Returns the slow log's end, too.
    pub fn start_with_slow_log(config: &Config) -> (Master, OwnedFd) {
        let (ours, theirs) = message::pair().unwrap();
        let master = Master::launch(config, &[theirs]);
        assert!(matches!(master.told(), Told::Ready(_)));
        (master, ours)
    }

    /// Starts a master, and does not wait.
    pub fn launch(config: &Config, attached: &[OwnedFd]) -> Master {
        Master::launch_by(self::command(&program()), config, attached)
    }

    /// Starts a master through another program, which then executes it.
    pub fn launch_by(mut command: Command, config: &Config, attached: &[OwnedFd]) -> Master {
        let (ours, theirs) = message::pair().unwrap();
        environment(&mut command);
        let mut process = command
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        collect(process.stdout.take().unwrap(), &output);
        collect(process.stderr.take().unwrap(), &output);
        let attached: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        message::send(ours.as_fd(), &config.message(), &attached, true).unwrap();
        Master {
            process,
            channel: Some(ours),
            output,
            passed_over: RefCell::default(),
            next: RefCell::new(1),
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The standard output and error of the master and its workers.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until they have written this text.
    pub fn said(&self, what: &str) {
        wait_until(what, || self.output().contains(what));
    }

    /// A new worker.
    pub fn worker(&self) -> Worker {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let number = self.fork(0, &[], theirs.into());
        let pid = self.forked(number);
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        ours.set_write_timeout(Some(LIMIT)).unwrap();
        Worker {
            number,
            pid,
            stream: ours,
            read: Vec::new(),
        }
    }

    /// Orders a child, and returns its number.
    pub fn fork(&self, kind: u8, more: &[u8], attached: OwnedFd) -> u32 {
        let number = self.next.replace_with(|next| *next + 1);
        let body = [&number.to_be_bytes()[..], &[kind], more].concat();
        self.order(2, &body, &[attached]);
        number
    }

    /// Waits for a child, and returns its process id.
    pub fn forked(&self, wanted: u32) -> u32 {
        let told =
            self.told_when(|told| matches!(told, Told::Forked { number, .. } if *number == wanted));
        match told {
            Told::Forked { pid, .. } => pid,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the end of a worker.
    pub fn end_of(&self, worker: &Worker) -> End {
        self.end_of_number(worker.number)
    }

    pub fn end_of_number(&self, wanted: u32) -> End {
        let told =
            self.told_when(|told| matches!(told, Told::Exited { number, .. } if *number == wanted));
        match told {
            Told::Exited { end, .. } => end,
            other => panic!("{other:?}"),
        }
    }

    pub fn signal(&self, worker: &Worker, signal: u8) {
        let body = [&worker.number.to_be_bytes()[..], &[signal]].concat();
        self.order(3, &body, &[]);
    }

    pub fn trace(&self, worker: &Worker) {
        self.order(4, &worker.number.to_be_bytes(), &[]);
    }

    fn order(&self, kind: u8, body: &[u8], attached: &[OwnedFd]) {
        let bytes = [&[kind], body].concat();
        let attached: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        let channel = self.channel.as_ref().unwrap();
        message::send(channel.as_fd(), &bytes, &attached, true).unwrap();
    }

    /// The next message.
    pub fn told(&self) -> Told {
        if let Some(told) = self.passed_over.borrow_mut().pop_front() {
            return told;
        }
        self.receive()
    }

    /// Returns the first message that is wanted, and keeps the others.
    pub fn told_when(&self, wanted: impl Fn(&Told) -> bool) -> Told {
        let mut passed_over = self.passed_over.borrow_mut();
        if let Some(at) = passed_over.iter().position(&wanted) {
            return passed_over.remove(at).unwrap();
        }
        loop {
            let told = self.receive();
            if wanted(&told) {
                return told;
            }
            passed_over.push_back(told);
        }
    }

    fn receive(&self) -> Told {
        let channel = self.channel.as_ref().unwrap();
        let ready = poll::readable(&[channel.as_fd()], Some(LIMIT)).unwrap();
        assert!(ready[0], "the master tells nothing: {}", self.output());
        let mut bytes = vec![0; 65536];
        let (length, _) = message::receive(channel.as_fd(), &mut bytes, true).unwrap();
        assert!(length > 0, "the master is gone: {}", self.output());
        let body = &bytes[1..length];
        let number = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        let text = || String::from_utf8_lossy(body).into_owned();
        match bytes[0] {
            1 => Told::Ready(text()),
            2 => Told::Failed(text()),
            3 => Told::Forked {
                number: number(0),
                pid: number(4),
            },
            4 => Told::Exited {
                number: number(0),
                pid: number(4),
                end: match body[8] {
                    0 => End::Code(number(9)),
                    _ => End::Signal(number(9)),
                },
            },
            5 => Told::ForkFailed {
                number: number(0),
                error: number(4),
            },
            7 => Told::Booted(number(0)),
            other => panic!("a message of type {other}"),
        }
    }

    /// Closes the channel.
    pub fn hang_up(&mut self) {
        self.channel = None;
    }

    /// Waits for its end, and returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let status = weir_test::process::wait(&mut self.process, LIMIT);
        status.expect("the master ends").code()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("weir-php said:\n{}", self.output());
        }
    }
}

fn collect(pipe: impl Read + Send + 'static, output: &Arc<Mutex<String>>) {
    let output = output.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let mut output = output.lock().unwrap();
            output.push_str(&String::from_utf8_lossy(&line));
            output.push('\n');
        }
    });
}

/// A worker. The test takes the place of its gateway.
pub struct Worker {
    pub number: u32,
    pub pid: u32,
    stream: UnixStream,
    /// Bytes that were read and not used yet.
    read: Vec<u8>,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub kind: u8,
    pub id: u16,
    pub content: Vec<u8>,
}

impl Record {
    /// The first record of these bytes, if it is complete, and the bytes after it.
    pub fn split(bytes: &[u8]) -> Option<(Record, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        assert_eq!(head[0], 1, "FastCGI's version");
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let (content, rest) = rest.split_at_checked(length)?;
        let (_, rest) = rest.split_at_checked(usize::from(head[6]))?;
        let record = Record {
            kind: head[1],
            id: u16::from_be_bytes([head[2], head[3]]),
            content: content.to_vec(),
        };
        Some((record, rest))
    }
}

pub const ABORT_REQUEST: u8 = 2;
pub const END_REQUEST: u8 = 3;
pub const STDIN: u8 = 5;
pub const STDOUT: u8 = 6;
pub const STDERR: u8 = 7;
pub const READY: u8 = 64;
pub const STATUS: u8 = 65;
pub const LATE_STDERR: u8 = 67;

/// A request to be sent.
#[derive(Clone)]
pub struct Request {
    pub params: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An answer: everything up to READY.
#[derive(Debug, Default)]
pub struct Answer {
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// What the script has said after its answer.
    pub late: String,
    pub cpu: u64,
    pub memory: u64,
    pub resident: u64,
    pub user: u64,
    /// How long the session's lock was held, how long it was waited for (µs), and the name of the cookie.
    pub session: Option<(u64, u64, String)>,
}

impl Request {
    /// A GET of a URL of this site.
    pub fn get(site: &Scripts, url: &str) -> Request {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let root = site.root();
        let request = Request {
            params: Vec::new(),
            body: Vec::new(),
        };
        request
            .with("QUERY_STRING", query)
            .with("REQUEST_METHOD", "GET")
            .with("CONTENT_TYPE", "")
            .with("CONTENT_LENGTH", "")
            .with("SCRIPT_NAME", path)
            .with("REQUEST_URI", url)
            .with("DOCUMENT_URI", path)
            .with("DOCUMENT_ROOT", &root)
            .with("SERVER_PROTOCOL", "HTTP/1.1")
            .with("REQUEST_SCHEME", "http")
            .with("GATEWAY_INTERFACE", "CGI/1.1")
            .with("SERVER_SOFTWARE", "weir")
            .with("REMOTE_ADDR", "127.0.0.1")
            .with("REMOTE_PORT", "4711")
            .with("SERVER_ADDR", "127.0.0.1")
            .with("SERVER_PORT", "80")
            .with("SERVER_NAME", "shop.example")
            .with("REDIRECT_STATUS", "200")
            .with("SCRIPT_FILENAME", &format!("{root}{path}"))
            .with("HTTP_HOST", "shop.example")
    }

    /// A POST.
    pub fn post(site: &Scripts, url: &str, kind: &str, body: impl Into<Vec<u8>>) -> Request {
        let body = body.into();
        let length = body.len().to_string();
        let mut request = Request::get(site, url)
            .with("REQUEST_METHOD", "POST")
            .with("CONTENT_TYPE", kind)
            .with("CONTENT_LENGTH", &length);
        request.body = body;
        request
    }

    /// Adds or replaces a parameter.
    pub fn with(mut self, name: &str, value: &str) -> Request {
        self.params.retain(|(known, _)| known != name);
        self.params.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a parameter.
    pub fn without(mut self, name: &str) -> Request {
        self.params.retain(|(known, _)| known != name);
        self
    }

    /// The records BEGIN_REQUEST and PARAMS.
    pub fn head(&self) -> Vec<u8> {
        let mut pairs = Vec::new();
        for (name, value) in &self.params {
            for length in [name.len(), value.len()] {
                match u8::try_from(length) {
                    Ok(short @ 0..=127) => pairs.push(short),
                    _ => pairs.extend((length as u32 | 1 << 31).to_be_bytes()),
                }
            }
            pairs.extend(name.as_bytes());
            pairs.extend(value.as_bytes());
        }
        let mut bytes = record(1, 1, &[0, 1, 1, 0, 0, 0, 0, 0]);
        for content in pairs.chunks(65_535) {
            bytes.extend(record(4, 1, content));
        }
        bytes.extend(record(4, 1, b""));
        bytes
    }

    /// All records of the request.
    pub fn records(&self) -> Vec<u8> {
        let mut bytes = self.head();
        for content in self.body.chunks(65_535) {
            bytes.extend(record(STDIN, 1, content));
        }
        bytes.extend(record(STDIN, 1, b""));
        bytes
    }
}

pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(content);
    bytes
}

impl Worker {
    /// Asks for a URL, and waits for the whole answer.
    pub fn get(&mut self, site: &Scripts, url: &str) -> Answer {
        self.ask(&Request::get(site, url))
    }

    /// Sends a request, and waits for the whole answer.
    pub fn ask(&mut self, request: &Request) -> Answer {
        self.send(request);
        self.answer()
    }

    /// Sends a request. A large body is written by a thread, since the worker may answer before it has read it.
    pub fn send(&mut self, request: &Request) {
        let bytes = request.records();
        if bytes.len() < 32 * 1024 {
            return self.write(&bytes);
        }
        let mut stream = self.stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = stream.write_all(&bytes);
        });
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes as many bytes as the worker reads: it may end before it has read all.
    pub fn write_some(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Ends writing on the stream.
    pub fn end_writing(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The next record. `None`: the worker has closed the stream.
    pub fn next(&mut self) -> Option<Record> {
        loop {
            if let Some((record, rest)) = Record::split(&self.read) {
                let taken = self.read.len() - rest.len();
                self.read.drain(..taken);
                return Some(record);
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.read.extend(&bytes[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no record: {error}"),
            }
        }
    }

    /// The rest of the answer.
    pub fn answer(&mut self) -> Answer {
        self.answer_or_none().expect("the worker closed the stream")
    }

    /// The rest of the answer. `None`: the worker closes the stream before the end of the answer.
    pub fn answer_or_none(&mut self) -> Option<Answer> {
        let mut answer = Answer::default();
        let mut ended = false;
        loop {
            let record = self.next()?;
            match (record.kind, record.id) {
                (STDOUT, 1) if !ended => answer.stdout.extend(record.content),
                (STDERR, 1) if !ended => {
                    answer
                        .stderr
                        .push_str(&String::from_utf8_lossy(&record.content));
                }
                (END_REQUEST, 1) if !ended => {
                    assert_eq!(record.content, [0; 8]);
                    ended = true;
                }
                (LATE_STDERR, 0) if ended => {
                    let text = String::from_utf8_lossy(&record.content);
                    answer.late.push_str(&text);
                }
                (READY, 0) if ended => {
                    let figure = |at: usize| {
                        u64::from_be_bytes(record.content[at..at + 8].try_into().unwrap())
                    };
                    (answer.cpu, answer.memory, answer.resident) =
                        (figure(0), figure(8), figure(16));
                    answer.user = figure(24);
                    answer.session = (record.content.len() > 40).then(|| {
                        let name = String::from_utf8_lossy(&record.content[56..]);
                        (figure(40), figure(48), name.into_owned())
                    });
                    return Some(answer);
                }
                _ => panic!("not to be expected: {record:?}"),
            }
        }
    }

    /// Closes the stream.
    pub fn hang_up(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Whether nothing can be read, and nothing comes until the other condition holds.
    pub fn is_silent(&self) -> bool {
        self.read.is_empty() && !weir_sys::socket::peer_closed(self.stream.as_fd())
    }
}

impl Answer {
    /// Everything that a client or a log would see.
    pub fn told(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout);
        format!("{text}\n[stderr] {}", self.stderr)
    }

    fn split(&self) -> (String, String) {
        let text = String::from_utf8_lossy(&self.stdout);
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no head: {text}"));
        (head.to_owned(), body.to_owned())
    }

    pub fn head(&self) -> String {
        self.split().0
    }

    pub fn body(&self) -> String {
        self.split().1
    }

    /// The value of `Status`, or an empty text.
    pub fn status(&self) -> String {
        self.header("Status")
    }

    /// A header's value, or an empty text.
    pub fn header(&self, name: &str) -> String {
        let head = self.head();
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    }
}

/// A bash script that executes the program in its first argument, with standard input, output and error and no other
/// descriptor.
const CLOSE_AND_EXEC: &str = r#"
for file in /proc/$$/fd/*; do
    number=${file##*/}
    [ "$number" -le 2 ] || eval "exec $number>&-"
done
exec "$0" "$@""#;
