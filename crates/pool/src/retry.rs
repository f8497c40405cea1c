//! Decides whether a request whose worker failed may run again.

/// What is known about a request when its worker failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its method is idempotent: GET, HEAD, OPTIONS, TRACE, PUT, DELETE (RFC 9110 §9.2.2), unless configured
    /// otherwise.
    pub idempotent: bool,
    /// What the worker may have seen of it.
    pub sent: Sent,
    /// At least one byte of an answer was read from the worker.
    pub answered: bool,
    /// How often it was given to a worker so far, including the failed time: at least 1.
    pub attempts: u32,
    /// Maximum number of times that it may be given to a worker; 1: no retry.
    pub max_attempts: u32,
}

/// What a worker may have seen of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The kernel accepted no byte of it: the connection was refused, or found closed before the write.
    Nothing,
    /// Some of it was written, so the script may have started.
    Maybe,
}

/// The decision of [`may_retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Pass it to [`crate::Pool::readmit`].
    Again,
    /// Answer with the failure.
    GiveUp,
}

/// A request runs again only if no worker can have seen it, or if it is idempotent and nothing was answered yet; and
/// at most `max_attempts` times.
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
