//! A typical origin: nginx over TLS, HTTP/1.1 and HTTP/2. Its answers show what it was asked and how.
//!
//! | path | answer |
//! |---|---|
//! | `/echo` and all paths not listed here | what the origin knows about the request: one `key=value` per line |
//! | `/body` | `length=…`, `body=…` of a short text without line ends, for any method |
//! | `/gzip` | 7000 bytes of text, compressed if the request accepts gzip |
//! | `/large` | [`LARGE`] bytes |
//! | `/redirect` | 302 to `/echo?redirected` of the same host, absolute |
//! | `/cookies` | two `Set-Cookie` |
//! | `/kept` | may be cached for an hour, has an ETag and a new text each time |
//! | `/status/404`, `/status/500`, `/status/503` | that status |

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::authority::Identity;
use crate::process::{descendants, signal, wait};
use crate::weir::mode;
use crate::{Client, GROUP, LIMIT, USER, free_address, is_root, wait_for, wait_until};

/// Bytes of `/large`.
pub const LARGE: usize = 3_000_000;

/// A running nginx. It ends when it is dropped.
pub struct Origin {
    folder: PathBuf,
    address: SocketAddr,
    /// Where nginx shows its number of connections, without TLS.
    counter: SocketAddr,
    child: Option<Child>,
    /// Connections that the test itself made, or that existed before.
    own: std::cell::Cell<u64>,
}

/// A request that the origin has answered: a line of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The connection's number, from the start of this nginx.
    pub connection: u64,
    /// The request's number on its connection, from 1.
    pub on_connection: u64,
    /// The request's first line.
    pub line: String,
    /// `Host`, or `:authority`.
    pub host: String,
    /// The name in the TLS handshake. Empty: none.
    pub sni: String,
    /// Whether the connection resumed an earlier TLS session.
    pub resumed: bool,
    /// `TLSv1.3`, or empty.
    pub tls: String,
    /// Whether the request came over HTTP/2.
    pub http2: bool,
    /// The status.
    pub status: u16,
    /// Subject of the client's certificate. Empty: none.
    pub client: String,
}

impl Origin {
    /// Starts an origin over TLS with HTTP/1.1 and HTTP/2 on its own address. Its folder is created in `folder`.
    pub fn tls(folder: &Path, identity: &Identity) -> Origin {
        Origin::start(
            folder,
            free_address(),
            &Origin::listen_tls(identity, true),
            "",
        )
    }

    /// Starts an origin over TLS without HTTP/2.
    pub fn tls_http1(folder: &Path, identity: &Identity) -> Origin {
        Origin::start(
            folder,
            free_address(),
            &Origin::listen_tls(identity, false),
            "",
        )
    }

    /// Starts an origin with HTTP/1.1 and without TLS.
    pub fn plain(folder: &Path) -> Origin {
        Origin::start(folder, free_address(), "listen ADDRESS;", "")
    }

    /// Lines of `server` for TLS. `ADDRESS` stands for the address where it listens.
    pub fn listen_tls(identity: &Identity, http2: bool) -> String {
        let http2 = if http2 { "http2" } else { "" };
        let (cert, key) = (identity.cert.display(), identity.key.display());
        format!("listen ADDRESS ssl {http2}; ssl_certificate {cert}; ssl_certificate_key {key};")
    }

