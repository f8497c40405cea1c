//! The real binary with TLS: certificates by name, client certificates, tickets, changed files and the keeper of private
//! keys; with curl and openssl as clients.

mod acme;
mod browser;
mod clients;
mod clock;
mod conformance;
mod dns;
mod files;
mod http;
mod http2;
mod http2_reloads;
mod http3;
mod http3_attacks;
mod http3_browser;
mod http3_checks;
mod http3_limits;
mod http3_memory;
mod http3_shared;
mod keeper;
mod local_ca;
mod many;
mod names;
mod nodes;
mod on_demand;
mod tickets;
mod tutorial;
mod upgrade;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use weir_test::authority::{Authority, Identity};
use weir_test::{Setup, Weir, php};

/// An authority, and a weir that serves `main.test` and `other.test` over TLS with certificates of it.
struct Tls {
    authority: Authority,
    setup: Setup,
}

impl Tls {
    fn new() -> Tls {
        let authority = Authority::new();
        let main = authority.server(&["DNS:main.test", "DNS:*.main.test"]);
        let setup = Setup::new();
        let address = setup.address().ip();
        let other = authority.server(&["DNS:other.test", &format!("IP:{address}")]);
        let [of_main, of_other] = [("main", &main), ("other", &other)]
            .map(|(name, identity)| install(&setup, name, identity));
        let root = setup.folder().join("other");
        fs::create_dir(&root).expect("mkdir");
        fs::write(root.join("index.html"), "other\n").expect("a file");
        let setup = setup
            .file("index.html", "main\n")
            .listen("tls = true")
            .site("hosts = [\"main.test\", \"*.main.test\"]")
            .more(&of_main)
            .more(&of_other)
            .more(&format!(
                "[site.other]\nhosts = [\"other.test\", \"{address}\"]\nroot = \"{}\"",
                root.display()
            ));
        Tls { authority, setup }
    }

    /// With a pool of weir's own PHP, whose script shows the parameters that it gets.
    fn with_php(mut self) -> Tls {
        self.setup = self
            .setup
            .file(
                "params.php",
                "<?php header('Content-Type: application/json'); echo json_encode($_SERVER);",
            )
            .pool(&format!(
                "runtime = \"php\"\nmax_children = 4\n{}",
                php::identity()
            ));
        self
    }

    /// Changes the setup.
    fn with(mut self, change: impl FnOnce(Setup) -> Setup) -> Tls {
        self.setup = change(self.setup);
        self
    }

    fn start(self) -> (Weir, Authority) {
        (self.setup.start(), self.authority)
    }
}

/// Copies a certificate and its key to the test's folder; the key for the owner alone. Returns its table.
fn install(setup: &Setup, name: &str, identity: &Identity) -> String {
    let folder = setup.folder();
    let [chain, key] = ["pem", "key"].map(|kind| folder.join(format!("{name}.{kind}")));
    fs::copy(&identity.cert, &chain).expect("a copy");
    fs::copy(&identity.key, &key).expect("a copy");
    weir_test::weir::mode(&key, 0o600);
    format!(
        "[certificate.{name}]\nchain = \"{}\"\nkey = \"{}\"",
        chain.display(),
        key.display()
    )
}

/// What curl got.
struct Got {
    status: u16,
    body: Vec<u8>,
    /// curl's own words if it failed.
    error: String,
}

impl Got {
    #[track_caller]
    fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }
}

/// Runs curl for a URL of `host`, which trusts `authority`.
fn curl(weir: &Weir, authority: &Authority, host: &str, path: &str, words: &[&str]) -> Got {
    let address = weir.address();
    let url = format!("https://{host}:{}{path}", address.port());
    let resolve = format!("{host}:{}:{}", address.port(), address.ip());
    let mut command = Command::new("curl");
    command
        .args([
            "-s",
            "--max-time",
            "60",
            "-w",
            "\n%{http_code} %{errormsg}",
            "--resolve",
            &resolve,
        ])
        .arg("--cacert")
        .arg(authority.file())
        .args(words)
        .arg(&url);
    let output = command
        .output()
        .expect("curl; setup/install.sh test installs it");
    let end = output
        .stdout
        .iter()
        .rposition(|byte| *byte == b'\n')
        .expect("curl's last line");
    let last = String::from_utf8_lossy(&output.stdout[end + 1..]).into_owned();
    let (status, error) = last.split_once(' ').expect("a status");
    Got {
        status: status.parse().expect("a number"),
        body: output.stdout[..end].to_vec(),
        error: error.to_owned(),
    }
}

/// Runs openssl s_client, sends `input` and waits for the end of the connection. Returns what it says.
fn s_client(address: SocketAddr, words: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-ign_eof"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl");
    let mut stdin = child.stdin.take().expect("stdin");
    // A refused connection takes no place.
    let _ = stdin.write_all(input.as_bytes());
    child.wait_with_output().expect("openssl's output")
}

/// What openssl says of a connection with one request, which the server closes.
fn said(address: SocketAddr, host: &str, words: &[&str]) -> String {
    let mut all = vec!["-servername", host];
    all.extend(words);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let output = s_client(address, &all, &request);
    [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat()
}

/// Puts a file in the place of another in one step.
fn replace(path: &Path, with: &Path) {
    let new = path.with_extension("new");
    fs::copy(with, &new).expect("a copy");
    fs::rename(new, path).expect("rename");
}
