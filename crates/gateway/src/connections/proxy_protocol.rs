//! Connections that a proxy passes on with the PROXY protocol: the header is read before anything else, also before the
//! connection has a place in the reactor's list.
//!
//! [`weir_semantics::proxy_protocol`] parses the bytes. No byte after the header is read.

use std::{future::poll_fn, net::SocketAddr, sync::Arc};

use weir_config::Listener;
use weir_net::Socket;
use weir_observe::seldom::Seldom;
use weir_semantics::proxy_protocol::{Error, Origin, Parser};
use weir_tls::Info;

use super::{accept::Incoming, client::Conn};
use crate::{Gateway, record::Endpoints};

/// The two ends of a connection to a proxy. `None`: of a unix socket.
#[derive(Debug)]
pub(crate) struct Proxied {
    client: Option<SocketAddr>,
    server: Option<SocketAddr>,
}

/// The ends of a connection without a task, in little memory.
#[derive(Debug)]
pub(crate) enum Ends {
    /// Its peer.
    Own(Option<SocketAddr>),
    /// The proxy, and the addresses from its header.
    Proxied(Box<(Option<SocketAddr>, Proxied)>),
}

impl Ends {
    pub(crate) fn new(peer: Option<SocketAddr>, proxied: Option<Proxied>) -> Ends {
        match proxied {
            None => Ends::Own(peer),
            Some(proxied) => Ends::Proxied(Box::new((peer, proxied))),
        }
    }

    /// The address of the client, if it is known.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        match self {
            Ends::Own(peer) => *peer,
            Ends::Proxied(both) => both.1.client,
        }
    }

    /// The peer, and the addresses from its header if it is a proxy.
    pub(crate) fn parts(self) -> (Option<SocketAddr>, Option<Proxied>) {
        match self {
            Ends::Own(peer) => (peer, None),
            Ends::Proxied(both) => (both.0, Some(both.1)),
        }
    }
}

impl Proxied {
    /// The addresses of a connection whose header was read before.
    fn of(endpoints: &Endpoints) -> Proxied {
        let address = |text: &str, port| {
            let address = text.parse().ok();
            address.map(|address| SocketAddr::new(address, port))
        };
        Proxied {
            client: address(endpoints.remote_addr(), endpoints.remote_port),
            server: address(endpoints.server_addr(), endpoints.server_port),
        }
    }

    /// The ends of the connection as requests see them. `proxy`: the address of the proxy; `tls`: the client's TLS.
    pub(crate) fn endpoints(&self, proxy: Option<SocketAddr>, tls: Option<Arc<Info>>) -> Endpoints {
        let endpoints = Endpoints::new(self.client, self.server, tls);
        match proxy {
            Some(proxy) => endpoints.behind(&proxy.ip().to_canonical().to_string()),
            None => endpoints.behind("unix:"),
        }
    }
}

/// What the header of a connection has said, to be kept with the connection.
pub(crate) fn kept(gateway: &Gateway, conn: &Conn) -> Option<Proxied> {
    let listener = &gateway.config.listeners[usize::from(conn.listener)];
    (listener.proxy_protocol).then(|| Proxied::of(&conn.endpoints))
}

/// Reads the header of a new connection. `local`: the address that the proxy connected to. `None`: the connection is to be
/// closed.
pub(crate) async fn read(
    gateway: &Gateway,
    index: u16,
    mut incoming: Incoming,
    local: Option<SocketAddr>,
) -> Option<Incoming> {
    let index = usize::from(index);
    let listener = &gateway.config.listeners[index];
    let reading = read_header(&incoming.socket);
    let read = tokio::time::timeout(listener.header_timeout, reading).await;
    let (client, server) = match read {
        Ok(Ok(Some(Origin::Own))) => (incoming.peer, local),
        Ok(Ok(Some(Origin::Unix))) => (None, None),
        Ok(Ok(Some(Origin::Ip {
            source,
            destination,
        }))) => (Some(source), Some(destination)),
        // The connection was closed without a byte, as by a health check that only connects.
        Ok(Ok(None)) => return None,
        Ok(Err(error)) => {
            say_closed(listener, incoming.peer, &error.to_string());
            return None;
        }
        Err(_) => {
            say_closed(
                listener,
                incoming.peer,
                "its PROXY header did not come within header_timeout",
            );
            return None;
        }
    };
    if let Some(client) = client
        && !incoming.place.is_of(client.ip())
    {
        gateway.connections.close_for_address(index, client.ip());
        return None;
    }
    incoming.proxied = Some(Proxied { client, server });
    Some(incoming)
}

/// The header; `None`: the connection ended before it was complete, or broke.
async fn read_header(socket: &Socket) -> Result<Option<Origin>, Error> {
    let mut parser = Parser::new(MAX_HEADER);
    loop {
        let mut progress = None;
        let read = poll_fn(|cx| {
            socket.poll_take(cx, |bytes| {
                let result = parser.push(bytes);
                let used = result.map_or(0, |progress| progress.used);
                progress = Some(result);
                used
            })
        });
        match (read.await, progress) {
            (Ok(0) | Err(_), _) => return Ok(None),
            (Ok(_), Some(Err(error))) => return Err(error),
            (Ok(_), Some(Ok(progress))) if progress.origin.is_some() => return Ok(progress.origin),
            (Ok(_), _) => {}
        }
    }
}

fn say_closed(listener: &Listener, peer: Option<SocketAddr>, why: &str) {
    static SAID: Seldom = Seldom::of_connections();
    let Some(more) = SAID.line() else {
        return;
    };
    let name = &listener.name;
    match peer {
        Some(peer) => log::warn!("connection from {peer} to [listen.{name}] closed: {why}{more}"),
        None => log::warn!("connection to [listen.{name}] closed: {why}{more}"),
    }
}

/// The greatest length of a header of version 2, with the values (TLVs) that weir skips, bytes.
const MAX_HEADER: usize = 4096;
