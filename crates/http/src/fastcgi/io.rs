//! The bytes of a connection: the records of the web server, and those that are to be written.

use std::{
    io::IoSlice,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_fcgi::{
    ProtocolError, ProtocolStatus, Role,
    nv::Pairs,
    record::{FCGI_MAX_CONNS, FCGI_MAX_REQS, FCGI_MPXS_CONNS},
    server::{self, Event, Limits, RequestDecoder},
};
use weir_net::{FilePart, Socket};
use weir_observe::clock;

use super::{
    Ending, Front,
    request::{self, Length},
};
use crate::{ConnState, Request, RequestState, buffers};

/// Both directions of a connection.
pub(super) struct Io {
    /// `None` once it is being closed.
    socket: Option<Socket>,
    decoder: RequestDecoder,
    current: Option<Current>,
    /// Records to write; the kernel has the first `written` bytes.
    out: Vec<u8>,
    written: usize,
    /// The connection is closed when everything is written.
    is_last: bool,
}

/// The current request.
struct Current {
    id: u16,
    role: Role,
    keep_conn: bool,
    /// Once its parameters are there, until it begins.
    request: Option<Request>,
    /// Set with the request.
    state: Option<Rc<RequestState>>,
    /// There is a body, and somebody needs it.
    takes_body: bool,
    length: Length,
    /// Until when the first byte of a body of unknown length must have come ([`clock::now`]).
    body_by: u64,
    is_whole: bool,
    /// The record that ends the body has come, and the one that ends a filter's file.
    is_input_ended: bool,
    is_aborted: bool,
}

impl Io {
    pub(super) fn new(socket: Socket) -> Io {
        Io {
            socket: Some(socket),
            decoder: RequestDecoder::new(Limits::default()),
            current: None,
            out: Vec::new(),
            written: 0,
            is_last: false,
        }
    }

    pub(super) fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }

    /// Takes the request whose parameters are there.
    pub(super) fn take_request(&mut self) -> Option<Request> {
        self.current.as_mut()?.request.take()
    }

    /// The FastCGI id of the current request; 0 if there is none.
    pub(super) fn id(&self) -> u16 {
        self.current.as_ref().map_or(0, |current| current.id)
    }

    /// Whether the last record of its input has come: the web server sends no more for this request.
    pub(super) fn is_input_ended(&self) -> bool {
        (self.current.as_ref()).is_some_and(|current| current.is_input_ended)
    }

    /// Whether the current request was read to its end.
    pub(super) fn is_request_whole(&self) -> bool {
        (self.current.as_ref()).is_some_and(|current| current.is_whole)
    }

    pub(super) fn is_aborted(&self) -> bool {
        (self.current.as_ref()).is_some_and(|current| current.is_aborted)
    }

    /// Whether there is no request, nor a part of one.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.decoder.at_record_boundary() && self.out.is_empty()
    }

    /// The state of the current request.
    pub(super) fn request_state(&self) -> Option<&Rc<RequestState>> {
        self.current.as_ref()?.state.as_ref()
    }

    /// Whether the connection ends when everything is written.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether to read more while the steps run: they wait for the body, or have all of it.
    pub(super) fn is_read_on(&self) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        current.is_whole || (current.body()).is_some_and(RequestState::is_body_wanted)
    }

    /// Whether the steps wait for a body that does not arrive: its length is not known, and no byte came for a while.
    /// It then counts as empty.
    pub(super) fn has_no_body(&mut self, state: &ConnState) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        if current.length != (Length::Unknown { begun: false }) || current.is_whole {
            return false;
        }
        if clock::now() < current.body_by {
            state.wake_by(current.body_by);
            return false;
        }
        current.end();
        true
    }

    /// Nobody needs the rest of the body: it is read and dropped.
    pub(super) fn discard_body(&mut self) {
        if let Some(current) = &mut self.current {
            current.takes_body = false;
        }
    }

    /// The buffer for records: append to it.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        &mut self.out
    }

    /// Ends the current request. `keep`: the connection can stay open. Returns whether it does.
    pub(super) fn end_request(&mut self, keep: bool) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let (id, keep_conn) = (current.id, current.keep_conn);
        let keep = keep && !self.is_last;
        if !keep
            && keep_conn
            && let Some(socket) = &self.socket
        {
            // Holds packets back until the end: otherwise a web server that has read the answer could send its next
            // request into the closing connection. Unix sockets have no packets to hold.
            let _ = weir_sys::socket::hold_until_end(socket.as_fd());
        }
        server::end_request(self.out(), id, 0, ProtocolStatus::RequestComplete);
        self.decoder.end_request();
        keep && keep_conn
    }

    /// The kernel has the end of the request: another one may come.
    pub(super) fn next_request(&mut self) {
        let ended = self.current.take();
        if let Some(state) = ended.and_then(|current| current.state) {
            state.give_back();
        }
        self.written = 0;
        buffers::give_back(std::mem::take(&mut self.out));
    }

    /// Ends a request that was aborted before its parameters were there.
    pub(super) fn refuse_aborted(&mut self) {
        if let Some(current) = self.current.as_ref().filter(|current| current.is_aborted) {
            let (id, keep_conn) = (current.id, current.keep_conn);
            self.refuse(id, ProtocolStatus::RequestComplete, keep_conn);
        }
    }

    /// Writes all records. An error is the end of the connection.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        state: &ConnState,
    ) -> Poll<Result<(), Ending>> {
        self.poll_write(cx, state, |socket, cx, bytes| {
            Pin::new(socket).poll_write(cx, bytes)
        })
    }

    /// Writes all records, then the next bytes of `file`, `most` at most. Returns how many of these.
    pub(super) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        state: &ConnState,
        file: &mut FilePart,
        most: u64,
    ) -> Poll<Result<u64, Ending>> {
        ready!(self.poll_write(cx, state, |socket, cx, bytes| {
            socket.poll_send_more(cx, &[IoSlice::new(bytes)])
        }))?;
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(Ending::Lost));
        };
        let sent = file.poll_send(cx, socket, most);
        state.note_write(sent.is_pending(), socket);
        if sent.is_pending() && state.send_overdue(clock::now()) {
            return Poll::Ready(Err(Ending::Lost));
        }
        sent.map_err(|_| Ending::Lost)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        state: &ConnState,
        write: impl Fn(&mut Socket, &mut Context<'_>, &[u8]) -> Poll<std::io::Result<usize>>,
    ) -> Poll<Result<(), Ending>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(Ending::Lost));
        };
        while self.written < self.out.len() {
            let written = write(socket, cx, &self.out[self.written..]);
            state.note_write(written.is_pending(), socket);
            match written {
                Poll::Pending if state.send_overdue(clock::now()) => {
                    return Poll::Ready(Err(Ending::Lost));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => return Poll::Ready(Err(Ending::Lost)),
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads once, and handles the records. `Pending` also while the web server does not read its answers.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        front: &impl Front,
    ) -> Poll<Result<(), Ending>> {
        if self.out.len() - self.written > MAX_UNREAD {
            return Poll::Pending;
        }
        buffers::with_input(|input| {
            let Some(socket) = &mut self.socket else {
                return Poll::Ready(Err(Ending::Lost));
            };
            let mut buffer = ReadBuf::new(input);
            let read = ready!(Pin::new(socket).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Err(Ending::Lost));
            }
            front.state().received();
            let taken = self.take(buffer.filled(), front);
            if self.current.is_none() && self.decoder.at_record_boundary() {
                // A question about weir itself (management record), not a request.
                front.state().set_idle();
            }
            Poll::Ready(taken.map_err(|error| {
                front.refused(StatusCode::BAD_REQUEST, "bad_record", &error.to_string());
                Ending::Lost
            }))
        })
    }

    fn take(&mut self, mut input: &[u8], front: &impl Front) -> Result<(), ProtocolError> {
        while let Some(event) = self.decoder.next(&mut input)? {
            match event {
                Event::Begin {
                    id,
                    role,
                    keep_conn,
                } if role != Role::Filter || front.plays_filters() => {
                    self.current = Some(Current::new(id, role, keep_conn));
                }
                Event::Begin { id, keep_conn, .. } | Event::UnknownRole { id, keep_conn, .. } => {
                    self.refuse(id, ProtocolStatus::UnknownRole, keep_conn);
                }
                Event::Multiplexed { id } => {
                    server::end_request(self.out(), id, 0, ProtocolStatus::CantMultiplex);
                }
                Event::GetValues(names) => self.tell_values(&names, front),
                Event::UnknownType(kind) => server::unknown_type(self.out(), kind),
                event => {
                    if let Some(current) = &mut self.current {
                        current.take(event);
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a request that was not begun.
    fn refuse(&mut self, id: u16, status: ProtocolStatus, keep_conn: bool) {
        server::end_request(self.out(), id, 0, status);
        if self.decoder.active() == Some(id) {
            self.decoder.end_request();
            self.current = None;
        }
        self.is_last |= !keep_conn;
    }

    /// Answers FCGI_GET_VALUES (FastCGI 1.0 §4.1): the maximum of connections and of requests, and that a connection
    /// carries one request at a time.
    fn tell_values(&mut self, names: &Pairs, front: &impl Front) {
        let capacity = front.capacity();
        let (connections, requests) = (
            capacity.connections.to_string(),
            capacity.requests.to_string(),
        );
        let known = [
            (FCGI_MAX_CONNS, connections.as_bytes()),
            (FCGI_MAX_REQS, requests.as_bytes()),
            (FCGI_MPXS_CONNS, b"0"),
        ];
        let asked = |(name, _): &(&[u8], &[u8])| names.iter().any(|(asked, _)| asked == *name);
        let values: Vec<_> = known.into_iter().filter(asked).collect();
        server::get_values_result(self.out(), &values);
    }
}

impl Current {
    fn new(id: u16, role: Role, keep_conn: bool) -> Current {
        Current {
            id,
            role,
            keep_conn,
            request: None,
            state: None,
            takes_body: false,
            length: Length::Unknown { begun: false },
            body_by: clock::NEVER,
            is_whole: false,
            is_input_ended: false,
            is_aborted: false,
        }
    }

    /// Handles an event that belongs to this request.
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Params(params) => {
                let (request, length) = request::described(params, self.role);
                self.takes_body = !request.body.is_none();
                self.is_whole = !self.takes_body;
                self.state = Some(request.state.clone());
                self.request = Some(request);
                self.length = length;
                self.body_by = clock::now() + UNANNOUNCED;
            }
            Event::Stdin(bytes) => self.push(bytes),
            Event::StdinEnd => {
                // A filter's file follows.
                self.is_input_ended = self.role != Role::Filter;
                if !self.is_whole {
                    self.end();
                }
            }
            Event::DataEnd => self.is_input_ended = true,
            Event::Abort => self.is_aborted = true,
            _ => {}
        }
    }

    /// Gives a part of the body to the steps.
    fn push(&mut self, bytes: &[u8]) {
        if self.is_whole {
            // These bytes are beyond the announced length. PHP would not read them either.
            return;
        }
        let wanted = match &mut self.length {
            Length::Announced(missing) => {
                let wanted = bytes
                    .len()
                    .min(usize::try_from(*missing).unwrap_or(usize::MAX));
                *missing -= wanted as u64;
                &bytes[..wanted]
            }
            Length::Unknown { begun } => {
                *begun = true;
                bytes
            }
        };
        if let Some(request) = self.body() {
            request.push_body(wanted);
        }
        if self.length == Length::Announced(0) {
            self.end();
        }
    }

    /// The body is whole.
    fn end(&mut self) {
        self.is_whole = true;
        if let Some(request) = self.body() {
            request.end_body();
        }
    }

    /// Where the body goes; `None` if there is none, or nobody needs it any more.
    fn body(&self) -> Option<&RequestState> {
        self.state.as_deref().filter(|_| self.takes_body)
    }
}

/// If this many bytes of answers wait for the web server, nothing more is read from it.
const MAX_UNREAD: usize = 512 * 1024;

/// How long weir waits for the first byte of a body without a known length, µs. PHP-FPM would not wait at all. A web
/// server that streams a body has sent some of it by then.
const UNANNOUNCED: u64 = 1_000_000;
