//! Certificates of public authorities: which are wanted, when they are ordered, and what becomes of an order.
//!
//! ```text
//! keeper ◄─ "make a key" ─ manager ─ order, request ─► weir: acme ─ HTTPS ─► authority
//!           request ─────►         ◄─ answer to a challenge ─         (tries the name at the gateway)
//!                          gateway ◄─ the answer ─ manager ◄─ chain ─ weir: acme
//! ```
//! The process that talks to authorities has no key of a server; this one parses nothing that an authority sends. Chain and key go
//! to the folder of certificates, and from there they are used as all changed files are. What does not succeed is tried again,
//! later each time. Nodes that share the folder take turns by a lock for each certificate.

mod dns;
mod process;
mod times;

use std::{
    cell::RefCell,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{
    AcmeOrder, ChallengeAnswer, Draft, FromAcme, Issued, Lock, Proof, State, Store, ToAcme,
    is_issued,
};
use weir_config::{Acme, Config, Issuer, Protocol};
use weir_control::{CertificateOrder, CertificateOrders, Challenges, GivenChallenge, ToGateway};
use weir_keeper::{Order, Product};
use weir_sys::{
    identity::Identity,
    memory,
    process::{Exit, kill},
};

use self::{
    dns::Records,
    process::Running,
    times::{
        ASK_AT_LEAST, ASK_EVERY, LOCK_LIFE, LOOK_EVERY, ORDER_LIMIT, SHORT, SLACK, next_look, pause,
    },
};
use super::keeper::Keeper;

/// All of them.
#[derive(Debug)]
pub(super) struct Orders {
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
    challenges: Vec<Placed>,
    records: Records,
    /// The number of the last message to the gateway.
    message: u32,
    /// The generation and gateway that know `message`.
    told: Option<(u32, Option<u32>, u32)>,
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

/// A certificate that is wanted.
#[derive(Debug)]
struct Wanted {
    name: String,
    names: Vec<String>,
    chain: PathBuf,
    key: PathBuf,
    due: Instant,
    /// What became of the last orders, also those of before the start.
    state: State,
    /// When it is to be renewed (seconds since 1970); 0: it is not there.
    renew_at: i64,
    /// Orders since the manager's start that were successful, and that were not.
    done: u64,
    failed: u64,
    order: Option<OpenOrder>,
    advice: Advice,
}

/// When the authority says that a certificate should be renewed (ARI).
#[derive(Debug, Default)]
struct Advice {
    /// The number of the question.
    number: u32,
    /// For the certificate that is known by this.
    of: (Vec<u8>, Vec<u8>),
    /// Seconds since 1970; `None`: it has not said.
    renew_at: Option<i64>,
    /// When to ask again; `None`: now.
    ask_at: Option<Instant>,
}

/// An order that is under way.
#[derive(Debug)]
struct OpenOrder {
    number: u32,
    key: Draft,
    lock: Lock,
    /// It is given up then.
    until: Instant,
}

/// An answer to a challenge.
#[derive(Debug)]
struct Placed {
    order: u32,
    number: u32,
    /// The message to the gateway that has it.
    message: u32,
    answer: ChallengeAnswer,
}

impl Orders {
    pub(super) fn new(keeper: Rc<RefCell<Keeper>>, now: Instant) -> Orders {
        Orders {
            keeper,
            running: None,
            starts_at: now,
            who: None,
            generation: 0,
            authority: None,
            wanted: Vec::new(),
            next_order: 1,
            challenges: Vec::new(),
            records: Records::default(),
            message: 0,
            told: None,
        }
    }

    /// Takes the configuration of a generation that serves now.
    pub(super) fn serve(
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
        self.who.clone_from(who);
        let before = std::mem::take(&mut self.wanted);
        let mut before: Vec<Wanted> = before.into_iter().collect();
        for certificate in &config.certificates {
            let auto = certificate.auto.as_ref();
            let Some(auto) = auto.filter(|auto| auto.issuer == Issuer::Acme) else {
                continue;
            };
            let same = before
                .iter()
                .position(|one| one.chain == certificate.chain && one.names == auto.names);
            self.wanted.push(match same {
                Some(index) => Wanted {
                    due: now,
                    advice: Advice::default(),
                    ..before.swap_remove(index)
                },
                None => Wanted {
                    name: certificate.name.clone(),
                    names: auto.names.clone(),
                    chain: certificate.chain.clone(),
                    key: certificate.key_file().clone(),
                    due: now,
                    state: State::read(&certificate.chain).unwrap_or_default(),
                    renew_at: 0,
                    done: 0,
                    failed: 0,
                    order: None,
                    advice: Advice::default(),
                },
            });
        }
        for order in before.into_iter().filter_map(|one| one.order) {
            self.forget_challenges(order.number);
        }
        let settings = &config.tls.acme;
        let folder = &config.tls.certificates;
        let digest = weir_tls::sha256(settings.directory.as_bytes());
        let digits: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
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
            account: folder.join("accounts").join(format!("{digits}.json")),
            proof,
            command: (!settings.dns_command.is_empty()).then(|| {
                Rc::new(dns::Command {
                    words: settings.dns_command.clone(),
                    limit: settings.dns_timeout,
                    wait: settings.dns_wait,
                })
            }),
        });
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
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channel = self.running.as_ref().map(|running| running.channel.as_fd());
        channel.into_iter().chain(self.records.descriptor())
    }

    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let due = self.wanted.iter().map(|one| match &one.order {
            None => one.due,
            Some(order) => order.until,
        });
        let due = due.min().map(|due| match self.running {
            Some(_) => due,
            None => due.max(self.starts_at),
        });
        due.into_iter().chain(self.records.deadline(now)).min()
    }

    /// Starts the process and orders what is due. Returns what a gateway must know, if that is not this one's knowledge.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        (generation, gateway): (u32, Option<u32>),
    ) -> Option<ToGateway> {
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
        let state = (generation, gateway, self.message);
        // A new gateway knows nothing, and needs nothing if there is nothing.
        if self.told == Some(state) || (self.challenges.is_empty() && self.told.is_none()) {
            return None;
        }
        self.told = Some(state);
        let list = self.challenges.iter().map(|one| GivenChallenge {
            name: one.answer.name.clone(),
            token: one.answer.token.clone(),
            text: one.answer.text.clone(),
            certificate: one.answer.certificate.clone(),
        });
        let challenges = Challenges {
            list: list.collect(),
        };
        let file = memory::file(c"challenges", &challenges.encode()).ok()?;
        Some(ToGateway::Challenges {
            number: self.message,
            file,
        })
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
    pub(super) fn are_set(&mut self, message: u32) {
        let placed: Vec<u32> = self
            .challenges
            .iter()
            .filter(|one| one.message <= message)
            .map(|one| one.number)
            .collect();
        for number in placed {
            self.tell(&ToAcme::Placed(number));
        }
    }

    /// Orders a certificate if it is time.
    fn look(&mut self, index: usize, now: Instant) {
        let one = &mut self.wanted[index];
        let issued = Issued::read(&one.chain);
        let usable = issued.as_ref();
        let usable = usable.filter(|issued| is_issued(issued, &one.names) && one.key.exists());
        if usable.is_none() {
            one.renew_at = 0;
        }
        if let Some(issued) = usable {
            if one.advice.of != issued.known_by {
                one.advice = Advice {
                    of: issued.known_by.clone(),
                    ..Advice::default()
                };
            }
            one.renew_at = issued.renew_as_advised(one.advice.renew_at);
            if weir_acme::now() < one.renew_at {
                one.due = next_look(one.renew_at, now);
                self.ask(index, now);
                return;
            }
        }
        let replaces = issued.map(|issued| issued.known_by);
        if !self.runs(now) {
            let one = &mut self.wanted[index];
            one.due = now + SHORT;
            return;
        }
        let ordered = self.order(index, replaces, now);
        let one = &mut self.wanted[index];
        match ordered {
            Ok(true) => {}
            // Another node orders it.
            Ok(false) => one.due = now + SHORT,
            Err(cause) => {
                log::error!("[certificate.{}] cannot be ordered: {cause}", one.name);
                one.due = now + LOOK_EVERY;
            }
        }
    }

    /// Asks the authority when a certificate should be renewed, from time to time.
    fn ask(&mut self, index: usize, now: Instant) {
        let advice = &self.wanted[index].advice;
        let is_due = advice.ask_at.is_none_or(|at| at <= now);
        // A certificate of an authority without key identifiers is not known by anything.
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
        let mut random = [0; 4];
        let _ = weir_tls::random(&mut random);
        let span = end.saturating_sub(start).clamp(0, i64::from(u32::MAX));
        let share = i64::from(u32::from_be_bytes(random)) * span / i64::from(u32::MAX);
        // Asked again within the same window, the time stays, also after a restart.
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

    fn order(
        &mut self,
        index: usize,
        replaces: Option<(Vec<u8>, Vec<u8>)>,
        now: Instant,
    ) -> Result<bool, String> {
        let Some(authority) = &self.authority else {
            return Ok(false);
        };
        let one = &mut self.wanted[index];
        let folder = one.chain.parent().and_then(Path::file_name);
        let folder = folder.unwrap_or_default().to_string_lossy();
        let lock = Lock::take(&authority.store, &folder, ORDER_LIMIT + LOCK_LIFE)?;
        let Some(lock) = lock else {
            return Ok(false);
        };
        authority.store.make_folder_of(&one.chain)?;
        let key = Draft::new(&one.key, 0o600)?;
        let file = key.file().try_clone().map_err(|error| error.to_string())?;
        let csr = self.keeper.borrow_mut().make(Order {
            product: Product::Request,
            names: one.names.clone(),
            days: 0,
            key: file.into(),
        })?;
        // If one way does not succeed, the other one may.
        let proof = match (&authority.settings.challenge, one.state.failures % 2) {
            (None, _) if one.has_star() => Proof::Dns01,
            (None, 1) if authority.proof == Proof::Http01 => Proof::TlsAlpn01,
            (None, 1) => Proof::Http01,
            _ => authority.proof,
        };
        let mut limit = ORDER_LIMIT;
        if let (Proof::Dns01, Some(command)) = (proof, &authority.command) {
            // Commands of other orders may come first.
            let commands = 2 * one.names.len() as u32;
            limit += command.wait + command.limit * commands;
        }
        let number = self.next_order;
        self.next_order = number.wrapping_add(1);
        one.order = Some(OpenOrder {
            number,
            key,
            lock,
            until: now + limit + SLACK,
        });
        let order = AcmeOrder {
            number,
            names: one.names.clone(),
            csr,
            proof,
            profile: authority.settings.profile.clone(),
            limit: limit.as_secs(),
            // An authority that gives certificates without key identifiers does not know them by anything.
            replaces: replaces.filter(|(key, _)| !key.is_empty()),
        };
        log::info!(
            "[certificate.{}]: ordered from {}",
            one.name,
            authority.settings.directory
        );
        self.tell(&ToAcme::Order(order));
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
                    if let Err(error) = kept {
                        log::error!("the account of the authority cannot be kept: {error}");
                    }
                }
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
                    self.message = self.message.wrapping_add(1);
                    self.challenges.push(Placed {
                        order,
                        number,
                        message: self.message,
                        answer,
                    });
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
        }
    }

    /// Has a TXT record made for a challenge of one of our names.
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
        let before = self.challenges.len();
        self.challenges.retain(|one| one.order != order);
        if self.challenges.len() != before {
            self.message = self.message.wrapping_add(1);
        }
    }

    fn obtained(&mut self, number: u32, chain: &[u8], now: Instant) -> Result<(), String> {
        self.forget_challenges(number);
        let mut wanted = self.wanted.iter_mut();
        let is_it = |order: &OpenOrder| order.number == number;
        let Some(one) = wanted.find(|one| one.order.as_ref().is_some_and(is_it)) else {
            return Ok(());
        };
        let issued = Issued::of(chain).ok_or("the authority sent no certificate")?;
        if !is_issued(&issued, &one.names) {
            return Err("the authority sent a certificate for other names".into());
        }
        let mut draft = Draft::new(&one.chain, 0o644)?;
        draft.write(chain)?;
        let Some(OpenOrder { key, lock, .. }) = one.order.take() else {
            return Ok(());
        };
        key.install()?;
        draft.install()?;
        drop(lock);
        one.done += 1;
        one.renew_at = issued.renew_at();
        one.due = now + SHORT.min(next_look(one.renew_at, now) - now);
        one.state = State {
            records: std::mem::take(&mut one.state.records),
            ..State::default()
        };
        one.write_state();
        log::info!(
            "[certificate.{}]: the authority has signed it, for {}; it is renewed at two thirds of its life",
            one.name,
            one.names.join(", ")
        );
        Ok(())
    }

    fn failed(&mut self, number: u32, (cause, is_refused): (String, bool), now: Instant) {
        self.forget_challenges(number);
        let mut wanted = self.wanted.iter_mut();
        let is_it = |order: &OpenOrder| order.number == number;
        let Some(one) = wanted.find(|one| one.order.as_ref().is_some_and(is_it)) else {
            return;
        };
        one.order = None;
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
        let at = weir_acme::now();
        one.state = State {
            error: Some(cause.clone()),
            at,
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
    }

    /// What became of all orders, for the admin interface. `None`: nothing is ordered.
    pub(super) fn report(&self) -> Option<ToGateway> {
        if self.wanted.is_empty() {
            return None;
        }
        let positive = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        let list = self.wanted.iter().map(|one| CertificateOrder {
            name: one.name.clone(),
            renew_at: positive(one.renew_at),
            done: one.done,
            failed: one.failed,
            failures: one.state.failures,
            error: one.state.error.clone(),
            failed_at: positive(one.state.at),
            next: positive(one.state.next),
        });
        let orders = CertificateOrders {
            list: list.collect(),
        };
        let file = memory::file(c"orders", &orders.encode()).ok()?;
        Some(ToGateway::CertificateOrders(file))
    }

    /// Gives all orders up, because weir stops. Returns whether the process is gone, and TXT records too.
    pub(super) fn stop(&mut self, now: Instant) -> bool {
        for one in std::mem::take(&mut self.wanted) {
            if let Some(order) = one.order {
                self.records.forget(order.number);
            }
        }
        self.records.tick(now);
        if let Some(running) = &self.running
            && let Err(error) = kill(running.pid)
        {
            log::error!("the process for certificates cannot be killed: {error}");
        }
        self.running.is_none() && self.records.is_idle()
    }

    /// A process has ended. Returns whether it was this one.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        if let Some(outcomes) = self.records.exited(now, pid, exit) {
            self.records_are_set(outcomes);
            return true;
        }
        if self.running.take_if(|running| running.pid == pid).is_none() {
            return false;
        }
        if self.wanted.is_empty() {
            return true;
        }
        log::error!("the process for certificates died: {exit}; it starts again when it is needed");
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

impl Wanted {
    /// Whether it is for a name with a star, which only DNS can prove.
    fn has_star(&self) -> bool {
        self.names.iter().any(|name| name.starts_with('*'))
    }

    /// Writes what became of the last orders beside the chain.
    fn write_state(&self) {
        if let Err(error) = self.state.write(&self.chain) {
            log::error!("{error}");
        }
    }
}
