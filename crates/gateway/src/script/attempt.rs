//! One attempt to get a worker to answer: the usual steps of a request for a script.
//!
//! They wait at two points: for a worker, and for the worker's bytes. A request that waits holds only what is here.

use std::task::{Context, Poll, ready};

use weir_config::OnClientLeft;
use weir_fcgi::{
    client,
    nv::Pairs,
    server::{self, RequestDecoder},
};
use weir_http::Interim;
use weir_pool::{RequestId, ServerId, ShedReason};

use super::{Started, facts, odd};
use crate::{
    cgi::{self, Head},
    clock::{self, NEVER},
    conn::{Client, Conn},
    dispatch::{Admitted, Ask, Learner, Lease, PoolHandle, QueuePlace, ServerChoice, Turn},
    fastcgi::{self, Failure, OnDrop, Progress, Run, StderrCopy},
    own_calls::{Asker, Candidate},
    policy,
    pool_log::{Line, Noted},
    record::{OwnedWorker, Record},
    spool::Spooled,
    trace,
    worker_conn::WorkerConn,
};

/// What a worker is to do. `put_params` appends the PARAMS records of the request with the given id.
pub(crate) struct Job<'r, P: Fn(&Record, u16, &mut Vec<u8>)> {
    pub(crate) client: &'r Client,
    pub(crate) pool: &'static PoolHandle,
    pub(crate) body: Option<&'r Spooled>,
    pub(crate) put_params: P,
}

/// One attempt.
pub(crate) enum Attempt {
    /// In the pool's queue.
    Queued(Queued),
    /// It has the right to a worker.
    Lent(Lease),
    /// The worker has the request.
    AtWorker(AtWorker),
    /// It gets no worker, or the attempt has ended.
    Over(ShedReason),
}

pub(crate) struct Queued {
    place: QueuePlace,
    /// Set if the client may be a worker: a call of a worker's own script needs a worker while another worker waits for
    /// it.
    caller: Option<Candidate>,
    turn: Option<Turn>,
    learner: Option<Learner>,
}

pub(crate) struct AtWorker {
    pub(super) run: Run,
    reading: Reading,
    pub(super) server: Option<ServerId>,
    stderr: Option<StderrCopy>,
}

/// How an attempt ended.
pub(crate) enum Ended {
    Started(Started),
    /// The request gets no worker.
    NoWorker(ShedReason),
    /// A connection to the worker has to be made.
    NoConnection(Lease),
    /// The worker gave no usable head.
    NoHead(AtWorker, NoHead),
}

impl Attempt {
    /// Asks the pool for a worker.
    pub(super) fn new(
        record: &mut Record,
        client: &Client,
        pool: &'static PoolHandle,
        (turn, learner): (Option<Turn>, Option<Learner>),
    ) -> Attempt {
        let ask = Ask {
            id: RequestId(record.id),
            home: client.conn.home,
            deadline: record.policy.deadline,
            priority: record.policy.priority,
            client: record.policy.client,
            session: policy::session(record, pool),
            choice: choice(record, pool),
        };
        client.watch_client();
        let mut wait = record.wait;
        let admitted = pool.admit(&ask, &mut wait);
        record.wait = wait;
        match admitted {
            Admitted::Lent(mut lease) => {
                (lease.turn, lease.learner) = (turn, learner);
                Attempt::Lent(lease)
            }
            Admitted::Shed(reason) => Attempt::Over(reason),
            Admitted::Waits(place) => {
                let looks = record.params.is_none() && pool.has_workers();
                let caller = looks.then(|| candidate(record, &client.conn));
                Attempt::Queued(Queued {
                    place,
                    caller: caller.flatten(),
                    turn,
                    learner,
                })
            }
        }
    }

    /// Gives the request to the lent worker.
    pub(super) fn at_worker<P: Fn(&Record, u16, &mut Vec<u8>)>(
        record: &mut Record,
        job: &Job<'_, P>,
        lease: Lease,
        worker: WorkerConn,
    ) -> Attempt {
        record.worker = lease.worker();
        let server = lease.server();
        let mut run = send(record, job, (lease, worker));
        let stderr = record.params.is_some().then(|| run.copy_stderr());
        Attempt::AtWorker(AtWorker {
            run,
            reading: Reading::default(),
            server,
            stderr,
        })
    }

