//! Answers that are kept (RFC 9111), and calls that wait for an equal one that is on its way.
