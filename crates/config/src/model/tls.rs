//! `[tls]` and `[certificate.NAME]`, and what listeners and sites say of them.

use std::path::PathBuf;

/// `[tls]`: what all listeners with `tls` have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Private keys are in a process of their own.
    pub key_isolation: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            only_tls13: false,
            key_isolation: true,
        }
    }
}

/// `[certificate.NAME]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificate {
    /// The NAME.
    pub name: String,
    /// The file of the certificate and its intermediate certificates.
    pub chain: PathBuf,
    /// The file of its private key; `None`: it is in the file of `chain`.
    pub key: Option<PathBuf>,
}

impl Certificate {
    /// The file that has the private key.
    pub fn key_file(&self) -> &PathBuf {
        self.key.as_ref().unwrap_or(&self.chain)
    }
}

/// A listener with `tls = true`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerTls {
    /// Index into [`Config::certificates`](super::Config::certificates): the certificate for clients without a known
    /// name. `None`: they are refused.
    pub default_certificate: Option<usize>,
}

/// A site's client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientAuth {
    /// The file of the authorities.
    pub ca: PathBuf,
    /// A client without a certificate is served too.
    pub optional: bool,
}
