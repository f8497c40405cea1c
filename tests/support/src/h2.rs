//! An origin over HTTP/2. A function of the test decides how it answers each request.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, RecvStream, server};
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::authority::Identity;
use crate::free_address;
use crate::oddity::tls;

/// The origin listens until it is dropped.
pub struct H2 {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// When this is dropped, everything ends.
    _stop: watch::Sender<()>,
}

/// A request, as the test's function gets it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The connection's number, from 1.
    pub connection: usize,
    /// The request's number on it, from 1.
    pub number: usize,
    /// The head, with `:method`, `:authority` and so on as the http crate stores them.
    pub request: Arc<Request<()>>,
}

/// How the origin answers a request.
#[derive(Debug, Clone)]
pub enum Turn {
    /// A whole answer with this status and text, after it has read the request's body.
    Answer(u16, String),
    /// An empty answer with so many fields.
    Fields(usize),
    /// The head of an answer that promises ten bytes, five of them, then RST_STREAM.
    Half,
    /// RST_STREAM at once. REFUSED_STREAM means that the origin did nothing (RFC 9113 §8.7).
    Reset(Reason),
    /// GOAWAY: this request gets this text, and the connection takes no other request (RFC 9113 §6.8).
    Last(String),
    /// No answer until the other side gives up.
    Silence,
    /// The connection ends at once, with all its streams.
    Cut,
    /// The given turn, after this time.
    Later(Duration, Box<Turn>),
}

#[derive(Default)]
struct Shared {
    connections: AtomicUsize,
    asked: Mutex<Vec<Asked>>,
    bodies: Mutex<Vec<Vec<u8>>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl H2 {
    /// Starts an origin with TLS on its own address that accepts this many concurrent streams per connection.
    pub fn start(
        identity: &Identity,
        streams: u32,
        judge: impl Fn(&Asked) -> Turn + Send + Sync + 'static,
    ) -> H2 {
        let address = free_address();
        let listener = std::net::TcpListener::bind(address).expect("bind");
        listener.set_nonblocking(true).expect("non-blocking");
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = watch::channel(());
        let acceptor = TlsAcceptor::from(tls(identity, &["h2"]));
        let (server, judge) = (shared.clone(), Arc::new(judge));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let mut ended = stopped.clone();
                loop {
                    let socket = tokio::select! {
                        accepted = listener.accept() => accepted.expect("accept").0,
                        _ = ended.changed() => return,
                    };
                    let acceptor = acceptor.clone();
                    let serving =
                        connection(socket, acceptor, streams, server.clone(), judge.clone());
                    tokio::spawn(serving);
                }
            });
        });
        H2 {
            address,
            shared,
            _stop: stop,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections completed their handshake.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no holder panics").clone()
    }

    /// The bodies of answered requests, in the order in which they ended.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.shared.bodies.lock().expect("no holder panics").clone()
    }

    /// The largest number of requests at the same time.
    pub fn most_at_once(&self) -> usize {
        self.shared.most_at_once.load(Ordering::SeqCst)
    }
}

async fn connection(
    socket: TcpStream,
    acceptor: TlsAcceptor,
    streams: u32,
    shared: Arc<Shared>,
    judge: Arc<impl Fn(&Asked) -> Turn + Send + Sync + 'static>,
) {
    let Ok(stream) = acceptor.accept(socket).await else {
        return;
    };
    let mut builder = server::Builder::new();
    let Ok(mut connection) = builder
        .max_concurrent_streams(streams)
        .max_send_buffer_size(SEND_BUFFER)
        .handshake::<_, Bytes>(stream)
        .await
    else {
        return;
    };
    let of = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    // What the tasks of the requests want from the connection.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut number = 0;
    loop {
        let (request, answer) = tokio::select! {
            next = connection.accept() => match next {
                Some(Ok(next)) => next,
                _ => return,
            },
            Some(wish) = told.recv() => match wish {
                Wish::Leave => {
                    connection.graceful_shutdown();
                    continue;
                }
                Wish::End => return,
            },
        };
        number += 1;
        let (parts, body) = request.into_parts();
        let asked = Asked {
            connection: of,
            number,
            request: Arc::new(Request::from_parts(parts, ())),
        };
        shared
            .asked
            .lock()
            .expect("no holder panics")
            .push(asked.clone());
        let turn = judge(&asked);
        tokio::spawn(play(turn, body, answer, shared.clone(), tell.clone()));
    }
}

/// How much of an answer may wait to be sent before a stream has no more room for it, bytes.
const SEND_BUFFER: usize = 1024;

enum Wish {
    /// GOAWAY
    Leave,
    End,
}

async fn play(
    mut turn: Turn,
    mut body: RecvStream,
    mut answer: server::SendResponse<Bytes>,
    shared: Arc<Shared>,
    tell: tokio::sync::mpsc::UnboundedSender<Wish>,
) {
    let now = shared.at_once.fetch_add(1, Ordering::SeqCst) + 1;
    shared.most_at_once.fetch_max(now, Ordering::SeqCst);
    let _gone = Gone(&shared);
    while let Turn::Later(pause, then) = turn {
        tokio::time::sleep(pause).await;
        turn = *then;
    }
    if matches!(turn, Turn::Last(_)) {
        let _ = tell.send(Wish::Leave);
    }
    match turn {
        Turn::Answer(..) | Turn::Last(_) => {
            let mut all = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
                all.extend(piece);
            }
            shared.bodies.lock().expect("no holder panics").push(all);
            let (status, text) = match turn {
                Turn::Answer(status, text) => (status, text),
                Turn::Last(text) => (200, text),
                _ => return,
            };
            let head = Response::builder()
                .status(status)
                .header("content-length", text.len());
            if let Ok(mut stream) = answer.send_response(head.body(()).expect("a head"), false) {
                let _ = stream.send_data(text.into(), true);
            }
        }
        Turn::Half => {
            let head = Response::builder().header("content-length", 10);
            if let Ok(mut stream) = answer.send_response(head.body(()).expect("a head"), false) {
                let half = Bytes::from_static(b"half ");
                stream.reserve_capacity(SEND_BUFFER + half.len());
                let _ = stream.send_data(half, false);
                // A reset discards what has not been sent yet: the buffer must have all of its room again.
                while stream.capacity() < SEND_BUFFER {
                    if poll_fn(|context| stream.poll_capacity(context))
                        .await
                        .is_none()
                    {
                        break;
                    }
                }
                stream.send_reset(Reason::INTERNAL_ERROR);
            }
        }
        Turn::Fields(count) => {
            let names = (0..count).map(|number| format!("x-{number}"));
            let head = names.fold(Response::builder(), |head, name| head.header(name, "1"));
            let _ = answer.send_response(head.body(()).expect("a head"), true);
        }
        Turn::Reset(reason) => answer.send_reset(reason),
        Turn::Silence => {
            let _ = poll_fn(|context| answer.poll_reset(context)).await;
        }
        Turn::Cut => {
            let _ = tell.send(Wish::End);
        }
        Turn::Later(..) => {}
    }
}

struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}
