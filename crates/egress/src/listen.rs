//! Accepts connections of callers.

use std::{os::fd::OwnedFd, sync::Arc};

use tokio::{sync::OwnedSemaphorePermit, task::spawn_local};
use weir_config::Address;

use super::{Egress, serve::serve};
use weir_net::{Accepted, Acceptor, Listening, Socket};
use weir_observe::seldom::Seldom;

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
    let (mut acceptor, mut entrances) = (Acceptor::default(), Vec::new());
    for (entrance, socket) in sockets {
        let name = format!("[egress] listen {}", entrance.address);
        match Listening::new(socket, matches!(entrance.address, Address::Tcp(_))) {
            Ok(socket) => {
                acceptor.add(name, socket);
                entrances.push(entrance);
            }
            Err(error) => log::error!("{name}: {error}"),
        }
    }
    loop {
        // One place for the next caller, on any of the sockets.
        let place = tokio::select! {
            biased;
            () = egress.drain.started() => break,
            place = egress.places.clone().acquire_owned() => place,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { return };
        let (number, caller) = tokio::select! {
            biased;
            () = egress.drain.started() => break,
            accepted = acceptor.accept() => accepted,
        };
        begin(&egress, &entrances[number], caller, place);
    }
    // Connections in the kernel's queue are still served: if no other process has the socket, closing it would reset
    // them.
    while let Ok(place) = egress.places.clone().try_acquire_owned()
        && let Some((number, caller)) = acceptor.accept_queued().await
    {
        begin(&egress, &entrances[number], caller, place);
    }
}

/// Serves a connection in a task of its own.
fn begin(
    egress: &Arc<Egress>,
    entrance: &Entrance,
    (socket, address): Accepted,
    place: OwnedSemaphorePermit,
) {
    let peer = match &socket {
        Socket::Tcp(stream) => {
            // If an address is not known any more, the connection is already closed.
            let (Ok(own), Some(address)) = (stream.local_addr(), address) else {
                return;
            };
            egress.callers.over_tcp(own, address)
        }
        Socket::Unix(stream) => {
            let peer = egress.callers.over_unix(stream, entrance.only.is_some());
            if !entrance.admits(peer.uid()) {
                static SAID: Seldom = Seldom::of_connections();
                if let Some(more) = SAID.line() {
                    log::warn!(
                        "[egress] {}: a process of user {} called there, but this socket is only for the workers of weir's pools; for other callers add a unix socket to listen{more}",
                        entrance.address,
                        peer.uid().map_or("?".to_owned(), |uid| uid.to_string())
                    );
                }
                return;
            }
            peer
        }
        // Callers have no TLS.
        Socket::Tls(_) => return,
    };
    spawn_local(serve(egress.clone(), socket, peer, place));
}

/// The user number of root.
const ROOT: u32 = 0;

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