    /// Starts an origin on this address with these lines for `server`: how it listens, and more lines, which may change
    /// the defaults (`keepalive_requests 3;`, `ssl_verify_client on;`, an additional location).
    pub fn start(folder: &Path, address: SocketAddr, listen: &str, more: &str) -> Origin {
        let folder = folder.join(format!("origin-{}-{}", address.ip(), address.port()));
        fs::create_dir_all(&folder).expect("mkdir");
        // If the tests run as root, nginx's worker is another user.
        mode(&folder, 0o777);
        let counter = free_address();
        let text = &"All of this is text. ".repeat(334)[..7000];
        fs::write(folder.join("gzip"), text).expect("a file");
        fs::write(folder.join("large"), vec![b'x'; LARGE]).expect("a file");
        let user = match is_root() {
            true => format!("user {USER} {GROUP};"),
            false => String::new(),
        };
        let text = CONFIGURATION
            .replace("USER", &user)
            .replace("MORE", more)
            .replace("LISTEN", listen)
            .replace("ADDRESS", &address.to_string())
            .replace("COUNTER", &counter.to_string())
            .replace("FOLDER", folder.to_str().expect("a path in UTF-8"));
        fs::write(folder.join("nginx.conf"), text).expect("nginx.conf");
        let mut origin = Origin {
            folder,
            address,
            counter,
            child: None,
            own: std::cell::Cell::new(0),
        };
        origin.go();
        origin
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it and closes all its connections. The address refuses connections until [`Origin::go`].
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let children = descendants(child.id());
            signal(child.id(), Signal::TERM);
            if wait(&mut child, LIMIT).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
            for child in children.iter().filter(|child| child.runs()) {
                signal(child.pid, Signal::KILL);
            }
        }
    }

    /// Starts it again on the same address. Connection numbers begin again at the start. The log continues.
    pub fn go(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let said = File::create(self.folder.join("said")).expect("a file");
        let _ = fs::remove_file(self.folder.join("inner.log"));
        let mut child = Command::new("/usr/sbin/nginx")
            .arg("-c")
            .arg(self.folder.join("nginx.conf"))
            .arg("-e")
            .arg(self.folder.join("error.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("nginx; setup/install.sh test installs it");
        wait_until("the origin accepts connections", || {
            if let Some(status) = child.try_wait().expect("a child of ours") {
                panic!("it ended with {status}:\n{}", self.errors());
            }
            TcpStream::connect(self.counter).is_ok()
        });
        self.child = Some(child);
        // All connections accepted until now were made by this test.
        self.own.set(self.accepted());
    }

    /// How many connections others have made to it since it started, including those without a request.
    pub fn connections(&self) -> u64 {
        let accepted = self.accepted();
        self.own.set(self.own.get() + 1);
        accepted - self.own.get() - self.inner()
    }

    /// The requests so far, in the order in which their answers ended. The line of an answer may come a little after
    /// the answer.
    pub fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.folder.join("access.log")).unwrap_or_default();
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines.map(Call::read).collect()
    }

    /// Waits until it has logged this many calls, and returns all of them.
    #[track_caller]
    pub fn wait_for_calls(&self, count: usize) -> Vec<Call> {
        wait_for(&format!("{count} calls in the origin's log"), || {
            let calls = self.calls();
            (calls.len() >= count).then_some(calls)
        })
    }

    /// How many connections it has made to itself, for `/body`.
    fn inner(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("inner.log")).unwrap_or_default();
        text.lines().count() as u64
    }

    /// Its error log.
    pub fn errors(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("said") + &read("error.log")
    }

    /// How many connections it has accepted.
    fn accepted(&self) -> u64 {
        let mut client = Client::connect(self.counter);
        client.send("GET / HTTP/1.1\r\nHost: counter\r\nConnection: close\r\n\r\n");
        let text = client.response().expect(200).text();
        let numbers = text.lines().nth(2).expect("the line of numbers");
        let accepted = numbers.split_whitespace().next().expect("a number");
        accepted.parse().expect("a number")
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- the origin's log, {}\n{}", self.address, self.errors());
            self.calls().iter().for_each(|call| eprintln!("{call:?}"));
        }
    }
}

impl Call {
    fn read(line: &str) -> Call {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        let number = |key: &str| text(key).parse().expect("a number");
        Call {
            connection: number("connection"),
            on_connection: number("on_connection"),
            line: text("line"),
            host: text("host"),
            sni: text("sni"),
            resumed: text("resumed") == "r",
            tls: text("tls"),
            http2: text("http2") == "h2",
            status: number("status") as u16,
            client: text("client"),
        }
    }
}

/// `MORE` comes before the usual locations: the first matching regular expression counts, and the longest matching
/// prefix.
const CONFIGURATION: &str = r#"
USER daemon off; worker_processes 1; pid FOLDER/pid; error_log FOLDER/error.log info;
events { worker_connections 4096; }
http {
    client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    client_max_body_size 0; keepalive_requests 100000; keepalive_timeout 1h; default_type text/plain;
    ssl_protocols TLSv1.2 TLSv1.3;
    log_format call escape=json '{"connection":"$connection","on_connection":"$connection_requests",'
        '"line":"$request","host":"$http_host","sni":"$ssl_server_name","resumed":"$ssl_session_reused",'
        '"tls":"$ssl_protocol","http2":"$http2","status":"$status","client":"$ssl_client_s_dn"}';
    access_log off;
    server {
        LISTEN
        access_log FOLDER/access.log call;
        add_header X-Origin "ADDRESS";
        MORE
        location / {
            return 200 "method=$request_method\nuri=$request_uri\nprotocol=$server_protocol\nhost=$http_host
sni=$ssl_server_name\nconnection=$connection\nrequest=$connection_requests\nresumed=$ssl_session_reused
client=$ssl_client_s_dn\nuser-agent=$http_user_agent\naccept=$http_accept\naccept-encoding=$http_accept_encoding
authorization=$http_authorization\ncookie=$http_cookie\nx-test=$http_x_test\nx-forwarded-for=$http_x_forwarded_for
forwarded=$http_forwarded\ntraceparent=$http_traceparent\nvia=$http_via\nte=$http_te\nproxy=$http_proxy_authorization
content-type=$content_type\n";
        }
        location = /body {
            proxy_pass http://unix:FOLDER/inner.sock:/;
            proxy_set_header X-Length $content_length;
            proxy_set_header X-Body $request_body;
            proxy_set_header X-Type $content_type;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }
        location = /gzip { gzip on; gzip_min_length 1; gzip_types text/plain; root FOLDER; }
        location = /large { root FOLDER; }
        location = /redirect { return 302 /echo?redirected; }
        location = /cookies { add_header Set-Cookie a=1; add_header Set-Cookie b=2; return 200 "two"; }
        location = /kept { add_header Cache-Control max-age=3600; add_header ETag '"one"'; return 200 "$request_id"; }
        location = /status/404 { return 404; }
        location = /status/500 { return 500; }
        location = /status/503 { return 503; }
    }
    server {
        listen unix:FOLDER/inner.sock;
        access_log FOLDER/inner.log call;
        large_client_header_buffers 4 64k;
        location / { return 200 "length=$http_x_length\ntype=$http_x_type\nbody=$http_x_body\n"; }
    }
    server {
        listen COUNTER;
        location / { stub_status; }
    }
}
"#;
