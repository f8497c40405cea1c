//! Accepts connections of callers.

use std::{
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::OwnedSemaphorePermit,
    task::spawn_local,
};
use weir_config::Address;

use super::{Egress, serve::serve};
use weir_net::Socket;

/// A listening address.
#[derive(Debug, Clone)]
pub(crate) struct Entrance {
    pub(crate) address: Address,
    /// For the workers' own socket: only these users (uid) and root may call there, and they need the token as for TCP.
    pub(crate) only: Option<Arc<[u32]>>,
}

impl Entrance {
    /// Whether a process of this user (uid) may call there; `None`: the user is not known.
    fn admits(&self, uid: Option<u32>) -> bool {
        match (&self.only, uid) {
            (None, _) => true,
            (Some(users), Some(uid)) => uid == ROOT || users.contains(&uid),
            (Some(_), None) => false,
        }
    }
}

/// Accepts callers on these sockets until the egress drains. At most `max_connections` are served at once; further ones
/// wait in the kernel.
pub(crate) async fn listen(egress: Arc<Egress>, sockets: Vec<(Entrance, OwnedFd)>) {
    let mut listeners = Vec::with_capacity(sockets.len());
    for (entrance, socket) in sockets {
        match Listener::new(&entrance.address, socket) {
            Ok(listener) => listeners.push((entrance, listener)),
            Err(error) => log::error!("[egress] listen {}: {error}", entrance.address),
        }
    }
    let mut turn = 0;
    loop {
        // One place for the next caller, on whichever socket it comes.
        let place = tokio::select! {
            biased;
            () = egress.drain.started() => break,
            place = egress.places.clone().acquire_owned() => place,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { return };
        let (entrance, accepted) = tokio::select! {
            biased;
            () = egress.drain.started() => break,
            accepted = accept(&listeners, &mut turn) => accepted,
        };
        match accepted {
            Ok(stream) => begin(&egress, entrance, stream, place),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                log::error!(
                    "[egress] listen {}: cannot accept connections: {error}",
                    entrance.address
                );
                // Out of descriptors or memory: other connections must end first.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // Connections in the kernel's queue are still served: if no other process has the socket, closing it would reset
    // them.
    while let Ok(place) = egress.places.clone().try_acquire_owned() {
        match tokio::time::timeout(Duration::ZERO, accept(&listeners, &mut turn)).await {
            Ok((entrance, Ok(stream))) => begin(&egress, entrance, stream, place),
            Ok((_, Err(error))) if is_of_one_connection(&error) => {}
            Ok((_, Err(_))) | Err(_) => break,
        }
    }
}

/// Waits for a caller on any socket. If several have one, they take turns.
async fn accept<'a>(
    listeners: &'a [(Entrance, Listener)],
    turn: &mut usize,
) -> (&'a Entrance, io::Result<Stream>) {
    poll_fn(|cx| {
        let (before, from) = listeners.split_at(*turn % listeners.len().max(1));
        for (entrance, listener) in from.iter().chain(before) {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                *turn = turn.wrapping_add(1);
                return Poll::Ready((entrance, accepted));
            }
        }
        Poll::Pending
    })
    .await
}

/// Serves a connection in a task of its own.
fn begin(egress: &Arc<Egress>, entrance: &Entrance, stream: Stream, place: OwnedSemaphorePermit) {
    let egress = egress.clone();
    match stream {
        Stream::Tcp(stream, address) => {
            // If the address is not known any more, the connection is already closed.
            let Ok(own) = stream.local_addr() else { return };
            let peer = egress.callers.over_tcp(own, address);
            spawn_local(serve(egress, Socket::Tcp(stream), peer, place));
        }
        Stream::Unix(stream) => {
            let is_own = entrance.only.is_some();
            let peer = egress.callers.over_unix(&stream, is_own);
            if !entrance.admits(peer.uid()) {
                log::warn!(
                    "[egress] {}: a process of user {} called there, which is for the workers of weir's pools: name a unix \
                     socket in listen for others",
                    entrance.address,
                    peer.uid().map_or("?".to_owned(), |uid| uid.to_string())
                );
                return;
            }
            spawn_local(serve(egress, Socket::Unix(stream), peer, place));
        }
    }
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
    fn new(address: &Address, socket: OwnedFd) -> io::Result<Listener> {
        Ok(match address {
            Address::Tcp(_) => Listener::Tcp(TcpListener::from_std(socket.into())?),
            Address::Unix(_) => Listener::Unix(UnixListener::from_std(socket.into())?),
        })
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match self {
            Listener::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, address)| {
                // Answers are written as soon as they are ready. If the option cannot be set, they are only delayed.
                let _ = stream.set_nodelay(true);
                Stream::Tcp(stream, address)
            }),
            Listener::Unix(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// The user number of root.
const ROOT: u32 = 0;

/// Pause after an error that would also affect the next accept.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_own_socket_is_for_their_users_and_root() {
        let entrance = |only: Option<&[u32]>| Entrance {
            address: Address::Unix("/run/weir/egress.sock".into()),
            only: only.map(Into::into),
        };
        let own = entrance(Some(&[33, 34]));
        assert!(own.admits(Some(33)) && own.admits(Some(34)) && own.admits(Some(0)));
        assert!(!own.admits(Some(35)) && !own.admits(None));
        let listed = entrance(None);
        assert!(listed.admits(Some(35)) && listed.admits(None));
    }
}
