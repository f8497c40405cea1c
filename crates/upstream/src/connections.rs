//! Connections to one origin: kept, new, and opened in advance.
//!
//! # Which connection a call gets
//!
//! An idle one, the one used last first; otherwise an HTTP/2 connection that has room; otherwise the call waits for the
//! first of these: a connection that another call returns, or a new one. Separate tasks make new connections, as many
//! as there are waiting calls that cannot share one. So if a caller leaves, its handshake is not lost: the connection
//! is kept. While the protocol of an origin is not known, a connection is made for each waiting call: HTTP/1.1 needs
//! that, and without weir no caller would wait for another one's handshake. If the first one uses HTTP/2, the others
//! are closed. The protocol is remembered ([`Dialer::spoken`]), so this happens once per origin.
//!
//! # States of a connection
//!
//! ```text
//!  connecting ─► idle ◄─► busy (HTTP/1.1: one call)      ─► closed: the origin's end, `keepalive_timeout`,
//!            └─► shared (HTTP/2: 0 to `STREAMS` calls)      `keepalive_time`, an address that DNS no longer names,
//!                                                           an answer that was not read to its end
//! ```
//!
//! A connection that is too old, or whose address DNS no longer names, gets no new calls; its running calls continue.

mod body;
mod keepalive_requests;
mod lease;
mod pooled;
mod reading;
mod watch;

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Waker},
    time::Duration,
};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{sync::oneshot, task::AbortHandle};
use weir_config::{HostSettings, Scheme};
use weir_http1::Limits;

pub(crate) use self::reading::Reading;
pub use self::{
    body::{Interrupted, Received},
    pooled::{Answered, Outgoing, PooledConnection, RequestBody, Unanswered, of_map},
};
use crate::h1;
use weir_observe::clock;

use self::{keepalive_requests::KeepaliveRequests, watch::Watch};
use super::{
    HostCounters,
    dial::{Dialer, Link, Route, Stream},
    failure,
    fault::{Fault, Kind},
    origin::{Connection, Protocol},
};

/// All connections to one origin.
/// `B`: the bodies of requests.
pub struct Connections<B: RequestBody> {
    dialer: Arc<Dialer>,
    route: Route,
    counters: Arc<dyn HostCounters>,
    /// Is woken by idle HTTP/1.1 connections: [`Watch`].
    watch: Waker,
    /// An idle connection was woken and must be checked.
    news: Arc<AtomicBool>,
    state: Mutex<State<B>>,
}

/// Numbers of connections, for the admin interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that could take a call now and have none.
    pub idle: usize,
    /// Connections that carry calls.
    pub busy: usize,
    /// Connections that are being made.
    pub connecting: usize,
    /// Calls that wait for a connection.
    pub waiting: usize,
    /// The protocol of the origin; `None`: not known yet.
    pub protocol: Option<Protocol>,
}

enum Hold<B: RequestBody> {
    Own(Box<Kept>),
    Share(Arc<Shared<B>>),
}

struct State<B: RequestBody> {
    /// HTTP/1.1, the one used last at the end.
    #[allow(clippy::vec_box, reason = "they come and go as boxes")]
    idle: Vec<Box<Kept>>,
    /// HTTP/2.
    shared: Vec<Arc<Shared<B>>>,
    /// HTTP/1.1 connections that carry a call.
    busy: usize,
    /// Connection attempts, the oldest first.
    dials: Vec<Dial>,
    /// The number of the next attempt.
    next_dial: u64,
    /// Waiting calls in order of arrival.
    waiting: VecDeque<oneshot::Sender<Result<PooledConnection<B>, Fault>>>,
    /// The protocol of the last new connection.
    spoken: Option<Protocol>,
    /// How many calls the origin takes over one HTTP/2 connection.
    keepalive_requests: KeepaliveRequests,
    /// After a failure, no connection is made in advance before this time; and the pause after the next failure, µs.
    ahead_at: u64,
    ahead_pause: u64,
    /// The origin was forgotten: connections that are given back are closed.
    closed: bool,
}

/// A connection attempt.
struct Dial {
    number: u64,
    task: AbortHandle,
}

/// An HTTP/1.1 connection.
struct Kept {
    client: h1::Connection<Stream>,
    connection: Connection,
    made: u64,
    used: u64,
}

