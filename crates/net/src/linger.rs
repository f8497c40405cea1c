//! Closes a connection whose peer may still be sending.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Socket;

/// Closes the connection so that the peer can read the answer. Closing a socket with unread bytes sends a reset, which
/// may discard the answer (RFC 9112 §9.6).
pub async fn linger(mut socket: Socket) {
    if socket.shutdown().await.is_err() {
        return;
    }
    // Nobody needs the meaning of what comes now, and after a failed handshake of TLS it has none.
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
