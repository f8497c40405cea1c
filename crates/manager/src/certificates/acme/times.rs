//! When orders are made, and how long they may take.

use std::time::{Duration, Instant};

/// How long it takes at least until a certificate of this life (seconds) may be replaced, after so many that were replaced early. It limits
/// what any mistake about the time can cost: five orders a week for the same names, which authorities allow.
pub(super) fn rest(life: i64, early: u32) -> i64 {
    let most = (life / 3).max(1);
    FIRST_REST.saturating_mul(1 << early.min(16)).min(most)
}

/// When to look at a certificate again: when it must be renewed, or soon. `at`: seconds since 1970.
pub(super) fn next_look(renew_at: i64, at: i64, now: Instant) -> Instant {
    let left = renew_at - at;
    let left = Duration::from_secs(left.max(1).unsigned_abs());
    now + left.min(LOOK_EVERY)
}

/// The pause after so many failures. Authorities limit how often a name may be refused (five times an hour at Let's Encrypt), and
/// less how often they are asked.
pub(super) fn pause(failures: u32, is_refused: bool) -> Duration {
    let first = match is_refused {
        true => REFUSED,
        false => SHORT,
    };
    let pause = first * 2_u32.saturating_pow(failures.min(16));
    pause.min(LONGEST)
}

/// See [`rest`]; seconds.
const FIRST_REST: i64 = 6 * 3600;

/// How often it is looked whether a certificate must be renewed.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often an authority is asked when to renew, if it says nothing else.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The same, at least.
pub(super) const ASK_AT_LEAST: Duration = Duration::from_secs(60);

/// How long an order may take, without the time for TXT records.
pub(super) const ORDER_LIMIT: Duration = Duration::from_secs(180);

/// The process for certificates has given the order up for so long.
pub(super) const SLACK: Duration = Duration::from_secs(60);

/// The lock of a node that was killed ends after this time.
pub(super) const LOCK_LIFE: Duration = Duration::from_secs(30);

/// How often a node renews its locks.
pub(super) const LOCK_RENEWAL: Duration = Duration::from_secs(5);

/// Orders of this node that are under way at once.
pub(super) const MOST_ORDERS: usize = 20;

/// After this time it is looked again what another node does with an order.
pub(super) const AGAIN: Duration = Duration::from_secs(2);

/// The authority may refuse a certificate so often
pub(super) const MOST_REFUSED: usize = 4;

/// in this time, even if weir is restarted or reloaded (seconds). Let's Encrypt allows five times an hour.
pub(super) const REFUSED_SPAN: i64 = 3600;

/// The pause after an authority was not reached for the first time, and before a look at what another node does.
pub(super) const SHORT: Duration = Duration::from_secs(5);

/// The pause after an authority has said no for the first time.
pub(super) const REFUSED: Duration = Duration::from_secs(600);

/// The longest pause.
pub(super) const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// The pause between two starts of the process.
pub(super) const RESTART: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_are_ordered_more_than_five_times_a_week_whatever_the_reason() {
        let (mut at, mut orders) = (0, 0);
        for early in 0.. {
            orders += 1;
            at += rest(90 * 86_400, early);
            if at > 7 * 86_400 {
                break;
            }
        }
        assert_eq!(orders, 5);
        assert_eq!(rest(90 * 86_400, 40), 30 * 86_400);
        // Certificates that live for a minute are renewed in time.
        assert_eq!(rest(60, 3), 20);
        assert_eq!(rest(0, 0), 1);
    }

    #[test]
    fn pauses_grow_and_stay_below_the_limits_of_authorities() {
        let seconds = |failures, refused| pause(failures, refused).as_secs();
        assert_eq!([0, 1, 2].map(|n| seconds(n, false)), [5, 10, 20]);
        assert_eq!(seconds(40, false), 6 * 3600);
        assert_eq!(seconds(40, true), 6 * 3600);
        // Fewer than five refusals in an hour.
        let mut at = 0;
        let refusals = (0..).take_while(|failures| {
            at += seconds(*failures, true);
            at < 3600
        });
        assert!(refusals.count() < 4);
    }
}
