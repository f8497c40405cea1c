//! The cache of answers (RFC 9111) that the front and the egress share. Its rules have no I/O and no clock: every time is an argument.
//!
//! | module | decides |
//! |---|---|
//! | [`fields`] | nothing: it is how the rules read and change the fields of a head, whoever stores them |
//! | [`directives`] | what `Cache-Control` and the targeted fields (RFC 9213) say |
//! | [`rules`] | whether an answer may be stored, for how long and for whom ([`judge`]); whether a stored one may be used ([`Life::state`]) |
//! | [`vary`] | which requests an answer is for |
//! | [`update`] | what a 304, or the answer to a HEAD, changes in a stored answer; which stored answers a write outdates |
//! | [`conditions`] | what a client gets of a stored answer: all of it, a part, or 304 |
//! | [`status`] | how the client and the operator are told: `Cache-Status` (RFC 9211) and the [`Reason`] |
//!
//! | module | keeps |
//! |---|---|
//! | [`store`] | the answers, within limits |
//! | [`disk`] | those that survive restarts |
//! | [`key`] | nothing: it names what is stored, for requests and for purges |
//! | [`purges`] | what the application has declared outdated |
//! | [`tags`] | nothing: it reads the names by which an application purges answers |
//! | [`flights`] | equal requests that wait for one of them |
//!
//! Times are in milliseconds since 1970, and durations in milliseconds, unless a name says otherwise.
//!
//! Where the RFC leaves a choice, the one is taken that stores less of what is somebody's own. An answer with `Set-Cookie` is
//! never stored. No lifetime is guessed.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod directives;
pub mod disk;
pub mod fields;
pub mod flights;
pub mod key;
pub mod purges;
pub mod rules;
pub mod status;
pub mod store;
pub mod tags;
pub mod update;
pub mod vary;

pub use self::{
    directives::Directives,
    fields::{FieldList, Fields, FieldsMut, Lines},
    rules::{Answer, Asker, Life, Method, Policy, Request, State, Terms, Verdict, Wishes, judge},
    status::{CacheStatus, Forward, Outcome, Reason},
    vary::Vary,
};
