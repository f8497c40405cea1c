//! A body that is compressed while it is sent.
//!
//! Short pieces are compressed on the reactor, longer ones on the threads of [`super::threads`], one piece at a time.
//! When the source has nothing more for now, everything that came is flushed, so that the client has it at once.

use std::{
    cell::Cell,
    collections::VecDeque,
    future::Future,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::sync::oneshot;
use weir_http::{
    BodyEnd, BodyParts, Part, Stream, Truncated,
    compress::{Encoder, Failed, Op},
};
use weir_net::Opened;
use weir_observe::error_log::tell;

use super::{
    IN_PLACE, Whose, read_file,
    threads::{Compressors, Reserved},
};

/// The compressed body.
#[derive(Debug)]
pub(super) struct CompressedStream {
    source: Source,
    compressors: &'static Compressors,
    /// `None` while a thread has it, and at the end.
    session: Option<Box<Session>>,
    running: Option<oneshot::Receiver<Done>>,
    /// The parts that are compressed next.
    input: VecDeque<Part>,
    whose: Whose,
}

/// The body that is compressed.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) parts: BodyParts,
    /// Bytes that the body had so far.
    pub(super) counted: Rc<Cell<u64>>,
}

/// The encoder of one answer, with its input and output.
#[derive(Debug)]
struct Session {
    encoder: Encoder,
    output: Vec<u8>,
    /// Bytes that the encoder may hold back.
    held: usize,
    /// Given back with the encoder.
    _reserved: Reserved,
}

/// What a thread gives back.
type Done = (Box<Session>, Result<(), Failed>);

/// What an encoder gets.
enum Input {
    Bytes(Bytes),
    File(Arc<Opened>, u64, usize),
}

impl CompressedStream {
    /// Compresses `source`.
    pub(super) fn new(
        source: Source,
        (encoder, reserved): (Encoder, Reserved),
        compressors: &'static Compressors,
        whose: Whose,
    ) -> CompressedStream {
        CompressedStream {
            source,
            compressors,
            session: Some(Box::new(Session {
                encoder,
                output: Vec::new(),
                held: 0,
                _reserved: reserved,
            })),
            running: None,
            input: VecDeque::new(),
            whose,
        }
    }

