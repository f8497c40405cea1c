//! Certificates that weir gets by itself: the process that talks to authorities ([`run`]), and the folder where certificates are
//! kept, which several nodes may share.
//!
//! ```text
//! CERTIFICATES/
//! ├── local-ca/    root.pem, key.pem: the authority for names that no public one signs
//! ├── NAME/        chain.pem, key.pem, meta.json: the certificate of a site, and the last error; NAME is its first host
//! ├── on-demand/   NAME/ for each certificate on demand
//! ├── accounts/    accounts at authorities, with their keys
//! ├── challenges/  answers to challenges of authorities, which all nodes give
//! ├── nodes/       which nodes there are
//! └── locks/       who makes or renews what at the moment
//! ```
//! Files are replaced as a whole ([`Draft`]): a reader sees the earlier one or the new one. Keys are for their owner
//! alone. A node that makes something holds its [`Lock`]; the lock of a killed node expires. Key and chain become one
//! pair ([`install_pair`]), also if their writer is killed.
//!
//! Nothing here reads the private key of a server.
#![forbid(unsafe_code)]

mod ask;
mod http;
mod issued;
mod lock;
mod messages;
mod process;
mod shared;
mod state;
mod store;

pub use self::{
    issued::{Issued, is_issued},
    lock::{Lock, now},
    messages::{AcmeOrder, ChallengeAnswer, FromAcme, Proof, ToAcme, receive, send},
    process::{ROLE, is_acme, run},
    shared::{Node, SEEN_EVERY, SharedAnswer, SharedChallenges},
    state::State,
    store::{Draft, Store, finish_pair, install_pair, is_pair_unfinished},
};
