//! Certificates that weir gets by itself: the process that talks to authorities ([`run`]), and the folder where certificates are
//! kept, which several nodes may share.
//!
//! ```text
//! CERTIFICATES/
//! ├── local-ca/    root.pem, key.pem: the authority for names that no public one signs
//! ├── NAME/        chain.pem, key.pem, meta.json: the certificate of a site, and the last error; NAME is its first host
//! ├── accounts/    accounts at authorities, with their keys
//! └── locks/       who makes or renews what at the moment
//! ```
//! Files are replaced as a whole ([`Draft`]): a reader sees the earlier one or the new one. Keys are for their owner alone. Who
//! makes something holds its [`Lock`]; the lock of a node that was killed ends by itself.
//!
//! Nothing here reads the private key of a server.
#![forbid(unsafe_code)]

mod http;
mod issued;
mod lock;
mod messages;
mod process;
mod state;
mod store;

pub use self::{
    issued::{Issued, is_issued},
    lock::{Lock, now},
    messages::{AcmeOrder, ChallengeAnswer, FromAcme, Proof, ToAcme, receive, send},
    process::{ROLE, is_acme, run},
    state::State,
    store::{Draft, Store},
};
