//! Workers that weir does not start: the list of servers, and which requests each gets.
//!
//! [`ServerGroup`] is the part of a pool's state, behind its lock, that is about servers. It has
//! [`weir_pool::Balancer`], which decides, and the data that the balancer does not need: addresses, kept connections,
//! names for the log. The sum of the servers' limits is the pool's limit of running requests ([`State::fit`]): each
//! running request uses one of the pool's places, at any server.
//!
//! Read next: [`connect`] (how a request gets to a server), [`check`] and [`names`] (the tasks beside requests),
//! [`status`].
//!
//! A place of the pool says that a request may run, not where. The server is chosen when the lease connects, and again if that
//! server accepts no connection. Checks and look-ups of names are tasks of the first reactor; they take no place.

mod check;
mod connect;
mod kept;
mod key;
mod names;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use weir_config::{
    Address, Balance, Check, Runtime, Servers as Settings, Upstream, UpstreamServer,
};
use weir_pool::{
    Action, Algorithm, Balancer, Balancing, Capacity, Change, Chosen, Finish, LimitBounds, Limits,
    MAX_WORKERS, Micros, NewServer, Orders, ServerId, ServerState, Why, WorkerId, mixed,
};

pub(crate) use self::{
    connect::ServerChoice,
    status::{CheckStatus, ServerStatus},
};
use weir_control::path_inside;

use super::{Lease, PoolHandle, Slot, State, scaling::Effects};
use crate::{clock, resolver::Resolver, scripts::run::connection::WorkerConn};

/// The servers of a pool.
#[derive(Debug)]
pub(super) struct ServerGroup {
    balancer: Balancer,
    /// Indexed by [`ServerId`].
    members: Vec<Option<Member>>,
    /// The last serial number of a member; never used twice.
    serials: u64,
    /// Places of the pool that are not in use.
    spare: Vec<WorkerId>,
    /// How many names were not looked up yet.
    pending_names: usize,
    /// Whether the log says already that no server is up.
    told_down: bool,
    /// Names that could not be looked up, by index into `servers`.
    unknown_names: BTreeMap<usize, UnknownName>,
}

/// A name that could not be looked up.
#[derive(Debug, Clone)]
pub(crate) struct UnknownName {
    pub(crate) host: String,
    /// The error of the lookup.
    pub(crate) failure: String,
    pub(crate) since: SystemTime,
}

#[derive(Debug)]
struct Member {
    serial: u64,
    /// For the log: the address, with the name it was resolved from.
    name: &'static str,
    /// The address as the gateway connects to it.
    address: Address,
    /// Its number in cookies ([`key::number`]).
    number: u32,
    /// Index into `servers`.
    entry: usize,
    /// Idle connections, the one used last at the end.
    kept: Vec<WorkerConn>,
    last_check: Option<CheckStatus>,
    /// Since when it has had requests and answered none ([`clock::now`]); has no meaning while it has none.
    quiet_since: u64,
}

/// The server that was chosen for a request.
struct Picked {
    chosen: Chosen,
    name: &'static str,
    /// An idle connection to it.
    kept: Option<WorkerConn>,
}

/// A log message about a server or script.
#[derive(Debug)]
pub(super) enum Note {
    Notice(String),
    Warning(String),
    /// A script crashes workers and is now refused.
    Crashing(String),
    /// The script is not refused any more.
    CrashesOver(String),
}

/// A server to be added.
struct NewMember {
    /// Its entry in the configuration.
    entry: usize,
    name: &'static str,
    /// The hash of its address.
    key: u64,
    address: Address,
    /// The server is new in the list.
    cold: bool,
}

/// How a request at a server has ended.
pub(super) struct Finished<'f> {
    pub(super) chosen: Chosen,
    pub(super) outcome: Finish,
    /// Why it failed, for the log.
    pub(super) cause: Option<&'f str>,
    /// Its connection, if that can be used again.
    pub(super) conn: Option<WorkerConn>,
}

