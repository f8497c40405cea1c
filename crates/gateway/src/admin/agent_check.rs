//! HAProxy's agent-check: every peer that connects gets one line with the free capacity of the pool. So a load
//! balancer knows it before requests fail (HAProxy configuration manual, `agent-check`).
//!
//! | the pool | the line |
//! |---|---|
//! | accepts requests | `up ready 100% maxconn:20` |
//! | its queue fills | `up ready 40% maxconn:20`: the percentage is the free part of `max_queue` |
//! | weir drains | `drain` |
//! | no worker can start | `down#no worker of pool shop can start` |
//!
//! `maxconn` is how many requests the pool can run at once: the workers that run or would be started for them. While
//! new workers keep dying early, only the running ones count. `ready` cancels a `drain` that an earlier weir reported
//! at this address.
//!
//! The check is answered even if `max_connections` is reached and while weir drains, because then it matters most.
//! Bytes from the peer (`agent-send`) are read only until the connection is closed cleanly. Peers beyond [`PEERS`]
//! are closed without an answer, which HAProxy treats as no change.

use std::{
    fmt::Write,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_config::{Address, Protocol};
use weir_net::{Acceptor, Socket};
use weir_observe::events;

use crate::{Gateway, connections::accept, dispatch::PoolHandle};

/// Answers on a listening socket until another gateway takes over, or this one ends. Runs on the calling reactor.
pub(crate) fn start(gateway: &'static Gateway, listener: u16, socket: OwnedFd) {
    tokio::spawn(async move {
        let settings = &gateway.config.listeners[usize::from(listener)];
        let name = format!("listen.{}", settings.name);
        let is_tcp = matches!(settings.address, Address::Tcp(_));
        let mut acceptor = match Acceptor::new(name, socket, is_tcp) {
            Ok(acceptor) => acceptor,
            Err(error) => return log::error!("cannot listen: {error}"),
        };
        let Protocol::AgentCheck(agent) = &settings.protocol else {
            return;
        };
        let Some(pool) = gateway.pools.get(agent.pool.0) else {
            return;
        };
        let peers = Arc::new(AtomicUsize::new(0));
        loop {
            let (_, (socket, peer)) = tokio::select! {
                biased;
                () = gateway.admin_ends.started() => break,
                accepted = acceptor.accept() => accepted,
            };
            if let Some(peer) = peer
                && !accept::may_connect(&settings.protocol, peer)
            {
                events::client_turned_away(&settings.name, peer.ip().to_canonical(), None);
            } else if peers.load(Relaxed) < PEERS {
                let (line, peers) = (line(gateway, pool), peers.clone());
                peers.fetch_add(1, Relaxed);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(LONGEST, tell(socket, &line)).await;
                    peers.fetch_sub(1, Relaxed);
                });
            }
        }
    });
}

/// Sends the line, and waits until the peer has closed. Bytes from the peer that stay unread would reset the
/// connection before the peer has read the line.
async fn tell(mut socket: Socket, line: &str) {
    if socket.write_all(line.as_bytes()).await.is_err() || socket.shutdown().await.is_err() {
        return;
    }
    let mut space = [0; 256];
    let mut left = MOST_READ;
    while let Ok(length @ 1..) = socket.read(&mut space).await {
        match left.checked_sub(length) {
            Some(less) => left = less,
            None => return,
        }
    }
}

fn line(gateway: &Gateway, pool: &PoolHandle) -> String {
    let (stats, figures) = (pool.stats(), pool.scaling());
    let queue = &pool.settings.queue;
    let shaky = figures
        .as_ref()
        .is_some_and(|f| f.trying || f.paused_until.is_some());
    let workers = match &figures {
        Some(_) if shaky => stats.workers,
        Some(figures) => figures.limit,
        None => pool.maxconn(),
    };
    say(&Load {
        draining: gateway.keeps_no_connections(),
        lost: pool.is_lost().then_some(&pool.settings.name),
        room: workers.min(pool.maxconn()),
        waiting: stats.waiting,
        max_queue: queue.max_queue,
    })
}

/// The values that decide the line.
struct Load<'a> {
    draining: bool,
    /// The pool's name, if no worker of it can start.
    lost: Option<&'a str>,
    /// How many requests can run at once.
    room: usize,
    waiting: usize,
    max_queue: usize,
}

fn say(load: &Load<'_>) -> String {
    if load.draining {
        return "drain\n".into();
    }
    if let Some(pool) = load.lost {
        return format!("down#no worker of pool {pool} can start\n");
    }
    // 0% would stop all requests, and HAProxy reads 0 connections as "no limit".
    let full = (load.waiting * 100)
        .checked_div(load.max_queue)
        .unwrap_or(0);
    let percent = 100_usize.saturating_sub(full).max(1);
    let mut line = String::new();
    let _ = writeln!(line, "up ready {percent}% maxconn:{}", load.room.max(1));
    line
}

/// Peers at once per listening socket. A load balancer connects only every few seconds.
const PEERS: usize = 64;

/// A peer that does not close within this time is closed.
const LONGEST: Duration = Duration::from_secs(2);

/// How much is read from a peer before it is closed, bytes.
const MOST_READ: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Load<'_> = Load {
        draining: false,
        lost: None,
        room: 20,
        waiting: 0,
        max_queue: 1000,
    };

    #[test]
    fn the_line_says_what_the_pool_can_take() {
        assert_eq!(say(&WELL), "up ready 100% maxconn:20\n");
        let filling = Load {
            waiting: 599,
            ..WELL
        };
        assert_eq!(say(&filling), "up ready 41% maxconn:20\n");
        let full = Load {
            waiting: 1000,
            room: 0,
            ..WELL
        };
        assert_eq!(say(&full), "up ready 1% maxconn:1\n");
        let no_queue = Load {
            max_queue: 0,
            ..WELL
        };
        assert_eq!(say(&no_queue), "up ready 100% maxconn:20\n");
        let lost = Load {
            lost: Some("shop"),
            ..WELL
        };
        assert_eq!(say(&lost), "down#no worker of pool shop can start\n");
        let draining = Load {
            draining: true,
            ..lost
        };
        assert_eq!(say(&draining), "drain\n");
    }
}
