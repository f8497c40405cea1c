//! The kernel's accept queues: connections that clients have made and that no reactor has accepted yet.
//!
//! A separate thread checks every [`EVERY`], because a queue fills when a reactor hangs. It keeps the highest length
//! that it has seen. It logs once each time a queue becomes full, and each time the kernel counts connections that it
//! rejected. If a queue becomes full and empty between two checks, only those counters show it.
//!
//! The data comes by netlink, which needs no privileges and works in a chroot. The counters are in a file; for a
//! gateway in a chroot the manager opens that file ([`weir_sys::net_stat::PATH`]).

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use weir_config::{Address, Config};
use weir_sys::{
    net_stat::{Counters, Overflows},
    sock_diag::{self, Diag, Family},
};

use crate::{
    error_log::{self, Format},
    metrics::{Metric, Page},
};

/// A listener's accept queue, summed over all of its sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerQueue {
    /// The NAME of `[listen.NAME]`.
    pub name: String,
    /// As configured.
    pub address: String,
    /// Number of sockets that share the address, one per reactor. The kernel chooses one for each connection,
    /// regardless of the room in the others.
    pub sockets: usize,
    /// Connections that wait to be accepted.
    pub length: u32,
    /// The `backlog` that the kernel has granted, summed over all sockets.
    pub limit: u32,
    /// The highest length since the gateway started.
    pub max_length: u32,
    /// How often the queue of a socket was found full.
    pub full_events: u64,
    /// Whether the queue of a socket is full now.
    pub full: bool,
    /// Connections that the kernel has rejected since the gateway started, because the queue was full or for another
    /// reason. `None`: the kernel does not count them (unix sockets, whose clients wait or are refused).
    pub drops: Option<u64>,
}

/// The result of one check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelView {
    /// In the order of `Config::listeners`. Empty if the kernel gives no data.
    pub listeners: Vec<ListenerQueue>,
    /// Connections that the kernel has rejected since the gateway started, for all TCP listeners of this network
    /// namespace, also those of other programs. `None`: no data.
    pub overflows: Option<Overflows>,
    /// Why there is no data.
    pub failure: Option<String>,
}

impl ListenerQueue {
    /// For the admin interface.
    pub fn to_json(&self) -> Value {
        json!({
            "length": self.length,
            "limit": self.limit,
            "most": self.max_length,
            "full": self.full_events,
            "drops": self.drops,
            "sockets": self.sockets,
        })
    }
}

impl KernelView {
    /// The data that does not belong to one listener, for the admin interface.
    pub fn to_json(&self) -> Value {
        json!({
            "overflows": self.overflows.as_ref().map(|counts| counts.overflows),
            "drops": self.overflows.as_ref().map(|counts| counts.drops),
            "unknown_because": self.failure,
        })
    }

    /// Adds the metrics of all queues.
    pub fn put_metrics(&self, page: &mut Page) {
        for queue in &self.listeners {
            let mut put = |metric, value: f64| page.put(metric, &[&queue.name], value);
            put(Metric::KernelQueue, queue.length.into());
            put(Metric::KernelQueueLimit, queue.limit.into());
            put(Metric::KernelQueueMax, queue.max_length.into());
            put(Metric::KernelQueueFull, queue.full_events as f64);
            if let Some(drops) = queue.drops {
                put(Metric::KernelQueueDrops, drops as f64);
            }
        }
        if let Some(Overflows { overflows, drops }) = self.overflows {
            page.put(Metric::KernelOverflows, &[], overflows as f64);
            page.put(Metric::KernelDrops, &[], drops as f64);
        }
    }
}

/// The queues of a gateway's listeners.
#[derive(Debug)]
pub struct KernelQueues(Mutex<State>);

