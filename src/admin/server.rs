//! The window's HTTP server.

use std::{
    convert::Infallible,
    io,
    os::{fd::OwnedFd, unix::net::UnixListener},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use crate::{
    control::Action,
    metrics,
    window::{Task, Window},
};

/// Answers on `socket` until the window closes, and then what was begun. See [`crate::window::Serve`].
pub fn serve(socket: OwnedFd, window: Arc<dyn Window>) -> Task<io::Result<()>> {
    Box::pin(listen(socket, window))
}

async fn listen(socket: OwnedFd, window: Arc<dyn Window>) -> io::Result<()> {
    let socket = UnixListener::from(socket);
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut closing = window.closing();
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            accepted = accept(&socket, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let window = window.clone();
                tokio::task::spawn(async move {
                    let answered = connection(TokioIo::new(stream), window);
                    let _ = tokio::time::timeout(LONGEST, answered).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!("the operator's window cannot accept: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(socket);
    // What was asked before is answered: who asked for a reload hears of it from the gateway that it ends.
    let all = places.acquire_many(CONNECTIONS as u32);
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
    Ok(())
}

async fn accept(
    socket: &tokio::net::UnixListener,
    places: &Arc<Semaphore>,
) -> io::Result<(tokio::net::UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await;
    let place = place.map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
    let (stream, _) = socket.accept().await?;
    Ok((stream, place))
}

async fn connection<I>(io: I, window: Arc<dyn Window>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send,
{
    let service = service_fn(|request: Request<Incoming>| {
        let window = window.clone();
        async move { Ok::<_, Infallible>(answer(&request, window.as_ref()).await) }
    });
    // A client that goes away or talks nonsense is its own loss.
    let _ = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(io, service)
        .await;
}

async fn answer<B>(request: &Request<B>, window: &dyn Window) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    match (request.method(), route(path, request.uri().query())) {
        (_, Route::Unknown) => plain(StatusCode::NOT_FOUND, &format!("{path} is not here\n")),
        (&Method::GET | &Method::HEAD, Route::Status) => {
            let status = format!("{:#}\n", window.status());
            respond(StatusCode::OK, "application/json", status)
        }
        (&Method::GET | &Method::HEAD, Route::Metrics) => {
            respond(StatusCode::OK, metrics::TEXT_TYPE, window.metrics())
        }
        (&Method::GET | &Method::HEAD, Route::Healthy) => plain(StatusCode::OK, "ok\n"),
        (&Method::GET | &Method::HEAD, Route::Ready) => match window.ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
        },
        (&Method::POST, Route::Act(action)) => match window.act(action).await {
            Ok(text) => plain(StatusCode::OK, &format!("{text}\n")),
            Err(why) => plain(StatusCode::CONFLICT, &format!("{why}\n")),
        },
        (_, route) => {
            let allowed = match route {
                Route::Act(_) => "POST",
                _ => "GET, HEAD",
            };
            let mut response = plain(
                StatusCode::METHOD_NOT_ALLOWED,
                &format!("{path} takes {allowed}\n"),
            );
            let allowed = http::HeaderValue::from_static(allowed);
            response.headers_mut().insert(header::ALLOW, allowed);
            response
        }
    }
}

/// What a path is for.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Status,
    Metrics,
    Healthy,
    Ready,
    Act(Action),
    Unknown,
}

fn route(path: &str, query: Option<&str>) -> Route {
    match path {
        "/status" => return Route::Status,
        "/metrics" => return Route::Metrics,
        "/healthz" => return Route::Healthy,
        "/readyz" => return Route::Ready,
        "/reload" => return Route::Act(Action::Reload),
        "/stop" if query == Some("now") => return Route::Act(Action::StopNow),
        "/stop" => return Route::Act(Action::Stop),
        _ => {}
    }
    let pool = path
        .strip_prefix("/pool/")
        .and_then(|rest| rest.strip_suffix("/restart"));
    let pool = pool.map(|name| percent_encoding::percent_decode_str(name).decode_utf8());
    match pool {
        Some(Ok(pool)) if !pool.is_empty() => Route::Act(Action::RestartPool {
            pool: pool.into_owned(),
        }),
        _ => Route::Unknown,
    }
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
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    let no_store = http::HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, no_store);
    response
}

/// Operators at once; more wait.
const CONNECTIONS: usize = 16;

/// A request's head is there by then.
const HEAD: Duration = Duration::from_secs(10);

/// Longest head, bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Longest time that something asked for takes: a reload warms pools and starts a gateway.
const LONGEST: Duration = Duration::from_secs(300);

/// After a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What was asked for is answered within that time once the window closes.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_they_say() {
        let restart = |pool: &str| {
            Route::Act(Action::RestartPool {
                pool: pool.to_owned(),
            })
        };
        assert_eq!(route("/pool/shop/restart", None), restart("shop"));
        assert_eq!(route("/pool/a%2Fb/restart", None), restart("a/b"));
        assert_eq!(route("/stop", Some("now")), Route::Act(Action::StopNow));
        assert_eq!(route("/stop", Some("later")), Route::Act(Action::Stop));
        for unknown in [
            "/",
            "/pool//restart",
            "/pool/shop",
            "/pool/%ff/restart",
            "/status/",
        ] {
            assert_eq!(route(unknown, None), Route::Unknown, "{unknown}");
        }
    }

    struct Shown;

    impl Window for Shown {
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

    #[test]
    fn answers_have_their_status() {
        let ask = |method: &str, path: &str| {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .body(())
                .unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(answer(&request, &Shown)).status().as_u16()
        };
        assert_eq!(ask("GET", "/status"), 200);
        assert_eq!(ask("GET", "/metrics"), 200);
        assert_eq!(ask("POST", "/status"), 405);
        assert_eq!(ask("GET", "/reload"), 405);
        assert_eq!(ask("POST", "/reload"), 200);
        assert_eq!(ask("POST", "/pool/x/restart"), 409);
        assert_eq!(ask("GET", "/readyz"), 503);
        assert_eq!(ask("GET", "/healthz"), 200);
        assert_eq!(ask("GET", "/"), 404);
    }
}
