//! Basic authentication (RFC 7617) by files of users and hashed passwords (`basic_auth`).
//!
//! A password takes long to verify, by design. So this happens on blocking threads, a few at a time ([`Turns`]). After
//! a successful check weir remembers the user for some minutes, by a keyed hash. When the file changes, it is read
//! again, and all users are forgotten. Reactors never read the file.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::available_parallelism,
};

use aws_lc_rs::hmac;
use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use weir_config::{BasicAuth, Config};
use weir_control::path_inside;
use weir_htpasswd::{Credentials, Users};
use weir_observe::{
    clock,
    error_log::{About, tell},
};

use crate::answers::refusal::Refusal;

/// Who may use sites and routes with this `basic_auth`.
pub(crate) struct Auth {
    settings: BasicAuth,
    /// `WWW-Authenticate`
    challenge: HeaderValue,
    /// The file, as this process sees it.
    file: PathBuf,
    users: Mutex<Known>,
    /// Makes hashes of users with their passwords. Made at the start, and nowhere written.
    key: hmac::Key,
    /// From then on, the file is looked at before anybody is let in ([`clock::now`]).
    look_at: AtomicU64,
    turns: Arc<Turns>,
}

/// The state of a file of users.
#[derive(Default)]
struct Known {
    /// The file as it was read last; `None`: not yet.
    file: Option<(Option<State>, Content)>,
    /// Users who have shown their password, and until when they are remembered ([`clock::now`]).
    verified: HashMap<[u8; 32], u64>,
}

/// The users, or why they are not known.
type Content = Result<Arc<Users>, (StatusCode, Arc<str>)>;

/// How many passwords are verified at the same time, and how many wait for that. All files share it.
pub(crate) struct Turns {
    running: Arc<Semaphore>,
    /// Verifications that wait or run.
    waiting: Semaphore,
}

/// A password that has to be verified.
#[derive(Debug)]
pub(crate) struct Unverified {
    pub(crate) auth: &'static Auth,
    pub(crate) credentials: Credentials,
}

/// What is known of a request's password before it is verified.
#[derive(Debug)]
pub(crate) enum Checked {
    /// None is needed, or it was verified for this request.
    Passes,
    /// The user has shown it a short time ago.
    Remembered(Unverified),
    Unverified(Unverified),
}

/// By what a changed file is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
}

/// All files of a configuration; settings with the same file share its state.
#[derive(Default)]
pub(crate) struct Auths {
    all: Vec<&'static Auth>,
    turns: Option<Arc<Turns>>,
}

impl Auths {
    /// The one with these settings. It lives as long as the process.
    ///
    /// # Errors
    /// The gateway cannot reach the file, or has no secret.
    pub(crate) fn get(
        &mut self,
        settings: &BasicAuth,
        config: &Config,
    ) -> Result<&'static Auth, String> {
        if let Some(auth) = self.all.iter().find(|auth| auth.settings == *settings) {
            return Ok(auth);
        }
        let turns = self
            .turns
            .get_or_insert_with(|| Arc::new(Turns::new(config)));
        let file = match &config.server.chroot {
            None => Some(settings.file.clone()),
            Some(chroot) => path_inside(chroot, &settings.file),
        };
        let file =
            file.ok_or_else(|| format!("{} is outside of the chroot", settings.file.display()))?;
        let secret: Result<[u8; 32], _> =
            aws_lc_rs::rand::generate(&aws_lc_rs::rand::SystemRandom::new())
                .map(|random| random.expose());
        let secret = secret.map_err(|_| "there are no random numbers".to_owned())?;
        let auth: &'static Auth = Box::leak(Box::new(Auth {
            challenge: challenge(&settings.realm)?,
            settings: settings.clone(),
            file,
            users: Mutex::default(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            look_at: AtomicU64::new(0),
            turns: turns.clone(),
        }));
        self.all.push(auth);
        Ok(auth)
    }
}

