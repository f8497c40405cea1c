//! The old weir, as the new one sees it.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use weir_control::OldGeneration;
use weir_sys::{daemon, poll, version::version};

use super::{HANDOVER, ScriptList, SocketPlace, ToPredecessor, ToSuccessor, receive, send};
use crate::{
    Failure,
    programs::Handed,
    sockets::{
        admin::{AdminListeners, TakenUnix},
        listen::Sockets,
        quic::QuicHandover,
    },
};

/// The weir that has started this one.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// `None`: it has ended.
    channel: Option<OwnedFd>,
    version: String,
    given: Given,
    /// This one has reported that it serves.
    was_told: bool,
    /// What the old weir still finishes, according to its last report.
    pub(crate) old: Vec<OldGeneration>,
    /// Its workers' processes, with their pool's NAME.
    pub(crate) workers: Vec<(u32, String)>,
    /// Its programs, according to its last message about them.
    pub(crate) programs: Vec<Handed>,
}

/// What it has handed over.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) sockets: Sockets,
    pub(crate) admin: AdminListeners,
    pub(crate) pid_file: Option<(PathBuf, OwnedFd)>,
    pub(crate) tickets: Option<(Vec<Vec<u8>>, Duration)>,
    pub(crate) quic: QuicHandover,
    pub(crate) anchor: Option<OwnedFd>,
    pub(crate) declines: bool,
    pub(crate) generations: u32,
    pub(crate) addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Pools whose lists of scripts follow.
    pub(crate) lists: Vec<String>,
}

/// Later messages of the old weir.
#[derive(Debug)]
pub(crate) enum PredecessorMessage {
    /// This weir is in charge; its gateway takes idle connections here.
    Yours(Option<OwnedFd>),
    /// A reload was asked for.
    Reload,
    /// The scripts that a pool's PHP has compiled.
    Scripts(ScriptList, Option<OwnedFd>),
    /// The old weir has ended before this weir was in charge.
    Gone,
}

/// The items that were received before `Start`.
#[derive(Default)]
struct Received {
    version: Option<String>,
    sockets: Vec<(SocketPlace, OwnedFd)>,
    /// UDP sockets of the same listeners.
    datagrams: Vec<(SocketPlace, OwnedFd)>,
    admin: Option<TakenUnix>,
    admin_tcp: Option<(SocketAddr, OwnedFd)>,
    given: Given,
}

impl Predecessor {
    /// Receives what it hands over. From then on messages go to its standard error.
    ///
    /// # Errors
    /// If the other side is no weir that hands over, or is of a version that this one cannot replace.
    pub(crate) fn receive(channel: OwnedFd) -> Result<Self, Failure> {
        let until = Instant::now() + LIMIT;
        let mut received = Received::default();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let readable = poll::readable(&[channel.as_fd()], Some(left));
            if !readable.map_err(|error| unfit(&error.to_string()))?[0] {
                return Err(unfit("it has not sent everything in time"));
            }
            let message = match receive(channel.as_fd()) {
                Ok(Some(message)) => message,
                Ok(None) => return Err(unfit("it has ended")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(unfit(&error.to_string())),
            };
            if received.take(message).map_err(|cause| unfit(&cause))? {
                break;
            }
        }
        let Received {
            version: theirs,
            sockets,
            datagrams,
            admin,
            admin_tcp,
            mut given,
        } = received;
        given.sockets = Sockets::taken_over(sockets);
        given.sockets.take_over_datagrams(datagrams);
        given.admin = AdminListeners::taken_over(admin, admin_tcp);
        let predecessor = Self {
            channel: Some(channel),
            version: theirs.ok_or_else(|| unfit("it does not say its version"))?,
            given,
            was_told: false,
            old: Vec::new(),
            workers: Vec::new(),
            programs: Vec::new(),
        };
        let version = version().to_owned();
        predecessor.tell(&ToPredecessor::Hello { version });
        Ok(predecessor)
    }

    /// What it has handed over.
    pub(crate) fn given(&mut self) -> &mut Given {
        &mut self.given
    }

    /// Its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Another end of the channel, to report a failure.
    pub(crate) fn reporter(&self) -> Option<Reporter> {
        let channel = self.channel.as_ref()?;
        channel.try_clone().ok().map(Reporter)
    }

    /// This weir serves.
    pub(crate) fn tell_ready(&mut self) {
        self.was_told = true;
        self.tell(&ToPredecessor::Ready);
    }

    /// The logs are to be opened again.
    pub(crate) fn reopen_logs(&self) {
        self.tell(&ToPredecessor::ReopenLogs);
    }

    /// Its programs are to end, because this weir stops.
    pub(crate) fn end_programs(&self) {
        if self
            .programs
            .iter()
            .any(|program| !program.slots.is_empty())
        {
            self.tell(&ToPredecessor::EndPrograms);
        }
    }

    /// All is to end now.
    pub(crate) fn stop_now(&self) {
        self.tell(&ToPredecessor::StopNow);
    }

    /// Whether it still runs.
    pub(crate) fn is_there(&self) -> bool {
        self.channel.is_some()
    }

