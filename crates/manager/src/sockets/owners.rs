//! Finds the worker that has a socket: the gateway may not inspect most workers, but the manager may if it is root.
//!
//! Only workers of this weir are checked, and the cost is limited: while earlier searches have
//! taken more than 1/[`SHARE`] of the time since, a new one is refused and has to be requested
//! again later.

use std::time::{Duration, Instant};

use weir_sys::{
    cpu,
    socket_owners::{Finder, MOST_LINKS, Owner},
};

/// Answers the questions of one generation.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    finder: Finder,
    due: Option<Instant>,
}

impl Owners {
    /// Finds which of these processes has the socket.
    pub(crate) fn find(&mut self, now: Instant, inode: u32, pids: &[u32]) -> Owner {
        if self.due.is_some_and(|due| due > now) {
            return Owner::Later;
        }
        // CPU time, not real time: on a busy machine, most of the real time belongs to other
        // programs, and all callers would have to ask again.
        let began = cpu::of_thread();
        let owner = self.finder.owner(inode, pids, MOST_LINKS);
        let taken = cpu::of_thread().saturating_sub(began);
        self.due = Some(now + spent_on(taken));
        owner
    }
}

/// How long no other question is answered after one that took `taken`.
fn spent_on(taken: Duration) -> Duration {
    taken * SHARE
}

/// At most this fraction (1/20) of the manager's time.
const SHARE: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn who_asks_too_often_is_to_ask_again_later_and_not_told_of_nobody() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = weir_sys::sock_diag::inode(socket.as_fd()).unwrap();
        let (mut owners, us) = (Owners::default(), std::process::id());
        let now = Instant::now();
        assert_eq!(owners.find(now, inode, &[us]), Owner::Process(us));
        assert_eq!(owners.find(now, inode, &[us]), Owner::Later);
        let later = owners.due.expect("a time");
        assert_eq!(owners.find(later, inode, &[us]), Owner::Process(us));
    }
}
