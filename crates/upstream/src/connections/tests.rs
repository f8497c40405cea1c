//! Connections over loopback whose clock is the test's.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Empty;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use weir_config::{HostSettings, Network, Scheme};
use weir_control::NameFiles;

use super::*;
use crate::{
    dial::Stream,
    names::Names,
    origin::{DialTimes, Origin},
    resolver::Resolver,
    tests::Counted,
};

fn connections(address: SocketAddr, settings: HostSettings) -> Arc<Connections<Empty<Bytes>>> {
    let nobody = [SocketAddr::from(([127, 0, 0, 1], 9))];
    let resolver = Resolver::new(&nobody, &NameFiles::default()).expect("a resolver");
    let origin = Arc::new(Origin {
        scheme: Scheme::Http,
        host: address.ip().to_string(),
        port: address.port(),
    });
    let route = Route {
        origin: origin.clone(),
        settings: Arc::new(settings),
        networks: vec![Network {
            address: address.ip(),
            prefix: 8,
        }],
        tls: None,
    };
    let dialer = Dialer::by(Names::new(resolver, 10, Arc::new(Counted::default())));
    Connections::new(Arc::new(dialer), route, Arc::new(Counted::default()))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(limited).expect("it ends")
}

/// A listener that keeps what connects, and says nothing.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            all.push(stream);
        }
    });
    address
}

/// Many calls at once leave many connections: those beyond `keepalive` stay for ten seconds, for the next calls, and no
/// longer.
#[test]
fn connections_beyond_keepalive_are_closed_when_nobody_needed_them_for_ten_seconds() {
    run(async {
        let settings = HostSettings {
            keepalive: 2,
            maxconn: 10,
            ..HostSettings::usual()
        };
        let home = connections(silent().await, settings);
        let mut pooled = Vec::new();
        for _ in 0..6 {
            pooled.push(home.take(true).await.expect("a connection"));
        }
        assert_eq!(home.counts().busy, 6);
        // Nothing was sent, so the connections are given back.
        drop(pooled);
        let given_back = clock::precise();
        assert_eq!((home.counts().idle, home.counts().busy), (6, 0));
        home.tend(given_back + 9_000_000);
        assert_eq!(home.counts().idle, 6);
        home.tend(given_back + 11_000_000);
        assert_eq!(home.counts().idle, 2);
        home.tend(given_back + 59_000_000);
        assert_eq!(home.counts().idle, 2, "keepalive_timeout is not over");
        home.tend(given_back + 62_000_000);
        assert_eq!(home.counts().idle, 0);
    });
}

/// Calls whose callers have left are passed over one after the other, and not one within the other.
#[test]
fn a_connection_for_which_very_many_no_longer_wait_is_given_to_who_still_does() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            let mut server = h2::server::handshake(stream).await.expect("HTTP/2");
            while let Some(Ok((_, mut answer))) = server.accept().await {
                let mut body = answer
                    .send_response(http::Response::new(()), false)
                    .expect("an answer");
                body.send_data(Bytes::from_static(b"fine"), true)
                    .expect("a body");
            }
        });
        let home = connections(address, HostSettings::usual());
        let link = Link {
            stream: Stream::plain(TcpStream::connect(address).await.expect("a connection")),
            connection: Connection {
                address,
                protocol: Protocol::Http2,
                made: Some(DialTimes::default()),
            },
        };
        let Hold::Share(shared) = home.speak(link).await.expect("HTTP/2") else {
            panic!("it is shared");
        };
        let (last, waits) = oneshot::channel();
        {
            let mut state = home.lock();
            for _ in 0..LEAVERS {
                // The other end is dropped.
                state.waiting.push_back(oneshot::channel().0);
            }
            state.waiting.push_back(last);
            state.shared.push(shared.clone());
        }
        home.spread(&shared);
        let pooled = waits.await.expect("it is told").expect("a share");
        assert_eq!(pooled.connection().protocol, Protocol::Http2);
        assert_eq!(shared.streams.load(Relaxed), 1);
        assert_eq!(home.counts().waiting, 0);
        drop(pooled);
        assert_eq!(shared.streams.load(Relaxed), 0);
    });
}

/// An idle connection is watched: its end is seen when it happens, and not only once a second or when a call comes.
#[test]
fn an_idle_connection_that_its_origin_closes_or_speaks_on_is_closed_at_once() {
    for unasked in ["", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("an address");
            let home = connections(address, HostSettings::usual());
            let pooled = home.take(true).await.expect("a connection");
            let (mut origin, _) = listener.accept().await.expect("a connection");
            drop(pooled);
            assert_eq!(home.counts().idle, 1);
            let open = origin.write_all(unasked.as_bytes()).await;
            open.expect("it is open");
            if unasked.is_empty() {
                drop(origin);
            }
            // Nobody calls `tend`: the connection must end by itself. The test's time limit ends this loop.
            while home.counts().idle > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(home.counts().busy, 0);
        });
    }
}

/// Enough that a call within a call for each would not fit any stack.
const LEAVERS: usize = 200_000;
