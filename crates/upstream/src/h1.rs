//! One HTTP/1.1 connection to a server: sends a request and reads its answer, then the next.
//!
//! ```text
//!          begin              exchange               poll_frame: end
//!   idle ────────► exchange ───────────► answer body ────────────────► idle, or not reusable
//! ```
//! It has no task: the caller that waits for the answer polls the socket. The request's body is
//! sent while the answer is awaited. An answer that arrives before the whole body was sent (`413`,
//! for example) is read; then the user continues with [`Connection::poll_send`]. A request is never
//! repeated here: [`Error::Unsent`] says that this is possible.
//!
//! # What the server may do
//!
//! | what | limit |
//! |---|---|
//! | head of an answer | [`Limits::head`] bytes, [`Limits::fields`] fields |
//! | interim answers (1xx) | four heads, and 256 KB |
//! | chunk extensions, superfluous zeros, trailers | those of [`weir_http1`] |
//! | bytes that are read without a pause | [`TURN`]; then other tasks run |
//!
//! Bytes after an answer, or without a request, end the connection.

mod error;

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    mem,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use weir_http1::{
    BodyEncoder, BodyLength, Error as Malformed, Event, Limits, ParsedFields, ResponseHead,
    client::{self, Decoder},
};
use weir_net::Spare;

pub use self::error::{Cause, Error};

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    pub method: &'r Method,
    /// The target of its request line.
    pub target: &'r [u8],
    /// Its fields, each with the end of its line, without those about the body and without
    /// `Connection: close`: the answer decides whether the connection is kept.
    pub lines: &'r [u8],
    /// The length of its body, if it is known; otherwise the body is sent in chunks.
    pub length: Option<u64>,
    /// `Content-Length: 0` is sent for an empty body, with any method.
    pub says_empty: bool,
}

/// A connection that carries one request at a time.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    decoder: Decoder,
    head: ResponseHead,
    /// Bytes that were read and not used.
    input: BytesMut,
    /// The last read filled the buffer: the answer is long.
    is_bulk: bool,
    /// Bytes read since it last waited.
    turn: usize,
    /// The next frame of the answer's body.
    ahead: Option<Frame<Bytes>>,
    /// The answer is complete except for `ahead`.
    is_over: bool,
    /// Remaining bytes of the answer's body after `ahead`, if it has a length.
    left: Option<u64>,
    /// The request asks for another protocol.
    may_switch: bool,
    max_interim: usize,
    /// Bytes of interim answers that the server may still send.
    interim_left: usize,
    sending: Sending,
}

/// The request that is being sent.
#[derive(Debug, Default)]
struct Sending {
    /// Bytes to be written; the kernel has accepted the first `written` of them.
    out: Vec<u8>,
    written: usize,
    /// A piece of the body that follows them, and what follows the piece.
    piece: Bytes,
    behind: &'static [u8],
    /// `None`: all of the body is in `out` and `piece`.
    body: Option<BodyEncoder>,
    /// The kernel has accepted a part of it.
    is_begun: bool,
    /// The kernel has accepted all of it, or accepts no more.
    is_done: bool,
    /// The error if the server does not accept the rest.
    failed: Option<io::Error>,
}

