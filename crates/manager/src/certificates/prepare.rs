//! Prepares the certificates of a new generation: existing ones must be valid, and those of the local authority are
//! made.
//!
//! ```text
//! Checking ── all read ──► Prepared ── make() ──► Making ── all made ──► Reading ── all read ──► Done
//!                                                    ▲                      │
//!                                                    └── the keeper refuses one that can be made again
//! ```
//! The keeper works meanwhile and this thread does not wait for it: [`Certificates::check`] and [`Certificates::make`] are
//! called again until they have a result.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    rc::Rc,
    time::Instant,
};

use weir_acme::Store;
use weir_config::{Certificate, Config, Issuer};
use weir_control::ToGateway;
use weir_sys::memory;
use weir_tls::ClientAuthority;

use super::{
    Certificates, Changes, Installed, LocalCertificates, Reading, files_of,
    installed::{ByFiles, open_file},
};
use crate::{
    certificates::{
        acme::in_folder,
        keeper::{Answer, Keeper, Refused},
    },
    generation::plan::{Plan, Problem, find_program},
};

/// How far the preparation is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The keeper starts, and reads what is there.
    Checking {
        is_ready: Answer<()>,
        reading: Reading,
        /// Other problems.
        problems: Vec<Problem>,
    },
    Prepared,
    /// The keeper makes certificates of the local authority.
    Making(Made),
    /// The new certificates are being read.
    Reading(Made, Reading),
    Done,
}

/// The certificates that were made.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The certificates that were read since the check.
    own: Vec<usize>,
    /// Certificates that are made again because they cannot be used.
    again: Option<Vec<(usize, Refused)>>,
}

impl Stage {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Stage::Done)
    }
}

impl Certificates {
    /// Gives all certificates that there are to the keeper; those of `before` that have not changed stay. What is wrong is
    /// told by [`check`](Self::check). `None`: no listener has TLS.
    pub(crate) fn prepare(
        config: &Config,
        plan: &Plan,
        keeper: &Rc<RefCell<Keeper>>,
        before: Option<&Certificates>,
        now: Instant,
    ) -> Option<Certificates> {
        if config
            .listeners
            .iter()
            .all(|listener| listener.tls.is_none())
        {
            return None;
        }
        let mut problems = Vec::new();
        let authorities = authorities(config, &mut problems);
        let is_isolated = config.tls.key_isolation;
        // The keeper also makes the keys of certificates.
        let makes_keys =
            config.certificates.iter().any(|one| one.auto.is_some()) || config.demand().is_some();
        let is_ready = match is_isolated || makes_keys {
            true => keeper.borrow_mut().ensure(&plan.keeper, now),
            false => Answer::of(Ok(())),
        };
        let starts = keeper.borrow().starts();
        let before = before.filter(|before| before.has_keys(starts));
        let list = before.iter().flat_map(|before| &before.list);
        let before: ByFiles<'_> = list.map(|one| ((&*one.chain, &*one.key), one)).collect();
        let mut certificates = Certificates {
            keeper: keeper.clone(),
            is_isolated,
            reactors: plan.reactors.most,
            list: config
                .certificates
                .iter()
                .map(|one| Installed::new(one, &before))
                .collect(),
            demanded: None,
            free: Vec::new(),
            local: None,
            stage: Stage::Prepared,
            anew: None,
            changed: None,
            come: Vec::new(),
            authorities,
            look_at: now,
            changes: Changes::default(),
            keeper_starts: starts,
            ticket_turns: keeper.borrow().tickets.turns(),
        };
        let mut demanded = config.demand().map(|_| HashMap::new());
        for (name, chain, key) in in_folder(config) {
            if let Some(demanded) = &mut demanded {
                demanded.insert(name.clone(), certificates.list.len());
                let one = Installed::of_files((&name, &chain, &key), &before);
                certificates.list.push(one);
            }
        }
        certificates.demanded = demanded;
        let given = |index: &usize| config.certificates.get(*index).is_some_and(is_given);
        let list = certificates.list.iter().enumerate();
        let there =
            list.filter(|(index, one)| one.held.is_none() && (given(index) || one.chain.exists()));
        let there: Vec<usize> = there.map(|(index, _)| index).collect();
        if let Some(program) = config.tls.acme.dns_command.first()
            && certificates.are_ordered(config)
            && let Err(cause) = find_program(program, None)
        {
            let mend = "name a program that is here and may be executed, with its whole path";
            problems.push(Problem::new("tls.acme.dns_command", cause, mend));
        }
        certificates.stage = Stage::Checking {
            is_ready,
            reading: certificates.read(there),
            problems,
        };
        Some(certificates)
    }

