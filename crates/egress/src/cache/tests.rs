//! The cache with a virtual clock, and an origin that is a body the test feeds.

use std::{sync::atomic::AtomicU64, sync::atomic::Ordering::Relaxed};

use http::Method;
use weir_config::Scheme;
use weir_observe::clock::NEVER;

use super::{
    super::{
        body::{BodyTimeouts, Guarded, testing::*},
        origin::Origin,
        target::{Form, Target},
    },
    *,
};

mod joined;
mod memory;
mod rules;

/// A cache, and a time that stands still unless it is moved.
struct World {
    cache: Arc<Cache>,
    now: AtomicU64,
    stale_if_error: Duration,
}

type Headers<'a> = &'a [(&'a str, &'a str)];

fn world() -> World {
    World {
        cache: Cache::new(1 << 20, 100 << 10),
        now: AtomicU64::new(1_800_000_000),
        stale_if_error: Duration::ZERO,
    }
}

fn map(headers: Headers<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        map.append(name, value.parse().unwrap());
    }
    map
}

/// An answer of the origin's that is all there.
fn answer(status: u16, headers: Headers<'_>, body: &str) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::bytes(body.to_owned()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    *answer.headers_mut() = map(headers);
    answer
}

/// One that is fed.
fn fed(headers: Headers<'_>, length: Option<u64>) -> (Feed, Response<ResponseBody>) {
    let (feed, body) = feed(length);
    let body = ResponseBody::origin(Guarded::new(body, (), BodyTimeouts::ANY));
    let mut answer = Response::new(body);
    *answer.headers_mut() = map(headers);
    (feed, answer)
}

/// What a caller got.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    body: String,
    how: CacheUse,
}

fn got(status: u16, body: &str, how: CacheUse) -> Got {
    Got {
        status,
        body: body.to_owned(),
        how,
    }
}

async fn read(answer: Response<ResponseBody>, how: CacheUse) -> Got {
    let status = answer.status().as_u16();
    let body = all(answer.into_body()).await.expect("a whole body");
    Got {
        status,
        body: String::from_utf8(body).unwrap(),
        how,
    }
}

impl World {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.now.load(Relaxed))
    }

    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds, Relaxed);
    }

    /// A date this many seconds ago.
    fn ago(&self, seconds: u64) -> String {
        httpdate::fmt_http_date(self.now() - Duration::from_secs(seconds))
    }

    fn look(&self, method: Method, path: &str, headers: Headers<'_>) -> Lookup {
        let target = Target {
            origin: Origin {
                scheme: Scheme::Https,
                host: "api.example".into(),
                port: 443,
            },
            path: path.parse().unwrap(),
            form: Form::Path,
        };
        let asked = CacheRequest {
            target: &target,
            method: &method,
            headers: &map(headers),
            has_body: false,
            set: &[],
            stale_if_error: self.stale_if_error,
        };
        self.cache.look(&asked, self.now())
    }

    /// The call must go to the origin.
    fn ask(&self, method: Method, path: &str, headers: Headers<'_>) -> Asking {
        match self.look(method, path, headers) {
            Lookup::Ask(asking) => asking,
            Lookup::Hit(..) => panic!("{path} is kept"),
            Lookup::Follow(_) => panic!("{path} is on its way"),
            Lookup::Failed(_) => panic!("{path} has failed"),
        }
    }

    /// A GET that goes to the origin, which gives that answer.
    async fn fetch(&self, path: &str, headers: Headers<'_>, answer: Response<ResponseBody>) -> Got {
        let mut asking = self.ask(Method::GET, path, headers);
        asking.prepare(&mut map(headers));
        let (answer, how) = asking.answered(answer, self.now());
        let got = read(answer, how).await;
        self.settle().await;
        got
    }

    /// Lets the tasks that read do so.
    async fn settle(&self) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.cache.store().check();
    }

    /// Bytes that are taken, and answers that are kept.
    fn holds(&self) -> (u64, u64) {
        let now = CacheState::now(&*self.cache);
        (now.bytes, now.answers)
    }

    /// The stored answer to a GET, as a caller gets it.
    fn kept(&self, path: &str, headers: Headers<'_>) -> Option<Response<ResponseBody>> {
        match self.look(Method::GET, path, headers) {
            Lookup::Hit(answer, CacheUse::Hit) => Some(*answer),
            _ => None,
        }
    }

    async fn kept_body(&self, path: &str, headers: Headers<'_>) -> Option<String> {
        let answer = self.kept(path, headers)?;
        Some(read(answer, CacheUse::Hit).await.body)
    }
}

impl Asking {
    /// What the caller gets of an answer that is about what is kept.
    fn answered(
        self,
        answer: Response<ResponseBody>,
        now: SystemTime,
    ) -> (Response<ResponseBody>, CacheUse) {
        match self.outcome(answer, now) {
            Answered::Done(answer, how) => (answer, how),
            Answered::Again(_) => panic!("it is asked again"),
        }
    }
}

fn header<'a>(answer: &'a Response<ResponseBody>, name: &str) -> &'a str {
    answer.headers()[name].to_str().unwrap()
}
