//! Asks the keeper for signatures: the gateway's side of its channels.
//!
//! There are as many pairs of sockets as reactors; at the other end of each a thread of the keeper waits. Handshakes over TCP wait for
//! their signatures on threads of their own ([`crate::signing`]), and the reactors serve others meanwhile. A keeper that does not answer
//! makes handshakes fail at once for a while.
//!
//! Handshakes over QUIC wait on the reactor, for [`SHORT_LIMIT`] at most: rustls has no signer that answers later, and
//! quinn-proto reads and writes a handshake in one step. After one such wait without an answer, no reactor waits any
//! more until a thread that may wait has got an answer. So a keeper that hangs costs each reactor this time once.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustls::{
    Error, SignatureAlgorithm, SignatureScheme,
    sign::{Signer, SigningKey},
};
use weir_sys::message;

use crate::{
    KeyKind,
    signing::{self, Threads},
};

/// The channels to the keeper.
pub struct Signers {
    channels: Vec<Shared>,
    pub(crate) threads: Threads,
    /// There is, or was, a keeper.
    is_used: AtomicBool,
    /// A reactor has waited for the keeper in vain: none waits for it.
    is_slow: AtomicBool,
    /// A thread finds out whether it answers.
    is_tried: AtomicBool,
    /// Tells the manager that the keeper does not answer.
    on_silence: Box<dyn Fn() + Send + Sync>,
}

/// A channel, which one thread at a time uses.
#[derive(Debug, Default)]
struct Shared {
    channel: Mutex<Channel>,
    is_free: Condvar,
}

#[derive(Debug, Default)]
struct Channel {
    /// `None`: the keeper is gone.
    socket: Option<Arc<OwnedFd>>,
    /// A thread waits for an answer.
    is_taken: bool,
    /// Number of the last question.
    number: u32,
    /// The keeper did not answer in time: it is not asked again before this.
    silent_until: Option<Instant>,
}

/// A question to the keeper: sign this.
#[derive(Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Returned in the answer.
    pub number: u32,
    /// The keeper's number of the key.
    pub key: u32,
    pub scheme: SignatureScheme,
    pub message: &'a [u8],
}

/// The answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub number: u32,
    /// `None`: it does not sign that.
    pub signature: Option<&'a [u8]>,
}

impl Signers {
    /// For so many reactors, without channels. `on_silence` is called when the keeper does not answer in time.
    pub fn new(reactors: usize, on_silence: impl Fn() + Send + Sync + 'static) -> Signers {
        let channels = (0..reactors.max(1)).map(|_| Shared::default());
        Signers {
            channels: channels.collect(),
            threads: Threads::new(reactors.max(1)),
            is_used: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            is_tried: AtomicBool::new(false),
            on_silence: Box::new(on_silence),
        }
    }

    /// The channel of a reactor. It replaces an earlier one.
    pub fn set(&self, reactor: usize, socket: OwnedFd) {
        if let Some(shared) = self.channels.get(reactor) {
            self.is_used.store(true, Relaxed);
            let is_limited = message::limit_wait(socket.as_fd(), SHORT_LIMIT).is_ok();
            let mut channel = lock(&shared.channel);
            channel.socket = is_limited.then(|| socket.into());
            channel.silent_until = None;
            drop(channel);
            self.is_slow.store(false, Relaxed);
        }
    }

    /// A key that the keeper has under this number.
    pub fn key(self: &Arc<Self>, number: u32, kind: KeyKind) -> Arc<dyn SigningKey> {
        Arc::new(RemoteKey {
            number,
            kind,
            signers: self.clone(),
        })
    }

    /// Whether the keeper signs, so that handshakes have to wait for it.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    fn sign(
        self: &Arc<Self>,
        key: u32,
        scheme: SignatureScheme,
        text: &[u8],
    ) -> Result<Vec<u8>, String> {
        if signing::is_refused() {
            return Err("the step is done where it may wait".into());
        }
        let shared = &self.channels[slot() % self.channels.len()];
        let may_wait = signing::may_wait();
        if !may_wait && self.is_slow.load(Relaxed) {
            self.try_elsewhere(key, scheme, text);
            return Err(NO_ANSWER.into());
        }
        let (limit, silence) = match may_wait {
            true => (LIMIT, SILENCE),
            false => (SHORT_LIMIT, Duration::ZERO),
        };
        match shared.ask((key, scheme, text), limit, silence) {
            Ok(signature) => {
                if may_wait {
                    self.is_slow.store(false, Relaxed);
                }
                signature.ok_or_else(|| "the keeper refuses to sign with this key".into())
            }
            Err(Failed::Late | Failed::Taken) if !may_wait => {
                self.is_slow.store(true, Relaxed);
                self.try_elsewhere(key, scheme, text);
                Err(NO_ANSWER.into())
            }
            Err(Failed::Late) => {
                (self.on_silence)();
                log::error!(
                    "the keeper has not answered for {LIMIT:?}: TLS handshakes fail for {SILENCE:?}"
                );
                Err(NO_ANSWER.into())
            }
            Err(Failed::Taken | Failed::Silent) => Err(NO_ANSWER.into()),
            Err(Failed::Gone) => Err("the keeper is gone".into()),
        }
    }

    /// A thread that may wait finds out whether the keeper answers again.
    fn try_elsewhere(self: &Arc<Self>, key: u32, scheme: SignatureScheme, text: &[u8]) {
        if self.is_tried.swap(true, Relaxed) {
            return;
        }
        let (signers, text) = (self.clone(), text.to_vec());
        self.threads.push(Box::new(move || {
            let _ = signers.sign(key, scheme, &text);
            signers.is_tried.store(false, Relaxed);
        }));
    }
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signers")
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Failed {
    /// The keeper has not answered in time.
    Late,
    /// Other threads needed the channel for so long.
    Taken,
    /// It did not answer before, and is not asked yet.
    Silent,
    Gone,
}

