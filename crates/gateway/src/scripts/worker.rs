//! A request at a worker, until the head of its answer is there.

use std::task::{Context, Poll, ready};

use http::StatusCode;
use weir_config::OnClientLeft;
use weir_fcgi::{
    client,
    nv::Pairs,
    server::{self, RequestDecoder},
};
use weir_http::Interim;
use weir_http1::Name;
use weir_pool::{Sent, ServerId, ShedReason};

use super::{
    facts,
    failures::{may_run_again, note_retry},
    odd,
    response::Response,
};
use crate::{
    answers::refusal::Refusal,
    clock::{self, NEVER},
    connections::client::{Client, Conn},
    dispatch::{ConnectError, Lease, PoolHandle, ServerChoice},
    exchange::fastcgi_front,
    record::{
        OwnedWorker, Record,
        pool_log::{Line, Noted},
    },
    route::Rules,
    scripts::{
        fastcgi::{
            self,
            cgi::{self, Head},
            params,
        },
        proxy,
        run::{self, Failure, OnDrop, Progress, Run, StderrCopy, connection::WorkerConn},
        spool::Spooled,
    },
    trace,
};

/// Which servers may get the request.
pub(crate) fn choice<'r>(record: &'r Record, pool: &PoolHandle) -> ServerChoice<'r> {
    ServerChoice {
        key: pool.hash_key(record),
        wanted: pool.sticks_to(record),
        tried: &record.tried,
        certain: record.retries > 0 || !record.head.method.is_idempotent(),
    }
}

/// Makes a connection to the worker. `None`: the request's own time is over.
pub(crate) fn connect(
    record: &Record,
    pool: &PoolHandle,
    mut lease: Lease,
    home: u16,
) -> impl Future<Output = (Lease, Option<Result<WorkerConn, ConnectError>>)> + use<> {
    let ServerChoice {
        key,
        wanted,
        certain,
        ..
    } = choice(record, pool);
    let (tried, deadline) = (record.tried.clone(), record.policy.deadline);
    async move {
        let choice = ServerChoice {
            key,
            wanted,
            tried: &tried,
            certain,
        };
        let connected = clock::in_time(lease.connect(home, choice), deadline).await;
        (lease, connected)
    }
}

/// The connection that [`connect`] has made. `None`: another worker is to be asked.
///
/// # Errors
///
/// The answer if no worker can be reached.
pub(crate) fn connected(
    record: &mut Record,
    lease: &Lease,
    connected: Option<Result<WorkerConn, ConnectError>>,
) -> Result<Option<WorkerConn>, Refusal> {
    let pool = lease.pool;
    let error = match connected {
        Some(Ok(worker)) => return Ok(Some(worker)),
        Some(Err(error)) => error,
        None => {
            let message = "the request's `timeout` ended before a server accepted a connection";
            let after = pool.retry_after();
            return Err(Refusal::shed(ShedReason::QueueTimeout, after, message));
        }
    };
    record.worker = lease.worker();
    record.tried.extend(lease.server());
    let message = format!("cannot connect to {}: {}", error.address, error.error);
    // Servers were already tried for as long as `connect_timeout` allows.
    if pool.has_workers()
        && let Some(retry) = may_run_again(record, pool, Sent::Nothing, message.clone())
    {
        note_retry(record, &retry);
        return Ok(None);
    }
    let refusal = Refusal::upstream(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_worker",
        "destination_unavailable",
        message,
    );
    Err(refusal.retry_after(pool.retry_after()))
}

/// A worker that has a request.
pub(crate) struct AtWorker {
    run: Run,
    pool: &'static PoolHandle,
    /// The bytes that have arrived, without interim responses.
    output: Vec<u8>,
    /// How many bytes of it were searched for the end of the head; at the end, where the body begins.
    scanned: usize,
    /// The response has ended.
    ended: bool,
    server: Option<ServerId>,
    stderr: Option<StderrCopy>,
}

/// Why there is no head of an answer.
pub(crate) enum HeadError {
    Failed(Failure),
    /// The worker sent something else.
    Bad(Refusal),
}

impl AtWorker {
    /// Gives the request to the lent worker. Without `rules` its parameters are those of the web server in front.
    pub(crate) fn send(
        record: &mut Record,
        (client, rules, body): (&Client, Option<&Rules>, Option<&Spooled>),
        (mut lease, worker): (Lease, WorkerConn),
    ) -> AtWorker {
        record.worker = lease.worker();
        let (pool, server) = (lease.pool, lease.server());
        trace::step!(
            record.id,
            record.head_whole,
            "dispatch",
            "worker={} waited={}us",
            WorkerText(record),
            record.wait.and_then(|wait| wait.waited).unwrap_or(0)
        );
        let length = body.map(Spooled::len);
        record.dispatched = clock::now();
        record.first_byte = None;
        let asker = client.conn.source.number(record.named);
        lease.begin(&facts(record, length.unwrap_or(0)), asker);
        client.work_begins();
        let by = (record.id, record.summary());
        let mut run = match (rules, pool.settings.http()) {
            (Some(rules), Some(http)) => {
                note(record, &client.conn, &mut lease, &[]);
                let is_websocket = body.is_none() && proxy::head::is_websocket(record);
                let request = proxy::Outgoing {
                    is_websocket,
                    method: &record.head.method,
                    target: proxy::head::target(record),
                    lines: proxy::head::lines(record, &rules.settings, http, is_websocket),
                    body,
                };
                let of = (lease, worker);
                Run::over_http(proxy::Conversation::start(of, &client.request, by, request))
            }
            (rules, _) => {
                let (id, mut request) = (worker.next_id(), run::buffer());
                let keeps = pool.settings.keep_conn;
                client::begin_request(&mut request, id, client.request.role(), keeps);
                match rules {
                    Some(rules) => params::put(record, &rules.settings, id, length, &mut request),
                    None => fastcgi_front::put_params(record, id, &mut request),
                }
                note(record, &client.conn, &mut lease, &request);
                let (of, who) = ((lease, worker), &client.request);
                Run::over_fastcgi(fastcgi::Conversation::start(of, who, by, request, body))
            }
        };
        run.ends_at(record.policy.deadline);
        run.on_drop(match record.policy.on_client_left {
            OnClientLeft::Finish => OnDrop::Finish,
            OnClientLeft::Cancel | OnClientLeft::FinishIfAnswering => OnDrop::Cancel,
        });
        AtWorker {
            stderr: record.params.is_some().then(|| run.copy_stderr()),
            run,
            pool,
            output: Vec::new(),
            scanned: 0,
            ended: false,
            server,
        }
    }

