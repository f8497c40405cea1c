//! Calls that scripts of weir's own workers make to a site that weir serves: whose they are.
//!
//! Such a call needs a worker while its caller holds one. Where all workers wait like that, nobody serves them. So a call
//! that would have to wait is looked at: over a unix socket the kernel says which process has connected; over TCP, from this
//! machine, it says which socket is at the other end, and whose that is stands in /proc. Only connections of this machine
//! are looked at, only while their request waits, and a limited number of times a second; what was found is kept with the
//! connection. Where the gateway may not look into workers, the manager is asked, which answers only so often.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_sys::{
    process,
    sock_diag::Diag,
    socket_owners::{Finder, Owner},
};

use super::{Gateway, callers, client_io::Conn, clock, dispatch::Asker};

/// The other end of a client's connection.
#[derive(Debug)]
pub(crate) struct Source {
    kind: Kind,
    /// The worker that it belongs to; 0: not known.
    worker: AtomicU32,
    /// Looks that were in vain.
    vain: AtomicU32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Unix(u32),
    Here { own: SocketAddr, peer: SocketAddr },
    Elsewhere,
}

/// Finds the workers that call.
#[derive(Default)]
pub(super) struct OwnCalls {
    proc: Mutex<Proc>,
    /// The next look may be then ([`clock::now`]).
    next: Mutex<u64>,
}

/// What is kept for the next look.
#[derive(Default)]
struct Proc {
    diag: Option<Diag>,
    finder: Finder,
}

enum Found {
    Worker(u32),
    /// The socket has this number, and we may not look who has it.
    Barred(u32),
    Nobody,
}

impl Source {
    /// `pid`: the process at the other end of a unix socket.
    pub(crate) fn new(
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        pid: Option<u32>,
    ) -> Source {
        let kind = match (peer, local, pid) {
            (Some(peer), Some(own), _) if is_here(own, peer) => Kind::Here { own, peer },
            (None, _, Some(pid)) => Kind::Unix(pid),
            _ => Kind::Elsewhere,
        };
        Source {
            kind,
            worker: AtomicU32::new(0),
            vain: AtomicU32::new(0),
        }
    }

    /// The worker at the other end, if one is known.
    pub(crate) fn worker(&self) -> Option<u32> {
        Some(self.worker.load(Relaxed)).filter(|pid| *pid != 0)
    }

    /// One is known, or may still be found.
    pub(crate) fn may_be_worker(&self) -> bool {
        self.worker().is_some() || self.may_be_found()
    }

    fn may_be_found(&self) -> bool {
        !matches!(self.kind, Kind::Elsewhere) && self.vain.load(Relaxed) < MOST_LOOKS
    }
}

impl OwnCalls {
    /// Whether it may be looked now.
    fn turn(&self, now: u64) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // As many at once as may be in a second.
        *next = (*next).max(now.saturating_sub(1_000_000));
        let may = *next <= now;
        if may {
            *next += PAUSE;
        }
        may
    }

    /// Looks in /proc; may take some hundred microseconds.
    fn look(&self, kind: Kind, busy: &[u32]) -> Found {
        match kind {
            Kind::Elsewhere => Found::Nobody,
            Kind::Unix(pid) => ancestor(pid, busy).map_or(Found::Nobody, Found::Worker),
            Kind::Here { own, peer } => {
                let mut proc = self.proc.lock().unwrap_or_else(PoisonError::into_inner);
                if proc.diag.is_none() {
                    proc.diag = Diag::open().ok();
                }
                let inode = proc
                    .diag
                    .as_mut()
                    .and_then(|diag| diag.connection(peer, own).ok());
                let Some(inode) = inode.flatten() else {
                    return Found::Nobody;
                };
                match proc.finder.owner(inode, busy, MOST_LINKS) {
                    Owner::Process(pid) => Found::Worker(pid),
                    Owner::Barred => Found::Barred(inode),
                    Owner::Nobody => Found::Nobody,
                }
            }
        }
    }
}

