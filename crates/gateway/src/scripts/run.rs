//! One request at one worker, from its first sent byte to the end of its answer, whichever protocol the worker speaks:
//! [`fastcgi`](super::fastcgi) or HTTP ([`proxy`](super::proxy)).
//!
//! A [`Run`] owns the worker's lease and connection. If it is dropped earlier, because the client left, the script is not
//! stopped: a separate task reads and discards the rest. So the worker counts as free only when it really is. Writing and
//! reading are independent, because a script may answer before it has read its whole body.

pub(crate) mod connection;
mod failure;
mod leaving;
mod owner;

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Sleep;
use weir_http::{Interim, RequestState};
use weir_net::Spare;
use weir_observe::error_log::About;
use weir_pool::Finish;

use self::connection::WorkerConn;
pub(crate) use self::{
    failure::Failure,
    owner::{Owner, RequestSummary},
};
use super::{
    fastcgi::{self, cgi::Head},
    proxy,
};
use crate::{
    clock::{self, NEVER},
    dispatch::Lease,
};

/// A request at a worker. The default is one that has ended.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// `None` when the request has ended and the worker was given back.
    live: Option<Live>,
    /// When the worker's first byte arrived ([`clock::now`]).
    pub(crate) first_byte: Option<u64>,
    /// What happens to the script if this is dropped before the request's end.
    on_drop: OnDrop,
}

/// What happens to a script whose response is not needed any more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// The script runs to its end; its output is discarded. weir's own PHP is told that the client has left. This
    /// ends the script at its next output, unless `ignore_user_abort` is set. Other workers may write up to
    /// [`MAX_UNWANTED`].
    #[default]
    Finish,
    /// The script is to end: weir's own PHP is told, and has `read_timeout` for it. For other workers the connection
    /// is closed, which stops PHP at its next output. If weir runs the process, it is replaced.
    Abort,
    /// The script ends now: if weir runs its process, it is replaced as soon as the pool may stop another one
    /// ([`PoolHandle::may_cancel`]). Until then the script may end by itself. For other workers the connection is
    /// closed.
    Cancel,
    /// The process is replaced.
    Kill,
}

/// What a worker has written to its standard error, for a receiver that passes it on. When [`MAX_COPIED_STDERR`]
/// bytes wait to be taken, further bytes are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrCopy(Rc<RefCell<Vec<u8>>>);

impl StderrCopy {
    /// What a worker would have written.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self(Rc::new(RefCell::new(text.to_vec())))
    }
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more to read.
    More,
    /// The response is complete and the worker was given back.
    End,
}

/// What the request and its worker say to each other.
#[derive(Debug)]
enum Live {
    FastCgi(Box<fastcgi::Conversation>),
    Http(Box<proxy::Conversation>),
}

/// What a request at a worker has in any protocol.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) lease: Lease,
    pub(super) watch: Watch,
    /// Lines of the error log have this number.
    pub(super) id: u64,
    pub(super) asked: RequestSummary,
    pub(super) terminate_at: u64,
    /// After this time nobody needs the answer.
    pub(super) late_at: u64,
}

/// A deadline. In the steps of a request, its carrier looks at it; other tasks use their own timer.
#[derive(Debug)]
pub(super) struct Watch {
    /// How long nothing may be written or read, µs; [`NEVER`]: for any time.
    pub(super) silence: u64,
    deadline: u64,
    request: Option<Rc<RequestState>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Run {
    /// A request that is given to a FastCGI worker.
    pub(super) fn over_fastcgi(conversation: fastcgi::Conversation) -> Run {
        Run::of(Live::FastCgi(Box::new(conversation)))
    }

    /// A request that is given to a server that speaks HTTP.
    pub(super) fn over_http(conversation: proxy::Conversation) -> Run {
        Run::of(Live::Http(Box::new(conversation)))
    }

    fn of(live: Live) -> Run {
        Run {
            live: Some(live),
            first_byte: None,
            on_drop: OnDrop::Finish,
        }
    }

    /// The head of an answer over HTTP; interim answers go to `interim`. `None`: the worker speaks FastCGI, and the head is
    /// the beginning of its output.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut dyn FnMut(Interim),
    ) -> Poll<Option<Result<Head, Failure>>> {
        let Some(Live::Http(conversation)) = &mut self.live else {
            return Poll::Ready(None);
        };
        let head = ready!(conversation.poll_head(cx, &mut self.first_byte, interim));
        Poll::Ready(Some(head.map_err(|mut failure| {
            self.failed(&mut failure);
            failure
        })))
    }

