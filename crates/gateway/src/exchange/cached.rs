//! The steps of a request whose site has a cache: looking, waiting for an equal request, and renewing a page that was sent although it
//! has expired.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Uri};
use tokio::time::{Sleep, sleep};
use weir_cache::flights::{Following, Landing};
use weir_http::{Body, BodyParts, Head, RequestState};
use weir_pool::ShedReason;

use super::{Content, Exchange, Next, Running, Step};
use crate::{
    answers::{
        cache::{self, Becomes, Cached, Fetch, Looked},
        refusal::Refusal,
    },
    clock::{self, NEVER},
    connections::client::Client,
    record::Record,
    scripts::{
        self, Response,
        run::{OnDrop, Progress},
        spool::Spooled,
    },
};

/// A request that waits for an equal one.
pub(super) struct Follow {
    following: Following<()>,
    /// Since when ([`clock::now`]).
    since: u64,
}

impl Follow {
    /// Ready when the other request has an answer, or when this one is asked for itself. `None`: its own time is over.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        client: &Client,
    ) -> Poll<Option<Landing<()>>> {
        let landed = match Pin::new(&mut self.following).poll(cx) {
            Poll::Ready(landing) => Some(landing),
            Poll::Pending if clock::now() >= record.policy.deadline => None,
            Poll::Pending => {
                client.wake_at(record.policy.deadline);
                return Poll::Pending;
            }
        };
        client.wake_at(NEVER);
        let waited = clock::now().saturating_sub(self.since);
        record.rare_mut().earlier.waited += waited;
        Poll::Ready(landed)
    }
}

impl Exchange {
    /// `Upstream`: the cache may have the answer.
    pub(super) fn look(&mut self, cached: &'static Cached) -> Result<Next, Refusal> {
        let body = match &self.body {
            Content::Whole(body) => body.as_deref(),
            Content::Unread(_) => None,
        };
        let looked = cache::look(&mut self.record, cached, body);
        self.looked(looked)
    }

    /// `Page`: a thread has read what the disk had.
    pub(super) fn read_back(&mut self) -> Result<Next, Refusal> {
        match self.rules.and_then(|rules| rules.cache.as_ref()) {
            Some(cached) => {
                let looked = cache::look_again(&mut self.record, cached);
                self.looked(looked)
            }
            None => self.make(),
        }
    }

    /// `Follow`: the equal request has its answer, or has left.
    pub(super) fn landed(&mut self, landing: Option<Landing<()>>) -> Result<Next, Refusal> {
        let Some(landing) = landing else {
            let after = self.pool()?.retry_after();
            let message = "the request's `timeout` ended while it waited for an equal request";
            return Err(Refusal::shed(ShedReason::Deadline, after, message));
        };
        match self.rules.and_then(|rules| rules.cache.as_ref()) {
            Some(cached) => {
                let looked = cache::landed(&mut self.record, cached, landing);
                self.looked(looked)
            }
            None => self.make(),
        }
    }

    fn looked(&mut self, looked: Looked) -> Result<Next, Refusal> {
        match looked {
            Looked::Found(reply) => Ok(self.deliver((reply, None))),
            Looked::Stale(reply, renewal) => {
                if let Some(fetch) = renewal {
                    self.renew(fetch);
                }
                Ok(self.deliver((reply, None)))
            }
            Looked::Read(on_disk) => {
                let reading = tokio::task::spawn_blocking(move || drop(on_disk.read()));
                Ok(Next::Step(Step::Page(Box::pin(async {
                    // If the thread has failed, there is nothing in memory either.
                    let _ = reading.await;
                }))))
            }
            Looked::Follow(following) => {
                self.client.watch_client();
                Ok(Next::Step(Step::Follow(Follow {
                    following,
                    since: clock::now(),
                })))
            }
            Looked::Ask => self.make(),
        }
    }

