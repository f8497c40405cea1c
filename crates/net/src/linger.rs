//! Closes a connection whose peer may still be sending.

use std::{
    future::Future,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Socket;

/// Closes a connection whose peer should send nothing more. `Some`: it has, or it could while it does not have the whole answer, so
/// that this has to be awaited ([`linger`]).
pub fn close(mut socket: Socket) -> Option<impl Future<Output = ()>> {
    let fd = socket.as_fd();
    // The peer of a unix socket keeps the bytes that it was sent, even if it sends more itself.
    let is_on_its_way =
        || !socket.is_unix() && weir_sys::socket::unsent(fd).is_ok_and(|left| left > 0);
    if weir_sys::socket::has_bytes(fd) || is_on_its_way() {
        return Some(linger(socket));
    }
    // Shutting down a socket never waits.
    let mut cx = Context::from_waker(Waker::noop());
    let _ = Pin::new(&mut socket).poll_shutdown(&mut cx);
    None
}

/// Closes the connection so that the peer can read the answer. Closing a socket with unread bytes sends a reset, which
/// may discard the answer (RFC 9112 §9.6).
pub async fn linger(mut socket: Socket) {
    if socket.shutdown().await.is_err() {
        return;
    }
    // The bytes that arrive now are discarded. After a failed TLS handshake they have no meaning.
    let mut socket = socket.without_tls();
    let drain = async {
        let mut sink = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut sink).await {
                Ok(0) | Err(_) => return,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// How long a closed connection is still read, so that the peer receives the last answer.
pub const LINGER: Duration = Duration::from_secs(2);

/// How many bytes are read then, at most.
const LINGER_BYTES: usize = 16 << 20;