impl Shared {
    /// Asks and waits for at most `limit`, for its turn too. `Ok(None)`: the keeper does not sign that. When it has not answered, it is
    /// not asked again on this channel for `silence`.
    fn ask(
        &self,
        (key, scheme, message): (u32, SignatureScheme, &[u8]),
        limit: Duration,
        silence: Duration,
    ) -> Result<Option<Vec<u8>>, Failed> {
        let until = Instant::now() + limit;
        let mut channel = lock(&self.channel);
        while channel.is_taken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failed::Taken);
            }
            let waited = self.is_free.wait_timeout(channel, left);
            channel = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let now = Instant::now();
        if channel.silent_until.is_some_and(|silent| now < silent) {
            return Err(Failed::Silent);
        }
        let socket = channel.socket.clone().ok_or(Failed::Gone)?;
        channel.number = channel.number.wrapping_add(1);
        channel.is_taken = true;
        let question = Question {
            number: channel.number,
            key,
            scheme,
            message,
        };
        drop(channel);
        let answer = ask(&socket, &question, until);
        let mut channel = lock(&self.channel);
        channel.is_taken = false;
        self.is_free.notify_all();
        let of_now = channel.socket.as_ref();
        let is_same = of_now.is_some_and(|now| Arc::ptr_eq(now, &socket));
        answer.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                if is_same {
                    channel.silent_until = Some(Instant::now() + silence);
                }
                return Failed::Late;
            }
            if is_same {
                channel.socket = None;
                log::error!(
                    "the keeper is gone ({error}): TLS handshakes fail until the manager has started it again"
                );
            }
            Failed::Gone
        })
    }
}

/// Asks and waits until `limit`. `None`: the keeper does not sign that.
fn ask(socket: &OwnedFd, question: &Question<'_>, limit: Instant) -> io::Result<Option<Vec<u8>>> {
    let socket = socket.as_fd();
    match message::send(socket, &question.encode(), &[], false) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sent => sent?,
    }
    let mut packet = [0; MOST];
    loop {
        let (length, _) = match message::receive(socket, &mut packet, true) {
            // Nothing came for SHORT_LIMIT.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match Instant::now() < limit {
                    true => continue,
                    false => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
            received => received?,
        };
        let answer = match length {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => Answer::decode(&packet[..length]).ok_or(io::ErrorKind::InvalidData)?,
        };
        // An answer with another number came too late, for an earlier question.
        if answer.number == question.number {
            return Ok(answer.signature.map(<[u8]>::to_vec));
        }
    }
}

impl<'a> Question<'a> {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(10 + self.message.len());
        packet.extend_from_slice(&self.number.to_be_bytes());
        packet.extend_from_slice(&self.key.to_be_bytes());
        packet.extend_from_slice(&u16::from(self.scheme).to_be_bytes());
        packet.extend_from_slice(self.message);
        packet
    }

    /// Reads a packet; `None`: it is none.
    pub fn decode(packet: &'a [u8]) -> Option<Question<'a>> {
        let (number, rest) = packet.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (scheme, message) = rest.split_first_chunk()?;
        Some(Question {
            number: u32::from_be_bytes(*number),
            key: u32::from_be_bytes(*key),
            scheme: u16::from_be_bytes(*scheme).into(),
            message,
        })
    }
}

impl<'a> Answer<'a> {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = self.number.to_be_bytes().to_vec();
        packet.extend_from_slice(self.signature.unwrap_or_default());
        packet
    }

    /// Reads a packet; `None`: it is none.
    pub fn decode(packet: &'a [u8]) -> Option<Answer<'a>> {
        let (number, signature) = packet.split_first_chunk()?;
        Some(Answer {
            number: u32::from_be_bytes(*number),
            signature: Some(signature).filter(|signature| !signature.is_empty()),
        })
    }
}

/// A key that is in the keeper.
#[derive(Debug, Clone)]
struct RemoteKey {
    number: u32,
    kind: KeyKind,
    signers: Arc<Signers>,
}

