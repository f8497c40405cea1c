//! The keeper: the process that has the private keys of certificates and signs with them.
//!
//! ```text
//! manager ── open files of a certificate, by descriptor ──► keeper ◄── "sign this handshake" ── reactors of gateways
//!        ◄── the chain, or what is wrong with the files ──        ── signature ──────────────►
//!        ── "make a key for these names", an empty file ─►
//!        ◄── a request, or a certificate of the local CA ──
//! ```
//! The manager opens the files as root and never reads them. The keeper reads them, keeps the keys in its memory and
//! gives nobody a byte of them. It has a user number of its own, opens no file and no socket (`weir_sys::sandbox`), and
//! cannot be inspected by processes of other users. A compromised gateway can have handshakes signed while it runs, and
//! nothing else ([`weir_tls::may_sign`]).
//!
//! [`run`] is the process. [`ToKeeper`] and [`FromKeeper`] are the messages with the manager; the channels of reactors
//! have [`weir_tls::Question`] and [`weir_tls::Answer`].
#![forbid(unsafe_code)]

mod keys;
mod make;
mod wire;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_sys::{identity, memory, message, process, sandbox, version};
use weir_tls::Pair;

use self::keys::Keys;
pub use self::wire::{Cut, FromKeeper, Order, Product, ToKeeper};

/// The argument that starts the program as a keeper. Only the manager uses it.
pub const ROLE: &str = "--role=keeper";

/// Whether this process was started as a keeper.
pub fn is_keeper() -> bool {
    process::has_role(ROLE)
}

/// Serves until the manager closes its channel, which is on descriptor 0.
///
/// # Errors
/// If it cannot give up its rights, or a message is wrong. The manager was told, if possible.
pub fn run() -> Result<(), String> {
    let control = process::take_inherited(0)
        .map_err(|error| format!("the keeper was not started by a manager: {error}"))?;
    let parent = process::parent();
    let served = Keeper::enter(&control, parent).and_then(|keeper| keeper.serve());
    served.inspect_err(|cause| {
        let _ = tell(&control, &FromKeeper::Unfit(cause.clone()));
    })
}

struct Keeper<'a> {
    control: &'a OwnedFd,
    keys: Arc<Keys>,
}

impl<'a> Keeper<'a> {
    /// Receives the first message and gives up all rights.
    fn enter(control: &'a OwnedFd, parent: u32) -> Result<Keeper<'a>, String> {
        let _ = process::set_name(c"weir-keeper");
        version::be_greeted(control.as_fd(), "weir's keeper of private keys")?;
        let Some(ToKeeper::Become(who)) = next(control)? else {
            return Err("the manager did not say first which user to become".into());
        };
        // Libraries open some files at their first use. They do so now, before the sandbox.
        weir_tls::collect_noise()?;
        let _ = SystemTime::now();
        if let Some(who) = who {
            identity::become_identity(&who)
                .map_err(|error| format!("cannot become user {}: {error}", who.uid))?;
        }
        identity::not_dumpable().map_err(|error| error.to_string())?;
        identity::no_new_privileges().map_err(|error| error.to_string())?;
        match process::end_with_parent(parent) {
            Ok(true) => {}
            Ok(false) => return Err("the manager has ended".into()),
            Err(error) => return Err(error.to_string()),
        }
        let is_confined = sandbox::only_compute()
            .map_err(|error| format!("the filter of system calls cannot be set: {error}"))?;
        let ready = FromKeeper::Ready { is_confined };
        tell(control, &ready).map_err(|error| error.to_string())?;
        Ok(Keeper {
            control,
            keys: Arc::default(),
        })
    }

    fn serve(&self) -> Result<(), String> {
        while let Some(message) = next(self.control)? {
            match message {
                ToKeeper::Become(_) => return Err("the manager names the user twice".into()),
                ToKeeper::Load { number, chain, key } => {
                    let answer = match self.load(number, &chain, &key) {
                        Ok(loaded) => loaded,
                        Err(failed) => failed,
                    };
                    tell(self.control, &answer).map_err(|error| error.to_string())?;
                }
                ToKeeper::Make(order) => {
                    let answer = match make::make(order, now()) {
                        Ok(public) => FromKeeper::Made(public),
                        Err(message) => FromKeeper::Failed {
                            number: 0,
                            in_key: true,
                            message,
                        },
                    };
                    tell(self.control, &answer).map_err(|error| error.to_string())?;
                }
                ToKeeper::Forget(number) => self.keys.forget(number),
                ToKeeper::Serve(socket) => {
                    let keys = self.keys.clone();
                    let thread = std::thread::Builder::new().name("weir-signer".into());
                    // A reactor without a thread would never get a signature. So this keeper ends, and the manager
                    // starts another one.
                    thread
                        .stack_size(STACK)
                        .spawn(move || keys.serve(&socket))
                        .map_err(|error| format!("the keeper cannot start a thread: {error}"))?;
                }
            }
        }
        Ok(())
    }

    fn load(&self, number: u32, chain: &OwnedFd, key: &OwnedFd) -> Result<FromKeeper, FromKeeper> {
        let failed = |in_key: bool, message: String| FromKeeper::Failed {
            number,
            in_key,
            message,
        };
        let read = |file: &OwnedFd, in_key: bool| {
            memory::read(file.as_fd(), MAX_FILE).map_err(|error| {
                let message = match error.kind() {
                    io::ErrorKind::InvalidData => format!("it has more than {MAX_FILE} bytes"),
                    _ => error.to_string(),
                };
                failed(in_key, message)
            })
        };
        let (chain, key) = (read(chain, false)?, read(key, true)?);
        let pair = Pair::read(&chain, &key).map_err(|wrong| failed(wrong.in_key, wrong.message))?;
        self.keys.put(number, pair.key);
        Ok(FromKeeper::Loaded {
            number,
            warnings: Pair::warnings(&pair.chain, now() as i64),
            chain: pair.chain.iter().map(|one| one.to_vec()).collect(),
        })
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The manager's next message; `None`: it has ended.
fn next(control: &OwnedFd) -> Result<Option<ToKeeper>, String> {
    let mut packet = vec![0; MAX_PACKET];
    let (length, descriptors) =
        message::receive(control.as_fd(), &mut packet, true).map_err(|error| error.to_string())?;
    match length {
        0 => Ok(None),
        length => ToKeeper::decode(&packet[..length], descriptors)
            .map(Some)
            .map_err(|Cut| "a message of the manager is wrong".into()),
    }
}

fn tell(control: &OwnedFd, message: &FromKeeper) -> io::Result<()> {
    message::send(control.as_fd(), &message.encode(), &[], true)
}

/// Bytes of a file with certificates or a key, at most.
pub const MAX_FILE: usize = 256 * 1024;

/// Bytes of the longest packet of the channel: a chain, or the names of a certificate.
pub const MAX_PACKET: usize = 96 * 1024;

/// Stack of a thread that signs, bytes.
const STACK: usize = 256 * 1024;
