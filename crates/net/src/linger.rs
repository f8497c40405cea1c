//! Closes a connection whose peer may still be sending.

use std::{
    future::Future,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

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
///
/// The peer has the answer when it closes its side. One that does not is waited for while it sends, within limits ([`Most`]).
pub async fn linger(mut socket: Socket) {
    if socket.shutdown().await.is_err() {
        return;
    }
    // The bytes that arrive now have no meaning after a failed TLS handshake.
    discard(socket.without_tls(), MOST).await;
}

/// What a peer may still send and how long it may take, when its connection is being closed.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Time without a byte.
    silence: Duration,
    /// All the time.
    time: Duration,
    bytes: usize,
}

/// Reads to the end, or to one of these limits.
async fn discard(mut from: impl AsyncRead + Unpin, most: Most) {
    let last = Instant::now() + most.time;
    let mut sink = [0; 4096];
    let mut left = most.bytes;
    while left > 0 {
        let now = Instant::now();
        // A peer that always sends is never waited for.
        if now >= last {
            return;
        }
        let until = last.min(now + most.silence);
        match timeout_at(until, from.read(&mut sink)).await {
            Err(_) | Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(count)) => left = left.saturating_sub(count),
        }
    }
}

/// The times are those of nginx (`lingering_timeout`, `lingering_time`).
const MOST: Most = Most {
    silence: Duration::from_secs(5),
    time: Duration::from_secs(30),
    bytes: 16 << 20,
};

/// How long the last bytes for a peer may wait until the kernel takes them.
pub const LAST_WRITE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use tokio::io::{duplex, repeat};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    fn run(future: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future);
    }

    fn most(silence: Duration, time: Duration, bytes: usize) -> Most {
        Most {
            silence,
            time,
            bytes,
        }
    }

    #[test]
    fn a_silent_peer_is_not_waited_for() {
        let (ours, _theirs) = duplex(16);
        run(discard(ours, most(SHORT, HOUR, usize::MAX)));
    }

    #[test]
    fn a_peer_that_sends_without_end_meets_both_other_limits() {
        run(discard(repeat(b'x'), most(HOUR, SHORT, usize::MAX)));
        run(discard(repeat(b'x'), most(HOUR, HOUR, 1 << 20)));
    }

    #[test]
    fn a_peer_that_sends_now_and_then_is_waited_for() {
        run(async {
            let (ours, mut theirs) = duplex(16);
            let sends = async {
                for _ in 0..5 {
                    tokio::time::sleep(SHORT).await;
                    theirs.write_all(b"x").await.expect("a reader");
                }
            };
            // However late this task runs, it sends before it looks at the silence.
            tokio::select! {
                biased;
                () = sends => {}
                () = discard(ours, most(2 * SHORT, HOUR, usize::MAX)) => panic!("not waited for"),
            }
        });
    }
}
