//! What an answer passes on its way to the client.

pub(crate) mod bandwidth;
pub(crate) mod compression;
pub(crate) mod read_ahead;
pub(crate) mod refusal;
pub(crate) mod stream;
