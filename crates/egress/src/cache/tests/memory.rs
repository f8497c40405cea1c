//! How much is kept.

use super::*;

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn small(size: u64, max_object: u64) -> World {
    World {
        cache: Cache::new(size, max_object),
        ..world()
    }
}

#[tokio::test]
async fn what_was_not_used_for_the_longest_time_goes_first() {
    let world = small(10_000, 5000);
    let body = "x".repeat(2000);
    for path in ["/a", "/b", "/a-is-used", "/c"] {
        match path {
            "/a-is-used" => assert!(world.kept("/a", &[]).is_some()),
            path => {
                world.fetch(path, &[], answer(200, &[FRESH], &body)).await;
            }
        }
    }
    assert!(world.kept("/a", &[]).is_some() && world.kept("/c", &[]).is_some());
    assert!(world.kept("/b", &[]).is_none());
    assert_eq!(world.holds().1, 2);
}

#[tokio::test]
async fn what_is_too_long_is_passed_on_and_not_kept() {
    let world = small(1 << 20, 5000);
    let long = "x".repeat(5001);
    // By its length.
    let passed = world.fetch("/", &[], answer(200, &[FRESH], &long)).await;
    assert_eq!(passed.body, long);
    assert!(world.kept("/", &[]).is_none());
    // By what comes.
    let (feed, origin) = fed(&[FRESH], None);
    let (mut answer, how) = world
        .ask(Method::GET, "/", &[])
        .answered(origin, world.now());
    for _ in 0..6 {
        feed.send(data(&"x".repeat(1000))).unwrap();
    }
    world.settle().await;
    // The bytes that were read are there. Further bytes are read only when the caller reads.
    assert_eq!(next(answer.body_mut()).await.unwrap().unwrap().len(), 1000);
    feed.send(data("end")).unwrap();
    drop(feed);
    assert_eq!(read(answer, how).await.body.len(), 5003);
    world.settle().await;
    assert!(world.kept("/", &[]).is_none());
    assert_eq!(world.holds().1, 0);
}

#[tokio::test]
async fn those_that_wait_for_what_is_too_long_go_alone() {
    let world = small(1 << 20, 5000);
    let leading = world.ask(Method::GET, "/", &[]);
    let Lookup::Follow(following) = world.look(Method::GET, "/", &[]) else {
        panic!("nobody is waited for");
    };
    let (feed, origin) = fed(&[FRESH], None);
    let (_answer, _) = leading.answered(origin, world.now());
    let now = world.now();
    let waiting = tokio::spawn(async move { following.wait(NEVER, || now).await });
    feed.send(data(&"x".repeat(6000))).unwrap();
    let found = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    let found = found.expect("an end of the wait").unwrap();
    assert!(matches!(found, Some(Lookup::Ask(_))));
}

#[tokio::test]
async fn what_is_being_read_takes_part_in_the_bound() {
    let world = small(10_000, 8000);
    let (_first, origin) = fed(&[FRESH], Some(8000));
    let (_reading, _) = world
        .ask(Method::GET, "/a", &[])
        .answered(origin, world.now());
    assert!(world.holds().0 > 8000);
    // There is no room for a second answer, so it is passed on and not stored.
    let second = world
        .fetch("/b", &[], answer(200, &[FRESH], &"x".repeat(8000)))
        .await;
    assert_eq!(second.body.len(), 8000);
    assert!(world.kept("/b", &[]).is_none());
    // The second answer's entry did not replace the first answer's.
    drop(_reading);
    world.settle().await;
    assert_eq!(world.holds().1, 0);
}

#[tokio::test]
async fn nothing_is_kept_in_no_memory() {
    let world = small(0, 0);
    for _ in 0..2 {
        let passed = world.fetch("/", &[], answer(200, &[FRESH], "x")).await;
        assert_eq!(passed, got(200, "x", CacheUse::Miss));
    }
    assert_eq!(world.holds(), (0, 0));
}

