//! The end of a connection whose client may still be sending: weir reads on, so that the client gets the last answer
//! ([`weir_net::linger`]).

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use weir_observe::clock::{self, NEVER};

use crate::ConnState;

/// A connection that is being closed.
///
/// It may take some seconds for sure. Then it makes room for others when `max_connections` is reached, and for the end of weir.
pub(crate) struct Closing {
    end: Pin<Box<dyn Future<Output = ()>>>,
    /// From then on it makes room.
    yields_from: u64,
}

impl Closing {
    /// Closes the connection by `end`. It has no request any more.
    pub(crate) fn new(state: &ConnState, end: impl Future<Output = ()> + 'static) -> Self {
        if !state.is_idle() {
            state.set_idle();
        }
        let yields_from = clock::now() + SURE;
        state.wake_at(yields_from);
        Closing {
            end: Box::pin(end),
            yields_from,
        }
    }

    /// Ready: the connection is closed when this is dropped.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        state: &ConnState,
        is_draining: bool,
    ) -> Poll<()> {
        if clock::now() >= self.yields_from {
            if is_draining || state.is_unwanted() {
                return Poll::Ready(());
            }
            state.wake_at(NEVER);
        }
        self.end.as_mut().poll(cx)
    }
}

/// Time in which nothing but its client ends such a connection, µs.
const SURE: u64 = 2_000_000;