impl Turns {
    fn new(config: &Config) -> Turns {
        let cores = available_parallelism().map_or(1, usize::from);
        let running = (cores / 2).max(1);
        Turns {
            running: Arc::new(Semaphore::new(running)),
            waiting: Semaphore::new(running + config.server.max_waiting_passwords),
        }
    }
}

impl Auth {
    /// The user and password that a request has. `authorization`: all its fields of that name.
    ///
    /// # Errors
    /// The refusal: 401.
    pub(crate) fn credentials<'f>(
        &'static self,
        mut authorization: impl Iterator<Item = &'f [u8]>,
    ) -> Result<Credentials, Refusal> {
        let credentials = match (authorization.next(), authorization.next()) {
            (Some(only), None) => Credentials::parse(only),
            _ => None,
        };
        credentials.ok_or_else(|| self.refusal(String::new()))
    }

    /// Whether the user has shown this password a short time ago. No: it has to be verified.
    pub(crate) fn remembers(&self, credentials: &Credentials) -> bool {
        let now = clock::now();
        now < self.look_at.load(Relaxed) && self.has_verified(&self.tag(credentials), now)
    }

    fn has_verified(&self, tag: &[u8; 32], now: u64) -> bool {
        let known = self.lock();
        known.verified.get(tag).is_some_and(|until| now < *until)
    }

    /// Looks whether the file has changed, and reads it again then.
    fn refresh(&self) {
        let now = clock::now();
        if now < self.look_at.load(Relaxed) {
            return;
        }
        let state = std::fs::metadata(&self.file).ok();
        let state = state.map(|metadata| State::of(&metadata));
        let is_same = |known: &Known| match &known.file {
            Some((before, _)) => *before == state,
            None => false,
        };
        if !is_same(&self.lock()) {
            let read = self.read();
            let mut known = self.lock();
            known.verified.clear();
            known.file = Some(read);
        }
        self.look_at.store(now + LOOK_AGAIN, Relaxed);
    }

    /// Reads the file.
    fn read(&self) -> (Option<State>, Content) {
        let read = || -> io::Result<(State, Vec<u8>)> {
            let opened = File::open(&self.file)?;
            let state = State::of(&opened.metadata()?);
            if state.size > MOST_BYTES {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let mut text = Vec::new();
            opened.take(MOST_BYTES).read_to_end(&mut text)?;
            Ok((state, text))
        };
        let shown = self.settings.file.display();
        match read() {
            Ok((state, text)) => {
                let users = Users::parse(&text);
                for fault in users.faults().into_iter().take(MOST_FAULTS) {
                    tell!(warning, About::default(), "basic_auth: {shown} {fault}");
                }
                (Some(state), Ok(Arc::new(users)))
            }
            Err(error) => {
                // As nginx.
                let status = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => StatusCode::FORBIDDEN,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                let state = std::fs::metadata(&self.file).ok();
                let state = state.map(|metadata| State::of(&metadata));
                (
                    state,
                    Err((status, format!("basic_auth: {shown}: {error}").into())),
                )
            }
        }
    }

    /// The users of the file.
    ///
    /// # Errors
    /// The refusal: 403 or 500.
    fn users(&self) -> Result<Arc<Users>, Refusal> {
        let known = self.lock();
        match &known.file {
            Some((_, Ok(users))) => Ok(users.clone()),
            Some((_, Err((status, message)))) => Err(failed(*status, &**message)),
            None => Err(failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "basic_auth: the file was not read",
            )),
        }
    }

    /// Verifies a password here: for a blocking thread.
    fn verify_now(
        &'static self,
        credentials: &Credentials,
        users: &Arc<Users>,
    ) -> Result<(), Refusal> {
        let user = || credentials.user.escape_ascii();
        match users.verify(&credentials.user, &credentials.password) {
            Ok(true) => {}
            Ok(false) => {
                return Err(self.refusal(format!("wrong user or password: \"{}\"", user())));
            }
            Err(fault) => {
                let file = self.settings.file.display();
                let message = format!(
                    "the user \"{}\" has no valid password: {file} {fault}",
                    user()
                );
                return Err(self.refusal(message));
            }
        }
        let tag = self.tag(credentials);
        let now = clock::now();
        let mut known = self.lock();
        // If the file has changed meanwhile, nobody is remembered by its old content.
        if let Some((_, Ok(current))) = &known.file
            && Arc::ptr_eq(current, users)
        {
            let verified = &mut known.verified;
            if verified.len() >= MOST_REMEMBERED {
                verified.retain(|_, until| *until > now);
            }
            if verified.len() >= MOST_REMEMBERED {
                verified.clear();
            }
            verified.insert(tag, now + REMEMBERED);
        }
        Ok(())
    }

    fn tag(&self, credentials: &Credentials) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(credentials.user.len() as u64).to_le_bytes());
        context.update(&credentials.user);
        context.update(&credentials.password);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    fn refusal(&'static self, message: String) -> Refusal {
        Refusal::client(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .challenge(&self.challenge)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unverified {
    /// Verifies the password.
    ///
    /// # Errors
    /// The refusal: 401; 503 if too many others wait; 403 or 500 if the file cannot be used.
    pub(crate) async fn verify(&self) -> Result<(), Refusal> {
        let auth = self.auth;
        if clock::now() >= auth.look_at.load(Relaxed) {
            let refreshed = tokio::task::spawn_blocking(|| auth.refresh()).await;
            refreshed.map_err(|_| failed(StatusCode::INTERNAL_SERVER_ERROR, BROKEN))?;
        }
        let users = auth.users()?;
        if auth.has_verified(&auth.tag(&self.credentials), clock::now()) {
            return Ok(());
        }
        let busy = |_| {
            let message = "too many passwords wait to be verified (max_waiting_passwords); a `rate` limits each client";
            failed(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(1)
        };
        let _waiting = auth.turns.waiting.try_acquire().map_err(busy)?;
        let running = auth.turns.running.clone().acquire_owned().await;
        let running = running.map_err(|_| failed(StatusCode::INTERNAL_SERVER_ERROR, BROKEN))?;
        let credentials = self.credentials.clone();
        let verified = tokio::task::spawn_blocking(move || {
            // The place is given back when the work is done, even if the client has left.
            let _running = running;
            auth.verify_now(&credentials, &users)
        });
        verified
            .await
            .unwrap_or_else(|_| Err(failed(StatusCode::INTERNAL_SERVER_ERROR, BROKEN)))
    }
}

impl State {
    fn of(metadata: &Metadata) -> State {
        State {
            file: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
        }
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({})", self.file.display())
    }
}

/// The value of `WWW-Authenticate`.
fn challenge(realm: &str) -> Result<HeaderValue, String> {
    let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
    let value = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
    HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| "basic_auth: the realm is not valid in a header".to_owned())
}

/// The refusal if a password cannot be verified.
fn failed(status: StatusCode, message: impl AsRef<str>) -> Refusal {
    let message = message.as_ref();
    match status {
        StatusCode::FORBIDDEN => Refusal::client(status, "auth_failed", message),
        StatusCode::SERVICE_UNAVAILABLE => {
            Refusal::upstream(status, "auth_busy", "connection_limit_reached", message)
        }
        _ => Refusal::upstream(status, "auth_failed", "proxy_internal_error", message),
    }
}

const BROKEN: &str = "basic_auth: the password could not be verified";

/// How long a user is remembered, µs.
const REMEMBERED: u64 = 300 * 1_000_000;
/// How many users of a file are remembered.
const MOST_REMEMBERED: usize = 4096;
/// After this time the file is looked at again, µs.
const LOOK_AGAIN: u64 = 100_000;
/// The largest file, bytes.
const MOST_BYTES: u64 = 16 << 20;
/// So many lines with errors are logged when a file is read.
const MOST_FAULTS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_cannot_end_its_quotes() {
        let value = challenge(r#"the "inner\ ring"#).unwrap();
        let expected = r#"Basic realm="the \"inner\\ ring", charset="UTF-8""#;
        assert_eq!(value, expected);
        assert!(challenge("a\r\nb").is_err());
    }
}
