//! Serves a caller's connection: joins the carrier of HTTP/1 to the steps of a call.

use std::{
    cell::RefCell,
    sync::{Arc, LazyLock},
    time::Duration,
};

use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;
use weir_observe::clock;

use super::{
    Egress, call,
    callers::Peer,
    fault::{Fault, Kind},
};
use weir_http::{
    Begun, ConnState, Front, Receipt, Request, Timeouts,
    h1::{Connection, Limits},
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
    let state = Arc::new(ConnState::new(TIMEOUTS.clone()));
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
    state: Arc<ConnState>,
    _slot: Slot,
    _place: OwnedSemaphorePermit,
}

impl Drop for CallerConnection {
    fn drop(&mut self) {
        self.egress.figures.caller_left();
    }
}

impl Front for CallerConnection {
    type Receipt = Unrecorded;

    fn begin(&self, request: Request) -> Begun<Unrecorded> {
        self.state.begin_request();
        let (egress, peer, state) = (&self.egress, &self.peer, &self.state);
        Begun::Steps(Box::pin(call::call(
            egress.clone(),
            peer.clone(),
            state.clone(),
            request,
        )))
    }

    fn state(&self) -> &ConnState {
        &self.state
    }

    fn is_draining(&self) -> bool {
        self.egress.drain.has_started()
    }

    fn should_move(&self) -> Option<u16> {
        None
    }

    fn move_away(&mut self, _: u16, _: Socket) {}

    fn refused(&self, status: StatusCode, _: &'static str, why: &str) {
        let kind = match status {
            StatusCode::REQUEST_TIMEOUT => Kind::SlowCaller,
            _ => Kind::BadRequest,
        };
        self.egress.figures.refused(kind);
        let fault = Fault::unsent(kind, format!("call refused: {why}"));
        self.egress.complaints.tell(None, &fault);
    }

    fn refusal_fields(&self, status: StatusCode) -> &'static str {
        match status {
            StatusCode::REQUEST_TIMEOUT => {
                "proxy-status: weir; error=http_request_error; details=\"slow_caller\"\r\n"
            }
            _ => "proxy-status: weir; error=http_request_error; details=\"bad_request\"\r\n",
        }
    }

    fn met_tls(&self) {}
}

/// The body of an answer writes the log line itself.
pub(crate) struct Unrecorded;

impl Receipt for Unrecorded {
    fn count(&mut self, _: u64) {}

    fn truncated(&mut self) {}

    fn sent(self) {}
}

thread_local! {
    /// The connections of this thread's callers. The slot of a closed one is used again.
    static CONNECTIONS: RefCell<Vec<Option<Arc<ConnState>>>> = const { RefCell::new(Vec::new()) };
    static FREE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A place in the list of this thread's connections. Dropping it, on the same thread, frees the place.
struct Slot(usize);

impl Slot {
    fn new(state: Arc<ConnState>) -> Slot {
        CONNECTIONS.with_borrow_mut(|connections| match FREE.with_borrow_mut(Vec::pop) {
            Some(index) => {
                connections[index] = Some(state);
                Slot(index)
            }
            None => {
                connections.push(Some(state));
                Slot(connections.len() - 1)
            }
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let state = CONNECTIONS.with_borrow_mut(|connections| connections[self.0].take());
        FREE.with_borrow_mut(|free| free.push(self.0));
        drop(state);
    }
}

/// Wakes the connections of this thread's callers whose time is over. Runs on each thread, and never ends.
pub(crate) async fn sweep(egress: Arc<Egress>) {
    loop {
        let is_draining = egress.drain.has_started();
        tokio::select! {
            () = tokio::time::sleep(if is_draining { DRAIN_SWEEP } else { SWEEP }) => {}
            () = egress.drain.started(), if !is_draining => {}
        }
        let (now, is_draining) = (clock::precise(), egress.drain.has_started());
        CONNECTIONS.with_borrow(|connections| {
            for state in connections.iter().flatten() {
                if is_draining || state.overdue(now) {
                    state.wake();
                }
            }
        });
    }
}

/// The limits of a caller's messages: a head of 64 KB.
const LIMITS: Limits = Limits {
    head: 64 << 10,
    fields: 100,
    chunk_extensions: 16 << 10,
};

/// A caller's connection is closed if no request comes for `idle`, if a head is not completed within `header`, or if
/// the caller takes nothing of its answer for `send`: that holds a connection to the origin.
static TIMEOUTS: LazyLock<Arc<Timeouts>> = LazyLock::new(|| {
    Arc::new(Timeouts {
        header: Duration::from_secs(75),
        // Each piece of a body has the origin's `read_timeout`.
        body: Duration::ZERO,
        idle: Duration::from_secs(75),
        send: Duration::from_secs(60),
    })
});

/// How exact these limits are, and how often connections look whether they can end during a drain.
const SWEEP: Duration = Duration::from_secs(1);
const DRAIN_SWEEP: Duration = Duration::from_millis(200);