impl KernelQueues {
    /// For the listening sockets of a gateway, each with its index into `Config::listeners`.
    pub fn new<'a>(
        config: &Config,
        sockets: impl Iterator<Item = (u16, &'a OwnedFd)>,
        counters: Option<OwnedFd>,
    ) -> Self {
        let watched = config.listeners.iter().map(Watched::new);
        let mut watched: Vec<Watched> = watched.collect();
        for (listener, socket) in sockets {
            let watched = watched.get_mut(usize::from(listener));
            if let (Some(watched), Ok(inode)) = (watched, sock_diag::inode(socket)) {
                // Reactors share unix sockets.
                if !watched.inodes.contains(&inode) {
                    watched.inodes.push(inode);
                }
            }
        }
        let counters = match counters {
            Some(file) => Some(Counters::from(file)),
            None => Counters::open().ok(),
        };
        let at_start = counters.as_ref().and_then(|counters| counters.read().ok());
        let (diag, failure) = match Diag::open() {
            Ok(diag) => (Some(diag), None),
            Err(error) => (None, Some(unavailable(&error))),
        };
        if let Some(failure) = &failure {
            log::info!("{failure}");
        }
        Self(Mutex::new(State {
            diag,
            failure,
            watched,
            counters,
            at_start: at_start.unwrap_or_default(),
            turned_away: Episode::default(),
            seen: KernelView::default(),
            last: None,
        }))
    }

    /// The queues as they are now, or were a moment ago ([`FRESH`]). Waits only for the kernel.
    pub fn look(&self, at_limit: &dyn Fn() -> Option<usize>) -> KernelView {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state
            .last
            .is_none_or(|last| now.duration_since(last) >= FRESH)
        {
            state.last = Some(now);
            state.look(now, at_limit);
        }
        state.seen.clone()
    }
}

/// How often the queues are checked without a request for their state.
pub const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    diag: Option<Diag>,
    failure: Option<String>,
    watched: Vec<Watched>,
    counters: Option<Counters>,
    at_start: Overflows,
    turned_away: Episode,
    seen: KernelView,
    last: Option<Instant>,
}

/// A listener, and the last state of its queue.
#[derive(Debug)]
struct Watched {
    inodes: Vec<u32>,
    backlog: u32,
    family: Family,
    queue: ListenerQueue,
    /// How many connections each socket had dropped at the last check. The kernel's counters have 32 bits.
    dropped: BTreeMap<u32, u32>,
    turned_away: Episode,
    /// The log has a message about the full queue. Reset when it is neither full nor rejects connections.
    is_told: bool,
}

/// Length and limit of one socket's queue.
type Socket = (u32, u32);

impl State {
    /// `at_limit`: the value of `max_connections` if that limit is reached, so that no connection is accepted.
    fn look(&mut self, now: Instant, at_limit: &dyn Fn() -> Option<usize>) {
        if let Err(error) = self.look_at_queues(now, at_limit)
            && self.failure.is_none()
        {
            let failure = unavailable(&error);
            log::warn!("{failure}");
            self.failure = Some(failure);
        }
        self.seen.failure.clone_from(&self.failure);
        self.seen.listeners = match self.failure {
            None => self.watched.iter().map(|w| w.queue.clone()).collect(),
            Some(_) => Vec::new(),
        };
        self.look_at_counters(now);
    }

    fn look_at_queues(
        &mut self,
        now: Instant,
        at_limit: &dyn Fn() -> Option<usize>,
    ) -> io::Result<()> {
        let Some(diag) = &mut self.diag else {
            return Ok(());
        };
        let mut sockets: BTreeMap<u32, sock_diag::Listener> = BTreeMap::new();
        let mut asked = Vec::new();
        for family in self.watched.iter().map(|watched| watched.family) {
            if !asked.contains(&family) {
                asked.push(family);
                let found = diag.listeners(family)?;
                sockets.extend(found.into_iter().map(|listener| (listener.inode, listener)));
            }
        }
        self.failure = None;
        for watched in &mut self.watched {
            let of = |inode: &u32| sockets.get(inode);
            let found: Vec<&sock_diag::Listener> = watched.inodes.iter().filter_map(of).collect();
            let sockets: Vec<Socket> = found.iter().map(|l| (l.length, l.limit)).collect();
            let fills = watched.queue.note(&sockets);
            let dropped = watched.drop_counts(&found);
            let turned_away = watched.turned_away.note(now, dropped);
            if watched.begins_trouble(fills || turned_away == Some(Turn::Begins)) {
                log::warn!("{}", watched.says_full(&sockets, dropped, at_limit()));
            }
            if let Some(Turn::Ended(all)) = turned_away {
                let name = &watched.queue.name;
                log::info!("listen.{name} no longer rejects connections, after {all}");
            }
        }
        Ok(())
    }

