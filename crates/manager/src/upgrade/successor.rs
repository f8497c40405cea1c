//! The new weir, as the old one sees it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use weir_sys::{
    limits::OpenFiles,
    message,
    process::{self, Exit, Spawn},
};

use super::{ToPredecessor, ToSuccessor, receive, send};
use crate::{
    children::{
        environment,
        unsent::{Unsent, is_gone},
    },
    output::tail::OutputTail,
    upgrade::program::Program,
};

/// The new weir while it starts, and after it has taken over.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) pid: u32,
    /// `None`: it has ended.
    channel: Option<OwnedFd>,
    unsent: Unsent<(ToSuccessor, Option<OwnedFd>)>,
    /// Its standard error until it has proved to be a weir that takes over.
    output: OutputTail,
    /// Its version; `None`: it has not said it yet.
    version: Option<String>,
    /// When it is given up.
    until: Instant,
    limit: Duration,
    exit: Option<Exit>,
    /// Why it could not be given something.
    failed: Option<String>,
    /// The new weir is given up for this reason. It has some time to remove the files that it has made.
    given_up: Option<String>,
}

/// How its start has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The new weir serves.
    Ready,
    /// The new weir cannot serve, for this reason.
    Failed(String),
}

impl Successor {
    /// Starts the program.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn start(
        program: &Program,
        open_files: OpenFiles,
        limit: Duration,
    ) -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        let (ours, theirs) = message::pair().map_err(text)?;
        let (output, stderr) = OutputTail::new(MOST_OUTPUT).map_err(text)?;
        let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(text)?;
        let mut arguments = program.arguments.iter().cloned();
        let spawn = Spawn {
            name: arguments.next(),
            arguments: arguments.collect(),
            environment: environment::for_successor(),
            open_files: Some(open_files),
            outlives_us: true,
            ..Spawn::new(&program.path, theirs, stdout, stderr)
        };
        let shown = program.path.display();
        let pid = spawn
            .start()
            .map_err(|error| format!("{shown} cannot be started: {error}"))?;
        Ok(Self {
            pid,
            channel: Some(ours),
            unsent: Unsent::default(),
            output,
            version: None,
            until: Instant::now() + limit,
            limit,
            exit: None,
            failed: None,
            given_up: None,
        })
    }

    /// Queues a message.
    pub(crate) fn tell(&mut self, message: ToSuccessor, attached: Option<OwnedFd>) {
        if self.channel.is_some() {
            self.unsent.push((message, attached));
            self.flush();
        }
    }

    /// Its version, for messages.
    pub(crate) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("unknown")
    }

    /// Its process has ended.
    pub(crate) fn exited(&mut self, exit: Exit) {
        self.exit = Some(exit);
    }

    /// Looks how its start goes; `None`: it goes on.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Outcome> {
        self.flush();
        self.output.read();
        while let Some(message) = self.next() {
            match message {
                ToPredecessor::Hello { version } => {
                    self.version = Some(version);
                    // From now on its messages go to our standard error.
                    self.output.close();
                }
                ToPredecessor::Ready => return Some(Outcome::Ready),
                ToPredecessor::Failed(cause) => return Some(Outcome::Failed(cause)),
                ToPredecessor::ReopenLogs | ToPredecessor::StopNow | ToPredecessor::EndPrograms => {
                }
            }
        }
        if self.exit.is_some() || self.until <= now {
            if let Some(cause) = self.given_up.take() {
                return Some(Outcome::Failed(cause));
            }
        } else if self.given_up.is_some() {
            return None;
        }
        if let Some(cause) = self.failed.take() {
            return Some(Outcome::Failed(cause));
        }
        if let Some(exit) = self.exit {
            // What it said last.
            self.output.read();
            let cause = format!("the new weir ended before it served: {exit}");
            return Some(Outcome::Failed(self.with_output(cause)));
        }
        if self.until <= now {
            let cause = format!(
                "the new weir (process {}) did not serve within {:?} ([server] upgrade_timeout)",
                self.pid, self.limit
            );
            self.given_up = Some(self.with_output(cause));
            // It sees that, and ends.
            self.channel = None;
            self.unsent.clear();
            self.until = now + LAST_WORDS;
        }
        None
    }

    /// Its next message.
    pub(crate) fn next(&mut self) -> Option<ToPredecessor> {
        let channel = self.channel.as_ref()?.as_fd();
        match receive(channel) {
            Ok(Some((message, _))) => Some(message),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(None) | Err(_) => {
                self.channel = None;
                self.unsent.clear();
                None
            }
        }
    }

    /// Kills it with all that it has started.
    pub(crate) fn kill(&self) {
        if self.exit.is_none()
            && let Err(error) = process::kill(self.pid)
        {
            log::error!("cannot kill the new weir (process {}): {error}", self.pid);
        }
    }

    /// The descriptors to wait for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channel = self.channel.as_ref().map(AsFd::as_fd);
        channel.into_iter().chain(self.output.descriptor())
    }

    /// When [`look`](Self::look) has something to do.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        self.unsent.next_flush(now).unwrap_or(self.until)
    }

    /// Sends what the channel takes now.
    pub(crate) fn flush(&mut self) {
        let Some(channel) = &self.channel else {
            return;
        };
        let sent = self.unsent.flush(|(message, attached)| {
            send(channel.as_fd(), message, attached.as_ref().map(AsFd::as_fd))
        });
        if let Err(error) = sent {
            self.unsent.clear();
            // If it ends, its exit says why.
            if !is_gone(&error) {
                self.failed = Some(format!(
                    "the new weir cannot be given all it needs: {error}"
                ));
            }
        }
    }

    fn with_output(&self, cause: String) -> String {
        match &*self.output.text() {
            "" => cause,
            said => format!("{cause}; it said:\n{said}"),
        }
    }
}

/// Bytes of its output that are kept.
const MOST_OUTPUT: usize = 8192;

/// How long one that is given up may take to end.
const LAST_WORDS: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_ended_without_reading_all_is_not_one_that_cannot_be_given_all() {
        let (channel, theirs) = message::pair().unwrap();
        let (output, _stderr) = OutputTail::new(MOST_OUTPUT).unwrap();
        let now = Instant::now();
        let mut successor = Successor {
            pid: 0,
            channel: Some(channel),
            unsent: Unsent::default(),
            output,
            version: None,
            until: now + LAST_WORDS,
            limit: LAST_WORDS,
            exit: None,
            failed: None,
            given_up: None,
        };
        successor.tell(ToSuccessor::Reload, None);
        drop(theirs);
        successor.tell(ToSuccessor::Reload, None);
        successor.tell(ToSuccessor::Reload, None);
        assert_eq!(successor.failed, None);
        successor.exited(Exit::Code(3));
        let Some(Outcome::Failed(cause)) = successor.look(now) else {
            panic!("it has ended");
        };
        assert!(cause.contains("exit code 3"), "{cause}");
    }
}