    /// `Worker`: the cache stores the answer, or has a better one. `None`: the answer goes on.
    pub(super) fn cached(
        &mut self,
        response: &mut Response,
        read: Option<&Progress>,
    ) -> Option<Result<Next, Refusal>> {
        let cached = self.rules?.cache.as_ref()?;
        let body: Option<&Spooled> = match &self.body {
            Content::Whole(body) => body.as_deref(),
            Content::Unread(_) => None,
        };
        match cache::answered(&mut self.record, cached, (response, read), body) {
            Becomes::Sent => None,
            Becomes::Replaced(reply) => {
                response.run.on_drop(OnDrop::Finish);
                Some(Ok(self.deliver((reply, None))))
            }
            Becomes::Again => {
                response.run.on_drop(OnDrop::Finish);
                self.record.asks_script();
                Some(Ok(Next::Step(Step::Ask)))
            }
        }
    }

    /// The request gets an error: the expired page is better.
    pub(super) fn stale_instead(&mut self) -> Option<Next> {
        let cached = self.rules?.cache.as_ref()?;
        let reply = cache::failed(&mut self.record, cached)?;
        Some(self.deliver((reply, None)))
    }

    /// Asks the application for a page, behind all other requests, while the client has the expired one.
    fn renew(&self, fetch: Box<Fetch>) {
        let (record, conn) = (&self.record, &self.client.conn);
        // It is made of a URI.
        let Ok(uri) = Uri::try_from(record.head.path_and_query()) else {
            return;
        };
        let head = Head {
            method: Method::GET,
            version: record.head.version,
            target: uri.into(),
            fields: record.head.fields.clone(),
        };
        let gateway = record.gateway;
        let mut own = Record::new(gateway, conn, (Box::new(head), clock::now())).unlogged();
        own.site = record.site;
        own.host.extend_from_slice(&record.host);
        own.path.extend_from_slice(&record.path);
        own.script = record.script.clone();
        let target = record.rare.as_ref().and_then(|rare| rare.target.clone());
        if target.is_some() {
            own.rare_mut().target = target;
        }
        own.endpoints = record.endpoints.clone();
        own.policy = record.policy;
        (own.policy.deadline, own.policy.priority) = (NEVER, i16::MAX);
        own.pool = record.pool;
        let Some(cached) = self.rules.and_then(|rules| rules.cache.as_ref()) else {
            return;
        };
        cache::renews(&mut own, cached, fetch);
        let exchange = Exchange {
            step: Step::Ask,
            record: own,
            rules: self.rules,
            client: Client {
                conn: conn.clone(),
                request: RequestState::new(),
            },
            body: Content::Whole(None),
        };
        tokio::task::spawn_local(run_to_end(exchange));
    }

    /// The application makes the answer.
    pub(super) fn make(&mut self) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        scripts::refuse_what_crashes(&self.record, pool)?;
        Ok(Next::Step(Step::Ask))
    }
}

/// Takes the steps of a request without a client, and reads its answer to the end.
async fn run_to_end(exchange: Exchange) {
    let state: Rc<RequestState> = exchange.client.request.clone();
    let mut steps = pin!(Running(Some(exchange)));
    let mut timer = Timer::default();
    let answer = poll_fn(|cx| {
        loop {
            if let Poll::Ready(answer) = steps.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            // The carrier of a connection does that for its requests.
            if timer.poll(cx, state.wakes_at()).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
    if matches!(answer.body, Body::Stream(_)) {
        let mut parts = BodyParts::new(answer.body, answer.length);
        while poll_fn(|cx| parts.poll_next(cx)).await.is_some() {}
    }
}

/// Wakes a task at a time that may change.
#[derive(Default)]
struct Timer(Option<(u64, Pin<Box<Sleep>>)>);

impl Timer {
    /// Ready when the time has come ([`clock::now`]).
    fn poll(&mut self, cx: &mut Context<'_>, at: u64) -> Poll<()> {
        if at == NEVER {
            self.0 = None;
            return Poll::Pending;
        }
        if self.0.as_ref().is_none_or(|(set, _)| *set != at) {
            let left = Duration::from_micros(at.saturating_sub(clock::now()));
            self.0 = Some((at, Box::pin(sleep(left))));
        }
        let Some((_, sleep)) = &mut self.0 else {
            return Poll::Pending;
        };
        sleep.as_mut().poll(cx)
    }
}
