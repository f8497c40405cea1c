//! The process that talks to authorities.
//!
//! It has the account's key and no key of a server, a user number of its own, and no other file than those that its libraries read
//! to resolve names and to know whom to trust. What authorities send is parsed here, and only texts go to the manager.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::PoisonError,
    time::Duration,
};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::LocalSet,
};
use weir_sys::{
    identity::{self, Identity},
    process, version,
};

use crate::{
    ask::ask,
    http::{Client, SharedNotes},
    messages::{AcmeOrder, ChallengeAnswer, FromAcme, Proof, ToAcme, receive, send},
};

/// The argument that starts the program as this process. Only the manager uses it.
pub const ROLE: &str = "--role=acme";

/// Whether this process was started as the process for certificates.
pub fn is_acme() -> bool {
    process::has_role(ROLE)
}

/// Serves until the manager closes its channel, which is on descriptor 0.
///
/// # Errors
/// If it cannot give up its rights, or a message is wrong. The manager was told, if possible.
pub fn run() -> Result<(), String> {
    let control = process::take_inherited(0)
        .map_err(|error| format!("it was not started by a manager: {error}"))?;
    let parent = process::parent();
    let served = enter(&control, parent).and_then(|()| serve(&control));
    served.inspect_err(|cause| {
        let _ = send(control.as_fd(), &FromAcme::Unfit(cause.clone()), true);
    })
}

/// Receives the first message and gives up all rights.
fn enter(control: &OwnedFd, parent: u32) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let _ = process::set_name(c"weir-acme");
    version::be_greeted(control.as_fd(), "weir's process for certificates")?;
    let first = receive(control.as_fd(), true).map_err(told)?;
    let Some(ToAcme::Become(who)) = first else {
        return Err("the manager did not say first which user to become".into());
    };
    if let Some((uid, gid)) = who {
        let who = Identity {
            uid,
            gid,
            groups: Vec::new(),
        };
        identity::become_identity(&who)
            .map_err(|error| format!("cannot become user {uid}: {error}"))?;
    }
    identity::not_dumpable().map_err(told)?;
    identity::no_new_privileges().map_err(told)?;
    match process::end_with_parent(parent) {
        Ok(true) => {}
        Ok(false) => return Err("the manager has ended".into()),
        Err(error) => return Err(error.to_string()),
    }
    send(control.as_fd(), &FromAcme::Ready, true).map_err(told)
}

fn serve(control: &OwnedFd) -> Result<(), String> {
    let (sender, mut messages) = mpsc::unbounded_channel();
    let reader = control.try_clone().map_err(|error| error.to_string())?;
    let thread = std::thread::Builder::new().name("weir-messages".into());
    let read = move || {
        while let Ok(Some(message)) = receive::<ToAcme>(reader.as_fd(), true) {
            if sender.send(message).is_err() {
                return;
            }
        }
    };
    thread.spawn(read).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let control = control.try_clone().map_err(|error| error.to_string())?;
    let context = Rc::new(OrderContext {
        control,
        authority: RefCell::new(None),
        waiting: RefCell::default(),
        next: Cell::new(1),
    });
    LocalSet::new().block_on(&runtime, async move {
        while let Some(message) = messages.recv().await {
            match message {
                ToAcme::Become(_) => return Err("the manager names the user twice".to_owned()),
                ToAcme::Authority {
                    directory,
                    email,
                    ca,
                    account,
                    elsewhere,
                } => {
                    let authority = Authority {
                        elsewhere,
                        directory,
                        email,
                        ca,
                        kept: RefCell::new(account),
                        account: Mutex::new(None),
                        heard: SharedNotes::default(),
                    };
                    *context.authority.borrow_mut() = Some(Rc::new(authority));
                }
                ToAcme::Ask { number, url, limit } => {
                    let context = context.clone();
                    tokio::task::spawn_local(async move {
                        let status = ask(&url, Duration::from_millis(limit)).await;
                        context.tell(&FromAcme::Answered { number, status });
                    });
                }
                ToAcme::Order(order) => {
                    let context = context.clone();
                    tokio::task::spawn_local(async move { context.get(order).await });
                }
                ToAcme::ChangeKey => {
                    let context = context.clone();
                    tokio::task::spawn_local(async move {
                        context.tell(&match context.change_key().await {
                            Ok(kept) => FromAcme::Account(kept),
                            Err(failure) => FromAcme::KeyNotChanged(failure.message),
                        });
                    });
                }
                ToAcme::WhenToRenew { number, known_by } => {
                    let context = context.clone();
                    tokio::task::spawn_local(async move {
                        // An authority that does not name a time is not asked again soon.
                        let message = context.when_to_renew(number, known_by).await;
                        context.tell_time();
                        if let Ok(message) = message {
                            context.tell(&message);
                        }
                    });
                }
                ToAcme::Time => {
                    let context = context.clone();
                    tokio::task::spawn_local(async move {
                        if context.ask_time().await.is_err() || !context.tell_time() {
                            context.tell(&FromAcme::Time(None));
                        }
                    });
                }
                ToAcme::Placed(number) => context.placed(number, Ok(())),
                ToAcme::NotPlaced { number, cause } => context.placed(number, Err(cause)),
            }
        }
        Ok(())
    })
}