    /// The encoder, if no thread has it. Otherwise waits for it.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), Failed>>> {
        if let Some(running) = &mut self.running {
            let done = ready!(Pin::new(running).poll(cx));
            self.running = None;
            // Without a result, the thread's work has panicked.
            let Ok((session, result)) = done else {
                return Poll::Ready(Some(Err(Failed)));
            };
            self.session = Some(session);
            return Poll::Ready(Some(result));
        }
        Poll::Ready(self.session.is_some().then_some(Ok(())))
    }

    /// The next input: its first part, in a size for one piece of work. Files are divided.
    fn next_input(&mut self) -> Option<Input> {
        let (part, rest) = self.input.pop_front()?.split(PIECE as u64);
        if let Some(rest) = rest {
            self.input.push_front(rest);
        }
        match part {
            Part::Bytes(bytes) => Some(Input::Bytes(bytes)),
            Part::File(file) => {
                let (file, offset, length) = file.for_thread();
                Some(Input::File(file, offset, length))
            }
            Part::Trailers(_) => None,
        }
    }

    /// Encodes here or, if that takes long, on a thread.
    fn encode(&mut self, input: Input, op: Op) -> Result<(), Failed> {
        let mut session = self.session.take().ok_or(Failed)?;
        let is_short = match &input {
            Input::Bytes(bytes) => session.held + bytes.len() <= IN_PLACE,
            Input::File(..) => false,
        };
        if is_short {
            let done = session.encode(input, op);
            self.session = Some(session);
            return done;
        }
        let (tell, told) = oneshot::channel();
        self.running = Some(told);
        let job = Box::new(move || {
            // If the client has left, nobody needs the result.
            if !tell.is_closed() {
                let done = session.encode(input, op);
                let _ = tell.send((session, done));
            }
        });
        if let Err(job) = self.compressors.run(job) {
            // The reactor does the work itself. Other requests wait, but this answer has begun.
            job();
        }
        Ok(())
    }

    /// Takes more from the source. `Pending`: it has nothing for now.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Truncated>> {
        let Source { parts, counted } = &mut self.source;
        match ready!(parts.poll_next(cx)) {
            Some(part) => {
                counted.set(counted.get() + part.len());
                self.input.push_back(part);
            }
            None if parts.end() == Some(BodyEnd::Truncated) => return Poll::Ready(Err(Truncated)),
            None => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        loop {
            match ready!(self.poll_session(cx)) {
                Some(Ok(())) => {}
                Some(Err(Failed)) => return Poll::Ready(Some(Err(self.failed()))),
                None => {
                    let trailers = self.source.parts.take_trailers();
                    return Poll::Ready(trailers.map(Part::Trailers).map(Ok));
                }
            }
            if let Some(part) = self
                .session
                .as_mut()
                .and_then(|session| session.take(ENOUGH))
            {
                return Poll::Ready(Some(Ok(part)));
            }
            let encoded = if let Some(input) = self.next_input() {
                self.encode(input, Op::Continue)
            } else if self.source.parts.end().is_some() {
                match self.is_finished() {
                    true => {
                        let last = self.session.take().and_then(|mut session| session.take(1));
                        match last {
                            Some(part) => return Poll::Ready(Some(Ok(part))),
                            None => continue,
                        }
                    }
                    false => self.encode(Input::Bytes(Bytes::new()), Op::Finish),
                }
            } else {
                match self.poll_source(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(truncated)) => return Poll::Ready(Some(Err(truncated))),
                    Poll::Pending => match self.session.as_mut() {
                        Some(session) if session.held > 0 => {
                            self.encode(Input::Bytes(Bytes::new()), Op::Flush)
                        }
                        session => {
                            return match session.and_then(|session| session.take(1)) {
                                Some(part) => Poll::Ready(Some(Ok(part))),
                                None => Poll::Pending,
                            };
                        }
                    },
                }
            };
            if encoded.is_err() {
                return Poll::Ready(Some(Err(self.failed())));
            }
        }
    }

    fn is_finished(&self) -> bool {
        (self.session.as_ref()).is_some_and(|session| session.held == FINISHED)
    }

    /// The encoder failed after the head was sent.
    #[cold]
    fn failed(&mut self) -> Truncated {
        tell!(
            error,
            self.whose.about(),
            "a response was cut, because it could not be compressed"
        );
        Truncated
    }
}

impl Stream for CompressedStream {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        let part = ready!(self.poll(cx));
        if let Some(Err(_)) = part {
            (self.session, self.running) = (None, None);
            self.source.parts.cut();
            self.input.clear();
        }
        Poll::Ready(part)
    }
}

impl Session {
    fn encode(&mut self, input: Input, op: Op) -> Result<(), Failed> {
        let bytes = match input {
            Input::Bytes(bytes) => bytes,
            Input::File(file, offset, length) => read_file(file.as_fd(), offset, length)
                .ok_or(Failed)?
                .into(),
        };
        self.encoder.encode(&bytes, op, &mut self.output)?;
        self.held = match op {
            Op::Continue => self.held + bytes.len(),
            Op::Flush => 0,
            Op::Finish => FINISHED,
        };
        Ok(())
    }

    /// The output, if it has so many bytes.
    fn take(&mut self, least: usize) -> Option<Part> {
        let is_enough = self.output.len() >= least;
        is_enough.then(|| Part::Bytes(std::mem::take(&mut self.output).into()))
    }
}

/// `held` of an encoder that has ended.
const FINISHED: usize = usize::MAX;
/// The longest input of one piece of work, bytes.
const PIECE: usize = 128 << 10;
/// This much output is passed on even if more input is available, bytes.
const ENOUGH: usize = 8 << 10;
