//! The HTTP server of the admin interface: limits who may connect, and for how long.
//!
//! It has its own thread, so that it answers while the reactors are busy. No client can block others: each has a
//! limited time to send its request and to read the answer. If all places are taken, the oldest client without a
//! running action is removed. The unix socket and TCP have separate places: thousands of connections to the port do
//! not disturb `weir status`.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::task::{AbortHandle, JoinSet};
use weir_control::AdminSockets;
use weir_http::{
    Answer, Begun, Body, ConnState, Fields, Front, Head, Request, Timeouts,
    compress::{self, Effort},
    h1::{self, Connection, Limits},
};
use weir_http1::Name;
use weir_interfaces::admin::{AdminData, Task};
use weir_net::{Acceptor, Socket};
use weir_observe::metrics;
use weir_semantics::coding::{Accepted, Coding};

use super::{
    access::{self, Needs, Transport},
    advice, page,
    route::{Route, route},
};

/// Answers on `sockets` until the admin interface closes, then finishes the running requests. See
/// [`weir_interfaces::admin::Serve`].
pub fn serve(sockets: AdminSockets, admin: Arc<dyn AdminData>) -> Task<io::Result<()>> {
    Box::pin(async move {
        let AdminSockets { unix, tcp, token } = sockets;
        let token: Option<Arc<str>> = token.map(Into::into);
        let unix = async {
            let Some(socket) = unix else {
                return Ok(());
            };
            let socket = Acceptor::new(NAME.to_owned(), socket, false)?;
            listen(socket, UNIX_PLACES, None, admin.clone()).await;
            Ok(())
        };
        let tcp = async {
            let Some(socket) = tcp else {
                return Ok(());
            };
            let socket = Acceptor::new(NAME.to_owned(), socket, true)?;
            listen(socket, TCP_PLACES, token, admin.clone()).await;
            Ok(())
        };
        let (unix, tcp): (io::Result<()>, io::Result<()>) = tokio::join!(unix, tcp);
        unix.and(tcp)
    })
}

/// A connected client.
struct Client {
    task: AbortHandle,
    /// Whether an action is running for this client.
    acts: Arc<AtomicBool>,
}

