//! Lets others run while an origin sends without a pause over HTTP/2.
//!
//! The thread also serves other connections, so a connection that has read [`TURN`] bytes without a pause lets the others
//! run. The connections of HTTP/1.1 do that themselves.

use std::{
    io,
    pin::pin,
    task::{Context, Poll, ready},
};

use tokio::io::ReadBuf;

/// The reading side of a connection.
#[derive(Debug, Default)]
pub struct Reading {
    /// Bytes since it last waited.
    at_once: usize,
}

impl Reading {
    /// Reads with `read`, unless others must run first.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if self.at_once >= TURN {
            self.at_once = 0;
            // The task is woken after other tasks have run and sockets were polled.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = read(cx, buffer);
        if polled.is_pending() {
            self.at_once = 0;
        }
        ready!(polled)?;
        self.at_once += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

/// After this many bytes without a pause, a connection lets others run.
const TURN: usize = 64 << 10;

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
        let mut reading = Reading::default();
        for _ in 0..100 {
            assert_eq!(until_pause(&mut reading).await.unwrap(), TURN);
        }
    }
}
