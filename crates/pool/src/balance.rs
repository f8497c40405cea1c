//! Which server gets a request, and which servers are there at all.
//!
//! [`Balancer`] knows each server's weight, how many requests it has, how many it may have, and whether it is up; it is
//! told how requests and checks end. Connections, addresses and time are the caller's.

use alloc::vec::Vec;

use crate::Micros;
use crate::health::{Health, Rules};
use crate::limiter::{Begun, Ended, LimitBounds, Limiter};
use crate::log2::{FRACTION, log2};

pub use crate::health::{Change, Why};

/// A server's number, used again after it has gone and its last request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// How a server is chosen, of those that are up and have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// One after the other, as often as their weights say, evenly mixed.
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastConn,
    /// The first in the order they were added; the next one gets what it has no room for.
    First,
    /// Two at random, by weight; of these the one with fewer requests for its weight.
    Random,
    /// The one that the key belongs to: when servers come and go, only the keys move that have to.
    Hash {
        /// A server that would have more requests than so many percent of its share of all passes the key on to
        /// another one, the same for all requests of the key; 0: only where it has no room.
        factor: u32,
    },
}

/// What bounds the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// So many requests at all servers together. Each has its share of it by its weight; who is down takes its share
    /// along. Servers and backup servers share it out by themselves.
    Shared(usize),
    /// Each server's limit is found out ([`Limiter`]), within these bounds.
    Adaptive(LimitBounds),
}

/// How a [`Balancer`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balancing {
    /// Who is chosen.
    pub algorithm: Algorithm,
    /// How many requests.
    pub capacity: Capacity,
    /// So many failures in a row within `fail_timeout` take a server out; 0: none do. A refused connection alone does.
    pub max_fails: u32,
    /// See `max_fails`. Also the longest pause before a server that failed is tried again, with one request at a time; the first is
    /// a tenth of it. Not with `checked`.
    pub fail_timeout: Micros,
    /// Somebody checks the servers: who was taken out comes back by checks alone.
    pub checked: bool,
    /// So many good checks in a row bring a server back.
    pub rise: u32,
    /// So many bad ones in a row take it out; of one that was never checked before the first does.
    pub fall: u32,
    /// A server that has come back is given more and more of its share for so long.
    pub slowstart: Micros,
    /// A request that tries a server again is taken for lost after that.
    pub probe_timeout: Micros,
}

/// A server to [`Balancer::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewServer {
    /// A hash of its name: where keys belong follows from it.
    pub key: u64,
    /// Compared with the others' weights; 0: it gets no requests.
    pub weight: u32,
    /// It gets requests only while no other server is up.
    pub backup: bool,
    /// It starts slowly, as one that was down.
    pub cold: bool,
}

/// A request's server, to be given back with [`Balancer::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Who.
    pub server: ServerId,
    /// It was down when it was chosen: how the request ends decides whether it is up again.
    pub probe: bool,
    begun: Begun,
}

/// How a request at a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The server has answered.
    Answered,
    /// It says nothing of the server.
    Unknown,
    /// The connection was refused.
    Refused,
    /// The server took no more connections just then.
    QueueFull,
    /// The connection ended before the answer did, or the answer was none.
    Failed,
    /// The connection was not made in time, or no answer came in time.
    TimedOut,
}

/// A server as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFigures {
    /// Whether it gets requests.
    pub state: ServerState,
    /// See [`NewServer::backup`].
    pub backup: bool,
    /// See [`NewServer::weight`].
    pub weight: u32,
    /// Requests it has.
    pub busy: usize,
    /// Requests it may have.
    pub limit: usize,
    /// Requests it was given.
    pub requests: u64,
    /// Of these: those that failed.
    pub failures: u64,
    /// Times that it went down.
    pub downs: u64,
    /// How long its requests take without waiting for it, as far as the adaptive limit has found out.
    pub unloaded: Option<Micros>,
}

/// Whether a server gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It does.
    Up,
    /// More and more of them, having come back.
    SlowStart,
    /// One at a time, to see whether it is back.
    Probing,
    /// None.
    Down,
    /// None, by its weight.
    Drained,
    /// None any more: it is gone when its last request has ended.
    Leaving,
}

/// The servers of a pool.
///
/// # Who may be chosen
///
/// Of the servers that are up, those that are no backup; if there is none, the backups that are up; if there is none
/// either, all, for a check may be wrong and a server may just be back. Of these, those that the request has not tried yet, if there
/// is one, and of these those that have room, if there is one.
///
/// A server that was taken out by its failures, and is not checked, gets one request after its pause, whatever the
/// algorithm says, and is up again if that is answered.
///
/// # Cost
///
/// A step for each server in `choose` and `limit`.
#[derive(Debug)]
pub struct Balancer {
    settings: Balancing,
    servers: Vec<Option<Server>>,
    /// Requests at all servers.
    busy: usize,
    random: u64,
    /// Counts choices.
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
    limiter: Option<Limiter>,
    health: Health,
    /// Of [`Algorithm::RoundRobin`]: how far its turn is overdue.
    overdue: i64,
    /// When it was chosen last, in turns.
    chosen_at: u64,
    requests: u64,
    failures: u64,
    answered_at: Micros,
}

/// Which servers get requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Servers,
    Backups,
    /// None is up.
    Any,
}

impl Balancer {
    /// Without servers. `seed`: for what is done at random.
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

