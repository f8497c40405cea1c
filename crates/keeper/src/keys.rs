//! The keys, and the threads that sign with them.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, PoisonError, RwLock},
};

use weir_sys::message;
use weir_tls::{Answer, Question, SigningKey, may_sign};

/// The keys by the manager's numbers.
#[derive(Default)]
pub(crate) struct Keys {
    keys: RwLock<HashMap<u32, Arc<dyn SigningKey>>>,
}

impl Keys {
    pub(crate) fn put(&self, number: u32, key: Arc<dyn SigningKey>) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert(number, key);
    }

    pub(crate) fn forget(&self, number: u32) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.remove(&number);
    }

    /// Answers the questions of a reactor until it closes its end.
    pub(crate) fn serve(&self, socket: &OwnedFd) {
        let mut packet = [0; 512];
        // A longer packet than a handshake has is an error, which ends the channel: only a broken gateway sends one.
        while let Ok((length @ 1.., _)) = message::receive(socket.as_fd(), &mut packet, true) {
            let Some(question) = Question::decode(&packet[..length]) else {
                return;
            };
            let signature = self.sign(&question);
            let answer = Answer {
                number: question.number,
                signature: signature.as_deref(),
            };
            if message::send(socket.as_fd(), &answer.encode(), &[], true).is_err() {
                return;
            }
        }
    }

    /// `None`: there is no such key, it does not sign in this way, or the message is not that of a handshake.
    fn sign(&self, question: &Question<'_>) -> Option<Vec<u8>> {
        if !may_sign(question.scheme, question.message) {
            return None;
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.get(&question.key)?.clone();
        drop(keys);
        key.choose_scheme(&[question.scheme])?
            .sign(question.message)
            .ok()
    }
}
