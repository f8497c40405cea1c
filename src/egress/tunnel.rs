//! CONNECT: bytes that weir does not look at.
