//! Decides which server gets a request, and tracks which servers are up.
//!
//! [`Balancer`] knows for each server its weight, its running requests, its limit, and whether it is up. It is told
//! how requests and checks end. The caller has the connections, addresses and the clock.

use alloc::vec::Vec;

use crate::Micros;
use crate::adaptive_limit::{AdaptiveLimit, Begun, LimitBounds, RequestEnd};
use crate::health::{Health, Rules};
use crate::log2::{FRACTION, log2};

pub use crate::health::{Change, Why};

/// A server's number. It is reused when the server was removed and its last request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// How a server is chosen among those that are up and have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// In turns, in proportion to their weights, evenly mixed.
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastConn,
    /// The first one in the order in which they were added; the next one gets requests only when it has no room.
    First,
    /// Two random ones, by weight; of these the one with fewer requests for its weight.
    Random,
    /// The one that the key belongs to. When servers are added or removed, only the necessary keys move.
    Hash {
        /// If a server would have more requests than this percentage of its share, its keys go to another server,
        /// always the same for a key; 0: only if it has no room.
        factor: u32,
    },
}

/// The limits of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// This many requests at all servers together. Each server gets a share by its weight; the share of a server that
    /// is down is not distributed to others. Servers and backup servers divide the limit separately.
    Shared(usize),
    /// Each server's limit is found by measuring ([`AdaptiveLimit`]), within these bounds.
    Adaptive(LimitBounds),
}

/// The settings of a [`Balancer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balancing {
    /// How a server is chosen.
    pub algorithm: Algorithm,
    /// The limits of requests.
    pub capacity: Capacity,
    /// This many failures in a row within `fail_timeout` take a server down; 0: never. A single refused connection
    /// does it, too.
    pub max_fails: u32,
    /// See `max_fails`. It is also the maximum pause before a failed server is tried again with single requests; the
    /// first pause is a tenth of it. Not used with `checked`.
    pub fail_timeout: Micros,
    /// Servers are checked: then only checks bring a server back up.
    pub checked: bool,
    /// This many good checks in a row bring a server up.
    pub rise: u32,
    /// This many bad checks in a row take it down; for a server that was never checked, the first one.
    pub fall: u32,
    /// For this long, a server that came back gets a growing part of its share.
    pub slowstart: Micros,
    /// After this time a request that tests a server counts as lost.
    pub probe_timeout: Micros,
}

/// A new server for [`Balancer::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewServer {
    /// A hash of its name: it decides which keys belong to it.
    pub key: u64,
    /// Relative to the other weights; 0: it gets no requests.
    pub weight: u32,
    /// The server gets requests only while no server that is not a backup is up.
    pub backup: bool,
    /// The server starts slowly, like a server that was down.
    pub cold: bool,
}

/// The server of a request; pass it to [`Balancer::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The server.
    pub server: ServerId,
    /// The server was down when it was chosen: the result of the request decides whether it is up again.
    pub probe: bool,
    begun: Begun,
}

/// How a request at a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The server has answered.
    Answered,
    /// The result says nothing about the server.
    Unknown,
    /// The connection was refused.
    Refused,
    /// The server's queue was full at that time.
    QueueFull,
    /// The connection ended before the answer was complete, or the answer was invalid.
    Failed,
    /// The connection or the answer did not come in time.
    TimedOut,
}

/// The present state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFigures {
    /// Whether it gets requests.
    pub state: ServerState,
    /// See [`NewServer::backup`].
    pub backup: bool,
    /// See [`NewServer::weight`].
    pub weight: u32,
    /// Requests at the server now.
    pub busy: usize,
    /// Maximum number of requests.
    pub limit: usize,
    /// Requests that it got.
    pub requests: u64,
    /// How many of these failed.
    pub failures: u64,
    /// How often it went down.
    pub downs: u64,
    /// How long the server's requests take without waiting there, if the adaptive limit has measured that.
    pub unloaded: Option<Micros>,
}

