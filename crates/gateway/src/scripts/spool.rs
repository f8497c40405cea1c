//! Request bodies: a body is read completely before a worker is requested.
//!
//! A body is stored in memory and, beyond `body_memory`, in a temporary file without a name. So a slow or stalled
//! upload holds no worker, PHP always gets a Content-Length, and a request can be given to a second worker if the
//! first one dies before it began.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, ready},
};

use bytes::Bytes;
use weir_http::RequestBody;
use weir_net::{CloseGuard, FilePart, OpenFile};
use weir_observe::clock;

use crate::connections::client::Client;

/// A complete request body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spooled {
    /// The first bytes.
    memory: Bytes,
    /// The rest of the bytes.
    file: Option<Rc<SpoolFile>>,
    /// Counts the bytes in memory as long as this lives; `None` if there are none.
    _held: Option<Rc<MemoryShare>>,
}

/// Bytes of a body in memory. They are counted until this is dropped.
#[derive(Debug)]
struct MemoryShare {
    bytes: u64,
    space: &'static SpoolSpace,
}

/// A body that is being received.
#[derive(Debug)]
struct Spooler {
    memory: Vec<u8>,
    held: MemoryShare,
    memory_limit: usize,
    /// Bytes that must be written to the file.
    pending: Vec<u8>,
    file: Option<Rc<SpoolFile>>,
    received: u64,
    space: &'static SpoolSpace,
}

/// A temporary file and its share of the spool's space.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: Rc<OpenFile>,
    share: Arc<DiskShare>,
    /// Maximum size of all temporary files together, bytes.
    most: u64,
}

/// A file's part of the spool's space. The file holds it until it is closed: answers may still be sent from it, and threads
/// write to it, when nobody else knows it any more.
#[derive(Debug)]
struct DiskShare {
    bytes: AtomicU64,
    space: &'static SpoolSpace,
}

/// Where temporary files are created, and the total size of all of them.
#[derive(Debug)]
pub(crate) struct SpoolSpace {
    dir: OwnedFd,
    max: u64,
    used: AtomicU64,
    /// Bytes of bodies in memory.
    memory: AtomicU64,
}

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// Larger than `max_body`: 413.
    TooLarge,
    /// The client sent nothing for `body_timeout`: 408.
    TimedOut,
    /// The request's deadline has passed: 408.
    Late,
    /// The body is invalid (a bad chunk): 400.
    Malformed,
    /// The temporary file cannot be written: 503.
    Spool(io::Error),
}

/// How large a body may be, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    pub(crate) max: u64,
    /// In memory; the rest goes to a temporary file.
    pub(crate) memory: usize,
}

/// Reads `body` to its end, by `deadline` ([`clock::now`]).
///
/// # Errors
///
/// See [`BodyError`]. Nothing of the body is kept then.
pub(crate) async fn spool(
    mut body: RequestBody,
    client: &Client,
    limits: BodyLimits,
    deadline: u64,
    space: &'static SpoolSpace,
) -> Result<Spooled, BodyError> {
    let announced = body.length();
    if announced.is_some_and(|length| length > limits.max) {
        return Err(BodyError::TooLarge);
    }
    let mut spooler = Spooler::new(announced.unwrap_or(0), limits.memory, space);
    while let Some(data) = next_data(&mut body, client, deadline).await? {
        spooler.push(&data);
        if spooler.received > limits.max {
            return Err(BodyError::TooLarge);
        }
        let settled = spooler.settle(FILE_BLOCK).await;
        settled.map_err(BodyError::Spool)?;
    }
    spooler.finish().await.map_err(BodyError::Spool)
}

impl SpoolSpace {
    /// Memory that the bodies of requests use, bytes.
    pub(crate) fn in_memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    /// Disk space that temporary files use now, bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

impl Spooler {
    /// Starts a body of `announced` bytes, if its sender has said that.
    fn new(announced: u64, memory_limit: usize, space: &'static SpoolSpace) -> Spooler {
        Spooler {
            memory: Vec::with_capacity(announced.min(memory_limit as u64) as usize),
            held: MemoryShare { bytes: 0, space },
            memory_limit,
            pending: Vec::new(),
            file: None,
            received: 0,
            space,
        }
    }

    /// Adds the next piece. Bytes beyond the memory limit wait for [`Self::settle`].
    fn push(&mut self, data: &[u8]) {
        self.received += data.len() as u64;
        let room = match self.file.is_none() && self.pending.is_empty() {
            true => self.memory_limit - self.memory.len(),
            false => 0,
        };
        let (near, far) = data.split_at(data.len().min(room));
        self.memory.extend_from_slice(near);
        self.held.add(near.len() as u64);
        self.pending.extend_from_slice(far);
    }

    /// Creates the file if there is none and bytes wait for it, and writes them if they are at least so many.
    ///
    /// # Errors
    ///
    /// As [`SpoolFile::create`] and [`SpoolFile::append`].
    async fn settle(&mut self, least: usize) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = SpoolFile::create(self.space, self.space.max).await?;
                self.file.insert(Rc::new(file))
            }
        };
        if self.pending.len() >= least {
            file.append(&Arc::new(std::mem::take(&mut self.pending)))
                .await?;
        }
        Ok(())
    }

    /// Ends the body: there is no more data.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    async fn finish(mut self) -> io::Result<Spooled> {
        self.settle(1).await?;
        Ok(Spooled {
            _held: (!self.memory.is_empty()).then(|| Rc::new(self.held)),
            memory: self.memory.into(),
            file: self.file,
        })
    }
}

