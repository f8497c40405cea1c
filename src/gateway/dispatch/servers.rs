//! Workers that somebody else runs: which servers there are, and what each is given.
//!
//! [`Farm`] is the part of a pool's state behind its lock: [`weir_pool::Balancer`], which decides, and what it knows
//! nothing of: addresses, kept connections, names for the log. How many requests the pool may have at work follows from
//! the servers' limits ([`State::fit`]): each such request has one of the pool's places, whichever server it goes to.
//!
//! Read next: [`connect`] (a request's way to a server), [`check`] and [`names`] (what is done beside requests), [`status`].

mod check;
mod connect;
mod key;
mod names;
mod status;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    sync::Arc,
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
    connect::Toward,
    status::{CheckStatus, ServerStatus},
};
use super::{Lease, PoolHandle, Slot, State, scaling::After};
use crate::{
    control::path_inside,
    gateway::{clock, resolver::Resolver, worker_conn::WorkerConn},
};

/// The servers of a pool.
#[derive(Debug)]
pub(super) struct Farm {
    balancer: Balancer,
    /// By [`ServerId`].
    members: Vec<Option<Member>>,
    /// Numbers members, never twice.
    serials: u64,
    /// Places of the pool that are not in use.
    spare: Vec<WorkerId>,
    /// Names that were not looked up yet.
    pending_names: usize,
    /// That no server is up was said.
    told_down: bool,
    /// Names that cannot be looked up, by index into `servers`.
    unknown_names: BTreeMap<usize, UnknownName>,
}

/// A name that cannot be looked up.
#[derive(Debug, Clone)]
pub(crate) struct UnknownName {
    pub(crate) host: String,
    /// What the look-up ended with.
    pub(crate) failure: String,
    pub(crate) since: SystemTime,
}

#[derive(Debug)]
struct Member {
    serial: u64,
    /// For the log: the address, with the name that it was found by.
    name: Arc<str>,
    /// As the gateway reaches it.
    address: Address,
    /// Index into `servers`.
    entry: usize,
    /// Connections for further requests, the one used last at the end.
    kept: Vec<WorkerConn>,
    last_check: Option<CheckStatus>,
    /// Since when it has had requests and answered none ([`clock::now`]); meaningless while it has none.
    quiet_since: u64,
}

/// A server for a request.
struct Picked {
    chosen: Chosen,
    name: Arc<str>,
    address: Address,
    kept: Option<WorkerConn>,
}

/// What is said of a server in the log.
#[derive(Debug)]
pub(super) enum Note {
    Notice(String),
    Warning(String),
    /// A script ends workers, and is refused.
    Crashing(String),
    /// It is refused no more.
    CrashesOver(String),
}

