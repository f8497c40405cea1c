//! Measures what hyper reads from a connection, because the other side may be hostile: a caller, or an origin over HTTP/2.
//! Over HTTP/1.1 to origins, `upstream::h1` does that itself.
//!
//! hyper reads chunk sizes, chunk extensions and interim answers byte by byte or head by head, as long as bytes
//! arrive. But the thread also serves other connections, so a connection that has read [`TURN`] bytes without a pause
//! lets the others run. Bytes that never lead to content (a chunk size of endless zeros, endless spaces, one interim
//! answer after the other) are an error after a certain number: no well-behaved peer sends that.

use std::{
    fmt, io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::io::ReadBuf;

/// The number of bytes without content that one connection may still send. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Gauge(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// How many bytes may be read before the next progress.
    left: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    /// `buffer`: how far hyper may read ahead, bytes.
    pub(crate) fn new(buffer: usize) -> Gauge {
        // Heads, trailers and read-ahead data are smaller than this, whatever their limits are.
        let most = buffer.saturating_mul(4).max(LEAST);
        Gauge(Arc::new(Counts {
            left: AtomicUsize::new(most),
            most: AtomicUsize::new(most),
        }))
    }

    /// A gauge without limit, for HTTP/2, which limits such bytes itself.
    pub(crate) fn open() -> Gauge {
        Gauge::new(usize::MAX)
    }

    /// The bytes read so far have led to a head or a piece of a body.
    pub(crate) fn progress(&self) {
        self.0.left.store(self.0.most.load(Relaxed), Relaxed);
    }

    /// Removes the limit, because the connection has become a tunnel and hyper does not parse its bytes.
    pub(crate) fn lift(&self) {
        self.0.most.store(usize::MAX, Relaxed);
        self.progress();
    }

    fn read(&self, bytes: usize) {
        // Only the reader of the connection counts down. If progress is noted at the same time, it is not lost for
        // long.
        let left = self.0.left.load(Relaxed);
        self.0.left.store(left.saturating_sub(bytes), Relaxed);
    }
}

/// The reading side of a connection.
#[derive(Debug)]
pub(crate) struct Reading {
    gauge: Gauge,
    /// Bytes since it last waited.
    at_once: usize,
}

impl Reading {
    pub(crate) fn new(gauge: Gauge) -> Reading {
        Reading { gauge, at_once: 0 }
    }

    /// Reads with `read`, unless others must run first.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if self.gauge.0.left.load(Relaxed) == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, Endless)));
        }
        if self.at_once >= TURN {
            self.at_once = 0;
            // Its task is woken after others have run and sockets were polled.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = read(cx, buffer);
        if polled.is_pending() {
            self.at_once = 0;
        }
        ready!(polled)?;
        let bytes = buffer.filled().len() - before;
        self.at_once += bytes;
        self.gauge.read(bytes);
        Poll::Ready(Ok(()))
    }
}

/// The other side sends bytes without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endless;

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it sends endless chunk sizes, chunk extensions or interim answers (1xx)")
    }
}

impl std::error::Error for Endless {}

/// After this many bytes without a pause, a connection lets others run.
const TURN: usize = 64 << 10;

/// Minimum of the limit, bytes.
const LEAST: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads pieces of 16 KB until it has to wait; returns the number of bytes.
    async fn until_pause(reading: &mut Reading) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            let mut bytes = 0;
            loop {
                let mut memory = [0; 16 << 10];
                let mut buffer = ReadBuf::new(&mut memory);
                let all = |_: &mut Context<'_>, buffer: &mut ReadBuf<'_>| {
                    buffer.set_filled(buffer.capacity());
                    Poll::Ready(Ok(()))
                };
                match reading.poll(cx, &mut buffer, all) {
                    Poll::Ready(Ok(())) => bytes += buffer.filled().len(),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Ready(Ok(bytes)),
                }
            }
        })
        .await
    }

    #[tokio::test]
    async fn who_sends_without_a_pause_lets_others_go_first() {
        let mut reading = Reading::new(Gauge::open());
        for _ in 0..100 {
            assert_eq!(until_pause(&mut reading).await.unwrap(), TURN);
        }
    }

    #[tokio::test]
    async fn what_comes_to_nothing_has_an_end() {
        let gauge = Gauge::new(1 << 10);
        let mut reading = Reading::new(gauge.clone());
        for _ in 0..10 {
            for _ in 1..LEAST / TURN {
                until_pause(&mut reading).await.expect("not yet");
            }
            gauge.progress();
        }
        let error = loop {
            if let Err(error) = until_pause(&mut reading).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        gauge.lift();
        for _ in 0..100 {
            until_pause(&mut reading).await.expect("a tunnel");
        }
    }
}
