//! The certificates of a generation: given to the keeper and to gateways, and given again when their files change.
//!
//! The manager opens the files with its own rights, but does not read them. The keeper reads them and returns the
//! chain, which is public. With `key_isolation = false` the gateway gets the open files instead. weir checks for
//! changed files ([`changes`]) several times a second. If a chain and its key do not fit together, somebody is usually
//! just writing them, so weir tries again before it reports this.

pub(crate) mod acme;
mod changes;
mod installed;
pub(crate) mod keeper;
pub(crate) mod local_ca;
mod prepare;
mod reading;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::{GivenCertificate, TlsFiles, ToGateway};
use weir_sys::memory;

pub(super) use self::installed::open_pair;
use self::{
    changes::Changes,
    installed::{Installed, files_of},
    prepare::Stage,
    reading::Reading,
};
use crate::certificates::{acme::Demanded, keeper::Keeper, local_ca::LocalCertificates};

/// The certificates of a configuration with TLS.
#[derive(Debug)]
pub(super) struct Certificates {
    keeper: Rc<RefCell<Keeper>>,
    /// The keeper has the keys; otherwise gateways have them.
    is_isolated: bool,
    reactors: u16,
    list: Vec<Installed>,
    /// Places in `list` of certificates on demand, by name: behind those of the configuration. `None`: there are none.
    demanded: Option<HashMap<String, usize>>,
    /// Places in `list` that are free again.
    free: Vec<usize>,
    /// The certificates of `list` that weir's local authority signs.
    local: Option<LocalCertificates>,
    /// How far its preparation is.
    stage: Stage,
    /// All, for a new keeper.
    anew: Option<Reading>,
    /// The certificates whose files have changed.
    changed: Option<Reading>,
    /// New certificates on demand.
    come: Vec<Reading>,
    /// The certificates in the files of `client_ca`.
    authorities: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    look_at: Instant,
    changes: Changes,
    /// [`Keeper::starts`] of the keeper that has its keys or is being given them.
    keeper_starts: u64,
    /// [`Tickets::turns`](crate::certificates::keeper::Tickets::turns) that the gateway knows of.
    ticket_turns: u64,
}

impl Certificates {
    /// The messages for a gateway that starts.
    pub(super) fn messages(&mut self) -> Result<Vec<ToGateway>, String> {
        let all: Vec<usize> = (0..self.list.len()).collect();
        let mut messages = self.given(&all, self.authorities.clone())?;
        messages.extend(self.signers()?);
        let tickets = &self.keeper.borrow().tickets;
        self.ticket_turns = tickets.turns();
        messages.push(ToGateway::TicketKeys(tickets.keys()));
        Ok(messages)
    }

    /// The messages for QUIC, for a gateway that starts with so many reactors that read UDP sockets.
    pub(super) fn quic(&self, reactors: u16) -> Result<Vec<ToGateway>, String> {
        self.keeper.borrow_mut().quic.messages(reactors)
    }

    /// The messages with these certificates.
    fn given(
        &self,
        indices: &[usize],
        authorities: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    ) -> Result<Vec<ToGateway>, String> {
        let mut files = TlsFiles {
            authorities,
            certificates: Vec::new(),
            gone: Vec::new(),
        };
        let mut messages = Vec::new();
        for index in indices {
            let number = *index as u32;
            match &self.list[*index].held {
                Some(held) => files.certificates.push(GivenCertificate {
                    index: number,
                    key: held.0.number,
                    chain: held.1.clone(),
                }),
                None if self.is_isolated => {}
                None => {
                    let Ok((chain, key)) = self.list[*index].open() else {
                        continue;
                    };
                    messages.extend([
                        ToGateway::CertificateChain {
                            index: number,
                            file: chain.into(),
                        },
                        ToGateway::CertificateKey {
                            index: number,
                            file: key.into(),
                        },
                    ]);
                }
            }
        }
        let encoded =
            memory::file(c"certificates", &files.encode()).map_err(|error| error.to_string())?;
        messages.push(ToGateway::Certificates(encoded));
        Ok(messages)
    }

