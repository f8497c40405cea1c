//! Accepts connections of callers.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::OwnedSemaphorePermit,
};
use weir_config::Address;

use super::{Egress, serve};

/// Accepts callers on one socket until the egress drains. At most `max_connections` are served at once; further ones
/// wait in the kernel.
///
/// # Errors
/// If the socket is not a listening socket.
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
            biased;
            () = egress.drain.started() => break,
            place = egress.places.clone().acquire_owned() => place,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { return Ok(()) };
        let accepted = tokio::select! {
            biased;
            () = egress.drain.started() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => serve(&egress, stream, place),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                log::error!("[egress] listen {address}: cannot accept: {error}");
                // Out of descriptors or memory: other connections must end first.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // Connections in the kernel's queue are still served: if no other process has the socket, closing it would reset
    // them.
    while let Ok(place) = egress.places.clone().try_acquire_owned() {
        match tokio::time::timeout(Duration::ZERO, listener.accept()).await {
            Ok(Ok(stream)) => serve(&egress, stream, place),
            Ok(Err(error)) if is_of_one_connection(&error) => {}
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Ok(())
}

fn serve(egress: &Arc<Egress>, stream: Stream, place: OwnedSemaphorePermit) {
    let egress = egress.clone();
    tokio::spawn(async move {
        match stream {
            Stream::Tcp(stream, address) => {
                serve::serve_tcp(egress, stream, address, place).await;
            }
            Stream::Unix(stream) => serve::serve_unix(egress, stream, place).await,
        }
    });
}

/// The caller closed the connection before it was accepted (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
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
                // Answers are written as soon as they are ready. If the option cannot be set, they are only delayed.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream, address))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

/// Pause after an error that would also affect the next accept.
const PAUSE: Duration = Duration::from_millis(200);
