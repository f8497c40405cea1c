//! Asks the keeper for signatures: the gateway's side of its channels.
//!
//! There are as many pairs of sockets as reactors; at the other end of each a thread of the keeper waits. Handshakes over TCP wait for
//! their signatures on threads of their own ([`crate::signing`]), and the reactors serve others meanwhile. Those of QUIC wait on the
//! reactor, because quinn-proto cannot go on with them later, and therefore for a short time only. A keeper that does not answer makes
//! handshakes fail at once for a while.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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
    channels: Vec<Mutex<Channel>>,
    pub(crate) threads: Threads,
    /// There is, or was, a keeper.
    is_used: AtomicBool,
    /// Tells the manager that the keeper does not answer.
    on_silence: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Channel {
    /// `None`: the keeper is gone.
    socket: Option<OwnedFd>,
    /// Of the last question.
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
        let channels = (0..reactors.max(1)).map(|_| Mutex::default());
        Signers {
            channels: channels.collect(),
            threads: Threads::new(reactors.max(1)),
            is_used: AtomicBool::new(false),
            on_silence: Box::new(on_silence),
        }
    }

    /// The channel of a reactor. It replaces an earlier one.
    pub fn set(&self, reactor: usize, socket: OwnedFd) {
        if let Some(channel) = self.channels.get(reactor) {
            self.is_used.store(true, Relaxed);
            let is_limited = message::limit_wait(socket.as_fd(), SHORT_LIMIT).is_ok();
            *lock(channel) = Channel {
                socket: is_limited.then_some(socket),
                ..Channel::default()
            };
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
        let may_wait = signing::may_wait();
        let (limit, silence) = match may_wait {
            true => (LIMIT, SILENCE),
            false => (SHORT_LIMIT, LIMIT),
        };
        let mut channel = lock(&self.channels[slot() % self.channels.len()]);
        let now = Instant::now();
        if channel.silent_until.is_some_and(|until| now < until) {
            return Err("the keeper does not answer".into());
        }
        channel.silent_until = None;
        channel.number = channel.number.wrapping_add(1);
        let question = Question {
            number: channel.number,
            key,
            scheme,
            message: text,
        };
        match channel.ask(&question, now + limit) {
            Ok(signature) => {
                signature.ok_or_else(|| "the keeper refuses to sign with this key".into())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                channel.silent_until = Some(Instant::now() + silence);
                if !may_wait {
                    // It may only be slow: another thread finds out.
                    drop(channel);
                    let (signers, text) = (self.clone(), text.to_vec());
                    let ask = move || drop(signers.sign(key, scheme, &text));
                    self.threads.push(Box::new(ask));
                    return Err("the keeper has not answered in time".into());
                }
                (self.on_silence)();
                log::error!(
                    "the keeper has not answered for {LIMIT:?}: TLS handshakes fail for {SILENCE:?}"
                );
                Err("the keeper does not answer".into())
            }
            Err(error) => {
                if channel.socket.take().is_some() {
                    log::error!(
                        "the keeper is gone ({error}): TLS handshakes fail until the manager has started it again"
                    );
                }
                Err("the keeper is gone".into())
            }
        }
    }
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signers")
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Asks and waits until `limit`. `None`: the keeper does not sign that.
    fn ask(&self, question: &Question<'_>, limit: Instant) -> io::Result<Option<Vec<u8>>> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let socket = self.socket.as_ref().ok_or_else(gone)?.as_fd();
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
            // Another number is that of a question whose time was over.
            if answer.number == question.number {
                return Ok(answer.signature.map(<[u8]>::to_vec));
            }
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
}
