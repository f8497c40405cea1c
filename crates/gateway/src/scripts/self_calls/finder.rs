//! Looks up who has sent the requests that wait for a worker.
//!
//! Thousands of requests may wait, and few are calls of workers. So a waiting request has no timer and no task for
//! this: it is a [`PendingLookup`], and one task checks the candidates in turn, as fast as lookups are allowed. When it
//! finds the worker, it stores the worker with the candidate and wakes the task of the request's connection, perhaps on
//! another reactor.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::sync::Notify;
use weir_upstream::driver::ByNumber;

use super::{Gateway, Requester, SelfCalls};
use crate::clock;

/// A waiting request whose client may be a worker. It is looked up until this is dropped.
pub(crate) struct PendingLookup {
    gateway: &'static Gateway,
    request: u64,
}

/// The requests that are to be looked up, by their numbers.
#[derive(Default)]
pub(super) struct Finding {
    list: Mutex<List>,
    /// There is a candidate that is due earlier than those before.
    news: Notify,
}

#[derive(Default)]
struct List {
    waiting: ByNumber<u64, Waiting>,
    /// Requests that were not looked up yet, by the time when they are due. Some may have ended meanwhile.
    first: VecDeque<(u64, u64)>,
    /// Requests whose lookup found nothing, in the same form.
    again: BTreeSet<(u64, u64)>,
    /// The last one was taken from `again`.
    was_again: bool,
    /// The task runs.
    runs: bool,
}

struct Waiting {
    asker: Requester,
    /// The worker that makes the call; 0: not found yet.
    worker: u32,
    /// Wakes the task of the request's connection.
    waker: Waker,
    /// Time between the last lookup and the next, µs.
    pause: u64,
    /// When the next one is due ([`clock::now`]).
    due: u64,
}

/// What the task does next.
enum Next {
    LookUp(u64, Requester),
    /// Nothing before this time ([`clock::now`]).
    WaitUntil(u64),
    Nothing,
}

impl Gateway {
    /// The request with this number begins to wait, and its client may be a worker.
    /// `waker`: of the task of its connection.
    pub(crate) fn may_call(
        &'static self,
        asker: Requester,
        request: u64,
        waker: &Waker,
    ) -> PendingLookup {
        let finding = &self.self_calls.finder;
        let mut list = finding.list();
        let due = clock::now() + FIRST_PAUSE;
        let waiting = Waiting {
            asker,
            worker: 0,
            waker: waker.clone(),
            pause: FIRST_PAUSE,
            due,
        };
        list.waiting.insert(request, waiting);
        list.first.push_back((due, request));
        list.forget_gone();
        let (runs, is_next) = (
            std::mem::replace(&mut list.runs, true),
            list.first.len() == 1,
        );
        drop(list);
        if !runs {
            tokio::spawn(Task(self).run());
        } else if is_next {
            finding.news.notify_one();
        }
        PendingLookup {
            gateway: self,
            request,
        }
    }

    async fn look_up_candidate(&'static self, request: u64, asker: Requester) {
        let found = match self.known_caller(&asker) {
            Some(known) => known,
            None => self.look_up(&asker.source).await,
        };
        let mut list = self.self_calls.finder.list();
        match found {
            Some(pid) => {
                if let Some(waiting) = list.waiting.get_mut(&request) {
                    waiting.worker = pid;
                    waiting.waker.wake_by_ref();
                }
            }
            None if asker.source.may_be_found() => {
                list.look_again(request);
                self.self_calls.finder.news.notify_one();
            }
            None => {}
        }
    }
}

impl PendingLookup {
    /// The worker that has made this call, once it is found, and where the workers are. The connection's task is woken then.
    pub(crate) fn call(&self) -> Option<(&'static Gateway, u32)> {
        let list = self.gateway.self_calls.finder.list();
        let worker = list.waiting.get(&self.request)?.worker;
        (worker != 0).then_some((self.gateway, worker))
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        let mut list = self.gateway.self_calls.finder.list();
        if let Some(waiting) = list.waiting.remove(&self.request) {
            list.again.remove(&(waiting.due, self.request));
        }
    }
}

