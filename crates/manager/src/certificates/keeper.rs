//! The keeper as the manager sees it: a process, its channel, and the numbers of the keys that it has.
//!
//! It is started for the first configuration whose certificates need it, and serves all gateways. If it dies, it is
//! started again, and each generation gives it its certificates again (`certificates`). Handshakes fail meanwhile; open
//! connections continue.
//!
//! The manager's thread does not wait for it, because PHP and operators need that thread: a question returns an [`Answer`],
//! which is there later. A keeper that has not answered for [`LIMIT`] is killed, and its questions have failed.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::TicketSecrets;
use weir_keeper::{FromKeeper, MAX_PACKET, Order, ROLE, ToKeeper};
use weir_sys::{
    identity::Identity,
    message, poll,
    process::{self, Exit},
    random,
};

use super::open_pair;
use crate::{
    children::{
        gateway::{Lifetime, describe_pause},
        role,
        unsent::{RESEND, is_full, is_gone},
    },
    sockets::quic::{Quic, QuicHandover},
};

/// The keeper, and the keys of session tickets, which all gateways share.
#[derive(Debug)]
pub(crate) struct Keeper {
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
    pub(crate) tickets: Tickets,
    /// What gateways share for QUIC.
    pub(crate) quic: Quic,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    channel: OwnedFd,
    since: Instant,
    is_ready: bool,
    /// Messages that were not sent yet.
    queue: VecDeque<Message>,
    /// The channel was full.
    is_full: bool,
    /// Questions that were sent and are not answered yet, in order.
    asked: VecDeque<Asked>,
    /// When it last answered, or when there was something for it to do again.
    heard: Instant,
}

/// A message to the keeper.
#[derive(Debug)]
enum Message {
    /// The files of chain and key, which are opened when their turn comes.
    Load(
        PathBuf,
        PathBuf,
        Slot<Result<InstalledCertificate, Refused>>,
    ),
    Make(ToKeeper, Slot<Vec<u8>>),
    Other(ToKeeper),
}

/// A question that the keeper must answer.
#[derive(Debug)]
enum Asked {
    /// Whether the keeper can serve, and the callers that wait for the answer.
    Start(Vec<Slot<()>>),
    Load(u32, Slot<Result<InstalledCertificate, Refused>>),
    Make(Slot<Vec<u8>>),
}

/// The keeper's answer to a question, once it is there. The error: it is gone, does not answer or answers wrongly.
#[derive(Debug)]
pub(crate) struct Answer<T>(Slot<T>);

/// Where an answer is put.
type Slot<T> = Rc<RefCell<Option<Result<T, String>>>>;

impl<T> Answer<T> {
    /// One that is there already.
    pub(crate) fn of(answer: Result<T, String>) -> Answer<T> {
        Answer(Rc::new(RefCell::new(Some(answer))))
    }

    fn later() -> (Answer<T>, Slot<T>) {
        let slot = Slot::default();
        (Answer(slot.clone()), slot)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Takes it; `None`: it is not there yet.
    pub(crate) fn take(&self) -> Option<Result<T, String>> {
        self.0.borrow_mut().take()
    }
}

fn put<T>(slot: &Slot<T>, answer: Result<T, String>) {
    slot.replace(Some(answer));
}

/// A key that the keeper has. It forgets the key when this is dropped.
#[derive(Debug)]
pub(crate) struct KeyHandle {
    pub(crate) number: u32,
    unused: Rc<RefCell<Vec<u32>>>,
}

/// A certificate whose key the keeper has.
#[derive(Debug)]
pub(crate) struct InstalledCertificate {
    pub(crate) key: KeyHandle,
    /// DER.
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) warnings: Vec<String>,
}

/// Why the keeper does not take a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The cause is in the file of the key.
    pub(crate) in_key: bool,
    /// The cause and what to do, without the name of the file.
    pub(crate) message: String,
}

