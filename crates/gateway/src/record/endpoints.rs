//! The two ends of a connection, and its TLS, as logs and scripts name them.

use std::{net::SocketAddr, sync::Arc};

use weir_tls::Info;

use crate::policy;

/// The addresses of a connection's two ends, as logs and scripts name them; made once for all its requests, and small,
/// because each connection has one.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The CGI parameters that are the same for all requests of the connection, encoded. The addresses are in them.
    text: Box<str>,
    remote_len: u32,
    server_at: u32,
    server_len: u32,
    /// The client's port; 0 for a unix socket.
    pub(crate) remote_port: u16,
    /// The port that the client connected to; for a unix socket 80, the default port of URLs.
    pub(crate) server_port: u16,
    /// The client's hash for the queue ([`policy::client_of`]); 0 for a unix socket, where clients cannot be told
    /// apart.
    pub(crate) client: u64,
    /// `None`: the connection has no TLS.
    pub(crate) tls: Option<Arc<Info>>,
}

impl Endpoints {
    /// Of a connection to a listener; `None`: an end of a unix socket.
    pub(crate) fn new(
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        tls: Option<Arc<Info>>,
    ) -> Endpoints {
        // An IPv4 address on an IPv6 socket is written as IPv4.
        let text = |address: Option<SocketAddr>| {
            address.map_or_else(
                || "unix:".to_owned(),
                |address| address.ip().to_canonical().to_string(),
            )
        };
        let port = |address: Option<SocketAddr>, none| address.map_or(none, |at| at.port());
        let client = peer.map_or(0, |peer| policy::client_of(peer.ip()));
        let default_port = match tls {
            None => 80,
            Some(_) => 443,
        };
        Endpoints {
            tls,
            ..Endpoints::of(
                (&text(peer), port(peer, 0)),
                (&text(local), port(local, default_port)),
                client,
            )
        }
    }

    /// `http` or `https`
    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls {
            None => "http",
            Some(_) => "https",
        }
    }

    /// Of a connection between these addresses and ports. `client`: its hash.
    pub(crate) fn of(
        (remote_addr, remote_port): (&str, u16),
        (server_addr, server_port): (&str, u16),
        client: u64,
    ) -> Endpoints {
        let mut text = String::with_capacity(REMOTE_AT + remote_addr.len() + 80);
        // As FastCGI encodes short values. A long one comes from a web server, whose own parameters are passed on.
        let mut pair = |name: &str, value: &str| {
            text.extend([name, value].map(|part| char::from(part.len().min(127) as u8)));
            text.push_str(name);
            let at = text.len();
            text.push_str(value);
            at as u32
        };
        pair("REMOTE_ADDR", remote_addr);
        pair("REMOTE_PORT", itoa::Buffer::new().format(remote_port));
        let server_at = pair("SERVER_ADDR", server_addr);
        pair("SERVER_PORT", itoa::Buffer::new().format(server_port));
        Endpoints {
            text: text.into_boxed_str(),
            remote_len: remote_addr.len() as u32,
            server_at,
            server_len: server_addr.len() as u32,
            remote_port,
            server_port,
            client,
            tls: None,
        }
    }

    /// The client's address; `unix:` for a unix socket, as in nginx.
    pub(crate) fn remote_addr(&self) -> &str {
        &self.text[REMOTE_AT..REMOTE_AT + self.remote_len as usize]
    }

    /// The address that the client connected to.
    pub(crate) fn server_addr(&self) -> &str {
        let at = self.server_at as usize;
        &self.text[at..at + self.server_len as usize]
    }

    /// The parameters of a client of weir's own listener, encoded ([`weir_fcgi::client::Params::encoded`]).
    pub(crate) fn params(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Where the client's address is in [`Endpoints`]' text: behind two lengths and `REMOTE_ADDR`.
const REMOTE_AT: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_in_the_parameters() {
        let address = |text: &str| text.parse().ok();
        let ends = Endpoints::new(address("192.0.2.7:5"), address("[2001:db8::1]:80"), None);
        assert_eq!(ends.remote_addr(), "192.0.2.7");
        assert_eq!(ends.server_addr(), "2001:db8::1");
        let mut expected = Vec::new();
        for (name, value) in [
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "5"),
            ("SERVER_ADDR", "2001:db8::1"),
            ("SERVER_PORT", "80"),
        ] {
            weir_fcgi::nv::encode(&mut expected, name.as_bytes(), value.as_bytes());
        }
        assert_eq!(ends.params(), expected);
        assert_eq!(Endpoints::new(None, None, None).remote_addr(), "unix:");
    }
}
