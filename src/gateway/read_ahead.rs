//! A response that is read faster than its client takes it, so that a slow client never holds a worker.
//!
//! A task of its own reads the worker into memory (`response_memory`), then into a temporary file
//! (`max_response_file`), and only then makes the worker wait. The client's side takes from memory first, then from
//! the file by sendfile(2). Once the file has been read to its end it is given up and memory serves again.
//!
//! ```text
//! worker ─► pump ─► memory ──────────────► client
//!                └► file (order is kept) ─┘
//! ```

use std::{
    future::poll_fn,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{
    body::{FILE_SLICE, Part, Truncated},
    fastcgi::{Failure, Progress, Run},
    spool::{SpoolFile, SpoolSpace},
};

/// How much of a response is kept for its client.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Bytes in memory.
    pub(crate) memory: usize,
    /// Bytes in a temporary file.
    pub(crate) file: u64,
    pub(crate) space: Arc<SpoolSpace>,
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    memory: Vec<u8>,
    file: Option<Kept>,
    state: State,
    /// The client waits for bytes.
    reader: Option<Waker>,
    /// The pump waits for room.
    writer: Option<Waker>,
}

/// A file and how far the client has taken it.
#[derive(Debug)]
struct Kept {
    file: Arc<SpoolFile>,
    taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// More may come.
    #[default]
    Open,
    /// The response is whole.
    Whole,
    /// The worker failed.
    Cut,
    /// The client has left; the script runs on and its output is thrown away.
    Abandoned,
}

/// How the pump put bytes away.
enum Stored {
    /// They are in memory.
    Memory,
    /// They go to this file.
    File(Arc<SpoolFile>),
    /// There is no room.
    Full,
}

impl ReadAhead {
    /// Reads the rest of `run` in a task of its own. `first` is what has come of the body.
    pub(crate) fn start(mut run: Run, first: Vec<u8>, room: Room) -> ReadAhead {
        let shared = Arc::new(Shared::default());
        shared.lock().memory = first;
        run.detach();
        tokio::spawn(pump(run, shared.clone(), room));
        ReadAhead { shared }
    }

    /// The next piece, at most [`FILE_SLICE`] of a file; none at the end of the response.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Part, Truncated>>> {
        let mut buffer = self.shared.lock();
        if let Some(part) = buffer.take() {
            if let Some(writer) = buffer.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(part)));
        }
        match buffer.state {
            State::Open => {
                buffer.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Whole => Poll::Ready(None),
            State::Cut | State::Abandoned => Poll::Ready(Some(Err(Truncated))),
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut buffer = self.shared.lock();
        if buffer.state == State::Open {
            buffer.state = State::Abandoned;
        }
        buffer.memory = Vec::new();
        buffer.file = None;
        if let Some(writer) = buffer.writer.take() {
            writer.wake();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, state: State) {
        let mut buffer = self.lock();
        if buffer.state == State::Open {
            buffer.state = state;
        }
        if let Some(reader) = buffer.reader.take() {
            reader.wake();
        }
    }
}

impl Buffer {
    fn take(&mut self) -> Option<Part> {
        if !self.memory.is_empty() {
            return Some(Part::Bytes(Bytes::from(std::mem::take(&mut self.memory))));
        }
        let kept = self.file.as_mut()?;
        let len = (kept.file.len() - kept.taken).min(FILE_SLICE);
        if len == 0 {
            return None;
        }
        let part = Part::File {
            file: kept.file.fd().clone(),
            offset: kept.taken,
            len,
        };
        kept.taken += len;
        Some(part)
    }

    /// Puts `bytes` behind what is there.
    fn store(&mut self, bytes: &mut Vec<u8>, room: &Room) -> Stored {
        if let Some(kept) = &self.file {
            if kept.taken < kept.file.len() {
                let fits = kept.file.len() + bytes.len() as u64 <= room.file;
                return if fits {
                    Stored::File(kept.file.clone())
                } else {
                    Stored::Full
                };
            }
            self.file = None;
        }
        // A piece larger than the limit still has to pass once the memory is empty.
        if !self.memory.is_empty() && self.memory.len() + bytes.len() > room.memory {
            return Stored::Full;
        }
        if self.memory.is_empty() {
            std::mem::swap(&mut self.memory, bytes);
        } else {
            self.memory.append(bytes);
        }
        bytes.clear();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Stored::Memory
    }
}

/// Reads the worker until its response ends.
async fn pump(mut run: Run, shared: Arc<Shared>, room: Room) {
    let mut bytes = Vec::new();
    let mut disk = room.file > 0;
    loop {
        let progress = run.read(&mut bytes).await;
        if !bytes.is_empty() {
            keep(&mut bytes, &shared, &room, &mut disk).await;
            bytes.clear();
        }
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::End) => return shared.end(State::Whole),
            Err(failure) => {
                say(&failure);
                return shared.end(State::Cut);
            }
        }
    }
}

/// Keeps `bytes` for the client, waiting for it where there is no room; throws them away where it has left.
async fn keep(bytes: &mut Vec<u8>, shared: &Shared, room: &Room, disk: &mut bool) {
    loop {
        let stored = {
            let mut buffer = shared.lock();
            if buffer.state == State::Abandoned {
                return;
            }
            buffer.store(bytes, room)
        };
        let file = match stored {
            Stored::Memory => return,
            Stored::File(file) => file,
            Stored::Full if *disk && shared.lock().file.is_none() => {
                match SpoolFile::create(&room.space).await {
                    Ok(file) => Arc::new(file),
                    Err(error) => {
                        spool_failed(&error);
                        *disk = false;
                        continue;
                    }
                }
            }
            Stored::Full => {
                wait_for_room(shared).await;
                continue;
            }
        };
        // Kept for the case that the disk refuses them: then they wait for room in memory.
        let spare = bytes.clone();
        match file.append(std::mem::take(bytes)).await {
            Ok(()) => {
                let mut buffer = shared.lock();
                if buffer.state != State::Abandoned {
                    buffer.file.get_or_insert(Kept { file, taken: 0 });
                }
                if let Some(reader) = buffer.reader.take() {
                    reader.wake();
                }
                return;
            }
            Err(error) => {
                spool_failed(&error);
                *disk = false;
                *bytes = spare;
                wait_for_room(shared).await;
            }
        }
    }
}

/// Waits until the client has taken something, or has left.
async fn wait_for_room(shared: &Shared) {
    let mut asked = false;
    poll_fn(|cx| {
        let mut buffer = shared.lock();
        let nothing_to_take = buffer.memory.is_empty();
        if buffer.state == State::Abandoned
            || nothing_to_take && buffer.file.is_none()
            || asked && buffer.writer.is_none()
        {
            return Poll::Ready(());
        }
        asked = true;
        buffer.writer = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

fn spool_failed(error: &io::Error) {
    log::warn!(
        "cannot keep a response in spool_dir: {error}; its worker waits for the client instead"
    );
}

fn say(failure: &Failure) {
    log::error!("a response was cut after its head had been sent: {failure}");
}