    /// Writes what can be written, and appends the script's output to `output`.
    ///
    /// # Errors
    ///
    /// See [`Failure`]. The worker was given back, or given up if its connection cannot be used again.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Progress, Failure>> {
        let Some(live) = &mut self.live else {
            return Poll::Ready(Ok(Progress::End));
        };
        let mut result = match live {
            Live::FastCgi(conversation) => {
                ready!(conversation.poll(cx, output, &mut self.first_byte))
            }
            Live::Http(conversation) => ready!(conversation.poll(cx, output)),
        };
        match &mut result {
            Ok(Progress::More) => {}
            Ok(Progress::End) => {
                if let Some(live) = self.live.take() {
                    live.finish();
                }
            }
            Err(failure) => self.failed(failure),
        }
        Poll::Ready(result)
    }

    /// Gives the worker back, or up, whose answer has failed.
    fn failed(&mut self, failure: &mut Failure) {
        let Some(live) = &self.live else { return };
        let work = live.work();
        if let Failure::Silent { goes_on, .. } = failure {
            let stops = matches!(self.on_drop, OnDrop::Cancel | OnDrop::Kill);
            *goes_on = work.lease.pool.has_workers() && !stops;
        }
        match failure {
            // The client does not wait any more, but the script may be doing useful work. With PHP-FPM behind a web
            // server the script would continue, too. The route's setting for clients that have left applies here as
            // well.
            Failure::Silent { goes_on: true, .. } => {
                if self.on_drop == OnDrop::Abort {
                    self.on_drop = OnDrop::Finish;
                }
                self.leave(work.late_at);
            }
            // The script's answer is not needed any more, but the script is not stuck.
            Failure::Late => {
                self.on_drop = OnDrop::Cancel;
                self.leave(NEVER);
            }
            failure => {
                if let Some(live) = self.live.take() {
                    live.give_up(failure, self.first_byte.is_some());
                }
            }
        }
    }

    /// The connection of a server that has switched to another protocol, and what has come of that.
    pub(super) fn take_tunnel(&mut self) -> Option<(WorkerConn, Vec<u8>)> {
        match self.live.take() {
            Some(Live::Http(conversation)) if conversation.has_switched() => {
                Some(conversation.into_tunnel())
            }
            live => {
                self.live = live;
                None
            }
        }
    }

    /// The rest of an answer over HTTP that is an event stream.
    pub(super) fn take_events(&mut self) -> Option<proxy::events::Events> {
        let owner = self.owner();
        match self.live.take() {
            Some(Live::Http(conversation)) if !conversation.is_sending() => {
                Some(conversation.into_events(owner))
            }
            live => {
                self.live = live;
                None
            }
        }
    }

    /// Like [`Self::poll`].
    ///
    /// # Errors
    ///
    /// Like [`Self::poll`].
    pub(crate) async fn read(&mut self, output: &mut Vec<u8>) -> Result<Progress, Failure> {
        poll_fn(|cx| self.poll(cx, output)).await
    }

    /// From now on the worker's standard error is also copied, besides its lines in the log.
    pub(crate) fn copy_stderr(&mut self) -> StderrCopy {
        let copy = StderrCopy::default();
        if let Some(Live::FastCgi(conversation)) = &mut self.live {
            conversation.copied_stderr = Some(copy.clone());
        }
        copy
    }

    /// When the script reaches `request_terminate_timeout` ([`clock::now`]); never if it has ended.
    pub(crate) fn terminate_at(&self) -> u64 {
        let live = self.live.as_ref();
        live.map_or(NEVER, |live| live.work().terminate_at)
    }

    /// Sets until when ([`clock::now`]) more of the response is needed.
    pub(crate) fn ends_at(&mut self, deadline: u64) {
        if let Some(live) = &mut self.live {
            let work = live.work_mut();
            work.late_at = deadline;
            work.lease.ends_at(work.id, deadline);
        }
    }

    /// The response is a stream: if the client leaves, its script is ended.
    pub(crate) fn streams(&mut self) {
        if self.on_drop != OnDrop::Cancel {
            self.on_drop = OnDrop::Abort;
        }
    }

    /// The answer is invalid, which is the server's fault. False: its request had already ended as an answered one.
    pub(crate) fn blame(&mut self, cause: &str) -> bool {
        match &mut self.live {
            Some(live) => {
                let lease = &mut live.work_mut().lease;
                lease.ended(Finish::Failed, Some(&cause));
                true
            }
            None => false,
        }
    }

    /// Sets what happens to the script if the client leaves.
    pub(crate) fn on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }

    /// From now on this runs in a task without the client's connection.
    pub(crate) fn detach(&mut self) {
        if let Some(live) = &mut self.live {
            live.work_mut().watch.detach();
        }
    }

    /// How log lines name this request, also after its end.
    pub(crate) fn owner(&self) -> Owner {
        let work = self.live.as_ref().map(Live::work);
        Owner(work.map(|work| (work.lease.pool, work.id, work.asked.clone())))
    }
}

