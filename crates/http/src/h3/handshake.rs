//! The handshake of a connection of QUIC: a future that ends when the connection can carry HTTP/3, or is closed. It has the deadline
//! of a request head.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use quinn_proto::Event;
use weir_net::quic;
use weir_observe::clock;

use crate::Handshakes;

/// A connection that shakes hands.
pub struct Handshake<X> {
    front: X,
    /// `None` once it is over.
    quic: Option<quic::Connection>,
}

impl<X: Handshakes<quic::Connection>> Handshake<X> {
    /// The handshake of `quic`, which was accepted.
    pub fn new(front: X, quic: quic::Connection) -> Self {
        Handshake {
            front,
            quic: Some(quic),
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.front.state();
        state.remember_waker(cx.waker());
        let Some(quic) = &mut self.quic else {
            return Poll::Ready(());
        };
        let now = clock::now();
        if state.overdue(now) {
            self.front.failed("it took longer than header_timeout");
            return Poll::Ready(());
        }
        if quic.drive(cx) {
            cx.waker().wake_by_ref();
        }
        while let Some(event) = quic.next_event() {
            match event {
                Event::Connected => {
                    // Bytes after the handshake are for the carrier.
                    if let Some(quic) = self.quic.take() {
                        self.front.shaken(quic);
                    }
                    return Poll::Ready(());
                }
                Event::ConnectionLost { reason } => {
                    self.front.failed(&reason.to_string());
                    return Poll::Ready(());
                }
                _ => {}
            }
        }
        match state.is_over(self.front.is_draining(), now) {
            // The handshake is given up to make room for other connections, or because the gateway ends.
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl<X: Handshakes<quic::Connection>> Future for Handshake<X> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        clock::frozen(|| this.turn(cx))
    }
}
