//! The keeper as the manager sees it: a process, its channel, and the numbers of the keys that it has.
//!
//! It is started for the first configuration whose certificates need it, and serves all gateways. If it dies, it is started
//! again, and each generation gives it its certificates anew (`certificates`). Handshakes fail meanwhile; connections go
//! on. Its answers come within milliseconds and are waited for, because a configuration is served only if its
//! certificates are good.

use std::{
    cell::RefCell,
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::TicketSecrets;
use weir_keeper::{FromKeeper, MAX_PACKET, Order, ROLE, ToKeeper};
use weir_sys::{
    identity::Identity,
    message, poll,
    process::{self, Exit, Spawn},
    version,
};

use super::{
    gateway::{Lifetime, describe_pause},
    quic::{Quic, QuicHanded},
};

/// The keeper, and the keys of session tickets, which all gateways share.
#[derive(Debug)]
pub(super) struct Keeper {
    running: Option<Running>,
    /// The user that it becomes; `None`: nothing needs a keeper.
    who: Option<Option<Identity>>,
    /// When to start it again.
    due: Option<Instant>,
    failures: u32,
    was_short: bool,
    /// How often it was started.
    starts: u64,
    /// The number of the next key. Numbers are not used again.
    next_key: u32,
    /// Keys that nothing uses any more.
    unused: Rc<RefCell<Vec<u32>>>,
    pub(super) tickets: Tickets,
    /// What gateways share for QUIC.
    pub(super) quic: Quic,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    channel: OwnedFd,
    since: Instant,
}

/// A key that the keeper has. It forgets the key when this is dropped.
#[derive(Debug)]
pub(super) struct HeldKey {
    pub(super) number: u32,
    unused: Rc<RefCell<Vec<u32>>>,
}

/// A certificate whose key the keeper has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: HeldKey,
    /// DER.
    pub(super) chain: Vec<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

/// Why the keeper does not take a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The cause is in the file of the key.
    pub(super) in_key: bool,
    /// The cause and what to do, without the name of the file.
    pub(super) message: String,
}

impl Keeper {
    pub(super) fn new(now: Instant) -> Keeper {
        Keeper {
            running: None,
            who: None,
            due: None,
            failures: 0,
            was_short: false,
            starts: 0,
            next_key: 1,
            unused: Rc::default(),
            tickets: Tickets::new(now),
            quic: Quic::default(),
        }
    }

    /// Uses the keys of tickets, and when the next one is due, and what belongs to QUIC, of the weir before this one.
    pub(super) fn take_over(
        &mut self,
        tickets: Option<(Vec<Vec<u8>>, Duration)>,
        quic: QuicHanded,
        now: Instant,
    ) {
        if let Some((keys, due)) = tickets {
            self.tickets.take_over(keys, due, now);
        }
        self.quic.take_over(quic);
    }

    /// Starts it, if it does not run.
    ///
    /// # Errors
    /// If it cannot start or cannot give up its rights.
    pub(super) fn ensure(&mut self, who: &Option<Identity>, now: Instant) -> Result<(), String> {
        self.who = Some(who.clone());
        match self.running {
            Some(_) => Ok(()),
            None => self.start(now),
        }
    }

    /// A configuration that has started it does not take effect. `who`: its user in those that do; `None`: they need none.
    pub(super) fn give_back(&mut self, who: Option<Option<Identity>>) {
        match who {
            None => {
                self.stop();
                // Its end is no news.
                self.running = None;
            }
            who => self.who = who,
        }
    }

