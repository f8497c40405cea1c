//! Equal questions at the same time.

use tokio::task::JoinHandle;

use super::*;

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

impl World {
    fn follow(&self, path: &str, headers: Headers<'_>) -> Following {
        match self.look(Method::GET, path, headers) {
            Lookup::Follow(following) => following,
            Lookup::Hit(..) => panic!("{path} is kept"),
            Lookup::Ask(_) => panic!("{path} is not waited for"),
            Lookup::Failed(_) => panic!("{path} has failed"),
        }
    }

    /// Waits in a task of its own.
    fn wait(&self, path: &str) -> JoinHandle<Lookup> {
        let following = self.follow(path, &[]);
        let now = self.now();
        tokio::spawn(async move { following.wait(NEVER, || now).await.expect("no deadline") })
    }
}

/// The result of a call that waited.
async fn end(waiting: JoinHandle<Lookup>) -> Result<Got, Asking> {
    let look = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    match look.expect("an end of the wait").unwrap() {
        Lookup::Hit(answer, how) => Ok(read(*answer, how).await),
        Lookup::Ask(asking) => Err(asking),
        Lookup::Follow(_) => panic!("it waits on"),
        Lookup::Failed(fault) => panic!("{fault:?}"),
    }
}

#[tokio::test]
async fn one_asks_and_all_get_it() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let waiting: Vec<_> = (0..100).map(|_| world.wait("/")).collect();
    let (feed, origin) = fed(&[FRESH], None);
    let (mut answer, how) = leading.answered(origin, world.now());
    // The caller that asked the origin does not wait for the end.
    feed.send(data("one, ")).unwrap();
    assert_eq!(next(answer.body_mut()).await, Some(Ok("one, ".into())));
    let late = world.wait("/");
    feed.send(data("two")).unwrap();
    drop(feed);
    assert_eq!(read(answer, how).await.body, "two");
    for waiting in waiting.into_iter().chain([late]) {
        assert_eq!(
            end(waiting).await.ok(),
            Some(got(200, "one, two", CacheUse::Joined))
        );
    }
    assert_eq!(world.holds().1, 1);
}

#[tokio::test]
async fn those_who_ask_for_something_else_do_not_wait() {
    let world = world();
    let _leading = world.ask(Method::GET, "/", &[]);
    for asks in [
        ("accept-language", "de"),
        ("authorization", "x"),
        ("cache-control", "no-cache"),
        ("range", "bytes=0-1"),
    ] {
        world.ask(Method::GET, "/", &[asks]);
    }
    world.ask(Method::HEAD, "/", &[]);
    world.ask(Method::GET, "/other", &[]);
    world.follow("/", &[("user-agent", "another")]);
}

#[tokio::test]
async fn what_an_answer_was_seen_to_vary_by_is_waited_for_apart() {
    let world = world();
    let headers = [
        ("cache-control", "max-age=1"),
        ("vary", "x-tenant"),
        ("etag", "\"1\""),
    ];
    world
        .fetch("/", &[("x-tenant", "1")], answer(200, &headers, "one"))
        .await;
    world.pass(2);
    let _leading = world.ask(Method::GET, "/", &[("x-tenant", "1")]);
    let _another = world.ask(Method::GET, "/", &[("x-tenant", "2")]);
    world.follow("/", &[("x-tenant", "1")]);
    world.follow("/", &[("x-tenant", "2")]);
}

#[tokio::test]
async fn an_answer_for_nobody_else_is_not_waited_for() {
    let world = world();
    for headers in [
        &[("cache-control", "no-store")][..],
        &[],
        &[("cache-control", "max-age=0"), ("etag", "\"1\"")],
    ] {
        let path = format!("/{}", headers.len());
        let leading = world.ask(Method::GET, &path, &[]);
        let waiting = world.wait(&path);
        let (_feed, origin) = fed(headers, None);
        let (_reading, _) = leading.answered(origin, world.now());
        // The waiting call has ended although no byte of the body has arrived.
        assert!(end(waiting).await.is_err(), "{headers:?}");
    }
    // From now on calls do not wait for the head either, and each sends its own conditions.
    let _one = world.ask(Method::GET, "/1", &[]);
    let mut another = world.ask(Method::GET, "/1", &[("if-none-match", "\"1\"")]);
    let mut headers = map(&[("if-none-match", "\"1\"")]);
    another.prepare(&mut headers);
    assert_eq!(headers, map(&[("if-none-match", "\"1\"")]));
    let (answer, how) = another.answered(answer(304, &[("etag", "\"1\"")], ""), world.now());
    assert_eq!(read(answer, how).await, got(304, "", CacheUse::Miss));
    world.pass(61);
    let _leading = world.ask(Method::GET, "/1", &[]);
    world.follow("/1", &[]);
}