#[derive(Debug)]
struct RemoteSigner {
    key: RemoteKey,
    scheme: SignatureScheme,
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = self.kind.schemes().iter();
        let scheme = *schemes.find(|scheme| offered.contains(scheme))?;
        Some(Box::new(RemoteSigner {
            key: self.clone(),
            scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.kind.algorithm()
    }
}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let RemoteKey {
            number, signers, ..
        } = &self.key;
        signers
            .sign(*number, self.scheme, message)
            .map_err(Error::General)
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

fn lock(channel: &Mutex<Channel>) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The channel of this thread, which others may share.
fn slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = NEXT.fetch_add(1, Relaxed);
    }
    SLOT.with(|slot| *slot)
}

const NO_ANSWER: &str = "the keeper does not answer";

/// How long a handshake waits for a signature. A keeper needs milliseconds even on a busy machine.
const LIMIT: Duration = Duration::from_secs(2);

/// The same on a reactor, where all its connections wait.
const SHORT_LIMIT: Duration = Duration::from_millis(200);

/// How long the keeper is not asked after it did not answer, unless it is replaced before.
const SILENCE: Duration = Duration::from_secs(5);

/// Bytes of the longest answer: a signature by an RSA key of 8192 bits has 1024.
const MOST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_survive_their_way() {
        let question = Question {
            number: 7,
            key: u32::MAX,
            scheme: SignatureScheme::ED25519,
            message: b"text",
        };
        assert_eq!(Question::decode(&question.encode()), Some(question));
        assert_eq!(Question::decode(&[0; 9]), None);
        for signature in [None, Some(&b"signature"[..])] {
            let answer = Answer {
                number: 9,
                signature,
            };
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(Answer::decode(&[0; 3]), None);
    }

    #[test]
    fn an_answer_to_an_earlier_question_is_not_taken_for_this_one() {
        let signers = Arc::new(Signers::new(1, || {}));
        let (ours, theirs) = message::pair().unwrap();
        signers.set(0, ours);
        let keeper = std::thread::spawn(move || {
            let mut packet = [0; 256];
            let (length, _) = message::receive(theirs.as_fd(), &mut packet, true).unwrap();
            let asked = Question::decode(&packet[..length]).unwrap();
            for (number, signature) in [(asked.number - 1, &b"old"[..]), (asked.number, b"new")] {
                let answer = Answer {
                    number,
                    signature: Some(signature),
                };
                message::send(theirs.as_fd(), &answer.encode(), &[], true).unwrap();
            }
        });
        let signed = signers.sign(3, SignatureScheme::ED25519, b"text");
        assert_eq!(signed.as_deref(), Ok(&b"new"[..]));
        keeper.join().unwrap();
        let error = signers
            .sign(3, SignatureScheme::ED25519, b"text")
            .unwrap_err();
        assert_eq!(error, "the keeper is gone");
    }
    #[test]
    fn a_keeper_that_stands_still_costs_a_reactor_its_time_limit_once() {
        let signers = Arc::new(Signers::new(1, || {}));
        let (ours, theirs) = message::pair().unwrap();
        signers.set(0, ours);
        let sign = |signers: &Arc<Signers>| signers.sign(3, SignatureScheme::ED25519, b"text");
        // A handshake over TCP uses the same channel, and waits.
        let waiting = signers.clone();
        signers.threads.push(Box::new(move || drop(sign(&waiting))));
        let mut packet = [0; 256];
        let ask = |packet: &mut [u8]| {
            let (length, _) = message::receive(theirs.as_fd(), packet, true).unwrap();
            Question::decode(&packet[..length]).unwrap().number
        };
        ask(&mut packet);
        // This thread is like a reactor, whose other connections wait, too. Here they wait as long as with threads that
        // only sign.
        let (begin, mut waited, mut longest) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        while begin.elapsed() < LIMIT * 2 {
            let asked = Instant::now();
            assert_eq!(sign(&signers), Err(NO_ANSWER.into()));
            longest = longest.max(asked.elapsed());
            waited += asked.elapsed();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(longest >= SHORT_LIMIT, "{longest:?}");
        assert!(waited < SHORT_LIMIT * 2, "{waited:?}");
        // A keeper that answers again is used again, after the pause.
        let keeper = std::thread::spawn(move || {
            let mut packet = [0; 256];
            while let Ok((length @ 1.., _)) = message::receive(theirs.as_fd(), &mut packet, true) {
                let number = Question::decode(&packet[..length]).unwrap().number;
                let signature = Some(&b"signature"[..]);
                let answer = Answer { number, signature };
                message::send(theirs.as_fd(), &answer.encode(), &[], true).unwrap();
            }
        });
        let begin = Instant::now();
        while sign(&signers).is_err() {
            assert!(begin.elapsed() < SILENCE * 4);
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(signers);
        drop(keeper);
    }
}
