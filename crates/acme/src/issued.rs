//! What the folder has of a certificate: read from its chain, which is public.

use std::{collections::BTreeSet, fs, io::Read, path::Path};

use rustls_pki_types::{CertificateDer, pem::PemObject};
use weir_tls::x509::Parsed;

use crate::State;

/// A certificate in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The names and addresses for which it is.
    pub names: BTreeSet<String>,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
    /// Its subject (RFC 4514).
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
    /// The identifier of the authority's key, and the serial number: what an authority knows it by.
    pub known_by: (Vec<u8>, Vec<u8>),
    /// DER.
    pub der: Vec<u8>,
}

impl Issued {
    /// The first certificate of a file (PEM). `None`: there is no file, or no certificate in it.
    pub fn read(chain: &Path) -> Option<Issued> {
        let mut text = Vec::new();
        let file = fs::File::open(chain).ok()?;
        file.take(MAX_FILE).read_to_end(&mut text).ok()?;
        Issued::of(&text)
    }

    /// The first certificate of a text (PEM).
    pub fn of(text: &[u8]) -> Option<Issued> {
        let der = CertificateDer::from_pem_slice(text).ok()?;
        let leaf = Parsed::read(&der).ok()?;
        let addresses = leaf.addresses.iter().map(ToString::to_string);
        Some(Issued {
            names: leaf.dns.iter().cloned().chain(addresses).collect(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            subject: leaf.subject(),
            issuer: leaf.issuer(),
            known_by: (leaf.authority_key.to_vec(), leaf.serial.to_vec()),
            der: der.to_vec(),
        })
    }

    /// When it is to be renewed: at two thirds of its life (seconds since 1970).
    pub fn renew_at(&self) -> i64 {
        self.not_before + (self.not_after - self.not_before) / 3 * 2
    }

    /// The same if the authority has advised a time: then, but before the last tenth of its life.
    pub fn renew_as_advised(&self, advised: Option<i64>) -> i64 {
        let last = self.not_after - (self.not_after - self.not_before) / 10;
        advised.map_or_else(|| self.renew_at(), |advised| advised.min(last))
    }

    /// The same, with the data from the file beside it.
    pub fn renew_with(&self, state: Option<&State>) -> i64 {
        let advised = state.and_then(|state| state.advised.as_ref());
        let advised = advised.filter(|(serial, _)| *serial == self.serial());
        self.renew_as_advised(advised.map(|(_, at)| *at))
    }

    /// Its serial number, hexadecimal.
    pub fn serial(&self) -> String {
        let bytes = self.known_by.1.iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether a certificate is for exactly these names.
pub fn is_issued(issued: &Issued, names: &[String]) -> bool {
    issued.names.len() == names.len() && names.iter().all(|name| issued.names.contains(name))
}

/// Bytes of a chain, at most.
const MAX_FILE: u64 = 256 * 1024;