thread_local! {
    /// All connections of a thread read into this buffer, and copy what they keep.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_SIZE].into_boxed_slice());
    /// Buffers of connections that do not need them now.
    static SPARE: Spare<BytesMut> = const { Spare::new(16) };
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The connection on a new stream.
    pub fn new(stream: S, limits: Limits) -> Connection<S> {
        let max_interim = (limits.head as usize).saturating_mul(4).max(LEAST_INTERIM);
        Connection {
            stream,
            decoder: Decoder::new(limits),
            head: ResponseHead::default(),
            input: BytesMut::new(),
            is_bulk: false,
            turn: 0,
            ahead: None,
            is_over: true,
            left: Some(0),
            may_switch: false,
            max_interim,
            interim_left: 0,
            sending: Sending {
                is_done: true,
                ..Sending::default()
            },
        }
    }

    /// Prepares a request.
    ///
    /// # Errors
    /// The method or the target cannot be written.
    pub fn begin(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Request { method, length, .. } = *request;
        let sending = &mut self.sending;
        sending.out.clear();
        let mut head = client::request(&mut sending.out, method.as_str(), request.target)
            .map_err(|_| Error::Request)?;
        head.lines().extend_from_slice(request.lines);
        let expects = [Method::POST, Method::PUT, Method::PATCH].contains(method);
        if request.says_empty && length == Some(0) && !expects {
            head.checked_field("Content-Length", b"0");
        }
        let body = head.finish(client::framing(method.as_str(), length));
        *sending = Sending {
            out: mem::take(&mut sending.out),
            body: body.wants_data().then_some(body),
            ..Sending::default()
        };
        self.decoder.sent(match *method {
            Method::HEAD => weir_http1::Method::Head,
            _ => weir_http1::Method::Get,
        });
        self.interim_left = self.max_interim;
        self.may_switch = false;
        (self.is_over, self.is_bulk) = (false, false);
        Ok(())
    }

    /// Sends the request, and waits for the head of its answer. `body` is not taken if the answer
    /// arrived before all of it was sent ([`is_sending`](Self::is_sending)).
    ///
    /// # Errors
    /// No answer came. The connection cannot be used again.
    pub async fn exchange<B>(&mut self, body: &mut Option<B>) -> Result<(), Error>
    where
        B: Body<Data = Bytes, Error: Into<error::Cause>> + Unpin,
    {
        poll_fn(|cx| self.poll_exchange(cx, body, &mut |_| {})).await
    }

    /// As [`exchange`](Self::exchange). Heads of interim answers are given to `interim`.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn poll_exchange<B>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Option<B>,
        interim: &mut dyn FnMut(&ResponseHead),
    ) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<error::Cause>> + Unpin,
    {
        if self.is_sending() {
            match self.poll_send(cx, body) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // The origin may have answered before it closed the connection.
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        let head = ready!(self.poll_head(cx, interim));
        Poll::Ready(head.map_err(|error| match self.sending.failed.take() {
            Some(failed) if error.is_end() => Error::Write(failed),
            _ => error,
        }))
    }

    /// Whether something of the answer has come.
    pub fn has_received(&self) -> bool {
        !self.decoder.is_idle() || !self.input.is_empty()
    }

    /// The request that was [begun](Self::begin) asks for another protocol (RFC 9110 §7.8), so the answer may be 101.
    pub fn expect_switch(&mut self) {
        self.may_switch = true;
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream, and the bytes that were read from it and not used: none if the connection
    /// [is reusable](Self::is_reusable); after 101 those of the other protocol.
    pub fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.input)
    }

    /// The head of the last answer.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The answer's body, if all of it is here in one piece and none of it was given yet.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        let is_over = self.is_over;
        let frame = self.ahead.take_if(|frame| is_over && frame.is_data())?;
        frame.into_data().ok()
    }

    /// Whether some of the request is left to be sent.
    pub fn is_sending(&self) -> bool {
        !self.sending.is_done
    }

    /// Continues to send. Ready when the server has all of it, or accepts no more. Then the body is
    /// dropped.
    ///
    /// # Errors
    /// The body ended early, or nothing of the request could be sent.
    pub fn poll_send<B>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Option<B>,
    ) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<error::Cause>> + Unpin,
    {
        let sent = ready!(self.sending.poll(cx, &mut self.stream, body));
        self.sending.is_done = true;
        *body = None;
        Poll::Ready(match sent {
            Ok(()) => Ok(()),
            Err(Error::Write(error)) if !self.sending.is_begun => Err(Error::Unsent(error)),
            Err(Error::Write(error)) => {
                self.sending.failed = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
        })
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut dyn FnMut(&ResponseHead),
    ) -> Poll<Result<(), Error>> {
        loop {
            if !self.input.is_empty() {
                let mut rest = &self.input[..];
                let event = self.decoder.next(&mut rest, &mut self.head)?.is_some();
                let used = self.input.len() - rest.len();
                self.input.advance(used);
                if event {
                    if !self.head.is_interim() {
                        return Poll::Ready(self.answer());
                    }
                    let left = self.interim_left.checked_sub(used);
                    self.interim_left = left.ok_or(Error::Endless)?;
                    interim(&self.head);
                    continue;
                }
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Err(match self.decoder.is_idle() {
                    true => Error::Closed,
                    false => Malformed::Truncated.into(),
                }));
            }
        }
    }

    /// The head of an answer is complete.
    fn answer(&mut self) -> Result<(), Error> {
        if self.head.status() == 101 && !self.may_switch {
            return Err(Error::Switched);
        }
        self.left = match self.head.body() {
            BodyLength::Known(length) => Some(length),
            BodyLength::Chunked | BodyLength::UntilClose => None,
        };
        // An error is reported when the body is read.
        let _ = self.decode();
        Ok(())
    }

    /// The next piece of the answer's body.
    ///
    /// # Errors
    /// The answer ended early, or its framing is malformed.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if let Some(frame) = self.ahead.take() {
                // Decodes ahead, so that the last piece is known to be the last one. The decoder
                // repeats an error.
                let _ = self.decode();
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Err(error) = self.decode() {
                return Poll::Ready(Some(Err(error)));
            }
            if self.ahead.is_some() || self.is_over {
                continue;
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) => match self.decoder.end() {
                    Ok(Some(_)) => self.is_over = true,
                    Ok(None) => return Poll::Ready(Some(Err(Malformed::Truncated.into()))),
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                },
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Whether all of the answer's body was given by [`poll_frame`](Self::poll_frame).
    pub fn is_read(&self) -> bool {
        self.is_over && self.ahead.is_none()
    }

    /// Remaining bytes of the answer's body, if it has a length.
    pub fn left(&self) -> Option<u64> {
        let ahead = self.ahead.as_ref().and_then(Frame::data_ref);
        self.left
            .map(|left| left + ahead.map_or(0, Bytes::len) as u64)
    }

    /// Whether another request can be sent: the request and the answer are complete, both sides
    /// keep the connection open, and no bytes follow the answer.
    pub fn is_reusable(&self) -> bool {
        self.is_read()
            && self.sending.is_done
            && self.sending.failed.is_none()
            && self.input.is_empty()
            && (self.decoder.is_idle() || self.decoder.is_reusable(&self.head))
    }

    /// Checks whether the idle connection is still open, and wakes `cx` when that may have changed.
    /// Bytes without a request end it.
    pub fn is_open(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        Pin::new(&mut self.stream)
            .poll_read(cx, &mut byte)
            .is_pending()
    }

    /// Gives back memory that a connection without a request does not need.
    pub fn shrink(&mut self) {
        let mut input = mem::take(&mut self.input);
        if (1..=SCRATCH_SIZE).contains(&input.capacity()) {
            // If a piece of the last answer is still in use, the next answer gets other memory.
            input.clear();
            SPARE.with(|spare| spare.keep(input));
        }
        if self.sending.out.capacity() > KEPT {
            self.sending.out = Vec::new();
        }
        if self.head.fields().capacity() > KEPT {
            self.head.release();
        }
    }

    /// Takes the next event of the body from what was read.
    fn decode(&mut self) -> Result<(), Error> {
        if self.is_over || self.ahead.is_some() {
            return Ok(());
        }
        let mut rest = &self.input[..];
        let event = self.decoder.next(&mut rest, &mut self.head)?;
        let used = self.input.len() - rest.len();
        match event {
            Some(Event::Data(data)) => {
                let length = data.len();
                // The piece is at the end of the used bytes.
                let mut piece = self.input.split_to(used);
                piece.advance(used - length);
                self.left = self.left.map(|left| left.saturating_sub(length as u64));
                self.ahead = Some(Frame::data(piece.freeze()));
                if self.left == Some(0) {
                    self.is_over = matches!(
                        self.decoder.next(&mut &b""[..], &mut self.head),
                        Ok(Some(Event::End))
                    );
                }
            }
            Some(Event::End | Event::Head) => {
                self.input.advance(used);
                self.is_over = true;
                if let Some(fields) = self.decoder.trailers() {
                    let trailers = headers(fields)?;
                    self.ahead = Some(Frame::trailers(trailers));
                }
            }
            None => self.input.advance(used),
        }
        Ok(())
    }

    /// Reads more; 0: the server sends nothing more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        if self.turn >= TURN {
            self.turn = 0;
            // The task is woken after other tasks have run and sockets were polled.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        let polled = match self.is_bulk {
            true => {
                self.input.reserve(BULK);
                pin!(self.stream.read_buf(&mut self.input)).poll(cx)
            }
            false => SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
                if self.input.capacity() == 0 && !buffer.filled().is_empty() {
                    let spare = SPARE.with(Spare::take);
                    self.input = spare.unwrap_or_else(|| BytesMut::with_capacity(INPUT));
                }
                self.input.extend_from_slice(buffer.filled());
                polled.map_ok(|()| buffer.filled().len())
            }),
        };
        match polled {
            Poll::Ready(Ok(bytes)) => {
                self.turn += bytes;
                self.is_bulk = bytes >= SCRATCH_SIZE;
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Error::Read(error))),
            Poll::Pending => {
                self.turn = 0;
                Poll::Pending
            }
        }
    }
}

