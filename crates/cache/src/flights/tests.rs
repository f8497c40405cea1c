//! Flights step by step, beside a plain model, and from many threads.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::Wake,
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::key::Seed;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn hash(key: u8) -> KeyHash {
    Seed::from_bytes([5; 8]).hash(&[key])
}

fn poll<O: Clone>(following: &mut Following<O>, woken: &Arc<Woken>) -> Poll<Landing<O>> {
    let waker = Waker::from(woken.clone());
    Pin::new(following).poll(&mut Context::from_waker(&waker))
}

fn lead<O>(joined: Joined<O>) -> Leader<O> {
    match joined {
        Joined::Lead(leader) => leader,
        _ => panic!("does not lead"),
    }
}

fn follow<O>(joined: Joined<O>) -> Following<O> {
    match joined {
        Joined::Follow(following) => following,
        _ => panic!("does not follow"),
    }
}

#[test]
fn a_thousand_wait_for_one_and_go_at_once() {
    let flights = Flights::<()>::new(1_000);
    let leader = lead(flights.join(hash(1), 0));
    let woken = Arc::new(Woken::default());
    let mut followers: Vec<_> = (0..1_000)
        .map(|_| follow(flights.join(hash(1), 0)))
        .collect();
    assert!(matches!(flights.join(hash(1), 0), Joined::Pass));
    assert!(
        followers
            .iter_mut()
            .all(|follower| poll(follower, &woken).is_pending())
    );
    assert!(leader.is_followed());
    leader.uncacheable(10);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1_000);
    for follower in &mut followers {
        assert!(matches!(poll(follower, &woken), Poll::Ready(Landing::Pass)));
    }
    // It is remembered, for some time.
    assert!(matches!(flights.join(hash(1), 9), Joined::Pass));
    lead(flights.join(hash(1), 10)).stored();
    lead(flights.join(hash(1), 10)).uncacheable(20);
    flights.forget_uncacheable(hash(1));
    drop(lead(flights.join(hash(1), 11)));
    assert_eq!(flights.count(), 0);
}

#[test]
fn who_leaves_hands_over_to_the_eldest() {
    let flights = Flights::<&str>::new(10);
    let leader = lead(flights.join(hash(1), 0));
    let woken = [0; 4].map(|_| Arc::new(Woken::default()));
    let mut first = follow(flights.join(hash(1), 0));
    let mut second = follow(flights.join(hash(1), 0));
    let mut third = follow(flights.join(hash(1), 0));
    assert!(poll(&mut second, &woken[1]).is_pending());
    assert!(poll(&mut third, &woken[2]).is_pending());
    // The first one was not polled yet, and is found to lead when it is.
    drop(leader);
    assert_eq!(flights.count(), 1);
    let Poll::Ready(Landing::Lead(leader)) = poll(&mut first, &woken[0]) else {
        panic!("does not lead");
    };
    // Chosen, and gone before it knows.
    drop(leader);
    assert_eq!(woken[1].0.load(Ordering::SeqCst), 1);
    drop(second);
    assert_eq!(woken[2].0.load(Ordering::SeqCst), 1);
    let mut fourth = follow(flights.join(hash(1), 0));
    assert!(poll(&mut fourth, &woken[3]).is_pending());
    let Poll::Ready(Landing::Lead(leader)) = poll(&mut third, &woken[2]) else {
        panic!("does not lead");
    };
    leader.failed("503");
    assert_eq!(woken[3].0.load(Ordering::SeqCst), 1);
    assert!(matches!(
        poll(&mut fourth, &woken[3]),
        Poll::Ready(Landing::Failed("503"))
    ));
    assert_eq!(flights.count(), 0);
}

#[test]
fn who_comes_and_leaves_takes_no_memory_and_what_is_remembered_is_limited() {
    let flights = Flights::<()>::new(10);
    let leader = lead(flights.join(hash(1), 0));
    for _ in 0..10_000 {
        drop(follow(flights.join(hash(1), 0)));
    }
    assert!(leader.flight.state().waiting.len() < 100);
    assert!(!leader.is_followed());
    drop(leader);
    let seed = Seed::from_bytes([5; 8]);
    for number in 0..100_000_u32 {
        lead(flights.join(seed.hash(&number.to_le_bytes()), 0)).uncacheable(u64::MAX);
    }
    let remembered: usize = flights
        .shards
        .iter()
        .map(|shard| lock(shard).uncacheable.until.len())
        .sum();
    assert_eq!(remembered, SHARDS * MOST_UNCACHEABLE);
    assert_eq!(flights.count(), 0);
    assert!(size_of::<Following<()>>() <= 24);
}