impl Keeper {
    pub(crate) fn new(now: Instant) -> Keeper {
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
    pub(crate) fn take_over(
        &mut self,
        tickets: Option<(Vec<Vec<u8>>, Duration)>,
        quic: QuicHandover,
        now: Instant,
    ) {
        if let Some((keys, due)) = tickets {
            self.tickets.take_over(keys, due, now);
        }
        self.quic.take_over(quic);
    }

    /// Starts it, if it does not run. The answer says whether it can serve.
    pub(crate) fn ensure(&mut self, who: &Option<Identity>, now: Instant) -> Answer<()> {
        self.who = Some(who.clone());
        if self.running.is_none()
            && let Err(cause) = self.start(now)
        {
            return Answer::of(Err(cause));
        }
        let (answer, slot) = Answer::later();
        let running = self.running.as_mut();
        match running.and_then(|running| running.asked.front_mut()) {
            Some(Asked::Start(waiting)) => waiting.push(slot),
            _ => put(&slot, Ok(())),
        }
        answer
    }

    /// A configuration that has started it does not take effect. `who`: its user in those that do; `None`: they need none.
    pub(crate) fn give_back(&mut self, who: Option<Option<Identity>>) {
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
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// The process id of the running keeper.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    fn start(&mut self, now: Instant) -> Result<(), String> {
        let Some(who) = &self.who else {
            return Ok(());
        };
        let started = role::start_bare("weir: keeper", ROLE);
        let (pid, channel) = started.map_err(|cause| cannot_start(&cause))?;
        let become_user: ToKeeper = ToKeeper::Become(who.clone());
        // The channel has room for its first message.
        message::send(channel.as_fd(), &become_user.encode().0, &[], false)
            .map_err(|error| cannot_start(&error.to_string()))?;
        self.running = Some(Running {
            pid,
            channel,
            since: now,
            is_ready: false,
            queue: VecDeque::new(),
            is_full: false,
            asked: VecDeque::from([Asked::Start(Vec::new())]),
            heard: now,
        });
        self.due = None;
        self.starts += 1;
        Ok(())
    }

    /// Gives it a certificate: the files of chain and key.
    pub(crate) fn load(
        &mut self,
        chain: PathBuf,
        key: PathBuf,
    ) -> Answer<Result<InstalledCertificate, Refused>> {
        let (answer, slot) = Answer::later();
        self.ask(Message::Load(chain, key, slot));
        answer
    }

    /// Makes a key, which goes to the descriptor in `order`. The answer is what is public.
    pub(crate) fn make(&mut self, order: Order) -> Answer<Vec<u8>> {
        let (answer, slot) = Answer::later();
        self.ask(Message::Make(ToKeeper::Make(order), slot));
        answer
    }

    /// A new channel on which it signs: the gateway's end.
    ///
    /// # Errors
    /// If there is no keeper now, or no descriptor.
    pub(crate) fn connect(&mut self) -> Result<OwnedFd, String> {
        let (ours, theirs) = message::pair().map_err(|error| error.to_string())?;
        let running = self.running.as_mut().ok_or(GONE)?;
        let serve = Message::Other(ToKeeper::Serve(theirs));
        running.push(serve, Instant::now());
        self.flush();
        Ok(ours)
    }

    fn ask(&mut self, message: Message) {
        let Some(running) = &mut self.running else {
            return message.failed(GONE);
        };
        running.push(message, Instant::now());
        self.flush();
    }

    /// Sends what the channel has room for.
    fn flush(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.is_full = false;
        let mut is_told = false;
        while running.asked.len() < AT_ONCE
            && let Some(message) = running.queue.pop_front()
        {
            let load;
            let told = match &message {
                Message::Make(told, _) | Message::Other(told) => told,
                Message::Load(chain, key, slot) => match open_pair(chain, key) {
                    Ok((chain, key)) => {
                        let (chain, key) = (chain.into(), key.into());
                        let number = self.next_key;
                        load = ToKeeper::Load { number, chain, key };
                        &load
                    }
                    Err(refused) => {
                        put(slot, Ok(Err(refused)));
                        continue;
                    }
                },
            };
            match running.send(told) {
                Ok(()) => is_told = true,
                Err(error) if is_full(&error) => {
                    running.queue.push_front(message);
                    running.is_full = true;
                    break;
                }
                // It ends. Its last messages must still be read.
                Err(error) if is_gone(&error) => {
                    running.queue.push_front(message);
                    break;
                }
                Err(error) => {
                    running.queue.push_front(message);
                    return self
                        .give_up(&format!("the keeper does not read its messages: {error}"));
                }
            }
            match message {
                Message::Load(_, _, slot) => {
                    running.asked.push_back(Asked::Load(self.next_key, slot));
                    self.next_key = self.next_key.wrapping_add(1);
                }
                Message::Make(_, slot) => running.asked.push_back(Asked::Make(slot)),
                Message::Other(_) => {}
            }
        }
        if is_told {
            // Somebody may have stopped it.
            let _ = process::wake(running.pid);
        }
    }

    /// Takes the answers that have come.
    pub(crate) fn hear(&mut self, now: Instant) {
        while let Some(running) = &mut self.running
            && running.has_work()
        {
            let mut packet = vec![0; MAX_PACKET];
            match message::receive(running.channel.as_fd(), &mut packet, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok((0, _)) => self.fail("the keeper of private keys has ended"),
                Ok((length, _)) => match FromKeeper::decode(&packet[..length]) {
                    Ok(message) => self.answered(message, now),
                    Err(_) => self.give_up(WRONG),
                },
                Err(error) => self.give_up(&format!("the keeper cannot be heard: {error}")),
            }
        }
        if self.late_at().is_some_and(|at| at <= now) {
            self.give_up(&format!(
                "the keeper of private keys has not answered for {LIMIT:?}"
            ));
        }
        self.flush();
    }

    fn answered(&mut self, message: FromKeeper, now: Instant) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.heard = now;
        match (running.asked.pop_front(), message) {
            (Some(Asked::Start(waiting)), FromKeeper::Ready { is_confined }) => {
                if !is_confined {
                    log::warn!(
                        "this kernel cannot filter system calls (seccomp), so the keeper of private keys is only separated by its user"
                    );
                }
                running.is_ready = true;
                waiting.iter().for_each(|slot| put(slot, Ok(())));
            }
            (
                Some(Asked::Load(asked, slot)),
                FromKeeper::Loaded {
                    number,
                    chain,
                    warnings,
                },
            ) if number == asked => {
                let key = KeyHandle {
                    number,
                    unused: self.unused.clone(),
                };
                let held = InstalledCertificate {
                    key,
                    chain,
                    warnings,
                };
                put(&slot, Ok(Ok(held)));
            }
            (
                Some(Asked::Load(asked, slot)),
                FromKeeper::Failed {
                    number,
                    in_key,
                    message,
                },
            ) if number == asked => put(&slot, Ok(Err(Refused { in_key, message }))),
            (Some(Asked::Make(slot)), FromKeeper::Made(public)) => put(&slot, Ok(public)),
            (Some(Asked::Make(slot)), FromKeeper::Failed { message, .. }) => {
                put(&slot, Err(message));
            }
            (asked, message) => {
                let is_told = matches!(&asked, Some(Asked::Start(waiting)) if !waiting.is_empty());
                asked
                    .into_iter()
                    .for_each(|asked| running.asked.push_front(asked));
                match message {
                    FromKeeper::Unfit(cause) => {
                        if !is_told {
                            log::error!("the keeper of private keys: {cause}");
                        }
                        self.fail(&cause);
                    }
                    // Old answers in the channel would be taken for answers to later questions.
                    _ => self.give_up(WRONG),
                }
            }
        }
    }

