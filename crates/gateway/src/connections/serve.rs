//! Connects the carriers to the exchange.

use std::rc::Rc;

use http::StatusCode;
use weir_config::{Http2, Listener, Protocol};
use weir_http::{
    Begun, ConnState, Front, Handshakes, Head, Phase, Request, Timeouts, Tunnelled, fastcgi,
    h1::{self, Limits},
    h2, h3, multiplex,
};
use weir_net::Socket;
use weir_observe::seldom::Seldom;

use super::{
    accept::{self, ConnectionGuard},
    client::Conn,
    quic,
};
use crate::{
    Gateway,
    access::forwarded,
    exchange::{self, fastcgi_front},
    record::Record,
};

/// The gateway's side of a connection, and its guard, which is freed with it.
pub(crate) struct ClientFront {
    gateway: &'static Gateway,
    conn: Rc<Conn>,
    /// `None` once another carrier serves the connection.
    guard: Option<ConnectionGuard>,
}

/// A connection of a client.
pub(crate) type Http1 = h1::Connection<ClientFront>;

/// A connection of a web server in front.
pub(crate) type FastCgi = fastcgi::Connection<ClientFront>;

impl ClientFront {
    /// `guard` is dropped when the connection ends, or moves to another reactor.
    pub(crate) fn new(
        gateway: &'static Gateway,
        conn: Rc<Conn>,
        guard: ConnectionGuard,
    ) -> ClientFront {
        ClientFront {
            gateway,
            conn,
            guard: Some(guard),
        }
    }

    fn listener(&self) -> &'static Listener {
        &self.gateway.config.listeners[usize::from(self.conn.listener)]
    }

    fn is_of_client(&self) -> bool {
        self.listener().protocol == Protocol::Http
    }
}

/// Serves `socket` by HTTP/2, which its client has chosen. `ahead`: bytes that were read from it.
pub(crate) fn http2(
    front: ClientFront,
    socket: Socket,
    ahead: Vec<u8>,
) -> h2::Connection<ClientFront> {
    let limits = stream_limits(front.listener());
    let memory = &front.gateway.http2_memory;
    h2::Connection::new(front, socket, ahead, limits, memory)
}

/// Serves `quic`, which carries HTTP/3.
pub(crate) fn http3(
    front: ClientFront,
    quic: weir_net::quic::Connection,
) -> h3::Connection<ClientFront> {
    let limits = stream_limits(front.listener());
    let memory = &front.gateway.http3_memory;
    h3::Connection::new(front, quic, limits, memory)
}

/// The limits of connections with several requests.
fn stream_limits(listener: &Listener) -> multiplex::Limits {
    let (heads, limits) = (limits(listener), &listener.http2_limits);
    multiplex::Limits {
        head: heads.head,
        fields: heads.fields,
        streams: limits.streams,
        resets: limits.resets,
        pings: limits.pings,
        settings: limits.settings,
        small_frames: limits.small_frames,
        stream_window: limits.stream_window,
        window: limits.window,
        ping: limits.ping,
    }
}

/// The limits of a listener's messages.
pub(crate) fn limits(listener: &Listener) -> Limits {
    let most = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Limits {
        head: most(listener.max_head),
        fields: most(listener.max_headers),
        ..Limits::default()
    }
}

/// The timeouts of a listener's connections.
pub(crate) fn timeouts(listener: &Listener) -> Timeouts {
    Timeouts {
        header: listener.header_timeout,
        body: listener.body_timeout,
        idle: listener.idle_timeout,
        send: listener.send_timeout,
    }
}

impl Front for ClientFront {
    type Receipt = Box<Record>;

    fn begin(&self, request: Request) -> Begun<Box<Record>> {
        exchange::begin(self.gateway, &self.conn, request)
    }

    fn state(&self) -> &ConnState {
        &self.conn
    }