    /// The messages with new channels to the keeper.
    fn signers(&self) -> Result<Vec<ToGateway>, String> {
        if !self.is_isolated {
            return Ok(Vec::new());
        }
        let mut keeper = self.keeper.borrow_mut();
        if keeper.pid().is_none() {
            // The gateway starts without channels, and gets them when there is a keeper again.
            return Ok(Vec::new());
        }
        let channels = (0..self.reactors).map(|reactor| {
            let socket = keeper.connect()?;
            Ok(ToGateway::Signer { reactor, socket })
        });
        channels.collect()
    }

    /// Looks at the files, the keeper and the keys of tickets. Returns what the gateway must know. `looks`: the generation
    /// serves, so its files count.
    pub(super) fn tick(&mut self, now: Instant, looks: bool) -> Vec<ToGateway> {
        let mut messages = Vec::new();
        let (starts, turns, runs) = {
            let keeper = self.keeper.borrow();
            (
                keeper.starts(),
                keeper.tickets.turns(),
                keeper.pid().is_some(),
            )
        };
        if turns != self.ticket_turns {
            self.ticket_turns = turns;
            messages.push(ToGateway::TicketKeys(self.keeper.borrow().tickets.keys()));
        }
        if self.is_isolated && runs && starts != self.keeper_starts {
            // A new keeper has no keys yet.
            self.keeper_starts = starts;
            self.anew = Some(self.read(0..self.list.len()));
        }
        messages.extend(self.given_anew());
        if let Some(local) = &mut self.local {
            if looks && local.tick(now) {
                self.look_at = now;
            } else if !looks && self.stage.is_done() {
                local.give_up();
            }
        }
        if looks && now >= self.look_at && self.changed.is_none() {
            self.look_at = now
                + match self.changes.unwatched() {
                    0..=MANY => LOOK_EVERY,
                    _ => LOOK_AT_MANY_EVERY,
                };
            self.changed = self.look();
        }
        messages.extend(self.have_changed());
        messages.extend(self.have_come());
        messages
    }

    /// The messages when a new keeper has the keys.
    fn given_anew(&mut self) -> Vec<ToGateway> {
        let Some(reading) = self.anew.take_if(|reading| reading.is_over()) else {
            return Vec::new();
        };
        let given = self.results(reading).and_then(|results| {
            for (index, result) in &results {
                if let Err(refused) = result {
                    log::error!(
                        "{}; clients cannot get this certificate",
                        self.list[*index].said(refused)
                    );
                    // Its files are read again when they have changed.
                    self.list[*index].files = self.list[*index].stamps();
                }
            }
            let all: Vec<usize> = (0..self.list.len()).collect();
            let mut messages = self.given(&all, BTreeMap::new())?;
            messages.extend(self.signers()?);
            Ok(messages)
        });
        match given {
            Ok(messages) => {
                log::info!("the keeper has the private keys again");
                messages
            }
            Err(error) => {
                // The next keeper tries this again.
                self.keeper.borrow().end();
                log::error!("the keeper cannot be given the private keys: {error}");
                Vec::new()
            }
        }
    }

    /// Starts reading the certificates whose files have changed.
    fn look(&mut self) -> Option<Reading> {
        let list = &self.list;
        let changed = self.changes.take(list.len() as u32, &files_of(list));
        let changed = changed.into_iter();
        let changed = changed.map(|number| number as usize);
        let changed: Vec<usize> = changed
            .filter(|index| self.list[*index].has_changed())
            .collect();
        for index in &changed {
            self.changes.look_again(*index as u32);
        }
        (!changed.is_empty()).then(|| self.read(changed))
    }

    /// The messages when changed certificates were read.
    fn have_changed(&mut self) -> Vec<ToGateway> {
        let Some(reading) = self.changed.take_if(|reading| reading.is_over()) else {
            return Vec::new();
        };
        let stamps = reading.stamps();
        let Ok(results) = self.results(reading) else {
            return Vec::new();
        };
        let mut good = Vec::new();
        for (index, result) in results {
            match result {
                Ok(()) => {
                    log::info!(
                        "[certificate.{}]: its files have changed and are used from now on",
                        self.list[index].name
                    );
                    good.push(index);
                }
                Err(refused) => {
                    let stamps = stamps.get(&index).copied().flatten();
                    self.list[index].is_bad(stamps, &refused);
                }
            }
        }
        if good.is_empty() {
            return Vec::new();
        }
        self.given(&good, BTreeMap::new()).unwrap_or_else(|error| {
            log::error!("the gateway cannot be given changed certificates: {error}");
            Vec::new()
        })
    }

