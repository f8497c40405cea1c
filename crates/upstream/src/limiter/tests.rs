use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    thread,
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};
use weir_observe::clock::NEVER;

use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn limiter(maxconn: usize, max_queue: usize, queue_timeout: Duration) -> Arc<Limiter> {
    let settings = HostSettings {
        maxconn,
        max_queue,
        queue_timeout,
        ..HostSettings::usual()
    };
    Limiter::new("https://api.test", &settings)
}

const LONG: Duration = Duration::from_secs(60);

type Asking<'l> = Pin<Box<dyn Future<Output = Result<Permit, Fault>> + Send + 'l>>;

fn asking(limiter: &Arc<Limiter>, client: u64) -> Asking<'_> {
    Box::pin(limiter.acquire(client, NEVER))
}

/// Some: it has ended.
fn poll(asking: &mut Asking<'_>) -> Option<Result<Permit, Fault>> {
    match asking
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn waits(limiter: &Arc<Limiter>, client: u64) -> Asking<'_> {
    let mut asking = asking(limiter, client);
    assert!(poll(&mut asking).is_none(), "{:?}", limiter.view());
    asking
}

#[track_caller]
fn lent(limiter: &Arc<Limiter>) -> Permit {
    let answer = poll(&mut asking(limiter, 0)).expect("at once");
    answer.expect("a place")
}

#[track_caller]
fn refused(answer: Option<Result<Permit, Fault>>) -> Fault {
    answer.expect("at once").expect_err("refused in the queue")
}

#[track_caller]
fn idle(limiter: &Arc<Limiter>) {
    let state = limiter.state();
    assert_eq!(state.pool.check(), Ok(()));
    assert!(state.pool.waiting.is_empty());
    assert_eq!(state.pool.free(), state.places as usize);
}

#[test]
fn as_many_as_maxconn_go_at_once_and_the_others_in_their_order() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limiter = limiter(2, 10, LONG);
    let first = lent(&limiter);
    assert_eq!(first.waited(), 0);
    let second = lent(&limiter);
    let (mut third, mut fourth) = (waits(&limiter, 0), waits(&limiter, 0));
    let view = limiter.view();
    assert_eq!((view.at_work, view.waiting, view.waited), (2, 2, 2));
    let came = clock::precise();
    while clock::precise() < came + 2_000 {
        thread::yield_now();
    }
    drop(second);
    assert!(poll(&mut fourth).is_none());
    let third = poll(&mut third).expect("it is next").expect("a place");
    assert!(third.waited() >= 2_000);
    drop((first, third));
    drop(poll(&mut fourth).expect("it is next"));
    idle(&limiter);
    assert!(limiter.view().wait_time >= 4_000);
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_again() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limiter = limiter(1, 1, LONG);
    let _first = lent(&limiter);
    let _second = waits(&limiter, 0);
    let fault = refused(poll(&mut asking(&limiter, 0)));
    assert_eq!(fault.kind, Kind::QueueFull);
    assert!((1..=60).contains(&fault.retry_after.expect("for callers")));
    assert_eq!(
        fault.message,
        "https://api.test: call refused in the queue: max_queue calls are already waiting; it waited 0.000 s; 1 of at most \
         1 are waiting now, 1 are running, maxconn is 1"
    );
    assert_eq!(limiter.view().queue_full, 1);
}

#[test]
fn who_waits_for_too_long_is_refused() {
    let runtime = runtime();
    let limiter = limiter(1, 10, Duration::from_millis(50));
    let _held = runtime
        .block_on(limiter.acquire(0, NEVER))
        .expect("a place");
    for _ in 0..3 {
        let came = clock::precise();
        let (one, other) = runtime
            .block_on(async { tokio::join!(limiter.acquire(0, NEVER), limiter.acquire(0, NEVER)) });
        assert!(clock::precise() >= came + 50_000);
        for answer in [one, other] {
            let fault = refused(Some(answer));
            assert_eq!(fault.kind, Kind::QueueTimeout);
            assert!(fault.retry_after.is_some());
        }
    }
    assert_eq!(limiter.view().queue_timeout, 6);
}