#[tokio::test]
async fn when_the_leader_leaves_one_of_the_others_leads() {
    let world = world();
    let mut leading = world.ask(Method::GET, "/", &[]);
    let mut waiting: Vec<_> = (0..20).map(|_| world.wait("/")).collect();
    for _ in 0..3 {
        drop(leading);
        let mut asking = Vec::new();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let (done, rest) = waiting.into_iter().partition(JoinHandle::is_finished);
            waiting = rest;
            asking.extend::<Vec<JoinHandle<Lookup>>>(done);
        }
        assert_eq!(asking.len(), 1);
        leading = end(asking.remove(0)).await.expect_err("it leads");
    }
    let (answer, how) = leading.answered(answer(200, &[FRESH], "x"), world.now());
    assert_eq!(read(answer, how).await.body, "x");
    assert_eq!(waiting.len(), 17);
    for waiting in waiting {
        assert_eq!(
            end(waiting).await.ok(),
            Some(got(200, "x", CacheUse::Joined))
        );
    }
}

#[tokio::test]
async fn whom_everybody_leaves_goes_alone() {
    let world = world();
    let mut leading = world.ask(Method::GET, "/", &[]);
    let following = world.wait("/");
    for _ in 0..10 {
        drop(leading);
        let next = world.look(Method::GET, "/", &[]);
        tokio::task::yield_now().await;
        match next {
            Lookup::Ask(asking) => leading = asking,
            _ => break,
        }
        if following.is_finished() {
            break;
        }
    }
    assert!(end(following).await.is_err());
}

#[tokio::test]
async fn when_its_caller_leaves_within_the_body_it_is_read_for_the_others() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let waiting = world.wait("/");
    let (feed, origin) = fed(&[FRESH], Some(6));
    let (answer, _) = leading.answered(origin, world.now());
    feed.send(data("abc")).unwrap();
    world.settle().await;
    drop(answer);
    world.settle().await;
    feed.send(data("def")).unwrap();
    assert_eq!(
        end(waiting).await.ok(),
        Some(got(200, "abcdef", CacheUse::Joined))
    );
}

#[tokio::test]
async fn when_nobody_is_left_the_origin_is_left_too() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let (feed, origin) = fed(&[FRESH], Some(6));
    let (answer, _) = leading.answered(origin, world.now());
    feed.send(data("abc")).unwrap();
    world.settle().await;
    drop(answer);
    let closed = tokio::time::timeout(Duration::from_secs(30), feed.closed());
    closed.await.expect("nobody reads any more");
    world.settle().await;
    assert_eq!(world.holds(), (0, 0));
    world.ask(Method::GET, "/", &[]);
}

#[tokio::test]
async fn half_an_answer_is_kept_for_nobody() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let waiting = world.wait("/");
    let (feed, origin) = fed(&[FRESH], Some(6));
    let (answer, _) = leading.answered(origin, world.now());
    feed.send(data("abc")).unwrap();
    feed.send(Err(super::super::super::body::BodyError(Kind::Terminated)))
        .unwrap();
    assert_eq!(all(answer.into_body()).await, Err(Kind::Terminated));
    assert!(end(waiting).await.is_err());
    assert_eq!(world.holds(), (0, 0));
}

#[tokio::test]
async fn when_the_origin_fails_all_get_what_is_stale() {
    let mut world = world();
    world.stale_if_error = Duration::from_secs(600);
    world.fetch("/", &[], answer(200, &[FRESH], "old")).await;
    world.pass(61);
    let leading = world.ask(Method::GET, "/", &[]);
    let waiting: Vec<_> = (0..5).map(|_| world.wait("/")).collect();
    let fault = Fault::unsent(Kind::ConnectTimeout, "nobody there");
    assert!(leading.failed(fault, world.now()).is_ok());
    for waiting in waiting {
        assert_eq!(
            end(waiting).await.ok(),
            Some(got(200, "old", CacheUse::Stale))
        );
    }
}

#[tokio::test]
async fn when_the_origin_cannot_be_asked_all_are_told_what_the_first_was_told() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let waiting: Vec<_> = (0..5).map(|_| world.wait("/")).collect();
    let fault = Fault::unsent(Kind::ConnectTimeout, "nobody there");
    assert!(leading.failed(fault, world.now()).is_err());
    for waiting in waiting {
        match waiting.await.unwrap() {
            Lookup::Failed(fault) => assert_eq!(fault.kind, Kind::ConnectTimeout),
            _ => panic!("it asks by itself"),
        }
    }
}