async fn listen(
    mut socket: Acceptor,
    places: usize,
    token: Option<Arc<str>>,
    admin: Arc<dyn AdminData>,
) {
    let mut closing = admin.closing();
    let mut clients: VecDeque<Client> = VecDeque::new();
    let mut tasks = JoinSet::new();
    loop {
        let (_, client) = tokio::select! {
            biased;
            () = &mut closing => break,
            Some(_) = tasks.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        clients.retain(|client| !client.task.is_finished());
        if clients.len() >= places && !make_room(&mut clients) {
            // All clients have running actions, so the new client is refused.
            drop(client);
            continue;
        }
        let acts = Arc::new(AtomicBool::new(false));
        let (admin, token) = (admin.clone(), token.clone());
        let task = tasks.spawn_local(attend(client, admin, token, acts.clone()));
        clients.push_back(Client { task, acts });
    }
    drop(socket);
    // Running requests are still answered: an operator who asked for a reload gets the answer from the gateway that
    // it replaces.
    let all = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
}

/// Removes the oldest client without a running action. `false`: there is none.
fn make_room(clients: &mut VecDeque<Client>) -> bool {
    let first = clients.iter().position(|client| !client.acts.load(Relaxed));
    match first.and_then(|index| clients.remove(index)) {
        Some(client) => {
            client.task.abort();
            true
        }
        None => false,
    }
}

/// Answers one request.
async fn attend(
    (socket, peer): (Socket, Option<SocketAddr>),
    admin: Arc<dyn AdminData>,
    token: Option<Arc<str>>,
    acts: Arc<AtomicBool>,
) {
    let state = Rc::new(ConnState::new(&TIMEOUTS));
    let visit = Visit {
        state: state.clone(),
        transport: peer.map_or(Transport::Unix, Transport::Tcp),
        admin,
        token,
        acts: acts.clone(),
    };
    let patience = async {
        tokio::time::sleep(HEAD).await;
        // A client that has sent no head gets an error.
        state.wake();
        tokio::time::sleep(SLOWEST - HEAD).await;
        if acts.load(Relaxed) {
            tokio::time::sleep(LONGEST).await;
        }
    };
    tokio::select! {
        () = Connection::new(visit, socket, LIMITS) => {}
        () = patience => {}
    }
}

/// A client's connection, which carries one request.
struct Visit {
    state: Rc<ConnState>,
    transport: Transport,
    admin: Arc<dyn AdminData>,
    token: Option<Arc<str>>,
    acts: Arc<AtomicBool>,
}

impl h1::Front for Visit {}

impl Front for Visit {
    type Receipt = ();

    fn begin(&self, request: Request) -> Begun<()> {
        let (transport, admin, token) = (self.transport, self.admin.clone(), self.token.clone());
        let acts = self.acts.clone();
        Begun::Steps(Box::pin(async move {
            answer(&request.head, transport, &*admin, token.as_deref(), &acts).await
        }))
    }

    fn state(&self) -> &ConnState {
        &self.state
    }
}

async fn answer(
    head: &Head,
    transport: Transport,
    admin: &dyn AdminData,
    token: Option<&str>,
    acts: &AtomicBool,
) -> Answer<()> {
    // Path and query are spelled as in a URI.
    let path = str::from_utf8(head.path()).unwrap_or("*");
    let query = head.query().and_then(|query| str::from_utf8(query).ok());
    let route = match route(path, query) {
        Ok(Some(route)) => route,
        Ok(None) => return plain(StatusCode::NOT_FOUND, &format!("{path} was not found\n")),
        Err(wrong) => return plain(StatusCode::BAD_REQUEST, &format!("{wrong}\n")),
    };
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    let acts_wanted = matches!(route, Route::Act(_) | Route::CachePurge(_));
    if reads == acts_wanted || (acts_wanted && head.method != Method::POST) {
        return wrong_method(path, acts_wanted);
    }
    let needs = match route {
        Route::Act(_) | Route::CachePurge(_) => Needs::Action,
        Route::Status(_) | Route::Cache | Route::CacheWhy(_) => Needs::Sight,
        _ => Needs::Nothing,
    };
    if let Err((status, why)) = access::check(transport, needs, &head.fields, token) {
        let mut response = plain(status, &format!("{why}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let scheme = b"Bearer realm=\"weir\"";
            response.headers.push_read(Name::WwwAuthenticate, scheme);
        }
        return response;
    }
    match route {
        Route::Page(part) => {
            let mut response = respond(StatusCode::OK, part.kind(), part.text());
            for (name, value) in page::HEADERS {
                response.headers.push_read(*name, value.as_bytes());
            }
            response
        }
        Route::Status(pool) => {
            admin.refresh().await;
            let Some(mut status) = admin.status(pool.as_deref()) else {
                return no_pool(admin, pool.as_deref());
            };
            status["troubles"] = advice::as_json(&status);
            // With a thousand pools the text has megabytes, which a formatter would write in small pieces.
            let mut text = serde_json::to_vec_pretty(&status).unwrap_or_default();
            text.push(b'\n');
            compressed(head, "application/json", text)
        }
        Route::Metrics(pool) => {
            admin.refresh().await;
            match admin.metrics(pool.as_deref()) {
                Some(text) => compressed(head, metrics::TEXT_TYPE, text),
                None => no_pool(admin, pool.as_deref()),
            }
        }
        Route::Cache => json(Ok(admin.cache())),
        Route::CacheWhy(query) => json(admin.cache_why(&query)),
        Route::CachePurge(query) => json(admin.cache_purge(&query)),
        Route::Healthy => plain(StatusCode::OK, "ok\n"),
        Route::Ready => match admin.ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
        },
        Route::Act(action) => {
            acts.store(true, Relaxed);
            if let Transport::Tcp(peer) = transport {
                log::info!("{peer} requests {path} over TCP, with the token");
            }
            match admin.act(action).await {
                Ok(text) => plain(StatusCode::OK, &format!("{text}\n")),
                Err(why) => plain(StatusCode::CONFLICT, &format!("{why}\n")),
            }
        }
    }
}

/// What the cache says, or what is wrong with the question.
fn json(said: Result<serde_json::Value, String>) -> Answer<()> {
    match said {
        Ok(value) => {
            let mut text = serde_json::to_vec_pretty(&value).unwrap_or_default();
            text.push(b'\n');
            respond(StatusCode::OK, "application/json", text)
        }
        Err(wrong) => plain(StatusCode::BAD_REQUEST, &format!("{wrong}\n")),
    }
}

fn no_pool(admin: &dyn AdminData, asked: Option<&str>) -> Answer<()> {
    let asked: String = asked
        .unwrap_or_default()
        .chars()
        .take(LONGEST_SHOWN)
        .collect();
    let pools = admin.pools();
    let more = match pools.len().saturating_sub(SHOWN_POOLS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = match pools.get(..pools.len().min(SHOWN_POOLS)) {
        None | Some([]) => format!("there is no pool {asked:?}: this weir has none\n"),
        Some(shown) => format!(
            "there is no pool {asked:?}; its pools: {}{more}\n",
            shown.join(", ")
        ),
    };
    plain(StatusCode::NOT_FOUND, &text)
}

/// An answer that may be large; with gzip for clients that accept it.
fn compressed(head: &Head, kind: &str, mut body: Vec<u8>) -> Answer<()> {
    let order = [Coding::Gzip, Coding::Zstd, Coding::Brotli];
    let accepted = Accepted::of(head.fields.all(Name::AcceptEncoding));
    let takes_gzip = accepted.choose(order, |coding| coding == Coding::Gzip);
    let mut coding = takes_gzip.filter(|_| body.len() >= WORTH_IT);
    if coding.is_some() {
        match compress::whole(Coding::Gzip, Effort::Stream, &body) {
            Ok(compressed) => body = compressed,
            Err(_) => coding = None,
        }
    }
    let mut response = respond(StatusCode::OK, kind, body);
    let headers = &mut response.headers;
    headers.push_read(Name::Vary, b"Accept-Encoding");
    if let Some(coding) = coding {
        headers.push_read(Name::ContentEncoding, coding.name().as_bytes());
    }
    response
}

fn wrong_method(path: &str, acts: bool) -> Answer<()> {
    let allowed = if acts { "POST" } else { "GET, HEAD" };
    let text = format!("{path} takes only {allowed}\n");
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &text);
    response.headers.push_read(Name::Allow, allowed.as_bytes());
    response
}

fn plain(status: StatusCode, text: &str) -> Answer<()> {
    respond(status, "text/plain; charset=utf-8", text.to_owned())
}

fn respond(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Answer<()> {
    let mut headers = Fields::default();
    headers.push_read(Name::ContentType, kind.as_bytes());
    headers.push_read(Name::CacheControl, b"no-store");
    headers.push_read("X-Content-Type-Options", b"nosniff");
    Answer {
        status,
        headers,
        body: Body::Bytes(body.into()),
        length: None,
        keep: false,
        receipt: (),
    }
}

/// How many names of pools a message shows.
const SHOWN_POOLS: usize = 50;

/// Maximum length of a name in a message, if a client has sent it, characters.
const LONGEST_SHOWN: usize = 64;

/// Shorter answers are not compressed, bytes.
const WORTH_IT: usize = 1024;

/// Maximum number of clients on the unix socket.
const UNIX_PLACES: usize = 16;

/// The same for TCP.
const TCP_PLACES: usize = 64;

/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Limits of a request.
const LIMITS: Limits = Limits {
    head: 16 << 10,
    fields: 100,
    chunk_extensions: 16 << 10,
};

/// What the connection itself limits; [`attend`] limits the rest.
static TIMEOUTS: Timeouts = Timeouts {
    header: HEAD,
    body: SLOWEST,
    idle: HEAD,
    send: SLOWEST,
};

/// Time limit from the connection to the end of the answer, without an action.
const SLOWEST: Duration = Duration::from_secs(15);

/// Time limit of an action: a reload warms up pools and starts a gateway.
const LONGEST: Duration = Duration::from_secs(300);

/// Its sockets, in log lines.
const NAME: &str = "the admin interface";

/// Time limit for running requests when the admin interface closes.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_control::Action;

    struct Shown;

    impl AdminData for Shown {
        fn refresh(&self) -> Task<()> {
            Box::pin(std::future::ready(()))
        }

        fn status(&self, pool: Option<&str>) -> Option<serde_json::Value> {
            pool.is_none_or(|pool| pool == "shop")
                .then(|| serde_json::json!({ "state": "serving" }))
        }

        fn metrics(&self, pool: Option<&str>) -> Option<Vec<u8>> {
            pool.is_none_or(|pool| pool == "shop")
                .then(|| b"weir_ready 1\n".to_vec())
        }

        fn pools(&self) -> Vec<String> {
            vec!["shop".into()]
        }

        fn ready(&self) -> Result<(), String> {
            Err("draining".into())
        }

        fn act(&self, action: Action) -> Task<Result<String, String>> {
            Box::pin(async move {
                match action {
                    Action::Reload => Ok("reloaded".into()),
                    _ => Err("there is no such pool".into()),
                }
            })
        }

        fn cache(&self) -> serde_json::Value {
            serde_json::json!({ "answers": 0 })
        }

        fn cache_why(&self, query: &str) -> Result<serde_json::Value, String> {
            self.cache_purge(query)
        }

        fn cache_purge(&self, query: &str) -> Result<serde_json::Value, String> {
            match query {
                "" => Err("url= is missing".into()),
                query => Ok(query.into()),
            }
        }

        fn closing(&self) -> Task<()> {
            Box::pin(std::future::pending())
        }
    }

    fn ask_by(transport: Transport, method: &str, path: &str) -> Answer<()> {
        let head = Head {
            method: method.parse().unwrap(),
            target: path.parse::<http::Uri>().unwrap().into(),
            ..Head::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(answer(
            &head,
            transport,
            &Shown,
            None,
            &AtomicBool::new(false),
        ))
    }

    #[test]
    fn answers_have_their_status() {
        let ask = |method: &str, path: &str| ask_by(Transport::Unix, method, path).status.as_u16();
        assert_eq!(ask("GET", "/status"), 200);
        assert_eq!(ask("GET", "/metrics"), 200);
        assert_eq!(ask("GET", "/status?pool=shop"), 200);
        assert_eq!(ask("GET", "/metrics?pool=shop"), 200);
        assert_eq!(ask("GET", "/status?pool=none"), 404);
        assert_eq!(ask("GET", "/metrics?pool=none"), 404);
        assert_eq!(ask("GET", "/metrics?pool="), 400);
        assert_eq!(ask("POST", "/status"), 405);
        assert_eq!(ask("GET", "/reload"), 405);
        assert_eq!(ask("PUT", "/reload"), 405);
        assert_eq!(ask("POST", "/reload"), 200);
        assert_eq!(ask("POST", "/pool/x/restart"), 409);
        assert_eq!(ask("POST", "/pool/x/set?maxconn=many"), 400);
        assert_eq!(ask("GET", "/cache"), 200);
        assert_eq!(ask("GET", "/cache/why?url=/"), 200);
        assert_eq!(ask("GET", "/cache/why"), 400);
        assert_eq!(ask("GET", "/cache/purge?tag=a"), 405);
        assert_eq!(ask("POST", "/cache/purge?tag=a"), 200);
        assert_eq!(ask("GET", "/readyz"), 503);
        assert_eq!(ask("GET", "/healthz"), 200);
        assert_eq!(ask("GET", "/nothing"), 404);
    }

    #[test]
    fn nothing_is_done_over_tcp_without_a_token() {
        let transport = Transport::Tcp("127.0.0.1:5".parse().unwrap());
        assert_eq!(ask_by(transport, "POST", "/reload").status, 403);
        assert_eq!(
            ask_by(transport, "POST", "/cache/purge?all=yes").status,
            403
        );
        assert_eq!(ask_by(transport, "GET", "/status").status, 200);
    }

    #[test]
    fn the_page_may_load_nothing_from_elsewhere() {
        let transport = Transport::Tcp("192.0.2.1:5".parse().unwrap());
        let response = ask_by(transport, "GET", "/");
        assert_eq!(response.status, 200);
        let policy = response.headers.get("Content-Security-Policy").unwrap();
        let policy = str::from_utf8(policy).unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
