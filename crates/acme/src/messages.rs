//! What the manager and the process that talks to authorities say to each other. A message is one packet of JSON.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use weir_sys::message;

/// From the manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAcme {
    /// The first message: the user and group to become; `None`: the ones that it has.
    Become(Option<(u32, u32)>),
    /// The authority, and the account there. Orders that follow are for it.
    Authority {
        /// URL of the directory (RFC 8555 §7.1.1).
        directory: String,
        /// Address to which the authority sends notices about problems.
        email: Option<String>,
        /// Certificates (PEM) that the directory's own server may have; `None`: what the machine trusts.
        ca: Option<String>,
        /// The account, as [`FromAcme::Account`] has it; `None`: a new one.
        account: Option<String>,
        /// The account that one has elsewhere (EAB): the authority's number of its key, and the key (base64url).
        elsewhere: Option<(String, String)>,
    },
    /// Ask when a certificate should be renewed (ARI, RFC 9773).
    WhenToRenew {
        /// The manager's number.
        number: u32,
        /// [`crate::Issued::known_by`]
        known_by: (Vec<u8>, Vec<u8>),
    },
    /// Ask the application at this URL. Answered with [`FromAcme::Answered`].
    Ask {
        /// The manager's number.
        number: u32,
        /// The whole URL.
        url: String,
        /// Time limit, ms.
        limit: u64,
    },
    /// Get a certificate.
    Order(AcmeOrder),
    /// Give the account another key (RFC 8555 §7.3.5). Answered with [`FromAcme::Account`] or [`FromAcme::KeyNotChanged`].
    ChangeKey,
    /// Ask the authority what time it is. Answered with [`FromAcme::Time`].
    Time,
    /// The answer to the challenge with this number is in place.
    Placed(u32),
    /// The answer cannot be put in place.
    NotPlaced {
        /// The number of the challenge.
        number: u32,
        /// The cause.
        cause: String,
    },
}

/// A certificate to get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeOrder {
    /// The manager's number.
    pub number: u32,
    /// Host names and addresses.
    pub names: Vec<String>,
    /// The request (PKCS #10, DER).
    pub csr: Vec<u8>,
    /// How the names are proved.
    pub proof: Proof,
    /// The kind of certificate, as the authority names it.
    pub profile: Option<String>,
    /// Time limit, s.
    pub limit: u64,
    /// The certificate that the new one replaces ([`crate::Issued::known_by`]; RFC 9773 §5).
    pub replaces: Option<(Vec<u8>, Vec<u8>)>,
}

/// How it is proved that a name leads to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// A text at a path, without TLS on port 80 (RFC 8555 §8.3).
    Http01,
    /// A certificate in a handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// A TXT record for each order (RFC 8555 §8.4).
    Dns01,
    /// A TXT record that the operator has set once and for all (draft-ietf-acme-dns-persist).
    DnsPersist01,
}

/// From the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAcme {
    /// The process has given up its rights.
    Ready,
    /// The account, with its key, to be kept.
    Account(String),
    /// The account keeps its key, for this reason.
    KeyNotChanged(String),
    /// The answer to a challenge is to be put in place, which [`ToAcme::Placed`] confirms.
    Challenge {
        /// The order.
        order: u32,
        /// The number of the challenge.
        number: u32,
        /// The answer.
        answer: ChallengeAnswer,
    },
    /// The TXT records that the operator must set, for [`Proof::DnsPersist01`].
    Persistent {
        /// The order.
        order: u32,
        /// Names and values.
        records: Vec<(String, String)>,
    },
    /// The certificate and those of its authorities (PEM).
    Obtained {
        /// The order.
        order: u32,
        /// The text.
        chain: String,
    },
    /// There is no certificate.
    Failed {
        /// The order.
        order: u32,
        /// The cause.
        message: String,
        /// The authority has said no; otherwise it was not reached or is in trouble.
        is_refused: bool,
    },
    /// A certificate should be renewed between these times (seconds since 1970).
    Renew {
        /// As in the question.
        number: u32,
        /// From here
        start: i64,
        /// to here.
        end: i64,
        /// The question should be repeated in so many seconds.
        again: u64,
    },
    /// What time it is, as the authority has just said (`Date`, RFC 9110 §6.6.1; seconds since 1970); `None`: it was asked, and has
    /// not said. It comes before what becomes of an order.
    Time(Option<i64>),
    /// The status of the application's answer, or why there is none.
    Answered {
        /// As in the question.
        number: u32,
        /// The status (RFC 9110 §15).
        status: Result<u16, String>,
    },
    /// The process ends, for this reason.
    Unfit(String),
}

/// What proves a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeAnswer {
    /// The host name.
    pub name: String,
    /// The last part of the path.
    pub token: String,
    /// The text at that path.
    pub text: String,
    /// The certificate for the handshake and its key (DER), for [`Proof::TlsAlpn01`]. The key is of no use for anything else.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Name and value of a TXT record, for [`Proof::Dns01`].
    pub record: Option<(String, String)>,
}

/// Sends a message; `waits`: until there is room for it.
///
/// # Errors
/// As sendmsg(2).
pub fn send(socket: BorrowedFd<'_>, message: &impl Serialize, waits: bool) -> io::Result<()> {
    let packet = serde_json::to_vec(message)?;
    message::send(socket.as_fd(), &packet, &[], waits)
}

/// Receives a message; `waits`: until there is one. `None`: the other side has ended.
///
/// # Errors
/// As recvmsg(2); if it is no message.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>, waits: bool) -> io::Result<Option<T>> {
    let mut packet = vec![0; MAX_PACKET];
    match message::receive(socket, &mut packet, waits)? {
        (0, _) => Ok(None),
        (length, _) => Ok(Some(serde_json::from_slice(&packet[..length])?)),
    }
}

/// Bytes of the longest packet.
const MAX_PACKET: usize = 160 * 1024;