impl ServerGroup {
    /// Starts with the servers whose addresses are known.
    pub(super) fn new(settings: &Settings, maxconn: usize, chroot: Option<&Path>) -> ServerGroup {
        let seed = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        let mut group = ServerGroup {
            balancer: Balancer::new(balancing(settings, maxconn), mixed(seed)),
            members: Vec::new(),
            serials: 0,
            spare: Vec::new(),
            pending_names: 0,
            told_down: false,
            unknown_names: BTreeMap::new(),
        };
        for (entry, server) in settings.list.iter().enumerate() {
            match &server.address {
                Upstream::At(address) => {
                    let key = key::hash(address.to_string().as_bytes());
                    let name = shown(&address.to_string()).unwrap_or("a server");
                    let address = inside(chroot, address);
                    let new = NewMember {
                        entry,
                        name,
                        key,
                        address,
                        cold: false,
                    };
                    group.add(server, new);
                }
                Upstream::Named { .. } => group.pending_names += 1,
            }
        }
        group
    }

    /// Adds a server with the weight of its entry in the configuration.
    fn add(&mut self, server: &UpstreamServer, new: NewMember) -> (ServerId, u64) {
        let NewMember {
            entry,
            name,
            key,
            address,
            cold,
        } = new;
        let id = self.balancer.add(
            Micros(clock::now()),
            NewServer {
                key,
                weight: server.weight,
                backup: server.backup,
                cold,
            },
        );
        self.serials += 1;
        let member = Member {
            serial: self.serials,
            name,
            address,
            number: key::number(key),
            entry,
            kept: Vec::new(),
            last_check: None,
            quiet_since: 0,
        };
        let index = id.0 as usize;
        if index >= self.members.len() {
            self.members.resize_with(index + 1, || None);
        }
        self.members[index] = Some(member);
        (id, self.serials)
    }

    /// Removes a server; its running requests continue.
    fn remove(&mut self, server: ServerId, effects: &mut Effects) {
        if let Some(member) = self.member_mut(server) {
            let kept = std::mem::take(&mut member.kept);
            kept.into_iter().for_each(|conn| effects.close(Some(conn)));
        }
        if self.balancer.remove(server) {
            self.members[server.0 as usize] = None;
        }
    }

    /// Whether no server is up. Not known before the names were looked up.
    pub(super) fn is_down(&self) -> bool {
        self.balancer.is_down() && self.pending_names == 0
    }

    fn member_mut(&mut self, server: ServerId) -> Option<&mut Member> {
        self.members.get_mut(server.0 as usize)?.as_mut()
    }

    /// The members that are not leaving.
    fn staying(&self) -> impl Iterator<Item = (ServerId, &Member)> {
        let now = Micros(clock::now());
        let all = (0..).map(ServerId).zip(&self.members);
        all.filter_map(move |(id, member)| {
            let figures = self.balancer.figures(now, id)?;
            let stays = figures.state != ServerState::Leaving;
            member.as_ref().filter(|_| stays).map(|member| (id, member))
        })
    }

    /// Chooses a server for a request, with an idle connection if there is one. If a new connection would exceed the
    /// server's limit, an idle one is closed.
    fn pick(
        &mut self,
        now: Micros,
        choice: &ServerChoice<'_>,
        effects: &mut Effects,
    ) -> Option<Picked> {
        let chosen = match self.wanted(now, choice) {
            Some(chosen) => chosen,
            None => self.balancer.choose(now, choice.key, choice.tried)?,
        };
        let room = self.balancer.room(now, chosen.server)?;
        let member = self.member_mut(chosen.server)?;
        if room.busy <= 1 {
            member.quiet_since = now.0;
        }
        let kept = match choice.certain {
            true => None,
            false => member.kept.pop(),
        };
        // A kept connection occupies a PHP-FPM worker: a new one would have to wait for it.
        while kept.is_none()
            && !member.kept.is_empty()
            && room.busy + member.kept.len() > room.limit
        {
            effects.close(Some(member.kept.remove(0)));
        }
        Some(Picked {
            chosen,
            name: member.name,
            kept,
        })
    }