    fn look_at_counters(&mut self, now: Instant) {
        let Some(Ok(counted)) = self.counters.as_ref().map(Counters::read) else {
            self.seen.overflows = None;
            return;
        };
        let since = Overflows {
            overflows: counted.overflows.saturating_sub(self.at_start.overflows),
            drops: counted.drops.saturating_sub(self.at_start.drops),
        };
        let before = self.seen.overflows.replace(since).unwrap_or_default();
        let more = since.overflows.saturating_sub(before.overflows);
        let ours = self
            .watched
            .iter()
            .any(|watched| watched.turned_away.lasts());
        // Those of weir's own listeners were already logged with the listener's name.
        if self.turned_away.note(now, more) == Some(Turn::Begins) && !ours {
            // PHP-FPM's log is about PHP-FPM.
            let level = match error_log::format() {
                Format::Weir => log::Level::Info,
                Format::Fpm => log::Level::Debug,
            };
            log::log!(
                level,
                "the kernel rejected {more} connections because an accept queue was full (ListenOverflows, which counts all \
                 programs of this network namespace), none of them in a queue of weir; weir watch --all shows the other queues"
            );
        }
    }
}

impl Watched {
    fn new(listener: &weir_config::Listener) -> Self {
        // Not filtered by port: for port 0 the kernel chooses one, and the whole list is short.
        let family = match &listener.address {
            Address::Tcp(address) if address.is_ipv4() => Family::Tcp4(0),
            Address::Tcp(_) => Family::Tcp6(0),
            Address::Unix(_) => Family::Unix,
        };
        Self {
            inodes: Vec::new(),
            backlog: listener.backlog,
            family,
            queue: ListenerQueue {
                name: listener.name.clone(),
                address: listener.address.to_string(),
                sockets: 0,
                length: 0,
                limit: 0,
                max_length: 0,
                full_events: 0,
                full: false,
                drops: None,
            },
            dropped: BTreeMap::new(),
            turned_away: Episode::default(),
            is_told: false,
        }
    }

    /// Whether to log now that the queue is full: once while it is full or rejects clients. If it was full between
    /// two checks and is full at the next one, this is the same incident. `is_new`: it has just become full, or begun
    /// to reject.
    fn begins_trouble(&mut self, is_new: bool) -> bool {
        let begins = is_new && !self.is_told;
        self.is_told = (self.is_told || begins) && (self.queue.full || self.turned_away.lasts());
        begins
    }

    /// How many connections the kernel has dropped since the last check.
    fn drop_counts(&mut self, sockets: &[&sock_diag::Listener]) -> u64 {
        let mut new = 0;
        for socket in sockets {
            if let Some(drops) = socket.drops {
                let before = self.dropped.insert(socket.inode, drops).unwrap_or(drops);
                new += u64::from(drops.wrapping_sub(before));
                *self.queue.drops.get_or_insert(0) += u64::from(drops.wrapping_sub(before));
            }
        }
        new
    }

