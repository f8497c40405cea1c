//! A weir with `[egress]`: the test's own host names, rules about which hosts may be called, and calls.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::authority::Authority;
use crate::dns::{Dns, Says};
use crate::weir::request;
use crate::{Client, Response, Setup, Weir, free_address, wait_until};

/// The configuration and the helpers that are prepared before weir starts.
pub struct Outward {
    /// The authority that weir trusts for every name of [`Outward::name`].
    pub authority: Authority,
    dns: Dns,
    address: SocketAddr,
    allow: Vec<String>,
    hosts: Vec<String>,
    listen: Vec<String>,
    lines: String,
    usual: String,
    tables: String,
}

/// A running weir that forwards outgoing calls.
pub struct Sidecar {
    /// The weir.
    pub weir: Weir,
    /// The name server that weir uses.
    pub dns: Dns,
    /// The authority that weir trusts.
    pub authority: Authority,
    /// Where weir takes calls.
    pub address: SocketAddr,
}

impl Outward {
    /// Allows no host yet.
    pub fn new() -> Outward {
        let address = free_address();
        Outward {
            authority: Authority::new(),
            dns: Dns::start(),
            address,
            listen: vec![format!("\"{address}\"")],
            allow: Vec::new(),
            hosts: Vec::new(),
            lines: String::new(),
            usual: String::new(),
            tables: String::new(),
        }
    }

    /// Where weir will take calls.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name server. It knows what [`Outward::name`] told it.
    pub fn dns(&self) -> &Dns {
        &self.dns
    }

    /// The name has this address, may be called by https at its port, and is trusted if its certificate comes from
    /// [`Outward::authority`].
    pub fn name(self, name: &str, address: SocketAddr) -> Outward {
        self.lead(name, address, "")
    }

    /// The same without TLS.
    pub fn plain_name(self, name: &str, address: SocketAddr) -> Outward {
        self.lead(name, address, "http://")
    }

    fn lead(mut self, name: &str, address: SocketAddr, scheme: &str) -> Outward {
        self.dns.says(name, Says::Addresses(vec![address.ip()], 60));
        let host = format!("{scheme}{name}:{}", address.port());
        self.allow.push(format!(
            "{{ host = \"{host}\", addresses = [\"127.0.0.0/8\"] }}"
        ));
        self.hosts.push(format!("\"{host}\""));
        self
    }

    /// Adds an entry of `allow` as it is written in weir.toml, with its quotes or braces.
    pub fn allow(mut self, entry: &str) -> Outward {
        self.allow.push(entry.to_owned());
        self
    }

    /// Also takes calls at this address (`unix:PATH`).
    pub fn listen(mut self, address: &str) -> Outward {
        self.listen.push(format!("\"{address}\""));
        self
    }

    /// Lines of `[egress]`.
    pub fn lines(mut self, lines: &str) -> Outward {
        self.lines.push_str(lines);
        self.lines.push('\n');
        self
    }

    /// Adds lines to the table that applies to every name of [`Outward::name`] (`[egress.host.usual]`).
    pub fn usual(mut self, lines: &str) -> Outward {
        self.usual.push_str(lines);
        self.usual.push('\n');
        self
    }

    /// Adds whole tables. weir uses the first matching host table, and these come first.
    pub fn tables(mut self, tables: &str) -> Outward {
        self.tables.push_str(tables);
        self.tables.push('\n');
        self
    }

    /// Its part of weir.toml, without `resolver` of `[server]`.
    pub fn toml(&self) -> String {
        let mut text = format!("[egress]\nlisten = [{}]\n", self.listen.join(", "));
        text.push_str(&format!("allow = [\n{}\n]\n", self.allow.join(",\n")));
        text.push_str(&self.lines);
        text.push_str(&self.tables);
        if !self.hosts.is_empty() {
            let (hosts, ca) = (self.hosts.join(", "), self.authority.file());
            text.push_str(&format!(
                "[egress.host.usual]\nhosts = [{hosts}]\nca_file = \"{}\"\n{}",
                ca.display(),
                self.usual
            ));
        }
        text
    }

    /// Adds all of this to a weir.
    pub fn prepare(&self, setup: Setup) -> Setup {
        let resolver = format!("resolver = [\"{}\"]", self.dns.address());
        setup.server(&resolver).more(&self.toml())
    }

    /// Starts a weir without a site's pool.
    #[track_caller]
    pub fn start(self) -> Sidecar {
        self.start_in(Setup::new())
    }

    /// Starts a weir with more preparations.
    #[track_caller]
    pub fn start_in(self, setup: Setup) -> Sidecar {
        let weir = self.prepare(setup).start();
        wait_until("weir takes calls", || {
            std::net::TcpStream::connect(self.address).is_ok()
        });
        Sidecar {
            weir,
            dns: self.dns,
            authority: self.authority,
            address: self.address,
        }
    }
}

impl Sidecar {
    /// Connects as a caller.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// GET in the path form (`/api.test:8443/v1`) or the proxy form (`http://api.test/v1`), over a new connection.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.call("GET", target, &[], b"")
    }

    /// Makes any call over a new connection.
    #[track_caller]
    pub fn call(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        // As every client of a proxy sends it: `Host` is the same as in the target (RFC 9112 §3.2.2).
        let after = target.split_once("://").map(|(_, rest)| rest);
        let authority = after.map(|rest| rest.split('/').next().unwrap_or_default());
        let says_host = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let mut headers = headers.to_vec();
        headers.extend(authority.filter(|_| !says_host).map(|host| ("Host", host)));
        let mut client = self.client();
        client.send(request(method, target, &headers, body));
        client.response_to(method)
    }

    /// The value of a key in the text of `/echo` and similar paths.
    pub fn value(text: &str, key: &str) -> String {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value
            .unwrap_or_else(|| panic!("{key} in {text}"))
            .to_owned()
    }

    /// A file in the test's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.weir.folder().join(name)
    }
}
