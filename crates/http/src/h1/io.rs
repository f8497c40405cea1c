//! The bytes of a connection: received and not yet used, and waiting to be written.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop,
};
use weir_http1::{
    BodyLength, Error, Event, Expect, Limits, Name, RequestHead, Version,
    server::{self, Decoder, ResponseTo},
};
use weir_net::Socket;

use super::{close::Ending, head::take};
use crate::{
    ConnState, Interim, MAX_INTERIM, Request, RequestBody, RequestState,
    buffers::{self, INPUT_SIZE},
    h2::PREFACE,
    turn::Budget,
};

/// Both directions of a connection.
#[derive(Debug)]
pub(super) struct Io {
    /// `None` once it is being closed.
    socket: Option<Socket>,
    decoder: Decoder,
    /// No request is read behind the present one.
    is_last: bool,
    /// Nothing has come but bytes with which HTTP/2 begins.
    may_be_http2: bool,
    /// Bytes that were read; the first `used` of them are used.
    ahead: Vec<u8>,
    used: usize,
    /// The decoder has not seen all of `ahead`.
    has_news: bool,
    /// The socket wakes the connection's task, which is always the same, when something comes.
    is_awaited: bool,
    /// Bytes to be written; the kernel has the first `written` of them.
    out: Vec<u8>,
    written: usize,
}

/// A request whose head is complete.
pub(super) struct Whole {
    pub(super) request: Request,
    pub(super) response_to: ResponseTo,
    pub(super) awaits_consent: bool,
    is_last: bool,
}

/// The client has closed its side of the connection, or the connection is broken.
pub(super) struct Left;

thread_local! {
    /// The head that is being read.
    static HEAD: RefCell<RequestHead> = RefCell::default();
}

impl Io {
    pub(super) fn new(socket: Socket, limits: Limits, may_be_http2: bool) -> Io {
        Io {
            socket: Some(socket),
            decoder: Decoder::new(limits),
            is_last: false,
            may_be_http2,
            ahead: Vec::new(),
            used: 0,
            has_news: false,
            is_awaited: false,
            out: Vec::new(),
            written: 0,
        }
    }