/// What all orders share.
struct OrderContext {
    control: OwnedFd,
    authority: RefCell<Option<Rc<Authority>>>,
    /// Challenges whose answers are not in place yet.
    waiting: RefCell<HashMap<u32, oneshot::Sender<Result<(), String>>>>,
    /// The number of the next challenge.
    next: Cell<u32>,
}

struct Authority {
    directory: String,
    email: Option<String>,
    ca: Option<String>,
    /// The account elsewhere: the number of its key, and the key.
    elsewhere: Option<(String, String)>,
    /// The account that the manager has.
    kept: RefCell<Option<String>>,
    account: Mutex<Option<Account>>,
    heard: SharedNotes,
}

/// Why there is no certificate.
struct Failure {
    message: String,
    is_refused: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        // People read an authority's text: it becomes one line, and is cut if it is long.
        let message: String = error.to_string().chars().take(500).collect();
        let is_busy = matches!(&error, Error::Api(problem) if problem.status.is_some_and(|status| status >= 500));
        Failure {
            message: message.replace(char::is_control, " "),
            is_refused: matches!(error, Error::Api(_)) && !is_busy,
        }
    }
}

fn refused(message: String) -> Failure {
    Failure {
        message,
        is_refused: true,
    }
}

/// Whether the authority did not take a nonce: the next request has another one (RFC 8555 §6.5).
fn is_bad_nonce(error: &Error) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce")
}

/// Whether the authority has had too many orders of late.
fn is_limit(error: &Error) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:rateLimited")
}

/// Repeats a step while the authority refuses nonces.
macro_rules! patiently {
    ($step:expr) => {{
        let mut attempts = 0;
        loop {
            match $step.await {
                Err(error) if is_bad_nonce(&error) && attempts < BAD_NONCES => attempts += 1,
                result => break result,
            }
        }
    }};
}

impl OrderContext {
    fn tell(&self, message: &FromAcme) {
        // Without a manager this process ends.
        let _ = send(self.control.as_fd(), message, true);
    }

    async fn get(&self, order: AcmeOrder) {
        let number = order.number;
        let limit = Duration::from_secs(order.limit);
        let got = match tokio::time::timeout(limit, self.order(order)).await {
            Ok(got) => got,
            Err(_) => Err(Failure {
                message: format!("the authority has not finished the order for {limit:?}"),
                is_refused: false,
            }),
        };
        self.tell_time();
        self.tell(&match got {
            Ok(chain) => FromAcme::Obtained {
                order: number,
                chain,
            },
            Err(Failure {
                message,
                is_refused,
            }) => FromAcme::Failed {
                order: number,
                message,
                is_refused,
            },
        });
    }

    /// Reports the authority's clock to the manager, if the authority has named its time since the last report. Returns
    /// whether it has.
    fn tell_time(&self) -> bool {
        let authority = self.authority.borrow().clone();
        let time = authority.and_then(|authority| {
            let mut said = authority
                .heard
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            said.time.take()
        });
        if time.is_some() {
            self.tell(&FromAcme::Time(time));
        }
        time.is_some()
    }