impl Sending {
    fn poll<S, B>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
        body: &mut Option<B>,
    ) -> Poll<Result<(), Error>>
    where
        S: AsyncWrite + Unpin,
        B: Body<Data = Bytes, Error: Into<error::Cause>> + Unpin,
    {
        loop {
            // A short body is sent together with its head.
            let has_room = self.piece.is_empty() && self.out.len() - self.written < COPIED;
            if has_room && self.body.is_some() {
                match self.poll_body(cx, body) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            if self.written == self.out.len() && self.piece.is_empty() {
                let flushed = Pin::new(&mut *stream).poll_flush(cx);
                ready!(flushed).map_err(Error::Write)?;
                return match self.body {
                    Some(_) => Poll::Pending,
                    None => Poll::Ready(Ok(())),
                };
            }
            let written = match ready!(self.poll_write(cx, stream)) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                written => written,
            };
            self.advance(written.map_err(Error::Write)?);
        }
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<usize>> {
        let out = &self.out[self.written..];
        let stream = Pin::new(stream);
        match (out.is_empty(), self.piece.is_empty()) {
            (_, true) => stream.poll_write(cx, out),
            (true, _) => stream.poll_write(cx, &self.piece),
            (false, false) => {
                stream.poll_write_vectored(cx, &[IoSlice::new(out), IoSlice::new(&self.piece)])
            }
        }
    }

    fn advance(&mut self, written: usize) {
        self.is_begun = true;
        let of_out = written.min(self.out.len() - self.written);
        self.written += of_out;
        self.piece.advance(written - of_out);
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        if self.piece.is_empty() {
            self.out.extend_from_slice(mem::take(&mut self.behind));
        }
    }

    /// Takes the next piece of the body.
    fn poll_body<B>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Option<B>,
    ) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<error::Cause>> + Unpin,
    {
        let Some(encoder) = &mut self.body else {
            return Poll::Ready(Ok(()));
        };
        let frame = match body {
            Some(body) => ready!(Pin::new(body).poll_frame(cx)).transpose(),
            None => Ok(None),
        };
        let frame = frame.map_err(|error| Error::Body(error.into()))?;
        let wrong = |error| Error::Body(Box::new(error));
        let has_more = match frame.map(Frame::into_data) {
            Some(Ok(data)) if data.len() <= COPIED => {
                encoder.data(&mut self.out, &data).map_err(wrong)?;
                encoder.wants_data()
            }
            Some(Ok(data)) => {
                let (before, behind) = encoder.frame(data.len() as u64).map_err(wrong)?;
                self.out.extend_from_slice(before.as_bytes());
                (self.piece, self.behind) = (data, behind);
                encoder.wants_data()
            }
            Some(Err(frame)) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let fields = trailers.iter();
                let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
                encoder.end_with(&mut self.out, fields).map_err(wrong)?;
                false
            }
            None => {
                encoder.end(&mut self.out).map_err(wrong)?;
                false
            }
        };
        if !has_more {
            self.body = None;
        }
        Poll::Ready(Ok(()))
    }
}

/// Fields as a map.
fn headers(fields: &ParsedFields) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (_, name, value) in fields.iter() {
        let name = HeaderName::from_bytes(name).map_err(|_| Malformed::FieldName)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| Malformed::FieldValue)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// After this many bytes without a pause, a connection lets others run.
const TURN: usize = 64 << 10;

/// Size of the buffer that a thread reads into, bytes.
const SCRATCH_SIZE: usize = 16 << 10;

/// Size of a new buffer, bytes: usual heads and short bodies.
const INPUT: usize = 4 << 10;

/// How much of a long answer is read at once, bytes.
const BULK: usize = 64 << 10;

/// Pieces of a request's body of up to this many bytes are copied into the output buffer.
const COPIED: usize = 16 << 10;

/// A connection without a request keeps buffers of up to this many bytes.
const KEPT: usize = 4 << 10;

/// A server may send interim answers of this many bytes for one request, however small the limit of a head is.
const LEAST_INTERIM: usize = 256 << 10;

#[cfg(test)]
mod tests;
