//! The application's outgoing calls: weir between real clients and origins.

mod cache;
mod clients;
mod credentials;
mod dns;
mod hostile;
mod limits;
mod messages;
mod origins;
mod own_socket;
mod see;
mod sockets;
mod ssrf;
mod tls;
mod together;
mod trouble;
mod tunnels;

use weir_test::Setup;
use weir_test::origin::Origin;
use weir_test::sidecar::Outward;

/// A weir, before it starts, in which `api.test` is an origin with TLS.
fn with_origin() -> (Setup, Outward, Origin) {
    let setup = Setup::new();
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = Origin::tls(setup.folder(), &identity);
    let outward = outward.name("api.test", origin.address());
    (setup, outward, origin)
}