    async fn ask_time(&self) -> Result<(), String> {
        let authority = self.authority.borrow().clone();
        let authority = authority.ok_or("no authority is known")?;
        let client = Client::new(authority.ca.as_deref(), &authority.heard)?;
        client.ask_time(&authority.directory).await
    }

    /// The account at the authority: the kept one, otherwise a new one.
    async fn account(&self, authority: &Authority) -> Result<Account, Failure> {
        let mut account = authority.account.lock().await;
        if let Some(account) = &*account {
            return Ok(account.clone());
        }
        let unusable = |message: String| Failure {
            message,
            is_refused: false,
        };
        let client = Client::new(authority.ca.as_deref(), &authority.heard).map_err(unusable)?;
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        let kept = authority.kept.borrow().clone();
        let made = match &kept {
            Some(kept) => {
                let credentials: AccountCredentials = serde_json::from_str(kept)
                    .map_err(|error| unusable(format!("the kept account is damaged: {error}")))?;
                builder().from_credentials(credentials).await?
            }
            None => {
                let contact = authority.email.as_ref();
                let contact = contact.map(|email| format!("mailto:{email}"));
                let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
                let new = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let elsewhere = match &authority.elsewhere {
                    None => None,
                    Some((id, key)) => {
                        let key = BASE64_URL_SAFE_NO_PAD.decode(key.trim().trim_end_matches('='));
                        let key =
                            key.map_err(|_| unusable("eab_key_file is not base64url".into()))?;
                        Some(ExternalAccountKey::new(id.clone(), &key))
                    }
                };
                let (made, credentials) = patiently!(builder().create(
                    &new,
                    authority.directory.clone(),
                    elsewhere.as_ref()
                ))?;
                let kept = serde_json::to_string(&credentials)
                    .map_err(|error| unusable(error.to_string()))?;
                self.tell(&FromAcme::Account(kept));
                made
            }
        };
        *account = Some(made.clone());
        Ok(made)
    }

    /// Gives the account another key. Returns the account, as it is to be kept.
    async fn change_key(&self) -> Result<String, Failure> {
        let authority = self.authority.borrow().clone();
        let authority = authority.ok_or_else(|| refused("no authority is known".into()))?;
        // It is there from now on.
        self.account(&authority).await?;
        let mut account = authority.account.lock().await;
        let Some(known) = &mut *account else {
            return Err(refused("there is no account".into()));
        };
        let credentials = patiently!(known.update_key())?;
        let kept = serde_json::to_string(&credentials).map_err(|error| Failure {
            message: error.to_string(),
            is_refused: false,
        })?;
        *authority.kept.borrow_mut() = Some(kept.clone());
        Ok(kept)
    }