    /// Ready when the head of the answer is there.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        client: &Client,
    ) -> Poll<Result<Response, HeadError>> {
        let head = ready!(self.poll_head(cx, record, client));
        record.first_byte = self.run.first_byte;
        Poll::Ready(match head {
            Ok(mut head) => {
                answers(record, self.pool, &mut self.run, &head);
                if let Some(cookie) = self.pool.sticky_cookie(record, self.server) {
                    // An invalid name would have been refused in the configuration.
                    let _ = head.headers.append(Name::SetCookie, cookie.as_bytes());
                }
                Ok(Response {
                    run: std::mem::take(&mut self.run),
                    head,
                    output: std::mem::take(&mut self.output),
                    body_at: self.scanned,
                    stderr: self.stderr.take(),
                    copy: None,
                })
            }
            Err(error) => {
                record.tried.extend(self.server);
                Err(error)
            }
        })
    }

    /// Reads until the response's head is complete, and passes interim responses on. `scanned` is then where the body
    /// begins. For a web server in front there is no wrong head, and none that is too long: it gets what there is.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        record: &Record,
        client: &Client,
    ) -> Poll<Result<Head, HeadError>> {
        let interim = &mut |interim| client.send_interim(interim);
        if let Some(head) = ready!(self.run.poll_head(cx, interim)) {
            let head = head.map_err(HeadError::Failed)?;
            if let Some(lost) = &head.lost {
                odd(record, self.pool, lost);
            }
            return Poll::Ready(Ok(head));
        }
        let limit = self.pool.settings.max_response_head;
        let in_front = record.params.is_some();
        loop {
            if self.output.is_empty() && !self.ended {
                ready!(self.poll_more(cx))?;
            }
            // Nearly every head arrives in one piece. Other heads are examined when they are complete.
            let parsed = match self.scanned {
                0 => cgi::parse(&self.output),
                _ => cgi::end_of_head(&self.output, &mut self.scanned)
                    .and_then(|end| cgi::parse(&self.output[..end])),
            };
            match parsed {
                Some((head, end)) if in_front || end <= limit => {
                    if head.status.is_informational() && has_interim(self.pool, in_front) {
                        // The carrier leaves the head out if its client's protocol does not have such heads.
                        client.send_interim(Interim {
                            status: head.status,
                            fields: head.headers,
                        });
                        self.output.drain(..end);
                        self.scanned = 0;
                        continue;
                    }
                    if !in_front {
                        if let Some(bad) = &head.bad {
                            let message = format!("the response's head is wrong: {bad}");
                            return Poll::Ready(Err(self.bad(message)));
                        }
                        if let Some(lost) = &head.lost {
                            odd(record, self.pool, lost);
                        }
                    }
                    self.scanned = end;
                    return Poll::Ready(Ok(head));
                }
                None if self.output.len() <= limit && !self.ended => {
                    cgi::end_of_head(&self.output, &mut self.scanned);
                    ready!(self.poll_more(cx))?;
                }
                None if in_front && !self.ended => {
                    return Poll::Ready(Ok(self.first_lines()));
                }
                None if self.ended && self.output.len() <= limit => {
                    let message = cut_off(self.output.len());
                    return Poll::Ready(Err(self.bad(message)));
                }
                _ => {
                    self.run.on_drop(OnDrop::Abort);
                    return Poll::Ready(Err(self.bad(format!(
                        "the response's head is longer than max_response_head ({limit} bytes)"
                    ))));
                }
            }
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HeadError>> {
        let read = ready!(self.run.poll(cx, &mut self.output)).map_err(HeadError::Failed)?;
        self.ended = read == Progress::End;
        Poll::Ready(Ok(()))
    }

    /// The worker has sent bytes that are no head. For a server this counts as a failure.
    #[cold]
    fn bad(&mut self, message: String) -> HeadError {
        if let Some(server) = self.server
            && !self.run.blame(&message)
        {
            self.pool.blame(server, &message);
        }
        HeadError::Bad(Refusal::upstream(
            StatusCode::BAD_GATEWAY,
            "bad_response",
            "http_protocol_error",
            message,
        ))
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

/// The message about a response that has ended within its head, after this many bytes.
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
