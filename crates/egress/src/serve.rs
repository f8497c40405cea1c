//! Serves a caller's connection: joins the carrier of HTTP/1 to the steps of a call.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::StatusCode;
use slab::Slab;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use weir_observe::clock;

use super::{
    Egress, call,
    callers::Peer,
    fault::{Fault, Kind},
};
use weir_http::{
    Begun, ConnState, Front, Request, RequestState, Timeouts,
    h1::{self, Connection, Limits},
    watch,
};
use weir_net::Socket;

/// Serves a caller until its connection ends. `place`: counts for `max_connections`.
pub(crate) fn serve(
    egress: Arc<Egress>,
    socket: Socket,
    peer: Arc<Peer>,
    place: OwnedSemaphorePermit,
) -> impl Future<Output = ()> {
    egress.figures.caller_came();
    let state = Rc::new(ConnState::new(&TIMEOUTS));
    let caller = CallerConnection {
        egress,
        peer,
        _slot: Slot::new(state.clone()),
        state,
        _place: place,
    };
    Connection::new(caller, socket, LIMITS)
}

/// The egress's side of a caller's connection, also while it is a tunnel.
struct CallerConnection {
    egress: Arc<Egress>,
    peer: Arc<Peer>,
    state: Rc<ConnState>,
    _slot: Slot,
    _place: OwnedSemaphorePermit,
}

impl Drop for CallerConnection {
    fn drop(&mut self) {
        self.egress.figures.caller_left();
    }
}

impl Front for CallerConnection {
    /// The body of an answer writes the log line itself.
    type Receipt = ();

    fn begin(&self, request: Request) -> Begun<()> {
        let (egress, peer) = (self.egress.clone(), self.peer.clone());
        Begun::Steps(Box::pin(call::call(egress, peer, request)))
    }

    fn state(&self) -> &ConnState {
        &self.state
    }

    fn is_draining(&self) -> bool {
        self.egress.drain.has_started()
    }

    fn refused(&self, status: StatusCode, _: &'static str, why: &str) {
        let kind = match status {
            StatusCode::REQUEST_TIMEOUT => Kind::SlowCaller,
            _ => Kind::BadRequest,
        };
        self.egress.figures.refused(kind);
        let fault = Fault::unsent(kind, format!("call refused: {why}"));
        self.egress.complaints.tell(None, &fault);
    }
}

impl h1::Front for CallerConnection {
    fn refusal_fields(&self, status: StatusCode) -> &'static str {
        match status {
            StatusCode::REQUEST_TIMEOUT => {
                "proxy-status: weir; error=http_request_error; details=\"slow_caller\"\r\n"
            }
            _ => "proxy-status: weir; error=http_request_error; details=\"bad_request\"\r\n",
        }
    }
}

thread_local! {
    /// The connections of this thread's callers.
    static CONNECTIONS: RefCell<Slab<Rc<ConnState>>> = const { RefCell::new(Slab::new()) };
    /// When the sweep of this thread looks next at connections ([`clock::now`]).
    static NEXT_SWEEP: Cell<u64> = const { Cell::new(clock::NEVER) };
    /// Notified when that is to be earlier than planned.
    static EARLIER: Rc<Notify> = Rc::default();
}

/// A slot in the list of this thread's connections. Dropping it, on the same thread, frees the slot.
struct Slot(usize);

impl Slot {
    fn new(state: Rc<ConnState>) -> Slot {
        let slot = CONNECTIONS.with_borrow_mut(|connections| connections.insert(state.clone()));
        state.watch(slot as u32);
        Slot(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let state = CONNECTIONS.with_borrow_mut(|connections| connections.try_remove(self.0));
        if let Some(state) = state {
            state.unwatch();
        }
    }
}

/// Wakes the connections of this thread's callers whose time is over. Runs on each thread, and never ends.
///
/// It is the only timer of running calls: a call stores when it has to be woken ([`until`]). It
/// rarely has to notify the sweep, because most limits are later than the next check. The sweep checks a connection only
/// when one of its deadlines may have passed ([`watch`]).
pub(crate) async fn sweep(egress: Arc<Egress>) {
    let earlier = EARLIER.with(Rc::clone);
    let mut due = Vec::new();
    loop {
        let (now, is_draining) = (clock::precise(), egress.drain.has_started());
        let pause = if is_draining { DRAIN_SWEEP } else { SWEEP };
        watch::due(now, &mut due);
        CONNECTIONS.with_borrow(|connections| {
            if is_draining {
                connections.iter().for_each(|(_, state)| state.wake());
            }
            for slot in due.drain(..) {
                if let Some(state) = connections.get(slot as usize) {
                    look_at(state, now);
                }
            }
        });
        let longest = now.saturating_add(pause.as_micros() as u64);
        NEXT_SWEEP.set(longest.min(watch::next_due(now)));
        loop {
            let at = NEXT_SWEEP.get();
            let left = Duration::from_micros(at.saturating_sub(clock::precise()));
            tokio::select! {
                () = tokio::time::sleep(left) => break,
                () = egress.drain.started(), if !is_draining => break,
                () = earlier.notified() => {}
            }
        }
    }
}

/// Wakes a connection if its time is over.
fn look_at(state: &ConnState, now: u64) {
    if state.should_rest(now) {
        // The connection has no memory to give back, and need not be checked until it is closed.
        state.park();
    }
    if state.overdue(now) {
        state.wake();
    }
    state.looked_at();
}

/// Waits until a time ([`clock::now`]). Only for the steps of that request, which clear the planned time before each poll
/// ([`RequestState::wake_at`]).
pub(crate) async fn until(state: &RequestState, at: u64) {
    poll_fn(|_| {
        if clock::now() >= at {
            return Poll::Ready(());
        }
        if at < state.wakes_at() {
            state.wake_at(at);
            if at < NEXT_SWEEP.get() {
                NEXT_SWEEP.set(at);
                EARLIER.with(|earlier| earlier.notify_one());
            }
        }
        Poll::Pending
    })
    .await;
}

/// Result of `work`; `None` if it is not done at `deadline`. As [`until`], and for the same task.
pub(crate) async fn in_time<T>(
    state: &RequestState,
    work: impl Future<Output = T>,
    deadline: u64,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = until(state, deadline) => None,
    }
}

/// The limits of a caller's messages: a head of 64 KB.
const LIMITS: Limits = Limits {
    head: 64 << 10,
    fields: 100,
    chunk_extensions: 16 << 10,
};

/// A caller's connection is closed if no request comes for `idle`, if a head is not completed
/// within `header`, or if the caller reads nothing of its answer for `send`, because this blocks a
/// connection to the origin.
static TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(75),
    // Each piece of a body has the origin's `read_timeout`.
    body: Duration::ZERO,
    idle: Duration::from_secs(75),
    send: Duration::from_secs(60),
};

/// How often connections are checked: for their time limits, and whether they can end during a
/// drain.
const SWEEP: Duration = Duration::from_secs(1);
const DRAIN_SWEEP: Duration = Duration::from_millis(200);
