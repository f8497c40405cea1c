//! Web servers in front of weir: a hand-made one that can make every mistake a test needs, and nginx, HAProxy and
//! Apache.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::fcgi::{
    BEGIN_REQUEST, END_REQUEST, GET_VALUES_RESULT, PARAMS, STDERR, STDIN, STDOUT, record,
};
use crate::process::{descendants, signal, wait};
use crate::{GROUP, LIMIT, Setup, USER, Weir, free_address, is_root, wait_until};

/// A connection to a FastCGI listener.
pub struct Front {
    stream: Stream,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The application's answer to one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answered {
    /// All of STDOUT.
    pub stdout: Vec<u8>,
    /// All of STDERR.
    pub stderr: Vec<u8>,
    /// The protocol's status in END_REQUEST, or none if the connection was closed before.
    pub ended: Option<u8>,
}

impl Front {
    /// Connects over TCP.
    #[track_caller]
    pub fn tcp(address: SocketAddr) -> Front {
        let stream = TcpStream::connect_timeout(&address, LIMIT).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        let front = Front {
            stream: Stream::Tcp(stream),
        };
        front.patience(LIMIT)
    }

    /// Connects to a unix socket.
    #[track_caller]
    pub fn unix(path: &Path) -> Front {
        let front = Front {
            stream: Stream::Unix(UnixStream::connect(path).expect("connect")),
        };
        front.patience(LIMIT)
    }

    /// The addresses of a connection over TCP: its own, and weir's.
    #[track_caller]
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        match &self.stream {
            Stream::Tcp(stream) => crate::tcp::ends(stream),
            Stream::Unix(_) => panic!("a unix socket has no addresses"),
        }
    }

    /// Sets how long it waits for bytes.
    pub fn patience(self, limit: Duration) -> Front {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
        .expect("timeout");
        self
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Front {
        assert!(self.try_send(bytes), "the other side does not take it");
        self
    }

    /// Sends bytes. Returns false if the other side does not take them any more.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
        }
        .is_ok()
    }

    /// Sends a whole request with number 1 over a kept connection, and reads its answer.
    #[track_caller]
    pub fn ask(&mut self, params: &Params, body: &[u8]) -> Answered {
        self.send(request(1, true, params, body));
        self.answer(1)
    }

    /// Reads until END_REQUEST of this number, or until the connection is closed.
    #[track_caller]
    pub fn answer(&mut self, id: u16) -> Answered {
        let mut answered = Answered::default();
        while let Some((kind, of, content)) = self.record() {
            assert_eq!(of, id, "a record of another request, of type {kind}");
            match kind {
                STDOUT => answered.stdout.extend(content),
                STDERR => answered.stderr.extend(content),
                END_REQUEST => {
                    answered.ended = Some(content[4]);
                    break;
                }
                kind => panic!("a record of type {kind}"),
            }
        }
        answered
    }

    /// Reads one record: type, number, content. Returns none if the connection is closed.
    #[track_caller]
    pub fn record(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        let mut header = [0; 8];
        if !self.fill(&mut header) {
            return None;
        }
        assert_eq!(header[0], 1, "the protocol's version");
        let id = u16::from_be_bytes([header[2], header[3]]);
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; length + usize::from(header[6])];
        if !self.fill(&mut content) {
            return None;
        }
        content.truncate(length);
        Some((header[1], id, content))
    }

    /// Asks about the application's values, and returns the names and values of the answer.
    #[track_caller]
    pub fn values(&mut self) -> Vec<(String, String)> {
        let (kind, id, content) = self.record().expect("an answer");
        assert_eq!((kind, id), (GET_VALUES_RESULT, 0));
        let (mut rest, mut values) = (&content[..], Vec::new());
        while let [name, value, ..] = *rest {
            let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
            let (name, value) = (usize::from(name), usize::from(value));
            values.push((text(&rest[2..2 + name]), text(&rest[2 + name..][..value])));
            rest = &rest[2 + name + value..];
        }
        values
    }

    /// Fails unless the other side closes without sending another byte.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let mut byte = [0];
        assert!(!self.fill(&mut byte), "more came: {byte:?}");
    }

    /// Whether nothing arrives for this long, and the connection stays open.
    pub fn quiet_for(&mut self, time: Duration) -> bool {
        let mut byte = [0];
        let peeked = match &self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(time)).expect("timeout");
                let peeked = stream.peek(&mut byte);
                stream.set_read_timeout(Some(LIMIT)).expect("timeout");
                peeked
            }
            Stream::Unix(_) => panic!("only over TCP"),
        };
        matches!(peeked, Err(error) if is_timeout(&error))
    }

    /// Shuts down the sending side.
    pub fn shut(&mut self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    #[track_caller]
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < bytes.len() {
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut bytes[filled..]),
                Stream::Unix(stream) => stream.read(&mut bytes[filled..]),
            };
            match read {
                Ok(0) => return false,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => panic!("nothing came"),
                Err(_) => return false,
            }
        }
        true
    }
}

