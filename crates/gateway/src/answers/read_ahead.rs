//! Reads a response faster than its client takes it, so that a slow client never holds a worker.
//!
//! A separate task reads the worker's response into memory (`response_memory`), then into a temporary file
//! (`max_response_file`). Only when both are full, the worker has to wait. The client's side takes from memory first,
//! then from the file by sendfile(2). When the file was read to its end, it is closed, and memory is used again.
//!
//! ```text
//! worker ─► pump ─► memory ──────────────► client
//!                ├► file (order is kept) ─┘
//!                └► the cache of pages, if it stores the response: then the pump reads to the end even if the client leaves
//! ```

use std::{
    cell::{RefCell, RefMut},
    future::poll_fn,
    io,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use weir_http::{Part, Stream, Truncated};
use weir_net::FilePart;
use weir_observe::{clock, error_log::tell, seldom::Seldom};

use crate::{
    answers::cache::PageCopy,
    scripts::{
        run::{Failure, OnDrop, Owner, Progress, Run},
        spool::{FILE_BLOCK, SpoolFile, SpoolSpace},
    },
};

/// How much of a response may be stored for its client.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Bytes in memory.
    pub(crate) memory: usize,
    /// Bytes in a temporary file.
    pub(crate) file: u64,
    pub(crate) space: &'static SpoolSpace,
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared(RefCell<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    memory: Vec<u8>,
    file: Option<Kept>,
    state: State,
    /// Set while the client waits for bytes.
    reader: Option<Waker>,
    /// Set while the pump waits for room.
    writer: Option<Waker>,
}

/// A file, and how far the client has read it.
#[derive(Debug)]
struct Kept {
    file: Rc<SpoolFile>,
    taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// More bytes may come.
    #[default]
    Open,
    /// The response is complete.
    Whole,
    /// The worker failed.
    Cut,
    /// The client has left; the script continues and its output is discarded.
    Abandoned,
}

/// Where the pump stored bytes.
enum Stored {
    /// In memory.
    Memory,
    /// The bytes must be written to this file.
    File(Rc<SpoolFile>),
    /// There is no room.
    Full,
}

impl ReadAhead {
    /// Reads the rest of `run` in a separate task. `first` is the part of the body that has arrived; `copy` gets all of
    /// it.
    pub(crate) fn start(
        mut run: Run,
        first: Vec<u8>,
        room: Room,
        copy: Option<Box<PageCopy>>,
    ) -> ReadAhead {
        let shared = Rc::new(Shared::default());
        let copy = copy.and_then(|copy| copy.with(&first));
        shared.buffer().memory = first;
        run.detach();
        tokio::task::spawn_local(pump(run, shared.clone(), room, copy));
        ReadAhead { shared }
    }
}

impl Stream for ReadAhead {
    /// The next part, at most [`FILE_SLICE`] of a file.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        let mut buffer = self.shared.buffer();
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
        let mut buffer = self.shared.buffer();
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
    fn buffer(&self) -> RefMut<'_, Buffer> {
        self.0.borrow_mut()
    }

    fn end(&self, state: State) {
        let mut buffer = self.buffer();
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
        let part = FilePart::new(kept.file.file().clone(), kept.taken, len);
        kept.taken += len;
        Some(Part::File(part))
    }

    /// Whether the client has taken everything that was stored.
    fn is_empty(&self) -> bool {
        let file_left = |kept: &Kept| kept.taken < kept.file.len();
        self.memory.is_empty() && !self.file.as_ref().is_some_and(file_left)
    }

    /// Stores `bytes` after the earlier ones; in a file only if `disk` allows it.
    fn store(&mut self, bytes: &mut Vec<u8>, room: &Room, disk: bool) -> Stored {
        if let Some(kept) = &self.file {
            if kept.taken < kept.file.len() {
                let fits = disk && kept.file.len() + bytes.len() as u64 <= room.file;
                return if fits {
                    Stored::File(kept.file.clone())
                } else {
                    Stored::Full
                };
            }
            self.file = None;
        }
        // When the memory is empty, even a part that is larger than the limit is stored.
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

/// Reads from the worker until its response ends.
async fn pump(mut run: Run, shared: Rc<Shared>, room: Room, mut copy: Option<Box<PageCopy>>) {
    let mut bytes = Vec::new();
    let mut disk = room.file > 0;
    let owner = run.owner();
    loop {
        let Some(progress) = read(&mut run, &mut bytes, &shared, copy.is_some()).await else {
            // The client has left. `run` decides, when it is dropped, what happens to the script.
            return;
        };
        copy = copy.and_then(|copy| copy.with(&bytes));
        if copy.is_some() && shared.buffer().state == State::Abandoned {
            bytes.clear();
        }
        if !bytes.is_empty() {
            let kept = keep(&mut bytes, &shared, &room, &mut disk, &owner);
            match clock::in_time(kept, run.terminate_at()).await {
                Some(true) => {}
                // The client has left; the rest is discarded elsewhere.
                Some(false) if copy.is_none() => return,
                Some(false) => bytes.clear(),
                None => {
                    run.on_drop(OnDrop::Kill);
                    tell!(
                        error,
                        owner.about(),
                        "a response was cut: its worker waited for the client until request_terminate_timeout"
                    );
                    return shared.end(State::Cut);
                }
            }
        }
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::End) => {
                // The next request after the client has the last byte gets the stored response.
                if let Some(copy) = copy {
                    copy.finish();
                }
                return shared.end(State::Whole);
            }
            Err(failure) => {
                tell!(
                    error,
                    owner.about(),
                    "a response was cut after its head had been sent: {failure}"
                );
                return shared.end(State::Cut);
            }
        }
    }
}