    /// Ready when the attempt has ended.
    pub(super) fn poll<P: Fn(&Record, u16, &mut Vec<u8>)>(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        job: &Job<'_, P>,
    ) -> Poll<Ended> {
        loop {
            match self {
                Attempt::Queued(queued) => {
                    let caller = queued.caller.as_ref();
                    let lease = ready!(queued.place.poll(cx, &mut record.wait, caller));
                    let (turn, learner) = (queued.turn.take(), queued.learner);
                    *self = match lease {
                        Ok(mut lease) => {
                            (lease.turn, lease.learner) = (turn, learner);
                            Attempt::Lent(lease)
                        }
                        Err(reason) => Attempt::Over(reason),
                    };
                }
                Attempt::Lent(_) => {
                    let Attempt::Lent(mut lease) = self.end() else {
                        continue;
                    };
                    lease.site = record.site;
                    match lease.reach(job.client.conn.home, &choice(record, job.pool)) {
                        Some(worker) => *self = Attempt::at_worker(record, job, lease, worker),
                        None => return Poll::Ready(Ended::NoConnection(lease)),
                    }
                }
                Attempt::AtWorker(asked) => {
                    let of = (&*record, job.client, job.pool);
                    let head = ready!(asked.reading.poll_head(cx, &mut asked.run, of));
                    record.first_byte = asked.run.first_byte;
                    let Attempt::AtWorker(mut asked) = self.end() else {
                        continue;
                    };
                    return Poll::Ready(match head {
                        Err(why) => Ended::NoHead(asked, why),
                        Ok(head) => {
                            answers(record, job.pool, &mut asked.run, &head);
                            Ended::Started(Started {
                                run: asked.run,
                                head,
                                output: asked.reading.output,
                                body_at: asked.reading.scanned,
                                stderr: asked.stderr,
                            })
                        }
                    });
                }
                Attempt::Over(reason) => return Poll::Ready(Ended::NoWorker(*reason)),
            }
        }
    }

    fn end(&mut self) -> Attempt {
        std::mem::replace(self, Attempt::Over(ShedReason::NoWorker))
    }
}

/// The request begins to wait, and may be a call of a worker. `None`: it is none.
pub(super) fn candidate(record: &Record, conn: &Conn) -> Option<Candidate> {
    if !conn.source.may_be_worker(record.named) {
        return None;
    }
    let asker = Asker {
        source: conn.source.clone(),
        named: record.named,
    };
    let waker = conn.waker()?;
    Some(record.gateway.may_call(asker, record.id, waker))
}

/// Which servers may get the request.
pub(super) fn choice<'r>(record: &'r Record, pool: &PoolHandle) -> ServerChoice<'r> {
    ServerChoice {
        key: pool.hash_key(record),
        tried: &record.tried,
        certain: record.retries > 0 || !record.head.method.is_idempotent(),
    }
}

/// Gives the request to the lent worker.
fn send<P: Fn(&Record, u16, &mut Vec<u8>)>(
    record: &mut Record,
    job: &Job<'_, P>,
    (mut lease, worker): (Lease, WorkerConn),
) -> Run {
    let (client, body) = (job.client, job.body);
    trace::step!(
        record.id,
        record.head_whole,
        "dispatch",
        "worker={} waited={}us",
        WorkerText(record),
        record.wait.and_then(|wait| wait.waited).unwrap_or(0)
    );
    let (id, mut request) = (worker.next_id(), fastcgi::buffer());
    let keeps = lease.pool.settings.keep_conn;
    client::begin_request(&mut request, id, client.request.role(), keeps);
    (job.put_params)(record, id, &mut request);
    record.dispatched = clock::now();
    record.first_byte = None;
    let asker = client.conn.source.number(record.named);
    lease.begin(&facts(record, body.map_or(0, Spooled::len)), asker);
    client.work_begins();
    note(record, &client.conn, &mut lease, &request);
    let by = (record.id, record.summary());
    let mut run = Run::start((lease, worker), &client.request, by, request, body);
    run.ends_at(record.policy.deadline);
    run.on_drop(match record.policy.on_client_left {
        OnClientLeft::Finish => OnDrop::Finish,
        OnClientLeft::Cancel | OnClientLeft::FinishIfAnswering => OnDrop::Cancel,
    });
    run
}

/// The worker has begun its answer.
fn answers(record: &mut Record, pool: &PoolHandle, run: &mut Run, head: &Head) {
    trace::step!(
        record.id,
        record.head_whole,
        "first byte",
        "status={}",
        head.status.as_u16()
    );
    run.ends_at(NEVER);
    if record.policy.on_client_left == OnClientLeft::FinishIfAnswering {
        run.on_drop(OnDrop::Finish);
    }
    if let Some(noted) = &mut record.noted
        && let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(pool.id))
        && log.wants_headers()
    {
        noted.headers = Some(head.headers.clone());
    }
}

/// Notes what the pool's own log needs of a request that a worker gets.
fn note(record: &mut Record, conn: &Conn, lease: &mut Lease, request: &[u8]) {
    let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(lease.pool.id)) else {
        return;
    };
    if log.is_from_worker() {
        record.noted = None;
        lease.line = Some(Line::new(record, conn));
        return;
    }
    let params = log.wants_params().then(|| params_of(request));
    let noted = Noted {
        params: params.flatten(),
        peer: conn.endpoints.remote_addr().to_owned(),
        ..Noted::default()
    };
    lease.ended = Some(noted.ended.clone());
    record.noted = Some(Box::new(noted));
}

