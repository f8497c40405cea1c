use super::{fault::*, record::*, target::Origin, tls::TlsContext};
use crate::resolver::Resolver;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::net::TcpStream;
use weir_config::{HostSettings, Network};
pub(crate) struct Dialer;
pub(crate) struct Route {
    pub(crate) origin: Arc<Origin>,
    pub(crate) settings: Arc<HostSettings>,
    pub(crate) networks: Vec<Network>,
    pub(crate) tls: Option<Arc<TlsContext>>,
}
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    pub(crate) connection: Connection,
}
impl Dialer {
    pub(crate) fn new(_s: &weir_config::Egress, _r: Resolver) -> Dialer {
        Dialer
    }
    pub(crate) async fn dial(&self, route: &Route, _deadline: u64) -> Result<Link, Fault> {
        let address = SocketAddr::new(route.origin.host.parse().unwrap(), route.origin.port);
        let stream = TcpStream::connect(address)
            .await
            .map_err(|e| Fault::unsent(Kind::Refused, e.to_string()))?;
        Ok(Link {
            stream,
            connection: Connection {
                address,
                protocol: Protocol::Http1,
                made: Some(DialTimes::default()),
            },
        })
    }
    pub(crate) async fn dial_plain(
        &self,
        route: &Route,
        d: u64,
    ) -> Result<(TcpStream, Connection), Fault> {
        let l = self.dial(route, d).await?;
        Ok((l.stream, l.connection))
    }
    pub(crate) fn still_leads(&self, _r: &Route, _ip: IpAddr) -> bool {
        true
    }
}
