//! The certificates of a generation: given to the keeper and to gateways, and given anew when their files change.
//!
//! The manager opens the files with its own rights and reads none of them: the keeper does, and tells the chain, which is
//! public. With `key_isolation = false` the gateway gets the open files instead. Files that have changed ([`changes`]) are looked
//! at several times a second. A pair that does not fit together is nearly always half written, so it is tried again before anybody is told.

mod changes;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs::{File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{Store, is_pair_unfinished};
use weir_config::{Certificate, Config, Issuer};
use weir_control::{GivenCertificate, TlsFiles, ToGateway};
use weir_sys::memory;
use weir_tls::ClientAuthority;

use self::changes::{Changes, Files};
use super::{
    acme::{Demanded, in_folder},
    keeper::{Held, HeldKey, Keeper, Refused},
    local_ca::LocalCertificates,
    plan::{Plan, Problem, find_program},
};

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
    /// Those of `list` that weir's local authority signs.
    local: Option<LocalCertificates>,
    /// [`make`](Self::make) was called.
    are_made: bool,
    /// The certificates in the files of `client_ca`.
    authorities: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    look_at: Instant,
    changes: Changes,
    /// [`Keeper::starts`] and [`Tickets::turns`](super::keeper::Tickets::turns) that the gateway knows of.
    keeper_starts: u64,
    ticket_turns: u64,
}

/// A certificate as it is in force.
#[derive(Debug, Clone)]
struct Installed {
    name: String,
    chain: PathBuf,
    key: PathBuf,
    /// The files that it is from.
    files: Option<Stamps>,
    /// What the keeper has of it; `None`: the gateway has it.
    held: Option<Rc<(HeldKey, Vec<Vec<u8>>)>>,
    /// The one before, with which handshakes may be under way.
    before: Option<Rc<(HeldKey, Vec<Vec<u8>>)>>,
    /// Changed files that could not be used, and whether that was told.
    bad: Option<(Option<Stamps>, bool)>,
}

/// The certificates of an earlier configuration by the files of chain and key.
type ByFiles<'c> = HashMap<(&'c Path, &'c Path), &'c Installed>;

/// By what a file is known that was replaced or written to.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// Those of chain and key.
type Stamps = (Stamp, Stamp);

impl Certificates {
    /// Gives all certificates that there are to the keeper; those of `before` that have not changed stay. Makes nothing:
    /// [`make`](Self::make) follows. `None`: no listener has TLS.
    pub(super) fn prepare(
        config: &Config,
        plan: &Plan,
        keeper: &Rc<RefCell<Keeper>>,
        before: Option<&Certificates>,
        now: Instant,
    ) -> Result<Option<Certificates>, Vec<Problem>> {
        if config
            .listeners
            .iter()
            .all(|listener| listener.tls.is_none())
        {
            return Ok(None);
        }
        let mut problems = Vec::new();
        let authorities = authorities(config, &mut problems);
        let is_isolated = config.tls.key_isolation;
        // It also makes the keys of certificates.
        let makes_keys =
            config.certificates.iter().any(|one| one.auto.is_some()) || config.demand().is_some();
        if (is_isolated || makes_keys)
            && let Err(cause) = keeper.borrow_mut().ensure(&plan.keeper, now)
        {
            let mend = "see the lines before; key_isolation = false in [tls] and certificates of others work without it";
            return Err(vec![Problem::new("tls.key_isolation", cause, mend)]);
        }
        let starts = keeper.borrow().starts();
        let before = before.filter(|before| before.is_isolated && before.keeper_starts == starts);
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
            are_made: false,
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
        problems.extend(certificates.load_what_is_there(config));
        if let Some(program) = config.tls.acme.dns_command.first()
            && certificates.are_ordered(config)
            && let Err(cause) = find_program(program, None)
        {
            let mend = "name a program that is here and may be executed, with its whole path";
            problems.push(Problem::new("tls.acme.dns_command", cause, mend));
        }
        match problems.is_empty() {
            true => Ok(Some(certificates)),
            false => Err(problems),
        }
    }

    /// Whether the local authority signs this certificate later.
    fn is_late(&self, index: usize) -> bool {
        let local = self.local.as_ref();
        local.is_some_and(|local| local.is_late(&self.list[index].chain))
    }