#[tokio::test]
async fn variants_are_only_so_many() {
    let world = world();
    for number in 0..40 {
        let asks = [("x-tenant", &*number.to_string())];
        let headers = [FRESH, ("vary", "x-tenant")];
        world.fetch("/", &asks, answer(200, &headers, "x")).await;
    }
    assert_eq!(world.holds().1, 16);
    assert!(world.kept("/", &[("x-tenant", "39")]).is_some());
    assert!(world.kept("/", &[("x-tenant", "0")]).is_none());
}

/// Seeded courses of everything that can happen: the books are right and the bound holds after every step.
#[tokio::test]
async fn whatever_happens_the_bound_holds() {
    for seed in 1..=20_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let world = small(40_000, 10_000);
        let mut feeds = Vec::new();
        let mut reading = Vec::new();
        for _ in 0..400 {
            let path = format!("/{}", below(12));
            let tenant = below(3).to_string();
            let asks = [("x-tenant", &*tenant)];
            match below(10) {
                0 => {
                    let post = world.ask(Method::POST, &path, &[]);
                    drop(post.answered(answer(200, &[], ""), world.now()));
                }
                1 => world.pass(below(40)),
                2 => drop(feeds.pop()),
                3 => drop(reading.pop()),
                _ => {
                    let Lookup::Ask(mut asking) = world.look(Method::GET, &path, &asks) else {
                        continue;
                    };
                    asking.prepare(&mut HeaderMap::new());
                    let length = below(14_000);
                    let mut headers = vec![FRESH, ("etag", "\"1\"")];
                    if below(2) == 0 {
                        headers.push(("vary", "x-tenant"));
                    }
                    if below(6) == 0 {
                        headers[0].1 = "no-store";
                    }
                    let (answer, _) = match below(4) {
                        0 => asking.answered(super::answer(304, &headers, ""), world.now()),
                        1 => asking.answered(super::answer(500, &headers, ""), world.now()),
                        _ => {
                            let known = below(2) == 0;
                            let (feed, origin) = fed(&headers, known.then_some(length));
                            for at in (0..length).step_by(1500) {
                                let piece = (length - at).min(1500) as usize;
                                let _ = feed.send(data(&"x".repeat(piece)));
                            }
                            if below(3) > 0 {
                                feeds.push(feed);
                            }
                            asking.answered(origin, world.now())
                        }
                    };
                    reading.push(answer);
                }
            }
            if below(3) == 0 {
                world.settle().await;
            }
            world.cache.store().check();
            assert!(world.holds().0 <= 40_000, "seed {seed}");
        }
        drop((feeds, reading));
        world.settle().await;
        world.cache.store().check();
    }
}

/// Otherwise an answer would be fresh for as long as the clock was set back, or be asked for again at once.
#[tokio::test]
async fn all_answers_are_forgotten_when_the_clock_was_set() {
    for set in [-86_400, -10, 10, 86_400] {
        let world = world();
        let begun = Instant::now();
        world.cache.see_clock(world.now(), begun);
        let kept = |path: &'static str| world.kept(path, &[]).is_some();
        world.fetch("/a", &[], answer(200, &[FRESH], "a")).await;
        let under_way = world.ask(Method::GET, "/b", &[]);
        // Both clocks advance by the same time.
        world.pass(20);
        let later = begun + Duration::from_secs(20);
        world.cache.see_clock(world.now(), later);
        assert!(kept("/a"));
        let jumped = match u64::try_from(set) {
            Ok(ahead) => world.now() + Duration::from_secs(ahead),
            Err(_) => world.now() - Duration::from_secs(-set as u64),
        };
        world.cache.see_clock(jumped, later);
        assert!(!kept("/a"), "{set}");
        // This question was sent before the clock jumped.
        let answered = under_way.answered(answer(200, &[FRESH], "b"), world.now());
        drop(answered);
        world.settle().await;
        assert!(!kept("/b"), "{set}");
        world.fetch("/a", &[], answer(200, &[FRESH], "a")).await;
        world.cache.see_clock(jumped, later);
        assert!(kept("/a"), "{set}: the next ones are kept again");
        world.cache.store().check();
    }
}
