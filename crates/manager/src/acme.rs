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

use std::{
    cell::RefCell,
    ffi::OsString,
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{
    AcmeOrder, ChallengeAnswer, Draft, FromAcme, Issued, Lock, Proof, ROLE, State, Store, ToAcme,
    is_issued, receive, send,
};
use weir_config::{Acme, Config, Issuer, Protocol};
use weir_control::{Challenges, GivenChallenge, ToGateway};
use weir_keeper::{Order, Product};
use weir_sys::{
    identity::Identity,
    memory, message,
    process::{self, Exit, Spawn},
    version,
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
    /// The number of the last message to the gateway.
    message: u32,
    /// The generation and gateway that know `message`.
    told: Option<(u32, Option<u32>, u32)>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    channel: OwnedFd,
    is_ready: bool,
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
}

/// A certificate that is wanted.
#[derive(Debug)]
struct Wanted {
    name: String,
    names: Vec<String>,
    chain: PathBuf,
    key: PathBuf,
    due: Instant,
    failures: u32,
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
    since: Instant,
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
                    failures: 0,
                    order: None,
                    advice: Advice::default(),
                },
            });
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
        });
        if changed {
            // Orders of another authority are given up.
            self.wanted.iter_mut().for_each(|one| one.order = None);
            self.introduce();
        }
    }

    /// The channel of the process.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(|running| running.channel.as_fd())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self.wanted.iter().map(|one| match &one.order {
            None => one.due,
            Some(order) => order.since + ORDER_LIMIT,
        });
        let due = due.min()?;
        Some(match self.running {
            Some(_) => due,
            None => due.max(self.starts_at),
        })
    }

    /// Starts the process and orders what is due. Returns what a gateway must know, if that is not this one's knowledge.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        (generation, gateway): (u32, Option<u32>),
    ) -> Option<ToGateway> {
        for index in 0..self.wanted.len() {
            let one = &self.wanted[index];
            match &one.order {
                Some(order) if now >= order.since + ORDER_LIMIT => {
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
        if let Some(issued) = Issued::read(&one.chain)
            && is_issued(&issued, &one.names)
            && one.key.exists()
        {
            if one.advice.of != issued.known_by {
                one.advice = Advice {
                    of: issued.known_by.clone(),
                    ..Advice::default()
                };
            }
            if weir_acme::now() < one.renew_at(&issued) {
                one.due = next_look(one.renew_at(&issued), now);
                self.ask(index, now);
                return;
            }
        }
        if !self.runs(now) {
            let one = &mut self.wanted[index];
            one.due = now + SHORT;
            return;
        }
        let ordered = self.order(index, now);
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
        // Asked again within the same window, the time stays.
        let renew_at = start.saturating_add(share);
        let stays = one.advice.renew_at.filter(|at| (start..=end).contains(at));
        one.advice.renew_at = Some(stays.unwrap_or(renew_at));
        let again = Duration::from_secs(again).clamp(ASK_AT_LEAST, ASK_EVERY * 4);
        one.advice.ask_at = Some(now + again);
        one.due = now;
    }

    fn order(&mut self, index: usize, now: Instant) -> Result<bool, String> {
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
        let key = Draft::new(&one.key, 0o600)?;
        let file = key.file().try_clone().map_err(|error| error.to_string())?;
        let csr = self.keeper.borrow_mut().make(Order {
            product: Product::Request,
            names: one.names.clone(),
            days: 0,
            key: file.into(),
        })?;
        // If one way does not succeed, the other one may.
        let proof = match (&authority.settings.challenge, one.failures % 2) {
            (None, 1) => match authority.proof {
                Proof::Http01 => Proof::TlsAlpn01,
                Proof::TlsAlpn01 => Proof::Http01,
            },
            _ => authority.proof,
        };
        let number = self.next_order;
        self.next_order = number.wrapping_add(1);
        one.order = Some(OpenOrder {
            number,
            key,
            lock,
            since: now,
        });
        let order = AcmeOrder {
            number,
            names: one.names.clone(),
            csr,
            proof,
            profile: authority.settings.profile.clone(),
        };
        log::info!(
            "[certificate.{}]: ordered from {}",
            one.name,
            authority.settings.directory
        );
        self.tell(&ToAcme::Order(order));
        Ok(true)
    }

    /// Whether the process runs; it is started if it may be.
    fn runs(&mut self, now: Instant) -> bool {
        if self.running.is_none() && now >= self.starts_at {
            self.starts_at = now + RESTART;
            if let Err(error) = self.start() {
                log::error!("the process for certificates cannot start: {error}");
            }
        }
        self.running
            .as_ref()
            .is_some_and(|running| running.is_ready)
    }

    fn start(&mut self) -> io::Result<()> {
        let (ours, theirs) = message::pair()?;
        version::greet(ours.as_fd())?;
        let spawn = Spawn {
            program: "/proc/self/exe".into(),
            name: Some("weir: acme".into()),
            arguments: vec![OsString::from(ROLE)],
            environment: Vec::new(),
            identity: None,
            chroot: None,
            may_chroot: false,
            folder: Some("/".into()),
            open_files: None,
            core_size: Some(0),
            priority: None,
            huge_pages: false,
            stdin: theirs,
            stdout: io::stdout().as_fd().try_clone_to_owned()?,
            stderr: io::stderr().as_fd().try_clone_to_owned()?,
        };
        let pid = spawn
            .start()
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.running = Some(Running {
            pid,
            channel: ours,
            is_ready: false,
        });
        let who = self.who.as_ref().map(|who| (who.uid, who.gid));
        self.tell(&ToAcme::Become(who));
        self.introduce();
        Ok(())
    }

    /// Tells the process of the authority.
    fn introduce(&mut self) {
        let Some(authority) = &self.authority else {
            return;
        };
        let settings = &authority.settings;
        let ca = match settings.ca_file.as_ref().map(fs::read_to_string) {
            None => None,
            Some(Ok(text)) => Some(text),
            Some(Err(error)) => {
                log::error!(
                    "tls.acme.ca_file cannot be read: {error}; the machine's certificates are used"
                );
                None
            }
        };
        let message = ToAcme::Authority {
            directory: settings.directory.clone(),
            email: settings.email.clone(),
            ca,
            account: fs::read_to_string(&authority.account).ok(),
            elsewhere: elsewhere(settings),
        };
        self.tell(&message);
    }

    fn tell(&self, message: &ToAcme) {
        if let Some(running) = &self.running
            && let Err(error) = send(running.channel.as_fd(), message, false)
        {
            log::error!("the process for certificates takes no messages: {error}");
        }
    }

    /// Reads what the process says.
    pub(super) fn hear(&mut self, now: Instant) {
        while let Some(running) = &self.running {
            match receive::<FromAcme>(running.channel.as_fd(), false) {
                Ok(Some(message)) => self.heard(message, now),
                // Its end is noticed as that of a process.
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    log::error!("the process for certificates sent a wrong message: {error}");
                    let _ = process::kill(running.pid);
                    return;
                }
            }
        }
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
                if self.wanted.iter().any(is_ours) {
                    self.message = self.message.wrapping_add(1);
                    self.challenges.push(Placed {
                        order,
                        number,
                        message: self.message,
                        answer,
                    });
                }
            }
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

    /// Removes the answers to an order's challenges.
    fn forget_challenges(&mut self, order: u32) {
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
        one.failures = 0;
        one.due = now + SHORT.min(next_look(issued.renew_at(), now) - now);
        State::default().write(&one.chain)?;
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
        let pause = match &self.authority {
            // The other proof is tried at once.
            Some(authority) if authority.settings.challenge.is_none() && one.failures == 0 => SHORT,
            _ => pause(one.failures, is_refused),
        };
        one.failures = one.failures.saturating_add(1);
        one.due = now + pause;
        let at = weir_acme::now();
        let state = State {
            error: Some(cause.clone()),
            at,
            next: at + pause.as_secs() as i64,
        };
        if let Err(error) = state.write(&one.chain) {
            log::error!("{error}");
        }
        log::error!(
            "[certificate.{}]: no certificate from the authority: {cause}; tried again in {} s",
            one.name,
            pause.as_secs()
        );
    }

    /// Gives all orders up, because weir stops. Returns whether the process is gone.
    pub(super) fn stop(&mut self) -> bool {
        self.wanted.clear();
        if let Some(running) = &self.running
            && let Err(error) = process::kill(running.pid)
        {
            log::error!("the process for certificates cannot be killed: {error}");
        }
        self.running.is_none()
    }

    /// A process has ended. Returns whether it was this one.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
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
    /// When it is to be renewed: as the authority says, but before the last tenth of its life; otherwise at two thirds of it
    /// (seconds since 1970).
    fn renew_at(&self, issued: &Issued) -> i64 {
        let last = issued.not_after - (issued.not_after - issued.not_before) / 10;
        let advised = self.advice.renew_at;
        advised.map_or_else(|| issued.renew_at(), |advised| advised.min(last))
    }
}

/// The account at the authority's other service.
fn elsewhere(settings: &Acme) -> Option<(String, String)> {
    let (id, file) = (
        settings.eab_key_id.as_ref()?,
        settings.eab_key_file.as_ref()?,
    );
    match fs::read_to_string(file) {
        Ok(key) => Some((id.clone(), key.trim().to_owned())),
        Err(error) => {
            log::error!("tls.acme.eab_key_file: {}: {error}", file.display());
            None
        }
    }
}

/// When to look at a certificate again: when it must be renewed, or soon.
fn next_look(renew_at: i64, now: Instant) -> Instant {
    let left = renew_at - weir_acme::now();
    let left = Duration::from_secs(left.max(1).unsigned_abs());
    now + left.min(LOOK_EVERY)
}

/// The pause after so many failures. Authorities limit how often a name may be refused (five times an hour at Let's Encrypt), and
/// less how often they are asked.
fn pause(failures: u32, is_refused: bool) -> Duration {
    let first = match is_refused {
        true => REFUSED,
        false => SHORT,
    };
    let pause = first * 2_u32.saturating_pow(failures.min(16));
    pause.min(LONGEST)
}

/// How often it is looked whether a certificate must be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often an authority is asked when to renew, if it says nothing else.
const ASK_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The same, at least.
const ASK_AT_LEAST: Duration = Duration::from_secs(60);

/// How long an order may take, with all its steps.
const ORDER_LIMIT: Duration = Duration::from_secs(240);

/// The lock of an order ends later than the order.
const LOCK_LIFE: Duration = Duration::from_secs(300);

/// The pause after an authority was not reached for the first time, and before a look at what another node does.
const SHORT: Duration = Duration::from_secs(5);

/// The pause after an authority has said no for the first time.
const REFUSED: Duration = Duration::from_secs(600);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// The pause between two starts of the process.
const RESTART: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_below_the_limits_of_authorities() {
        let seconds = |failures, refused| pause(failures, refused).as_secs();
        assert_eq!([0, 1, 2].map(|n| seconds(n, false)), [5, 10, 20]);
        assert_eq!(seconds(40, false), 6 * 3600);
        assert_eq!(seconds(40, true), 6 * 3600);
        // Fewer than five refusals in an hour.
        let mut at = 0;
        let refusals = (0..).take_while(|failures| {
            at += seconds(*failures, true);
            at < 3600
        });
        assert!(refusals.count() < 4);
    }
}
