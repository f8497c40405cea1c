//! Sends an answer: the head and the first bytes in one piece, files from the page cache.

use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use weir_http1::{
    BodyEncoder, Method, Name,
    server::{self, ResponseTo},
};
use weir_observe::clock;

use super::{close::Ending, io::Io};
use crate::{
    Answer, Body, BodyEnd, BodyParts, ConnState, Part, Receipt, RequestState, Tunnel, date,
};

/// An answer that is being sent. Its head is in the output buffer.
#[derive(Debug)]
pub(super) struct Sending<R> {
    parts: BodyParts,
    encoder: BodyEncoder,
    /// Sent after the output buffer.
    part: Part,
    /// Follows that.
    tail: Vec<u8>,
    /// A part that was taken before its turn.
    next: Option<Part>,
    /// Freed last: its record is to say how the body ended.
    pub(super) completion: Completion<R>,
}

/// The rest of a request after its answer was sent.
#[derive(Debug)]
pub(super) struct Completion<R> {
    pub(super) request: Rc<RequestState>,
    receipt: R,
    /// What the connection becomes after the head, if it is no longer one of HTTP.
    pub(super) tunnel: Option<Tunnel>,
    /// The connection stays open.
    pub(super) keep: bool,
    /// The client has not said that it sends no more requests.
    pub(super) may_follow: bool,
}

/// Why an answer was not sent.
#[derive(Debug)]
pub(super) enum Cut {
    /// The client has left.
    Left,
    /// The client received nothing for `send_timeout`.
    Stuck,
    /// The body ended too early.
    Truncated,
}

impl<R: Receipt> Sending<R> {
    /// Writes the head of `answer` to `out`. `keep`: the connection can stay open.
    pub(super) fn new(
        answer: Answer<R>,
        (request, state): (ResponseTo, Rc<RequestState>),
        keep: bool,
        out: &mut Vec<u8>,
    ) -> Sending<R> {
        let length = answer.length(request.method == Method::Head || answer.is_bodyless());
        let Answer {
            status,
            headers,
            body,
            receipt,
            ..
        } = answer;
        let status = status.as_u16();
        let mut framing = server::framing(request, status, length, keep);
        let mut head = match headers.phrase() {
            None => server::response(out, status),
            Some(phrase) => server::response_with(out, status, phrase),
        };
        // The carrier says how long the body is, and whether the connection stays open.
        let is_ours = |name| match name {
            Name::ContentLength => headers.length() != framing.length(),
            // It names the other protocol's field (RFC 9110 §7.8).
            Name::Connection => status != 101,
            Name::TransferEncoding => true,
            _ => false,
        };
        let ours = [
            Name::Connection,
            Name::ContentLength,
            Name::TransferEncoding,
        ];
        if ours.iter().any(|name| headers.has(*name) && is_ours(*name)) {
            for (name, value) in headers.iter() {
                if !Name::of(name).is_some_and(|name| ours.contains(&name)) {
                    head.checked_field(name, value);
                }
            }
        } else {
            head.lines().extend_from_slice(headers.lines());
            if headers.has(Name::ContentLength) {
                framing = framing.with_length_said();
            }
        }
        if !headers.has(Name::Date) {
            date::put(head.lines());
        }
        let encoder = head.finish(framing);
        headers.give_back();
        let (parts, tunnel) = match body {
            Body::Tunnel(carry) => (BodyParts::none(), Some(carry)),
            body if encoder.wants_data() => (BodyParts::new(body, length), None),
            _ => (BodyParts::none(), None),
        };
        let completion = Completion {
            request: state,
            receipt,
            tunnel,
            keep: encoder.is_persistent(),
            may_follow: request.is_persistent,
        };
        Sending {
            parts,
            encoder,
            part: NOTHING,
            tail: Vec::new(),
            next: None,
            completion,
        }
    }

    /// The state of the request.
    pub(super) fn request(&self) -> &RequestState {
        &self.completion.request
    }

    /// The state of the request, if the source of the answer waits for more of the request's body.
    pub(super) fn wanted(&self) -> Option<&RequestState> {
        Some(self.request()).filter(|request| request.is_body_wanted())
    }