impl Answered {
    /// Head and body of what the script printed, as text.
    #[track_caller]
    pub fn text(&self) -> (String, String) {
        assert_eq!(self.ended, Some(0), "{self:?}");
        let text = String::from_utf8_lossy(&self.stdout);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }
}

/// The parameters of a request, as a web server sends them.
#[derive(Debug, Clone)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// These names and values.
    pub fn of(pairs: &[(&str, &str)]) -> Params {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Params(pairs.iter().map(owned).collect())
    }

    /// GET for this script below a document root. `target` is its URL path, and may have a query.
    pub fn get(root: &Path, target: &str) -> Params {
        let (script, query) = target.split_once('?').unwrap_or((target, ""));
        let file = format!("{}{script}", root.display());
        Params(Vec::new())
            .with("GATEWAY_INTERFACE", "CGI/1.1")
            .with("REQUEST_METHOD", "GET")
            .with("SCRIPT_FILENAME", &file)
            .with("SCRIPT_NAME", script)
            .with("QUERY_STRING", query)
            .with("REQUEST_URI", target)
            .with("SERVER_PROTOCOL", "HTTP/1.1")
            .with("REMOTE_ADDR", "192.0.2.7")
            .with("HTTP_HOST", "shop.example")
    }

    /// POST with a body of this length.
    pub fn post(root: &Path, target: &str, length: usize) -> Params {
        Params::get(root, target)
            .with("REQUEST_METHOD", "POST")
            .with("CONTENT_LENGTH", &length.to_string())
    }

    /// Sets this parameter, and replaces one of the same name.
    pub fn with(mut self, name: &str, value: &str) -> Params {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Whether there is a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The parameters in FastCGI's encoding.
    pub fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.0 {
            for part in [name, value] {
                match part.len() {
                    short @ 0..=127 => bytes.push(short as u8),
                    long => bytes.extend((long as u32 | 1 << 31).to_be_bytes()),
                }
            }
            bytes.extend(name.as_bytes());
            bytes.extend(value.as_bytes());
        }
        bytes
    }
}

/// A whole request as records.
pub fn request(id: u16, keep: bool, params: &Params, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(id, keep, params);
    for part in body.chunks(65_528) {
        bytes.extend(record(STDIN, id, part));
    }
    bytes.extend(record(STDIN, id, b""));
    bytes
}

/// BEGIN_REQUEST and all PARAMS.
pub fn head(id: u16, keep: bool, params: &Params) -> Vec<u8> {
    let mut bytes = record(BEGIN_REQUEST, id, &[0, 1, keep.into(), 0, 0, 0, 0, 0]);
    for part in params.encoded().chunks(65_528) {
        bytes.extend(record(PARAMS, id, part));
    }
    bytes.extend(record(PARAMS, id, b""));
    bytes
}

/// A weir whose pool can also be reached by FastCGI, over TCP and at `front.sock`.
pub struct Behind {
    /// The weir.
    pub weir: Weir,
    /// Where it accepts FastCGI.
    pub address: SocketAddr,
}

impl Behind {
    /// Starts weir with this pool, and these lines for the TCP listener.
    pub fn start(setup: Setup, pool: &str, lines: &str) -> Behind {
        let address = free_address();
        let socket = setup.folder().join("front.sock");
        let weir = setup
            .pool(pool)
            .more(&format!(
                "[listen.front]\nprotocol = \"fastcgi\"\naddress = \"{address}\"\npool = \"app\"\n{lines}\n\
                 [listen.socket]\nprotocol = \"fastcgi\"\naddress = \"unix:{}\"\nmode = \"0666\"\npool = \"app\"\n",
                socket.display()
            ))
            .start();
        wait_until("the FastCGI listeners are there", || {
            TcpStream::connect(address).is_ok() && UnixStream::connect(&socket).is_ok()
        });
        Behind { weir, address }
    }

