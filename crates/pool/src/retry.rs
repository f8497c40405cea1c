//! May a request whose worker failed run again?

/// What is known of a request when its worker failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its method promises that running twice is running once: GET, HEAD, OPTIONS, TRACE, PUT, DELETE
    /// (RFC 9110 §9.2.2), unless configured otherwise.
    pub idempotent: bool,
    /// What the worker can have seen of it.
    pub sent: Sent,
    /// Something of an answer was read from the worker, be it one byte.
    pub answered: bool,
    /// How often it was given to a worker so far, the failed time included: at least 1.
    pub attempts: u32,
    /// How often it may be given to a worker in all; 1: never again.
    pub max_attempts: u32,
}

/// What a worker can have seen of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No byte of it was accepted by the kernel: the connection was refused, or was found closed before the write.
    Nothing,
    /// Some of it was written, so that the script can have started.
    Maybe,
}

/// The verdict of [`may_retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Hand it to [`crate::Pool::readmit`].
    Again,
    /// Answer with the failure.
    GiveUp,
}

/// A request is run again only if no worker can have seen it, or if it is idempotent and nothing was answered yet;
/// and never more often than `max_attempts`.
pub fn may_retry(failure: &Failure) -> Retry {
    let unseen = failure.sent == Sent::Nothing;
    let harmless = unseen || failure.idempotent;
    if harmless && !failure.answered && failure.attempts < failure.max_attempts {
        Retry::Again
    } else {
        Retry::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_its_verdict() {
        use Retry::{Again, GiveUp};
        use Sent::{Maybe, Nothing};
        for (idempotent, sent, answered, attempts, expected) in [
            (false, Nothing, false, 1, Again),
            (false, Nothing, false, 2, GiveUp),
            (false, Nothing, true, 1, GiveUp),
            (false, Nothing, true, 2, GiveUp),
            (false, Maybe, false, 1, GiveUp),
            (false, Maybe, false, 2, GiveUp),
            (false, Maybe, true, 1, GiveUp),
            (false, Maybe, true, 2, GiveUp),
            (true, Nothing, false, 1, Again),
            (true, Nothing, false, 2, GiveUp),
            (true, Nothing, true, 1, GiveUp),
            (true, Nothing, true, 2, GiveUp),
            (true, Maybe, false, 1, Again),
            (true, Maybe, false, 2, GiveUp),
            (true, Maybe, true, 1, GiveUp),
            (true, Maybe, true, 2, GiveUp),
        ] {
            let failure = Failure {
                idempotent,
                sent,
                answered,
                attempts,
                max_attempts: 2,
            };
            assert_eq!(may_retry(&failure), expected, "{failure:?}");
        }
    }

    #[test]
    fn no_retry_at_all_where_one_attempt_is_allowed() {
        for max_attempts in [0, 1] {
            let failure = Failure {
                idempotent: true,
                sent: Sent::Nothing,
                answered: false,
                attempts: 1,
                max_attempts,
            };
            assert_eq!(may_retry(&failure), Retry::GiveUp);
        }
    }
}