#[derive(Debug, Clone)]
enum Step {
    Join(u8),
    Poll(usize),
    Leave(usize),
    End(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8).prop_map(Step::Join),
        3 => any::<usize>().prop_map(Step::Poll),
        2 => any::<usize>().prop_map(Step::Leave),
        2 => (any::<usize>(), 0..4_u8).prop_map(|(who, how)| Step::End(who, how)),
    ]
}

proptest! {
    /// As long as somebody waits for a key, somebody leads it or is to lead it, and never two do.
    #[test]
    fn nobody_waits_for_nobody(steps in prop::collection::vec(step(), 0..120)) {
        let flights = Flights::<u8>::new(5);
        let woken = Arc::new(Woken::default());
        let mut leaders: Vec<(u8, Leader<u8>)> = Vec::new();
        let mut followers: Vec<(u8, Following<u8>)> = Vec::new();
        for step in steps {
            match step {
                Step::Join(key) => match flights.join(hash(key), 0) {
                    Joined::Lead(leader) => {
                        prop_assert!(leaders.iter().all(|(own, _)| *own != key));
                        leaders.push((key, leader));
                    }
                    Joined::Follow(following) => followers.push((key, following)),
                    Joined::Pass => prop_assert_eq!(followers.iter().filter(|(own, _)| *own == key).count() >= 5, true),
                },
                Step::Poll(who) if !followers.is_empty() => {
                    let (key, mut following) = followers.remove(who % followers.len());
                    match poll(&mut following, &woken) {
                        Poll::Pending => followers.push((key, following)),
                        Poll::Ready(Landing::Lead(leader)) => {
                            prop_assert!(leaders.iter().all(|(own, _)| *own != key));
                            leaders.push((key, leader));
                        }
                        Poll::Ready(_) => {}
                    }
                }
                Step::Leave(who) if !followers.is_empty() => drop(followers.remove(who % followers.len())),
                Step::End(who, how) if !leaders.is_empty() => {
                    let (_, leader) = leaders.remove(who % leaders.len());
                    match how {
                        0 => leader.stored(),
                        1 => leader.uncacheable(0),
                        2 => leader.failed(7),
                        _ => drop(leader),
                    }
                }
                _ => {}
            }
            // In the end all learn something.
            for key in 0..3 {
                let is_led = leaders.iter().any(|(own, _)| *own == key);
                for (_, following) in followers.iter().filter(|(own, _)| *own == key) {
                    let state = following.flight.state();
                    prop_assert!(is_led || state.heir.is_some() || state.end.is_some());
                }
            }
        }
        drop(leaders);
        while !followers.is_empty() {
            let before = followers.len();
            followers.retain_mut(|(_, following)| poll(following, &woken).is_pending());
            prop_assert!(followers.len() < before);
        }
        prop_assert_eq!(flights.count(), 0);
    }
}

/// Many threads with a future each, of which some leave at any moment: nobody is forgotten, and one leads at a time.
#[test]
fn threads_race() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let flights = Flights::<()>::new(1_000);
    let leading = Arc::new(AtomicUsize::new(0));
    let (done, ended) = mpsc::channel();
    for number in 0..8_u32 {
        let (flights, leading, done) = (flights.clone(), leading.clone(), done.clone());
        thread::spawn(move || {
            let run = |leader: Leader<()>, round: u32| {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                if round.is_multiple_of(3) {
                    thread::yield_now();
                }
                leading.fetch_sub(1, Ordering::SeqCst);
                match (round + number) % 4 {
                    0 => leader.stored(),
                    1 => leader.uncacheable(0),
                    2 => leader.failed(()),
                    _ => drop(leader),
                }
            };
            for round in 0..2_000_u32 {
                match flights.join(hash(1), 0) {
                    Joined::Lead(leader) => run(leader, round),
                    Joined::Pass => {}
                    Joined::Follow(mut following) => {
                        let waker = Waker::from(Arc::new(Unpark(thread::current())));
                        let mut left = round % 5;
                        loop {
                            match Pin::new(&mut following).poll(&mut Context::from_waker(&waker)) {
                                Poll::Ready(Landing::Lead(leader)) => break run(leader, round),
                                Poll::Ready(_) => break,
                                Poll::Pending if left == 1 => break,
                                Poll::Pending => thread::park(),
                            }
                            left = left.saturating_sub(1);
                        }
                    }
                }
            }
            done.send(()).unwrap();
        });
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..8 {
        let left = deadline.saturating_duration_since(Instant::now());
        ended.recv_timeout(left).expect("a thread waits for nobody");
    }
    assert_eq!(flights.count(), 0);
}