    /// Whether it has the keys of the keeper that was started for so many times.
    fn has_keys(&self, starts: u64) -> bool {
        self.is_isolated && self.keeper_starts == starts && self.anew.is_none()
    }

    /// Whether the certificates that there are can be used; `None`: the keeper has not read all of them yet.
    pub(crate) fn check(&mut self, config: &Config) -> Option<Result<(), Vec<Problem>>> {
        let Stage::Checking {
            is_ready, reading, ..
        } = &self.stage
        else {
            return Some(Ok(()));
        };
        if !is_ready.is_there() || !reading.is_over() {
            return None;
        }
        let Stage::Checking {
            is_ready,
            reading,
            mut problems,
        } = std::mem::replace(&mut self.stage, Stage::Prepared)
        else {
            return None;
        };
        let results = is_ready.take().unwrap_or(Ok(()));
        match results.and_then(|()| self.results(reading)) {
            Ok(results) => {
                for (index, result) in results {
                    let is_given = config.certificates.get(index).is_some_and(is_given);
                    if let (Err(refused), true) = (result, is_given) {
                        problems.push(self.list[index].problem(&refused));
                    }
                }
            }
            Err(cause) => problems.push(keeper_problem(cause)),
        }
        Some(match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        })
    }

    /// Waits until it is prepared; `makes`: and made, too. Only while weir starts: then there is nothing else to do.
    pub(crate) fn prepare_now(&mut self, config: &Config, makes: bool) -> Result<(), Vec<Problem>> {
        loop {
            let now = Instant::now();
            let done = match self.check(config) {
                Some(Ok(())) if makes => self.make(config, now).map(|made| made.map(drop)),
                checked => checked,
            };
            match done {
                Some(done) => return done,
                None => self.keeper.borrow_mut().wait(now),
            }
        }
    }

    /// Whether the local authority signs this certificate later.
    fn is_late(&self, index: usize) -> bool {
        let local = self.local.as_ref();
        local.is_some_and(|local| local.is_late(&self.list[index].chain))
    }

    /// Makes certificates of the local authority that are missing, and the folder of certificates. Returns the messages for a
    /// gateway that was started before; `None`: the keeper has not made all of them yet.
    pub(crate) fn make(
        &mut self,
        config: &Config,
        now: Instant,
    ) -> Option<Result<Vec<ToGateway>, Vec<Problem>>> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                stage @ Stage::Checking { .. } => {
                    self.stage = stage;
                    return None;
                }
                Stage::Prepared => {
                    if let Err(cause) = self.begin_to_make(config, now) {
                        return Some(Err(vec![unwritable(cause)]));
                    }
                    self.stage = Stage::Making(Made::default());
                }
                Stage::Making(mut made) => {
                    let local = self.local.as_mut();
                    match local.map_or(Ok(true), |local| local.go_on(now)) {
                        Ok(true) => {}
                        Ok(false) => {
                            self.stage = Stage::Making(made);
                            return None;
                        }
                        Err(cause) => return Some(Err(vec![unwritable(cause)])),
                    }
                    let fresh = match &made.again {
                        None => self.own(config),
                        Some(again) => self.made_again(again),
                    };
                    made.own.extend(&fresh);
                    self.stage = Stage::Reading(made, self.read(fresh));
                }
                Stage::Reading(made, reading) if !reading.is_over() => {
                    self.stage = Stage::Reading(made, reading);
                    return None;
                }
                Stage::Reading(made, reading) => match self.is_read(config, made, reading) {
                    Ok(Stage::Reading(made, _)) => {
                        let given = match made.own.is_empty() {
                            true => Ok(Vec::new()),
                            false => self.given(&made.own, BTreeMap::new()),
                        };
                        return Some(given.map_err(|cause| vec![keeper_problem(cause)]));
                    }
                    Ok(stage) => self.stage = stage,
                    Err(problems) => return Some(Err(problems)),
                },
                Stage::Done => return Some(Ok(Vec::new())),
            }
        }
    }

    fn begin_to_make(&mut self, config: &Config, now: Instant) -> Result<(), String> {
        self.local = LocalCertificates::prepare(config, &self.keeper, now)?;
        self.changes
            .begin(self.list.len() as u32, &files_of(&self.list));
        match self.are_ordered(config) {
            true => Store::open(&config.tls.certificates).map(drop),
            false => Ok(()),
        }
    }

    /// Certificates that weir makes, and that must be read.
    fn own(&self, config: &Config) -> Vec<usize> {
        let is_own = |index: &usize| !config.certificates.get(*index).is_some_and(is_given);
        (0..self.list.len())
            .filter(is_own)
            .filter(|index| !self.list[*index].is_current())
            // A certificate that the authority has not signed yet is used as soon as it exists.
            .filter(|index| {
                let comes_later = is_ordered_at(config, *index) || self.is_late(*index);
                !comes_later || self.list[*index].chain.exists()
            })
            .collect()
    }

    /// Certificates that were made again. Others are used as soon as they exist.
    fn made_again(&self, again: &[(usize, Refused)]) -> Vec<usize> {
        let mut fresh = Vec::new();
        for (index, refused) in again {
            match self.is_late(*index) {
                true => log::warn!("{}", self.list[*index].said(refused)),
                false => fresh.push(*index),
            }
        }
        fresh
    }

    /// The results of [`Stage::Reading`]: the next stage, or the same if all is done.
    fn is_read(
        &mut self,
        config: &Config,
        mut made: Made,
        reading: Reading,
    ) -> Result<Stage, Vec<Problem>> {
        let results = self.results(reading);
        let results = results.map_err(|cause| vec![keeper_problem(cause)])?;
        let (mut problems, mut again) = (Vec::new(), Vec::new());
        for (index, result) in results {
            let Err(refused) = result else {
                continue;
            };
            let one = &self.list[index];
            let local = self.local.as_mut().filter(|_| made.again.is_none());
            if is_ordered_at(config, index) {
                one.order_again(&refused);
            } else if local.is_some_and(|local| local.make_again(&one.chain)) {
                again.push((index, refused));
            } else {
                problems.push(one.problem(&refused));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        if again.is_empty() {
            return Ok(Stage::Reading(made, Reading::default()));
        }
        made.again = Some(again);
        Ok(Stage::Making(made))
    }

    /// Whether certificates are ordered from an authority.
    fn are_ordered(&self, config: &Config) -> bool {
        self.demanded.is_some() || config.certificates.iter().any(is_ordered)
    }
}

fn unwritable(cause: String) -> Problem {
    let mend = "the user who starts weir must be able to write to this folder, and nobody else; or name another one";
    Problem::new("tls.certificates", cause, mend)
}

fn keeper_problem(cause: String) -> Problem {
    let mend = "see the lines before; key_isolation = false in [tls] and certificates of others work without it";
    Problem::new("tls.key_isolation", cause, mend)
}

/// Whether the certificate at this place is ordered: those behind the configuration's are on demand.
fn is_ordered_at(config: &Config, index: usize) -> bool {
    config.certificates.get(index).is_none_or(is_ordered)
}

/// Whether the certificate is given by the administrator, and not made by weir.
fn is_given(certificate: &Certificate) -> bool {
    certificate.auto.is_none()
}

/// Whether it is ordered from an authority.
fn is_ordered(certificate: &Certificate) -> bool {
    let auto = certificate.auto.as_ref();
    auto.is_some_and(|auto| auto.issuer == Issuer::Acme)
}

/// The authorities of the sites' clients.
fn authorities(config: &Config, problems: &mut Vec<Problem>) -> BTreeMap<PathBuf, Vec<Vec<u8>>> {
    let mut authorities = BTreeMap::new();
    for site in &config.sites {
        let Some(auth) = &site.client_auth else {
            continue;
        };
        if authorities.contains_key(&auth.ca) {
            continue;
        }
        let text = open_file(&auth.ca).and_then(|file| {
            memory::read(std::os::fd::AsFd::as_fd(&file), weir_keeper::MAX_FILE * 4)
                .map_err(|error| error.to_string())
        });
        match text.and_then(|text| ClientAuthority::read(&text)) {
            Ok(certificates) => drop(authorities.insert(auth.ca.clone(), certificates)),
            Err(cause) => problems.push(Problem::new(
                format!("site.{}.client_ca", site.name),
                format!("{}: {cause}", auth.ca.display()),
                "name a file with the certificates of the authorities (PEM)",
            )),
        }
    }
    authorities
}
