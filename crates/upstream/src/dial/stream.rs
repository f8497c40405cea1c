//! The stream of a connection: TCP, with TLS or without.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::connections::Reading;

/// The byte stream of a connection.
#[derive(Debug)]
pub struct Stream {
    wire: Wire,
    /// `None` until reading has to be limited.
    reading: Option<Reading>,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    /// Boxed, because it has several kilobytes.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub fn plain(stream: TcpStream) -> Stream {
        Stream {
            wire: Wire::Plain(stream),
            reading: None,
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Stream {
        Stream {
            wire: Wire::Tls(Box::new(stream)),
            reading: None,
        }
    }

    /// Measures reading from now on.
    pub fn measured(mut self, reading: Reading) -> Stream {
        self.reading = Some(reading);
        self
    }

    /// The socket beneath.
    #[cfg(test)]
    pub fn socket(&self) -> &TcpStream {
        match &self.wire {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl Drop for Stream {
    /// Over TLS the end is announced (close_notify), if the kernel accepts that at once. Otherwise
    /// the origin would have to treat it as a broken connection (RFC 8446 §6.1).
    fn drop(&mut self) {
        if let Wire::Tls(stream) = &mut self.wire {
            let _ = Pin::new(stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream { wire, reading } = self.get_mut();
        let mut read = |context: &mut Context<'_>, buffer: &mut ReadBuf<'_>| match wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Wire::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        match reading {
            Some(reading) => reading.poll(context, buffer, read),
            None => read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(context),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
