//! The handshake of TLS on a new connection: a future that ends when the connection can speak HTTP, or is closed.
//!
//! It has the deadline of a request head. A connection that shakes hands has no request and no buffer of a carrier.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::StatusCode;
use tokio::io::AsyncWriteExt;
use weir_net::{Failed, LAST_WRITE, Socket, linger};
use weir_observe::clock;
use weir_tls::{Broken, Session};

use crate::{Handshakes, closing::Closing};

/// A connection that shakes hands.
pub struct Handshake<X> {
    front: X,
    /// `None` once it is over.
    socket: Option<Socket>,
    /// The handshake waits for a certificate on demand, which has a limit of its own.
    waits: bool,
    /// The handshake has waited for a certificate.
    has_waited: bool,
    /// The end of a connection after an error.
    closing: Option<Closing>,
}

impl<X: Handshakes<Socket>> Handshake<X> {
    /// With `socket`, which has TLS.
    pub fn new(front: X, socket: Socket) -> Self {
        Handshake {
            front,
            socket: Some(socket),
            waits: false,
            has_waited: false,
            closing: None,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.front.state();
        state.remember_waker(cx.waker());
        if let Some(closing) = &mut self.closing {
            return closing.poll(cx, state, self.front.is_draining());
        }
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(());
        };
        let now = clock::now();
        if state.overdue(now) {
            if !self.waits {
                self.front.failed("it took longer than header_timeout");
                return Poll::Ready(());
            }
            self.front
                .failed("it took longer than ask_wait to get a certificate on demand");
            socket.refuse_handshake(cx);
            return self.linger(cx);
        }
        let shaken = socket.poll_handshake(cx);
        let waits = socket.tls().and_then(Session::waits);
        if self.waits != waits.is_some() {
            self.waits = waits.is_some();
            self.has_waited = true;
            let limit = waits.unwrap_or(state.timeouts.header);
            state.wake_at(clock::deadline(limit));
        }
        match shaken {
            // The manager finishes orders that it has begun, also for clients of a gateway that drains. The deadline still applies.
            Poll::Pending if self.has_waited && !state.is_unwanted() => Poll::Pending,
            // The handshake is given up to make room for other connections, or because the gateway ends.
            Poll::Pending if state.is_over(self.front.is_draining(), now) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                if let Some(socket) = self.socket.take() {
                    self.front.shaken(socket);
                }
                Poll::Ready(())
            }
            Poll::Ready(Err(error)) => {
                let inner = error
                    .get_ref()
                    .and_then(|inner| inner.downcast_ref::<Failed>());
                match inner {
                    Some(Failed(Broken::PlainHttp)) => return self.refuse_plain(cx),
                    Some(Failed(broken)) => self.front.failed(&broken.to_string()),
                    // A client that opens a connection and closes it again is a health check, or has changed its mind.
                    None => {
                        self.front.failed("");
                        return Poll::Ready(());
                    }
                }
                self.linger(cx)
            }
        }
    }

    /// Ends the connection. The client reads the alert, also if it has sent more already.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = self.socket.take();
        self.close(cx, async move {
            if let Some(socket) = socket {
                linger(socket).await;
            }
        })
    }

    /// Ends the connection with this.
    fn close(&mut self, cx: &mut Context<'_>, end: impl Future<Output = ()> + 'static) -> Poll<()> {
        let state = self.front.state();
        let closing = self.closing.insert(Closing::new(state, end));
        closing.poll(cx, state, self.front.is_draining())
    }

    /// Tells the client that it should use https.
    fn refuse_plain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut socket) = self.socket.take() else {
            return Poll::Ready(());
        };
        let status = StatusCode::BAD_REQUEST;
        self.front
            .refused(status, "plain_http", "HTTP without TLS on a port for https");
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{USE_HTTPS}",
            USE_HTTPS.len()
        );
        self.close(cx, async move {
            let _ = tokio::time::timeout(LAST_WRITE, socket.write_all(answer.as_bytes())).await;
            linger(socket).await;
        })
    }
}

impl<X: Handshakes<Socket>> Future for Handshake<X> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        clock::frozen(|| this.turn(cx))
    }
}

/// The answer to a client that sends HTTP to a port for https.
const USE_HTTPS: &str =
    "This port speaks HTTPS, but the request came as plain HTTP: use https:// in the address.\n";
