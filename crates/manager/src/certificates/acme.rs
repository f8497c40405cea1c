//! Certificates of public authorities: which are wanted, when they are ordered, and what becomes of an order.
//!
//! ```text
//! keeper ◄─ "make a key" ─ manager ─ order, request ─► weir: acme ─ HTTPS ─► authority
//!           request ─────►         ◄─ answer to a challenge ─         (tries the name at the gateway)
//!                          gateway ◄─ the answer ─ manager ◄─ chain ─ weir: acme
//! ```
//! The process that talks to authorities has no key of a server; the manager parses nothing that an authority sends.
//! Chain and key go to the folder of certificates, where they are noticed like all changed files. weir repeats an order
//! that fails, with growing pauses. Nodes that share the folder take turns by a lock for each certificate.

mod account_key;
mod challenges;
mod clock;
mod demand;
mod dns;
mod process;
mod report;
mod times;
mod wanted;

use std::{
    cell::RefCell,
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{
    AcmeOrder, Draft, FromAcme, Issued, Lock, Proof, State, Store, ToAcme, finish_pair,
    install_pair, is_issued, is_pair_unfinished,
};
use weir_config::{Acme, Config, Issuer, Protocol};
use weir_control::ToGateway;
use weir_keeper::{Order, Product};
use weir_sys::{identity::Identity, process::Exit, random};

pub(crate) use self::demand::{Demanded, in_folder};
use self::{
    account_key::KeyChange,
    challenges::Answers,
    clock::Clock,
    demand::Demand,
    dns::Records,
    process::{PROCESS, Running},
    times::{
        AGAIN, ASK_AT_LEAST, ASK_EVERY, LOCK_LIFE, LOCK_RENEWAL, LOOK_EVERY, MOST_ORDERS,
        MOST_REFUSED, ORDER_LIMIT, SHORT, SLACK, next_look, pause,
    },
    wanted::{Advice, OpenOrder, Wanted},
};
use super::keeper::Keeper;
use crate::children::{environment, role};

/// All of them.
#[derive(Debug)]
pub(crate) struct Orders {
    keeper: Rc<RefCell<Keeper>>,
    running: Option<Running>,
    /// When the process may start again.
    starts_at: Instant,
    who: Option<Identity>,
    /// The generation whose configuration is in force; 0: none yet.
    generation: u32,
    authority: Option<Authority>,
    wanted: Vec<Wanted>,
    next_order: u32,
    answers: Answers,
    records: Records,
    demand: Demand,
    /// What time it is for the authority.
    clock: Clock,
    /// When the configuration came into force (seconds since 1970).
    served_at: i64,
    /// The account that the process knows.
    account: Option<String>,
    /// InstalledCertificate while an account is made.
    account_lock: Option<Lock>,
    /// When locks are renewed.
    renew_at: Instant,
    key_change: KeyChange,
}

/// Where certificates are ordered.
#[derive(Debug)]
struct Authority {
    settings: Acme,
    store: Store,
    /// The file of the account.
    account: PathBuf,
    /// The first proof to try.
    proof: Proof,
    /// What makes TXT records.
    command: Option<Rc<dns::Command>>,
}

impl Orders {
    pub(crate) fn new(keeper: Rc<RefCell<Keeper>>, now: Instant) -> Orders {
        Orders {
            keeper,
            running: None,
            starts_at: now,
            who: None,
            generation: 0,
            authority: None,
            wanted: Vec::new(),
            next_order: 1,
            answers: Answers::default(),
            records: Records::default(),
            demand: Demand::new(now),
            clock: Clock::default(),
            served_at: 0,
            account: None,
            account_lock: None,
            renew_at: now,
            key_change: KeyChange::at(now),
        }
    }

    /// Takes the configuration of a generation that serves now.
    pub(crate) fn serve(
        &mut self,
        generation: u32,
        config: &Config,
        who: &Option<Identity>,
        now: Instant,
    ) {
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        self.served_at = self.clock.now(now);
        self.who.clone_from(who);
        let before = std::mem::take(&mut self.wanted);
        let mut before: Vec<Wanted> = before.into_iter().collect();
        for certificate in &config.certificates {
            let auto = certificate.auto.as_ref();
            let Some(auto) = auto.filter(|auto| auto.issuer == Issuer::Acme) else {
                continue;
            };
            let same = before.iter().position(|one| {
                one.demand.is_none() && one.chain == certificate.chain && one.names == auto.names
            });
            self.wanted.push(match same {
                Some(index) => Wanted {
                    due: now,
                    advice: Advice::default(),
                    ..before.swap_remove(index)
                },
                None => {
                    let (chain, key) = (certificate.chain.clone(), certificate.key_file().clone());
                    Wanted::new(&certificate.name, auto.names.clone(), chain, key, now)
                }
            });
        }
        self.serve_demand(config, &mut before, now);
        for order in before.into_iter().filter_map(|one| one.order) {
            self.forget_challenges(order.number);
        }
        let settings = &config.tls.acme;
        let folder = &config.tls.certificates;
        let has_plain = (config.listeners.iter())
            .any(|one| one.tls.is_none() && one.protocol == Protocol::Http);
        let proof = match settings.challenge.as_deref() {
            Some("tls-alpn-01") => Proof::TlsAlpn01,
            Some("dns-01") => Proof::Dns01,
            Some("dns-persist-01") => Proof::DnsPersist01,
            None if !has_plain => Proof::TlsAlpn01,
            _ => Proof::Http01,
        };
        let changed = self
            .authority
            .as_ref()
            .is_none_or(|authority| authority.settings != *settings);
        self.authority = Some(Authority {
            settings: settings.clone(),
            store: Store::at(folder),
            account: Store::at(folder).account(&settings.directory),
            proof,
            command: (!settings.dns_command.is_empty()).then(|| {
                Rc::new(dns::Command {
                    words: settings.dns_command.clone(),
                    environment: environment::for_others(config),
                    limit: settings.dns_timeout,
                    wait: settings.dns_wait,
                })
            }),
        });
        let store = Store::at(folder);
        let is_wanted = !self.wanted.is_empty() || config.demand().is_some();
        self.answers
            .share(is_wanted.then_some((&store, &**folder)), now);
        if changed {
            // Orders of another authority are given up.
            let orders = self.wanted.iter_mut().filter_map(|one| one.order.take());
            let orders: Vec<u32> = orders.map(|order| order.number).collect();
            orders
                .into_iter()
                .for_each(|order| self.forget_challenges(order));
            self.introduce();
        }
    }

    /// The channel of the process, and the output of the command for TXT records.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channel = self.running.as_ref().map(|running| running.channel.as_fd());
        channel.into_iter().chain(self.records.descriptor())
    }

    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let due = self.wanted.iter().map(|one| match &one.order {
            None => one.due,
            Some(order) => order.until,
        });
        let due = due.min().map(|due| match self.running {
            Some(_) => due,
            None => due.max(self.starts_at),
        });
        let renew_at = self.has_locks().then_some(self.renew_at);
        due.into_iter()
            .chain(self.records.deadline(now))
            .chain(self.answers.deadline())
            .chain(renew_at)
            .chain(self.key_change_at())
            .chain(self.demand.deadline(now))
            .min()
    }

    /// Starts the process and orders what is due. Returns what a gateway must know, if that is not this one's knowledge.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        (generation, gateway): (u32, Option<u32>),
    ) -> Option<ToGateway> {
        for number in self.answers.tick(now) {
            self.tell(&ToAcme::Placed(number));
        }
        self.renew_locks(now);
        self.change_key(now);
        self.tick_demand(now);
        let outcomes = self.records.tick(now);
        self.records_are_set(outcomes);
        for index in 0..self.wanted.len() {
            let one = &self.wanted[index];
            match &one.order {
                Some(order) if now >= order.until => {
                    let number = order.number;
                    self.failed(
                        number,
                        ("the order was not finished in time".into(), false),
                        now,
                    );
                }
                None if now >= one.due => self.look(index, now),
                _ => {}
            }
        }
        self.send_orders(now);
        self.answers.message(generation, gateway)
    }

    fn has_locks(&self) -> bool {
        self.account_lock.is_some() || self.wanted.iter().any(|one| one.order.is_some())
    }

    /// Keeps the locks of orders that are under way.
    fn renew_locks(&mut self, now: Instant) {
        if now < self.renew_at {
            return;
        }
        self.renew_at = now + LOCK_RENEWAL;
        let orders = self.wanted.iter().filter_map(|one| one.order.as_ref());
        let locks = orders.map(|order| &order.lock);
        for lock in locks.chain(&self.account_lock) {
            match lock.renew() {
                Ok(true) => {}
                Ok(false) => log::warn!(
                    "a lock in the folder of certificates was lost, because it could not be renewed in time; another node may \
                     order the same certificate"
                ),
                Err(error) => log::error!("a lock cannot be renewed: {error}"),
            }
        }
    }

    /// TXT records are in place, or cannot be.
    fn records_are_set(&mut self, outcomes: Vec<dns::Outcome>) {
        for (number, outcome) in outcomes {
            self.tell(&match outcome {
                Ok(()) => ToAcme::Placed(number),
                Err(cause) => ToAcme::NotPlaced { number, cause },
            });
        }
    }

    /// The gateway has the answers of this message.
    pub(crate) fn are_set(&mut self, message: u32) {
        self.answers.are_set(message, Instant::now());
    }

    /// Orders a certificate if it is time.
    fn look(&mut self, index: usize, now: Instant) {
        let one = &mut self.wanted[index];
        one.read_state();
        let at = self.clock.now(now);
        let is_unfinished = is_pair_unfinished(&one.chain);
        if !is_unfinished && !one.is_due(at) {
            one.due = next_look(one.renew_at, at, now);
            self.is_there(index, false);
            self.ask(index, now);
            return;
        }
        if !is_unfinished && one.not_after != 0 && !self.knows_time(index, now) {
            return;
        }
        let one = &mut self.wanted[index];
        let pause = one.pause(self.served_at, at).filter(|_| !is_unfinished);
        if let Some(pause) = pause {
            one.due = now + pause.min(LOOK_EVERY);
            return self.give_up(index, pause, now);
        }
        if !is_unfinished && !self.is_allowed(index, now) {
            return;
        }
        let open = self.wanted.iter().filter(|one| one.order.is_some());
        if open.count() >= MOST_ORDERS || self.key_change.is_under_way() || !self.runs(now) {
            self.wanted[index].due = now + SHORT;
            return;
        }
        match self.order(index, now) {
            Ok(true) => {}
            // Another node orders it, or has it ordered meanwhile.
            Ok(false) => self.wanted[index].due = now + AGAIN,
            Err(cause) => self.cannot_order(index, &cause, now),
        }
    }

    fn cannot_order(&mut self, index: usize, cause: &str, now: Instant) {
        let one = &mut self.wanted[index];
        log::error!("[certificate.{}] cannot be ordered: {cause}", one.name);
        one.due = now + LOOK_EVERY;
        self.give_up(index, LOOK_EVERY, now);
    }

    /// Orders the certificates whose key the keeper has made.
    fn send_orders(&mut self, now: Instant) {
        for index in 0..self.wanted.len() {
            let one = &mut self.wanted[index];
            let Some(open) = &mut one.order else {
                continue;
            };
            let made = open.request.take_if(|(answer, _)| answer.is_there());
            let Some((answer, mut order)) = made else {
                continue;
            };
            match answer.take().unwrap_or_else(|| Ok(Vec::new())) {
                Ok(csr) => {
                    order.csr = csr;
                    let directory = self.authority.as_ref().map(|one| &one.settings.directory);
                    log::info!(
                        "[certificate.{}]: ordered from {}",
                        one.name,
                        directory.map_or("its authority", |directory| directory)
                    );
                    self.tell(&ToAcme::Order(order));
                }
                Err(cause) => {
                    one.order = None;
                    self.cannot_order(index, &cause, now);
                }
            }
        }
    }

    /// Asks the authority when a certificate should be renewed, from time to time.
    fn ask(&mut self, index: usize, now: Instant) {
        let advice = &self.wanted[index].advice;
        let is_due = advice.ask_at.is_none_or(|at| at <= now);
        // Without a key identifier, the authority has no name for the certificate.
        if !is_due || advice.of.0.is_empty() {
            return;
        }
        if !self.runs(now) {
            self.wanted[index].due = now + SHORT;
            return;
        }
        let number = self.next_order;
        self.next_order = number.wrapping_add(1);
        let advice = &mut self.wanted[index].advice;
        advice.number = number;
        advice.ask_at = Some(now + ASK_EVERY);
        let known_by = advice.of.clone();
        self.tell(&ToAcme::WhenToRenew { number, known_by });
    }

    /// The authority has said when a certificate should be renewed: it is done at a random time of these.
    fn advised(&mut self, number: u32, (start, end): (i64, i64), again: u64, now: Instant) {
        let mut wanted = self.wanted.iter_mut();
        let Some(one) = wanted.find(|one| one.advice.number == number) else {
            return;
        };
        // Another node may have written of a failure meanwhile.
        one.read_state();
        let mut bytes = [0; 4];
        let _ = random::fill(&mut bytes);
        let span = end.saturating_sub(start).clamp(0, i64::from(u32::MAX));
        let share = i64::from(u32::from_be_bytes(bytes)) * span / i64::from(u32::MAX);
        // If the authority names the same window again, the chosen time stays the same, even after a restart.
        let serial: String = one
            .advice
            .of
            .1
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let before = one.state.advised.as_ref();
        let before = before.filter(|(of, at)| *of == serial && (start..=end).contains(at));
        let renew_at = before.map_or(start.saturating_add(share), |(_, at)| *at);
        one.advice.renew_at = Some(renew_at);
        let advised = Some((serial, renew_at));
        if one.state.advised != advised {
            one.state.advised = advised;
            one.write_state();
        }
        let again = Duration::from_secs(again).clamp(ASK_AT_LEAST, ASK_EVERY * 4);
        one.advice.ask_at = Some(now + again);
        one.due = now;
    }

    /// Gives the process the account of all nodes. Returns false while another node makes it.
    fn has_account(&mut self) -> Result<bool, String> {
        let Some(authority) = &self.authority else {
            return Ok(false);
        };
        let path = authority.account.clone();
        let read = || fs::read_to_string(&path).ok();
        let mut kept = read();
        if kept.is_none() && self.account_lock.is_none() {
            if !self.lock_account()? {
                return Ok(false);
            }
            kept = read();
        }
        if kept.is_some() {
            self.account_lock = None;
        }
        if kept != self.account {
            self.introduce();
        }
        Ok(true)
    }

    /// Begins to order a certificate. Returns false if another node does it, or has done it.
    fn order(&mut self, index: usize, now: Instant) -> Result<bool, String> {
        if !self.has_account()? {
            return Ok(false);
        }
        let Some(authority) = &self.authority else {
            return Ok(false);
        };
        let one = &mut self.wanted[index];
        let folder = one.chain.parent().and_then(Path::file_name);
        let folder = folder.unwrap_or_default().to_string_lossy();
        let lock = Lock::take(&authority.store, &folder, LOCK_LIFE)?;
        let Some(lock) = lock else {
            return Ok(false);
        };
        authority.store.make_folder_of(&one.chain)?;
        finish_pair(&one.key, &one.chain)?;
        // Another node may have had the lock a moment ago.
        one.read_state();
        let at = self.clock.now(now);
        if !one.is_due(at) || one.pause(self.served_at, at).is_some() {
            return Ok(false);
        }
        let replaces = Issued::read(&one.chain).map(|issued| issued.known_by);
        let key = Draft::new(&one.key, 0o600)?;
        let file = key.file().try_clone().map_err(|error| error.to_string())?;
        let request = self.keeper.borrow_mut().make(Order {
            product: Product::Request,
            names: one.names.clone(),
            days: 0,
            key: file.into(),
        });
        // If one kind of proof fails, the other one is tried next.
        let proof = match (&authority.settings.challenge, one.state.failures % 2) {
            (None, _) if one.has_star() => Proof::Dns01,
            (None, 1) if authority.proof == Proof::Http01 => Proof::TlsAlpn01,
            (None, 1) => Proof::Http01,
            _ => authority.proof,
        };
        let mut limit = ORDER_LIMIT;
        if let (Proof::Dns01, Some(command)) = (proof, &authority.command) {
            // Commands of other orders may run first.
            let commands = 2 * one.names.len() as u32;
            limit += command.wait + command.limit * commands;
        }
        let number = self.next_order;
        self.next_order = number.wrapping_add(1);
        let order = AcmeOrder {
            number,
            names: one.names.clone(),
            csr: Vec::new(),
            proof,
            profile: authority.settings.profile.clone(),
            limit: limit.as_secs(),
            // Without key identifiers, the authority has no names for its certificates.
            replaces: replaces.filter(|(key, _)| !key.is_empty()),
        };
        one.order = Some(OpenOrder {
            number,
            request: Some((request, order)),
            key,
            lock,
            until: now + limit + SLACK,
        });
        Ok(true)
    }

    fn heard(&mut self, message: FromAcme, now: Instant) {
        match message {
            FromAcme::Ready => {
                if let Some(running) = &mut self.running {
                    running.is_ready = true;
                }
                self.wanted
                    .iter_mut()
                    .for_each(|one| one.due = one.due.min(now));
            }
            FromAcme::KeyNotChanged(cause) => self.key_is_changed(Err(cause)),
            FromAcme::Unfit(cause) => log::error!("the process for certificates: {cause}"),
            FromAcme::Account(text) => {
                if let Some(authority) = &self.authority {
                    let kept = authority
                        .store
                        .make_folder_of(&authority.account)
                        .and_then(|()| {
                            let mut draft = Draft::new(&authority.account, 0o600)?;
                            draft.write(text.as_bytes())?;
                            draft.install()
                        });
                    match kept {
                        Ok(()) => self.account = Some(text),
                        Err(error) => {
                            log::error!("the account of the authority cannot be kept: {error}");
                        }
                    }
                }
                self.key_is_changed(Ok(()));
                self.account_lock = None;
            }
            FromAcme::Challenge {
                order,
                number,
                answer,
            } => {
                let is_ours = |one: &Wanted| {
                    one.order
                        .as_ref()
                        .is_some_and(|order_| order_.number == order)
                        && one.names.contains(&answer.name)
                };
                if !self.wanted.iter().any(is_ours) {
                    return;
                }
                if let Some(record) = &answer.record {
                    self.set_record((order, number), record, &answer.name);
                } else {
                    self.answers.put((order, number), answer);
                }
            }
            FromAcme::Persistent { order, records } => self.persistent(order, records),
            FromAcme::Obtained { order, chain } => {
                if let Err(cause) = self.obtained(order, chain.as_bytes(), now) {
                    self.failed(order, (cause, false), now);
                }
            }
            FromAcme::Failed {
                order,
                message,
                is_refused,
            } => self.failed(order, (message, is_refused), now),
            FromAcme::Renew {
                number,
                start,
                end,
                again,
            } => self.advised(number, (start, end), again, now),
            FromAcme::Time(time) => self.hear_time(time, now),
            FromAcme::Answered { number, status } => self.answered(number, status, now),
        }
    }

    /// Runs the command that sets a TXT record for a challenge of one of our names.
    fn set_record(&mut self, challenge: (u32, u32), record: &(String, String), name: &str) {
        let (at, value) = record;
        let base = name.trim_start_matches("*.");
        let is_value = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_right = at.strip_prefix("_acme-challenge.") == Some(base)
            && (1..=64).contains(&value.len())
            && value.bytes().all(is_value);
        let command = self.authority.as_ref();
        let command = command.and_then(|authority| authority.command.clone());
        match command.filter(|_| is_right) {
            Some(command) => self.records.add(challenge, record.clone(), &command),
            None => self.tell(&ToAcme::NotPlaced {
                number: challenge.1,
                cause: "this TXT record cannot be set".into(),
            }),
        }
    }

    /// An order needs these TXT records, which the operator sets.
    fn persistent(&mut self, number: u32, records: Vec<(String, String)>) {
        let mut wanted = self.wanted.iter_mut();
        let is_it = |order: &OpenOrder| order.number == number;
        let Some(one) = wanted.find(|one| one.order.as_ref().is_some_and(is_it)) else {
            return;
        };
        let is_right = |(at, value): &(String, String)| {
            let base = at.strip_prefix("_validation-persist.").unwrap_or_default();
            let of = |name: &String| name.trim_start_matches("*.") == base;
            let is_text = |byte: u8| byte == b' ' || byte.is_ascii_graphic() && byte != b'"';
            one.names.iter().any(of) && value.len() <= 500 && value.bytes().all(is_text)
        };
        if one.state.records != records && records.iter().all(is_right) {
            one.state.records = records;
            one.write_state();
        }
    }

    /// Removes the answers to an order's challenges.
    fn forget_challenges(&mut self, order: u32) {
        self.records.forget(order);
        self.answers.forget(order);
        let others = self.wanted.iter().filter_map(|one| one.order.as_ref());
        if others.filter(|other| other.number != order).count() == 0 {
            self.account_lock = None;
        }
    }

    fn obtained(&mut self, number: u32, chain: &[u8], now: Instant) -> Result<(), String> {
        self.forget_challenges(number);
        let is_it = |order: &OpenOrder| order.number == number;
        let mut wanted = self.wanted.iter();
        let index = wanted.position(|one| one.order.as_ref().is_some_and(is_it));
        let Some(index) = index else {
            return Ok(());
        };
        let one = &mut self.wanted[index];
        let issued = Issued::of(chain).ok_or("the authority sent no certificate")?;
        if !is_issued(&issued, &one.names) {
            return Err("the authority sent a certificate for other names".into());
        }
        let mut draft = Draft::new(&one.chain, 0o644)?;
        draft.write(chain)?;
        let Some(OpenOrder { key, lock, .. }) = one.order.take() else {
            return Ok(());
        };
        install_pair(key, draft)?;
        one.done += 1;
        one.renew_at = issued.renew_at();
        let at = self.clock.now(now);
        one.due = now + SHORT.min(next_look(one.renew_at, at, now) - now);
        one.is_made(at, issued.not_after - issued.not_before);
        one.write_state();
        drop(lock);
        log::info!(
            "[certificate.{}]: the authority has signed it, for {}; it is renewed at two thirds of its life",
            one.name,
            one.names.join(", ")
        );
        one.not_after = issued.not_after;
        if one.demand.is_some() {
            self.count_demanded(true);
            self.is_there(index, true);
        }
        Ok(())
    }

    fn failed(&mut self, number: u32, (cause, is_refused): (String, bool), now: Instant) {
        self.forget_challenges(number);
        let is_it = |order: &OpenOrder| order.number == number;
        let mut wanted = self.wanted.iter();
        let index = wanted.position(|one| one.order.as_ref().is_some_and(is_it));
        let Some(index) = index else {
            return;
        };
        let one = &mut self.wanted[index];
        // The lock ends when other nodes can read the result.
        let _order = one.order.take();
        one.failed += 1;
        let failures = one.state.failures;
        let pause = match &self.authority {
            // The other proof is tried at once.
            Some(authority)
                if authority.settings.challenge.is_none() && failures == 0 && !one.has_star() =>
            {
                SHORT
            }
            _ => pause(failures, is_refused),
        };
        one.due = now + pause;
        let at = self.clock.now(now);
        if is_refused {
            one.state.refused.push(at);
            let excess = one.state.refused.len().saturating_sub(MOST_REFUSED);
            one.state.refused.drain(..excess);
        }
        one.state = State {
            error: Some(cause.clone()),
            at: at.max(one.state.at),
            next: at + pause.as_secs() as i64,
            failures: failures.saturating_add(1),
            ..std::mem::take(&mut one.state)
        };
        one.write_state();
        log::error!(
            "[certificate.{}]: no certificate from the authority: {cause}; tried again in {} s",
            one.name,
            pause.as_secs()
        );
        if one.demand.is_some() {
            self.count_demanded(false);
            self.give_up(index, pause, now);
        }
    }

    /// Gives all orders up, because weir stops. Returns whether the process is gone, and TXT records too.
    pub(crate) fn stop(&mut self, now: Instant) -> bool {
        self.stop_demand();
        for one in std::mem::take(&mut self.wanted) {
            if let Some(order) = one.order {
                self.records.forget(order.number);
                self.answers.forget(order.number);
            }
        }
        self.answers.share(None, now);
        self.account_lock = None;
        self.records.tick(now);
        if let Some(running) = &self.running {
            role::kill(PROCESS, running.pid);
        }
        self.running.is_none() && self.records.is_idle()
    }

    /// A process has ended, and its number is still its own.
    pub(crate) fn ends(&self, pid: u32) {
        self.records.ends(pid);
    }

    /// A process has ended. Returns whether it was this one.
    pub(crate) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        if let Some(outcomes) = self.records.exited(now, pid, exit) {
            self.records_are_set(outcomes);
            return true;
        }
        if self.running.take_if(|running| running.pid == pid).is_none() {
            return false;
        }
        self.demand.ask_again();
        self.clock.ask_again();
        if self.wanted.is_empty() {
            return true;
        }
        log::error!("the process for certificates died: {exit}; it starts again when it is needed");
        self.key_is_changed(Err("the process for certificates died".into()));
        let orders: Vec<u32> = self
            .wanted
            .iter()
            .filter_map(|one| one.order.as_ref().map(|order| order.number))
            .collect();
        for number in orders {
            self.failed(
                number,
                ("the process for certificates died".into(), false),
                now,
            );
        }
        true
    }
}