/// The parameters of an encoded request.
fn params_of(mut request: &[u8]) -> Option<Pairs> {
    let mut decoder = RequestDecoder::new(server::Limits::default());
    while let Ok(Some(event)) = decoder.next(&mut request) {
        if let server::Event::Params(params) = event {
            return Some(params);
        }
    }
    None
}

/// Why there is no head.
pub(crate) enum NoHead {
    Failed(Failure),
    Bad(String),
}

/// The beginning of a response.
#[derive(Default)]
struct Reading {
    /// What has arrived and is not an interim response.
    output: Vec<u8>,
    /// How many bytes of it were searched for the end of the head; at the end, where the body begins.
    scanned: usize,
    /// The response has ended.
    ended: bool,
}

impl Reading {
    /// Reads until the response's head is complete, and passes interim responses on. [`Self::scanned`] is then where the body
    /// begins. For a web server in front there is no wrong head, and none that is too long: it gets what there is.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        run: &mut Run,
        (record, client, pool): (&Record, &Client, &PoolHandle),
    ) -> Poll<Result<Head, NoHead>> {
        let limit = pool.settings.max_response_head;
        let in_front = record.params.is_some();
        loop {
            if self.output.is_empty() && !self.ended {
                let read = ready!(run.poll(cx, &mut self.output)).map_err(NoHead::Failed)?;
                self.ended = read == Progress::End;
            }
            // Nearly every head arrives in one piece. Others are looked at when they are whole.
            let parsed = match self.scanned {
                0 => cgi::parse(&self.output),
                _ => cgi::end_of_head(&self.output, &mut self.scanned)
                    .and_then(|end| cgi::parse(&self.output[..end])),
            };
            match parsed {
                Some((head, end)) if in_front || end <= limit => {
                    if head.status.is_informational() && has_interim(pool, in_front) {
                        // The carrier leaves out what its client does not know.
                        client.send_interim(Interim {
                            status: head.status,
                            fields: head.headers,
                        });
                        self.output.drain(..end);
                        self.scanned = 0;
                        continue;
                    }
                    if !in_front {
                        check(record, pool, &head)?;
                    }
                    self.scanned = end;
                    return Poll::Ready(Ok(head));
                }
                None if self.output.len() <= limit && !self.ended => {
                    cgi::end_of_head(&self.output, &mut self.scanned);
                    let read = ready!(run.poll(cx, &mut self.output)).map_err(NoHead::Failed)?;
                    self.ended = read == Progress::End;
                }
                None if in_front && !self.ended => {
                    return Poll::Ready(Ok(self.first_lines()));
                }
                None if self.ended && self.output.len() <= limit => {
                    return Poll::Ready(Err(NoHead::Bad(cut_off(self.output.len()))));
                }
                _ => {
                    run.on_drop(OnDrop::Abort);
                    return Poll::Ready(Err(NoHead::Bad(format!(
                        "the response's head is longer than max_response_head ({limit} bytes)"
                    ))));
                }
            }
        }
    }

    /// What the beginning of a head says whose end is not there. The rest counts as the body.
    fn first_lines(&mut self) -> Head {
        self.scanned = memchr::memrchr(b'\n', &self.output).map_or(0, |newline| newline + 1);
        let lines = [&self.output[..self.scanned], b"\n"].concat();
        cgi::parse(&lines).map_or_else(|| Head::of_capacity(0), |(head, _)| head)
    }
}

/// Whether a head with 1xx is not the last one. A script of PHP that is not booted can send no more than one.
fn has_interim(pool: &PoolHandle, in_front: bool) -> bool {
    !in_front || (pool.settings.php()).is_none_or(|php| php.worker.is_some())
}

/// Whether this can be the head of an answer over HTTP. What has to be left out of it is logged.
fn check(record: &Record, pool: &PoolHandle, head: &Head) -> Result<(), NoHead> {
    if let Some(bad) = &head.bad {
        let message = format!("the response's head is wrong: {bad}");
        return Err(NoHead::Bad(message));
    }
    if let Some(lost) = &head.lost {
        odd(record, pool, lost);
    }
    Ok(())
}

/// What is wrong with a response that has ended after so many bytes of its head.
#[cold]
fn cut_off(bytes: usize) -> String {
    match bytes {
        0 => "the response is empty".into(),
        bytes => format!("the response ended in the middle of its head, after {bytes} bytes"),
    }
}

struct WorkerText<'r>(&'r Record);

impl std::fmt::Display for WorkerText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.worker {
            Some(OwnedWorker::Pid(pid)) => pid.fmt(f),
            Some(OwnedWorker::Server(name)) => f.write_str(name),
            None => f.write_str("-"),
        }
    }
}
