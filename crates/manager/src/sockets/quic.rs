//! What gateways share for QUIC: the key of connection IDs, and the inboxes through which datagrams reach the gateway
//! of their connection.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use weir_control::{TicketSecrets, ToGateway};
use weir_sys::{message, poll, random};

/// What gateways share.
#[derive(Debug, Default)]
pub(crate) struct Quic {
    /// Empty before the first gateway that needs it.
    secret: TicketSecrets,
    /// The number of the last gateway. Numbers are not used again.
    last: u32,
    /// By gateway and reactor: the end of its inbox that others send to.
    outboxes: Vec<(u32, u16, OwnedFd)>,
}

/// What the weir before this one gives.
#[derive(Debug, Default)]
pub(crate) struct QuicHandover {
    /// The secret, and the number of its last gateway.
    pub(crate) secret: Option<(Vec<Vec<u8>>, u32)>,
    /// By gateway and reactor: the ends that others send to.
    pub(crate) inboxes: Vec<(u32, u16, OwnedFd)>,
}

impl Quic {
    /// For another weir: the secret, and the number of the last gateway. `None`: no gateway needed it.
    pub(crate) fn shared(&self) -> Option<(Vec<Vec<u8>>, u32)> {
        let keys = &self.secret.keys;
        (!keys.is_empty()).then(|| (keys.clone(), self.last))
    }

    /// For another weir: the ends of inboxes that others send to.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = (u32, u16, &OwnedFd)> {
        let all = self.outboxes.iter();
        all.map(|(gateway, reactor, socket)| (*gateway, *reactor, socket))
    }

    /// Takes over the keys and inboxes of the earlier weir, so that its connections continue.
    pub(crate) fn take_over(&mut self, inherited: QuicHandover) {
        let Some((keys, last)) = inherited.secret else {
            return;
        };
        if keys.len() == 1 && keys[0].len() == weir_tls::quic::SECRET {
            self.secret.keys = keys;
            // The old weir may start gateways until this one is in charge.
            self.last = last.saturating_add(NUMBERS_APART);
            self.outboxes = inherited.inboxes;
        }
    }

    /// The messages for a gateway that starts with so many reactors that read UDP sockets.
    ///
    /// # Errors
    /// If there are no random numbers, or no descriptors.
    pub(crate) fn messages(&mut self, reactors: u16) -> Result<Vec<ToGateway>, String> {
        if self.secret.keys.is_empty() {
            let mut secret = vec![0; weir_tls::quic::SECRET];
            random::fill(&mut secret).map_err(|error| error.to_string())?;
            self.secret.keys.push(secret);
        }
        self.forget_ended();
        self.last += 1;
        let gateway = self.last;
        let mut messages = vec![ToGateway::Quic {
            gateway,
            secret: self.secret.clone(),
        }];
        let pairs = (0..reactors).map(|reactor| Ok((reactor, message::pair()?)));
        let pairs: io::Result<Vec<_>> = pairs.collect();
        let told = |error: io::Error| format!("inboxes of QUIC: {error}");
        for (reactor, (socket, other)) in pairs.map_err(told)? {
            messages.push(ToGateway::Inbox { reactor, socket });
            self.outboxes.push((gateway, reactor, other));
        }
        for (gateway, reactor, socket) in &self.outboxes {
            messages.push(ToGateway::Outbox {
                gateway: *gateway,
                reactor: *reactor,
                socket: socket.try_clone().map_err(told)?,
            });
        }
        Ok(messages)
    }

    /// Closes the inboxes of gateways that have ended.
    fn forget_ended(&mut self) {
        let has_ended = |socket: &OwnedFd| {
            // Nothing is ever sent to this end: it is readable when the other one is closed.
            poll::readable(&[socket.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| ready[0])
        };
        self.outboxes.retain(|(_, _, socket)| !has_ended(socket));
    }
}

/// How many gateways a weir may start after it has handed over, and before the next one is in charge.
const NUMBERS_APART: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_weir_goes_on_with_the_secret_and_later_numbers() {
        let (mut old, mut new) = (Quic::default(), Quic::default());
        assert_eq!(old.shared(), None);
        let kept = old.messages(1).unwrap();
        let inboxes = old.inboxes();
        let inboxes = inboxes
            .map(|(gateway, reactor, socket)| (gateway, reactor, socket.try_clone().unwrap()));
        new.take_over(QuicHandover {
            secret: old.shared(),
            inboxes: inboxes.collect(),
        });
        let messages = new.messages(1).unwrap();
        assert_eq!(new.secret, old.secret);
        let of = |message: &ToGateway| match message {
            ToGateway::Outbox { gateway, .. } => Some(*gateway),
            _ => None,
        };
        let numbers: Vec<u32> = messages.iter().filter_map(of).collect();
        assert_eq!(numbers, [1, NUMBERS_APART + 2]);
        drop(kept);
    }

    #[test]
    fn a_gateway_gets_the_inboxes_of_those_that_live() {
        let mut quic = Quic::default();
        let mut numbers = |kept: &mut Vec<ToGateway>| {
            let messages = quic.messages(2).unwrap();
            let of = |message: &ToGateway| match message {
                ToGateway::Outbox { gateway, .. } => Some(*gateway),
                _ => None,
            };
            let numbers: Vec<u32> = messages.iter().filter_map(of).collect();
            kept.extend(messages);
            numbers
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert_eq!(numbers(&mut first), [1, 1]);
        assert_eq!(numbers(&mut second), [1, 1, 2, 2]);
        drop(first);
        assert_eq!(numbers(&mut second), [2, 2, 3, 3]);
    }
}
