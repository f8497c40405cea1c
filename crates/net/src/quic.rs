//! QUIC (RFC 9000) on a reactor: its UDP sockets, and its connections. The protocol itself is in `quinn-proto`.
//!
//! ```text
//! UDP socket ─► datagram ─► Routes: whose is it, by its ID? ─┬─► Endpoint of a listener ─► Connection
//!                                                            └─► another reactor's inbox, or another gateway's
//! inbox ──────► datagram ─► Endpoint of a listener ─► Connection ─► UDP socket
//! ```
//! Each reactor has UDP sockets of its own for each listener, among which the kernel distributes datagrams by their
//! addresses. A client whose address has changed may reach another reactor; and after a reload the sockets are read by
//! the next gateway. Such datagrams are passed on: a connection's ID names its gateway and reactor ([`Ids`]). A
//! connection sends through its own copy of the socket.

mod connection;
mod endpoint;
mod routes;

pub use quinn_proto;
pub use weir_tls::quic::{Handshakes, ID, Ids, Place, SECRET};

pub use self::{
    connection::Connection,
    endpoint::{Arrival, Endpoint, Settings},
    routes::{Outbox, Routes},
};