    /// How often it was started. If that has changed, it has lost all keys and channels.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// What its processes are called, for messages.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    fn start(&mut self, now: Instant) -> Result<(), String> {
        let Some(who) = &self.who else {
            return Ok(());
        };
        let failed = |cause: String| format!("the keeper of private keys cannot start: {cause}");
        let (ours, theirs) = message::pair().map_err(|error| failed(error.to_string()))?;
        let clone = |stream: BorrowedFd<'_>| {
            let clone = stream.try_clone_to_owned();
            clone.map_err(|error| failed(error.to_string()))
        };
        let (stdout, stderr) = (clone(io::stdout().as_fd())?, clone(io::stderr().as_fd())?);
        let spawn = Spawn {
            name: Some("weir: keeper".into()),
            arguments: vec![OsString::from(ROLE)],
            folder: Some("/".into()),
            core_size: Some(0),
            processes: None,
            ..Spawn::new("/proc/self/exe", theirs, stdout, stderr)
        };
        version::greet(ours.as_fd()).map_err(|error| failed(error.to_string()))?;
        let become_user: ToKeeper = ToKeeper::Become(who.clone());
        let pid = spawn.start().map_err(|error| failed(error.to_string()))?;
        self.running = Some(Running {
            pid,
            channel: ours,
            since: now,
        });
        self.due = None;
        let ready = (self.tell(&become_user)).and_then(|()| self.hear(START_LIMIT));
        match ready.inspect_err(|_| self.end()).map_err(failed)? {
            FromKeeper::Ready { is_confined } => {
                if !is_confined {
                    log::warn!(
                        "this kernel cannot filter system calls (seccomp), so the keeper of private keys is only separated by its user"
                    );
                }
                self.starts += 1;
                Ok(())
            }
            FromKeeper::Unfit(cause) => Err(failed(cause)),
            _ => {
                self.end();
                Err(failed("it sent a wrong message".into()))
            }
        }
    }

    /// Gives it the files of certificates: for each, chain and key. The results are in the same order.
    ///
    /// # Errors
    /// If the keeper is gone, does not answer or answers wrongly. Another one is then started.
    pub(super) fn load(
        &mut self,
        pairs: impl ExactSizeIterator<Item = Result<(File, File), Refused>>,
    ) -> Result<Vec<Result<Held, Refused>>, String> {
        // Answers that are left in the channel would be taken for those to later questions.
        self.load_all(pairs).inspect_err(|_| self.end())
    }

    fn load_all(
        &mut self,
        pairs: impl ExactSizeIterator<Item = Result<(File, File), Refused>>,
    ) -> Result<Vec<Result<Held, Refused>>, String> {
        let mut results: Vec<Option<Result<Held, Refused>>> = Vec::with_capacity(pairs.len());
        let mut waiting = std::collections::VecDeque::new();
        for pair in pairs {
            match pair {
                Ok((chain, key)) => {
                    let number = self.next_key;
                    self.next_key = self.next_key.wrapping_add(1);
                    let load = ToKeeper::Load {
                        number,
                        chain: chain.into(),
                        key: key.into(),
                    };
                    self.tell(&load)?;
                    waiting.push_back((results.len(), number));
                    results.push(None);
                }
                Err(refused) => results.push(Some(Err(refused))),
            }
            // So few of them always fit into the channel.
            if waiting.len() == AT_ONCE {
                self.take_answer(&mut waiting, &mut results)?;
            }
        }
        while !waiting.is_empty() {
            self.take_answer(&mut waiting, &mut results)?;
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn take_answer(
        &mut self,
        waiting: &mut std::collections::VecDeque<(usize, u32)>,
        results: &mut [Option<Result<Held, Refused>>],
    ) -> Result<(), String> {
        let Some((index, asked)) = waiting.pop_front() else {
            return Ok(());
        };
        results[index] = Some(match self.hear(LIMIT)? {
            FromKeeper::Loaded {
                number,
                chain,
                warnings,
            } if number == asked => Ok(Held {
                key: HeldKey {
                    number,
                    unused: self.unused.clone(),
                },
                chain,
                warnings,
            }),
            FromKeeper::Failed {
                number,
                in_key,
                message,
            } if number == asked => Err(Refused { in_key, message }),
            _ => return Err("the keeper sent a wrong message".into()),
        });
        Ok(())
    }

    /// Makes a key, which goes to the descriptor in `order`. Returns what is public.
    ///
    /// # Errors
    /// If there is no keeper, or it cannot be made.
    pub(super) fn make(&mut self, order: Order) -> Result<Vec<u8>, String> {
        let told = self.tell(&ToKeeper::Make(order));
        // As in `load`.
        match (told.and_then(|()| self.hear(LIMIT))).inspect_err(|_| self.end())? {
            FromKeeper::Made(public) => Ok(public),
            FromKeeper::Failed { message, .. } => Err(message),
            _ => {
                self.end();
                Err("the keeper sent a wrong message".into())
            }
        }
    }

    /// A new channel on which it signs: the gateway's end.
    ///
    /// # Errors
    /// If there is no keeper now, or no descriptor.
    pub(super) fn connect(&mut self) -> Result<OwnedFd, String> {
        let (ours, theirs) = message::pair().map_err(|error| error.to_string())?;
        self.tell(&ToKeeper::Serve(theirs))?;
        Ok(ours)
    }

    fn tell(&mut self, message: &ToKeeper) -> Result<(), String> {
        let running = self.running.as_ref().ok_or(GONE)?;
        // Somebody may have stopped it, and its answer is waited for.
        let _ = process::wake(running.pid);
        let (packet, descriptors) = message.encode();
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.into_iter().map(AsFd::as_fd).collect();
        message::send(running.channel.as_fd(), &packet, &descriptors, false)
            .map_err(|error| format!("the keeper takes no messages: {error}"))
    }

    fn hear(&mut self, limit: Duration) -> Result<FromKeeper, String> {
        let running = self.running.as_ref().ok_or(GONE)?;
        let heard = poll::readable(&[running.channel.as_fd()], Some(limit));
        if !heard.map_err(|error| error.to_string())?[0] {
            return Err(format!("the keeper has not answered for {limit:?}"));
        }
        let mut packet = vec![0; MAX_PACKET];
        match message::receive(running.channel.as_fd(), &mut packet, false) {
            Ok((0, _)) => Err("the keeper has ended".into()),
            Ok((length, _)) => FromKeeper::decode(&packet[..length])
                .map_err(|_| "the keeper sent a wrong message".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// It does not answer a gateway: ends it, so that another one starts. Not if it has just started: a gateway may say so
    /// as often as it likes.
    pub(super) fn replace(&mut self, now: Instant) {
        if let Some(running) = &self.running
            && now.saturating_duration_since(running.since) >= YOUNG
        {
            log::error!(
                "the keeper of private keys (process {}) does not answer: killed",
                running.pid
            );
            self.end();
        }
    }

    /// Ends it for good, because nothing needs it any more. Returns whether it is gone.
    pub(super) fn stop(&mut self) -> bool {
        (self.who, self.due) = (None, None);
        self.end();
        self.running.is_none()
    }

    /// Ends it, so that another one starts and gets everything anew.
    pub(super) fn end(&self) {
        if let Some(running) = &self.running
            && let Err(error) = process::kill(running.pid)
        {
            log::error!("the keeper cannot be killed: {error}");
        }
    }

    /// A process has ended. Returns whether it was the keeper.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        let Some(running) = self.running.take_if(|running| running.pid == pid) else {
            return false;
        };
        if self.who.is_none() {
            return true;
        }
        let lived = Lifetime {
            time: now.saturating_duration_since(running.since),
            served: true,
        };
        let pause = lived.pause(&mut self.failures, &mut self.was_short, LONGEST_PAUSE);
        self.due = Some(now + pause);
        log::error!(
            "the keeper of private keys died: {exit}; TLS handshakes fail until a new one has the keys, which starts {}",
            describe_pause(pause)
        );
        true
    }

    /// Does what is due: a start, new keys of tickets, keys to forget.
    pub(super) fn tick(&mut self, now: Instant) {
        self.tickets.turn(now);
        if self.due.is_some_and(|due| due <= now)
            && let Err(error) = self.start(now)
        {
            log::error!("{error}");
            self.due = Some(now + LONGEST_PAUSE);
        }
        let unused = std::mem::take(&mut *self.unused.borrow_mut());
        for number in unused {
            // One that is gone has forgotten all.
            let _ = self.tell(&ToKeeper::Forget(number));
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let tickets = self.who.as_ref().map(|_| self.tickets.due);
        self.due.into_iter().chain(tickets).min()
    }
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        self.unused.borrow_mut().push(self.number);
    }
}

/// The keys of session tickets: a new one every 12 hours; the one before is accepted for as long.
#[derive(Debug)]
pub(super) struct Tickets {
    keys: TicketSecrets,
    due: Instant,
    turns: u64,
}

impl Tickets {
    fn new(now: Instant) -> Tickets {
        let mut tickets = Tickets {
            keys: TicketSecrets::default(),
            due: now,
            turns: 0,
        };
        tickets.turn(now);
        tickets
    }

    /// Makes a new key if it is time.
    fn turn(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + TICKET_TURN;
        let mut key = vec![0; weir_tls::TICKET_KEY];
        match weir_tls::random(&mut key) {
            Ok(()) => {
                self.keys.keys.insert(0, key);
                self.keys.keys.truncate(2);
                self.turns += 1;
            }
            Err(error) => log::error!("no new key for session tickets: {error}"),
        }
    }

    /// The keys for another weir, and when the next one is due.
    pub(super) fn shared(&self, now: Instant) -> (Vec<Vec<u8>>, Duration) {
        let due = self.due.saturating_duration_since(now);
        (self.keys.keys.clone(), due)
    }

    /// Uses the keys of the weir before this one, so that its clients can resume their sessions.
    pub(super) fn take_over(&mut self, keys: Vec<Vec<u8>>, due: Duration, now: Instant) {
        let fit = |key: &Vec<u8>| key.len() == weir_tls::TICKET_KEY;
        if !keys.is_empty() && keys.len() <= 2 && keys.iter().all(fit) {
            self.keys.keys = keys;
            self.due = now + due.min(TICKET_TURN);
        }
    }

    /// The keys that are in force, the current one first.
    pub(super) fn keys(&self) -> TicketSecrets {
        self.keys.clone()
    }

    /// How often they have changed.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }
}

const GONE: &str = "the keeper of private keys does not run";

/// How long the keeper may take to start, and for an answer. It needs some milliseconds, and one. Nothing else is done meanwhile, so
/// one that does not answer is replaced soon.
const START_LIMIT: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(3);

/// A keeper that is younger than this is not replaced because a gateway says that it does not answer.
const YOUNG: Duration = Duration::from_secs(2);

/// Certificates that are given to it before its answers are read.
const AT_ONCE: usize = 16;

/// Maximum pause between two starts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often the key of session tickets changes.
const TICKET_TURN: Duration = Duration::from_secs(12 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::{CommandExt, ExitStatusExt},
        process::Command,
    };

    use super::*;

    #[test]
    fn a_keeper_that_answers_another_question_is_killed_and_not_asked_again() {
        let mut sleep = Command::new("sleep");
        let mut process = sleep.arg("20").process_group(0).spawn().unwrap();
        let (channel, theirs) = message::pair().unwrap();
        let now = Instant::now();
        let mut keeper = Keeper::new(now);
        keeper.running = Some(Running {
            pid: process.id(),
            channel,
            since: now,
        });
        let another = FromKeeper::Failed {
            number: 99,
            in_key: true,
            message: "of a question whose answer was not read".into(),
        };
        message::send(theirs.as_fd(), &another.encode(), &[], true).unwrap();
        let file = || File::open("/dev/null").unwrap();
        let loaded = keeper.load([Ok((file(), file()))].into_iter());
        assert_eq!(loaded.unwrap_err(), "the keeper sent a wrong message");
        assert_eq!(process.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn keys_of_tickets_change_every_12_hours_and_the_one_before_stays() {
        let start = Instant::now();
        let mut tickets = Tickets::new(start);
        let first = tickets.keys().keys;
        assert_eq!((first.len(), tickets.turns()), (1, 1));
        tickets.turn(start + TICKET_TURN - Duration::from_secs(1));
        assert_eq!(tickets.turns(), 1);
        tickets.turn(start + TICKET_TURN);
        let second = tickets.keys().keys;
        assert_eq!((second.len(), &second[1]), (2, &first[0]));
        assert_ne!(second[0], second[1]);
        tickets.turn(start + TICKET_TURN * 2);
        let third = tickets.keys().keys;
        assert_eq!((third.len(), &third[1]), (2, &second[0]));
    }
}
