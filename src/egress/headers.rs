//! Which headers are passed on, removed and set.