    async fn order(&self, order: AcmeOrder) -> Result<String, Failure> {
        let authority = self.authority.borrow().clone();
        let authority = authority.ok_or_else(|| refused("no authority is known".into()))?;
        let mut account = self.account(&authority).await?;
        let identifier = |name: &String| match name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(name.clone()),
        };
        let names: Vec<Identifier> = order.names.iter().map(identifier).collect();
        let mut attempts = 0;
        loop {
            match self
                .order_once(&authority, &account, (&names, &order))
                .await
            {
                Err(OrderFailure::Nonce) if attempts < BAD_NONCES => attempts += 1,
                Err(OrderFailure::Nonce) => {
                    return Err(Failure {
                        message: "the authority refuses its own nonces".into(),
                        is_refused: false,
                    });
                }
                Err(OrderFailure::NoAccount) if attempts < BAD_NONCES => {
                    attempts = BAD_NONCES;
                    authority.kept.take();
                    authority.account.lock().await.take();
                    account = self.account(&authority).await?;
                }
                Err(OrderFailure::NoAccount) => {
                    return Err(refused("the authority does not know the account".into()));
                }
                Err(OrderFailure::Other(failure)) => return Err(failure),
                Ok(chain) => return Ok(chain),
            }
        }
    }

    async fn order_once(
        &self,
        authority: &Authority,
        account: &Account,
        (names, wanted): (&[Identifier], &AcmeOrder),
    ) -> Result<String, OrderFailure> {
        let mut order = begin(account, names, wanted).await?;
        let retries = RetryPolicy::default().timeout(Duration::from_secs(wanted.limit));
        if order.state().status == OrderStatus::Pending {
            let records = self
                .place_all(authority, account, &mut order, wanted)
                .await?;
            let kind = kind_of(wanted.proof);
            let mut authorizations = order.authorizations();
            while let Some(authorization) = authorizations.next().await {
                let mut authorization = authorization?;
                if authorization.status == AuthorizationStatus::Pending
                    && let Some(mut challenge) = authorization.challenge(kind.clone())
                {
                    patiently!(challenge.set_ready())?;
                }
            }
            let status = order.poll_ready(&retries).await;
            if !matches!(status, Ok(OrderStatus::Ready | OrderStatus::Valid)) {
                let mut failure = match status {
                    Ok(_) => why_refused(&mut order).await,
                    Err(error) if records.is_empty() || is_bad_nonce(&error) => {
                        return Err(error.into());
                    }
                    Err(error) => error.into(),
                };
                for (name, value) in records {
                    failure.message += &format!("; the DNS must have {name} TXT \"{value}\"");
                }
                return Err(failure.into());
            }
        }
        if order.state().status == OrderStatus::Ready {
            patiently!(order.finalize_csr(&wanted.csr))?;
        }
        Ok(order.poll_certificate(&retries).await?)
    }

    /// Puts the answers to an order's challenges in place. Returns the records that the operator must have set.
    async fn place_all(
        &self,
        authority: &Authority,
        account: &Account,
        order: &mut instant_acme::Order,
        wanted: &AcmeOrder,
    ) -> Result<Vec<(String, String)>, OrderFailure> {
        let kind = kind_of(wanted.proof);
        let (mut placing, mut records) = (Vec::new(), Vec::new());
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                status => return Err(refused(format!("an authorization is {status:?}")).into()),
            }
            let name = authorization.identifier().to_string();
            let offered = authorization.challenge(kind.clone());
            let challenge = offered.ok_or_else(|| {
                refused(format!(
                    "the authority does not offer {:?} for {name}",
                    wanted.proof
                ))
            })?;
            if wanted.proof == Proof::DnsPersist01 {
                let said = authority.heard.lock();
                let said = said.unwrap_or_else(PoisonError::into_inner);
                let issuer = said.issuers.first().map_or("", String::as_str);
                let record = persistent_record(&name, issuer, account.id());
                if let Some(same) = records
                    .iter_mut()
                    .find(|(same, _): &&mut (String, String)| *same == record.0)
                {
                    // The record for the name with a star is also for the name itself.
                    if record.1.len() > same.1.len() {
                        *same = record;
                    }
                } else {
                    records.push(record);
                }
                continue;
            }
            let authorization = challenge.key_authorization();
            let mut answer = ChallengeAnswer {
                token: challenge.token.clone(),
                text: authorization.as_str().to_owned(),
                certificate: None,
                record: None,
                name,
            };
            if wanted.proof == Proof::TlsAlpn01 {
                let digest = authorization.digest();
                let made = proof_certificate(&answer.name, digest.as_ref());
                answer.certificate = Some(made.map_err(|error| refused(error.to_string()))?);
            }
            if wanted.proof == Proof::Dns01 {
                let base = answer.name.trim_start_matches("*.");
                let record = (format!("_acme-challenge.{base}"), authorization.dns_value());
                answer.record = Some(record);
            }
            placing.push(self.place(wanted.number, answer));
        }
        if !records.is_empty() {
            self.tell(&FromAcme::Persistent {
                order: wanted.number,
                records: records.clone(),
            });
        }
        for placed in placing {
            let placed = placed.await.unwrap_or_else(|_| {
                Err("the gateway did not take the answer to a challenge".to_owned())
            });
            placed.map_err(|message| Failure {
                message,
                is_refused: false,
            })?;
        }
        Ok(records)
    }

    /// Asks when a certificate should be renewed.
    async fn when_to_renew(
        &self,
        number: u32,
        (authority_key, serial): (Vec<u8>, Vec<u8>),
    ) -> Result<FromAcme, Failure> {
        let authority = self.authority.borrow().clone();
        let authority = authority.ok_or_else(|| refused("no authority is known".into()))?;
        let account = self.account(&authority).await?;
        let identifier = CertificateIdentifier::new(authority_key.into(), serial.into());
        let (info, again) = account.renewal_info(&identifier).await?;
        Ok(FromAcme::Renew {
            number,
            start: info.suggested_window.start.unix_timestamp(),
            end: info.suggested_window.end.unix_timestamp(),
            again: again.as_secs(),
        })
    }

    /// Asks the manager to put the answer to a challenge in place.
    fn place(&self, order: u32, answer: ChallengeAnswer) -> oneshot::Receiver<Result<(), String>> {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let (sender, placed) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, sender);
        self.tell(&FromAcme::Challenge {
            order,
            number,
            answer,
        });
        placed
    }

    /// The answer to a challenge is in place, or cannot be.
    fn placed(&self, number: u32, result: Result<(), String>) {
        if let Some(waiting) = self.waiting.borrow_mut().remove(&number) {
            let _ = waiting.send(result);
        }
    }
}