    /// The server that has answered the client before, if it can take the request.
    fn wanted(&mut self, now: Micros, choice: &ServerChoice<'_>) -> Option<Chosen> {
        let wanted = choice.wanted?;
        let is_meant = |member: &Option<Member>| {
            (member.as_ref()).is_some_and(|member| member.number == wanted)
        };
        let server = ServerId(self.members.iter().position(is_meant)? as u32);
        match choice.tried.contains(&server) {
            true => None,
            false => self.balancer.choose_wanted(now, server),
        }
    }

    /// A request at a server has ended. Its connection is kept for another request, if there is one and there is
    /// room. Returns whether the pool's limit may have changed ([`State::fit`]).
    pub(super) fn finish(
        &mut self,
        now: Micros,
        finished: Finished<'_>,
        effects: &mut Effects,
    ) -> bool {
        let Finished {
            chosen,
            outcome,
            cause,
            conn,
        } = finished;
        let change = self.balancer.finish(now, chosen, outcome);
        let Some(room) = self.balancer.room(now, chosen.server) else {
            // The server was leaving, and this was its last request.
            self.members[chosen.server.0 as usize] = None;
            effects.close(conn);
            return true;
        };
        if let Some(member) = self.member_mut(chosen.server) {
            if outcome == Finish::Answered {
                member.quiet_since = now.0;
            }
            if room.is_up && room.busy + member.kept.len() < room.limit {
                member.kept.extend(conn);
            } else {
                effects.close(conn);
            }
        }
        self.changed(chosen.server, change, cause, effects);
        change.is_some() || !self.balancer.has_fixed_limit()
    }

    /// Logs when a server goes up or down, and closes its idle connections when it is down.
    fn changed(
        &mut self,
        server: ServerId,
        change: Option<Change>,
        cause: Option<&str>,
        effects: &mut Effects,
    ) {
        let Some(change) = change else { return };
        let figures = self.balancer.figures(Micros(clock::now()), server);
        let Some(member) = self.member_mut(server) else {
            return;
        };
        let name = member.name;
        match change {
            Change::Up { after: pause } => {
                let slowly = match figures.map(|figures| figures.state) {
                    Some(ServerState::SlowStart) => ", and starts slowly",
                    _ => "",
                };
                let seconds = Duration::from(pause).as_secs_f64();
                let text = format!("server {name} is up again after {seconds:.1} s{slowly}");
                effects.note(Note::Notice(text));
            }
            Change::Down { why, pause } => {
                let kept = std::mem::take(&mut member.kept);
                kept.into_iter().for_each(|conn| effects.close(Some(conn)));
                let why = match why {
                    Why::Refused => "accepts no connections",
                    Why::Failures => "has failed too many requests in a row",
                    Why::Checks => "has failed its checks",
                };
                let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                let next = match pause {
                    Some(pause) => {
                        let seconds = Duration::from(pause).as_secs_f64();
                        format!("it is tried again after {seconds:.1} s")
                    }
                    None => "its checks show when it is up again".to_owned(),
                };
                let text = format!("server {name} is down: it {why}{cause}; {next}");
                effects.note(Note::Warning(text));
            }
        }
        let down = self.balancer.is_down();
        if down && !self.told_down {
            let text = "no server is up: requests are sent to servers that are down, in case they work again";
            effects.note(Note::Warning(text.to_owned()));
        }
        self.told_down = down;
    }

    /// Closes idle connections beyond the limits of their servers.
    fn trim(&mut self, now: Micros, effects: &mut Effects) {
        for (id, member) in (0..).map(ServerId).zip(&mut self.members) {
            let Some(member) = member.as_mut().filter(|member| !member.kept.is_empty()) else {
                continue;
            };
            let Some(figures) = self.balancer.figures(now, id) else {
                continue;
            };
            let room = figures.limit.saturating_sub(figures.busy);
            let over = member.kept.len().saturating_sub(room);
            for conn in member.kept.drain(..over) {
                effects.close(Some(conn));
            }
        }
    }
}