    /// A connection as a web server makes it.
    pub fn front(&self) -> Front {
        Front::tcp(self.address)
    }

    /// The parameters of a GET request.
    pub fn params(&self, target: &str) -> Params {
        Params::get(&self.weir.root(), target)
    }

    /// The path of its unix socket.
    pub fn socket(&self) -> String {
        format!("{}/front.sock", self.weir.folder().display())
    }
}

/// A web server for one test that listens on its own address.
pub struct WebServer {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
    stop: Signal,
}

impl WebServer {
    /// nginx with these lines in its `server`, and these others in `http`. If the lines have their own `listen`,
    /// `ADDRESS` in them stands for the address where it listens.
    pub fn nginx(folder: &Path, server: &str, http: &str) -> WebServer {
        let (folder, address) = place(folder, "nginx");
        let user = match is_root() {
            true => format!("user {USER} {GROUP};"),
            false => String::new(),
        };
        let temp: String = ["client_body", "fastcgi", "proxy", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display()))
            .collect();
        let server = match server.contains("ADDRESS") {
            true => server.replace("ADDRESS", &address.to_string()),
            false => format!("listen {address};\n{server}"),
        };
        let text = format!(
            "{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log info;\n\
             events {{ }}\n\
             http {{\n{temp}access_log off; client_max_body_size 0;\n{http}\n\
             server {{\n{server}\n}}\n}}\n",
            folder = folder.display(),
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, text).expect("nginx.conf");
        let mut command = Command::new("/usr/sbin/nginx");
        command
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(folder.join("error.log"));
        WebServer::start(command, folder, address, Signal::QUIT)
    }

    /// HAProxy with these sections. `ADDRESS` in them stands for the address where it listens.
    pub fn haproxy(folder: &Path, sections: &str) -> WebServer {
        let (folder, address) = place(folder, "haproxy");
        let file = folder.join("haproxy.cfg");
        fs::write(&file, sections.replace("ADDRESS", &address.to_string())).expect("haproxy.cfg");
        let mut command = Command::new("/usr/sbin/haproxy");
        command.arg("-db").arg("-f").arg(&file);
        WebServer::start(command, folder, address, Signal::TERM)
    }

    /// Apache with these directives and the modules that FastCGI needs.
    pub fn apache(folder: &Path, directives: &str) -> WebServer {
        let (folder, address) = place(folder, "apache");
        let modules: String = ["mpm_event", "authz_core", "proxy", "proxy_fcgi"]
            .iter()
            .map(|name| {
                format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
            })
            .collect();
        let user = match is_root() {
            true => format!("User {USER}\nGroup {GROUP}\n"),
            false => String::new(),
        };
        let text = format!(
            "ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/pid\nErrorLog {folder}/error.log\n\
             {modules}{user}ServerName localhost\nListen {address}\n{directives}\n",
            folder = folder.display(),
        );
        let file = folder.join("apache.conf");
        fs::write(&file, text).expect("apache.conf");
        let mut command = Command::new("/usr/sbin/apache2");
        command.arg("-DFOREGROUND").arg("-f").arg(&file);
        WebServer::start(command, folder, address, Signal::TERM)
    }

    fn start(
        mut command: Command,
        folder: PathBuf,
        address: SocketAddr,
        stop: Signal,
    ) -> WebServer {
        let said = File::create(folder.join("said")).expect("a file");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("the web server; setup/install.sh test installs it");
        let mut server = WebServer {
            child,
            folder,
            address,
            stop,
        };
        wait_until("the web server accepts connections", || {
            if let Some(status) = server.child.try_wait().expect("a child of ours") {
                panic!("it ended with {status}:\n{}", server.log());
            }
            TcpStream::connect(address).is_ok()
        });
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("said") + &read("error.log")
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let children = descendants(self.child.id());
        signal(self.child.id(), self.stop);
        if wait(&mut self.child, LIMIT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for child in children.iter().filter(|child| child.runs()) {
            signal(child.pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("--- the web server's log\n{}", self.log());
        }
    }
}

/// A folder for the server in which its children may write too, and an address.
fn place(folder: &Path, name: &str) -> (PathBuf, SocketAddr) {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).expect("mkdir");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("chmod");
    (folder, free_address())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