/// An HTTP/2 connection.
struct Shared<B: RequestBody> {
    sender: http2::SendRequest<B>,
    connection: Connection,
    made: u64,
    /// When the last call ended, or when it was made.
    used: AtomicU64,
    streams: AtomicUsize,
    /// How many streams the origin allows at once.
    most: Arc<AtomicUsize>,
    /// How many calls were given to it so far, and how many of them the origin has not begun.
    given: AtomicUsize,
    refused: AtomicUsize,
}

impl<B: RequestBody> Connections<B> {
    /// Starts without connections.
    pub fn new(
        dialer: Arc<Dialer>,
        route: Route,
        counters: Arc<dyn HostCounters>,
    ) -> Arc<Connections<B>> {
        let only_http1 = route.origin.scheme == Scheme::Http || !route.settings.http2;
        let state = State {
            spoken: match only_http1 {
                true => Some(Protocol::Http1),
                false => dialer.spoken(&route.origin),
            },
            idle: Vec::new(),
            shared: Vec::new(),
            busy: 0,
            dials: Vec::new(),
            next_dial: 0,
            waiting: VecDeque::new(),
            keepalive_requests: KeepaliveRequests::default(),
            ahead_at: 0,
            ahead_pause: FIRST_PAUSE,
            closed: false,
        };
        let news = Arc::<AtomicBool>::default();
        Arc::new_cyclic(|me| Connections {
            dialer,
            route,
            counters,
            watch: Watch::waker(me.clone(), news.clone()),
            news,
            state: Mutex::new(state),
        })
    }

    /// A connection for a call, kept or new. Returns it, or a fault, within `connect_timeout`. `fresh`: no idle
    /// connection is used, because one of them was dead, and the others may be dead as well.
    ///
    /// # Errors
    /// Why no connection could be made.
    pub async fn take(self: &Arc<Self>, fresh: bool) -> Result<PooledConnection<B>, Fault> {
        if let Some(pooled) = self.ready(fresh) {
            return Ok(pooled);
        }
        let waiting = {
            let mut state = self.lock();
            let (give, take) = oneshot::channel();
            state.waiting.push_back(give);
            self.dial_for_waiting(&mut state);
            take
        };
        let forgotten = |_| {
            Err(Fault::unsent(
                Kind::Internal,
                format!(
                    "{}: dropped from memory while a call waited for a connection; raise [egress] max_hosts",
                    self.route.origin
                ),
            ))
        };
        waiting.await.unwrap_or_else(forgotten)
    }

    /// A connection that exists and can take a call at once. `fresh`: as for [`take`](Self::take).
    pub fn ready(self: &Arc<Self>, fresh: bool) -> Option<PooledConnection<B>> {
        match fresh {
            true => None,
            false => self.kept(&mut self.lock()),
        }
    }

    /// Closes connections that are idle for too long, too old, or lead to an address that DNS no longer names; makes
    /// connections in advance.
    /// Called about once a second.
    /// `now`: [`clock::precise`].
    pub fn tend(self: &Arc<Self>, now: u64) {
        let mut leaving = Vec::new();
        {
            let mut state = self.lock();
            let settings = self.settings();
            let open = state.open();
            let mut spare = open.saturating_sub(settings.preconnect);
            let State { idle, shared, .. } = &mut *state;
            let all = mem::take(idle);
            // There are more than `keepalive` because they were all in use a moment ago.
            let mut beyond = all.len().saturating_sub(settings.keepalive);
            // The least recently used one comes first.
            for mut kept in all {
                let unfit =
                    !kept.is_open(&self.watch) || !self.fit(&kept.connection, kept.made, now);
                let limit = match beyond > 0 {
                    true => SPARE_FOR.min(settings.keepalive_timeout),
                    false => settings.keepalive_timeout,
                };
                beyond = beyond.saturating_sub(1);
                let rested = now.saturating_sub(kept.used) > micros(limit);
                match unfit || (rested && spare > 0) {
                    true => {
                        spare = spare.saturating_sub(1);
                        leaving.push(Hold::Own(kept));
                    }
                    false => idle.push(kept),
                }
            }
            shared.retain(|one| {
                let unfit = one.sender.is_closed() || !self.fit(&one.connection, one.made, now);
                let unused = one.streams.load(Relaxed) == 0;
                let rested = unused
                    && now.saturating_sub(one.used.load(Relaxed))
                        > micros(settings.keepalive_timeout);
                let goes = unfit || (rested && spare > 0);
                if goes {
                    spare = spare.saturating_sub(1);
                    leaving.push(Hold::Share(one.clone()));
                }
                !goes
            });
            self.dial_ahead(&mut state, now);
        }
        // Dropped outside of the lock, because dropping closes them.
        drop(leaving);
    }