impl State {
    /// Sets the pool's limit and places to the current limits of the servers.
    pub(super) fn fit(&mut self, pool: &'static PoolHandle, now: Micros, effects: &mut Effects) {
        let Some(group) = &mut self.group else { return };
        let most = pool.maxconn().min(MAX_WORKERS as usize);
        group.balancer.share(most);
        let limit = group.balancer.limit(now).min(most);
        let expected = group.pending_names > 0 || group.balancer.count() > 0;
        // If there is no server and none is expected, no request may wait.
        self.pool.worker_expected(expected);
        if !expected {
            self.settle(pool, now, effects);
        }
        let places = self.pool.staying();
        if self.pool.maxconn() == limit && places == limit {
            return;
        }
        self.resize(pool, limit, now, effects);
    }

    /// Changes the number of places of the pool to `limit`.
    #[cold]
    fn resize(
        &mut self,
        pool: &'static PoolHandle,
        limit: usize,
        now: Micros,
        effects: &mut Effects,
    ) {
        let (before, places) = (self.pool.limits(), self.pool.staying());
        let Some(group) = &mut self.group else { return };
        if limit < before.maxconn {
            group.trim(now, effects);
        }
        let limits = Limits {
            maxconn: limit,
            ..before
        };
        for action in self.pool.set_limits(now, limits) {
            match action {
                Action::Run(assignment) => self.grant(pool, assignment, effects),
                Action::Shed { request, reason } => self.refuse(request, reason, effects),
            }
        }
        for _ in places..limit {
            let spare = self.group.as_mut().and_then(|group| group.spare.pop());
            let place = spare.unwrap_or_else(|| {
                self.slots.push(Slot::default());
                WorkerId(self.slots.len() as u32 - 1)
            });
            if let Some(next) = self.pool.worker_up(now, place, 0) {
                self.grant(pool, next, effects);
            }
        }
        if places > limit {
            let mut leaving = Vec::new();
            let orders = Orders {
                retire: places - limit,
                ..Orders::default()
            };
            self.pool.withdraw(now, &orders, &mut leaving);
            leaving.into_iter().for_each(|place| self.leave(now, place));
        }
        self.settle(pool, now, effects);
    }

    /// A place of the pool is not used any more.
    fn leave(&mut self, now: Micros, place: WorkerId) {
        self.pool.worker_down(now, place);
        if let Some(group) = &mut self.group {
            group.spare.push(place);
        }
    }

    /// Returns a place, with the connection to the server that its request had.
    pub(super) fn take_place_back(
        &mut self,
        pool: &'static PoolHandle,
        lease: &mut Lease,
        now: Micros,
        effects: &mut Effects,
    ) {
        self.slots[lease.worker.0 as usize].leased = false;
        let conn = lease.conn.take();
        let mut fits = true;
        if let (Some(group), Some(chosen)) = (&mut self.group, lease.chosen.take()) {
            let cause = lease.cause.as_deref();
            let finished = Finished {
                chosen,
                outcome: lease.outcome,
                cause,
                conn,
            };
            fits = !group.finish(now, finished, effects);
        }
        if !matches!(lease.outcome, Finish::Answered | Finish::Unknown) {
            // No request was finished, so the duration does not count as that of a script.
            self.pool.lose(now, lease.worker);
            self.leave(now, lease.worker);
            self.settle(pool, now, effects);
            return self.fit(pool, now, effects);
        }
        let released = match lease.begun {
            true => self.pool.release(now, lease.worker),
            false => self.pool.abandon(now, lease.worker),
        };
        if released.leaves {
            self.leave(now, lease.worker);
        }
        if let Some(next) = released.next {
            self.grant(pool, next, effects);
        }
        if !fits || released.leaves {
            self.fit(pool, now, effects);
        }
    }
}