    /// Ends it, so that another one starts, and says why.
    fn give_up(&mut self, cause: &str) {
        log::error!("{cause}: it is killed");
        self.fail(cause);
    }

    /// Ends it, so that another one starts. Its questions have failed.
    fn fail(&mut self, cause: &str) {
        self.end();
        let Some(running) = &mut self.running else {
            return;
        };
        let cause = match running.is_ready {
            true => cause.to_owned(),
            false => cannot_start(cause),
        };
        let asked = std::mem::take(&mut running.asked);
        let queue = std::mem::take(&mut running.queue);
        asked.into_iter().for_each(|asked| asked.failed(&cause));
        queue.into_iter().for_each(|message| message.failed(&cause));
    }

    /// Waits for its next answers. Only while weir starts: then there is nothing else to do.
    pub(crate) fn wait(&mut self, now: Instant) {
        let limit = self.late_at().map(|at| at.saturating_duration_since(now));
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptor().into_iter().collect();
        if let Err(error) = poll::readable(&descriptors, limit.or(Some(Duration::ZERO))) {
            self.give_up(&format!("the keeper cannot be heard: {error}"));
        }
        self.hear(Instant::now());
    }

    /// The channel, while an answer is waited for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let running = self.running.as_ref()?;
        running.has_work().then(|| running.channel.as_fd())
    }

    /// When it is late.
    fn late_at(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        running.has_work().then(|| running.heard + LIMIT)
    }

    /// The keeper does not answer a gateway, so it is ended, and another one starts. A keeper that has just started
    /// stays: a gateway may report this as often as it likes.
    pub(crate) fn replace(&mut self, now: Instant) {
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
    pub(crate) fn stop(&mut self) -> bool {
        (self.who, self.due) = (None, None);
        self.end();
        self.running.is_none()
    }

    /// Ends it, so that another one starts and gets everything anew.
    pub(crate) fn end(&self) {
        if let Some(running) = &self.running {
            role::kill("the keeper of private keys", running.pid);
        }
    }

    /// A process has ended. Returns whether it was the keeper.
    pub(crate) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        if self.pid() != Some(pid) {
            return false;
        }
        // What it said last.
        self.hear(now);
        self.fail("the keeper of private keys has ended");
        let Some(running) = self.running.take() else {
            return true;
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
    pub(crate) fn tick(&mut self, now: Instant) {
        self.tickets.turn(now);
        if self.due.is_some_and(|due| due <= now)
            && let Err(error) = self.start(now)
        {
            log::error!("{error}");
            self.due = Some(now + LONGEST_PAUSE);
        }
        let unused = std::mem::take(&mut *self.unused.borrow_mut());
        if let Some(running) = &mut self.running {
            // A keeper that has ended has lost all keys.
            for key in unused {
                running.push(Message::Other(ToKeeper::Forget(key)), now);
            }
        }
        self.hear(now);
    }

    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let tickets = self.who.as_ref().map(|_| self.tickets.due);
        let is_full = self.running.as_ref().is_some_and(|running| running.is_full);
        let again = is_full.then(|| now + RESEND);
        let due = self.due.into_iter().chain(tickets).chain(again);
        due.chain(self.late_at()).min()
    }
}