#[test]
fn a_call_of_its_own_time_is_refused_when_that_is_up() {
    let runtime = runtime();
    let limiter = limiter(1, 10, LONG);
    let fault = refused(Some(runtime.block_on(limiter.acquire(0, 1))));
    assert_eq!((fault.kind, fault.retry_after), (Kind::Deadline, None));
    let held = runtime
        .block_on(limiter.acquire(0, NEVER))
        .expect("a place");
    runtime.block_on(async {
        // Another call waits longer. So the task that looks must wake earlier than planned.
        let limiter = limiter.clone();
        let patient = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(0, NEVER).await }
        });
        while limiter.view().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let deadline = clock::deadline(Duration::from_millis(50));
        let fault = refused(Some(limiter.acquire(0, deadline).await));
        assert_eq!(fault.kind, Kind::Deadline);
        assert!(clock::precise() >= deadline);
        drop(held);
        drop(patient.await.expect("no panic").expect("a place"));
    });
    assert_eq!(limiter.view().deadline, 2);
    idle(&limiter);
}

#[test]
fn a_caller_that_leaves_is_out_of_the_queue() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limiter = limiter(1, 2, LONG);
    let held = lent(&limiter);
    let (left, mut stays) = (waits(&limiter, 0), waits(&limiter, 0));
    drop(left);
    let view = limiter.view();
    assert_eq!((view.waiting, view.left), (1, 1));
    drop(held);
    // This call leaves when it has a place but does not know it yet.
    let given = poll(&mut stays).expect("it is next").expect("a place");
    let (unaware, mut next) = (waits(&limiter, 0), waits(&limiter, 0));
    drop(given);
    drop(unaware);
    drop(poll(&mut next).expect("it is next").expect("a place"));
    idle(&limiter);
}

#[test]
fn a_place_that_is_handed_to_who_is_just_leaving_goes_to_the_next() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limiter = limiter(1, 200, LONG);
    let held = lent(&limiter);
    let _leaving: Vec<_> = (0..100).map(|_| waits(&limiter, 0)).collect();
    // The receivers are gone, as if each caller had left without having told the limiter yet.
    for waiting in limiter.state().pool.waiting.values_mut() {
        *waiting = oneshot::channel().0;
    }
    let mut stays = waits(&limiter, 0);
    drop(held);
    drop(poll(&mut stays).expect("it is next").expect("a place"));
    idle(&limiter);
}

#[test]
fn callers_take_turns() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let limiter = limiter(1, 10, LONG);
    let mut held = lent(&limiter);
    let mut queue: Vec<_> = [(7, 1), (7, 2), (7, 3), (9, 1)]
        .map(|name| (name, waits(&limiter, name.0)))
        .into();
    let mut order = Vec::new();
    while !queue.is_empty() {
        drop(held);
        let mut given = None;
        queue.retain_mut(|(name, asking)| match poll(asking) {
            Some(answer) => {
                order.push(*name);
                given = Some(answer.expect("a place"));
                false
            }
            None => true,
        });
        held = given.expect("somebody is next");
    }
    drop(held);
    assert_eq!(order, [(7, 1), (9, 1), (7, 2), (7, 3)]);
    idle(&limiter);
}

#[test]
fn places_come_when_they_are_needed() {
    let limiter = limiter(65_535, 10, LONG);
    for _ in 0..1_000 {
        drop(lent(&limiter));
    }
    assert_eq!(limiter.state().places, 1);
    let many: Vec<_> = (0..100).map(|_| lent(&limiter)).collect();
    assert_eq!(limiter.state().places, 100);
    assert_eq!(limiter.view().at_work, 100);
    drop(many);
    idle(&limiter);
}

