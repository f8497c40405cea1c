//! The certificates of a gateway, by name.
//!
//! A table is not changed: a message replaces it as a whole. Running handshakes keep the table with which they began.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use rustls::{
    SignatureScheme,
    sign::{CertifiedKey, SigningKey},
};
use rustls_pki_types::CertificateDer;

use crate::x509::Parsed;

/// A certificate that a gateway can use.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Index into the configuration's certificates.
    pub index: usize,
    /// The certificate and those of its authorities.
    pub chain: Vec<CertificateDer<'static>>,
    /// Signs for it.
    pub key: Arc<dyn SigningKey>,
}

/// All certificates, by name.
#[derive(Debug, Default)]
pub struct Table {
    /// By their index in the configuration.
    certificates: Vec<Option<Arc<CertifiedKey>>>,
    names: HashMap<Box<str>, Few>,
    /// By the part after the star: `shop.example` for `*.shop.example`.
    wildcards: HashMap<Box<str>, Few>,
    addresses: HashMap<IpAddr, Few>,
    /// From when and until when they are valid, by their index in the configuration (seconds since 1970).
    validity: Vec<Option<(i64, i64)>>,
}

/// Indices of the certificates for a name: nearly always one.
#[derive(Debug)]
enum Few {
    One(u32),
    More(Vec<u32>),
}

impl Table {
    /// This table with other certificates in the place of some, and without those with the indices `gone`.
    pub fn with(&self, changed: Vec<Entry>, gone: &[usize]) -> Table {
        let mut certificates = self.certificates.clone();
        for index in gone {
            if let Some(certificate) = certificates.get_mut(*index) {
                *certificate = None;
            }
        }
        for Entry { index, chain, key } in changed {
            if certificates.len() <= index {
                certificates.resize(index + 1, None);
            }
            certificates[index] = Some(Arc::new(CertifiedKey::new(chain, key)));
        }
        let mut table = Table {
            certificates,
            ..Table::default()
        };
        for index in 0..table.certificates.len() {
            table.add_names(index);
        }
        table
    }

    fn add_names(&mut self, index: usize) {
        let Some(certificate) = self.certificates[index].clone() else {
            return;
        };
        let Some(Ok(leaf)) = certificate.cert.first().map(|leaf| Parsed::read(leaf)) else {
            return;
        };
        self.validity.resize(self.certificates.len(), None);
        self.validity[index] = Some((leaf.not_before, leaf.not_after));
        let index = index as u32;
        for name in &leaf.dns {
            let (names, name) = match name.strip_prefix("*.") {
                Some(rest) => (&mut self.wildcards, rest),
                None => (&mut self.names, &name[..]),
            };
            match names.get_mut(name) {
                Some(few) => few.add(index),
                None => drop(names.insert(name.into(), Few::One(index))),
            }
        }
        for address in &leaf.addresses {
            match self.addresses.get_mut(address) {
                Some(few) => few.add(index),
                None => drop(self.addresses.insert(*address, Few::One(index))),
            }
        }
    }

    /// The certificate with this index of the configuration.
    pub fn get(&self, index: usize) -> Option<Arc<CertifiedKey>> {
        self.certificates.get(index)?.clone()
    }

    /// From when and until when the certificate with this index is valid (seconds since 1970).
    pub fn validity(&self, index: usize) -> Option<(i64, i64)> {
        *self.validity.get(index)?
    }

    /// The same of the first certificate for exactly this host (in lower case).
    pub fn validity_of(&self, host: &str) -> Option<(i64, i64)> {
        let index = match self.names.get(host)? {
            Few::One(one) => *one,
            Few::More(more) => *more.first()?,
        };
        self.validity(index as usize)
    }

    /// The certificate for a host (in lower case), exact before wildcard; of several, the first that can sign with one of
    /// `schemes`.
    pub fn find(&self, host: &str, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let exact = || self.names.get(host);
        // A star stands for one label (RFC 9525 §6.3).
        let wildcard = || self.wildcards.get(host.split_once('.')?.1);
        self.choose(exact().or_else(wildcard)?, schemes)
    }

    /// The certificate for an address.
    pub fn find_address(
        &self,
        address: IpAddr,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.choose(self.addresses.get(&address.to_canonical())?, schemes)
    }

    fn choose(&self, few: &Few, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let indices = match few {
            Few::One(one) => return self.get(*one as usize),
            Few::More(more) => more,
        };
        let mut all = indices.iter().filter_map(|index| self.get(*index as usize));
        let fits = |one: &Arc<CertifiedKey>| one.key.choose_scheme(schemes).is_some();
        all.clone().find(fits).or_else(|| all.next())
    }
}

impl Few {
    fn add(&mut self, index: u32) {
        match self {
            Few::One(one) if *one == index => {}
            Few::One(one) => *self = Few::More(vec![*one, index]),
            Few::More(more) if more.contains(&index) => {}
            Few::More(more) => more.push(index),
        }
    }
}
