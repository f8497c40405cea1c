//! The process that a program outside has started and watches: process 1 of a container, the child of a shell or of
//! runit. After an upgrade it stays, passes signals on to the weir that is in charge, and ends when that one ends, with
//! its exit code.
//!
//! systemd does not need this: weir tells it the new process (`MAINPID=`).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use weir_sys::{
    message, poll,
    process::{self, Exit},
    signal::{Signal, Signals},
};

use super::{receive, send};

/// This process, as the one that is watched.
#[derive(Debug)]
pub(crate) struct Anchor {
    /// `None`: the weir in charge has ended.
    channel: Option<OwnedFd>,
    /// The weir in charge.
    main: u32,
    code: Option<u8>,
    /// The process of the weir in charge has ended.
    has_ended: bool,
}

/// From the weir in charge.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAnchor {
    /// This process is in charge now.
    Main { pid: u32 },
    /// The weir in charge ends, with this exit code.
    Ended { code: u8 },
}

impl ToAnchor {
    /// Sends it.
    pub(crate) fn send(&self, anchor: &OwnedFd) {
        if let Err(error) = send(anchor.as_fd(), self, None) {
            log::debug!("cannot send a message to the process that was started first: {error}");
        }
    }
}

impl Anchor {
    /// Makes this process the one that stays: it becomes the parent of children whose weir has ended. Returns the
    /// channel's end for each weir that will be in charge; `main` is the first.
    ///
    /// # Errors
    /// As socketpair(2), prctl(2).
    pub(crate) fn new(main: u32) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = message::pair()?;
        process::adopt_orphans()?;
        let anchor = Self {
            channel: Some(ours),
            main,
            code: None,
            has_ended: false,
        };
        Ok((anchor, theirs))
    }

    /// Passes a signal on.
    pub(crate) fn pass_on(&self, signal: Signal) {
        if signal != Signal::Child
            && self.channel.is_some()
            && let Err(error) = process::send_signal(self.main, signal)
        {
            log::error!(
                "cannot pass a signal on to weir (process {}): {error}",
                self.main
            );
        }
    }

    /// Reads what the weir in charge says. Returns whether it is still there.
    pub(crate) fn hear(&mut self) -> bool {
        while let Some(channel) = &self.channel {
            match receive(channel.as_fd()) {
                Ok(Some((ToAnchor::Main { pid }, _))) => self.main = pid,
                Ok(Some((ToAnchor::Ended { code }, _))) => self.code = Some(code),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.channel = None,
            }
        }
        self.channel.is_some()
    }

    /// The descriptor to wait for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// A process has ended.
    pub(crate) fn exited(&mut self, pid: u32, exit: Exit) {
        if pid == self.main {
            self.has_ended = true;
            self.code.get_or_insert(match exit {
                Exit::Code(code) => u8::try_from(code).unwrap_or(crate::EX_SOFTWARE),
                Exit::Signal(_) => crate::EX_SOFTWARE,
            });
        }
    }

    /// Stays until the weir in charge has ended; returns its exit code.
    pub(crate) fn stay(mut self, signals: &Signals) -> u8 {
        while self.hear() {
            let mut descriptors = vec![signals.as_fd()];
            descriptors.extend(self.descriptor());
            if let Err(error) = poll::readable(&descriptors, None) {
                log::error!("waiting failed: {error}");
                break;
            }
            self.take(signals);
        }
        // The process exits a moment after its channel is closed. Programs that wait for this process may expect that
        // nothing runs after it.
        let until = Instant::now() + LAST_WORDS;
        while !self.has_ended && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let _ = poll::readable(&[signals.as_fd()], Some(left));
            self.take(signals);
        }
        self.code.unwrap_or(crate::EX_SOFTWARE)
    }

    fn take(&mut self, signals: &Signals) {
        while let Ok(Some(signal)) = signals.next() {
            match signal {
                Signal::Child => {
                    while let Ok(Some((pid, exit))) = process::reap(|_| ()) {
                        self.exited(pid, exit);
                    }
                }
                signal => self.pass_on(signal),
            }
        }
    }
}

/// How long the exit of the weir in charge may be late.
const LAST_WORDS: Duration = Duration::from_secs(1);
