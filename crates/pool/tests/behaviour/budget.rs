//! What a budget of retries promises.

use weir_pool::{Failure, Micros, Retry, RetryBudget, Sent};

use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// A call that can be repeated without harm, any number of times.
const HARMLESS: Failure = Failure {
    idempotent: true,
    sent: Sent::Maybe,
    answered: false,
    attempts: 1,
    max_attempts: 3,
};

fn left(budget: &mut RetryBudget, now: u64) -> u64 {
    (0..).take_while(|_| budget.take(Micros(now))).count() as u64
}

#[test]
fn a_call_is_tried_again_if_it_may_be_and_there_is_a_retry_left() {
    let mut budget = RetryBudget::new(20, 100);
    let never = Failure {
        idempotent: false,
        ..HARMLESS
    };
    let enough = Failure {
        attempts: 3,
        ..HARMLESS
    };
    for failure in [never, enough] {
        assert_eq!(budget.may_retry(Micros(1), &failure), Retry::GiveUp);
    }
    assert_eq!(
        (budget.left(), budget.refused()),
        (10, 0),
        "nothing was taken"
    );
    for _ in 0..10 {
        assert_eq!(budget.may_retry(Micros(1), &HARMLESS), Retry::Again);
    }
    assert_eq!(budget.may_retry(Micros(1), &HARMLESS), Retry::GiveUp);
    assert_eq!((budget.retries(), budget.refused()), (10, 1));
}

#[test]
fn calls_put_in_their_percent_up_to_what_is_kept() {
    for (percent, calls, expected) in [
        (20, 0, 10),
        (20, 4, 10),
        (20, 5, 11),
        (20, 450, 100),
        (20, 10_000, 100),
        (100, 5, 15),
        (1, 199, 11),
        (1, 200, 12),
        (u32::MAX, 1, 100),
    ] {
        let mut budget = RetryBudget::new(percent, 100);
        for _ in 0..calls {
            budget.call(Micros(1));
        }
        assert_eq!(budget.calls(), calls);
        assert_eq!(budget.left(), expected, "{percent} % of {calls}");
        assert_eq!(left(&mut budget, 1), expected);
    }
}

#[test]
fn with_nothing_allowed_nothing_is_tried_again() {
    let mut budget = RetryBudget::new(0, 100);
    for second in 0..1_000 {
        budget.call(Micros(second * SECOND));
        assert_eq!(
            budget.may_retry(Micros(second * SECOND), &HARMLESS),
            Retry::GiveUp
        );
    }
    assert_eq!(budget.left(), 0);
}

#[test]
fn time_brings_back_the_floor_and_no_more() {
    let mut budget = RetryBudget::new(20, 5);
    budget.call(Micros(SECOND));
    assert_eq!(left(&mut budget, SECOND), 10, "most is not below the floor");
    assert_eq!(left(&mut budget, 10 * SECOND), 0);
    assert_eq!(left(&mut budget, 11 * SECOND), 1);
    assert_eq!(left(&mut budget, 25 * SECOND), 1);
    assert_eq!(left(&mut budget, 31 * SECOND), 1);
    assert_eq!(left(&mut budget, 1_000_000 * SECOND), 10);
    // While the floor gives retries, time adds nothing for later.
    let mut budget = RetryBudget::new(20, 100);
    budget.call(Micros(1_000 * SECOND));
    assert_eq!(left(&mut budget, 1_000 * SECOND), 10);
    assert_eq!(left(&mut budget, 1_009 * SECOND), 0);
    // Time that goes backwards counts as no time.
    assert_eq!(left(&mut budget, 1), 0);
    assert_eq!(left(&mut budget, 1_010 * SECOND), 1);
}

#[test]
fn in_a_long_outage_an_origin_is_called_by_so_many_percent_more_often() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let percent = 1 + random.below(50) as u32;
        let most = random.below(300);
        let mut budget = RetryBudget::new(percent, most as usize);
        let every = 1 + random.below(200_000);
        let (mut now, mut tries) = (1, 0_u64);
        // A time without failures, which fills the budget.
        for _ in 0..random.below(5_000) {
            now += random.around(every);
            budget.call(Micros(now));
        }
        let (began, before) = (now, budget.calls());
        for _ in 0..20_000 {
            now += random.around(every);
            budget.call(Micros(now));
            tries += 1;
            let mut failure = HARMLESS;
            while budget.may_retry(Micros(now), &failure) == Retry::Again {
                failure.attempts += 1;
                tries += 1;
            }
        }
        let calls = budget.calls() - before;
        let by_time = (now - began) / RetryBudget::REFILL.0 + 1;
        let bound = calls * u64::from(percent) / 100 + most.max(10) + by_time;
        let retries = tries - calls;
        assert!(
            retries <= bound,
            "seed {seed}: {retries} of {calls} calls, {percent} %"
        );
        assert!(
            retries >= calls * u64::from(percent) / 100 - 1,
            "seed {seed}: they are used"
        );
    }
}
