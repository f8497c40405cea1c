//! A caller's connection.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use super::{Egress, body::Answer, call, callers::Peer};

/// Serves a caller that came over TCP.
pub(crate) async fn serve_tcp(egress: Arc<Egress>, stream: TcpStream, address: SocketAddr) {
    // It is gone already where that is not known any more.
    let Ok(own) = stream.local_addr() else { return };
    let peer = egress.callers.over_tcp(own, address);
    serve(egress, stream, peer).await;
}

/// Serves a caller that came over a unix socket.
pub(crate) async fn serve_unix(egress: Arc<Egress>, stream: UnixStream) {
    let peer = egress.callers.over_unix(&stream);
    serve(egress, stream, peer).await;
}

async fn serve<S>(egress: Arc<Egress>, stream: S, peer: Arc<Peer>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    egress.figures.caller_came();
    let _leaves = Leaves(egress.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (egress, peer) = (egress.clone(), peer.clone());
        async move { Ok::<Response<Answer>, Infallible>(call::call(egress, peer, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut draining = false;
    loop {
        tokio::select! {
            // What goes wrong is the caller's matter, or was said in the call's line.
            _ = connection.as_mut() => return,
            () = egress.drain.started(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A caller's connection, counted until it ends.
struct Leaves(Arc<Egress>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.figures.caller_left();
    }
}

/// A caller's connection is closed when no request came for that long, or its head does not come to its end.
const IDLE: Duration = Duration::from_secs(75);

/// Longest head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;