/// What a server has room for; a part of [`ServerFigures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The server is up and gets requests; perhaps it starts slowly.
    pub is_up: bool,
    /// Requests at the server now.
    pub busy: usize,
    /// Maximum number of requests.
    pub limit: usize,
}

/// Whether a server gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// The server gets requests.
    Up,
    /// The server came back and gets a growing number of them.
    SlowStart,
    /// The server gets one at a time, to test whether it works again.
    Probing,
    /// The server gets none.
    Down,
    /// The server gets none because its weight is 0.
    Drained,
    /// The server gets none any more: it is removed when its last request has ended.
    Leaving,
}

/// The servers of a pool.
///
/// # Which servers may be chosen
///
/// First the servers that are up and are not backups; if there are none, the backups that are up; if there are none
/// either, all servers, because a check may be wrong, and a server may have just come back. Among these, those that
/// the request has not tried yet, if there are any, and among those the ones with room, if there are any.
///
/// A server that went down because of failures and is not checked gets one request after its pause, whatever the
/// algorithm is. It is up again if that request is answered.
///
/// # Cost
///
/// `choose` and `limit` take one step per server.
#[derive(Debug)]
pub struct Balancer {
    settings: Balancing,
    servers: Vec<Option<Server>>,
    /// Requests at all servers.
    busy: usize,
    random: u64,
    /// Number of choices so far.
    turns: u64,
    candidates: Vec<u32>,
}

#[derive(Debug)]
struct Server {
    key: u64,
    weight: u32,
    backup: bool,
    gone: bool,
    busy: usize,
    /// Its share of [`Capacity::Shared`].
    share: usize,
    limit: Option<AdaptiveLimit>,
    health: Health,
    /// For [`Algorithm::RoundRobin`]: how long its turn is overdue.
    overdue: i64,
    /// The turn in which it was last chosen.
    chosen_at: u64,
    requests: u64,
    failures: u64,
    answered_at: Micros,
}

/// Which group of servers gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Servers,
    Backups,
    /// None is up, so all of them may be tried.
    Any,
}

impl Balancer {
    /// Starts without servers. `seed`: for random choices.
    pub fn new(settings: Balancing, seed: u64) -> Self {
        Self {
            settings,
            servers: Vec::new(),
            busy: 0,
            random: mixed(seed) | 1,
            turns: 0,
            candidates: Vec::new(),
        }
    }

    /// Adds a server.
    pub fn add(&mut self, now: Micros, server: NewServer) -> ServerId {
        let limit = match self.settings.capacity {
            Capacity::Shared(_) => None,
            Capacity::Adaptive(bounds) => Some(AdaptiveLimit::new(bounds)),
        };
        let new = Server {
            key: server.key,
            weight: server.weight.min(MOST_WEIGHT),
            backup: server.backup,
            gone: false,
            busy: 0,
            share: 1,
            limit,
            health: Health::new(now, server.cold),
            overdue: 0,
            chosen_at: 0,
            requests: 0,
            failures: 0,
            answered_at: Micros::ZERO,
        };
        let free = self.servers.iter().position(Option::is_none);
        let index = free.unwrap_or(self.servers.len());
        if free.is_none() {
            self.servers.push(None);
        }
        self.servers[index] = Some(new);
        self.share_out();
        ServerId(index as u32)
    }

    /// Changes the common limit, if there is one ([`Capacity::Shared`]).
    pub fn share(&mut self, all: usize) {
        if matches!(self.settings.capacity, Capacity::Shared(before) if before != all) {
            self.settings.capacity = Capacity::Shared(all);
            self.share_out();
        }
    }

    /// Removes a server. True: it had no request, so its number may be reused; otherwise when its last request has
    /// ended.
    pub fn remove(&mut self, server: ServerId) -> bool {
        let Some(found) = self.get_mut(server) else {
            return true;
        };
        found.gone = true;
        let idle = found.busy == 0;
        if idle {
            self.servers[server.0 as usize] = None;
        }
        self.share_out();
        idle
    }

