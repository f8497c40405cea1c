//! The window's HTTP server: limits who may connect, and for how long.
//!
//! It has its own thread, so that it answers while the reactors are busy. No client can block others: each has a
//! limited time to send its request and to read the answer. If all places are taken, the oldest client without a
//! running action is removed. The unix socket and TCP have separate places: thousands of connections to the port do
//! not disturb `weir status`.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_compression::{Level, tokio::write::GzipEncoder};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::AsyncWriteExt,
    task::{AbortHandle, JoinSet},
};
use weir_control::WindowSockets;
use weir_interfaces::window::{Task, Window};
use weir_net::{Listening, Socket};
use weir_observe::metrics;
use weir_semantics::coding::{Accepted, Coding};

use super::{
    access::{self, Needs, Way},
    advice, page,
    route::{Route, route},
};

/// Answers on `sockets` until the window closes, then finishes the running requests. See [`weir_interfaces::window::Serve`].
pub fn serve(sockets: WindowSockets, window: Arc<dyn Window>) -> Task<io::Result<()>> {
    Box::pin(async move {
        let WindowSockets { unix, tcp, token } = sockets;
        let token: Option<Arc<str>> = token.map(Into::into);
        let unix = async {
            let Some(socket) = unix else {
                return Ok(());
            };
            let socket = Listening::new(socket, false)?;
            listen(socket, UNIX_PLACES, None, window.clone()).await;
            Ok(())
        };
        let tcp = async {
            let Some(socket) = tcp else {
                return Ok(());
            };
            let socket = Listening::new(socket, true)?;
            listen(socket, TCP_PLACES, token, window.clone()).await;
            Ok(())
        };
        let (unix, tcp): (io::Result<()>, io::Result<()>) = tokio::join!(unix, tcp);
        unix.and(tcp)
    })
}

/// A connected client.
struct Guest {
    task: AbortHandle,
    /// Whether an action is running for this client.
    acts: Arc<AtomicBool>,
}

async fn listen(
    socket: Listening,
    places: usize,
    token: Option<Arc<str>>,
    window: Arc<dyn Window>,
) {
    let mut closing = window.closing();
    let mut guests: VecDeque<Guest> = VecDeque::new();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            Some(_) = tasks.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok(client) => {
                guests.retain(|guest| !guest.task.is_finished());
                if guests.len() >= places && !make_room(&mut guests) {
                    // All of them have running actions: the new client is refused.
                    drop(client);
                    continue;
                }
                let acts = Arc::new(AtomicBool::new(false));
                let (window, token) = (window.clone(), token.clone());
                let task = tasks.spawn(attend(client, window, token, acts.clone()));
                guests.push_back(Guest { task, acts });
            }
            Err(error) => {
                log::warn!("the operator's window cannot accept connections: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(socket);
    // Running requests are still answered: an operator who asked for a reload gets the answer from the gateway that
    // it replaces.
    let all = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
}

/// Removes the oldest client without a running action. `false`: there is none.
fn make_room(guests: &mut VecDeque<Guest>) -> bool {
    let first = guests.iter().position(|guest| !guest.acts.load(Relaxed));
    match first.and_then(|index| guests.remove(index)) {
        Some(guest) => {
            guest.task.abort();
            true
        }
        None => false,
    }
}

/// Answers one request.
async fn attend(
    (socket, peer): (Socket, Option<SocketAddr>),
    window: Arc<dyn Window>,
    token: Option<Arc<str>>,
    acts: Arc<AtomicBool>,
) {
    let patience = async {
        tokio::time::sleep(SLOWEST).await;
        if acts.load(Relaxed) {
            tokio::time::sleep(LONGEST).await;
        }
    };
    let answered = async {
        let way = peer.map_or(Way::Unix, Way::Tcp);
        connection(TokioIo::new(socket), way, &window, token, &acts).await;
    };
    tokio::select! {
        () = answered => {}
        () = patience => {}
    }
}

async fn connection(
    io: TokioIo<Socket>,
    way: Way,
    window: &Arc<dyn Window>,
    token: Option<Arc<str>>,
    acts: &Arc<AtomicBool>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (window, acts, token) = (window.clone(), acts.clone(), token.clone());
        async move {
            let (window, token) = (window.as_ref(), token.as_deref());
            Ok::<_, Infallible>(answer(&request, way, window, token, &acts).await)
        }
    });
    // Errors of a client concern only that client.
    let _ = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(io, service)
        .await;
}

