//! Certificates that are being read from their files: by the keeper, which answers later, or by the gateway, which gets the files.

use std::{collections::HashMap, path::PathBuf};

use super::{Certificates, installed::Stamps};
use crate::certificates::keeper::{Answer, InstalledCertificate, Refused};

/// Certificates that are being read.
#[derive(Debug, Default)]
pub(super) struct Reading(Vec<Read>);

/// A certificate that was read.
#[derive(Debug)]
struct Read {
    /// Its place in the list, and its file, because the place may get another certificate meanwhile.
    index: usize,
    chain: PathBuf,
    /// Its files, as they were before they were opened.
    stamps: Option<Stamps>,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Keeper(Answer<Result<InstalledCertificate, Refused>>),
    /// Whether its files could be opened.
    Gateway(Result<(), Refused>),
}

/// The results for certificates, by their places in the list.
pub(super) type Results = Vec<(usize, Result<(), Refused>)>;

impl Reading {
    /// Whether all results are there.
    pub(super) fn is_over(&self) -> bool {
        self.0.iter().all(|read| match &read.reader {
            Reader::Keeper(answer) => answer.is_there(),
            Reader::Gateway(_) => true,
        })
    }

    /// The files that are read.
    pub(super) fn stamps(&self) -> HashMap<usize, Option<Stamps>> {
        self.0
            .iter()
            .map(|read| (read.index, read.stamps))
            .collect()
    }
}

impl Certificates {
    /// Begins to read these certificates from their files.
    pub(super) fn read(&self, indices: impl IntoIterator<Item = usize>) -> Reading {
        let mut keeper = self.keeper.borrow_mut();
        let read = |index: usize| {
            let one = &self.list[index];
            let stamps = one.stamps();
            let reader = match self.is_isolated {
                true => Reader::Keeper(keeper.load(one.chain.clone(), one.key.clone())),
                false => Reader::Gateway(one.open().map(drop)),
            };
            Read {
                index,
                chain: one.chain.clone(),
                stamps,
                reader,
            }
        };
        Reading(indices.into_iter().map(read).collect())
    }

    /// Uses what was read. What cannot be used stays as it was.
    ///
    /// # Errors
    /// If the keeper is gone.
    pub(super) fn results(&mut self, reading: Reading) -> Result<Results, String> {
        let mut results = Vec::with_capacity(reading.0.len());
        for read in reading.0 {
            let result = match read.reader {
                Reader::Gateway(opened) => opened.map(|()| None),
                Reader::Keeper(answer) => match answer.take() {
                    Some(answer) => answer?.map(Some),
                    None => continue,
                },
            };
            let one = &mut self.list[read.index];
            if one.chain == read.chain {
                let result = result.map(|held| one.install(read.stamps, held));
                results.push((read.index, result));
            }
        }
        Ok(results)
    }
}
