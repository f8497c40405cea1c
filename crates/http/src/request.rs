//! One request, as its carrier and the steps of the exchange see it: its body, what it waits for, its interim answers.
//!
//! Both run on the same reactor, and the carrier polls the steps. So neither wakes the other: after each poll the
//! carrier looks at what the steps want, and polls them again when it has it. A connection may have many requests at
//! once, each with a state of its own.

use std::{cell::Cell, fmt, rc::Rc, task::Poll};

use http::StatusCode;
use weir_fcgi::{Role, nv::Pairs};
use weir_net::Spare;
use weir_observe::clock::NEVER;

use super::{Fields, Head};

/// A request whose head is whole.
#[derive(Debug)]
pub struct Request {
    pub head: Box<Head>,
    /// The parameters by which a web server in front describes the request (RFC 3875 §4.1). The head then has no fields.
    pub params: Option<Box<Pairs>>,
    pub body: RequestBody,
    /// When its first byte arrived ([`weir_observe::clock::now`]).
    pub started: u64,
    pub state: Rc<RequestState>,
}

/// The body of a request, for the steps that read it.
#[derive(Debug)]
pub struct RequestBody {
    /// `None`: there is no body.
    state: Option<Rc<RequestState>>,
    length: Option<u64>,
}

/// An answer before the final one (1xx, RFC 9110 §15.2).
#[derive(Debug)]
pub struct Interim {
    pub status: StatusCode,
    pub fields: Fields,
}

/// What a request's carrier and its steps tell each other.
pub struct RequestState {
    /// Received bytes of the body that were not taken yet.
    data: Cell<Vec<u8>>,
    /// Interim answers for the carrier. Boxed, because few requests have any.
    #[allow(clippy::box_collection, reason = "8 bytes in each request, not 24")]
    interim: Cell<Option<Box<Vec<Interim>>>>,
    /// When the steps want to be polled again.
    wakes_at: Cell<u64>,
    incoming: Cell<Incoming>,
    /// The steps wait for more of the body.
    is_body_wanted: Cell<bool>,
    /// The rest of the body will not be read.
    is_body_left: Cell<bool>,
    client: Cell<Client>,
    /// Whose request it is, if a proxy has said that; 0: the connection's.
    said_client: Cell<u64>,
    /// What a web server in front asks for. Most ask for a response.
    role: Cell<Option<Role>>,
}

/// How far the body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Incoming {
    Open,
    Whole,
    Malformed,
}

/// Whether it matters that the client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Not noticed before the next read or write.
    Unwatched,
    /// A request whose client has left must not be begun.
    Watched,
    /// Somebody works for the request.
    IsServed,
}

/// The framing of a request body is wrong.
#[derive(Debug)]
pub struct Malformed;

thread_local! {
    /// States that are not in use.
    static SPARE: Spare<Rc<RequestState>> = const { Spare::new(64) };
}

impl RequestBody {
    /// The body of a request without a body.
    pub fn none() -> RequestBody {
        RequestBody {
            state: None,
            length: Some(0),
        }
    }

    /// A body that the carrier puts into `state`. `length`: if it is known.
    pub fn new(state: &Rc<RequestState>, length: Option<u64>) -> RequestBody {
        RequestBody {
            state: Some(state.clone()),
            length,
        }
    }

    /// Whether there is nothing to read: the request has no body.
    pub fn is_none(&self) -> bool {
        self.state.is_none()
    }

    /// Its length, if the request says that.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next bytes; `None` at the end. Only for the steps of the request.
    pub fn poll_data(&mut self) -> Poll<Result<Option<Vec<u8>>, Malformed>> {
        let Some(state) = &self.state else {
            return Poll::Ready(Ok(None));
        };
        let data = state.data.take();
        if !data.is_empty() {
            return Poll::Ready(Ok(Some(data)));
        }
        match state.incoming.get() {
            Incoming::Open => {
                state.is_body_wanted.set(true);
                Poll::Pending
            }
            Incoming::Whole => Poll::Ready(Ok(None)),
            Incoming::Malformed => Poll::Ready(Err(Malformed)),
        }
    }
}

impl fmt::Debug for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestState")
    }
}

impl Default for RequestState {
    fn default() -> RequestState {
        RequestState {
            data: Cell::default(),
            interim: Cell::default(),
            wakes_at: Cell::new(NEVER),
            incoming: Cell::new(Incoming::Open),
            is_body_wanted: Cell::new(false),
            is_body_left: Cell::new(false),
            client: Cell::new(Client::Unwatched),
            said_client: Cell::new(0),
            role: Cell::default(),
        }
    }
}

/// For the steps.
impl RequestState {
    /// Sets when the steps are polled again, if nothing happens before ([`weir_observe::clock::now`]'s time).
    /// [`NEVER`]: not because of the time.
    pub fn wake_at(&self, time: u64) {
        self.wakes_at.set(time);
    }

    /// The body of the request is complete, and the answer may take long: the carrier watches whether the client leaves.
    pub fn watch_client(&self) {
        self.client.set(Client::Watched);
    }

    /// The work for the request has begun: it is not left out any more because the client has left.
    pub fn work_begins(&self) {
        self.client.set(Client::IsServed);
    }

    /// The role in which the application is called (FastCGI 1.0 §6).
    pub fn role(&self) -> Role {
        self.role.get().unwrap_or(Role::Responder)
    }