#[tokio::test]
async fn an_origin_that_answers_with_errors_is_not_asked_by_all_at_once() {
    let world = world();
    let mut leading = world.ask(Method::GET, "/", &[]);
    let mut waiting: Vec<_> = (0..50).map(|_| world.wait("/")).collect();
    for _ in 0..2 {
        drop(leading.answered(answer(503, &[("retry-after", "7")], "no"), world.now()));
        // One of them asks the origin. The others wait for that answer.
        world.settle().await;
        let at = waiting.iter().position(|waiting| waiting.is_finished());
        let next = waiting.remove(at.expect("one of them asks"));
        leading = end(next).await.expect_err("it asks");
        assert!(!waiting.iter().any(|waiting| waiting.is_finished()));
    }
    drop(leading.answered(answer(503, &[("retry-after", "7")], "no"), world.now()));
    assert_eq!(waiting.len(), 48);
    for waiting in waiting {
        let Lookup::Hit(answer, how) = waiting.await.unwrap() else {
            panic!("it asks by itself");
        };
        assert_eq!((answer.status().as_u16(), how), (503, CacheUse::Joined));
        assert_eq!(header(&answer, "retry-after"), "7");
    }
}

#[tokio::test]
async fn one_that_asks_after_an_error_may_have_more_luck() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    let mut waiting: Vec<_> = (0..10).map(|_| world.wait("/")).collect();
    drop(leading.answered(answer(503, &[], "no"), world.now()));
    world.settle().await;
    let at = waiting.iter().position(|waiting| waiting.is_finished());
    let next = waiting.remove(at.expect("one of them asks"));
    let next = end(next).await.expect_err("it asks");
    let (answer, how) = next.answered(answer(200, &[FRESH], "yes"), world.now());
    assert_eq!(read(answer, how).await.body, "yes");
    for waiting in waiting {
        assert_eq!(
            end(waiting).await.ok(),
            Some(got(200, "yes", CacheUse::Joined))
        );
    }
}

#[tokio::test]
async fn nobody_waits_past_its_deadline() {
    let world = world();
    let _leading = world.ask(Method::GET, "/", &[]);
    let following = world.follow("/", &[]);
    let deadline = weir_observe::clock::deadline(Duration::from_millis(20));
    let now = world.now();
    assert!(following.wait(deadline, || now).await.is_none());
}

#[tokio::test]
async fn a_validation_is_shared_as_well() {
    let world = world();
    let headers = [FRESH, ("etag", "\"1\"")];
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    world.pass(61);
    let mut leading = world.ask(Method::GET, "/", &[]);
    leading.prepare(&mut HeaderMap::new());
    let waiting = world.wait("/");
    let (answer, how) = leading.answered(answer(304, &[], ""), world.now());
    assert_eq!(
        read(answer, how).await,
        got(200, "one", CacheUse::Revalidated)
    );
    assert_eq!(
        end(waiting).await.ok(),
        Some(got(200, "one", CacheUse::Joined))
    );
}

/// Many threads, callers that leave anywhere, and an origin that counts: at no time are two asked for the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_ask_once() {
    let world = Arc::new(world());
    let asked = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for number in 0..400_u64 {
        let (world, asked) = (world.clone(), asked.clone());
        callers.push(tokio::spawn(async move {
            let path = format!("/{}", number % 8);
            let mut look = world.look(Method::GET, &path, &[]);
            if let Lookup::Follow(following) = look {
                if number % 5 == 0 {
                    // Leaves while it waits.
                    let soon = weir_observe::clock::deadline(Duration::from_millis(1));
                    match following.wait(soon, || world.now()).await {
                        None => return,
                        Some(found) => look = found,
                    }
                } else {
                    look = following.wait(NEVER, || world.now()).await.expect("an end");
                }
            }
            match look {
                Lookup::Hit(answer, how) => assert_eq!(read(*answer, how).await.body, path),
                Lookup::Ask(asking) => {
                    if number % 3 == 0 {
                        // Leaves before there is an answer.
                        tokio::task::yield_now().await;
                        return;
                    }
                    asked.fetch_add(1, Relaxed);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let (answer, how) = asking.answered(answer(200, &[FRESH], &path), world.now());
                    assert_eq!(read(answer, how).await.body, path);
                }
                Lookup::Follow(_) => panic!("it waits on"),
                Lookup::Failed(fault) => panic!("{fault:?}"),
            }
        }));
    }
    for caller in callers {
        let end = tokio::time::timeout(Duration::from_secs(60), caller).await;
        end.expect("an end").expect("no panic");
    }
    world.cache.store().check();
    // A call that five leading calls have left asks the origin by itself, so a few more may ask.
    let asked = asked.load(Relaxed);
    assert!((8..=16).contains(&asked), "{asked}");
    assert_eq!(world.holds().1, 8);
}
