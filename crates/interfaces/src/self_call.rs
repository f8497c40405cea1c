//! Calls of weir's own workers to sites of this weir that arrive over a connection of weir itself
//! or of a proxy.
//!
//! A script that calls its own site needs a second worker while it occupies the first one. So weir must know that a
//! worker makes such a request. If the call goes through `[egress]`, its connection to the site belongs to weir itself,
//! or to a proxy in front. The egress, which knows the worker, adds the header [`HEADER`] with a random token, which is
//! valid while the call waits for its answer. The gateway removes the header from each request and looks the token up.
//!
//! Nobody can guess such a token. A site that sees one can only make requests that count as calls
//! of this worker while its call runs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::{HeaderName, HeaderValue};

use crate::secret::random;

/// The header with the token of a call. It is removed from all requests.
pub const HEADER: HeaderName = HeaderName::from_static("weir-call");

/// The tokens of the calls that wait for an answer, and the process ids of their workers.
static CALLS: Mutex<BTreeMap<u128, u32>> = Mutex::new(BTreeMap::new());

/// A call that waits for its answer; its token is valid until this is dropped.
#[derive(Debug)]
pub struct Ticket(u128);

impl Ticket {
    /// A ticket for a call of the worker with this process id.
    pub fn new(worker: u32) -> Ticket {
        let word = u128::from(random()) << 64 | u128::from(random());
        calls().insert(word, worker);
        Ticket(word)
    }

    /// The value of [`HEADER`].
    pub fn value(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{:032x}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        calls().remove(&self.0);
    }
}

/// The worker whose call has this token; `None`: no waiting call has it.
pub fn worker_of(value: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(value).ok()?;
    let text = Some(text).filter(|text| text.len() == 32)?;
    let word = u128::from_str_radix(text, 16).ok()?;
    calls().get(&word).copied()
}

fn calls() -> MutexGuard<'static, BTreeMap<u128, u32>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_valid_while_its_call_waits_and_no_two_are_alike() {
        let (one, two) = (Ticket::new(7), Ticket::new(8));
        let (first, second) = (one.value().expect("a word"), two.value().expect("a word"));
        assert_ne!(first, second);
        let [first, second] = [&first, &second].map(|value| value.as_bytes());
        assert_eq!((worker_of(first), worker_of(second)), (Some(7), Some(8)));
        drop(one);
        assert_eq!((worker_of(first), worker_of(second)), (None, Some(8)));
        for wrong in ["", "7", "+0000000000000000000000000000007"] {
            assert_eq!(worker_of(wrong.as_bytes()), None);
        }
    }
}
