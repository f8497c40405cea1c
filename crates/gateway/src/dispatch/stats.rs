//! What is known of a pool: its processes, its running requests, and what its workers do.

pub(crate) mod counts;
pub(crate) mod exits;
pub(crate) mod insight;
pub(crate) mod opcache;
pub(crate) mod pages;
pub(crate) mod running;
