//! Tells the egress which worker makes a call. See [`weir_interfaces::egress`].

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use weir_config::{Address, HostPattern, Listener, Protocol};
use weir_control::{CallSource, ManagerHandle, ToManager};
use weir_interfaces::{
    admin::Task,
    egress::{WorkerNow, Workers},
};
use weir_observe::clock;
use weir_sys::socket_owners::Owner;

use crate::Gateway;

/// Questions to the manager, which has the rights to inspect workers.
pub(crate) struct Owners {
    manager: ManagerHandle,
    next: AtomicU32,
    /// The manager may not inspect workers either, so it gets no more questions.
    barred: AtomicBool,
    asked: Mutex<PendingQuestions>,
}

#[derive(Default)]
struct PendingQuestions {
    waiting: HashMap<u32, oneshot::Sender<Told<u32>>>,
    former: HashMap<u32, oneshot::Sender<Told<(u32, String)>>>,
    /// When the next question may be asked ([`clock::now`]).
    next_at: u64,
}

/// An answer of the manager. If there is nothing to tell, the question is dropped instead.
#[derive(Debug, PartialEq, Eq)]
enum Told<T> {
    Found(T),
    /// There was no time for the search.
    Later,
}

/// The workers of all pools.
pub(crate) struct AtWork {
    gateway: &'static Gateway,
    /// In the order of the pools.
    names: Vec<Arc<str>>,
}

impl Owners {
    pub(crate) fn new(manager: ManagerHandle) -> Owners {
        Owners {
            manager,
            next: AtomicU32::new(1),
            barred: AtomicBool::new(false),
            asked: Mutex::default(),
        }
    }

    /// The manager has sent its answer.
    pub(crate) fn told(&self, id: u32, owner: Owner) {
        let asker = self.asked().waiting.remove(&id);
        let told = match owner {
            Owner::Process(pid) => Told::Found(pid),
            Owner::Later => Told::Later,
            Owner::Barred => return self.barred.store(true, Relaxed),
            Owner::Nobody => return,
        };
        if let Some(asker) = asker {
            // The task that asked may have ended meanwhile.
            let _ = asker.send(told);
        }
    }

    /// The manager has answered a question about a worker of an earlier configuration.
    pub(crate) fn told_former(&self, id: u32, found: Option<(u32, String)>, later: bool) {
        let asker = self.asked().former.remove(&id);
        let told = match (found, later) {
            (Some(found), _) => Told::Found(found),
            (None, true) => Told::Later,
            (None, false) => return,
        };
        if let Some(asker) = asker {
            // The task that asked may have ended meanwhile.
            let _ = asker.send(told);
        }
    }

    /// When the next question may be asked ([`clock::now`]); `None` if too many questions are waiting already, or the
    /// manager cannot answer.
    fn turn(&self, now: u64) -> Option<u64> {
        if self.barred.load(Relaxed) {
            return None;
        }
        self.any_turn(now)
    }

    fn any_turn(&self, now: u64) -> Option<u64> {
        let mut asked = self.asked();
        let turn = asked.next_at.max(now);
        if turn - now > MOST_WAIT {
            return None;
        }
        asked.next_at = turn + PAUSE;
        Some(turn)
    }

    fn ask_former(&self, whose: CallSource) -> oneshot::Receiver<Told<(u32, String)>> {
        let id = self.next.fetch_add(1, Relaxed);
        let receiver = expect(&mut self.asked().former, id);
        self.manager.tell(ToManager::FindFormer { id, whose });
        receiver
    }

    fn ask(&self, inode: u32, workers: Vec<(u16, u32)>) -> oneshot::Receiver<Told<u32>> {
        let id = self.next.fetch_add(1, Relaxed);
        let receiver = expect(&mut self.asked().waiting, id);
        self.manager
            .tell(ToManager::FindOwner { id, inode, workers });
        receiver
    }

    fn asked(&self) -> MutexGuard<'_, PendingQuestions> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes a question, and removes those that nobody waits for any more.
fn expect<T>(questions: &mut HashMap<u32, oneshot::Sender<T>>, id: u32) -> oneshot::Receiver<T> {
    questions.retain(|_, asker| !asker.is_closed());
    let (sender, receiver) = oneshot::channel();
    questions.insert(id, sender);
    receiver
}

impl AtWork {
    pub(crate) fn new(gateway: &'static Gateway) -> AtWork {
        let pools = gateway.pools.iter();
        let names = pools.map(|pool| pool.settings.name.as_str().into());
        AtWork {
            names: names.collect(),
            gateway,
        }
    }
}

impl Workers for AtWork {
    fn of_pid(&self, pid: u32) -> Option<WorkerNow> {
        let place = self.gateway.numbers.find(pid)?;
        let pool = usize::from(place.pool);
        let (request, deadline) = self.gateway.pools.get(pool)?.works(pid, place)?;
        Some(WorkerNow {
            pool: self.names.get(pool)?.clone(),
            request,
            deadline,
        })
    }

    fn busy_pids(&self) -> Vec<u32> {
        let workers = self.gateway.pools.iter().flat_map(|pool| pool.at_work());
        workers.map(|(_, pid)| pid).collect()
    }

    fn owner(&self, inode: u32) -> Task<Option<u32>> {
        Box::pin(owner_of(self.gateway, inode))
    }

