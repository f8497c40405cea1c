use super::record::Caller;
use std::{net::SocketAddr, sync::Arc};
pub(crate) struct Callers;
pub(crate) struct Peer(Option<SocketAddr>);
impl Callers {
    pub(crate) fn new(_w: Arc<dyn crate::sidecar::Workers>) -> Self {
        Callers
    }
}
impl Peer {
    pub(crate) fn tcp(_c: &Callers, a: SocketAddr, _l: Option<SocketAddr>) -> Peer {
        Peer(Some(a))
    }
    pub(crate) fn unix(_c: &Callers, _p: Option<u32>) -> Peer {
        Peer(None)
    }
    pub(crate) fn is_tcp(&self) -> bool {
        self.0.is_some()
    }
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0
    }
    pub(crate) fn deadline(&self) -> u64 {
        crate::clock::NEVER
    }
    pub(crate) fn caller(&self) -> Caller {
        Caller::default()
    }
    pub(crate) fn client(&self) -> u64 {
        0
    }
}