async fn answer<B>(
    request: &Request<B>,
    way: Way,
    window: &dyn Window,
    token: Option<&str>,
    acts: &AtomicBool,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let route = match route(path, request.uri().query()) {
        Ok(Some(route)) => route,
        Ok(None) => return plain(StatusCode::NOT_FOUND, &format!("{path} was not found\n")),
        Err(wrong) => return plain(StatusCode::BAD_REQUEST, &format!("{wrong}\n")),
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let acts_wanted = matches!(route, Route::Act(_));
    if reads == acts_wanted || (acts_wanted && request.method() != Method::POST) {
        return wrong_method(path, acts_wanted);
    }
    let needs = match route {
        Route::Act(_) => Needs::Action,
        Route::Status => Needs::Sight,
        _ => Needs::Nothing,
    };
    if let Err((status, why)) = access::check(way, needs, request.headers(), token) {
        let mut response = plain(status, &format!("{why}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"weir\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        return response;
    }
    match route {
        Route::Page(part) => {
            let mut response = respond(StatusCode::OK, part.kind(), part.text());
            for (name, value) in page::HEADERS {
                let value = HeaderValue::from_static(value);
                response.headers_mut().insert(name.clone(), value);
            }
            response
        }
        Route::Status => {
            window.refresh().await;
            let mut status = window.status();
            status["troubles"] = advice::as_json(&status);
            let status = format!("{status:#}\n");
            compressed(request.headers(), "application/json", status.into()).await
        }
        Route::Metrics => {
            window.refresh().await;
            compressed(request.headers(), metrics::TEXT_TYPE, window.metrics()).await
        }
        Route::Healthy => plain(StatusCode::OK, "ok\n"),
        Route::Ready => match window.ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
        },
        Route::Act(action) => {
            acts.store(true, Relaxed);
            if let Way::Tcp(peer) = way {
                log::info!("{peer} asks over TCP, with the token: {path}");
            }
            match window.act(action).await {
                Ok(text) => plain(StatusCode::OK, &format!("{text}\n")),
                Err(why) => plain(StatusCode::CONFLICT, &format!("{why}\n")),
            }
        }
    }
}

/// An answer that may be large; with gzip for clients that accept it.
async fn compressed(
    headers: &HeaderMap,
    kind: &'static str,
    mut body: Vec<u8>,
) -> Response<Full<Bytes>> {
    let order = [Coding::Gzip, Coding::Zstd, Coding::Brotli];
    let accept = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = Accepted::of(accept.map(HeaderValue::as_bytes));
    let takes_gzip = accepted.choose(order, |coding| coding == Coding::Gzip);
    let mut coding = takes_gzip.filter(|_| body.len() >= WORTH_IT);
    if coding.is_some() {
        // It writes into memory, so it neither waits nor fails.
        let mut encoder = GzipEncoder::with_quality(Vec::new(), Level::Fastest);
        let written = async {
            encoder.write_all(&body).await?;
            encoder.shutdown().await
        };
        match written.await {
            Ok(()) => body = encoder.into_inner(),
            Err(_) => coding = None,
        }
    }
    let mut response = respond(StatusCode::OK, kind, body);
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(coding) = coding {
        let name = HeaderValue::from_static(coding.name());
        headers.insert(header::CONTENT_ENCODING, name);
    }
    response
}

fn wrong_method(path: &str, acts: bool) -> Response<Full<Bytes>> {
    let allowed = if acts { "POST" } else { "GET, HEAD" };
    let text = format!("{path} takes only {allowed}\n");
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &text);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text.to_owned())
}

fn respond(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let no_store = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, no_store);
    let no_sniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, no_sniff);
    response
}

/// Shorter answers are not compressed, bytes.
const WORTH_IT: usize = 1024;

/// Maximum number of clients on the unix socket.
const UNIX_PLACES: usize = 16;

/// The same for TCP.
const TCP_PLACES: usize = 64;

/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Maximum size of a head, bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Time limit from the connection to the end of the answer, without an action.
const SLOWEST: Duration = Duration::from_secs(15);

/// Time limit of an action: a reload warms up pools and starts a gateway.
const LONGEST: Duration = Duration::from_secs(300);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time limit for running requests when the window closes.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_control::Action;

    struct Shown;

    impl Window for Shown {
        fn refresh(&self) -> Task<()> {
            Box::pin(std::future::ready(()))
        }

        fn status(&self) -> serde_json::Value {
            serde_json::json!({ "state": "serving" })
        }

        fn metrics(&self) -> Vec<u8> {
            b"weir_ready 1\n".to_vec()
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

        fn closing(&self) -> Task<()> {
            Box::pin(std::future::pending())
        }
    }

    fn ask_by(way: Way, method: &str, path: &str) -> Response<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(answer(&request, way, &Shown, None, &AtomicBool::new(false)))
    }

    #[test]
    fn answers_have_their_status() {
        let ask = |method: &str, path: &str| ask_by(Way::Unix, method, path).status().as_u16();
        assert_eq!(ask("GET", "/status"), 200);
        assert_eq!(ask("GET", "/metrics"), 200);
        assert_eq!(ask("POST", "/status"), 405);
        assert_eq!(ask("GET", "/reload"), 405);
        assert_eq!(ask("PUT", "/reload"), 405);
        assert_eq!(ask("POST", "/reload"), 200);
        assert_eq!(ask("POST", "/pool/x/restart"), 409);
        assert_eq!(ask("POST", "/pool/x/set?maxconn=many"), 400);
        assert_eq!(ask("GET", "/readyz"), 503);
        assert_eq!(ask("GET", "/healthz"), 200);
        assert_eq!(ask("GET", "/nothing"), 404);
    }

    #[test]
    fn nothing_is_done_over_tcp_without_a_token() {
        let way = Way::Tcp("127.0.0.1:5".parse().unwrap());
        assert_eq!(ask_by(way, "POST", "/reload").status(), 403);
        assert_eq!(ask_by(way, "GET", "/status").status(), 200);
    }

    #[test]
    fn the_page_may_load_nothing_from_elsewhere() {
        let way = Way::Tcp("192.0.2.1:5".parse().unwrap());
        let response = ask_by(way, "GET", "/");
        assert_eq!(response.status(), 200);
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
