//! Purges of this node are told to others, and theirs are obeyed (`bus` of `[cache]`). The messages are in `weir_bus`.

use std::{io, net::SocketAddr, sync::Arc};

use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use weir_bus::{Bus, Connect, Heard, Settings, Stream, What};
use weir_cache::purges::Manner;
use weir_config::{Address, Upstream};
use weir_observe::metrics::{Metric, Page};
use weir_upstream::resolver::Resolver;

use super::Pages;
use crate::Gateway;

/// Starts the bus on the current reactor, if the configuration has one. `resolver`: `None` if its server has an address.
pub(crate) fn start(gateway: &'static Gateway, resolver: Option<&Arc<Resolver>>) {
    let (Some(pages), Some(cache)) = (&gateway.pages, &gateway.config.cache) else {
        return;
    };
    let Some(server) = &cache.bus else {
        return;
    };
    let node = match weir_sys::random::name() {
        Ok(node) => node,
        Err(error) => return log::error!("[cache] bus: no random name for this node: {error}"),
    };
    let settings = Settings {
        database: server.database.into(),
        user: cache.bus_user.clone(),
        password: gateway.bus_password.clone(),
        stream: cache.bus_stream.clone(),
        node,
    };
    let heard = |heard: Heard| match heard {
        Heard::Purge(purge) => pages.outdate(&purge.what, manner(purge.is_hard)),
        Heard::Missed => pages.outdate(&What::All, Manner::Soft),
    };
    let bus = Bus::start(settings, connect(&server.server, resolver), heard);
    // The first call, so it cannot fail.
    let _ = pages.bus.set(bus);
}

impl Pages {
    /// For `weir cache stats`; null without a bus.
    pub(super) fn bus_stats(&self) -> Value {
        let figures = self.bus.get().map(Bus::figures);
        figures.map_or(Value::Null, |bus| {
            json!({
                "connected": bus.is_connected, "error": bus.error,
                "told": bus.told, "heard": bus.heard, "missed": bus.missed,
            })
        })
    }

    /// Adds the metrics of the bus.
    pub(super) fn put_bus(&self, page: &mut Page) {
        let Some(bus) = self.bus.get().map(Bus::figures) else {
            return;
        };
        page.put(
            Metric::CacheBusConnected,
            &[],
            f64::from(u8::from(bus.is_connected)),
        );
        page.put(Metric::CacheBusTold, &[], bus.told as f64);
        page.put(Metric::CacheBusHeard, &[], bus.heard as f64);
        page.put(Metric::CacheBusMissed, &[], bus.missed as f64);
    }
}

fn manner(is_hard: bool) -> Manner {
    match is_hard {
        true => Manner::Hard,
        false => Manner::Soft,
    }
}

fn connect(server: &Upstream, resolver: Option<&Arc<Resolver>>) -> Connect {
    let (server, resolver) = (server.clone(), resolver.cloned());
    Arc::new(move || {
        let (server, resolver) = (server.clone(), resolver.clone());
        Box::pin(async move {
            match server {
                Upstream::At(Address::Unix(path)) => {
                    UnixStream::connect(path).await.map(Stream::Unix)
                }
                Upstream::At(Address::Tcp(address)) => tcp([address]).await,
                Upstream::Named { host, port } => {
                    let resolver = resolver.ok_or(io::ErrorKind::NotFound)?;
                    let found = resolver.look_up(&host).await;
                    let addresses = found.addresses.into_iter();
                    tcp(addresses.map(|ip| SocketAddr::new(ip, port))).await
                }
            }
        })
    })
}

/// Connects with the first of these that answers.
async fn tcp(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<Stream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(Stream::Tcp(stream)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