impl PoolHandle {
    /// Starts the tasks beside requests: checks servers and looks up their names. Returns when those tasks run.
    /// `resolver`: `None` if no server has a name; `known`: the last known addresses of names.
    pub(crate) fn tend(
        &'static self,
        resolver: Option<&Arc<Resolver>>,
        known: &[(String, Vec<IpAddr>)],
    ) {
        let Runtime::Servers(settings) = &self.settings.runtime else {
            return;
        };
        let members: Vec<(ServerId, u64)> = {
            let state = self.state();
            let staying = state.group.iter().flat_map(ServerGroup::staying);
            staying.map(|(id, member)| (id, member.serial)).collect()
        };
        for (server, serial) in members {
            self.watch(server, serial);
        }
        if settings.http.is_some() && self.settings.keep_conn {
            tokio::spawn(kept::watch(self));
        }
        for (entry, server) in settings.list.iter().enumerate() {
            if let (Upstream::Named { host, port }, Some(resolver)) = (&server.address, resolver) {
                let resolver = resolver.clone();
                let known = known.iter().find(|(name, _)| name == host);
                let known = known.map_or_else(Vec::new, |(_, addresses)| addresses.clone());
                let server = (entry, host.clone(), *port);
                tokio::spawn(names::follow(self, resolver, server, known));
            }
        }
    }

    /// Starts checking a server, if checks are configured.
    fn watch(&'static self, server: ServerId, serial: u64) {
        if let Runtime::Servers(settings) = &self.settings.runtime
            && settings.check != Check::Off
        {
            tokio::spawn(check::watch(self, server, serial));
        }
    }

    /// The answer of a server turned out to be invalid after its request had been given back.
    pub(crate) fn blame(&'static self, server: ServerId, cause: &str) {
        self.change(|state, now, effects| {
            if let Some(group) = &mut state.group {
                let change = group.balancer.failed(now, server);
                group.changed(server, change, Some(cause), effects);
            }
            state.fit(self, now, effects);
        });
    }
}

/// The balancer's settings from the configuration.
fn balancing(settings: &Settings, maxconn: usize) -> Balancing {
    let micros = |duration: Duration| Micros::from(duration);
    Balancing {
        algorithm: match settings.balance {
            Balance::RoundRobin => Algorithm::RoundRobin,
            Balance::LeastConn => Algorithm::LeastConn,
            Balance::First => Algorithm::First,
            Balance::Random => Algorithm::Random,
            Balance::Hash { factor, .. } => Algorithm::Hash { factor },
        },
        capacity: match settings.adaptive {
            None => Capacity::Shared(maxconn),
            Some(limit) => Capacity::Adaptive(LimitBounds {
                start: limit.start,
                min: 1,
                max: limit.max,
            }),
        },
        max_fails: settings.max_fails,
        fail_timeout: micros(settings.fail_timeout),
        checked: settings.check != Check::Off,
        rise: settings.rise,
        fall: settings.fall,
        slowstart: micros(settings.slowstart),
        probe_timeout: PROBE_TIMEOUT,
    }
}

/// The path of a socket inside of `chroot`. A socket outside of it caused a warning at the start, and is not found.
fn inside(chroot: Option<&Path>, address: &Address) -> Address {
    if let (Some(chroot), Address::Unix(path)) = (chroot, address)
        && let Some(inside) = path_inside(chroot, path)
    {
        return Address::Unix(inside);
    }
    address.clone()
}

/// After this time, other requests may go to a server that a request probes.
const PROBE_TIMEOUT: Micros = Micros::from_secs(10);

/// A server's name as logs show it. Requests refer to it without counting, so it is kept as long as the process, once for
/// all servers that have it. `None`: there are too many, because a name has had very many addresses.
fn shown(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    let is_address = name.ends_with(')');
    if is_address && names.len() >= MOST_NAMES {
        return None;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    Some(name)
}

/// After so many names, new addresses of a server are shown by its name alone.
const MOST_NAMES: usize = 16_384;