    fn says_full(&self, sockets: &[Socket], dropped: u64, at_limit: Option<usize>) -> String {
        let queue = &self.queue;
        let fullest = sockets.iter().max_by_key(|(length, _)| *length);
        let (length, limit) = fullest.copied().unwrap_or_default();
        let one_of = match sockets.len() {
            0 | 1 => String::new(),
            many => format!(" on one of its {many} sockets"),
        };
        let mend = match at_limit {
            Some(most) => format!(
                "max_connections = {most} of [server] are open: raise it, or lower idle_timeout of [listen.{}]",
                queue.name
            ),
            None if limit < self.backlog => format!(
                "the kernel cut backlog = {} to {limit}: {}, then restart weir",
                self.backlog,
                weir_machine::limits::set_sysctl("net.core.somaxconn", self.backlog)
            ),
            None => format!(
                "if connections come in bursts, raise backlog of [listen.{}] and net.core.somaxconn; if \
                 it lasts, the reactors are too slow: raise threads in [server], or send fewer clients",
                queue.name
            ),
        };
        let away = match (dropped, &self.family) {
            (0, Family::Unix) => "more clients wait in connect() or are refused".to_owned(),
            (0, _) => "more are rejected".to_owned(),
            (1, _) => "1 was rejected".to_owned(),
            (dropped, _) => format!("{dropped} were rejected"),
        };
        let is = match self.queue.full {
            true => "is",
            // It was full between two checks.
            false => "was",
        };
        format!(
            "the accept queue of listen.{} ({}) {is} full: {length} of {limit} wait{one_of}, {away}; {mend}",
            queue.name, queue.address
        )
    }
}

impl ListenerQueue {
    /// Stores the state of its sockets. Returns whether the queue has just become full.
    ///
    /// A full queue counts as full until each socket's queue is at most half full. So a queue that stays near its
    /// limit is one event and not a thousand.
    fn note(&mut self, sockets: &[Socket]) -> bool {
        let sum = |of: fn(&Socket) -> u32| sockets.iter().map(of).fold(0, u32::saturating_add);
        self.sockets = sockets.len();
        self.length = sum(|socket| socket.0);
        self.limit = sum(|socket| socket.1);
        self.max_length = self.max_length.max(self.length);
        let was = self.full;
        self.full = match was {
            // The kernel accepts one connection more than the limit.
            false => sockets.iter().any(|(length, limit)| length > limit),
            true => sockets.iter().any(|(length, limit)| *length > limit / 2),
        };
        let begins = self.full && !was;
        self.full_events += u64::from(begins);
        begins
    }
}

/// Repeated rejections of connections, logged as one event.
#[derive(Debug, Default)]
struct Episode {
    count: u64,
    last: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Begins,
    /// The incident ended after this many.
    Ended(u64),
}

impl Episode {
    fn lasts(&self) -> bool {
        self.last.is_some()
    }

    fn note(&mut self, now: Instant, more: u64) -> Option<Turn> {
        if more > 0 {
            let begins = self.last.is_none();
            self.last = Some(now);
            self.count += more;
            return begins.then_some(Turn::Begins);
        }
        let last = self.last?;
        if now.duration_since(last) < CALM {
            return None;
        }
        self.last = None;
        Some(Turn::Ended(std::mem::take(&mut self.count)))
    }
}

fn unavailable(error: &io::Error) -> String {
    format!(
        "cannot watch the accept queues of the listeners: the kernel refuses sock_diag: {error}; allow AF_NETLINK \
         in the sandbox (RestrictAddressFamilies= in the systemd unit)"
    )
}

/// A second request within this time gets the last result.
const FRESH: Duration = Duration::from_millis(100);

