//! Listening sockets → callers' connections.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::net::{TcpListener, UnixListener};
use weir_config::Address;

use super::{Egress, serve};

/// Accepts callers from one socket until the egress drains. As many as `max_connections` are served at once; more wait in
/// the kernel.
///
/// # Errors
/// Where the socket is none that can be listened on.
pub(crate) async fn listen(
    egress: Arc<Egress>,
    address: &Address,
    socket: OwnedFd,
) -> io::Result<()> {
    let listener = match address {
        Address::Tcp(_) => Listener::Tcp(TcpListener::from_std(socket.into())?),
        Address::Unix(_) => Listener::Unix(UnixListener::from_std(socket.into())?),
    };
    loop {
        let place = tokio::select! {
            place = egress.places.clone().acquire_owned() => place,
            () = egress.drain.started() => return Ok(()),
        };
        // It is never closed.
        let Ok(place) = place else { return Ok(()) };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = egress.drain.started() => return Ok(()),
        };
        match accepted {
            Ok(stream) => {
                let egress = egress.clone();
                tokio::spawn(async move {
                    match stream {
                        Stream::Tcp(stream, address) => {
                            serve::serve_tcp(egress, stream, address).await
                        }
                        Stream::Unix(stream) => serve::serve_unix(egress, stream).await,
                    }
                    drop(place);
                });
            }
            // It was given up by its caller before it was looked at (accept(2)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                log::error!("[egress] listen {address}: cannot accept: {error}");
                // Out of descriptors or memory: others have to end first.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(tokio::net::TcpStream, std::net::SocketAddr),
    Unix(tokio::net::UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are written when they are there.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream, address))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

/// After an error that another accept would meet too.
const PAUSE: Duration = Duration::from_millis(200);
