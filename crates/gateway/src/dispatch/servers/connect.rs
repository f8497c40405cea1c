//! How a request gets to a server: a server is chosen and reached over a kept or a new connection. If that fails,
//! another server is chosen.

use std::{io, time::Duration};

use weir_config::Address;
use weir_observe::clock;
use weir_pool::{Finish, Micros, ServerId};
use weir_upstream::dial::is_of_this_side;

use crate::{
    dispatch::{ConnectError, Lease, LeaseInner, PoolHandle, State, scaling::Effects},
    scripts::run::connection::WorkerConn,
};

/// Which server a request may go to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerChoice<'t> {
    /// The hash of its key (`hash_by`).
    pub(crate) key: Option<u64>,
    /// The number of the server that has answered the client before ([`PoolHandle::sticks_to`]).
    pub(crate) wanted: Option<u32>,
    /// Servers that have failed this request.
    pub(crate) tried: &'t [ServerId],
    /// The request gets a new connection. On a kept connection, which the server may close at this moment, it could be
    /// lost.
    pub(crate) certain: bool,
}

impl State {
    /// Chooses a server for a request that gets its worker at once, so that the pool's lock need not be taken again for that.
    pub(in crate::dispatch) fn choose_server(
        &mut self,
        lease: &mut LeaseInner,
        now: Micros,
        choice: &ServerChoice<'_>,
        effects: &mut Effects,
    ) {
        if let Some(group) = &mut self.group
            && let Some(picked) = group.pick(now, choice, effects)
        {
            lease.chosen = Some(picked.chosen);
            lease.server_name = Some(picked.name);
            lease.conn = picked.kept;
        }
    }
}

impl Lease {
    /// Chooses a server, if none is chosen yet. Returns an idle connection to it, registered with the reactor `home`, if there is one that can be
    /// used. Otherwise [`Self::connect_to`] makes one.
    pub(in crate::dispatch) fn reach_server(
        &mut self,
        home: u16,
        choice: &ServerChoice<'_>,
    ) -> Option<WorkerConn> {
        if self.chosen.is_none() {
            self.pick(choice, choice.tried);
        }
        usable(self.conn.take()?, home)
    }

    /// A connection to the server that was chosen, registered with the reactor `home`, or to another one if that fails.
    pub(in crate::dispatch) async fn connect_to(
        &mut self,
        home: u16,
        choice: ServerChoice<'_>,
    ) -> Result<WorkerConn, ConnectError> {
        let pool = self.pool;
        let timeout = pool.settings.connect_timeout;
        let mut limit = clock::deadline(timeout);
        let mut pause = CONNECT_PAUSE;
        let mut timed_out = 0;
        let mut tried = choice.tried.to_vec();
        loop {
            if self.chosen.is_none() {
                self.pick(&choice, &tried);
            }
            if let Some(kept) = self.conn.take().and_then(|kept| usable(kept, home)) {
                return Ok(kept);
            }
            let chosen = self.server();
            let known = chosen.and_then(|server| Some((server, pool.address_of(server)?)));
            let Some((server, address)) = known else {
                return Err(ConnectError {
                    address: format!("a server of pool {}", pool.settings.name),
                    error: io::Error::new(io::ErrorKind::NotFound, "there is none"),
                });
            };
            let left = Duration::from_micros(limit.saturating_sub(clock::now()).max(1));
            let made = tokio::time::timeout(left, WorkerConn::connect(&address)).await;
            let made = made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let error = match made.and_then(|conn| conn.at_home(home)) {
                Ok(conn) => return Ok(conn),
                Err(error) => error,
            };
            let finish = meaning(&error);
            timed_out += usize::from(finish == Finish::TimedOut);
            let others = self.give_up(finish, &error, &mut tried, server);
            if let Some(count) = others
                && timed_out < count
            {
                // The next server gets the full `connect_timeout` again.
                limit = clock::deadline(timeout);
                continue;
            }
            let refused = matches!(finish, Finish::Refused | Finish::TimedOut);
            let last =
                clock::now() + pause.as_micros() as u64 >= limit || (refused && pause > LAST_PAUSE);
            if last {
                let name = self.server_name;
                return Err(ConnectError {
                    address: name.unwrap_or_default().to_owned(),
                    error,
                });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tried.clear();
        }
    }

    /// Chooses a server, with an idle connection to it if there is one. No server is chosen if there is none.
    fn pick(&mut self, choice: &ServerChoice<'_>, tried: &[ServerId]) {
        let pool = self.pool;
        let mut effects = Effects::default();
        let choice = ServerChoice { tried, ..*choice };
        let now = Micros(clock::now());
        pool.state().choose_server(self, now, &choice, &mut effects);
        effects.perform(pool);
    }

    /// The chosen server did not accept the connection. Returns how many servers there are, if one of them is up and
    /// was not tried yet.
    fn give_up(
        &mut self,
        finish: Finish,
        error: &io::Error,
        tried: &mut Vec<ServerId>,
        server: ServerId,
    ) -> Option<usize> {
        let pool = self.pool;
        let chosen = self.chosen.take();
        tried.push(server);
        let mut others = None;
        pool.change(|state, now, effects| {
            if let (Some(group), Some(chosen)) = (&mut state.group, chosen) {
                let cause = error.to_string();
                let finished = super::Finished {
                    chosen,
                    outcome: finish,
                    cause: Some(&cause),
                    conn: None,
                };
                group.finish(now, finished, effects);
                let other = group.balancer.has_other(tried);
                others = other.then(|| group.balancer.count());
            }
            state.fit(pool, now, effects);
        });
        others
    }
}

impl PoolHandle {
    fn address_of(&self, server: ServerId) -> Option<Address> {
        let mut state = self.state();
        let member = state.group.as_mut()?.member_mut(server)?;
        Some(member.address.clone())
    }
}

/// A kept connection, registered with the reactor `home`; `None` if the server has closed it.
fn usable(kept: WorkerConn, home: u16) -> Option<WorkerConn> {
    let kept = kept.at_home(home).ok()?;
    (!kept.has_rested() || !kept.is_stale()).then_some(kept)
}

/// What an error of connect(2) means for the server's state.
fn meaning(error: &io::Error) -> Finish {
    match error.kind() {
        // The accept queue of a unix socket is full.
        io::ErrorKind::WouldBlock => Finish::QueueFull,
        io::ErrorKind::TimedOut => Finish::TimedOut,
        _ if is_of_this_side(error) => Finish::Unknown,
        _ => Finish::Refused,
    }
}

/// First pause before a server is tried again; it doubles each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// When the pause exceeds this, a server that refuses is given up; about 300 ms in all.
const LAST_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gateway_lacks_is_not_the_servers_fault() {
        let os = io::Error::from_raw_os_error;
        // No descriptors, no ports.
        assert_eq!(meaning(&os(24)), Finish::Unknown);
        assert_eq!(meaning(&os(99)), Finish::Unknown);
        assert_eq!(meaning(&os(11)), Finish::QueueFull);
        assert_eq!(meaning(&os(110)), Finish::TimedOut);
        assert_eq!(meaning(&os(111)), Finish::Refused);
        assert_eq!(meaning(&os(2)), Finish::Refused);
    }
}
