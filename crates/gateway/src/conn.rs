//! A client connection, as the steps of its requests see it.

use std::{net::SocketAddr, ops::Deref, sync::Arc};

use weir_http::{ConnState, Timeouts};

use super::{own_calls::Source, record::Endpoints};

/// A client connection, shared by its carrier, the steps of a request and the sweeper.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Index into the configuration's listeners.
    pub(crate) listener: u16,
    /// The reactor it lives on.
    pub(crate) home: u16,
    pub(crate) endpoints: Arc<Endpoints>,
    /// Whether the client may be a worker.
    pub(crate) source: Source,
    state: ConnState,
}

impl Conn {
    pub(crate) fn new(
        listener: u16,
        home: u16,
        (peer, local): (Option<SocketAddr>, Option<SocketAddr>),
        pid: Option<u32>,
        timeouts: Arc<Timeouts>,
    ) -> Conn {
        Conn {
            listener,
            home,
            endpoints: Arc::new(Endpoints::new(peer, local)),
            source: Source::new(peer, local, pid),
            state: ConnState::new(timeouts),
        }
    }
}

impl Deref for Conn {
    type Target = ConnState;

    fn deref(&self) -> &ConnState {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection has one of these. Data that is rare, or the same for all connections, belongs elsewhere.
    #[test]
    fn what_is_kept_of_each_connection_is_small() {
        assert!(size_of::<Conn>() <= 176, "{}", size_of::<Conn>());
        assert!(size_of::<Source>() <= 40, "{}", size_of::<Source>());
    }
}
