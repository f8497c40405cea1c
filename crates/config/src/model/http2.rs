//! HTTP/2 of a listener.

use std::time::Duration;

/// Whether a listener takes HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Http2 {
    /// HTTP/1 only.
    #[default]
    Off,
    /// HTTP/2 over TLS, if the client chooses it in the handshake (ALPN).
    Tls,
    /// HTTP/2 without TLS, if the client begins with its preface.
    Clear,
}

/// What a client may do on a connection of HTTP/2. Counts apply to 10 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Http2Limits {
    /// Requests at the same time.
    pub streams: u32,
    /// Streams that are reset, by either side.
    pub resets: u32,
    /// PING frames.
    pub pings: u32,
    /// SETTINGS frames.
    pub settings: u32,
    /// Frames that carry little or nothing.
    pub small_frames: u32,
    /// Bytes of a request body that may come before they are read.
    pub stream_window: u32,
    /// The same for all bodies of a connection.
    pub window: u32,
    /// How long a client with requests may be silent before it gets a PING, and after that. Zero: no PING.
    pub ping: Duration,
}