/// The task. It runs from the first candidate on, until its reactor ends.
struct Task(&'static Gateway);

impl Task {
    async fn run(self) {
        let calls = &self.0.self_calls;
        loop {
            let next = calls.finder.list().next(calls, clock::precise());
            match next {
                Next::LookUp(request, asker) => {
                    tokio::spawn(self.0.look_up_candidate(request, asker));
                }
                Next::WaitUntil(time) => {
                    let left = Duration::from_micros(time.saturating_sub(clock::precise()));
                    let _ = tokio::time::timeout(left, calls.finder.news.notified()).await;
                }
                Next::Nothing => calls.finder.news.notified().await,
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.self_calls.finder.list().runs = false;
    }
}

impl Finding {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// Takes the next candidate that may be looked up now.
    fn next(&mut self, calls: &SelfCalls, now: u64) -> Next {
        while let Some((_, request)) = self.first.front()
            && !self.waiting.contains_key(request)
        {
            self.first.pop_front();
        }
        let (first, again) = (self.first.front().copied(), self.again.first().copied());
        let is_due = |at: Option<(u64, u64)>| at.is_some_and(|(due, _)| due <= now);
        let takes_again = match (is_due(first), is_due(again)) {
            (false, false) => {
                let due = first.into_iter().chain(again).min();
                return due.map_or(Next::Nothing, |(due, _)| Next::WaitUntil(due));
            }
            (true, true) => !self.was_again,
            (_, again) => again,
        };
        let request = if takes_again { again } else { first };
        let request = request.map_or(0, |(_, request)| request);
        let Some(waiting) = self.waiting.get(&request) else {
            return Next::WaitUntil(now);
        };
        let asker = waiting.asker.clone();
        if asker.worker().is_none()
            && asker.source.may_be_found()
            && let Err(time) = calls.turn(now)
        {
            return Next::WaitUntil(time);
        }
        match takes_again {
            true => drop(self.again.pop_first()),
            false => drop(self.first.pop_front()),
        }
        self.was_again = takes_again;
        Next::LookUp(request, asker)
    }

    /// A lookup has found no worker.
    fn look_again(&mut self, request: u64) {
        if let Some(waiting) = self.waiting.get_mut(&request) {
            waiting.pause = (waiting.pause * 2).min(LAST_PAUSE);
            waiting.due = clock::precise() + waiting.pause;
            self.again.insert((waiting.due, request));
        }
    }

    /// Removes requests that do not wait any more, if they are the larger part.
    fn forget_gone(&mut self) {
        let List { waiting, first, .. } = self;
        if first.len() > 2 * waiting.len() + SPARE {
            first.retain(|(_, request)| waiting.contains_key(request));
        }
    }
}

/// Time between the begin of the wait and the first lookup, µs: most requests wait for less. It doubles after each
/// lookup that finds nothing, up to the last.
const FIRST_PAUSE: u64 = 5_000;
const LAST_PAUSE: u64 = 10_000_000;

/// How many requests that have gone may be in the list in any case.
const SPARE: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::scripts::self_calls::ConnectionOrigin;

    fn waiting(now: u64) -> Waiting {
        let address = |text: &str| text.parse::<SocketAddr>().ok();
        let source = ConnectionOrigin::new(address("127.0.0.1:5"), address("127.0.0.1:80"), None);
        Waiting {
            asker: Requester { source, named: 0 },
            worker: 0,
            waker: Waker::noop().clone(),
            pause: FIRST_PAUSE,
            due: now + FIRST_PAUSE,
        }
    }

    fn wait(list: &mut List, request: u64, now: u64) {
        list.waiting.insert(request, waiting(now));
        list.first.push_back((now + FIRST_PAUSE, request));
        list.forget_gone();
    }

    fn leave(list: &mut List, request: u64) {
        let waiting = list.waiting.remove(&request).expect("it waits");
        list.again.remove(&(waiting.due, request));
    }

    #[test]
    fn waiting_requests_are_looked_up_in_turn_and_as_fast_as_allowed() {
        let (calls, mut list) = (SelfCalls::default(), List::default());
        let mut now = clock::precise() + 60_000_000;
        assert!(matches!(list.next(&calls, now), Next::Nothing));
        for request in 1..=1_000 {
            wait(&mut list, request, now);
        }
        let Next::WaitUntil(due) = list.next(&calls, now) else {
            panic!("the first one is not due yet");
        };
        assert_eq!(due, now + FIRST_PAUSE);
        now = due;
        let mut looked_up = Vec::new();
        while let Next::LookUp(request, _) = list.next(&calls, now) {
            looked_up.push(request);
        }
        let allowed = crate::scripts::self_calls::AT_ONCE;
        assert_eq!(looked_up, (1..=allowed).collect::<Vec<_>>());
        assert!(matches!(list.next(&calls, now), Next::WaitUntil(time) if time > now));
        // Those whose lookup found nothing are checked again, in turn with those that were not looked up yet.
        list.look_again(1);
        now = clock::precise() + 120_000_000;
        let mut next = || match list.next(&calls, now) {
            Next::LookUp(request, _) => request,
            _ => 0,
        };
        assert_eq!((next(), next(), next()), (1, allowed + 1, allowed + 2));
    }

    #[test]
    fn requests_that_have_gone_take_no_lookup_and_no_memory() {
        let (calls, mut list) = (SelfCalls::default(), List::default());
        let now = clock::precise() + 60_000_000;
        for request in 1..=100_000 {
            wait(&mut list, request, now);
            if request % 1_000 != 0 {
                leave(&mut list, request);
            }
        }
        assert!(list.first.len() < 1_000, "{}", list.first.len());
        let later = now + FIRST_PAUSE;
        assert!(matches!(list.next(&calls, later), Next::LookUp(1_000, _)));
        list.look_again(1_000);
        leave(&mut list, 1_000);
        assert!(list.again.is_empty());
    }
}