    pub(super) fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }

    pub(super) fn socket(&mut self) -> Option<&mut Socket> {
        self.socket.as_mut()
    }

    /// Whether the request was read to its end.
    pub(super) fn is_request_whole(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether the connection ends with the answer to the present request.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether there is more input than the requests that were answered.
    pub(super) fn has_unread(&self) -> bool {
        !self.decoder.is_done() || !self.unused().is_empty()
    }

    /// The request was answered: the next one may come, or has come.
    pub(super) fn next_request(&mut self) {
        self.decoder.restart();
        self.has_news = !self.unused().is_empty();
    }

    /// Reads the next head. `Pending`: it has not arrived completely.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        state: &ConnState,
    ) -> Poll<Result<Whole, Ending>> {
        loop {
            let whole = match std::mem::take(&mut self.has_news) {
                true => {
                    state.received();
                    self.head_ahead()
                }
                false => {
                    let came = self.poll_read(cx, INPUT_SIZE, |io, came| {
                        state.received();
                        if io.may_be_http2
                            && let Some(begun) = io.look_for_http2(came)
                        {
                            return begun;
                        }
                        if !io.unused().is_empty() {
                            io.keep(came);
                            return io.head_ahead();
                        }
                        let mut input = came;
                        let whole = read_head(&mut io.decoder, &mut input);
                        io.keep(input);
                        whole
                    });
                    match ready!(came) {
                        Ok(whole) => whole,
                        Err(Left) => return Poll::Ready(Err(Ending::Clean)),
                    }
                }
            };
            if let Some(whole) = whole.transpose() {
                self.is_last = whole.as_ref().is_ok_and(|whole| whole.is_last);
                return Poll::Ready(whole);
            }
        }
    }

    /// Compares the first bytes of the connection with the lines with which the preface of HTTP/2 begins. `None`: they are others. What
    /// comes behind them is HTTP/2's to look at.
    fn look_for_http2(&mut self, came: &[u8]) -> Option<Result<Option<Whole>, Ending>> {
        let missing = &PREFACE[self.unused().len()..PREFACE_LINES];
        let most = missing.len().min(came.len());
        self.may_be_http2 = missing[..most] == came[..most];
        if !self.may_be_http2 {
            return None;
        }
        self.keep(came);
        Some(match most == missing.len() {
            true => Err(Ending::Http2),
            false => Ok(None),
        })
    }

    /// Reads a head from the bytes that are kept.
    fn head_ahead(&mut self) -> Result<Option<Whole>, Ending> {
        let rest = self.ahead.len() - self.used;
        let mut input = &self.ahead[self.used..];
        let whole = read_head(&mut self.decoder, &mut input);
        let used = rest - input.len();
        self.take(used);
        whole
    }

    /// Reads more of the body and gives it to the steps. `Ready`: they have something to do.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        request: &RequestState,
        budget: &mut Budget,
    ) -> Poll<Result<(), Left>> {
        loop {
            if budget.bytes == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let (count, has_moved) = if self.unused().is_empty() {
                let came = self.poll_read(cx, INPUT_SIZE, |io, came| {
                    let mut input = came;
                    let has_moved = read_body(&mut io.decoder, &mut input, request);
                    io.keep(input);
                    (came.len(), has_moved)
                });
                match ready!(came) {
                    Ok(read) => read,
                    Err(Left) => return Poll::Ready(Err(Left)),
                }
            } else {
                let rest = self.ahead.len() - self.used;
                let mut input = &self.ahead[self.used..];
                let has_moved = read_body(&mut self.decoder, &mut input, request);
                let used = rest - input.len();
                self.take(used);
                (used, has_moved)
            };
            budget.bytes = budget.bytes.saturating_sub(count);
            if has_moved {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads what the client sends while its request is being processed, and keeps it for later. Beyond [`MAX_AHEAD`]
    /// nothing is read. Returns whether the client has left.
    pub(super) fn client_left(&mut self, cx: &mut Context<'_>) -> bool {
        while self.unused().len() < MAX_AHEAD {
            match self.poll_read(cx, MAX_AHEAD, |io, came| io.keep(came)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Left)) => return true,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// An interim answer. If too many wait for the client, it is dropped, which RFC 9110 §15 allows. A client of HTTP/1.0
    /// knows none (§15.2), and 100 is what [`Self::consent`] sends.
    pub(super) fn put_interim(&mut self, interim: &Interim, to: ResponseTo) {
        let is_known = to.version != Version::Http10 && interim.status != StatusCode::CONTINUE;
        if is_known && self.unwritten().len() + interim.fields.lines().len() <= MAX_INTERIM {
            let status = interim.status.as_u16();
            let mut head = server::response(self.out(), status);
            head.lines().extend_from_slice(interim.fields.lines());
            let _ = head.finish(server::framing(to, status, None, true));
        }
    }

    /// The body of the request is needed. A client that sends it already does not wait for 100 (RFC 9110 §10.1.1).
    pub(super) fn consent(&mut self) {
        if self.unused().is_empty() {
            self.out()
                .extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// The buffer for output: append to it.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        &mut self.out
    }

    /// The bytes in that buffer that the kernel does not have yet.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// The kernel took so many bytes of [`Self::unwritten`].
    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }

    /// Writes all of that buffer.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten().is_empty() {
            let Some(socket) = &mut self.socket else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let unwritten = &self.out[self.written..];
            match ready!(Pin::new(socket).poll_write(cx, unwritten))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.wrote(count),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is in that buffer, then `data`, then `tail`. Any of them may be empty, but not all. `file_follows`:
    /// there is something in the buffer and nothing else, and a file is sent at once after it.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        tail: &[u8],
        file_follows: bool,
    ) -> Poll<io::Result<usize>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let unwritten = &self.out[self.written..];
        if file_follows {
            return socket.poll_send_more(cx, &[IoSlice::new(unwritten)]);
        }
        let socket = Pin::new(socket);
        match (unwritten, data, tail) {
            // send(2) of one piece costs the kernel less than writev(2) of several.
            (one, [], []) | ([], one, []) | ([], [], one) => socket.poll_write(cx, one),
            _ => {
                let slices = [unwritten, data, tail].map(IoSlice::new);
                socket.poll_write_vectored(cx, &slices)
            }
        }
    }

    /// Notes whether a write waits for the client.
    pub(super) fn note_write(&self, waits: bool, state: &ConnState) {
        if let Some(socket) = &self.socket {
            state.note_write(waits, socket);
        }
    }

    /// Takes the bytes that were read and not used: they are not HTTP.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.drain(..std::mem::take(&mut self.used));
        ahead
    }

    /// Gives the output buffer to other connections.
    pub(super) fn give_back(&mut self) {
        self.written = 0;
        buffers::give_back(std::mem::take(&mut self.out));
    }

    /// Something has probably come: the next read does not look for that first.
    pub(super) fn read_first(&mut self) {
        self.is_awaited = false;
    }

    /// Reads from the socket, `most` bytes at most, and gives them to `take`.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnOnce(&mut Io, &[u8]) -> T,
    ) -> Poll<Result<T, Left>> {
        if self.is_awaited && (self.socket.as_ref()).is_some_and(|socket| !socket.may_read()) {
            return Poll::Pending;
        }
        buffers::with_input(|scratch| {
            let Some(socket) = &mut self.socket else {
                return Poll::Ready(Err(Left));
            };
            let mut buffer = ReadBuf::new(&mut scratch[..most]);
            let polled = Pin::new(socket).poll_read(cx, &mut buffer);
            // A task without budget gets `Pending` before the socket knows that it waits.
            self.is_awaited = polled.is_pending() && coop::has_budget_remaining();
            let read = ready!(polled);
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                return Poll::Ready(Err(Left));
            }
            Poll::Ready(Ok(take(self, &scratch[..count])))
        })
    }

    /// The bytes that were read and not used.
    fn unused(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    /// Keeps bytes for later.
    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.used > self.ahead.len() / 2 {
            self.ahead.drain(..self.used);
            self.used = 0;
        }
        self.ahead.extend_from_slice(bytes);
    }

    /// The first so many of these bytes are used.
    fn take(&mut self, count: usize) {
        self.used += count;
        if self.used == self.ahead.len() {
            self.ahead = Vec::new();
            self.used = 0;
        }
    }
}

