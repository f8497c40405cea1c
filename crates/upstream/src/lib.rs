//! Connections to other servers, for all clients in the program.
//!
//! | module | |
//! |---|---|
//! | [`h1`] | one HTTP/1.1 connection; it uses no other module |
//! | [`connections`] | the connections to one origin: kept, shared (HTTP/2), opened in advance or when needed |
//! | [`dial`], [`origin_tls`] | a new connection: addresses of a name, the permitted ones, TCP, TLS |
//! | [`names`], [`resolver`] | the addresses of a name, cached while they are used; one lookup |
//! | [`driver`] | the requests that wait for decisions of a `weir_pool::Pool`: for an origin's calls and for pools of workers |
//! | [`hop`] | fields that are not passed on |
//! | [`limiter`] | how many requests an origin gets at once, and which ones wait |
//! | [`fault`], [`failure`] | why a request had no answer |
//!
//! Pools of servers have their own connections in the gateway's `dispatch`, because they
//! work differently: each address of a name is a server with checks and a share of the requests. A
//! kept connection may occupy a worker of the server, so the balancer counts it, and it moves between
//! reactors. For servers that speak HTTP, [`h1`] is on such a connection while a request is there.
#![forbid(unsafe_code)]

pub mod address;
pub mod connections;
pub mod dial;
pub mod driver;
pub mod failure;
pub mod fault;
pub mod h1;
pub mod hop;
pub mod limiter;
pub mod names;
pub mod origin;
pub mod origin_tls;
pub mod resolver;

use self::{fault::Fault, origin::Connection};

/// Counts lookups.
pub trait Counters: Send + Sync {
    /// A lookup in DNS has ended. `found`: the name has addresses.
    fn looked_up(&self, found: bool);
}

/// Counts connections to one origin.
pub trait HostCounters: Send + Sync {
    /// There is a new connection. `verified`: its certificate was verified, or it has none.
    fn connection_opened(&self, connection: &Connection, verified: bool);

    /// No connection could be made.
    fn failed(&self, fault: &Fault);
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Lookups: all, and those without an address.
    #[derive(Default)]
    pub(crate) struct Counted {
        pub(crate) lookups: Mutex<(u64, u64)>,
    }

    impl Counters for Counted {
        fn looked_up(&self, found: bool) {
            let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            lookups.0 += 1;
            lookups.1 += u64::from(!found);
        }
    }

    impl HostCounters for Counted {
        fn connection_opened(&self, _: &Connection, _: bool) {}

        fn failed(&self, _: &Fault) {}
    }
}
