//! How many calls an origin takes over one HTTP/2 connection.

/// How many calls an origin takes over one HTTP/2 connection before it says GOAWAY (nginx: `keepalive_requests`). It is not
/// told beforehand: calls that come too late are refused, and made again. Where two connections in a row have ended after
/// the same number, the next ones are given no more.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// What the last connection that refused calls had taken.
    last: Option<usize>,
    /// What is kept to, and until when ([`clock::now`]): the origin may be told to take more.
    kept_to: Option<(usize, u64)>,
}

impl Quota {
    /// How many calls a connection is given.
    pub(super) fn at(&self, now: u64) -> usize {
        match self.kept_to {
            Some((most, until)) if now < until => most,
            _ => usize::MAX,
        }
    }

    /// A connection has ended that took so many, and refused others.
    pub(super) fn learn(&mut self, taken: usize, now: u64) {
        // One that took none at all tells nothing of how many the next one takes.
        if taken > 0 && self.last == Some(taken) {
            self.kept_to = Some((taken, now.saturating_add(QUOTA_FOR)));
        }
        self.last = Some(taken);
    }
}

/// How long is kept to what was learnt of the calls that an origin takes over one connection, µs.
const QUOTA_FOR: u64 = 600 * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_connections_agree_on_is_kept_to_for_a_while() {
        let mut quota = Quota::default();
        quota.learn(20, 0);
        assert_eq!(
            quota.at(0),
            usize::MAX,
            "one may have ended for another reason"
        );
        quota.learn(20, 1);
        assert_eq!((quota.at(2), quota.at(QUOTA_FOR)), (20, 20));
        assert_eq!(quota.at(QUOTA_FOR + 1), usize::MAX);
    }

    #[test]
    fn connections_that_differ_teach_nothing() {
        let mut quota = Quota::default();
        for taken in [3, 5, 0, 0, 7] {
            quota.learn(taken, 0);
            assert_eq!(quota.at(0), usize::MAX);
        }
    }
}