    /// Closes idle connections and keeps none from now on, because the origin was forgotten. A call that still comes
    /// gets a new connection.
    pub fn close(&self) {
        let (idle, shared);
        {
            let mut state = self.lock();
            state.closed = true;
            idle = mem::take(&mut state.idle);
            shared = mem::take(&mut state.shared);
        }
        drop((idle, shared));
    }

    /// Where its connections lead to.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The current numbers.
    pub fn counts(&self) -> ConnectionCounts {
        let state = self.lock();
        let unused = |one: &&Arc<Shared<B>>| one.streams.load(Relaxed) == 0;
        let shared_idle = state.shared.iter().filter(unused).count();
        ConnectionCounts {
            idle: state.idle.len() + shared_idle,
            busy: state.busy + state.shared.len() - shared_idle,
            connecting: state.dials.len(),
            waiting: state.waiting.len(),
            protocol: state.spoken,
        }
    }

    /// An existing connection that can take a call.
    fn kept(self: &Arc<Self>, state: &mut State<B>) -> Option<PooledConnection<B>> {
        let now = clock::now();
        while let Some(mut kept) = state.idle.pop() {
            // The connection was open when it was given back, and has been watched since then.
            let is_open = !self.news.load(SeqCst) || kept.is_open(&self.watch);
            if is_open && self.young(kept.made, now) {
                state.busy += 1;
                return Some(self.pooled(Hold::Own(kept), true));
            }
        }
        let keepalive_requests = state.keepalive_requests.at(now);
        let free =
            |one: &&Arc<Shared<B>>| one.has_room(keepalive_requests) && self.young(one.made, now);
        let shared = state.shared.iter().find(free)?.clone();
        state.give(&shared, keepalive_requests);
        Some(self.pooled(Hold::Share(shared), true))
    }

    fn pooled(self: &Arc<Self>, hold: Hold<B>, kept: bool) -> PooledConnection<B> {
        let mut connection = match &hold {
            Hold::Own(own) => own.connection,
            Hold::Share(share) => share.connection,
        };
        if kept {
            connection.made = None;
        }
        PooledConnection {
            home: self.clone(),
            hold: Some(hold),
            connection,
            kept,
            sent: false,
        }
    }

    /// Makes as many connections as the waiting calls need.
    fn dial_for_waiting(self: &Arc<Self>, state: &mut State<B>) {
        // No connection is made for a call that has ended.
        state.waiting.retain(|waiter| !waiter.is_closed());
        let wanted = state.wanted();
        while state.dials.len() < wanted {
            self.dial(state);
        }
    }

    /// Makes connections until `preconnect` are open, unless the last attempt to do so failed a moment ago.
    fn dial_ahead(self: &Arc<Self>, state: &mut State<B>, now: u64) {
        if state.closed || now < state.ahead_at {
            return;
        }
        let wanted = match state.spoken {
            Some(Protocol::Http2) => self.settings().preconnect.min(1),
            _ => self.settings().preconnect,
        };
        while state.open() + state.dials.len() < wanted {
            self.dial(state);
            // Protects an origin that closes connections at once against a flood of attempts.
            state.ahead_at = now + FIRST_PAUSE;
        }
    }

    fn dial(self: &Arc<Self>, state: &mut State<B>) {
        let me = self.clone();
        let number = state.next_dial;
        state.next_dial += 1;
        let task = tokio::spawn(async move {
            // It is also removed if the task is dropped.
            let connecting = Connecting(&me, number);
            // The attempt belongs to no single call, so only `connect_timeout` limits it.
            let linked = match me.dialer.dial(&me.route, clock::NEVER).await {
                Ok(link) => me.speak(link).await,
                Err(fault) => Err(fault),
            };
            drop(connecting);
            match linked {
                Ok(hold) => me.arrived(hold),
                Err(fault) => me.failed(&fault),
            }
        });
        let task = task.abort_handle();
        state.dials.push(Dial { number, task });
    }

