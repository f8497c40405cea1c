//! Connects the carriers to the exchange.

use std::rc::Rc;

use http::StatusCode;
use weir_config::{Listener, Protocol};
use weir_http::{
    Begun, ConnState, Front, Phase, Request, Timeouts, fastcgi,
    h1::{self, Limits},
};
use weir_net::Socket;

use super::{
    Gateway,
    accept::{self, Seat},
    conn::Conn,
    exchange, fastcgi_front,
    record::Record,
};

/// The gateway's side of a connection, and its seat, which is freed with it.
pub(super) struct Seated {
    gateway: &'static Gateway,
    conn: Rc<Conn>,
    seat: Seat,
}

/// A connection of a client.
pub(super) type Http1 = h1::Connection<Seated>;

/// A connection of a web server in front.
pub(super) type FastCgi = fastcgi::Connection<Seated>;

impl Seated {
    /// `seat` is dropped when the connection ends, or moves to another reactor.
    pub(super) fn new(gateway: &'static Gateway, conn: Rc<Conn>, seat: Seat) -> Seated {
        Seated {
            gateway,
            conn,
            seat,
        }
    }

    fn is_of_client(&self) -> bool {
        let listener = &self.gateway.config.listeners[usize::from(self.conn.listener)];
        listener.protocol == Protocol::Http
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

impl Front for Seated {
    type Receipt = Box<Record>;

    fn begin(&self, request: Request) -> Begun<Box<Record>> {
        exchange::begin(self.gateway, &self.conn, request)
    }

    fn state(&self) -> &ConnState {
        &self.conn
    }

    fn is_draining(&self) -> bool {
        self.gateway.drain.has_started()
    }

    fn should_move(&self) -> Option<u16> {
        let (reactors, home) = (&self.gateway.reactors, self.conn.home);
        let moves = self.conn.requests() > 0 && reactors.gives_away(home);
        let to = moves.then(|| reactors.for_idle(home)).flatten();
        to.or((self.conn.phase() == Phase::Resting).then_some(home))
    }

    fn move_away(&mut self, to: u16, socket: Socket) {
        self.seat.move_away(to, self.gateway, &self.conn, socket);
    }

    fn refused(&self, status: StatusCode, reason: &'static str, why: &str) {
        match self.is_of_client() {
            true => exchange::refused_head(self.gateway, &self.conn, status, reason, why),
            false => fastcgi_front::refused(self.gateway, &self.conn, why),
        }
    }

    fn met_tls(&self) {
        let listener = self.listener_name();
        let from = self.conn.endpoints.remote_addr();
        log::info!(
            "a client sent TLS (https://) to [listen.{listener}], which takes plain HTTP (http://), from {from}"
        );
    }

    fn secured(&mut self, socket: Socket) {
        accept::secured(self.gateway, &self.conn, &mut self.seat, socket);
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

impl Seated {
    fn listener_name(&self) -> &str {
        &self.gateway.config.listeners[usize::from(self.conn.listener)].name
    }
}

impl fastcgi::Front for Seated {
    fn capacity(&self) -> fastcgi::Capacity {
        fastcgi_front::capacity(self.gateway, &self.conn)
    }
}
