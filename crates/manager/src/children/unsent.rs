//! Messages to another process that its channel has not taken yet. The manager waits for no channel: it tries again soon.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

/// The messages to one process, in their order. If this is dropped, they are not sent, and their descriptors are closed.
#[derive(Debug)]
pub(crate) struct Unsent<M>(VecDeque<M>);

impl<M> Unsent<M> {
    /// Adds a message. The next [`flush`](Self::flush) sends it.
    pub(crate) fn push(&mut self, message: M) {
        self.0.push_back(message);
    }

    /// Sends as many messages as the channel takes now.
    ///
    /// # Errors
    /// Why a message cannot be sent. It and all later ones are kept.
    pub(crate) fn flush(&mut self, mut send: impl FnMut(&M) -> io::Result<()>) -> io::Result<()> {
        while let Some(message) = self.0.front() {
            match send(message) {
                Ok(()) => drop(self.0.pop_front()),
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// When to flush again; `None`: all is sent.
    pub(crate) fn next_flush(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty()).then(|| now + RESEND)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<M> Default for Unsent<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M> From<Vec<M>> for Unsent<M> {
    fn from(messages: Vec<M>) -> Self {
        Self(messages.into())
    }
}

impl<M> Extend<M> for Unsent<M> {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        self.0.extend(messages);
    }
}

/// Whether a channel is full now: its queue is full, or too many descriptors are in transit (`ETOOMANYREFS`).
pub(crate) fn is_full(error: &io::Error) -> bool {
    /// ETOOMANYREFS of Linux.
    const TOO_MANY: i32 = 109;
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(TOO_MANY)
}

/// Whether the process at the other end of a channel has ended. If it had not read all, the kernel says so with a reset.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Pause before a message is sent again for which the channel had no room.
pub(crate) const RESEND: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_in_order_and_kept_while_the_channel_is_full() {
        let mut unsent = Unsent::from(vec![1, 2]);
        unsent.push(3);
        let (mut room, mut sent) = (2, Vec::new());
        let mut send = |message: &i32| match room {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => {
                room -= 1;
                sent.push(*message);
                Ok(())
            }
        };
        unsent.flush(&mut send).unwrap();
        let now = Instant::now();
        assert_eq!(unsent.next_flush(now), Some(now + RESEND));
        assert_eq!((sent, unsent.len()), (vec![1, 2], 1));
        let gone = unsent.flush(|_| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(gone.is_err_and(|error| is_gone(&error)) && unsent.len() == 1);
        unsent.flush(|_| Ok(())).unwrap();
        assert_eq!(unsent.next_flush(now), None);
    }
}
