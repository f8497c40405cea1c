//! What a gateway gets for TLS: certificates, authorities of clients, its channels to the keeper, and keys of tickets.

use std::{collections::BTreeMap, fmt, os::fd::OwnedFd, path::PathBuf};

/// Everything that TLS needs besides the configuration.
#[derive(Debug, Default)]
pub struct TlsGiven {
    /// Certificates and authorities.
    pub files: TlsFiles,
    /// If the gateway has its keys itself: index into `Config::certificates`, and the files of chain and key.
    pub pairs: Vec<(u32, OwnedFd, OwnedFd)>,
    /// By reactor: its channel to the keeper.
    pub signers: Vec<(u16, OwnedFd)>,
    /// The keys of tickets.
    pub tickets: TicketSecrets,
    /// What HTTP/3 needs.
    pub quic: QuicGiven,
}

/// What a gateway gets for QUIC; empty if no listener has HTTP/3.
#[derive(Debug, Default)]
pub struct QuicGiven {
    /// The number of this gateway, and the secret of the IDs of connections.
    pub secret: Option<(u32, TicketSecrets)>,
    /// UDP sockets: index into `Config::listeners`, reactor, socket.
    pub sockets: Vec<(u16, u16, OwnedFd)>,
    /// The inboxes of this gateway, by reactor.
    pub inboxes: Vec<(u16, OwnedFd)>,
    /// Outboxes to the reactors of this and earlier gateways, by gateway and reactor.
    pub outboxes: Vec<(u32, u16, OwnedFd)>,
}

/// Certificates whose keys the keeper has, and the authorities of clients.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates (DER) in the files of `client_ca`, by their paths as seen from outside.
    pub authorities: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    /// The certificates.
    pub certificates: Vec<GivenCertificate>,
    /// Indices of those that are not used any more.
    pub gone: Vec<u32>,
}

/// A certificate whose key the keeper has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenCertificate {
    /// Index into `Config::certificates`; those that were got on demand have the numbers behind.
    pub index: u32,
    /// The keeper's number of its key.
    pub key: u32,
    /// The certificate and those of its authorities (DER).
    pub chain: Vec<Vec<u8>>,
}

/// The keys of session tickets, the current one first.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct TicketSecrets {
    /// Each: its name, then the key itself.
    pub keys: Vec<Vec<u8>>,
}

/// Prints no key.
impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecrets")
            .field("keys", &self.keys.len())
            .finish()
    }
}

/// What proves to authorities that names lead here: all that is in force.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Challenges {
    /// The answers.
    pub list: Vec<GivenChallenge>,
}

/// The answer to a challenge (RFC 8555 §8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenChallenge {
    /// The host name.
    pub name: String,
    /// The last part of the path below `/.well-known/acme-challenge/`.
    pub token: String,
    /// The text at that path.
    pub text: String,
    /// The certificate for a handshake (RFC 8737) and its key (DER).
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// The state of all orders for certificates.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CertificateOrders {
    /// One for each certificate of the configuration, and those on demand whose last order has failed.
    pub list: Vec<CertificateOrder>,
    /// The certificates on demand.
    pub demand: Option<DemandReport>,
}

/// The state of certificates on demand. Counts are from the manager's start on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DemandReport {
    /// Certificates that are there.
    pub kept: u64,
    /// As many there may be.
    pub most: u64,
    /// Names that are asked for or ordered at the moment.
    pub pending: u64,
    /// Names that the application allowed.
    pub allowed: u64,
    /// Names that the application refused.
    pub refused: u64,
    /// Questions that the application did not answer.
    pub unanswered: u64,
    /// Names that were refused because of a limit.
    pub limited: u64,
    /// Orders that were successful, and that were not.
    pub done: u64,
    pub failed: u64,
    /// Certificates that ended because the application refused to renew them, or nobody could.
    pub lapsed: u64,
    /// When the first of them expires (seconds since 1970); 0: there is none.
    pub first_end: u64,
    /// Why the last question was not answered.
    pub error: Option<String>,
}

/// The orders of a certificate. Times are seconds since 1970.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CertificateOrder {
    /// Name of the certificate.
    pub name: String,
    /// It was got on demand, and is not in the configuration.
    pub on_demand: bool,
    /// When it is to be renewed; 0: there is no certificate yet.
    pub renew_at: u64,
    /// Orders that were successful since the manager's start.
    pub done: u64,
    /// Orders that have failed since the manager's start.
    pub failed: u64,
    /// Orders that have failed since the last successful one.
    pub failures: u32,
    /// Why the last one has failed; `None`: it did not.
    pub error: Option<String>,
    /// When that was.
    pub failed_at: u64,
    /// When the next order is made.
    pub next: u64,
}