    /// Sends until the kernel has all of the answer.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Io,
        state: &ConnState,
    ) -> Poll<Result<(), Cut>> {
        loop {
            self.collect(cx, io.out());
            let is_waiting =
                io.unwritten().is_empty() && self.part.len() == 0 && self.tail.is_empty();
            let written = match (is_waiting, self.parts.end()) {
                (true, Some(BodyEnd::Whole)) => {
                    io.note_write(false, state);
                    return Poll::Ready(Ok(()));
                }
                (true, Some(BodyEnd::Truncated)) => return self.truncated(),
                (true, None) => Poll::Pending,
                (false, _) => self.poll_write(cx, io),
            };
            io.note_write(written.is_pending() && !is_waiting, state);
            match written {
                Poll::Ready(Ok(())) => {}
                // The file is shorter than when its length was sent.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return self.truncated();
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Cut::Left)),
                Poll::Pending => {
                    if !is_waiting && state.send_overdue(clock::now()) {
                        return Poll::Ready(Err(match self.parts.end() {
                            Some(BodyEnd::Truncated) => {
                                self.completion.receipt.truncated();
                                Cut::Truncated
                            }
                            _ => Cut::Stuck,
                        }));
                    }
                    // While a worker makes the answer, weir watches whether the client leaves.
                    let is_worked_for =
                        self.parts.end().is_none() && self.request().is_client_watched();
                    return match is_worked_for && io.client_left(cx) {
                        true => Poll::Ready(Err(Cut::Left)),
                        false => Poll::Pending,
                    };
                }
            }
        }
    }

    fn truncated(&mut self) -> Poll<Result<(), Cut>> {
        self.completion.receipt.truncated();
        Poll::Ready(Err(Cut::Truncated))
    }

    /// Takes available parts of the body, until there is enough for a write.
    fn collect(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while self.parts.end().is_none() && self.part.len() == 0 && out.len() < JOINED {
            out.append(&mut self.tail);
            let part = match self.next.take() {
                Some(part) => Poll::Ready(Some(part)),
                None => self.parts.poll_next(cx),
            };
            match part {
                Poll::Ready(Some(part)) => self.put(part, out),
                Poll::Ready(None) => return self.finish(out),
                Poll::Pending => return,
            }
            if !matches!(&self.part, Part::Bytes(bytes) if !bytes.is_empty()) {
                continue;
            }
            // The end of the body goes with its last bytes.
            match self.parts.poll_next(cx) {
                Poll::Ready(Some(part)) => self.next = Some(part),
                Poll::Ready(None) => {
                    let mut tail = std::mem::take(&mut self.tail);
                    self.finish(&mut tail);
                    self.tail = tail;
                }
                Poll::Pending => {}
            }
        }
    }

    /// Prepares a part for being written.
    fn put(&mut self, part: Part, out: &mut Vec<u8>) {
        let Ok((before, behind)) = self.encoder.frame(part.len()) else {
            // The parts were already cut to the length that the encoder knows.
            return;
        };
        out.extend_from_slice(before.as_bytes());
        if let Part::Bytes(bytes) = &part {
            self.completion.receipt.count(bytes.len() as u64);
            if bytes.len() <= JOINED {
                out.extend_from_slice(bytes);
                out.extend_from_slice(behind);
                return;
            }
        }
        self.part = part;
        self.tail.extend_from_slice(behind);
    }

    /// The body has ended: appends what shows that.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.parts.end() != Some(BodyEnd::Whole) {
            return;
        }
        let ended = match self.parts.take_trailers() {
            Some(trailers) => self.encoder.end_with(out, trailers.iter()),
            None => self.encoder.end(out),
        };
        if ended.is_err() {
            self.parts.cut();
        }
    }

    /// Writes the next bytes.
    fn poll_write(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<io::Result<()>> {
        let in_buffer = io.unwritten().len();
        let (data, tail, file_follows) = match &mut self.part {
            Part::File(file) if in_buffer == 0 => {
                let Some(socket) = io.socket() else {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                };
                let sent = ready!(file.poll_send(cx, socket, u64::MAX))?;
                self.completion.receipt.count(sent);
                if file.len() == 0 {
                    self.part = NOTHING;
                    io.out().append(&mut self.tail);
                }
                return Poll::Ready(Ok(()));
            }
            Part::File(_) => (&mut Bytes::new(), &[][..], true),
            Part::Bytes(bytes) => (bytes, &self.tail[..], false),
            Part::Trailers(_) => return Poll::Ready(Ok(())),
        };
        let count = ready!(io.poll_write(cx, data, tail, file_follows))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_buffer = count.min(in_buffer);
        let of_data = (count - of_buffer).min(data.len());
        let of_tail = count - of_buffer - of_data;
        io.wrote(of_buffer);
        data.advance(of_data);
        self.tail.drain(..of_tail);
        Poll::Ready(Ok(()))
    }
}

impl Cut {
    /// How the connection ends.
    pub(super) fn ending(self) -> Ending {
        match self {
            Cut::Left => Ending::Clean,
            Cut::Stuck | Cut::Truncated => Ending::Abort,
        }
    }
}

impl<R: Receipt> Completion<R> {
    /// The kernel has the last byte.
    pub(super) fn end(self) {
        self.receipt.sent();
        self.request.give_back();
    }
}

/// Pieces of up to this many bytes are copied into the output buffer.
const JOINED: usize = 4096;

/// No part.
const NOTHING: Part = Part::Bytes(Bytes::new());