    /// Chooses a server for a request. `key`: the well mixed hash of its key; without one the least busy server is
    /// chosen. `tried`: the servers that have failed this request.
    pub fn choose(&mut self, now: Micros, key: Option<u64>, tried: &[ServerId]) -> Option<Chosen> {
        let tier = self.tier();
        let due = match tried {
            [] => self.due(now, tier),
            _ => None,
        };
        let index = match due {
            Some(index) => index,
            None => self.pick(now, tier, key, tried)?,
        };
        self.begin(now, index)
    }

    /// As [`Self::choose`], the server that a request belongs to. `None`: it is down or has no room.
    pub fn choose_wanted(&mut self, now: Micros, wanted: ServerId) -> Option<Chosen> {
        let room = self.room(now, wanted)?;
        match room.is_up && room.busy < room.limit {
            true => self.begin(now, wanted.0 as usize),
            false => None,
        }
    }

    fn begin(&mut self, now: Micros, index: usize) -> Option<Chosen> {
        self.turns += 1;
        self.busy += 1;
        let turns = self.turns;
        let probe_until = now.after(self.settings.probe_timeout);
        let server = self.servers[index].as_mut()?;
        server.busy += 1;
        server.requests += 1;
        server.chosen_at = turns;
        let probe = server.health.begin_request(probe_until);
        let begun = match &mut server.limit {
            Some(limit) => limit.begin(now, server.busy),
            None => Begun::at(now),
        };
        Some(Chosen {
            server: ServerId(index as u32),
            probe,
            begun,
        })
    }

    /// A request at a server has ended. Returns whether the server went up or down because of it.
    pub fn finish(&mut self, now: Micros, chosen: Chosen, finish: Finish) -> Option<Change> {
        let rules = self.rules();
        let server = self.get_mut(chosen.server)?;
        if let Some(limit) = &mut server.limit {
            let ended = match finish {
                Finish::Answered => RequestEnd::Answered,
                Finish::TimedOut | Finish::QueueFull => RequestEnd::Overloaded,
                Finish::Unknown | Finish::Refused | Finish::Failed => RequestEnd::Unknown,
            };
            limit.end(now, chosen.begun, server.busy, ended);
        }
        server.busy = server.busy.saturating_sub(1);
        let change = match finish {
            Finish::Answered => {
                server.answered_at = now;
                server.health.answered(now, chosen.probe, &rules)
            }
            Finish::Unknown | Finish::QueueFull => {
                server.health.unknown(chosen.probe);
                None
            }
            Finish::Refused | Finish::Failed | Finish::TimedOut => {
                server.failures += 1;
                let why = match finish {
                    Finish::Refused => Why::Refused,
                    _ => Why::Failures,
                };
                server.health.failed(now, chosen.probe, why, &rules)
            }
        };
        let over = server.gone && server.busy == 0;
        if over {
            self.servers[chosen.server.0 as usize] = None;
        }
        self.busy = self.busy.saturating_sub(1);
        change.filter(|_| !over)
    }

    /// A server's answer turned out to be invalid after the request was given back.
    pub fn failed(&mut self, now: Micros, server: ServerId) -> Option<Change> {
        let rules = self.rules();
        let server = self.get_mut(server)?;
        server.failures += 1;
        server.health.failed(now, false, Why::Failures, &rules)
    }

    /// A server was checked.
    pub fn checked(&mut self, now: Micros, server: ServerId, good: bool) -> Option<Change> {
        let rules = self.rules();
        let server = self.get_mut(server).filter(|server| !server.gone)?;
        server.health.checked(now, good, &rules)
    }

    /// Whether a server has answered a request after this time.
    pub fn has_answered_since(&self, server: ServerId, time: Micros) -> bool {
        self.get(server)
            .is_some_and(|server| server.answered_at > time)
    }