    /// Starts HTTP on a new connection.
    async fn speak(self: &Arc<Self>, link: Link) -> Result<Hold<B>, Fault> {
        let Link { stream, connection } = link;
        let now = clock::precise();
        let limit = usize::try_from(self.settings().max_response_head).unwrap_or(usize::MAX);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if connection.protocol != Protocol::Http2 {
            let limits = Limits {
                head: limit,
                ..Limits::default()
            };
            return Ok(Hold::Own(Box::new(Kept {
                client: h1::Connection::new(stream, limits),
                connection,
                made: now,
                used: now,
            })));
        }
        let io = TokioIo::new(stream.measured(Reading::default()));
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(limit)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .handshake(io)
            .await;
        let (sender, mut conversation) =
            handshake.map_err(|error| failure::of_handshake(&self.route.origin, &error))?;
        let ended = self.clone();
        let shared = Arc::new(Shared {
            sender,
            connection,
            made: now,
            used: AtomicU64::new(now),
            streams: AtomicUsize::new(0),
            most: Arc::new(AtomicUsize::new(STREAMS)),
            given: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let most = shared.most.clone();
        tokio::spawn(async move {
            // An error is reported to each call that waits for this attempt.
            let _ = poll_fn(|cx| {
                let polled = Pin::new(&mut conversation).poll(cx);
                most.store(conversation.current_max_send_streams(), Relaxed);
                polled
            })
            .await;
            ended.one_ended();
        });
        Ok(Hold::Share(shared))
    }

    /// A new connection is ready.
    fn arrived(self: &Arc<Self>, hold: Hold<B>) {
        let connection = match &hold {
            Hold::Own(own) => own.connection,
            Hold::Share(share) => share.connection,
        };
        let verified = self.route.origin.scheme == Scheme::Http || self.settings().verify;
        self.counters.connection_opened(&connection, verified);
        {
            let mut state = self.lock();
            if state.spoken.replace(connection.protocol) != Some(connection.protocol) {
                self.dialer.speaks(&self.route.origin, connection.protocol);
            }
            state.ahead_pause = FIRST_PAUSE;
            if let Hold::Share(share) = &hold
                && !state.closed
            {
                state.shared.push(share.clone());
            }
        }
        match hold {
            Hold::Own(own) => self.offer(own, false),
            Hold::Share(share) => {
                self.spread(&share);
                self.give_up_surplus(&share);
            }
        }
        // For calls that waited until the protocol is known.
        let mut state = self.lock();
        self.dial_for_waiting(&mut state);
    }

    /// Cancels connection attempts that began before it was known that the origin uses HTTP/2, and closes `new` if
    /// another connection has room for all calls.
    fn give_up_surplus(&self, new: &Arc<Shared<B>>) {
        let surplus;
        {
            let mut state = self.lock();
            let wanted = state.wanted().min(state.dials.len());
            surplus = state.dials.split_off(wanted);
            let keepalive_requests = state.keepalive_requests.at(clock::now());
            let mut others = state.shared.iter().filter(|one| !Arc::ptr_eq(one, new));
            let has_other = others.any(|one| one.has_room(keepalive_requests));
            if has_other && state.waiting.is_empty() && new.given.load(Relaxed) == 0 {
                state.shared.retain(|one| !Arc::ptr_eq(one, new));
            }
        }
        for dial in surplus {
            dial.task.abort();
        }
    }

    /// Gives an HTTP/1.1 connection to a waiting call, or keeps it.
    fn offer(self: &Arc<Self>, mut own: Box<Kept>, kept: bool) {
        // From now on weir notices the end of the connection. If a new connection has ended already, the call fails:
        // weir does not try an origin repeatedly that closes connections at once.
        let is_open = own.is_open(&self.watch);
        if kept && !is_open {
            drop(own);
            let mut state = self.lock();
            return self.dial_for_waiting(&mut state);
        }
        loop {
            let waiter = {
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some(waiter) => {
                        state.busy += 1;
                        waiter
                    }
                    None if state.closed => return,
                    None => {
                        // As many connections are kept as may be in use, because a connection that is closed and needed
                        // again at once costs a handshake. Connections beyond `keepalive` are closed when they were not
                        // needed for a moment.
                        let settings = self.settings();
                        let room = match settings.keepalive {
                            0 => 0,
                            kept => kept.max(settings.maxconn),
                        };
                        let room = room.max(settings.preconnect);
                        if state.idle.len() >= room {
                            // The oldest one is closed to make room, unless none may be kept at all.
                            match room {
                                0 => return,
                                _ => drop(state.idle.remove(0)),
                            }
                        }
                        own.client.shrink();
                        if is_open {
                            state.idle.push(own);
                        }
                        return;
                    }
                }
            };
            match waiter.send(Ok(self.pooled(Hold::Own(own), kept))) {
                Ok(()) => return,
                // The waiting call has ended.
                Err(Ok(mut pooled)) => {
                    self.lock().busy -= 1;
                    match pooled.hold.take() {
                        Some(Hold::Own(back)) => own = back,
                        _ => return,
                    }
                }
                Err(Err(_)) => return,
            }
        }
    }

    /// Gives shares of an HTTP/2 connection to waiting calls.
    fn spread(self: &Arc<Self>, shared: &Arc<Shared<B>>) {
        let mut kept = shared.given.load(Relaxed) > 0;
        loop {
            let waiter = {
                let mut state = self.lock();
                let keepalive_requests = state.keepalive_requests.at(clock::now());
                if !shared.has_room(keepalive_requests) {
                    return;
                }
                let Some(waiter) = state.waiting.pop_front() else {
                    return;
                };
                state.give(shared, keepalive_requests);
                waiter
            };
            let pooled = self.pooled(Hold::Share(shared.clone()), kept);
            match waiter.send(Ok(pooled)) {
                Ok(()) => kept = true,
                // The waiting call has ended. Dropping the share would call this function again, one level deeper for
                // each such call.
                Err(Ok(mut pooled)) => {
                    pooled.hold = None;
                    shared.streams.fetch_sub(1, Relaxed);
                    shared.given.fetch_sub(1, Relaxed);
                    // The dropped share may have been the last one.
                    let mut state = self.lock();
                    let is_there = state.shared.iter().any(|one| Arc::ptr_eq(one, shared));
                    if !is_there && !state.closed {
                        state.shared.push(shared.clone());
                    }
                }
                Err(Err(_)) => return,
            }
        }
    }

    /// No connection could be made. One waiting call gets the error; all get it if no other connection is being made.
    fn failed(&self, fault: &Fault) {
        let told: Vec<_> = {
            let mut state = self.lock();
            let now = clock::precise();
            state.ahead_at = now + state.ahead_pause;
            state.ahead_pause = (state.ahead_pause * 2).min(LONGEST_PAUSE);
            match state.dials.len() {
                0 => state.waiting.drain(..).collect(),
                _ => state.waiting.pop_front().into_iter().collect(),
            }
        };
        self.counters.failed(fault);
        for waiter in told {
            let _ = waiter.send(Err(fault.clone()));
        }
    }

    /// A connection has ended, on either side's initiative.
    fn one_ended(self: &Arc<Self>) {
        let gone: Vec<_>;
        {
            let mut state = self.lock();
            self.news.store(false, SeqCst);
            gone = state
                .idle
                .extract_if(.., |kept| !kept.is_open(&self.watch))
                .collect();
            state.shared.retain(|one| !one.sender.is_closed());
            self.dial_ahead(&mut state, clock::precise());
        }
        drop(gone);
    }

    /// Whether it may take a new call.
    fn fit(&self, connection: &Connection, made: u64, now: u64) -> bool {
        self.young(made, now)
            && self
                .dialer
                .still_leads(&self.route, connection.address.ip())
    }

    fn young(&self, made: u64, now: u64) -> bool {
        now.saturating_sub(made) < micros(self.settings().keepalive_time)
    }

    fn settings(&self) -> &HostSettings {
        &self.route.settings
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: RequestBody> State<B> {
    fn open(&self) -> usize {
        self.idle.len() + self.shared.len() + self.busy
    }

    /// How many connections the waiting calls need.
    fn wanted(&self) -> usize {
        let waiting = self.waiting.len();
        match self.spoken {
            Some(Protocol::Http2) => {
                waiting.div_ceil(STREAMS.min(self.keepalive_requests.at(clock::now())))
            }
            None | Some(Protocol::Http1 | Protocol::Tunnel) => waiting,
        }
    }

    /// Counts a share that is given. A connection that has given its last one is removed from the list; it ends with
    /// its running calls.
    fn give(&mut self, shared: &Arc<Shared<B>>, keepalive_requests: usize) {
        shared.streams.fetch_add(1, Relaxed);
        if shared.given.fetch_add(1, Relaxed) + 1 >= keepalive_requests {
            self.shared.retain(|one| !Arc::ptr_eq(one, shared));
        }
    }
}

impl Kept {
    /// Whether the origin has left it open and silent. If that ends, `watch` is woken.
    fn is_open(&mut self, watch: &Waker) -> bool {
        self.client.is_open(&mut Context::from_waker(watch))
    }
}

impl<B: RequestBody> Shared<B> {
    /// `keepalive_requests`: how many calls it takes in total.
    fn has_room(&self, keepalive_requests: usize) -> bool {
        let most = self.most.load(Relaxed).clamp(1, STREAMS);
        !self.sender.is_closed()
            && self.streams.load(Relaxed) < most
            && self.given.load(Relaxed) < keepalive_requests
    }
}

impl<B: RequestBody> Connections<B> {
    /// An HTTP/1.1 connection is free again.
    fn given_back(self: &Arc<Self>, own: Box<Kept>) {
        self.lock().busy -= 1;
        match self.young(own.made, clock::now()) {
            true => self.offer(own, true),
            false => {
                drop(own);
                let mut state = self.lock();
                self.dial_for_waiting(&mut state);
            }
        }
    }

    /// An HTTP/1.1 connection that carried a call was closed.
    fn lost(self: &Arc<Self>) {
        let mut state = self.lock();
        state.busy -= 1;
        self.dial_for_waiting(&mut state);
    }

    /// An HTTP/2 connection gets no new calls; its running calls continue.
    fn put_aside(&self, share: &Arc<Shared<B>>) {
        let mut state = self.lock();
        state.shared.retain(|one| !Arc::ptr_eq(one, share));
    }

    /// A call over HTTP/2 has ended.
    fn returned(self: &Arc<Self>, share: &Arc<Shared<B>>) {
        let now = clock::now();
        share.used.store(now, Relaxed);
        let was_last = share.streams.fetch_sub(1, Relaxed) == 1;
        let is_needed = {
            let mut state = self.lock();
            let refused = share.refused.load(Relaxed);
            if was_last && refused > 0 {
                let taken = share.given.load(Relaxed).saturating_sub(refused);
                state.keepalive_requests.learn(taken, now);
                // So that this is not counted twice.
                share.refused.store(0, Relaxed);
            }
            !state.waiting.is_empty()
        };
        if is_needed {
            self.spread(share);
            // If this connection has no room, another connection is made.
            let mut state = self.lock();
            self.dial_for_waiting(&mut state);
        }
    }
}

/// Keeps a connection attempt on the list until it has succeeded or failed.
struct Connecting<'a, B: RequestBody>(&'a Connections<B>, u64);

impl<B: RequestBody> Drop for Connecting<'_, B> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.dials.retain(|dial| dial.number != self.1);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Maximum number of calls on one HTTP/2 connection at a time, even if the origin allows more: this limits how many
/// calls a lost connection affects.
const STREAMS: usize = 100;

/// How many bytes an origin may send of one answer, and of all answers on one connection, before weir has passed them
/// on.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// An HTTP/2 connection that carries calls and is silent is tested with a PING this often.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// An idle connection beyond `keepalive` is closed when it was not needed for this long.
const SPARE_FOR: Duration = Duration::from_secs(10);

/// First pause after a failed attempt to connect in advance, µs; it doubles each time.
const FIRST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 30_000_000;

#[cfg(test)]
mod tests;