/// Reads more; `None` if the client has left meanwhile, unless the response is copied.
async fn read(
    run: &mut Run,
    bytes: &mut Vec<u8>,
    shared: &Shared,
    is_copied: bool,
) -> Option<Result<Progress, Failure>> {
    poll_fn(|cx| {
        let is_stored = shared.buffer().file.is_some();
        while let Poll::Ready(progress) = run.poll(cx, bytes) {
            // One job of another thread for many pieces: the worker has printed more while the last job was done.
            if !is_stored || bytes.len() >= FILE_BLOCK || !matches!(progress, Ok(Progress::More)) {
                return Poll::Ready(Some(progress));
            }
        }
        if !bytes.is_empty() {
            return Poll::Ready(Some(Ok(Progress::More)));
        }
        let mut buffer = shared.buffer();
        if buffer.state == State::Abandoned && !is_copied {
            return Poll::Ready(None);
        }
        buffer.writer = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}

/// Stores `bytes` for the client, and waits for it if there is no room. False: the client has left.
async fn keep(
    bytes: &mut Vec<u8>,
    shared: &Shared,
    room: &Room,
    disk: &mut bool,
    owner: &Owner,
) -> bool {
    loop {
        let stored = {
            let mut buffer = shared.buffer();
            if buffer.state == State::Abandoned {
                return false;
            }
            buffer.store(bytes, room, *disk)
        };
        let file = match stored {
            Stored::Memory => return true,
            Stored::File(file) => file,
            Stored::Full if *disk && shared.buffer().file.is_none() => {
                match SpoolFile::for_response(room.space).await {
                    Ok(file) => Rc::new(file),
                    Err(error) => {
                        spool_failed(owner, &error);
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
        let shared_bytes = Arc::new(std::mem::take(bytes));
        let written = file.append(&shared_bytes).await;
        // If the disk has an error, the bytes wait for room in memory. Otherwise their memory gets the next ones.
        *bytes = Arc::unwrap_or_clone(shared_bytes);
        match written {
            Ok(()) => {
                bytes.clear();
                let mut buffer = shared.buffer();
                if buffer.state != State::Abandoned {
                    buffer.file.get_or_insert(Kept { file, taken: 0 });
                }
                if let Some(reader) = buffer.reader.take() {
                    reader.wake();
                }
                return true;
            }
            Err(error) => {
                spool_failed(owner, &error);
                *disk = false;
            }
        }
    }
}

/// Waits until the client has taken something, or has left.
async fn wait_for_room(shared: &Shared) {
    let mut asked = false;
    poll_fn(|cx| {
        let mut buffer = shared.buffer();
        // If the buffer is empty, the client takes no more bytes, and so does not wake the pump.
        if buffer.state == State::Abandoned || buffer.is_empty() || asked && buffer.writer.is_none()
        {
            return Poll::Ready(());
        }
        asked = true;
        buffer.writer = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

fn spool_failed(owner: &Owner, error: &io::Error) {
    static SAID: Seldom = Seldom::of_connections();
    if let Some(more) = SAID.line() {
        tell!(
            warning,
            owner.about(),
            "cannot write a response to spool_dir: {error}; its worker waits for the client instead{more}"
        );
    }
}

/// The longest part of a file that is given at once, bytes. Bytes stored later come with the next part.
const FILE_SLICE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::fd::OwnedFd, time::Duration};

    /// A client may be slow with the last slice, when the answer is at its end already.
    #[test]
    fn a_file_counts_until_it_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let folder = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
            let space: &'static SpoolSpace = Box::leak(Box::new(SpoolSpace::new(folder, 40)));
            let room = Room {
                memory: 4,
                file: 1_000,
                space,
            };
            let (shared, owner) = (Rc::new(Shared::default()), Owner::default());
            let mut disk = true;
            for piece in ["1234", "56789"] {
                let mut bytes = piece.into();
                assert!(keep(&mut bytes, &shared, &room, &mut disk, &owner).await);
            }
            shared.end(State::Whole);
            let mut reader = ReadAhead { shared };
            let mut parts = Vec::new();
            while let Some(part) = poll_fn(|cx| reader.poll_part(cx)).await {
                parts.push(part.unwrap());
            }
            drop(reader);
            assert_eq!((parts.len(), space.used()), (2, 5));
            parts.pop();
            assert_eq!(space.used(), 0);
        });
    }

    #[test]
    fn what_goes_to_the_disk_is_not_copied_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let folder = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
            let room = Room {
                memory: 4,
                file: 1 << 20,
                space: Box::leak(Box::new(SpoolSpace::new(folder, 2 << 20))),
            };
            let (shared, owner) = (Rc::new(Shared::default()), Owner::default());
            let mut disk = true;
            assert!(keep(&mut b"1234".to_vec(), &shared, &room, &mut disk, &owner).await);
            let mut bytes = vec![b'x'; 100_000];
            let memory = bytes.as_ptr();
            for _ in 0..3 {
                bytes.resize(100_000, b'y');
                assert!(keep(&mut bytes, &shared, &room, &mut disk, &owner).await);
                assert_eq!((bytes.len(), bytes.as_ptr()), (0, memory));
            }
        });
    }

    /// The client takes the last bytes of the file while the disk fails to store the next ones.
    #[test]
    fn a_disk_that_fails_late_leaves_nobody_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let folder = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
            let room = Room {
                memory: 4,
                file: 1_000,
                space: Box::leak(Box::new(SpoolSpace::new(folder, 20))),
            };
            let (shared, owner) = (Rc::new(Shared::default()), Owner::default());
            let mut disk = true;
            for piece in ["1234", "56789"] {
                let mut bytes = piece.into();
                assert!(keep(&mut bytes, &shared, &room, &mut disk, &owner).await);
            }
            // Nothing is written to the disk before the client has taken the bytes in memory.
            let (go, wait) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || wait.recv());
            let mut go = Some(go);
            let mut bytes = b"more than is allowed".to_vec();
            let kept = keep(&mut bytes, &shared, &room, &mut disk, &owner);
            let mut reader = ReadAhead {
                shared: shared.clone(),
            };
            let mut taken = 0;
            let all_taken = poll_fn(|cx| {
                while let Poll::Ready(part) = reader.poll_part(cx) {
                    taken += part.unwrap().unwrap().len();
                    if taken == 29 {
                        return Poll::Ready(());
                    }
                }
                drop(go.take());
                Poll::Pending
            });
            let limit = Duration::from_secs(10);
            tokio::time::timeout(limit, async { tokio::join!(kept, all_taken) })
                .await
                .expect("all is passed on");
            assert!(!disk);
        });
    }
}
