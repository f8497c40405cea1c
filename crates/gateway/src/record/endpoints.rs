//! The two ends of a connection, and its TLS, as logs and scripts name them.

use std::{net::SocketAddr, sync::Arc};

use weir_tls::Info;

use crate::scripts::policy;

/// The addresses of a connection's two ends, as logs and scripts name them; made once for all its requests, and small,
/// because each connection has one.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The CGI parameters that are the same for all requests of the connection, encoded. The addresses are in them. Behind
    /// them is the address of the proxy that passed the request on.
    text: Box<str>,
    remote_len: u32,
    server_len: u32,
    /// The client's port; 0 for a unix socket.
    pub(crate) remote_port: u16,
    /// The port that the client connected to; for a unix socket 80, the default port of URLs.
    pub(crate) server_port: u16,
    /// The client used https, with weir or with a proxy in front.
    pub(crate) is_https: bool,
    /// A trusted proxy has said which host the client asked for. The proxy's own connection may name another.
    pub(crate) is_host_forwarded: bool,
    /// The client's hash for the queue ([`policy::client_of`]); 0 for a unix socket, where clients cannot be told
    /// apart.
    pub(crate) client: u64,
    /// `None`: the connection has no TLS.
    pub(crate) tls: Option<Arc<Info>>,
}

impl Endpoints {
    /// The ends of a connection to a listener; `None`: an end of a unix socket.
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
            is_https: tls.is_some(),
            tls,
            ..Endpoints::of(
                (&text(peer), port(peer, 0)),
                (&text(local), port(local, default_port)),
                client,
            )
        }
    }

    /// The same connection, passed on by a proxy at `peer`.
    pub(crate) fn behind(mut self, peer: &str) -> Endpoints {
        self.text = [&self.text[..self.params_len()], peer]
            .concat()
            .into_boxed_str();
        self
    }

    /// `http` or `https`
    pub(crate) fn scheme(&self) -> &'static str {
        match self.is_https {
            false => "http",
            true => "https",
        }
    }

    /// The ends of a connection between these addresses and ports. `client`: hash of the client.
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
            text.push_str(value);
        };
        pair("REMOTE_ADDR", remote_addr);
        pair("REMOTE_PORT", itoa::Buffer::new().format(remote_port));
        pair("SERVER_ADDR", server_addr);
        pair("SERVER_PORT", itoa::Buffer::new().format(server_port));
        Endpoints {
            text: text.into_boxed_str(),
            is_https: false,
            is_host_forwarded: false,
            remote_len: remote_addr.len() as u32,
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

    /// The address that the connection comes from: the client's, or that of a proxy.
    pub(crate) fn peer_addr(&self) -> &str {
        match &self.text[self.params_len()..] {
            "" => self.remote_addr(),
            peer => peer,
        }
    }

    /// The address that the client connected to.
    pub(crate) fn server_addr(&self) -> &str {
        let at = self.server_at();
        &self.text[at..at + self.server_len as usize]
    }

    /// The parameters of a client of weir's own listener, encoded ([`weir_fcgi::client::Params::encoded`]).
    pub(crate) fn params(&self) -> &[u8] {
        self.text[..self.params_len()].as_bytes()
    }

    /// Where the server's address begins.
    fn server_at(&self) -> usize {
        REMOTE_AT + self.remote_len as usize + PORT_LEN + digits(self.remote_port) + REMOTE_AT
    }

    /// Where the parameters end.
    fn params_len(&self) -> usize {
        self.server_at() + self.server_len as usize + PORT_LEN + digits(self.server_port)
    }
}

fn digits(port: u16) -> usize {
    port.checked_ilog10().map_or(1, |tens| tens as usize + 1)
}

/// Where the client's address is in [`Endpoints`]' text: behind two lengths and `REMOTE_ADDR`. `SERVER_ADDR` is as long.
const REMOTE_AT: usize = 13;
/// Two lengths and `REMOTE_PORT`, or `SERVER_PORT`.
const PORT_LEN: usize = 13;

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
        let ends = ends.behind("10.0.0.1");
        assert_eq!(ends.params(), expected);
        assert_eq!(
            (ends.peer_addr(), ends.server_addr()),
            ("10.0.0.1", "2001:db8::1")
        );
        assert_eq!(ends.behind("10.0.0.2").peer_addr(), "10.0.0.2");
        let ends = Endpoints::new(None, None, None);
        assert_eq!(
            (ends.remote_addr(), ends.peer_addr(), ends.server_addr()),
            ("unix:", "unix:", "unix:")
        );
    }
}
