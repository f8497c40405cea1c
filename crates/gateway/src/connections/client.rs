//! A client connection and one of its requests, as the steps of the request see them.

use std::{ops::Deref, rc::Rc, sync::Arc};

use weir_http::{ConnState, RequestState, Timeouts};

use crate::{record::Endpoints, scripts::self_calls::ConnectionOrigin};

/// A client connection, shared by its carrier, the steps of its requests and the sweeper. All of them are on its reactor.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Index into the configuration's listeners.
    pub(crate) listener: u16,
    /// The reactor it lives on.
    pub(crate) home: u16,
    pub(crate) endpoints: Rc<Endpoints>,
    /// Whether the client may be a worker. Other reactors look at this.
    pub(crate) source: Arc<ConnectionOrigin>,
    state: ConnState,
}

/// A request and the connection that it came over.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) conn: Rc<Conn>,
    pub(crate) request: Rc<RequestState>,
}

impl Conn {
    pub(crate) fn new(
        listener: u16,
        home: u16,
        endpoints: Endpoints,
        source: Arc<ConnectionOrigin>,
        timeouts: &'static Timeouts,
    ) -> Conn {
        Conn {
            listener,
            home,
            endpoints: Rc::new(endpoints),
            source,
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

impl Deref for Client {
    type Target = RequestState;

    fn deref(&self) -> &RequestState {
        &self.request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection has one of these. Data that is rare, or the same for all connections, belongs elsewhere.
    #[test]
    fn what_is_kept_of_each_connection_is_small() {
        assert!(size_of::<Conn>() <= 112, "{}", size_of::<Conn>());
        assert!(
            size_of::<ConnectionOrigin>() <= 32,
            "{}",
            size_of::<ConnectionOrigin>()
        );
    }
}