impl Farm {
    /// The servers whose addresses are known.
    pub(super) fn new(settings: &Settings, maxconn: usize, chroot: Option<&Path>) -> Farm {
        let seed = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        let mut farm = Farm {
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
                    let name = address.to_string().into();
                    let address = inside(chroot, address);
                    farm.add(entry, server, (name, key), address, false);
                }
                Upstream::Named { .. } => farm.pending_names += 1,
            }
        }
        farm
    }

    /// A server is there, with this name and this hash of its address. `cold`: it was not, a moment ago.
    fn add(
        &mut self,
        entry: usize,
        server: &UpstreamServer,
        (name, key): (Arc<str>, u64),
        address: Address,
        cold: bool,
    ) -> (ServerId, u64) {
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

    /// A server is not there any more; what runs there goes on.
    fn remove(&mut self, server: ServerId, after: &mut After) {
        if let Some(member) = self.member_mut(server) {
            let kept = std::mem::take(&mut member.kept);
            kept.into_iter().for_each(|conn| after.close(Some(conn)));
        }
        if self.balancer.remove(server) {
            self.members[server.0 as usize] = None;
        }
    }

    /// No server is up; before names were looked up, that is not known.
    pub(super) fn is_down(&self) -> bool {
        self.balancer.is_down() && self.pending_names == 0
    }

    fn member_mut(&mut self, server: ServerId) -> Option<&mut Member> {
        self.members.get_mut(server.0 as usize)?.as_mut()
    }

    /// The members that are to stay.
    fn staying(&self) -> impl Iterator<Item = (ServerId, &Member)> {
        let now = Micros(clock::now());
        let all = (0..).map(ServerId).zip(&self.members);
        all.filter_map(move |(id, member)| {
            let figures = self.balancer.figures(now, id)?;
            let stays = figures.state != ServerState::Leaving;
            member.as_ref().filter(|_| stays).map(|member| (id, member))
        })
    }

    /// A server for a request, and a connection to it that is free. With a new one there would be more than the server
    /// may have: then one that is kept goes.
    fn pick(
        &mut self,
        now: Micros,
        key: Option<u64>,
        tried: &[ServerId],
        renew: bool,
        after: &mut After,
    ) -> Option<Picked> {
        let chosen = self.balancer.choose(now, key, tried)?;
        let figures = self.balancer.figures(now, chosen.server)?;
        let member = self.member_mut(chosen.server)?;
        if figures.busy <= 1 {
            member.quiet_since = now.0;
        }
        let kept = match renew {
            true => None,
            false => member.kept.pop(),
        };
        // A kept connection holds a worker of PHP-FPM: a new one beside it would wait for that.
        while kept.is_none()
            && !member.kept.is_empty()
            && figures.busy + member.kept.len() > figures.limit
        {
            after.close(Some(member.kept.remove(0)));
        }
        Some(Picked {
            chosen,
            name: member.name.clone(),
            address: member.address.clone(),
            kept,
        })
    }

    /// A request at a server has ended like this. Its connection is kept for another one, if there is one and there is room.
    pub(super) fn finish(
        &mut self,
        now: Micros,
        chosen: Chosen,
        finish: Finish,
        cause: Option<&str>,
        conn: Option<WorkerConn>,
        after: &mut After,
    ) {
        let change = self.balancer.finish(now, chosen, finish);
        let Some(figures) = self.balancer.figures(now, chosen.server) else {
            // It was leaving, and this was its last request.
            self.members[chosen.server.0 as usize] = None;
            return after.close(conn);
        };
        let fit = matches!(figures.state, ServerState::Up | ServerState::SlowStart);
        if let Some(member) = self.member_mut(chosen.server) {
            if finish == Finish::Answered {
                member.quiet_since = now.0;
            }
            if fit && figures.busy + member.kept.len() < figures.limit {
                member.kept.extend(conn);
            } else {
                after.close(conn);
            }
        }
        self.changed(now, chosen.server, change, cause, after);
    }

    /// Says so where a server has gone up or down, and lets go of its connections where it is down.
    fn changed(
        &mut self,
        now: Micros,
        server: ServerId,
        change: Option<Change>,
        cause: Option<&str>,
        after: &mut After,
    ) {
        let Some(change) = change else { return };
        let figures = self.balancer.figures(now, server);
        let Some(member) = self.member_mut(server) else {
            return;
        };
        let name = member.name.clone();
        match change {
            Change::Up { after: pause } => {
                let slowly = match figures.map(|figures| figures.state) {
                    Some(ServerState::SlowStart) => ", and starts slowly",
                    _ => "",
                };
                let seconds = Duration::from(pause).as_secs_f64();
                let text = format!("server {name} is up again after {seconds:.1} s{slowly}");
                after.note(Note::Notice(text));
            }
            Change::Down { why, pause } => {
                let kept = std::mem::take(&mut member.kept);
                kept.into_iter().for_each(|conn| after.close(Some(conn)));
                let why = match why {
                    Why::Refused => "takes no connections",
                    Why::Failures => "has failed too many requests in a row",
                    Why::Checks => "has failed its checks",
                };
                let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                let next = match pause {
                    Some(pause) => {
                        let seconds = Duration::from(pause).as_secs_f64();
                        format!("it is tried again after {seconds:.1} s")
                    }
                    None => "its checks will tell when it is back".to_owned(),
                };
                let text = format!("server {name} is down, it {why}{cause}; {next}");
                after.note(Note::Warning(text));
            }
        }
        let down = self.balancer.is_down();
        if down && !self.told_down {
            let text =
                "no server is up: requests are given to those that are down, in case they are back";
            after.note(Note::Warning(text.to_owned()));
        }
        self.told_down = down;
    }

    /// Lets go of kept connections that are more than their servers may have.
    fn trim(&mut self, now: Micros, after: &mut After) {
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
                after.close(Some(conn));
            }
        }
    }
}