    /// Makes certificates of the local authority that are missing, and the folder of certificates. Returns the messages for a
    /// gateway that was started before.
    pub(super) fn make(
        &mut self,
        config: &Config,
        now: Instant,
    ) -> Result<Vec<ToGateway>, Vec<Problem>> {
        if std::mem::replace(&mut self.are_made, true) {
            return Ok(Vec::new());
        }
        let unwritable = |cause: String| {
            let mend = "the user who starts weir must be able to write to this folder, and nobody else; or name another one";
            vec![Problem::new("tls.certificates", cause, mend)]
        };
        self.local = LocalCertificates::prepare(config, &self.keeper, now).map_err(unwritable)?;
        self.changes
            .begin(self.list.len() as u32, &files_of(&self.list));
        if self.are_ordered(config) {
            Store::open(&config.tls.certificates).map_err(unwritable)?;
        }
        let is_ordered = |index: usize| config.certificates.get(index).is_none_or(is_ordered);
        let own: Vec<usize> = (0..self.list.len())
            .filter(|index| !config.certificates.get(*index).is_some_and(is_given))
            .filter(|index| !self.list[*index].is_current())
            // One that the authority has not signed yet is used when it is there.
            .filter(|index| {
                let comes_later = is_ordered(*index) || self.is_late(*index);
                !comes_later || self.list[*index].chain.exists()
            })
            .collect();
        let results = self.load_or_make(&own);
        let results = results.map_err(|cause| vec![keeper_problem(cause)])?;
        let mut problems = Vec::new();
        for (index, result) in own.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(refused) if is_ordered(*index) => self.list[*index].order_again(&refused),
                Err(refused) if self.is_late(*index) => {
                    log::warn!("{}", self.list[*index].said(&refused));
                }
                Err(refused) => problems.push(self.list[*index].problem(&refused)),
            }
        }
        match problems.is_empty() {
            true if own.is_empty() => Ok(Vec::new()),
            true => {
                (self.given(&own, BTreeMap::new())).map_err(|cause| vec![keeper_problem(cause)])
            }
            false => Err(problems),
        }
    }

    /// Whether certificates are ordered from an authority.
    fn are_ordered(&self, config: &Config) -> bool {
        self.demanded.is_some() || config.certificates.iter().any(is_ordered)
    }

    /// Loads those that there are; returns what is wrong with those that weir does not make.
    fn load_what_is_there(&mut self, config: &Config) -> Vec<Problem> {
        let given = |index: &usize| config.certificates.get(*index).is_some_and(is_given);
        let there: Vec<usize> = (0..self.list.len())
            .filter(|index| self.list[*index].held.is_none())
            .filter(|index| given(index) || self.list[*index].chain.exists())
            .collect();
        match self.load(&there) {
            Ok(results) => {
                let results = there.into_iter().zip(results);
                let refused = results.filter_map(|(index, result)| Some((index, result.err()?)));
                let refused = refused.filter(|(index, _)| given(index));
                refused
                    .map(|(index, refused)| self.list[index].problem(&refused))
                    .collect()
            }
            Err(cause) => vec![keeper_problem(cause)],
        }
    }

    /// As [`Self::load`]; a certificate of the local authority that cannot be used is made again.
    fn load_or_make(&mut self, indices: &[usize]) -> Result<Vec<Result<(), Refused>>, String> {
        let mut results = self.load(indices)?;
        let Some(local) = &mut self.local else {
            return Ok(results);
        };
        let mut again = Vec::new();
        for (place, index) in indices.iter().enumerate() {
            if results[place].is_err() && local.make_again(&self.list[*index].chain)? {
                again.push((place, *index));
            }
        }
        for (place, index) in again {
            results.splice(place..=place, self.load(&[index])?);
        }
        Ok(results)
    }

    /// Reads these certificates from their files. What cannot be used stays as it was.
    ///
    /// # Errors
    /// If the keeper is gone.
    fn load(&mut self, indices: &[usize]) -> Result<Vec<Result<(), Refused>>, String> {
        let stamps: Vec<Option<Stamps>> = indices
            .iter()
            .map(|index| self.list[*index].stamps())
            .collect();
        let list = &self.list;
        let open = indices.iter().map(|index| list[*index].open());
        let results: Vec<Result<Option<Held>, Refused>> = match self.is_isolated {
            true => {
                let held = self.keeper.borrow_mut().load(open)?;
                held.into_iter().map(|result| result.map(Some)).collect()
            }
            false => open.map(|opened| opened.map(|_| None)).collect(),
        };
        let mut done = Vec::with_capacity(results.len());
        for ((index, stamps), result) in indices.iter().zip(stamps).zip(results) {
            done.push(result.map(|held| self.list[*index].install(stamps, held)));
        }
        Ok(done)
    }

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
    fn signers(&mut self) -> Result<Vec<ToGateway>, String> {
        if !self.is_isolated {
            return Ok(Vec::new());
        }
        let mut keeper = self.keeper.borrow_mut();
        self.keeper_starts = keeper.starts();
        if keeper.pid().is_none() {
            // The gateway starts without channels, and gets them when there is a keeper again.
            self.keeper_starts = self.keeper_starts.wrapping_sub(1);
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
            messages.extend(self.give_anew(starts));
        }
        if looks
            && let Some(local) = &mut self.local
            && local.tick(now)
        {
            self.look_at = now;
        }
        if looks && now >= self.look_at {
            self.look_at = now
                + match self.changes.unwatched() {
                    0..=MANY => LOOK_EVERY,
                    _ => LOOK_AT_MANY_EVERY,
                };
            messages.extend(self.look());
        }
        messages
    }

    /// A new keeper has no keys yet.
    fn give_anew(&mut self, starts: u64) -> Vec<ToGateway> {
        let all: Vec<usize> = (0..self.list.len()).collect();
        let given = self.load(&all).and_then(|results| {
            for (index, result) in results.iter().enumerate() {
                if let Err(refused) = result {
                    log::error!(
                        "{}; clients cannot get this certificate",
                        self.list[index].said(refused)
                    );
                    // Its files are read again when they have changed.
                    self.list[index].files = self.list[index].stamps();
                }
            }
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
                // It is tried again with the next keeper.
                self.keeper_starts = starts;
                self.keeper.borrow().end();
                log::error!("the keeper cannot be given the private keys: {error}");
                Vec::new()
            }
        }
    }

    /// Gives the gateway the certificates whose files have changed.
    fn look(&mut self) -> Vec<ToGateway> {
        let list = &self.list;
        let changed = self.changes.take(list.len() as u32, &files_of(list));
        let changed = changed.into_iter();
        let changed = changed.map(|number| number as usize);
        let changed: Vec<usize> = changed
            .filter(|index| self.list[*index].has_changed())
            .collect();
        if changed.is_empty() {
            return Vec::new();
        }
        for index in &changed {
            self.changes.look_again(*index as u32);
        }
        let stamps: Vec<Option<Stamps>> = changed
            .iter()
            .map(|index| self.list[*index].stamps())
            .collect();
        let Ok(results) = self.load(&changed) else {
            return Vec::new();
        };
        let mut good = Vec::new();
        for ((index, stamps), result) in changed.into_iter().zip(stamps).zip(results) {
            match result {
                Ok(()) => {
                    log::info!(
                        "[certificate.{}]: its files have changed and are used from now on",
                        self.list[index].name
                    );
                    good.push(index);
                }
                Err(refused) => self.list[index].is_bad(stamps, &refused),
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

    /// Gives the gateway a certificate on demand, which may be new.
    fn use_demanded(&mut self, index: usize) -> Vec<ToGateway> {
        self.changes.watch_one(index as u32, &files_of(&self.list));
        if self.list[index].files.is_none() || self.list[index].has_changed() {
            let loaded = self.load(&[index]);
            let loaded = loaded.map(|mut results| results.pop().unwrap_or(Ok(())));
            match loaded {
                Ok(Ok(())) => {}
                // The look at files tells it, if it stays so.
                Ok(Err(refused)) => log::warn!("{}", self.list[index].said(&refused)),
                Err(cause) => log::error!("the keeper cannot be given a private key: {cause}"),
            }
        }
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

    pub(super) fn deadline(&self) -> Instant {
        let local = self.local.as_ref().map(LocalCertificates::deadline);
        local.into_iter().fold(self.look_at, Instant::min)
    }
}

impl Installed {
    /// As in `before`, if its files are the same; otherwise still to be read.
    fn new(certificate: &Certificate, before: &ByFiles<'_>) -> Installed {
        let Certificate { name, chain, .. } = certificate;
        Installed::of_files((name, chain, certificate.key_file()), before)
    }

    /// The same with this name, in the files of chain and key.
    fn of_files((name, chain, key): (&str, &Path, &Path), before: &ByFiles<'_>) -> Installed {
        let fresh = Installed {
            name: name.to_owned(),
            chain: chain.to_owned(),
            key: key.to_owned(),
            files: None,
            held: None,
            before: None,
            bad: None,
        };
        let before = before.get(&(&*fresh.chain, &*fresh.key));
        let is_same = |old: &&&Installed| old.files.is_some() && old.files == fresh.stamps();
        match before.filter(is_same) {
            None => fresh,
            Some(old) => Installed {
                name: name.to_owned(),
                bad: None,
                ..(*old).clone()
            },
        }
    }

    /// Whether it is as its files are.
    fn is_current(&self) -> bool {
        self.files.is_some() && self.files == self.stamps()
    }

    fn install(&mut self, files: Option<Stamps>, held: Option<Held>) {
        self.files = files;
        self.bad = None;
        if let Some(Held {
            key,
            chain,
            warnings,
        }) = held
        {
            for warning in warnings {
                log::warn!(
                    "[certificate.{}] chain: {}: {warning}",
                    self.name,
                    self.chain.display()
                );
            }
            self.before = self.held.replace(Rc::new((key, chain)));
        }
    }

    /// One from an authority cannot be used, perhaps because a node was killed between its files: a new one is ordered.
    fn order_again(&self, refused: &Refused) {
        if is_pair_unfinished(&self.chain) || is_recent(&self.chain) {
            log::warn!(
                "{}; a node may be replacing it, so it is looked at again",
                self.said(refused)
            );
            return;
        }
        log::error!("{}; a new one is ordered", self.said(refused));
        if let Err(error) = std::fs::remove_file(&self.chain) {
            log::error!("{}: {error}", self.chain.display());
        }
    }

    fn stamps(&self) -> Option<Stamps> {
        Some((stamp(&self.chain)?, stamp(&self.key)?))
    }

    fn has_changed(&self) -> bool {
        let now = self.stamps();
        let is_known_bad = self
            .bad
            .as_ref()
            .is_some_and(|(stamps, told)| *told && *stamps == now);
        now != self.files && !is_known_bad
    }

    /// Changed files cannot be used. It is told if they are the same at the next look.
    fn is_bad(&mut self, stamps: Option<Stamps>, refused: &Refused) {
        let again = self
            .bad
            .as_ref()
            .is_some_and(|(before, _)| *before == stamps);
        if again {
            log::warn!(
                "{}; the earlier certificate stays in use",
                self.said(refused)
            );
        }
        self.bad = Some((stamps, again));
    }

    /// The files of chain and key.
    fn open(&self) -> Result<(File, File), Refused> {
        let open = |path: &Path, in_key: bool| {
            open_file(path).map_err(|message| Refused { in_key, message })
        };
        Ok((open(&self.chain, false)?, open(&self.key, true)?))
    }

    fn problem(&self, refused: &Refused) -> Problem {
        let (key, path) = self.place(refused);
        let (cause, mend) = refused
            .message
            .split_once("; ")
            .unwrap_or((&refused.message, "name another file"));
        Problem::new(key, format!("{}: {cause}", path.display()), mend)
    }

    fn said(&self, refused: &Refused) -> String {
        let (key, path) = self.place(refused);
        format!("{key}: {}: {}", path.display(), refused.message)
    }

    fn place(&self, refused: &Refused) -> (String, &Path) {
        match refused.in_key && self.key != self.chain {
            true => (format!("certificate.{}.key", self.name), &self.key),
            false => (format!("certificate.{}.chain", self.name), &self.chain),
        }
    }
}

/// The files of each certificate.
fn files_of<'l>(list: &'l [Installed]) -> impl Fn(u32) -> Files<'l> {
    move |number| {
        let one = &list[number as usize];
        [&*one.chain, &*one.key]
    }
}

/// Opens a file, and nothing else that could be at this path.
fn open_file(path: &Path) -> Result<File, String> {
    /// Opening a pipe does not wait for its writer.
    const O_NONBLOCK: i32 = 0o4000;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path);
    let file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check the path".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "it may not be read; give the user who starts weir read access".to_owned()
        }
        _ => error.to_string(),
    })?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err("this is not a file; name the file itself".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a file was changed lately.
fn is_recent(path: &Path) -> bool {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < RECENT))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ))
}

/// The authorities of the sites' clients.
fn keeper_problem(cause: String) -> Problem {
    Problem::new("tls.key_isolation", cause, "see the lines before")
}

/// Whether weir does not make it.
fn is_given(certificate: &Certificate) -> bool {
    certificate.auto.is_none()
}

/// Whether it is ordered from an authority.
fn is_ordered(certificate: &Certificate) -> bool {
    let auto = certificate.auto.as_ref();
    auto.is_some_and(|auto| auto.issuer == Issuer::Acme)
}

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

/// A file that was changed within this time may be one of a pair that is being replaced.
const RECENT: Duration = Duration::from_secs(10);

/// How often files are looked at: a change is used within a second.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// The same if more than [`MANY`] certificates are looked at each time, because that costs two system calls for each of them.
const LOOK_AT_MANY_EVERY: Duration = Duration::from_millis(900);
const MANY: usize = 1000;
