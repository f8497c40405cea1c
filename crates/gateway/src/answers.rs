//! What an answer passes on its way to the client, and the cache, which has some answers already.

pub(crate) mod bandwidth;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod read_ahead;
pub(crate) mod refusal;
pub(crate) mod stream;