impl Live {
    fn work(&self) -> &Work {
        match self {
            Live::FastCgi(conversation) => &conversation.work,
            Live::Http(conversation) => &conversation.work,
        }
    }

    fn work_mut(&mut self) -> &mut Work {
        match self {
            Live::FastCgi(conversation) => &mut conversation.work,
            Live::Http(conversation) => &mut conversation.work,
        }
    }

    /// The answer is complete.
    fn finish(self) {
        match self {
            Live::FastCgi(conversation) => conversation.finish(),
            Live::Http(conversation) => conversation.finish(),
        }
    }

    fn give_up(self, failure: &Failure, answered: bool) {
        match self {
            Live::FastCgi(conversation) => conversation.give_up(failure, answered),
            Live::Http(conversation) => conversation.give_up(failure, answered),
        }
    }

    fn into_lease(self) -> Lease {
        match self {
            Live::FastCgi(conversation) => conversation.work.lease,
            Live::Http(conversation) => conversation.work.lease,
        }
    }
}

impl Work {
    /// A request of this number that gets its worker now.
    pub(super) fn new(
        lease: Lease,
        client: &Rc<RequestState>,
        (id, asked): (u64, RequestSummary),
    ) -> Work {
        let settings = &lease.pool.settings;
        Work {
            watch: Watch::new(settings.read_timeout, client.clone()),
            id,
            asked,
            terminate_at: clock::deadline(settings.request_terminate_timeout),
            late_at: NEVER,
            lease,
        }
    }

    /// Ready when the request's time is over, or at `other`.
    pub(super) fn poll_time(&mut self, cx: &mut Context<'_>, other: u64) -> Poll<Option<Failure>> {
        let ours = self.terminate_at.min(self.late_at);
        ready!(self.watch.poll(cx, ours.min(other)));
        let now = clock::now();
        Poll::Ready(if now >= self.terminate_at {
            Some(Failure::Terminated)
        } else if now >= self.late_at {
            Some(Failure::Late)
        } else if now >= other {
            None
        } else {
            Some(Failure::Silent {
                limit: self.lease.pool.settings.read_timeout,
                goes_on: false,
            })
        })
    }

    /// The subject of log lines.
    pub(super) fn about(&self) -> About<'_> {
        About {
            pool: Some(&self.lease.pool.settings.name),
            request: Some(self.id),
            asked: Some(self.asked.named()),
            ..About::default()
        }
    }
}

impl StderrCopy {
    /// The bytes that arrived since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.take()
    }

    pub(super) fn put(&self, bytes: &[u8]) {
        let mut kept = self.0.borrow_mut();
        let room = MAX_COPIED_STDERR - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.leave(NEVER);
    }
}

impl Watch {
    fn new(silence: Duration, request: Rc<RequestState>) -> Watch {
        let silence = match silence.is_zero() {
            true => NEVER,
            false => silence.as_micros() as u64,
        };
        Watch {
            silence,
            deadline: clock::now().saturating_add(silence),
            request: Some(request),
            sleep: None,
        }
    }

    /// From now on this runs in a task of its own.
    pub(super) fn detach(&mut self) {
        if let Some(request) = self.request.take() {
            request.wake_at(NEVER);
        }
    }

    /// Bytes were written or read: the timeout for silence starts again.
    pub(super) fn moved(&mut self) {
        self.deadline = clock::now().saturating_add(self.silence);
    }

    /// Ready when the silence has lasted too long, or at `other`.
    fn poll(&mut self, cx: &mut Context<'_>, other: u64) -> Poll<()> {
        let deadline = self.deadline.min(other);
        let now = clock::now();
        if now >= deadline {
            return Poll::Ready(());
        }
        if let Some(request) = &self.request {
            request.wake_at(deadline);
            return Poll::Pending;
        }
        if deadline == NEVER {
            return Poll::Pending;
        }
        let until = tokio::time::Instant::now() + Duration::from_micros(deadline - now);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(until))),
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

thread_local! {
    static BUFFERS: Spare<Vec<u8>> = const { Spare::new(64) };
}

/// An empty buffer for texts of a request, with the capacity of an earlier one.
pub(crate) fn buffer() -> Vec<u8> {
    BUFFERS.with(Spare::take).unwrap_or_default()
}

/// Puts a buffer back for [`buffer`], unless it is large.
pub(crate) fn recycle(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        BUFFERS.with(|buffers| buffers.keep(buffer));
    }
}

/// How much of a worker's standard error is kept for a receiver, bytes.
const MAX_COPIED_STDERR: usize = 64 * 1024;

const KEPT_CAPACITY: usize = 16 * 1024;