/// Reads a head. `None`: it is not complete.
fn read_head(decoder: &mut Decoder, input: &mut &[u8]) -> Result<Option<Whole>, Ending> {
    HEAD.with_borrow_mut(|head| {
        let length = match decoder.next(input, head) {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => head.body(),
            // The exchange answers it, so that the log shows the request. The connection ends, because the decoder
            // cannot continue.
            Err(Error::HostMissing | Error::HostRepeated) => BodyLength::NONE,
            Err(error) => return Err(Ending::of(error)),
        };
        let state = RequestState::new();
        let body = match length {
            BodyLength::NONE => {
                // Moves the decoder to the end of the message.
                let _ = decoder.next(input, head);
                RequestBody::none()
            }
            length => {
                let known = match length {
                    BodyLength::Known(length) => Some(length),
                    BodyLength::Chunked | BodyLength::UntilClose => None,
                };
                RequestBody::new(&state, known)
            }
        };
        Ok(Some(Whole {
            response_to: ResponseTo::from(&*head),
            is_last: offers_what_may_follow(head, input),
            awaits_consent: head.expect() == Expect::Continue,
            request: Request {
                head: take(head).map_err(Ending::Refused)?,
                params: None,
                body,
                started: 0,
                state,
            },
        }))
    })
}

/// Whether a request offers another protocol, which it does not get, and what follows it may be of that protocol: the connection
/// ends with the answer. A program in front could believe that the offer was accepted, and pass on bytes that it has not checked.
/// Clients that offer HTTP/2 on every connection go on with HTTP/1, but have sent nothing behind the request. `behind`: what has
/// come with it.
fn offers_what_may_follow(head: &RequestHead, behind: &[u8]) -> bool {
    head.is_upgrade()
        && ((!behind.is_empty() && !head.has_body())
            || (head.fields().tokens(Name::Upgrade))
                .any(|token| !token.eq_ignore_ascii_case(b"h2c")))
}

/// Gives the steps the received part of a body. Returns whether they have something to do.
fn read_body(decoder: &mut Decoder, input: &mut &[u8], request: &RequestState) -> bool {
    HEAD.with_borrow_mut(|head| {
        let mut has_moved = false;
        loop {
            match decoder.next(input, head) {
                Ok(Some(Event::Data(data))) => {
                    request.push_body(data);
                    has_moved = true;
                }
                Ok(Some(Event::End)) => {
                    request.end_body();
                    return true;
                }
                Ok(Some(Event::Head)) | Err(_) => {
                    request.fail_body();
                    return true;
                }
                Ok(None) => return has_moved,
            }
        }
    })
}

/// How many bytes of pipelined requests are read while a request is processed. If a client has sent more, its close
/// is noticed only after that request is answered or has timed out.
const MAX_AHEAD: usize = 16 * 1024;

/// The lines of the preface that no request of HTTP/1 has (RFC 9113 §3.4), bytes.
const PREFACE_LINES: usize = b"PRI * HTTP/2.0\r\n\r\n".len();

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use tokio::{io::AsyncWriteExt, net::UnixStream, runtime::Builder, sync::oneshot};

    use super::*;

    /// tokio gives a task that has used up its budget `Pending` before the socket knows that it waits.
    #[test]
    fn a_task_that_had_no_budget_is_woken_by_what_comes_later() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            let mut io = Io::new(Socket::Unix(here), Limits::default(), false);
            let (tell, told) = oneshot::channel();
            let (mut tell, mut polls) = (Some(tell), 0);
            let reading = poll_fn(move |cx| {
                polls += 1;
                while polls == 1 && coop::has_budget_remaining() {
                    if let Poll::Ready(proceed) = coop::poll_proceed(cx) {
                        proceed.made_progress();
                    }
                }
                let read = io.poll_read(cx, 16, |_, came| came.to_vec());
                if polls == 2 {
                    assert!(read.is_pending(), "nothing was sent");
                    let _ = tell.take().map(|tell| tell.send(()));
                }
                read
            });
            let writing = tokio::spawn(async move {
                told.await.unwrap();
                there.write_all(b"news").await.unwrap();
                there
            });
            let read = tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("it was not woken"),
                read = reading => read,
            };
            assert!(read.is_ok_and(|came| came == b"news"));
            writing.await.unwrap();
        });
    }
}
