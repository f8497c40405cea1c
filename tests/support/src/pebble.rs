//! A certificate authority that speaks ACME: Pebble, with its own name server (challtestsrv), which leads all names to one address.

use std::env;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::authority::Authority;
use crate::built::target;
use crate::{free_address, wait_until};

/// A running Pebble. It ends with the test.
pub struct Pebble {
    folder: TempDir,
    authority: Authority,
    address: SocketAddr,
    management: SocketAddr,
    /// The name server, and its API.
    dns: (SocketAddr, SocketAddr),
    names: Child,
    child: Option<Child>,
    habits: Habits,
}

/// How an authority behaves.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// It refuses so many of 100 nonces.
    pub nonces: u32,
    /// Its certificates are valid for so many seconds.
    pub life: u32,
    /// It takes only accounts with a key that it gave ([`Pebble::KEY`]), and has a profile `shortlived`.
    pub only_known: bool,
    /// It looks for texts (HTTP-01) at a port where nothing listens.
    pub misses_texts: bool,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            nonces: 0,
            life: 7_776_000,
            only_known: false,
            misses_texts: false,
        }
    }
}

impl Pebble {
    /// The number of a key for accounts, and the key.
    pub const KEY: (&str, &str) = (
        "kid-1",
        "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W",
    );

    /// From now on it says that a certificate should be renewed between these times (RFC 3339).
    #[track_caller]
    pub fn advise(&self, chain: &std::path::Path, (start, end): (&str, &str)) {
        let text = fs::read_to_string(chain).expect("a chain");
        let end_of_first = "-----END CERTIFICATE-----\n";
        let first = text.split_inclusive(end_of_first).next().expect("PEM");
        let window = serde_json::json!({ "suggestedWindow": { "start": start, "end": end } });
        let body = serde_json::json!({ "certificate": first, "ariResponse": window.to_string() });
        let output = Command::new("curl")
            .args(["-sS", "--fail", "--insecure", "-d", &body.to_string()])
            .arg(format!("https://{}/set-renewal-info/", self.management))
            .output()
            .expect("curl");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }

    /// Prepares one that tries names at `ip`: without TLS at one port, with TLS at the other. It does not run yet.
    #[track_caller]
    pub fn new(ip: IpAddr, (plain, tls): (u16, u16), habits: Habits) -> Pebble {
        let folder = TempDir::with_prefix("weir-pebble-").expect("a temporary folder");
        let authority = Authority::new();
        let [address, management, dns, dns_management] = [(); 4].map(|()| free_address());
        let own = authority.server(&[&format!("IP:{}", address.ip())]);
        let mut config = serde_json::json!({ "pebble": {
            "listenAddress": address.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": own.cert,
            "privateKey": own.key,
            "httpPort": if habits.misses_texts { 1 } else { plain },
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": habits.only_known,
            "externalAccountMACKeys": { Pebble::KEY.0: Pebble::KEY.1 },
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": {
                "default": { "description": "usual", "validityPeriod": habits.life },
            },
        }});
        if habits.only_known {
            // If an order names no profile, Pebble takes any.
            config["pebble"]["profiles"]["shortlived"] =
                serde_json::json!({ "description": "six days", "validityPeriod": 518_400 });
        }
        fs::write(folder.path().join("pebble.json"), config.to_string()).expect("a file");
        let names = Command::new(program("pebble-challtestsrv"))
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-defaultIPv6", "", "-defaultIPv4", &ip.to_string()])
            .args(["-dnsserver", &dns.to_string()])
            .args(["-management", &dns_management.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("challtestsrv; setup/pebble.sh installs it");
        wait_until("the name server", || {
            TcpStream::connect(dns_management).is_ok()
        });
        Pebble {
            folder,
            authority,
            address,
            management,
            dns: (dns, dns_management),
            names,
            child: None,
            habits,
        }
    }

    /// Its name server.
    pub fn names(&self) -> SocketAddr {
        self.dns.0
    }

    /// The API of its name server.
    pub fn name_api(&self) -> SocketAddr {
        self.dns.1
    }

    /// From its next start on it asks this name server.
    pub fn ask_names_of(&mut self, server: SocketAddr) {
        self.dns.0 = server;
    }

    /// Adds a TXT record.
    #[track_caller]
    pub fn set_txt(&self, name: &str, value: &str) {
        let body = serde_json::json!({ "host": format!("{name}."), "value": value });
        let status = Command::new("curl")
            .args(["-sS", "--fail", "-d", &body.to_string()])
            .arg(format!("http://{}/set-txt", self.dns.1))
            .status()
            .expect("curl");
        assert!(status.success());
    }

    /// From its next start on it looks for texts (HTTP-01) at this port.
    pub fn try_texts_at(&self, port: u16) {
        let file = self.folder.path().join("pebble.json");
        let text = fs::read_to_string(&file).expect("a configuration");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        config["pebble"]["httpPort"] = port.into();
        fs::write(file, config.to_string()).expect("a file");
    }

    /// Starts it, or starts it again: it knows nothing of before.
    #[track_caller]
    pub fn come(&mut self) {
        let log = || File::create(self.folder.path().join("log")).expect("a log");
        let child = Command::new(program("pebble"))
            .arg("-config")
            .arg(self.folder.path().join("pebble.json"))
            .args(["-dnsserver", &self.dns.0.to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            // Each order proves its names.
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", self.habits.nonces.to_string())
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("pebble; setup/pebble.sh installs it");
        self.child = Some(child);
        wait_until("pebble", || {
            [self.address, self.management]
                .iter()
                .all(|address| TcpStream::connect(address).is_ok())
        });
    }

    /// Ends it.
    pub fn go(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `[tls.acme]` of a weir.toml.
    pub fn toml(&self) -> String {
        format!(
            "[tls.acme]\ndirectory = \"https://{}/dir\"\nca_file = \"{}\"\nemail = \"ops@shop.example\"",
            self.address,
            self.authority.file().display()
        )
    }

    /// The file of its root certificate, which it makes at its start.
    #[track_caller]
    pub fn root(&self) -> PathBuf {
        let output = Command::new("curl")
            .args(["-sS", "--fail", "--cacert"])
            .arg(self.authority.file())
            .arg("--insecure")
            .arg(format!("https://{}/roots/0", self.management))
            .output()
            .expect("curl");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let file = self.folder.path().join("root.pem");
        fs::write(&file, output.stdout).expect("a file");
        file
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.go();
        let _ = self.names.kill();
        let _ = self.names.wait();
    }
}

/// Where setup/pebble.sh puts programs: beside the tests' target folder, or in `WEIR_PEBBLE`.
fn program(name: &str) -> PathBuf {
    if let Some(folder) = env::var_os("WEIR_PEBBLE") {
        return PathBuf::from(folder).join(name);
    }
    target().join("pebble").join(name)
}
