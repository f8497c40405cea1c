//! Who a client is, and whether it may use a site.

pub(crate) mod basic_auth;
pub(crate) mod forwarded;
pub(crate) mod guard;
pub(crate) mod rates;
pub(crate) mod untrusted;