    /// A server is there.
    pub fn add(&mut self, now: Micros, server: NewServer) -> ServerId {
        let limiter = match self.settings.capacity {
            Capacity::Shared(_) => None,
            Capacity::Adaptive(bounds) => Some(Limiter::new(bounds)),
        };
        let new = Server {
            key: server.key,
            weight: server.weight.min(MOST_WEIGHT),
            backup: server.backup,
            gone: false,
            busy: 0,
            share: 1,
            limiter,
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

    /// Changes the common limit, where there is one ([`Capacity::Shared`]).
    pub fn share(&mut self, all: usize) {
        if matches!(self.settings.capacity, Capacity::Shared(before) if before != all) {
            self.settings.capacity = Capacity::Shared(all);
            self.share_out();
        }
    }

    /// A server is not there any more. True: it had no request, and its number may come again; else that is so when
    /// its last one has ended.
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

    /// A server for a request. `key`: what it is hashed by, mixed well; without one the least busy server is taken.
    /// `tried`: the servers that have failed it.
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
        self.turns += 1;
        self.busy += 1;
        let turns = self.turns;
        let probe_until = now.after(self.settings.probe_timeout);
        let server = self.servers[index].as_mut()?;
        server.busy += 1;
        server.requests += 1;
        server.chosen_at = turns;
        let probe = server.health.begin_request(probe_until);
        let begun = match &mut server.limiter {
            Some(limiter) => limiter.begin(now, server.busy),
            None => Begun::at(now),
        };
        Some(Chosen {
            server: ServerId(index as u32),
            probe,
            begun,
        })
    }

    /// A request at a server has ended. Says whether the server has gone up or down with it.
    pub fn finish(&mut self, now: Micros, chosen: Chosen, finish: Finish) -> Option<Change> {
        let rules = self.rules();
        let server = self.get_mut(chosen.server)?;
        if let Some(limiter) = &mut server.limiter {
            let ended = match finish {
                Finish::Answered => Ended::Answered,
                Finish::TimedOut | Finish::QueueFull => Ended::Overloaded,
                Finish::Unknown | Finish::Refused | Finish::Failed => Ended::Unknown,
            };
            limiter.end(now, chosen.begun, server.busy, ended);
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

    /// A server's answer turned out to be none after the request had been given back.
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

    /// Whether a server has answered a request after that.
    pub fn has_answered_since(&self, server: ServerId, time: Micros) -> bool {
        self.get(server)
            .is_some_and(|server| server.answered_at > time)
    }

    /// Requests that all servers together may have now. It grows by itself while a server starts slowly.
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

    /// Whether no server is up, backups included.
    pub fn is_down(&self) -> bool {
        self.tier() == Tier::Any
    }

    /// Whether a server is up that may get requests now, and is none of these.
    pub fn has_other(&self, tried: &[ServerId]) -> bool {
        let tier = self.tier();
        let mut all = (0..).map(ServerId).zip(&self.servers);
        tier != Tier::Any
            && all.any(|(id, server)| {
                let counts = server.as_ref().is_some_and(|server| server.counts(tier));
                counts && !tried.contains(&id)
            })
    }

    /// Servers that are there, those that are leaving not.
    pub fn count(&self) -> usize {
        self.all().filter(|server| !server.gone).count()
    }

    /// A server's figures; none if it has gone.
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
            unloaded: server.limiter.as_ref().and_then(Limiter::unloaded),
        })
    }

    /// Says what is inconsistent. For tests.
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

    /// A server that may be tried again now, the one that waits for it longest.
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

    /// Each candidate's turn comes nearer by its weight; who is taken waits for all of them again.
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
        // Who was not in turn for long has no claim for that.
        server.overdue = (server.overdue - all).clamp(-2 * all, 2 * all);
        Some(index)
    }

    /// The fewest requests for its weight; among equals the one that was chosen longest ago.
    fn least_busy(&self, now: Micros, candidates: &[u32]) -> Option<u32> {
        let order = |index: &u32| {
            let server = self.get(ServerId(*index))?;
            Some((self.load(now, server), server.chosen_at))
        };
        candidates.iter().copied().min_by_key(order)
    }

    /// Requests for its weight, with one more.
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

    /// One at random, by weight.
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

    /// Whose number is first for this key, of those that are not above the bound. Each server's number is drawn from
    /// key and server alone, by its weight, so that a server that comes or goes takes or leaves its own keys only.
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

    /// Shares the common limit out, to the last request: by weight, among servers and among backups.
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
    /// Whether it may get requests when this tier does.
    fn counts(&self, tier: Tier) -> bool {
        let stays = !self.gone && self.weight > 0;
        stays
            && match tier {
                Tier::Servers => !self.backup && self.health.is_up(),
                Tier::Backups => self.backup && self.health.is_up(),
                Tier::Any => true,
            }
    }

    /// Its weight, less while it starts slowly; finer by 1,024.
    fn weight_now(&self, now: Micros, slowstart: Micros) -> u64 {
        u64::from(self.weight) * self.health.started(now, slowstart)
    }

    fn limit(&self, now: Micros, settings: &Balancing) -> usize {
        let whole = match &self.limiter {
            Some(limiter) => limiter.limit(),
            None => self.share,
        };
        let part = whole as u64 * self.health.started(now, settings.slowstart) / 1_024;
        (part as usize).max(1)
    }
}

/// Spreads a number over all of its bits (the finishing step of splitmix64).
pub fn mixed(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// No server weighs more.
const MOST_WEIGHT: u32 = 1_000;