    /// A proxy has said whose request it is: a number for the client, not 0.
    pub fn set_client(&self, client: u64) {
        self.said_client.set(client);
    }

    /// The client is still sending a body that will not be read.
    pub fn leave_body(&self) {
        self.is_body_left.set(true);
    }

    /// Sends an interim answer before the final one, if the carrier has such answers. If too many are waiting, it is
    /// dropped, which RFC 9110 §15 allows.
    pub fn send_interim(&self, interim: Interim) {
        let mut waiting = self.interim.take().unwrap_or_default();
        let size = |interim: &Interim| interim.fields.lines().len() + INTERIM_LINE;
        if waiting.iter().map(size).sum::<usize>() + size(&interim) <= MAX_INTERIM {
            waiting.push(interim);
        }
        self.interim.set(Some(waiting));
    }
}

/// For the carrier.
impl RequestState {
    /// The state of a new request.
    pub fn new() -> Rc<RequestState> {
        SPARE.with(Spare::take).unwrap_or_default()
    }

    /// The request has ended: a later one of this reactor uses its state.
    pub fn give_back(mut self: Rc<Self>) {
        if let Some(state) = Rc::get_mut(&mut self) {
            *state = RequestState::default();
            SPARE.with(|spare| spare.keep(self));
        }
    }

    /// When the steps want to be polled again. To be asked after each poll of the steps, and of a body that they have
    /// made.
    pub fn wakes_at(&self) -> u64 {
        self.wakes_at.get()
    }

    /// Sets the role in which a web server in front calls the application (FastCGI 1.0 §6).
    pub(crate) fn set_role(&self, role: Role) {
        self.role.set(Some(role));
    }

    /// Whether the steps wait for more of the body.
    pub fn is_body_wanted(&self) -> bool {
        self.is_body_wanted.get()
    }

    /// Bytes of the body have come.
    pub fn push_body(&self, bytes: &[u8]) {
        let mut data = self.data.take();
        data.extend_from_slice(bytes);
        self.data.set(data);
        self.is_body_wanted.set(false);
    }

    /// As [`Self::push_body`], for bytes that need not be copied.
    pub fn give_body(&self, bytes: Vec<u8>) {
        let data = self.data.take();
        match data.is_empty() {
            true => {
                self.data.set(bytes);
                self.is_body_wanted.set(false);
            }
            false => {
                self.data.set(data);
                self.push_body(&bytes);
            }
        }
    }

    /// The body is whole.
    pub fn end_body(&self) {
        self.settle_body(Incoming::Whole);
    }

    /// The received bytes are no valid body.
    pub fn fail_body(&self) {
        self.settle_body(Incoming::Malformed);
    }

    fn settle_body(&self, how: Incoming) {
        self.incoming.set(how);
        self.is_body_wanted.set(false);
    }

    /// Whether the rest of the body will not be read: the client must be told, or the connection closed.
    pub fn is_body_left(&self) -> bool {
        self.is_body_left.get()
    }

    /// Whether the carrier looks whether the client has left before it polls the steps.
    pub fn is_client_looked_at_first(&self) -> bool {
        self.client.get() == Client::Watched
    }

    /// Whose request it is, if a proxy has said that; 0: the connection's.
    pub fn client(&self) -> u64 {
        self.said_client.get()
    }

    /// Whether the carrier watches whether the client leaves.
    pub fn is_client_watched(&self) -> bool {
        self.client.get() != Client::Unwatched
    }

    /// The interim answers since the last call.
    pub fn take_interim(&self) -> Vec<Interim> {
        self.interim
            .take()
            .map_or_else(Vec::new, |waiting| *waiting)
    }
}

/// How many bytes of interim answers may wait for a client that does not read.
pub(crate) const MAX_INTERIM: usize = 128 * 1024;

/// Size of an interim answer in addition to its fields, bytes.
const INTERIM_LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request that waits has one of these. The limit is a size in which the allocator gives memory, without its two
    /// counts.
    #[test]
    fn what_is_kept_of_each_request_is_small() {
        let size = size_of::<RequestState>();
        assert!(size <= 56, "{size}");
    }

    #[test]
    fn a_state_is_used_again_as_new_unless_somebody_has_it_still() {
        let state = RequestState::new();
        state.push_body(b"body");
        state.end_body();
        state.wake_at(7);
        state.leave_body();
        state.work_begins();
        let interim = |bytes: usize| Interim {
            status: StatusCode::EARLY_HINTS,
            fields: Fields::of_script(format!("A: {}\r\n", "x".repeat(bytes)).as_bytes()),
        };
        state.send_interim(interim(1));
        let held = state.clone();
        state.give_back();
        assert!(!Rc::ptr_eq(&RequestState::new(), &held));
        let address = Rc::as_ptr(&held);
        held.give_back();
        let state = RequestState::new();
        assert_eq!(Rc::as_ptr(&state), address);
        assert_eq!((state.wakes_at(), state.is_body_left()), (NEVER, false));
        assert!(!state.is_client_watched() && state.take_interim().is_empty());
        let mut body = RequestBody::new(&state, None);
        assert!(body.poll_data().is_pending() && state.is_body_wanted());
        // If the client does not read, only a limited number of interim answers wait.
        (0..3).for_each(|_| state.send_interim(interim(MAX_INTERIM / 2)));
        assert_eq!(state.take_interim().len(), 1);
    }
}
