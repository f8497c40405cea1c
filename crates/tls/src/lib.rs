//! TLS of clients, around rustls: which certificate a client gets, which process signs, and the bytes of a connection.
//!
//! Nothing here reads a socket. [`Session`] takes received bytes and returns bytes to send; `weir_net::Socket` moves
//! them. [`Server`] is what all connections of a gateway share: the [`Table`] of certificates, which is replaced as a
//! whole, the keys of tickets, and the settings of sites. [`Pair`] reads the files of a certificate, for the keeper,
//! for `weir check` and for a gateway that has its keys itself. [`Signers`] asks the keeper for signatures.
//!
//! Read first: [`server`](Server), then [`session`](Session).
#![forbid(unsafe_code)]

mod challenges;
mod demand;
mod hello;
mod kind;
mod pair;
pub mod quic;
mod server;
mod session;
mod signers;
mod signing;
mod table;
mod tickets;
pub mod x509;

use std::sync::{Arc, OnceLock};

use ::aws_lc_rs::digest as aws_digest;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use self::{
    challenges::{Challenge, Challenges},
    demand::Demand,
    kind::{KeyKind, may_sign},
    pair::Pair,
    server::{Choice, ClientAuthority, Counts, Listener, Server, Sites},
    session::{Broken, ClientCertificate, Info, Session},
    signers::{Answer, Question, Signers},
    table::{Entry, Table},
    tickets::{TICKET_KEY, TicketKeys},
};
pub use rustls::{SignatureScheme, sign::SigningKey};

/// The cryptography of all of weir: AWS-LC, with the group X25519MLKEM768 first.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER
        .get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
        .clone()
}

/// Lets the library collect the entropy for its random numbers now. Otherwise it does so for the first key.
///
/// # Errors
/// If the kernel has none.
pub fn collect_noise() -> Result<(), String> {
    random(&mut [0])
}

/// Fills `bytes` with random numbers, without a system call for each.
fn random(bytes: &mut [u8]) -> Result<(), String> {
    provider()
        .secure_random
        .fill(bytes)
        .map_err(|_| "the kernel gives no random numbers".to_owned())
}

/// The SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(aws_digest::digest(&aws_digest::SHA256, bytes).as_ref());
    digest
}