    /// The descriptor to wait for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// The old weir's next message; `in_charge`: this weir is already in charge.
    pub(crate) fn hear(&mut self, in_charge: bool) -> Option<PredecessorMessage> {
        loop {
            let channel = self.channel.as_ref()?;
            match receive::<ToSuccessor>(channel.as_fd()) {
                Ok(Some((ToSuccessor::Yours, channel))) => {
                    return Some(PredecessorMessage::Yours(channel));
                }
                Ok(Some((ToSuccessor::Reload, _))) => return Some(PredecessorMessage::Reload),
                Ok(Some((ToSuccessor::Scripts(list), file))) => {
                    return Some(PredecessorMessage::Scripts(list, file));
                }
                Ok(Some((ToSuccessor::Report { old, workers }, _))) => {
                    self.old = old.into_iter().map(OldGeneration::from).collect();
                    self.workers = workers;
                }
                Ok(Some((ToSuccessor::Programs(programs), _))) => self.programs = programs,
                Ok(Some((ToSuccessor::Anchor, Some(anchor)))) => self.given.anchor = Some(anchor),
                // A later version may say more.
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    log::warn!("the earlier weir sent an unknown message: {error}");
                }
                Ok(None) | Err(_) => {
                    self.channel = None;
                    self.old.clear();
                    self.workers.clear();
                    for program in &mut self.programs {
                        program.slots.clear();
                    }
                    return match (in_charge, self.was_told) {
                        (true, _) => None,
                        // Until now both served. From now on this weir serves alone.
                        (false, true) => Some(PredecessorMessage::Yours(None)),
                        (false, false) => Some(PredecessorMessage::Gone),
                    };
                }
            }
        }
    }

    fn tell(&self, message: &ToPredecessor) {
        if let Some(channel) = &self.channel
            && let Err(error) = send(channel.as_fd(), message, None)
        {
            log::debug!("cannot send a message to the earlier weir: {error}");
        }
    }
}

/// Reports a failure to the old weir.
#[derive(Debug)]
pub(crate) struct Reporter(OwnedFd);

impl Reporter {
    /// This weir cannot serve.
    pub(crate) fn failed(&self, cause: &str) {
        let cause = match cause.char_indices().nth(LONGEST_CAUSE) {
            Some((end, _)) => &cause[..end],
            None => cause,
        };
        // Without an answer the old one sees that this process ends.
        let _ = send(self.0.as_fd(), &ToPredecessor::Failed(cause.into()), None);
    }
}

impl Received {
    /// Takes a message; `true`: it was the last one.
    fn take(
        &mut self,
        (message, attached): (ToSuccessor, Option<OwnedFd>),
    ) -> Result<bool, String> {
        let missing = || "a message lacks its descriptor".to_owned();
        match message {
            ToSuccessor::Hello { handover, version } => {
                if handover != HANDOVER {
                    return Err(format!(
                        "it is version {version} and hands over in another way (number {handover}, this version {} has {HANDOVER})",
                        weir_sys::version::version()
                    ));
                }
                if let Some(stderr) = attached {
                    daemon::set_standard(2, stderr).map_err(|error| error.to_string())?;
                }
                self.version = Some(version);
            }
            _ if self.version.is_none() => return Err("it does not say its version first".into()),
            ToSuccessor::Socket(place) => {
                self.sockets.push((place, attached.ok_or_else(missing)?));
            }
            ToSuccessor::Datagrams(place) => {
                self.datagrams.push((place, attached.ok_or_else(missing)?));
            }
            ToSuccessor::Quic { secret, last } => self.given.quic.secret = Some((secret, last)),
            ToSuccessor::Inbox { gateway, reactor } => {
                let inbox = (gateway, reactor, attached.ok_or_else(missing)?);
                self.given.quic.inboxes.push(inbox);
            }
            ToSuccessor::Admin { path, name } => {
                self.admin = Some((path, name, attached.ok_or_else(missing)?));
            }
            ToSuccessor::AdminTcp { wanted } => {
                self.admin_tcp = Some((wanted, attached.ok_or_else(missing)?));
            }
            ToSuccessor::PidFile { path } => {
                self.given.pid_file = Some((path, attached.ok_or_else(missing)?));
            }
            ToSuccessor::Tickets { keys, due } => self.given.tickets = Some((keys, due)),
            ToSuccessor::Anchor => self.given.anchor = Some(attached.ok_or_else(missing)?),
            ToSuccessor::Start {
                declines,
                generations,
                addresses,
                lists,
            } => {
                self.given.lists = lists;
                self.given.declines = declines;
                self.given.generations = generations;
                self.given.addresses = addresses;
                return Ok(true);
            }
            ToSuccessor::Yours
            | ToSuccessor::Report { .. }
            | ToSuccessor::Scripts(_)
            | ToSuccessor::Programs(_)
            | ToSuccessor::Reload => {
                return Err("it sent a message too early".into());
            }
        }
        Ok(false)
    }
}

fn unfit(cause: &str) -> Failure {
    Failure::internal(format!(
        "this weir was started to take over from another one, but {cause}: restart weir instead"
    ))
}

/// How long it may take to send everything.
const LIMIT: Duration = Duration::from_secs(30);

/// Characters of a cause that are sent.
const LONGEST_CAUSE: usize = 16 * 1024;