    fn client_of(&self, head: &Head) -> u64 {
        let client = forwarded::client_of(self.gateway, &self.conn.endpoints, &head.fields);
        match client == self.conn.endpoints.client {
            true => 0,
            false => client,
        }
    }

    fn is_draining(&self) -> bool {
        self.gateway.drain.has_started()
    }

    fn should_move(&self) -> Option<u16> {
        let (reactors, home) = (&self.gateway.reactors, self.conn.home);
        if self.is_draining() {
            return self.gateway.next.takes(self.listener()).then_some(home);
        }
        let moves = self.conn.requests() > 0 && reactors.gives_away(home);
        let to = moves.then(|| reactors.for_idle(home)).flatten();
        to.or((self.conn.phase() == Phase::Resting).then_some(home))
    }

    fn move_away(&mut self, to: u16, socket: Socket) {
        if let Some(guard) = &mut self.guard {
            guard.move_away(to, self.gateway, &self.conn, socket);
        }
    }

    fn refused(&self, status: StatusCode, reason: &'static str, why: &str) {
        match self.is_of_client() {
            true => exchange::refused_head(self.gateway, &self.conn, status, reason, why),
            false => fastcgi_front::refused(self.gateway, &self.conn, why),
        }
    }

    fn limit_exceeded(&self, what: &str) {
        static SAID: Seldom = Seldom::of_connections();
        let Some(more) = SAID.line() else {
            return;
        };
        let (listener, from) = (self.listener_name(), self.conn.endpoints.remote_addr());
        log::warn!(
            "closed an {} connection: its client exceeded {what} of [listen.{listener}], from {from}{more}",
            match &self.conn.endpoints.tls {
                Some(info) if info.http3 => "HTTP/3",
                _ => "HTTP/2",
            }
        );
    }
}

impl ClientFront {
    fn listener_name(&self) -> &str {
        &self.listener().name
    }

    fn handshake_failed(&self, why: &str) {
        let (listener, from) = (self.listener_name(), self.conn.endpoints.remote_addr());
        match why {
            "" => log::debug!(
                "a client of [listen.{listener}] closed its connection before TLS began, from {from}"
            ),
            // Everybody who scans the internet causes such lines.
            why => log::debug!("TLS handshake on [listen.{listener}] failed: {why}, from {from}"),
        }
    }
}

impl h1::Front for ClientFront {
    fn met_tls(&self) {
        let listener = self.listener_name();
        let from = self.conn.endpoints.remote_addr();
        log::info!(
            "a client sent TLS (https://) to [listen.{listener}], which takes plain HTTP (http://), from {from}"
        );
    }

    fn takes_http2(&self) -> bool {
        self.listener().http2 == Http2::Clear
    }

    fn serve_http2(&mut self, socket: Socket, ahead: Vec<u8>) -> Tunnelled {
        let front = ClientFront {
            gateway: self.gateway,
            conn: self.conn.clone(),
            guard: self.guard.take(),
        };
        Box::pin(http2(front, socket, ahead))
    }
}

impl Handshakes<Socket> for ClientFront {
    fn shaken(&mut self, socket: Socket) {
        if let Some(guard) = &mut self.guard {
            accept::secured(self.gateway, &self.conn, guard, socket);
        }
    }

    fn failed(&self, why: &str) {
        self.handshake_failed(why);
    }
}

impl Handshakes<weir_net::quic::Connection> for ClientFront {
    fn shaken(&mut self, quic: weir_net::quic::Connection) {
        if let Some(guard) = &mut self.guard {
            quic::connected(self.gateway, &self.conn, guard, quic);
        }
    }

    fn failed(&self, why: &str) {
        self.handshake_failed(why);
    }
}

impl fastcgi::Front for ClientFront {
    fn capacity(&self) -> fastcgi::Capacity {
        fastcgi_front::capacity(self.gateway, &self.conn)
    }

    fn plays_filters(&self) -> bool {
        fastcgi_front::plays_filters(self.gateway, &self.conn)
    }
}
