//! Joins the carrier of HTTP/1 to the exchange.

use std::sync::Arc;

use http::StatusCode;
use weir_config::Listener;

use super::{
    Gateway,
    conn::Conn,
    exchange::{self, exchange},
    record::Record,
};
use crate::{
    http::{
        ConnState, Front,
        h1::{Connection, Limits},
    },
    net::Socket,
};

/// The gateway's side of a connection. `S` is the connection's seat, which is freed with it.
struct Seated<S> {
    gateway: Arc<Gateway>,
    conn: Arc<Conn>,
    _seat: S,
}

/// Serves `socket` until the connection ends; `seat` is dropped then.
pub(crate) fn serve<S: Send + Unpin>(
    gateway: Arc<Gateway>,
    socket: Socket,
    conn: Arc<Conn>,
    limits: Limits,
    seat: S,
) -> impl Future<Output = ()> + Send {
    let front = Seated {
        gateway,
        conn,
        _seat: seat,
    };
    let begin = |front: &Seated<S>, request| exchange(&front.gateway, &front.conn, request);
    Connection::new(front, begin, socket, limits)
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

impl<S: Send + Unpin> Front for Seated<S> {
    type Receipt = Box<Record>;

    fn state(&self) -> &ConnState {
        &self.conn
    }

    fn is_draining(&self) -> bool {
        self.gateway.drain.has_started()
    }

    fn refused(&self, status: StatusCode, reason: &'static str, why: &str) {
        exchange::refused_head(&self.gateway, &self.conn, status, reason, why);
    }

    fn met_tls(&self) {
        let listener = &self.gateway.config.listeners[usize::from(self.conn.listener)].name;
        let from = &self.conn.ends.remote_addr;
        log::info!(
            "a client sent TLS (https://) to [listen.{listener}], which takes plain HTTP (http://), from {from}"
        );
    }
}
