//! Learns how many calls an origin takes on one HTTP/2 connection.

/// How many calls an origin takes on one HTTP/2 connection before it sends GOAWAY (nginx: `keepalive_requests`). The
/// origin does not announce this number: calls beyond it are refused and repeated. If two connections in a row ended
/// after the same number of calls, the next ones get only that many.
#[derive(Debug, Default)]
pub(super) struct KeepaliveRequests {
    /// How many calls the last connection had taken that refused others.
    last: Option<usize>,
    /// The limit that is used, and until when ([`clock::now`]): the origin's configuration may change.
    kept_to: Option<(usize, u64)>,
}

impl KeepaliveRequests {
    /// How many calls a connection may get.
    pub(super) fn at(&self, now: u64) -> usize {
        match self.kept_to {
            Some((most, until)) if now < until => most,
            _ => usize::MAX,
        }
    }

    /// A connection has ended after this many calls, and has refused others.
    pub(super) fn learn(&mut self, taken: usize, now: u64) {
        // A connection that took no call at all says nothing about the next one.
        if taken > 0 && self.last == Some(taken) {
            self.kept_to = Some((taken, now.saturating_add(QUOTA_FOR)));
        }
        self.last = Some(taken);
    }
}

/// For how long a learned limit is used, µs.
const QUOTA_FOR: u64 = 600 * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_connections_agree_on_is_kept_to_for_a_while() {
        let mut keepalive_requests = KeepaliveRequests::default();
        keepalive_requests.learn(20, 0);
        assert_eq!(
            keepalive_requests.at(0),
            usize::MAX,
            "one may have ended for another reason"
        );
        keepalive_requests.learn(20, 1);
        assert_eq!(
            (keepalive_requests.at(2), keepalive_requests.at(QUOTA_FOR)),
            (20, 20)
        );
        assert_eq!(keepalive_requests.at(QUOTA_FOR + 1), usize::MAX);
    }

    #[test]
    fn connections_that_differ_teach_nothing() {
        let mut keepalive_requests = KeepaliveRequests::default();
        for taken in [3, 5, 0, 0, 7] {
            keepalive_requests.learn(taken, 0);
            assert_eq!(keepalive_requests.at(0), usize::MAX);
        }
    }
}
