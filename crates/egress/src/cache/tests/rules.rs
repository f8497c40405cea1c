//! Which responses may be cached, for how long, and for which callers.

use super::*;

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

#[tokio::test]
async fn what_is_fresh_is_answered_from_memory() {
    let world = world();
    let headers = &[FRESH, ("link", "<a>"), ("link", "<b>"), ("age", "5")];
    let first = world
        .fetch("/a?x=1", &[], answer(200, headers, "one"))
        .await;
    assert_eq!(first, got(200, "one", CacheUse::Miss));
    let date = world.ago(0);
    world.pass(54);
    let hit = world.kept("/a?x=1", &[]).expect("a hit");
    assert_eq!(header(&hit, "age"), "59");
    assert_eq!(header(&hit, "date"), date);
    assert_eq!(header(&hit, "content-length"), "3");
    assert_eq!(header(&hit, "cache-status"), "weir; hit; ttl=1");
    assert_eq!(hit.headers().get_all("link").iter().count(), 2);
    assert_eq!(read(hit, CacheUse::Hit).await.body, "one");
    let Lookup::Hit(head, CacheUse::Hit) = world.look(Method::HEAD, "/a?x=1", &[]) else {
        panic!("no hit for HEAD");
    };
    assert_eq!(header(&head, "content-length"), "3");
    assert!(head.body().is_end_stream());
    assert!(world.kept("/a?x=2", &[]).is_none());
    world.pass(1);
    assert!(world.kept("/a?x=1", &[]).is_none());
}

