//! Which worker has a socket: the gateway may not look into most of them, the manager may where it is root.
//!
//! Only workers of this weir are looked at, and what it costs bounds how often: a question that comes while an earlier
//! one has taken more than one part in [`SHARE`] of the time since is answered with nobody.

use std::time::{Duration, Instant};

use weir_sys::socket_owners::{Finder, Owner};

/// Answers of one generation.
#[derive(Debug, Default)]
pub(super) struct Owners {
    finder: Finder,
    due: Option<Instant>,
}

impl Owners {
    /// Which of these processes has the socket.
    pub(super) fn find(&mut self, now: Instant, inode: u32, pids: &[u32]) -> Owner {
        if self.due.is_some_and(|due| due > now) {
            return Owner::Nobody;
        }
        let began = Instant::now();
        let owner = self.finder.owner(inode, pids, MOST_LINKS);
        self.due = Some(now + spent_on(began.elapsed()));
        owner
    }
}

/// How long no other question is answered after one that took so long.
fn spent_on(taken: Duration) -> Duration {
    taken * SHARE
}

/// One part in so many of the manager's time.
const SHARE: u32 = 20;

/// Links that are read for one question: some milliseconds.
const MOST_LINKS: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn who_asks_too_often_is_told_of_nobody() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = weir_sys::sock_diag::inode(socket.as_fd()).unwrap();
        let (mut owners, us) = (Owners::default(), std::process::id());
        let now = Instant::now();
        assert_eq!(owners.find(now, inode, &[us]), Owner::Process(us));
        assert_eq!(owners.find(now, inode, &[us]), Owner::Nobody);
        let later = owners.due.expect("a time");
        assert_eq!(owners.find(later, inode, &[us]), Owner::Process(us));
    }
}
