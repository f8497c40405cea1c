//! A connection of QUIC: sends and receives for the state machine of `quinn-proto`.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Context,
    time::Instant,
};

use quinn_proto::{ConnectionHandle, EndpointEvent, Event, Transmit, VarInt};
use tokio::time::Sleep;
use weir_tls::Info;

use super::endpoint::{Inner, Mailbox};

/// A connection. Dropping it closes it.
pub struct Connection {
    endpoint: Rc<Inner>,
    handle: ConnectionHandle,
    mailbox: Rc<Mailbox>,
    proto: quinn_proto::Connection,
    timer: Option<Pin<Box<Sleep>>>,
    timer_at: Option<Instant>,
    /// The packet that the socket did not take.
    unsent: Option<(Transmit, Vec<u8>)>,
    /// Bytes that were sent to an address that is not validated yet; `None`: it is validated.
    unvalidated: Option<u64>,
    /// Events that were not polled yet.
    events: VecDeque<Event>,
    /// Something has come since that was asked.
    has_heard: bool,
    /// The endpoint has forgotten it.
    is_drained: bool,
}

thread_local! {
    /// The packet that is being sent.
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Connection {
    pub(super) fn new(
        endpoint: Rc<Inner>,
        (handle, mailbox): (ConnectionHandle, Rc<Mailbox>),
        proto: quinn_proto::Connection,
        is_validated: bool,
    ) -> Connection {
        Connection {
            endpoint,
            handle,
            mailbox,
            proto,
            timer: None,
            timer_at: None,
            unsent: None,
            unvalidated: (!is_validated).then_some(0),
            events: VecDeque::new(),
            has_heard: false,
            is_drained: false,
        }
    }

    /// The state machine. After a change [`Connection::drive`] is to be called.
    pub fn proto(&mut self) -> &mut quinn_proto::Connection {
        &mut self.proto
    }

    /// Receives and sends what can be received and sent now. Wakes the task of `cx` when there is more to do. True: others should
    /// have their turn, and then it goes on.
    pub fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.mailbox.wakes(cx.waker());
        for _ in 0..ROUNDS {
            let now = Instant::now();
            let mut has_news = false;
            while let Some(event) = self.mailbox.take() {
                self.proto.handle_event(event);
                self.has_heard = true;
            }
            let has_more = self.transmit(cx, now);
            has_news |= self.look_at_timer(cx, now);
            while let Some(event) = self.proto.poll_endpoint_events() {
                self.is_drained |= event.is_drained();
                if let Some(answer) = self.endpoint.tell(self.handle, event) {
                    self.proto.handle_event(answer);
                    has_news = true;
                }
            }
            while let Some(event) = self.proto.poll() {
                self.events.push_back(event);
            }
            if has_more {
                return true;
            }
            if !has_news {
                return false;
            }
        }
        true
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether something has happened that was not asked for.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether anything has come since the last call.
    pub fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.has_heard)
    }

    /// Sends. True: there is more.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        // The client has proved its address: it has answered with keys that were sent there.
        if !self.proto.is_handshaking() {
            self.unvalidated = None;
        }
        if let Some((transmit, bytes)) = self.unsent.take()
            && !self.send(cx, &transmit, &bytes)
        {
            self.unsent = Some((transmit, bytes));
            return false;
        }
        OUT.with_borrow_mut(|out| {
            for _ in 0..SENDS {
                out.clear();
                let segments = match self.unvalidated {
                    // Each is looked at by itself.
                    Some(_) => 1,
                    None => self.endpoint.segments(),
                };
                let Some(transmit) = self.proto.poll_transmit(now, segments, out) else {
                    return false;
                };
                if !self.send(cx, &transmit, out) {
                    self.unsent = Some((transmit, out.clone()));
                    return false;
                }
            }
            true
        })
    }

    /// Sends this. False: not now.
    fn send(&mut self, cx: &Context<'_>, transmit: &Transmit, bytes: &[u8]) -> bool {
        if !self.may_send(bytes.len()) {
            return false;
        }
        let is_sent = self.endpoint.try_send(transmit, bytes);
        match &mut self.unvalidated {
            _ if !is_sent => self.endpoint.wake_when_writable(cx.waker()),
            Some(sent) => *sent += bytes.len() as u64,
            None => {}
        }
        is_sent
    }

    /// An address that is not validated gets at most three times what came from it (RFC 9000 §8.1). quinn would let one datagram more
    /// go, if less than that is left.
    fn may_send(&self, size: usize) -> bool {
        let Some(sent) = self.unvalidated else {
            return true;
        };
        let received = FIRST_DATAGRAM + self.proto.stats().udp_rx.bytes;
        sent + size as u64 <= 3 * received
    }

    /// True: a time has come.
    fn look_at_timer(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(at) = self.proto.poll_timeout() else {
            (self.timer, self.timer_at) = (None, None);
            return false;
        };
        if at <= now {
            self.proto.handle_timeout(now);
            self.timer_at = None;
            return true;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at.into())));
        if self.timer_at.replace(at) != Some(at) {
            timer.as_mut().reset(at.into());
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Whether it has ended, and the client need not be told any more.
    pub fn is_over(&self) -> bool {
        self.is_drained || self.proto.is_drained()
    }

    /// What is known of the connection after its handshake.
    pub fn info(&self) -> Option<Arc<Info>> {
        let data = self.proto.crypto_session().handshake_data()?;
        data.downcast::<Arc<Info>>().ok().map(|info| *info)
    }

    /// The client's address, which may change.
    pub fn remote(&self) -> SocketAddr {
        self.proto.remote_address()
    }

    /// The address that the client connected to, without its port.
    pub fn local(&self) -> Option<IpAddr> {
        self.proto.local_ip()
    }

    /// Closes it with a code of the application (RFC 9114 §8.1). The client is told when it is driven or dropped.
    pub fn close(&mut self, code: u64, why: &'static str) {
        let code = VarInt::from_u64(code).unwrap_or_default();
        self.proto.close(Instant::now(), code, why.into());
    }

    /// Gives up the space of buffers: nothing comes for a while.
    pub fn shrink(&mut self) {
        self.mailbox.shrink();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mailbox.ends();
        if self.is_over() {
            return;
        }
        if !self.proto.is_closed() {
            self.close(NO_ERROR, "");
        }
        OUT.with_borrow_mut(|out| {
            out.clear();
            // If the client does not get this packet, its next packet is answered with a stateless reset.
            if let Some(transmit) = self.proto.poll_transmit(Instant::now(), 1, out)
                && self.may_send(out.len())
            {
                self.endpoint.try_send(&transmit, out);
            }
        });
        self.endpoint.tell(self.handle, EndpointEvent::drained());
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// The least size of a client's first datagram (RFC 9000 §14.1), which quinn does not count with those that come later.
const FIRST_DATAGRAM: u64 = 1200;

/// The code of a connection that is not needed any more (RFC 9114 §8.1).
const NO_ERROR: u64 = 0x100;

/// How often a turn receives and sends, and how many calls of it send.
const ROUNDS: usize = 8;
const SENDS: usize = 8;
