//! Which calls are allowed.
