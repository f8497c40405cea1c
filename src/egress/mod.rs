//! The sidecar: the application's outgoing calls, over connections that are kept for all workers together.
//!
//! # Life of a call
//!
//! ```text
//! listen ─► serve (hyper) ─► call: the steps, one function each
//!                              │ target       whom it is for: path form, proxy form, CONNECT
//!                              │ rules        may it be called?
//!                              ├─ tunnel      bytes, for CONNECT
//!                              ├─ cache       an answer that is kept, or on its way
//!                              │ host         its origin: breaker, limit and queue, retries
//!                              │ headers      what is passed on, what is set
//!                              └─ connections a kept one, or dial: names ─► address ─► TCP ─► tls
//!                              answer ─► compress ─► caller ─► record ─► log, figures
//! ```
//!
//! It runs on threads of its own in the gateway's process: a slow script and a slow origin do not meet. It knows
//! nothing of the gateway's room; what it needs to know of workers it is told through [`callers`].

mod address;
mod body;
mod cache;
mod call;
mod callers;
#[cfg(test)]
mod checks;
mod compress;
mod connections;
mod dial;
mod fault;
mod figures;
mod files;
mod headers;
mod host;
mod limiter;
mod listen;
mod log;
mod names;
mod record;
mod rules;
mod serve;
mod status;
mod target;
mod tls;
mod tunnel;
