//! What the manager tells this gateway, and the end of the gateway.

pub(crate) mod drain;
pub(crate) mod messages;