/// An episode is over when nothing was rejected for this long.
const CALM: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::Environment;

    fn config(text: &str) -> Config {
        let environment = Environment::of_this_machine(Path::new("/"));
        weir_config::parse("weir.toml", text, &environment).unwrap()
    }

    fn web() -> Watched {
        let text =
            "[listen.web]\naddress = \"127.0.0.1:8080\"\nbacklog = 511\n[site.a]\nroot = \"/\"\n";
        Watched::new(&config(text).listeners[0])
    }

    #[test]
    fn a_queue_is_full_once_until_it_is_half_empty() {
        let mut queue = web().queue;
        assert!(!queue.note(&[(128, 128), (0, 128)]));
        assert!(queue.note(&[(129, 128), (0, 128)]));
        assert_eq!((queue.length, queue.limit, queue.sockets), (129, 256, 2));
        assert!(!queue.note(&[(128, 128), (0, 128)]) && queue.full);
        assert!(!queue.note(&[(129, 128), (0, 128)]));
        assert!(!queue.note(&[(64, 128), (64, 128)]) && !queue.full);
        assert!(queue.note(&[(0, 128), (129, 128)]));
        assert_eq!((queue.full_events, queue.max_length), (2, 129));
        assert!(!queue.note(&[]));
    }

    #[test]
    fn a_queue_that_was_full_between_two_looks_is_not_told_again_when_it_still_is() {
        let (mut watched, now) = (web(), Instant::now());
        let mut look = |seconds: u64, length: u32, dropped: u64| {
            let fills = watched.queue.note(&[(length, 128)]);
            let turned_away = watched
                .turned_away
                .note(now + Duration::from_secs(seconds), dropped);
            watched.begins_trouble(fills || turned_away == Some(Turn::Begins))
        };
        assert!(!look(0, 128, 0));
        assert!(look(1, 128, 7));
        assert!(!look(2, 129, 10));
        assert!(!look(3, 0, 1));
        // The queue is not full for a long time: the next time is a new incident.
        assert!(!look(10_000, 0, 0));
        assert!(look(10_001, 129, 0));
        assert!(!look(10_002, 129, 5));
    }

    #[test]
    fn a_full_queue_names_itself_and_what_mends_it() {
        let mut watched = web();
        watched.queue.full = true;
        let said = watched.says_full(&[(129, 128)], 0, None);
        for part in [
            "accept queue of listen.web (127.0.0.1:8080) is full: 129 of 128 wait,",
            "cut backlog = 511 to 128",
            "sysctl -w net.core.somaxconn=511",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let said = watched.says_full(&[(512, 511), (3, 511)], 7, None);
        assert!(
            said.contains("on one of its 2 sockets, 7 were rejected")
                && said.contains("raise backlog"),
            "{said}"
        );
        let said = watched.says_full(&[(512, 511)], 0, Some(1000));
        assert!(said.contains("max_connections = 1000"), "{said}");
    }

    #[test]
    fn connections_turned_away_are_told_once_until_it_is_calm() {
        let mut episode = Episode::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(episode.note(start, 0), None);
        assert_eq!(episode.note(after(1), 3), Some(Turn::Begins));
        assert_eq!(episode.note(after(2), 4), None);
        assert_eq!(episode.note(after(61), 0), None);
        assert_eq!(episode.note(after(62), 0), Some(Turn::Ended(7)));
        assert_eq!(episode.note(after(63), 0), None);
        assert_eq!(episode.note(after(64), 1), Some(Turn::Begins));
    }

    #[test]
    fn the_kernel_is_asked_for_sockets_by_their_number() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let socket = OwnedFd::from(socket);
        let text = "[listen.web]\naddress = \"127.0.0.1:0\"\n[site.a]\nroot = \"/\"\n";
        // The same socket twice, as if two reactors shared it.
        let twice = [(0, &socket), (0, &socket), (9, &socket)].into_iter();
        let queues = KernelQueues::new(&config(text), twice, None);
        let _client = std::net::TcpStream::connect(address).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = queues.look(&|| None);
            assert_eq!((seen.failure, seen.listeners[0].sockets), (None, 1));
            assert!(seen.overflows.is_some() && seen.listeners[0].limit > 0);
            if seen.listeners[0].length == 1 {
                break;
            }
            assert!(Instant::now() < end, "the client is never in the queue");
            std::thread::yield_now();
        }
    }
}
