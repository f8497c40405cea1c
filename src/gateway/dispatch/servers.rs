//! Workers that somebody else runs: which server a request goes to, and how a connection to it is made.

use std::{io, path::Path, time::Duration};

use weir_config::Address;

use super::{ConnectError, Lease, State};
use crate::{
    control::path_inside,
    gateway::{clock, worker_conn::WorkerConn},
};

/// One of `servers`.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) busy: usize,
    /// Its last connection was refused, or timed out.
    refused: bool,
    /// Not tried before ([`clock::now`]) while there are others.
    down_until: u64,
}

impl Server {
    fn works(&mut self) {
        self.refused = false;
        self.down_until = 0;
    }

    fn refuses(&mut self, now: u64) {
        self.refused = true;
        self.down_until = now + SERVER_DOWN;
    }
}

impl State {
    /// The server that is least busy, of those that have not just refused; all of them where all have. It is counted
    /// as busier by one. Only one request at a time finds out whether a server that has refused is there again.
    fn choose_server(&mut self, now: u64, connect_timeout: Duration) -> usize {
        let order = |index: &usize| {
            let server = &self.servers[*index];
            (server.down_until > now, server.busy)
        };
        let index = (0..self.servers.len()).min_by_key(order).unwrap_or(0);
        let server = &mut self.servers[index];
        server.busy += 1;
        if server.refused {
            let answered_by = now + connect_timeout.as_micros() as u64;
            server.down_until = server.down_until.max(answered_by);
        }
        index
    }

    /// Whether there is a server that has not just refused.
    fn has_server(&self, now: u64) -> bool {
        self.servers.iter().any(|server| server.down_until <= now)
    }
}

impl Lease {
    /// A new connection to one of `servers`, watched by the reactor `home`.
    pub(super) async fn connect_to(
        &mut self,
        servers: &[Address],
        home: u16,
    ) -> Result<WorkerConn, ConnectError> {
        let mut limit = clock::deadline(self.pool.settings.connect_timeout);
        let mut pause = CONNECT_PAUSE;
        let mut timed_out = 0;
        loop {
            let index = {
                let mut state = self.pool.state();
                if let Some(before) = self.server.take() {
                    state.servers[before].busy = state.servers[before].busy.saturating_sub(1);
                }
                state.choose_server(clock::now(), self.pool.settings.connect_timeout)
            };
            self.server = Some(index);
            let left = Duration::from_micros(limit.saturating_sub(clock::now()).max(1));
            let result = tokio::time::timeout(left, WorkerConn::connect(&servers[index])).await;
            let error = match result {
                Ok(Ok(conn)) => {
                    self.pool.state().servers[index].works();
                    match conn.at_home(home) {
                        Ok(conn) => return Ok(conn),
                        Err(error) => error,
                    }
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    timed_out += 1;
                    io::ErrorKind::TimedOut.into()
                }
            };
            // A full accept queue says nothing against the server.
            let full = error.kind() == io::ErrorKind::WouldBlock;
            if !full {
                let mut state = self.pool.state();
                state.servers[index].refuses(clock::now());
                if timed_out < servers.len() && state.has_server(clock::now()) {
                    // Another one, with the time that each of them has.
                    limit = clock::deadline(self.pool.settings.connect_timeout);
                    continue;
                }
            }
            let last =
                clock::now() + pause.as_micros() as u64 >= limit || (!full && pause > LAST_PAUSE);
            if last {
                return Err(ConnectError {
                    address: self.pool.server_names[index].to_string(),
                    error,
                });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

/// Calls a socket by the name that it has inside of `chroot`. One that lies outside was warned of at the start, and is
/// not found.
pub(super) fn find_inside(chroot: &Path, server: &mut Address) {
    if let Address::Unix(path) = server
        && let Some(inside) = path_inside(chroot, path)
    {
        *path = inside;
    }
}

/// First pause before a server is tried again; doubled each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A server that refuses is given up after the pause that is longer than this; about 300 ms in all.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// A server that has refused is not preferred for so long, µs.
const SERVER_DOWN: u64 = 1_000_000;