impl State {
    /// Fits the pool's limit and its places to what the servers may have now.
    pub(super) fn fit(&mut self, pool: &Arc<PoolHandle>, now: Micros, after: &mut After) {
        let Some(farm) = &mut self.farm else { return };
        let most = pool.maxconn().min(MAX_WORKERS as usize);
        farm.balancer.share(most);
        let limit = farm.balancer.limit(now).min(most);
        let expected = farm.pending_names > 0 || farm.balancer.count() > 0;
        // Without a server, and with none to come, nobody is to wait.
        self.pool.worker_expected(expected);
        if !expected {
            self.settle(pool, now, after);
        }
        let before = self.pool.limits();
        let stats = self.pool.stats();
        let places = stats.workers - stats.retiring;
        if before.maxconn == limit && places == limit {
            return;
        }
        let Some(farm) = &mut self.farm else { return };
        if limit < before.maxconn {
            farm.trim(now, after);
        }
        let limits = Limits {
            maxconn: limit,
            ..before
        };
        for action in self.pool.set_limits(now, limits) {
            match action {
                Action::Run(assignment) => self.grant(pool, assignment, after),
                Action::Shed { request, reason } => self.refuse(request, reason, after),
            }
        }
        for _ in places..limit {
            let spare = self.farm.as_mut().and_then(|farm| farm.spare.pop());
            let place = spare.unwrap_or_else(|| {
                self.slots.push(Slot::default());
                WorkerId(self.slots.len() as u32 - 1)
            });
            if let Some(next) = self.pool.worker_up(now, place, 0) {
                self.grant(pool, next, after);
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
        self.settle(pool, now, after);
    }

    /// A place of the pool is not used any more.
    fn leave(&mut self, now: Micros, place: WorkerId) {
        self.pool.worker_down(now, place);
        if let Some(farm) = &mut self.farm {
            farm.spare.push(place);
        }
    }

    /// Takes a place back, with the connection to the server that its request had.
    pub(super) fn take_place_back(
        &mut self,
        pool: &Arc<PoolHandle>,
        lease: &mut Lease,
        now: Micros,
        after: &mut After,
    ) {
        self.slots[lease.worker.0 as usize].leased = false;
        let conn = lease.conn.take();
        if let (Some(farm), Some(chosen)) = (&mut self.farm, lease.chosen.take()) {
            let cause = lease.cause.as_deref();
            farm.finish(now, chosen, lease.outcome, cause, conn, after);
        }
        if !matches!(lease.outcome, Finish::Answered | Finish::Unknown) {
            // Nothing was finished, and how long it took is not what scripts take.
            self.pool.lose(now, lease.worker);
            self.leave(now, lease.worker);
            self.settle(pool, now, after);
            return self.fit(pool, now, after);
        }
        let released = match lease.begun {
            true => self.pool.release(now, lease.worker),
            false => self.pool.abandon(now, lease.worker),
        };
        if released.leaves {
            self.leave(now, lease.worker);
        }
        if let Some(next) = released.next {
            self.grant(pool, next, after);
        }
        self.fit(pool, now, after);
    }
}

impl PoolHandle {
    /// Looks after servers beside their requests: checks them, and looks their names up. Returns when that goes on by
    /// itself. `resolver`: none where no server has a name; `known`: the addresses of names as they were known last.
    pub(crate) fn tend(
        self: &Arc<Self>,
        resolver: Option<&Arc<Resolver>>,
        known: &[(String, Vec<IpAddr>)],
    ) {
        let Runtime::Servers(settings) = &self.settings.runtime else {
            return;
        };
        let members: Vec<(ServerId, u64)> = {
            let state = self.state();
            let staying = state.farm.iter().flat_map(Farm::staying);
            staying.map(|(id, member)| (id, member.serial)).collect()
        };
        for (server, serial) in members {
            self.watch(server, serial);
        }
        for (entry, server) in settings.list.iter().enumerate() {
            if let (Upstream::Named { host, port }, Some(resolver)) = (&server.address, resolver) {
                let (pool, resolver) = (self.clone(), resolver.clone());
                let known = known.iter().find(|(name, _)| name == host);
                let known = known.map_or_else(Vec::new, |(_, addresses)| addresses.clone());
                let server = (entry, host.clone(), *port);
                tokio::spawn(names::follow(pool, resolver, server, known));
            }
        }
    }

    /// Checks a server from now on, if it is to be checked.
    fn watch(self: &Arc<Self>, server: ServerId, serial: u64) {
        if let Runtime::Servers(settings) = &self.settings.runtime
            && settings.check != Check::Off
        {
            tokio::spawn(check::watch(self.clone(), server, serial));
        }
    }

    /// The answer of a server turned out to be none, after its request had been given back.
    pub(crate) fn blame(self: &Arc<Self>, server: ServerId, cause: &str) {
        self.change(|state, now, after| {
            if let Some(farm) = &mut state.farm {
                let change = farm.balancer.failed(now, server);
                farm.changed(now, server, change, Some(cause), after);
            }
            state.fit(self, now, after);
        });
    }
}

/// How the balancer decides for these settings.
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

/// Calls a socket by the name that it has inside of `chroot`. One that lies outside was warned of at the start, and is
/// not found.
fn inside(chroot: Option<&Path>, address: &Address) -> Address {
    if let (Some(chroot), Address::Unix(path)) = (chroot, address)
        && let Some(inside) = path_inside(chroot, path)
    {
        return Address::Unix(inside);
    }
    address.clone()
}

/// A request that tries a server again, and has not ended, does not keep others from it for longer.
const PROBE_TIMEOUT: Micros = Micros::from_secs(10);