impl Running {
    /// Whether it has not done all that it was told.
    fn has_work(&self) -> bool {
        !self.asked.is_empty() || !self.queue.is_empty()
    }

    fn push(&mut self, message: Message, now: Instant) {
        if !self.has_work() {
            self.heard = now;
        }
        self.queue.push_back(message);
    }

    fn send(&self, message: &ToKeeper) -> io::Result<()> {
        let (packet, descriptors) = message.encode();
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.into_iter().map(AsFd::as_fd).collect();
        message::send(self.channel.as_fd(), &packet, &descriptors, false)
    }
}

impl Message {
    fn failed(self, cause: &str) {
        match self {
            Message::Load(_, _, slot) => put(&slot, Err(cause.to_owned())),
            Message::Make(_, slot) => put(&slot, Err(cause.to_owned())),
            Message::Other(_) => {}
        }
    }
}

impl Asked {
    fn failed(self, cause: &str) {
        match self {
            Asked::Start(waiting) => {
                let each = waiting.iter();
                each.for_each(|slot| put(slot, Err(cause.to_owned())));
            }
            Asked::Load(_, slot) => put(&slot, Err(cause.to_owned())),
            Asked::Make(slot) => put(&slot, Err(cause.to_owned())),
        }
    }
}

impl Drop for KeyHandle {
    fn drop(&mut self) {
        self.unused.borrow_mut().push(self.number);
    }
}

fn cannot_start(cause: &str) -> String {
    format!("the keeper of private keys cannot start: {cause}")
}