/// Makes an order at the authority.
async fn begin(
    account: &Account,
    names: &[Identifier],
    wanted: &AcmeOrder,
) -> Result<instant_acme::Order, Error> {
    let new = || match &wanted.profile {
        Some(profile) => NewOrder::new(names).profile(profile),
        None => NewOrder::new(names),
    };
    if let Some((key, serial)) = &wanted.replaces {
        let replaces = CertificateIdentifier::new((&**key).into(), (&**serial).into());
        let order = || new().replaces(replaces.clone());
        // If the authority does not know the replaced certificate, or has another order for it, the order is sent
        // without it (RFC 9773 §5).
        match patiently!(account.new_order(&order())) {
            Err(error) if is_limit(&error) => return Err(error),
            Err(_) => {}
            made => return made,
        }
    }
    patiently!(account.new_order(&new()))
}

fn kind_of(proof: Proof) -> ChallengeType {
    match proof {
        Proof::Http01 => ChallengeType::Http01,
        Proof::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Proof::Dns01 => ChallengeType::Dns01,
        Proof::DnsPersist01 => ChallengeType::Unknown("dns-persist-01".into()),
    }
}

/// The TXT record that lets an account order certificates for a name (draft-ietf-acme-dns-persist §4).
fn persistent_record(name: &str, issuer: &str, account: &str) -> (String, String) {
    let (base, policy) = match name.strip_prefix("*.") {
        Some(base) => (base, "; policy=wildcard"),
        None => (name, ""),
    };
    let value = format!("{issuer}; accounturi={account}{policy}");
    (format!("_validation-persist.{base}"), value)
}

/// Why an order has failed.
enum OrderFailure {
    /// The authority did not take a nonce: a new order may succeed.
    Nonce,
    /// The authority does not know the account: it is made anew.
    NoAccount,
    Other(Failure),
}

impl From<Error> for OrderFailure {
    fn from(error: Error) -> OrderFailure {
        if is_bad_nonce(&error) {
            return OrderFailure::Nonce;
        }
        match &error {
            Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                OrderFailure::NoAccount
            }
            _ => OrderFailure::Other(error.into()),
        }
    }
}

impl From<Failure> for OrderFailure {
    fn from(failure: Failure) -> OrderFailure {
        OrderFailure::Other(failure)
    }
}

/// What the authority says of an order that it does not accept.
async fn why_refused(order: &mut instant_acme::Order) -> Failure {
    let mut causes = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        for challenge in &authorization.challenges {
            if let Some(problem) = &challenge.error {
                causes.push(format!("{name}: {problem}"));
            }
        }
    }
    let message = match causes.is_empty() {
        true => "the authority has refused the order".to_owned(),
        false => causes.join("; "),
    };
    let message: String = message.chars().take(500).collect();
    refused(message.replace(char::is_control, " "))
}

/// The certificate that proves a name in a handshake (RFC 8737 §3), and its key.
fn proof_certificate(name: &str, digest: &[u8]) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().to_vec(), key.serialize_der()))
}

/// The authority does not know the account (RFC 8555 §6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// How often an authority may refuse its nonces.
const BAD_NONCES: u32 = 20;