    fn serves(&self, host: &str, address: SocketAddr) -> bool {
        let config = &self.gateway.config;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let is_listener = |listener: &Listener| match (&listener.address, &listener.protocol) {
            (Address::Tcp(own), Protocol::Http) => {
                let own_ip = own.ip().to_canonical();
                let is_any = own_ip.is_unspecified() && address.ip().is_loopback();
                own.port() == address.port() && (is_any || own_ip == address.ip())
            }
            _ => false,
        };
        let named = |pattern: &HostPattern| match pattern {
            HostPattern::Exact(name) => name == host,
            HostPattern::Suffix(suffix) => host.ends_with(suffix),
            HostPattern::Prefix(prefix) => host.starts_with(prefix),
        };
        config.listeners.iter().any(is_listener)
            || config.sites.iter().any(|site| site.hosts.iter().any(named))
    }

    fn former(&self, whose: CallSource) -> Task<Option<(u32, Arc<str>)>> {
        let gateway = self.gateway;
        Box::pin(async move {
            for _ in 0..MOST_TRIES {
                let turn = gateway.owners.any_turn(clock::precise())?;
                until(turn).await;
                let asked = gateway.owners.ask_former(whose);
                let told = tokio::time::timeout(MANAGERS_TIME, asked).await;
                match told.ok()?.ok()? {
                    Told::Found((pid, pool)) => return Some((pid, pool.into())),
                    Told::Later => tokio::time::sleep(LATER).await,
                }
            }
            None
        })
    }
}

/// The process id of the busy worker that has the socket with this inode open, as the manager sees it.
pub(crate) async fn owner_of(gateway: &'static Gateway, inode: u32) -> Option<u32> {
    for _ in 0..MOST_TRIES {
        let turn = gateway.owners.turn(clock::precise())?;
        until(turn).await;
        let pools = gateway.pools.iter();
        let workers = pools.flat_map(|pool| {
            let workers = pool.at_work().into_iter();
            workers.map(|(number, _)| (pool.id, number))
        });
        let workers = workers.take(ToManager::MOST_ASKED).collect();
        match gateway.owners.ask(inode, workers).await.ok()? {
            Told::Found(pid) => return Some(pid),
            Told::Later => tokio::time::sleep(LATER).await,
        }
    }
    None
}

/// Waits until this time ([`clock::now`]).
async fn until(turn: u64) {
    let wait = Duration::from_micros(turn.saturating_sub(clock::precise()));
    tokio::time::sleep(wait).await;
}

/// Minimum time between two questions, µs: 200 per second.
const PAUSE: u64 = 5_000;

/// How often a question is asked if the manager has no time, and the pause before the next try. The manager answers a
/// question after 20 times what the one before took, which is less than a millisecond.
const MOST_TRIES: u32 = 100;
const LATER: Duration = Duration::from_millis(20);

/// How long the manager may take to answer.
const MANAGERS_TIME: Duration = Duration::from_secs(1);

/// A question that would have to wait longer than this is not asked, µs.
const MOST_WAIT: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> (Owners, Arc<Mutex<Vec<ToManager>>>) {
        let told: Arc<Mutex<Vec<ToManager>>> = Arc::default();
        let manager = {
            let told = told.clone();
            ManagerHandle::new(move |message| told.lock().expect("no panic").push(message))
        };
        (Owners::new(manager), told)
    }

    #[test]
    fn who_asks_is_told() {
        let (owners, told) = owners();
        let mut asker = owners.ask(7, vec![(0, 3)]);
        let question = ToManager::FindOwner {
            id: 1,
            inode: 7,
            workers: vec![(0, 3)],
        };
        assert_eq!(*told.lock().expect("no panic"), [question]);
        owners.told(2, Owner::Process(9));
        assert!(asker.try_recv().is_err());
        owners.told(1, Owner::Process(99));
        assert_eq!(asker.try_recv(), Ok(Told::Found(99)));
    }

    #[test]
    fn a_manager_that_has_no_time_is_asked_again_and_has_not_told_of_nobody() {
        let (owners, _) = owners();
        let mut asker = owners.ask(7, vec![(0, 3)]);
        owners.told(1, Owner::Later);
        assert_eq!(asker.try_recv(), Ok(Told::Later));
        let mut asker = owners.ask_former(CallSource::Process(9));
        owners.told_former(2, None, true);
        assert_eq!(asker.try_recv(), Ok(Told::Later));
        let mut asker = owners.ask_former(CallSource::Process(9));
        owners.told_former(3, None, false);
        assert!(asker.try_recv().is_err());
    }

    #[test]
    fn a_manager_that_may_not_look_is_not_asked_again() {
        let (owners, told) = owners();
        let mut asker = owners.ask(7, vec![(0, 3)]);
        assert!(owners.turn(1).is_some());
        owners.told(1, Owner::Barred);
        assert!(asker.try_recv().is_err());
        assert_eq!(owners.turn(10_000_000), None);
        assert_eq!(told.lock().expect("no panic").len(), 1);
    }

    #[test]
    fn questions_take_turns_and_not_too_many_wait() {
        let (owners, _) = owners();
        let turns: Vec<u64> = std::iter::from_fn(|| owners.turn(100)).collect();
        assert_eq!(turns[..2], [100, 100 + PAUSE]);
        assert_eq!(turns.len() as u64, MOST_WAIT / PAUSE + 1);
        assert_eq!(owners.turn(MOST_WAIT * 3), Some(MOST_WAIT * 3));
    }
}