/// The keys of session tickets: a new one every 12 hours; the one before is accepted for as long.
#[derive(Debug)]
pub(crate) struct Tickets {
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
        match random::fill(&mut key) {
            Ok(()) => {
                self.keys.keys.insert(0, key);
                self.keys.keys.truncate(2);
                self.turns += 1;
            }
            Err(error) => log::error!("no new key for session tickets: {error}"),
        }
    }

    /// The keys for another weir, and when the next one is due.
    pub(crate) fn shared(&self, now: Instant) -> (Vec<Vec<u8>>, Duration) {
        let due = self.due.saturating_duration_since(now);
        (self.keys.keys.clone(), due)
    }

    /// Uses the keys of the weir before this one, so that its clients can resume their sessions.
    pub(crate) fn take_over(&mut self, keys: Vec<Vec<u8>>, due: Duration, now: Instant) {
        let fit = |key: &Vec<u8>| key.len() == weir_tls::TICKET_KEY;
        if !keys.is_empty() && keys.len() <= 2 && keys.iter().all(fit) {
            self.keys.keys = keys;
            self.due = now + due.min(TICKET_TURN);
        }
    }

    /// The keys that are in force, the current one first.
    pub(crate) fn keys(&self) -> TicketSecrets {
        self.keys.clone()
    }

    /// How often they have changed.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }
}

const GONE: &str = "the keeper of private keys does not run";

const WRONG: &str = "the keeper of private keys sent a wrong message";

/// How long the keeper may take to start, and for an answer. Usually it needs some milliseconds to start, and one for
/// an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A keeper that is younger than this is not replaced because a gateway says that it does not answer.
const YOUNG: Duration = Duration::from_secs(2);

/// Questions that it has at once. So few always fit into the channel.
const AT_ONCE: usize = 16;

/// Maximum pause between two starts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often the key of session tickets changes.
const TICKET_TURN: Duration = Duration::from_secs(12 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::{CommandExt, ExitStatusExt},
        process::{Child, Command},
    };

    use super::*;

    /// A keeper that runs, the other end of its channel, and its process, which does nothing.
    fn running(now: Instant) -> (Keeper, OwnedFd, Child) {
        let mut sleep = Command::new("sleep");
        let process = sleep.arg("20").process_group(0).spawn().unwrap();
        let (channel, theirs) = message::pair().unwrap();
        let mut keeper = Keeper::new(now);
        keeper.running = Some(Running {
            pid: process.id(),
            channel,
            since: now,
            is_ready: true,
            queue: VecDeque::new(),
            is_full: false,
            asked: VecDeque::new(),
            heard: now,
        });
        (keeper, theirs, process)
    }

    #[test]
    fn a_keeper_that_answers_another_question_is_killed_and_not_asked_again() {
        let now = Instant::now();
        let (mut keeper, theirs, mut process) = running(now);
        let another = FromKeeper::Failed {
            number: 99,
            in_key: true,
            message: "of a question whose answer was not read".into(),
        };
        message::send(theirs.as_fd(), &another.encode(), &[], true).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = || file.path().to_owned();
        let answer = keeper.load(path(), path());
        assert!(!answer.is_there());
        keeper.hear(now);
        let cause = answer.take().unwrap().unwrap_err();
        assert_eq!(cause, WRONG);
        assert_eq!(process.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_keeper_is_late_only_with_what_it_was_asked() {
        let (mut keeper, theirs, mut process) = running(Instant::now());
        keeper.unused.borrow_mut().push(7);
        // Long after its last answer.
        keeper.tick(Instant::now() + LIMIT * 100);
        let mut packet = vec![0; MAX_PACKET];
        let (length, _) = message::receive(theirs.as_fd(), &mut packet, false).unwrap();
        let forget: ToKeeper<OwnedFd> = ToKeeper::Forget(7);
        assert_eq!(packet[..length], forget.encode().0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let answer = keeper.load(file.path().to_owned(), file.path().to_owned());
        let asked = Instant::now();
        keeper.hear(asked + LIMIT / 2);
        assert!(!answer.is_there() && process.try_wait().unwrap().is_none());
        keeper.hear(asked + LIMIT);
        let cause = answer.take().unwrap().unwrap_err();
        assert!(cause.contains("has not answered for 10s"), "{cause}");
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