#[test]
fn nothing_looks_after_the_queue_when_nobody_waits() {
    let runtime = runtime();
    let limiter = limiter(1, 10, Duration::from_millis(20));
    runtime.block_on(async {
        let held = limiter.acquire(0, NEVER).await.expect("a place");
        assert_eq!(Arc::strong_count(&limiter), 2);
        assert!(limiter.acquire(0, NEVER).await.is_err());
        drop(held);
        let gone = async {
            while Arc::strong_count(&limiter) > 1 {
                tokio::task::yield_now().await;
            }
        };
        let gone = clock::in_time(gone, clock::deadline(LONG)).await;
        gone.expect("it ends");
    });
    assert_eq!(limiter.state().pool.wakes_at(), NEVER);
}

#[test]
fn another_thread_looks_when_the_one_that_did_has_ended() {
    let limiter = limiter(1, 10, Duration::from_millis(20));
    let held = lent(&limiter);
    let ends = runtime();
    let left = {
        let _inside = ends.enter();
        waits(&limiter, 0)
    };
    drop(ends);
    drop(left);
    let fault = runtime().block_on(limiter.acquire(0, NEVER));
    assert_eq!(refused(Some(fault)).kind, Kind::QueueTimeout);
    drop(held);
}

#[test]
fn callers_that_leave_while_places_are_handed_on_lose_none() {
    const MAXCONN: usize = 3;
    let limiter = limiter(MAXCONN, 40, Duration::from_millis(3));
    let at_work = AtomicUsize::new(0);
    let ends: [AtomicUsize; 3] = Default::default();
    let [got, refused, left] = &ends;
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limiter, at_work) = (&limiter, &at_work);
            scope.spawn(move || {
                let work = async |task: u64| {
                    for turn in 0..60 {
                        let impatient = (task + turn).is_multiple_of(3);
                        let deadline = match turn % 5 {
                            0 => clock::deadline(Duration::from_millis(1)),
                            _ => NEVER,
                        };
                        let mut asking = pin!(limiter.acquire(1 + task % 4, deadline));
                        let answer = tokio::select! {
                            biased;
                            answer = asking.as_mut() => Some(answer),
                            () = pause(turn % 7), if impatient => None,
                        };
                        match answer {
                            Some(Ok(_permit)) => {
                                let others = at_work.fetch_add(1, SeqCst);
                                assert!(others < MAXCONN, "{others} others");
                                pause(turn % 3).await;
                                at_work.fetch_sub(1, SeqCst);
                                got.fetch_add(1, SeqCst);
                            }
                            Some(Err(fault)) => {
                                assert_ne!(fault.kind, Kind::Internal, "{fault:?}");
                                refused.fetch_add(1, SeqCst);
                            }
                            None => {
                                left.fetch_add(1, SeqCst);
                            }
                        }
                    }
                };
                let tasks = (0..25).map(|task| work(thread * 25 + task));
                let mut tasks: Vec<_> = tasks.map(Box::pin).collect();
                runtime().block_on(std::future::poll_fn(|cx| {
                    tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
                    match tasks.is_empty() {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                }));
            });
        }
    });
    let [got, refused, left] = ends.map(AtomicUsize::into_inner);
    assert_eq!(got + refused + left, 4 * 25 * 60);
    assert!(got > 0 && refused > 0 && left > 0, "{got} {refused} {left}");
    idle(&limiter);
    let view = limiter.view();
    assert_eq!((view.at_work, view.waiting), (0, 0));
    let all: Vec<_> = (0..MAXCONN).map(|_| lent(&limiter)).collect();
    drop(all);
}

/// Lets others work, for a moment of this length.
async fn pause(length: u64) {
    match length {
        6 => tokio::time::sleep(Duration::from_millis(1)).await,
        length => {
            for _ in 0..length {
                tokio::task::yield_now().await;
            }
        }
    }
}