impl MemoryShare {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.space.memory.fetch_add(bytes, Relaxed);
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.space.memory.fetch_sub(self.bytes, Relaxed);
    }
}

impl Spooled {
    /// Total size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |file| file.len())
    }

    pub(crate) fn memory(&self) -> &Bytes {
        &self.memory
    }

    /// The part that is in a file, to be read.
    pub(crate) fn file_part(&self) -> Option<FilePart> {
        let file = self.file.as_ref()?;
        Some(FilePart::new(file.file().clone(), 0, file.len()))
    }
}

impl SpoolFile {
    /// A new, empty file for a response. Responses use at most half of the space, because they can wait for their clients, and
    /// slow clients of one site must not keep the requests of others out.
    ///
    /// # Errors
    ///
    /// As [`SpoolFile::create`].
    pub(crate) async fn for_response(space: &'static SpoolSpace) -> io::Result<SpoolFile> {
        SpoolFile::create(space, space.max / 2).await
    }

    /// A new, empty file. It does not grow if all files together have `most` bytes.
    ///
    /// # Errors
    ///
    /// The error of open(2): the folder is missing or not writable, or descriptors are used up.
    async fn create(space: &'static SpoolSpace, most: u64) -> io::Result<SpoolFile> {
        let fd = off_the_reactor(|| weir_sys::file::temp_file(space.dir.as_fd())).await?;
        let share = Arc::new(DiskShare {
            bytes: AtomicU64::new(0),
            space,
        });
        Ok(SpoolFile {
            file: Rc::new(OpenFile::guarded(fd, share.clone())),
            share,
            most,
        })
    }

    /// Appends bytes. A thread borrows them meanwhile.
    ///
    /// # Errors
    ///
    /// `StorageFull` if the disk or the spool is full; otherwise the error of write(2).
    pub(crate) async fn append(&self, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        let length = bytes.len() as u64;
        // The size is counted before the write, because a failed write may have written a part.
        self.share.add(length, self.most)?;
        let (fd, offset, bytes) = (self.file.for_thread(), self.len(), bytes.clone());
        off_the_reactor(move || write_all_at(fd.as_fd(), &bytes, offset)).await?;
        self.file.grow(length);
        Ok(())
    }

    pub(crate) fn file(&self) -> &Rc<OpenFile> {
        &self.file
    }

    pub(crate) fn len(&self) -> u64 {
        self.file.len()
    }
}

impl SpoolSpace {
    /// Temporary files in the folder `dir`, with a total size of at most `max` bytes.
    pub(crate) fn new(dir: OwnedFd, max: u64) -> SpoolSpace {
        SpoolSpace {
            dir,
            max,
            used: AtomicU64::new(0),
            memory: AtomicU64::new(0),
        }
    }
}

impl DiskShare {
    /// Takes so many bytes more, if all files together then have no more than `most`.
    ///
    /// # Errors
    ///
    /// `StorageFull`.
    fn add(&self, bytes: u64, most: u64) -> io::Result<()> {
        let before = self.space.used.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > most {
            self.space.used.fetch_sub(bytes, Relaxed);
            let text = match most < self.space.max {
                true => "half of max_spool is used, the rest is for requests",
                false => "max_spool is reached",
            };
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        self.bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }
}

impl CloseGuard for DiskShare {}

impl Drop for DiskShare {
    fn drop(&mut self) {
        self.space.used.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
///
/// `StorageFull` if the disk is full; otherwise the error of write(2).
fn write_all_at(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match weir_sys::file::write_at(file, &bytes[written..], offset + written as u64) {
            Ok(0) => return Err(io::ErrorKind::StorageFull.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs `work`, which may wait for the disk, on another thread.
///
/// # Errors
///
/// The error of `work`.
async fn off_the_reactor<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The next piece of the body, by `latest` ([`clock::now`]); `None` at its end. Trailers are read and dropped,
/// because CGI has no place for them.
pub(crate) async fn next_data(
    body: &mut RequestBody,
    client: &Client,
    latest: u64,
) -> Result<Option<Vec<u8>>, BodyError> {
    let silence = clock::deadline(client.conn.timeouts.body);
    let deadline = silence.min(latest);
    std::future::poll_fn(|_| {
        let now = clock::now();
        if now >= latest {
            return Poll::Ready(Err(BodyError::Late));
        }
        if now >= silence {
            return Poll::Ready(Err(BodyError::TimedOut));
        }
        client.wake_at(deadline);
        let data = ready!(body.poll_data());
        client.wake_at(clock::NEVER);
        Poll::Ready(data.map_err(|_| BodyError::Malformed))
    })
    .await
}

/// How many bytes are written to the file at once.
pub(crate) const FILE_BLOCK: usize = 256 * 1024;
