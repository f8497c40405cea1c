//! The stream of a connection: TCP, with TLS or without.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{client::TlsStream, rustls::ClientConnection};
use weir_net::Socket;

use crate::connections::Reading;

/// The byte stream of a connection.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// Boxed, because it has several kilobytes.
    tls: Option<Box<Tls>>,
    /// `None` until reading has to be limited.
    reading: Option<Reading>,
}

/// What TLS keeps of a connection after its handshake.
#[derive(Debug)]
struct Tls {
    session: ClientConnection,
    /// The last read took all that the socket had: before the next one it is asked whether there is more.
    is_drained: bool,
    /// An error that came behind bytes which were given first.
    error: Option<io::Error>,
}

impl Stream {
    pub fn plain(stream: TcpStream) -> Stream {
        Stream {
            socket: Socket::Tcp(stream),
            tls: None,
            reading: None,
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Stream {
        let (socket, session) = stream.into_inner();
        let tls = Tls {
            session,
            is_drained: false,
            error: None,
        };
        let mut stream = Stream::plain(socket);
        stream.tls = Some(Box::new(tls));
        stream
    }

    /// Measures reading from now on.
    pub fn measured(mut self, reading: Reading) -> Stream {
        self.reading = Some(reading);
        self
    }

    /// The socket beneath.
    #[cfg(test)]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Tls {
    /// Reads until the buffer is full or the socket is empty.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        loop {
            match self.session.reader().into_first_chunk() {
                // The origin has said that nothing more comes.
                Ok([]) => return Poll::Ready(Ok(())),
                Ok(bytes) => {
                    let count = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..count]);
                    io::BufRead::consume(&mut self.session.reader(), count);
                    if buffer.remaining() == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return self.failed(error, buffer.filled().len() > before),
            }
            let has_some = buffer.filled().len() > before;
            if has_some && self.is_drained {
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx, socket) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return self.failed(error, has_some),
                Poll::Pending if has_some => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// An error. The bytes before it are returned first.
    fn failed(&mut self, error: io::Error, has_some: bool) -> Poll<io::Result<()>> {
        if !has_some {
            return Poll::Ready(Err(error));
        }
        self.error = Some(error);
        Poll::Ready(Ok(()))
    }

    /// Reads from the socket, and decrypts complete records.
    fn poll_fill(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        if self.is_drained {
            // This check costs less than room that the session makes although there are no bytes.
            ready!(socket.poll_read_ready(cx))?;
        }
        let mut beneath = Beneath {
            socket,
            cx,
            is_drained: false,
        };
        let read = self.session.read_tls(&mut beneath);
        self.is_drained = beneath.is_drained;
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The origin gets the alert with the reason, if the kernel takes it without a wait.
                let _ = self.poll_send(cx, socket);
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        })
    }

    /// Sends what was encrypted.
    fn poll_send(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut beneath = Beneath {
                socket,
                cx,
                is_drained: false,
            };
            match self.session.write_tls(&mut beneath) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts what `write` writes, and sends as much of it as the kernel takes; [`Self::poll_send`] sends the rest.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx, socket))?;
        let written = write(&mut self.session.writer())?;
        match self.poll_send(cx, socket) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(written)),
        }
    }
}

/// A socket as the session reads and writes it. What has to wait is [`io::ErrorKind::WouldBlock`].
struct Beneath<'s, 'c, 'w> {
    socket: &'s mut Socket,
    cx: &'c mut Context<'w>,
    is_drained: bool,
}

impl io::Read for Beneath<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.socket).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => {
                self.is_drained = buffer.remaining() > 0;
                read.map(|()| buffer.filled().len())
            }
            Poll::Pending => {
                self.is_drained = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

impl io::Write for Beneath<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.socket).poll_write(self.cx, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        // send(2) of one piece costs the kernel less than writev(2).
        if let [one] = pieces {
            return self.write(one);
        }
        match Pin::new(&mut *self.socket).poll_write_vectored(self.cx, pieces) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    /// Over TLS the end is announced (close_notify), if the kernel accepts that at once. Otherwise
    /// the origin would have to treat it as a broken connection (RFC 8446 §6.1).
    fn drop(&mut self) {
        if self.tls.is_some() {
            let _ = Pin::new(self).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream {
            socket,
            tls,
            reading,
        } = self.get_mut();
        let mut read = |cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>| match tls {
            None => Pin::new(&mut *socket).poll_read(cx, buffer),
            Some(tls) => tls.poll_read(cx, socket, buffer),
        };
        match reading {
            Some(reading) => reading.poll(cx, buffer, read),
            None => read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Stream { socket, tls, .. } = self.get_mut();
        match tls {
            None => Pin::new(socket).poll_write(cx, bytes),
            Some(tls) => tls.poll_write(cx, socket, |session| session.write(bytes)),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Stream { socket, tls, .. } = self.get_mut();
        match tls {
            None => Pin::new(socket).poll_write_vectored(cx, pieces),
            Some(tls) => tls.poll_write(cx, socket, |session| session.write_vectored(pieces)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Stream { socket, tls, .. } = self.get_mut();
        match tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => tls.poll_send(cx, socket),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Stream { socket, tls, .. } = self.get_mut();
        if let Some(tls) = tls {
            tls.session.send_close_notify();
            ready!(tls.poll_send(cx, socket))?;
        }
        Pin::new(socket).poll_shutdown(cx)
    }
}