    /// How many requests all servers together may have now. It grows by itself while a server starts slowly.
    pub fn limit(&self, now: Micros) -> usize {
        let tier = self.tier();
        let in_use = self.all().filter(|server| server.counts(tier));
        let sum = in_use.fold(0_usize, |sum, server| {
            sum.saturating_add(server.limit(now, &self.settings))
        });
        match self.settings.capacity {
            Capacity::Shared(all) => sum.min(all),
            Capacity::Adaptive(_) => sum,
        }
    }

    /// Whether [`limit`](Self::limit) stays the same until a server is added or removed, or goes up or down, or the common
    /// limit is changed.
    pub fn has_fixed_limit(&self) -> bool {
        matches!(self.settings.capacity, Capacity::Shared(_))
            && self.settings.slowstart == Micros::ZERO
    }

    /// Whether no server is up, backups included.
    pub fn is_down(&self) -> bool {
        self.tier() == Tier::Any
    }

    /// Whether there is a server that is up, may get requests now, and is not in `tried`.
    pub fn has_other(&self, tried: &[ServerId]) -> bool {
        let tier = self.tier();
        let mut all = (0..).map(ServerId).zip(&self.servers);
        tier != Tier::Any
            && all.any(|(id, server)| {
                let counts = server.as_ref().is_some_and(|server| server.counts(tier));
                counts && !tried.contains(&id)
            })
    }

    /// Number of servers, without those that are leaving.
    pub fn count(&self) -> usize {
        self.all().filter(|server| !server.gone).count()
    }

    /// What a server has room for; `None` if it was removed.
    #[inline]
    pub fn room(&self, now: Micros, server: ServerId) -> Option<Room> {
        let server = self.get(server)?;
        Some(Room {
            is_up: server.counts(Tier::Any) && server.health.is_up(),
            busy: server.busy,
            limit: server.limit(now, &self.settings),
        })
    }

    /// A server's figures; `None` if it was removed.
    pub fn figures(&self, now: Micros, server: ServerId) -> Option<ServerFigures> {
        let server = self.get(server)?;
        Some(ServerFigures {
            state: match () {
                () if server.gone => ServerState::Leaving,
                () if server.weight == 0 => ServerState::Drained,
                () => server.health.state(now, &self.rules()),
            },
            backup: server.backup,
            weight: server.weight,
            busy: server.busy,
            limit: server.limit(now, &self.settings),
            requests: server.requests,
            failures: server.failures,
            downs: server.health.downs(),
            unloaded: server.limit.as_ref().and_then(AdaptiveLimit::unloaded),
        })
    }