impl Gateway {
    /// Finds the worker that has sent the request at hand of this connection; none: that can be no worker.
    pub(crate) fn find_caller(self: &Arc<Gateway>, conn: &Arc<Conn>) -> Option<Asker> {
        let source = &conn.source;
        if !source.may_be_worker() {
            return None;
        }
        let (gateway, conn) = (self.clone(), conn.clone());
        Some(Asker {
            gateway: self.clone(),
            finding: Box::pin(async move {
                let mut pause = FIRST_PAUSE;
                loop {
                    if let Some(pid) = gateway.caller(&conn).await {
                        return Some(pid);
                    }
                    if !conn.source.may_be_found() {
                        return None;
                    }
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }),
        })
    }

    /// Looks once, if that may be done now.
    pub(super) async fn caller(self: &Arc<Gateway>, conn: &Conn) -> Option<u32> {
        let source = &conn.source;
        let busy = || -> Vec<u32> {
            let workers = self.pools.iter().flat_map(|pool| pool.at_work());
            workers.map(|(_, pid)| pid).collect()
        };
        let known = source.worker.load(Relaxed);
        if known != 0 {
            let works = busy().contains(&known);
            if !works {
                source.vain.store(MOST_LOOKS, Relaxed);
            }
            return works.then_some(known);
        }
        if !source.may_be_found() {
            return None;
        }
        let busy = busy();
        if busy.is_empty() {
            source.vain.store(MOST_LOOKS, Relaxed);
            return None;
        }
        if !self.own_calls.turn(clock::now()) {
            return None;
        }
        let (gateway, kind) = (self.clone(), source.kind);
        let looked = tokio::task::spawn_blocking(move || gateway.own_calls.look(kind, &busy)).await;
        let worker = match looked {
            Ok(Found::Worker(pid)) => Some(pid),
            Ok(Found::Barred(inode)) => {
                let asked = callers::owner_of(self.clone(), inode);
                tokio::time::timeout(LONGEST, asked).await.ok().flatten()
            }
            Ok(Found::Nobody) | Err(_) => None,
        };
        match worker {
            Some(pid) => source.worker.store(pid, Relaxed),
            None => drop(source.vain.fetch_add(1, Relaxed)),
        }
        worker
    }
}

/// Whether a client is on this machine: one of another has no worker here.
fn is_here(own: SocketAddr, peer: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == own.ip().to_canonical()
}

/// The process itself or the nearest above it that is one of those: what a worker has started calls for it.
fn ancestor(pid: u32, workers: &[u32]) -> Option<u32> {
    let mut pid = pid;
    for _ in 0..=GENERATIONS {
        if workers.contains(&pid) {
            return Some(pid);
        }
        pid = process::parent_of(pid).ok().filter(|parent| *parent > 1)?;
    }
    None
}

/// Looks for the process of one connection that may be in vain.
const MOST_LOOKS: u32 = 8;

/// Between the first two looks for one request; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Between two looks, µs: two hundred a second.
const PAUSE: u64 = 5_000;

/// Links of /proc that are read for one look: some milliseconds.
const MOST_LINKS: usize = 2_000;

/// Steps from a process up to a worker.
const GENERATIONS: usize = 4;

/// The manager, where it is asked, has so long to answer.
const LONGEST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_this_machine_are_looked_at_and_not_without_end() {
        let address = |text: &str| text.parse().ok();
        let here = Source::new(address("127.0.0.1:5"), address("127.0.0.1:80"), None);
        assert!(here.may_be_found());
        here.vain.store(MOST_LOOKS, Relaxed);
        assert!(!here.may_be_found());
        let own = Source::new(address("192.0.2.1:5"), address("192.0.2.1:80"), None);
        assert!(own.may_be_found());
        let away = Source::new(address("192.0.2.2:5"), address("192.0.2.1:80"), None);
        assert!(!away.may_be_found());
        assert!(Source::new(None, None, Some(7)).may_be_found());
        assert!(!Source::new(None, None, None).may_be_found());
        let calls = OwnCalls::default();
        let looks = (0..1_000).filter(|_| calls.turn(60_000_000)).count();
        assert_eq!(looks, 201);
        assert!(calls.turn(60_005_000) && !calls.turn(60_005_001));
    }

    #[test]
    fn a_worker_is_found_by_its_connection_and_by_what_it_has_started() {
        let calls = OwnCalls::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let own = listener.local_addr().expect("an address");
        let client = std::net::TcpStream::connect(own).expect("a connection");
        let peer = client.local_addr().expect("an address");
        let us = std::process::id();
        let found = calls.look(Kind::Here { own, peer }, &[us]);
        assert!(matches!(found, Found::Worker(pid) if pid == us));
        let other = calls.look(Kind::Here { own, peer }, &[1]);
        assert!(!matches!(other, Found::Worker(_)));
        assert_eq!(ancestor(us, &[us]), Some(us));
        assert_eq!(ancestor(us, &[u32::MAX]), None);
    }
}
