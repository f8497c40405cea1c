//! What is counted of calls, by host.