    /// Returns what is inconsistent. For tests.
    pub fn check(&self) -> Result<(), &'static str> {
        let busy: usize = self.all().map(|server| server.busy).sum();
        if busy != self.busy {
            return Err("the requests of the servers are not those of all");
        }
        if self.all().any(|server| server.gone && server.busy == 0) {
            return Err("a server has gone and is still there");
        }
        Ok(())
    }

    fn rules(&self) -> Rules {
        let settings = &self.settings;
        Rules {
            max_fails: settings.max_fails,
            fail_timeout: settings.fail_timeout,
            checked: settings.checked,
            rise: settings.rise.max(1),
            fall: settings.fall.max(1),
            slowstart: settings.slowstart,
        }
    }

    fn get(&self, server: ServerId) -> Option<&Server> {
        self.servers.get(server.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, server: ServerId) -> Option<&mut Server> {
        self.servers.get_mut(server.0 as usize)?.as_mut()
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().flatten()
    }

    fn tier(&self) -> Tier {
        let mut tier = Tier::Any;
        for server in self.all() {
            match (
                server.counts(Tier::Any) && server.health.is_up(),
                server.backup,
            ) {
                (true, false) => return Tier::Servers,
                (true, true) => tier = Tier::Backups,
                (false, _) => {}
            }
        }
        tier
    }

    /// A server that may be tried again now: the one that has waited longest for it.
    fn due(&self, now: Micros, tier: Tier) -> Option<usize> {
        let due = |(index, server): (usize, &Option<Server>)| {
            let server = server.as_ref()?;
            let wanted = server.counts(Tier::Any) && (!server.backup || tier != Tier::Servers);
            let since = server.health.due_since(now).filter(|_| wanted)?;
            Some((since, index))
        };
        let found = self.servers.iter().enumerate().filter_map(due).min();
        found.map(|(_, index)| index)
    }

    fn pick(
        &mut self,
        now: Micros,
        tier: Tier,
        key: Option<u64>,
        tried: &[ServerId],
    ) -> Option<usize> {
        if let [Some(only)] = &self.servers[..] {
            return only.counts(tier).then_some(0);
        }
        let mut candidates = core::mem::take(&mut self.candidates);
        for (avoid, room) in [(true, true), (true, false), (false, true), (false, false)] {
            candidates.clear();
            for (index, server) in (0..).zip(&self.servers) {
                let Some(server) = server else { continue };
                let fits = server.counts(tier)
                    && (!avoid || !tried.contains(&ServerId(index)))
                    && (!room || server.busy < server.limit(now, &self.settings));
                if fits {
                    candidates.push(index);
                }
            }
            if !candidates.is_empty() {
                break;
            }
        }
        let picked = match self.settings.algorithm {
            _ if candidates.is_empty() => None,
            Algorithm::First => candidates.first().copied(),
            Algorithm::RoundRobin => self.next_in_turn(now, &candidates),
            Algorithm::LeastConn => self.least_busy(now, &candidates),
            Algorithm::Random => self.random_of_two(now, &candidates),
            Algorithm::Hash { factor } => key
                .and_then(|key| self.by_hash(now, key, factor, &candidates))
                .or_else(|| self.least_busy(now, &candidates)),
        };
        self.candidates = candidates;
        picked.map(|index| index as usize)
    }

    /// Each candidate's turn comes nearer by its weight; the chosen one goes back by the sum of all weights.
    fn next_in_turn(&mut self, now: Micros, candidates: &[u32]) -> Option<u32> {
        let slowstart = self.settings.slowstart;
        let (mut all, mut next) = (0, None);
        for index in candidates {
            let server = self.servers[*index as usize].as_mut()?;
            let weight = server.weight_now(now, slowstart) as i64;
            all += weight;
            server.overdue += weight;
            let overdue = server.overdue;
            if next.is_none_or(|(most, _)| overdue > most) {
                next = Some((overdue, *index));
            }
        }
        let (_, index) = next?;
        let server = self.servers[index as usize].as_mut()?;
        // Limits the claim of a server that was not a candidate for long.
        server.overdue = (server.overdue - all).clamp(-2 * all, 2 * all);
        Some(index)
    }

    /// The server with the fewest requests for its weight. Among equals: the server that was chosen longest ago.
    fn least_busy(&self, now: Micros, candidates: &[u32]) -> Option<u32> {
        let order = |index: &u32| {
            let server = self.get(ServerId(*index))?;
            Some((self.load(now, server), server.chosen_at))
        };
        candidates.iter().copied().min_by_key(order)
    }

    /// Its requests plus one, relative to its weight.
    fn load(&self, now: Micros, server: &Server) -> u64 {
        let weight = server.weight_now(now, self.settings.slowstart);
        ((server.busy as u64 + 1) << 32) / weight.max(1)
    }

    fn random_of_two(&mut self, now: Micros, candidates: &[u32]) -> Option<u32> {
        let first = self.random_one(now, candidates, None)?;
        let second = self
            .random_one(now, candidates, Some(first))
            .unwrap_or(first);
        self.least_busy(now, &[first, second])
    }

    /// A random one, by weight.
    fn random_one(&mut self, now: Micros, candidates: &[u32], but: Option<u32>) -> Option<u32> {
        let others = || {
            candidates
                .iter()
                .copied()
                .filter(|index| Some(*index) != but)
        };
        let slowstart = self.settings.slowstart;
        let weight = |servers: &[Option<Server>], index: u32| {
            let server = servers.get(index as usize).and_then(Option::as_ref);
            server.map_or(0, |server| server.weight_now(now, slowstart))
        };
        let all: u64 = others().map(|index| weight(&self.servers, index)).sum();
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut at = ((u128::from(mixed(self.random)) * u128::from(all)) >> 64) as u64;
        others().find(|index| {
            let weight = weight(&self.servers, *index);
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        })
    }

    /// The server with the lowest number for this key, among those that are not above the bound. A server's number
    /// depends only on key and server (and its weight), so adding or removing a server moves only its own keys.
    fn by_hash(&self, now: Micros, key: u64, factor: u32, candidates: &[u32]) -> Option<u32> {
        let servers = || {
            let found = candidates.iter().filter_map(|index| {
                let server = self.get(ServerId(*index))?;
                Some((*index, server))
            });
            found.filter(|(_, server)| server.weight > 0)
        };
        let weights: u64 = servers()
            .map(|(_, server)| server.weight_now(now, self.settings.slowstart))
            .sum();
        let bound = |server: &Server| {
            let weight = server.weight_now(now, self.settings.slowstart);
            let all = u128::from(self.busy as u64 + 1) * u128::from(factor) * u128::from(weight);
            all.div_ceil(100 * u128::from(weights.max(1))) as u64
        };
        let within =
            servers().filter(|(_, server)| factor == 0 || (server.busy as u64) < bound(server));
        // An exponential distribution with the weight for its rate: −log2(u) ÷ weight, of a number u between 0 and 1.
        let number = |(_, server): &(u32, &Server)| {
            let drawn = log2(mixed(key ^ server.key));
            (((64 << FRACTION) - drawn) << 32) / u64::from(server.weight)
        };
        within.min_by_key(number).map(|(index, _)| index)
    }

    /// Distributes the common limit completely: by weight, separately among servers and backups.
    fn share_out(&mut self) {
        let Capacity::Shared(all) = self.settings.capacity else {
            return;
        };
        for backup in [false, true] {
            let of_tier = |server: &&mut Server| server.backup == backup && !server.gone;
            let weights: u64 = self
                .servers
                .iter_mut()
                .flatten()
                .filter(of_tier)
                .map(|server| u64::from(server.weight))
                .sum();
            let (mut before, mut given) = (0, 0);
            for server in self.servers.iter_mut().flatten().filter(of_tier) {
                before += u64::from(server.weight);
                let upto = u128::from(before) * all as u128 / u128::from(weights.max(1));
                server.share = ((upto - given) as usize).max(1);
                given = upto;
            }
        }
    }
}

impl Server {
    /// Whether it may get requests when this group does.
    fn counts(&self, tier: Tier) -> bool {
        let stays = !self.gone && self.weight > 0;
        stays
            && match tier {
                Tier::Servers => !self.backup && self.health.is_up(),
                Tier::Backups => self.backup && self.health.is_up(),
                Tier::Any => true,
            }
    }

    /// Its weight times 1,024, lower while it starts slowly.
    fn weight_now(&self, now: Micros, slowstart: Micros) -> u64 {
        u64::from(self.weight) * self.health.started(now, slowstart)
    }

    fn limit(&self, now: Micros, settings: &Balancing) -> usize {
        let whole = match &self.limit {
            Some(limit) => limit.limit(),
            None => self.share,
        };
        let part = whole as u64 * self.health.started(now, settings.slowstart) / 1_024;
        (part as usize).max(1)
    }
}

/// Distributes a number over all of its bits (the final step of splitmix64).
pub fn mixed(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// Maximum weight of a server.
const MOST_WEIGHT: u32 = 1_000;