    /// Something has become of a name on demand. Returns what the gateway must know.
    pub(super) fn demanded(&mut self, what: &Demanded) -> Vec<ToGateway> {
        let Some(known) = &mut self.demanded else {
            return Vec::new();
        };
        match what {
            Demanded::Refused { name, pause } => vec![ToGateway::CertificateRefused {
                name: name.clone(),
                pause: u32::try_from(pause.as_secs()).unwrap_or(u32::MAX),
            }],
            Demanded::Gone { name } => {
                let Some(index) = known.remove(name) else {
                    return Vec::new();
                };
                self.list[index] =
                    Installed::of_files(("", Path::new(""), Path::new("")), &HashMap::new());
                self.free.push(index);
                self.without(index)
            }
            Demanded::Ready { name, chain, key } => {
                let index = known.get(name).copied();
                let index = index.or_else(|| self.free.pop());
                let index = index.unwrap_or(self.list.len());
                known.insert(name.clone(), index);
                if index == self.list.len() {
                    self.list
                        .push(Installed::of_files((name, chain, key), &HashMap::new()));
                } else if self.list[index].chain != *chain {
                    self.list[index] = Installed::of_files((name, chain, key), &HashMap::new());
                }
                self.use_demanded(index)
            }
        }
    }

    /// Gives the gateway a certificate on demand, which may be new, as soon as it is read.
    fn use_demanded(&mut self, index: usize) -> Vec<ToGateway> {
        self.changes.watch_one(index as u32, &files_of(&self.list));
        if self.list[index].files.is_none() || self.list[index].has_changed() {
            self.come.push(self.read([index]));
            return self.have_come();
        }
        self.give_demanded(index)
    }

    /// The messages when certificates on demand were read.
    fn have_come(&mut self) -> Vec<ToGateway> {
        let mut messages = Vec::new();
        let come: Vec<Reading> = self.come.extract_if(.., |one| one.is_over()).collect();
        for reading in come {
            let results = self.results(reading).unwrap_or_else(|cause| {
                log::error!("the keeper cannot be given a private key: {cause}");
                Vec::new()
            });
            for (index, result) in results {
                if let Err(refused) = result {
                    // If this does not change, the regular check of the files reports it.
                    log::warn!("{}", self.list[index].said(&refused));
                }
                messages.extend(self.give_demanded(index));
            }
        }
        messages
    }

    fn give_demanded(&self, index: usize) -> Vec<ToGateway> {
        self.given(&[index], BTreeMap::new())
            .unwrap_or_else(|error| {
                log::error!("the gateway cannot be given a certificate on demand: {error}");
                Vec::new()
            })
    }

    /// The message that a certificate is not used any more.
    fn without(&self, index: usize) -> Vec<ToGateway> {
        let files = TlsFiles {
            gone: vec![index as u32],
            ..TlsFiles::default()
        };
        let encoded = memory::file(c"certificates", &files.encode());
        match encoded {
            Ok(file) => vec![ToGateway::Certificates(file)],
            Err(error) => {
                log::error!("the gateway cannot be told of a certificate that has ended: {error}");
                Vec::new()
            }
        }
    }

    /// The gateway says that the keeper does not answer.
    pub(super) fn replace_keeper(&self, now: Instant) {
        self.keeper.borrow_mut().replace(now);
    }

    /// When [`tick`](Self::tick) has something to do besides what the keeper's answers bring. `looks`: as there.
    pub(super) fn deadline(&self, now: Instant, looks: bool) -> Option<Instant> {
        let mut read = self.anew.iter().chain(&self.changed).chain(&self.come);
        if read.any(Reading::is_over) {
            return Some(now);
        }
        let local = self.local.as_ref().map(LocalCertificates::deadline);
        looks.then(|| local.into_iter().fold(self.look_at, Instant::min))
    }
}

/// How often files are looked at: a change is used within a second.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// The same if more than [`MANY`] certificates are looked at each time, because that costs two system calls for each of them.
const LOOK_AT_MANY_EVERY: Duration = Duration::from_millis(900);
const MANY: usize = 1000;