#[tokio::test]
async fn what_may_be_kept() {
    let past = world().ago(100);
    let future = httpdate::fmt_http_date(world().now() + Duration::from_secs(100));
    let kept: &[(u16, Headers<'_>)] = &[
        (200, &[FRESH]),
        (200, &[("cache-control", "Max-Age=\"60\"")]),
        (200, &[("cache-control", "s-maxage=60, max-age=0")]),
        (200, &[("expires", &future)]),
        (404, &[FRESH]),
        (301, &[FRESH]),
        (302, &[FRESH]),
        (204, &[FRESH]),
        (299, &[FRESH]),
        (200, &[FRESH, ("vary", "accept")]),
        (200, &[("cache-control", "private=\"x\", max-age=60")]),
        (
            200,
            &[("cache-control", "no-cache=\"set-cookie\", max-age=60")],
        ),
    ];
    for (status, headers) in kept {
        let world = world();
        world.fetch("/", &[], answer(*status, headers, "")).await;
        assert!(world.kept("/", &[]).is_some(), "{status} {headers:?}");
    }
    let passed: &[(u16, Headers<'_>)] = &[
        (200, &[]),
        (200, &[("cache-control", "public")]),
        (200, &[("last-modified", &past)]),
        (200, &[("cache-control", "max-age=60, no-store")]),
        (200, &[("cache-control", "max-age=60, NO-STORE")]),
        (200, &[("cache-control", "max-age=60, private")]),
        (200, &[("cache-control", "private=x, max-age=60")]),
        (200, &[("cache-control", "max-age=60, no-cache")]),
        (200, &[("cache-control", "max-age=60, private=\"x")]),
        (200, &[("cache-control", "max-age=0")]),
        (200, &[("cache-control", "max-age=-1")]),
        (200, &[("cache-control", "max-age=60"), ("age", "60")]),
        (200, &[("cache-control", "s-maxage=0, max-age=60")]),
        (200, &[("expires", &past)]),
        (200, &[("expires", "0")]),
        (200, &[FRESH, ("vary", "accept, *")]),
        (200, &[FRESH, ("vary", "acc ept")]),
        (200, &[FRESH, ("set-cookie", "a=b")]),
        (
            200,
            &[FRESH, ("pragma", "x"), ("content-range", "bytes 0-1/2")],
        ),
        (206, &[FRESH]),
        (304, &[FRESH]),
        (500, &[FRESH]),
        (503, &[FRESH]),
    ];
    for (status, headers) in passed {
        let world = world();
        world.fetch("/", &[], answer(*status, headers, "x")).await;
        assert!(world.kept("/", &[]).is_none(), "{status} {headers:?}");
    }
}

/// A carrier does not even ask for the body of a 204.
#[tokio::test]
async fn an_answer_without_a_body_is_kept_though_nobody_reads_it() {
    for status in [204, 301] {
        let world = world();
        let asking = world.ask(Method::GET, "/", &[]);
        let (passed, _) = asking.answered(answer(status, &[FRESH], ""), world.now());
        drop(passed);
        world.settle().await;
        assert!(world.kept("/", &[]).is_some(), "{status}");
    }
}

#[tokio::test]
async fn headers_that_are_for_one_caller_are_not_kept() {
    let world = world();
    let headers = [
        ("cache-control", "max-age=60, private=\"X-One, x-two\""),
        ("x-one", "1"),
        ("x-two", "2"),
        ("x-three", "3"),
    ];
    world.fetch("/", &[], answer(200, &headers, "all")).await;
    let hit = world.kept("/", &[]).expect("a hit");
    assert_eq!(header(&hit, "x-three"), "3");
    assert!(!hit.headers().contains_key("x-one") && !hit.headers().contains_key("x-two"));
}

#[tokio::test]
async fn answers_to_somebody_are_for_nobody_else() {
    for who in [
        ("authorization", "Bearer a"),
        ("cookie", "s=1"),
        ("x-api-key", "k"),
    ] {
        let world = world();
        world
            .fetch("/", &[who], answer(200, &[FRESH], "private"))
            .await;
        assert!(world.kept("/", &[]).is_none() && world.kept("/", &[who]).is_none());
        // Nor does a known caller get the answer of an unknown one.
        world
            .fetch("/", &[], answer(200, &[FRESH], "anybody"))
            .await;
        assert!(world.kept("/", &[]).is_some());
        world
            .fetch("/", &[who], answer(200, &[FRESH], "private"))
            .await;
        assert_eq!(world.kept_body("/", &[]).await.unwrap(), "anybody");
        for public in ["public, max-age=60", "s-maxage=60"] {
            let headers = [("cache-control", public)];
            world
                .fetch("/p", &[who], answer(200, &headers, "all"))
                .await;
            assert_eq!(world.kept_body("/p", &[]).await.unwrap(), "all");
            assert_eq!(world.kept_body("/p", &[who]).await.unwrap(), "all");
            world
                .cache
                .store()
                .forget(&Key::new("https://api.example", "/p"));
        }
        // Stricter than RFC 9111 §3.5.
        let headers = [("cache-control", "must-revalidate, max-age=60")];
        world.fetch("/m", &[who], answer(200, &headers, "")).await;
        assert!(world.kept("/m", &[who]).is_none());
    }
}

#[tokio::test]
async fn variants_are_kept_side_by_side() {
    let world = world();
    let vary = [FRESH, ("vary", "Accept-Language"), ("vary", "X-Tenant")];
    let (german, french) = (("accept-language", "de"), ("accept-language", "fr"));
    let tenant = ("x-tenant", "1");
    for (asks, body) in [
        (&[german][..], "Hallo"),
        (&[french], "Salut"),
        (&[french, tenant], "Salut, 1"),
    ] {
        world.fetch("/", asks, answer(200, &vary, body)).await;
    }
    for (asks, body) in [
        (&[german][..], "Hallo"),
        (&[french], "Salut"),
        (&[tenant, french], "Salut, 1"),
    ] {
        assert_eq!(world.kept_body("/", asks).await.unwrap(), body);
    }
    for asks in [&[][..], &[german, tenant], &[german, french]] {
        assert!(world.kept("/", asks).is_none());
    }
    let asking = world.ask(Method::GET, "/", &[("accept-language", "it")]);
    let (answer, _) = asking.answered(answer(200, &vary, "Ciao"), world.now());
    assert_eq!(
        header(&answer, "cache-status"),
        "weir; fwd=vary-miss; fwd-status=200; stored"
    );
}

#[tokio::test]
async fn what_is_stale_is_asked_for() {
    let world = world();
    let day = world.ago(86_400);
    let headers = [
        FRESH,
        ("etag", "\"1\""),
        ("last-modified", &day),
        ("x", "old"),
    ];
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    world.pass(60);
    let mut asking = world.ask(Method::GET, "/", &[]);
    let mut asked = map(&[("if-none-match", "\"caller's\""), ("accept", "x")]);
    asking.prepare(&mut asked);
    assert_eq!(asked["if-none-match"], "\"1\"");
    assert_eq!(asked["if-modified-since"], day);
    assert_eq!(asked["accept"], "x");
    let still = answer(
        304,
        &[("etag", "W/\"1\""), ("x", "new"), ("content-length", "9")],
        "",
    );
    let (answer, how) = asking.answered(still, world.now());
    assert_eq!(how, CacheUse::Revalidated);
    assert_eq!(header(&answer, "x"), "new");
    assert_eq!(header(&answer, "age"), "0");
    assert_eq!(
        header(&answer, "cache-status"),
        "weir; fwd=stale; fwd-status=304; ttl=60"
    );
    assert_eq!(
        read(answer, how).await,
        got(200, "one", CacheUse::Revalidated)
    );
    world.settle().await;
    world.pass(59);
    assert_eq!(world.kept_body("/", &[]).await.unwrap(), "one");
    world.pass(1);
    // Or it is another one by now.
    let another = super::answer(200, &headers, "two");
    assert_eq!(
        world.fetch("/", &[], another).await,
        got(200, "two", CacheUse::Miss)
    );
    assert_eq!(world.kept_body("/", &[]).await.unwrap(), "two");
}

#[tokio::test]
async fn an_answer_to_head_renews_or_outdates_what_is_kept() {
    let kept = [FRESH, ("etag", "\"1\""), ("x", "old")];
    for (status, says, body) in [
        (
            200,
            &[("etag", "\"1\""), ("x", "new"), FRESH][..],
            Some("new"),
        ),
        (200, &[("etag", "\"2\""), FRESH], None),
        (200, &[("content-length", "4"), FRESH], None),
        (
            200,
            &[("etag", "\"1\""), FRESH, ("set-cookie", "a=b")],
            None,
        ),
        (404, &[FRESH], None),
    ] {
        let world = world();
        world.fetch("/", &[], answer(200, &kept, "one")).await;
        world.pass(60);
        let asking = world.ask(Method::HEAD, "/", &[]);
        drop(asking.answered(answer(status, says, ""), world.now()));
        let hit = world.kept("/", &[]);
        let x = hit.as_ref().map(|hit| header(hit, "x"));
        assert_eq!(x, body, "{status} {says:?}");
        if let Some(hit) = hit {
            assert_eq!(read(hit, CacheUse::Hit).await.body, "one");
        }
        // Only another version makes the stored one useless.
        let is_left = world.holds().1 == 1;
        let is_other = says.iter().any(|(_, value)| ["\"2\"", "4"].contains(value));
        assert_eq!(is_left, !is_other, "{status} {says:?}");
    }
}

#[tokio::test]
async fn what_may_not_be_kept_any_more_goes() {
    let world = world();
    let headers = [FRESH, ("etag", "\"1\"")];
    for still in [
        &[("cache-control", "no-store")][..],
        &[("set-cookie", "a=b")],
    ] {
        world.fetch("/", &[], answer(200, &headers, "one")).await;
        world.pass(60);
        let got_one = world.fetch("/", &[], answer(304, still, "")).await;
        assert_eq!(got_one, got(200, "one", CacheUse::Revalidated), "{still:?}");
        assert!(world.kept("/", &[]).is_none(), "{still:?}");
    }
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    world.pass(60);
    world.fetch("/", &[], answer(404, &[], "gone")).await;
    assert_eq!(world.holds().1, 0);
}

#[tokio::test]
async fn what_the_caller_has_is_not_sent_again() {
    let world = world();
    let day = world.ago(86_400);
    let headers = [
        FRESH,
        ("etag", "W/\"1\""),
        ("last-modified", &day),
        ("content-type", "a/b"),
    ];
    // The whole answer is requested and stored, though this caller does not need it.
    let mut asking = world.ask(Method::GET, "/", &[("if-none-match", "\"0\", \"1\"")]);
    let mut asked = map(&[("if-none-match", "\"0\", \"1\"")]);
    asking.prepare(&mut asked);
    assert!(asked.is_empty());
    let (first, _) = asking.answered(answer(200, &headers, "one"), world.now());
    assert_eq!(first.status(), StatusCode::NOT_MODIFIED);
    world.settle().await;
    for had in [
        ("if-none-match", "\"1\""),
        ("if-none-match", "W/\"1\""),
        ("if-none-match", "*"),
        ("if-modified-since", &*day),
    ] {
        let hit = world.kept("/", &[had]).unwrap();
        assert_eq!(hit.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(&hit, "etag"), "W/\"1\"");
        assert!(!hit.headers().contains_key("content-type"));
        assert!(hit.body().is_end_stream());
    }
    let older = world.ago(86_401);
    for has_not in [
        &[("if-none-match", "\"2\"")][..],
        &[("if-none-match", "\"2\""), ("if-modified-since", &day)],
        &[("if-modified-since", &older)],
        &[("if-modified-since", "yesterday")],
    ] {
        assert_eq!(world.kept_body("/", has_not).await.unwrap(), "one");
    }
}

#[tokio::test]
async fn a_tag_with_a_comma_in_it_is_known_again() {
    let world = world();
    let headers = [FRESH, ("etag", "\"1,2\"")];
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    let had = [("if-none-match", "\"0\", W/\"1,2\"")];
    let hit = world.kept("/", &had).unwrap();
    assert_eq!(hit.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn callers_decide_how_old_it_may_be() {
    let world = world();
    let headers = [FRESH, ("etag", "\"1\"")];
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    world.pass(30);
    for (said, fits) in [
        ("no-cache", false),
        ("max-age=0", false),
        ("max-age=29", false),
        ("max-age=30", true),
        ("min-fresh=31", false),
        ("min-fresh=30", true),
        ("only-if-cached", true),
    ] {
        let hit = world.kept("/", &[("cache-control", said)]);
        assert_eq!(hit.is_some(), fits, "{said}");
    }
    assert!(world.kept("/", &[("pragma", "no-cache")]).is_none());
    let no_store = [("cache-control", "no-store")];
    assert!(world.kept("/", &no_store).is_none());
    let asking = world.ask(Method::GET, "/", &[("cache-control", "no-cache")]);
    let (answer, _) = asking.answered(answer(200, &headers, "two"), world.now());
    assert_eq!(
        header(&answer, "cache-status"),
        "weir; fwd=request; fwd-status=200; stored"
    );
    drop(answer);
    world.pass(60);
    assert!(
        world
            .kept("/", &[("cache-control", "max-stale=31")])
            .is_some()
    );
    assert!(
        world
            .kept("/", &[("cache-control", "max-stale=30")])
            .is_none()
    );
    let Lookup::Hit(none, CacheUse::Miss) =
        world.look(Method::GET, "/none", &[("cache-control", "only-if-cached")])
    else {
        panic!("a call was made");
    };
    assert_eq!(none.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn no_word_of_a_caller_makes_what_is_forbidden_stale_right() {
    for said in [
        "no-cache",
        "max-age=60, must-revalidate",
        "max-age=60, proxy-revalidate",
        "s-maxage=60",
    ] {
        let world = world();
        let headers = [("cache-control", said), ("etag", "\"1\"")];
        world.fetch("/", &[], answer(200, &headers, "one")).await;
        world.pass(61);
        assert!(
            world.kept("/", &[("cache-control", "max-stale")]).is_none(),
            "{said}"
        );
    }
}

fn fault(kind: Kind) -> Fault {
    Fault::unsent(kind, "the origin fails")
}

#[tokio::test]
async fn stale_answers_stand_in_for_an_origin_that_fails() {
    let cases: &[(&str, u64, Headers<'_>, bool)] = &[
        ("max-age=60", 0, &[], false),
        ("max-age=60", 30, &[], true),
        ("max-age=60", 20, &[], false),
        ("max-age=60, stale-if-error=21", 0, &[], true),
        ("max-age=60, stale-if-error=20", 0, &[], false),
        (
            "max-age=60",
            0,
            &[("cache-control", "stale-if-error=30")],
            true,
        ),
        ("max-age=60, must-revalidate", 30, &[], false),
        ("max-age=60, no-cache", 300, &[], false),
        (
            "max-age=60, proxy-revalidate, stale-if-error=90",
            30,
            &[],
            false,
        ),
        ("s-maxage=60", 30, &[], false),
        ("s-maxage=60, stale-if-error=30", 0, &[], true),
    ];
    for (said, seconds, asks, used) in cases {
        let mut world = world();
        world.stale_if_error = Duration::from_secs(*seconds);
        let headers = [("cache-control", *said), ("etag", "\"1\"")];
        world.fetch("/", &[], answer(200, &headers, "old")).await;
        world.pass(80);
        let failed = world
            .ask(Method::GET, "/", asks)
            .failed(fault(Kind::Refused), world.now());
        assert_eq!(failed.is_ok(), *used, "{said} {seconds} {asks:?}");
        let expected = match used {
            true => got(200, "old", CacheUse::Stale),
            false => got(503, "no", CacheUse::Miss),
        };
        assert_eq!(
            world.fetch("/", asks, answer(503, &[], "no")).await,
            expected
        );
        if let Ok((answer, how)) = failed {
            assert_eq!(
                header(&answer, "cache-status"),
                "weir; fwd=stale; ttl=-20; detail=stale_if_error"
            );
            assert_eq!(header(&answer, "age"), "80");
            assert_eq!(read(answer, how).await, expected);
        }
    }
}

#[tokio::test]
async fn nothing_stale_stands_in_for_other_faults() {
    let mut world = world();
    world.stale_if_error = Duration::from_secs(600);
    world.fetch("/", &[], answer(200, &[FRESH], "old")).await;
    world.pass(61);
    for (kind, excused) in [
        (Kind::BreakerOpen, true),
        (Kind::QueueFull, true),
        (Kind::FirstByteTimeout, true),
        (Kind::DnsError, true),
        (Kind::Deadline, false),
        (Kind::ForbiddenAddress, false),
        (Kind::BadBody, false),
    ] {
        let failed = world
            .ask(Method::GET, "/", &[])
            .failed(fault(kind), world.now());
        assert_eq!(failed.is_ok(), excused, "{kind:?}");
        // HEAD may get the stored answer too, but is sent without conditions.
        let failed = world
            .ask(Method::HEAD, "/", &[])
            .failed(fault(kind), world.now());
        assert_eq!(failed.is_ok(), excused, "{kind:?}");
    }
    let told = world.fetch("/", &[], answer(404, &[], "gone")).await;
    assert_eq!(told, got(404, "gone", CacheUse::Miss));
}

#[tokio::test]
async fn writes_make_what_is_kept_untrue() {
    let world = world();
    let keep = async || {
        for path in ["/a", "/b", "/c", "/d"] {
            world.fetch(path, &[], answer(200, &[FRESH], path)).await;
        }
    };
    keep().await;
    for (method, status) in [
        (Method::POST, 500),
        (Method::PUT, 404),
        (Method::OPTIONS, 200),
    ] {
        let (written, how) = world
            .ask(method, "/a", &[])
            .answered(answer(status, &[], ""), world.now());
        assert_eq!(
            (header(&written, "cache-status"), how),
            ("weir; fwd=method", CacheUse::None)
        );
    }
    assert!(world.kept("/a", &[]).is_some());
    let names = [
        ("location", "https://api.example/b"),
        ("content-location", "/c"),
    ];
    let post = world.ask(Method::POST, "/a", &[]);
    post.answered(answer(201, &names, ""), world.now());
    for path in ["/a", "/b", "/c"] {
        assert!(world.kept(path, &[]).is_none(), "{path}");
    }
    for elsewhere in [
        "https://other.example/d",
        "http://api.example/d",
        "d",
        "//x/d",
    ] {
        let delete = world.ask(Method::DELETE, "/a", &[]);
        delete.answered(answer(303, &[("location", elsewhere)], ""), world.now());
    }
    assert!(world.kept("/d", &[]).is_some());
}

/// Writes to other keys, as many as there may be, do not matter to it.
#[tokio::test]
async fn what_others_write_keeps_no_answer_from_being_kept() {
    let world = world();
    let leading = world.ask(Method::GET, "/", &[]);
    for number in 0..1000 {
        let post = world.ask(Method::POST, &format!("/other/{number}"), &[]);
        drop(post.answered(answer(200, &[], ""), world.now()));
    }
    let fresh = [("cache-control", "max-age=60")];
    let (answer, how) = leading.answered(answer(200, &fresh, "x"), world.now());
    assert_eq!(read(answer, how).await.body, "x");
    world.settle().await;
    assert_eq!(world.kept_body("/", &[]).await.as_deref(), Some("x"));
    assert_eq!(world.cache.store().underway(), 0);
}

/// RFC 9111 §4.3.4: what is kept is not what it speaks of.
#[tokio::test]
async fn a_304_with_another_tag_is_asked_again_without_conditions() {
    let world = world();
    let headers = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    world.fetch("/", &[], answer(200, &headers, "one")).await;
    world.pass(61);
    let mut asking = world.ask(Method::GET, "/", &[]);
    let mut asks = HeaderMap::new();
    asking.prepare(&mut asks);
    assert_eq!(asks["if-none-match"], "\"1\"");
    let not_modified = answer(304, &[("etag", "\"2\"")], "");
    let Answered::Again(mut again) = asking.outcome(not_modified, world.now()) else {
        panic!("what is kept was taken for the other one");
    };
    let mut asks = map(&[("if-none-match", "\"2\"")]);
    again.prepare(&mut asks);
    assert!(asks.is_empty(), "all of it is to come");
    let headers = [("cache-control", "max-age=60"), ("etag", "\"2\"")];
    let (answer, how) = again.answered(answer(200, &headers, "two"), world.now());
    assert_eq!(read(answer, how).await.body, "two");
    world.settle().await;
    assert_eq!(world.kept_body("/", &[]).await.as_deref(), Some("two"));
}

#[tokio::test]
async fn an_answer_from_before_a_write_is_not_kept_after_it() {
    let world = world();
    let before = world.ask(Method::GET, "/", &[]);
    let (feed, reading) = fed(&[FRESH], Some(3));
    let (reading, _) = world
        .ask(Method::GET, "/r", &[])
        .answered(reading, world.now());
    for path in ["/", "/r"] {
        world
            .ask(Method::POST, path, &[])
            .answered(answer(200, &[], ""), world.now());
    }
    let (old, how) = before.answered(answer(200, &[FRESH], "old"), world.now());
    assert_eq!(read(old, how).await.body, "old");
    feed.send(data("old")).unwrap();
    assert_eq!(read(reading, how).await.body, "old");
    world.settle().await;
    assert!(world.kept("/", &[]).is_none() && world.kept("/r", &[]).is_none());
    world.fetch("/", &[], answer(200, &[FRESH], "new")).await;
    assert_eq!(world.kept_body("/", &[]).await.unwrap(), "new");
}

#[tokio::test]
async fn calls_that_the_cache_does_not_know_pass() {
    let world = world();
    for asks in [
        &[("range", "bytes=0-1")][..],
        &[("cache-control", "no-store")],
        &[("if-match", "\"1\"")],
    ] {
        let mut asking = world.ask(Method::GET, "/", asks);
        let mut headers = map(asks);
        asking.prepare(&mut headers);
        assert_eq!(headers, map(asks));
        let (passed, how) = asking.answered(answer(200, &[FRESH], "x"), world.now());
        assert_eq!(
            (header(&passed, "cache-status"), how),
            ("weir; fwd=bypass", CacheUse::None)
        );
        assert_eq!(world.holds(), (0, 0));
    }
}
