//! Certificates that weir gets by itself: the folder where they are kept, which several nodes may share.
//!
//! ```text
//! CERTIFICATES/
//! ├── local-ca/    root.pem, key.pem: the authority for names that no public one signs
//! ├── NAME/        chain.pem, key.pem: the certificate of a site; NAME is its first host
//! └── locks/       who makes or renews what at the moment
//! ```
//! Files are replaced as a whole ([`Draft`]): a reader sees the earlier one or the new one. Keys are for their owner alone. Who
//! makes something holds its [`Lock`]; the lock of a node that was killed ends by itself.
//!
//! Nothing here reads a private key.
#![forbid(unsafe_code)]

mod issued;
mod lock;
mod store;

pub use self::{
    issued::{Issued, is_issued},
    lock::Lock,
    store::{Draft, Store},
};
