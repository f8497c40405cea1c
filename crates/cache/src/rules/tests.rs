//! Which answers are stored, for whom, and what they are worth.

use proptest::prelude::*;

use super::*;
use crate::fields::Lines;

const NOW: u64 = 1_800_000_000_000;

const FRONT: Policy<'_> = Policy {
    ttl: None,
    longest_error: 10_000,
    stale_if_error: 0,
    targeted: &["weir-cache-control", "cdn-cache-control"],
    must_revalidate_is_for_all: true,
};

const ANYBODY: Terms = Terms {
    asker: Asker::Anybody,
    wishes: Wishes {
        no_cache: false,
        no_store: false,
        only_if_cached: false,
        max_age: None,
        min_fresh: None,
        max_stale: None,
        stale_if_error: None,
    },
    stale_while_revalidate: 0,
    stale_if_error: 0,
};

fn get<'r>(fields: &'r Lines<'r>) -> Request<'r, Lines<'r>> {
    Request {
        method: Method::Get,
        asker: Asker::of(fields),
        fields,
        has_body: false,
    }
}

fn verdict(request: &str, status: u16, answer: &str, policy: &Policy<'_>) -> Result<Life, Reason> {
    let answer = Answer {
        status,
        fields: &Lines(answer.as_bytes()),
        asked: NOW,
        answered: NOW,
    };
    judge(get(&Lines(request.as_bytes())), answer, policy).map(|verdict| verdict.life)
}

fn life(answer: &str) -> Result<Life, Reason> {
    verdict("", 200, &answer.replace('|', "\r\n"), &FRONT)
}

fn day(seconds: i64) -> String {
    let at = (NOW / 1000).saturating_add_signed(seconds);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(at);
    httpdate::fmt_http_date(at)
}

/// For how many seconds from its arrival an answer is fresh.
fn fresh_for(answer: &str) -> Option<u64> {
    let life = life(answer).ok()?;
    Some((life.made + life.lifetime).saturating_sub(NOW) / 1000)
}

#[test]
fn the_lifetime_is_what_the_answer_names() {
    let (soon, now, past) = (day(60), day(0), day(-60));
    for (answer, expected) in [
        ("cache-control: max-age=60", 60),
        ("cache-control: MaX-aGe=60, foobar", 60),
        ("cache-control: max-age=5, s-maxage=60", 60),
        ("cache-control: s-maxage=5, max-age=60", 5),
        ("cache-control: max-age=60|expires: 0", 60),
        (&format!("expires: {soon}"), 60),
        (&format!("expires: {soon}|date: {now}"), 60),
        (&format!("expires: {soon}|date: foo"), 60),
        // A clock that is wrong.
        (&format!("expires: {}|date: {}", day(130), day(70)), 60),
        (&format!("cache-control: max-age=60|date: {}", day(70)), 60),
        (&format!("cache-control: max-age=100|date: {past}"), 40),
        ("cache-control: max-age=60|age: 20", 40),
        ("cdn-cache-control: max-age=60|cache-control: no-store", 60),
        (
            "cdn-cache-control: max-age=60|cache-control: max-age=5|expires: 0",
            60,
        ),
        ("cdn-cache-control: max-age=5|cache-control: max-age=60", 5),
        (
            "weir-cache-control: max-age=60|cdn-cache-control: no-store",
            60,
        ),
        ("cdn-cache-control: foo, &|cache-control: max-age=60", 60),
        // What is stale on arrival is kept only to be validated.
        ("cache-control: max-age=0|etag: \"1\"", 0),
        ("cache-control: no-cache, max-age=60|etag: \"1\"", 0),
        ("last-modified: x", 0),
    ] {
        assert_eq!(fresh_for(&format!("{answer}|")), Some(expected), "{answer}");
    }
    for age in ["abc", "-1", "7.0", "60,0", "0, 0", "0;x=1", "0|age: 0"] {
        let answer = format!("cache-control: max-age=3600|age: {age}|etag: \"1\"|");
        assert_eq!(fresh_for(&answer), Some(0), "{age}");
    }
}

#[test]
fn what_is_not_stored_has_a_reason() {
    use Reason::*;
    for (answer, reason) in [
        ("", NoLifetime),
        ("cache-control: public", NoLifetime),
        ("cache-control: max-age=0", Expired),
        ("cache-control: max-age=-60", Expired),
        ("cache-control: max-age='60'", Expired),
        ("cache-control: no-cache", Expired),
        (
            "pragma: no-cache|expires: Thu, 19 Nov 2099 08:52:00 GMT",
            Expired,
        ),
        ("cache-control: max-age=60, s-maxage=0", Expired),
        ("cache-control: max-age=60|age: 60", Expired),
        ("cache-control: max-age=60|age: 0|age: 0", Expired),
        ("expires: 0", Expired),
        (
            "expires: Thu, 19 Nov 2099 08:52:00 GMT|expires: Thu, 19 Nov 2099 08:52:01 GMT",
            Expired,
        ),
        ("cache-control: max-age=60, private", Private),
        ("cache-control: max-age=60, NO-STORE", NoStore),
        (
            "cache-control: max-age=60|cdn-cache-control: private",
            Private,
        ),
        (
            "cache-control: max-age=60|cdn-cache-control: no-store",
            NoStore,
        ),
        (
            "cache-control: max-age=60|cdn-cache-control: no-cache",
            Expired,
        ),
        (
            "cache-control: no-store|cdn-cache-control: max-age=\"60\"",
            NoStore,
        ),
        ("cache-control: max-age=60, private=\"x", Unreadable),
        ("cache-control: max-age=60|set-cookie: a=b", SetCookie),
        (
            "cache-control: max-age=60, no-cache=\"set-cookie\"|set-cookie: a=b",
            SetCookie,
        ),
        ("cdn-cache-control: max-age=60|set-cookie: a=b", SetCookie),
        ("cache-control: max-age=60|vary: accept, *", VaryAll),
        ("cache-control: max-age=60|vary: a b", VaryUnreadable),
        (
            "cache-control: max-age=60|content-range: bytes 0-1/2",
            Partial,
        ),
    ] {
        assert_eq!(life(&format!("{answer}|")), Err(reason), "{answer}");
    }
}

#[test]
fn any_final_status_is_stored_if_it_names_a_lifetime() {
    let of = |status: u16, said: &str, policy: &Policy<'_>| {
        let answer = format!("cache-control: {said}\r\n");
        verdict("", status, &answer, policy).map(|life| life.lifetime / 1000)
    };
    for status in [200, 204, 299, 301, 302, 307, 404, 410, 499] {
        assert_eq!(of(status, "max-age=60", &FRONT), Ok(60), "{status}");
    }
    for status in [500, 503, 599] {
        assert_eq!(of(status, "max-age=60", &FRONT), Ok(10), "{status}");
        let strict = Policy {
            longest_error: 0,
            ..FRONT
        };
        assert_eq!(
            of(status, "max-age=60", &strict),
            Err(Reason::Error),
            "{status}"
        );
    }
    assert_eq!(of(206, "max-age=60", &FRONT), Err(Reason::Partial));
    assert_eq!(of(304, "max-age=60", &FRONT), Err(Reason::Status));
    assert_eq!(
        of(599, "max-age=60, must-understand", &FRONT),
        Err(Reason::Status)
    );
    assert_eq!(of(200, "max-age=60, must-understand", &FRONT), Ok(60));
    // A site's own lifetime is for what usually lasts.
    let site = Policy {
        ttl: Some(7000),
        ..FRONT
    };
    for (status, expected) in [
        (200, Ok(7)),
        (301, Ok(7)),
        (404, Ok(7)),
        (302, Err(Reason::NoLifetime)),
        (403, Err(Reason::NoLifetime)),
        (500, Err(Reason::NoLifetime)),
    ] {
        assert_eq!(of(status, "public", &site), expected, "{status}");
    }
    assert_eq!(of(200, "max-age=60", &site), Ok(60));
    assert_eq!(of(200, "max-age=0", &site), Err(Reason::Expired));
    assert_eq!(of(200, "no-cache", &site), Err(Reason::Expired));
    assert_eq!(of(200, "private", &site), Err(Reason::Private));
}

#[test]
fn who_asks_counts() {
    let of = |request: &str, said: &str, policy: &Policy<'_>| {
        verdict(request, 200, &format!("{said}\r\n"), policy).is_ok()
    };
    let (known, cookies) = ("authorization: x\r\n", "cookie: a=b\r\n");
    for (said, by_known, by_cookies) in [
        ("cache-control: max-age=60", false, false),
        ("cache-control: max-age=60, public", true, true),
        ("cache-control: s-maxage=60", true, true),
        ("cache-control: max-age=60, must-revalidate", true, false),
        ("cdn-cache-control: max-age=60", false, true),
        ("cdn-cache-control: max-age=60, public", true, true),
        ("expires: Thu, 19 Nov 2099 08:52:00 GMT", false, false),
    ] {
        assert!(of("", said, &FRONT), "{said}");
        assert_eq!(of(known, said, &FRONT), by_known, "{said}");
        assert_eq!(of(cookies, said, &FRONT), by_cookies, "{said}");
    }
    let strict = Policy {
        must_revalidate_is_for_all: false,
        ..FRONT
    };
    assert!(!of(
        known,
        "cache-control: max-age=60, must-revalidate",
        &strict
    ));
    // A site's own lifetime says nothing about persons.
    let site = Policy {
        ttl: Some(7000),
        ..FRONT
    };
    assert!(of("", "x: y", &site) && !of(known, "x: y", &site) && !of(cookies, "x: y", &site));
}

#[test]
fn what_the_cache_has_nothing_to_do_with() {
    use Reason::{Body, Condition, Head, Range};
    let other = Some(Reason::Method);
    let fresh = Lines(b"cache-control: max-age=60\r\n");
    for (method, has_body, request, passes, stored) in [
        (Method::Get, false, "if-none-match: x\r\n", None, None),
        (
            Method::Get,
            false,
            "range: bytes=0-1\r\n",
            None,
            Some(Range),
        ),
        (Method::Head, false, "", None, Some(Head)),
        (Method::Get, true, "", Some(Body), Some(Body)),
        (
            Method::Get,
            false,
            "if-match: x\r\n",
            Some(Condition),
            Some(Condition),
        ),
        (
            Method::Get,
            false,
            "if-unmodified-since: x\r\n",
            Some(Condition),
            Some(Condition),
        ),
        (Method::of(b"OPTIONS"), false, "", other, other),
        (Method::of(b"POST"), false, "", other, other),
        (Method::of(b"M-SEARCH"), false, "", other, other),
        (Method::of(b"get"), false, "", other, other),
    ] {
        let fields = Lines(request.as_bytes());
        let request = Request {
            method,
            has_body,
            ..get(&fields)
        };
        assert_eq!(request.passes(), passes, "{request:?}");
        let answer = Answer {
            status: 200,
            fields: &fresh,
            asked: NOW,
            answered: NOW,
        };
        assert_eq!(judge(request, answer, &FRONT).err(), stored, "{request:?}");
    }
}

#[test]
fn what_a_client_wants_is_read() {
    let wishes = |request: &str| Wishes::of(&Lines(request.as_bytes()));
    assert_eq!(wishes(""), Wishes::default());
    assert!(wishes("pragma: x, No-Cache\r\n").no_cache);
    assert!(!wishes("pragma: no-cache\r\ncache-control: x\r\n").no_cache);
    let all = wishes(
        "cache-control: no-cache, no-store, only-if-cached, max-age=1, min-fresh=2, max-stale=3, stale-if-error=4\r\n",
    );
    assert!(all.no_cache && all.no_store && all.only_if_cached);
    let times = (
        all.max_age,
        all.min_fresh,
        all.max_stale,
        all.stale_if_error,
    );
    assert_eq!(times, (Some(1000), Some(2000), Some(3000), Some(4000)));
    // What cannot be read asks for something fresh, and allows nothing.
    let unclear = wishes("cache-control: max-age=x, max-stale=x\r\n");
    assert_eq!((unclear.max_age, unclear.max_stale), (Some(0), None));
    assert!(!wishes("cache-control: max-stale\r\n").are_picky());
    assert!(unclear.are_picky());
}

#[test]
fn a_stored_answer_has_its_states_one_after_the_other() {
    let life =
        life("cache-control: max-age=60, stale-while-revalidate=10, stale-if-error=30|").unwrap();
    let at = |ms: u64| life.state(NOW + ms, &ANYBODY);
    for (ms, state) in [
        (0, State::Fresh),
        (59_999, State::Fresh),
        (60_000, State::StaleWhileRevalidate),
        (69_999, State::StaleWhileRevalidate),
        (70_000, State::StaleIfError),
        (89_999, State::StaleIfError),
        (90_000, State::MustValidate),
    ] {
        assert_eq!(at(ms), state, "{ms}");
    }
    assert_eq!(
        (
            life.age(NOW + 7500),
            life.ttl(NOW + 7500),
            life.ttl(NOW + 62_000)
        ),
        (7500, 53, -2)
    );
    assert_eq!(
        (life.usable_until(0), life.usable_until(40_000)),
        (NOW + 90_000, NOW + 100_000)
    );
    // The clock was set back.
    assert_eq!(life.state(NOW - 5000, &ANYBODY), State::Fresh);
    assert_eq!(Life::from_bytes(&life.to_bytes()), Some(life));
}

#[test]
fn who_may_allow_what_is_stale() {
    let says = |said: &str| life(&format!("cache-control: {said}|etag: \"1\"|")).unwrap();
    let site = Terms {
        stale_while_revalidate: 20_000,
        stale_if_error: 40_000,
        ..ANYBODY
    };
    let client = |wishes: Wishes| Terms { wishes, ..ANYBODY };
    let patient = client(Wishes {
        max_stale: Some(20_000),
        ..Wishes::default()
    });
    let failing = client(Wishes {
        stale_if_error: Some(20_000),
        ..Wishes::default()
    });
    use State::*;
    for (said, by_site, by_client, on_error) in [
        ("max-age=60", StaleWhileRevalidate, Fresh, StaleIfError),
        ("s-maxage=60", MustValidate, MustValidate, MustValidate),
        (
            "s-maxage=60, stale-if-error=15",
            StaleIfError,
            StaleIfError,
            StaleIfError,
        ),
        (
            "max-age=60, must-revalidate, stale-if-error=15",
            MustValidate,
            MustValidate,
            MustValidate,
        ),
        (
            "max-age=60, proxy-revalidate",
            MustValidate,
            MustValidate,
            MustValidate,
        ),
        (
            "max-age=60, no-cache",
            MustValidate,
            MustValidate,
            MustValidate,
        ),
    ] {
        let life = says(said);
        let states = [&site, &patient, &failing].map(|terms| life.state(NOW + 70_000, terms));
        assert_eq!(states, [by_site, by_client, on_error], "{said}");
    }
    assert_eq!(says("max-age=60").state(NOW + 80_000, &site), StaleIfError);
    assert_eq!(
        says("max-age=60").state(NOW + 80_000, &patient),
        MustValidate
    );
}

#[test]
fn a_client_may_want_something_fresher() {
    let life = life("cache-control: max-age=60|").unwrap();
    let none = Wishes::default();
    for (wishes, state) in [
        (
            Wishes {
                no_cache: true,
                ..none
            },
            State::MustValidate,
        ),
        (
            Wishes {
                max_age: Some(29_999),
                ..none
            },
            State::MustValidate,
        ),
        (
            Wishes {
                max_age: Some(30_000),
                ..none
            },
            State::Fresh,
        ),
        (
            Wishes {
                min_fresh: Some(30_001),
                ..none
            },
            State::MustValidate,
        ),
        (
            Wishes {
                min_fresh: Some(30_000),
                ..none
            },
            State::Fresh,
        ),
    ] {
        let terms = Terms { wishes, ..ANYBODY };
        assert_eq!(life.state(NOW + 30_000, &terms), state, "{wishes:?}");
        // But who gets nothing fresh because the origin fails gets what there is.
        let terms = Terms {
            stale_if_error: 1,
            ..terms
        };
        assert_ne!(
            life.state(NOW + 30_000, &terms),
            State::MustValidate,
            "{wishes:?}"
        );
    }
}

#[test]
fn who_is_known_gets_only_what_is_for_all() {
    let known = Terms {
        asker: Asker::WithCredentials,
        ..ANYBODY
    };
    let cookies = Terms {
        asker: Asker::WithCookies,
        ..ANYBODY
    };
    for (said, state) in [
        ("max-age=60", State::Withheld),
        ("max-age=60, public", State::Fresh),
        ("s-maxage=60", State::Fresh),
    ] {
        let life = life(&format!("cache-control: {said}|")).unwrap();
        assert_eq!(life.state(NOW, &known), state, "{said}");
        assert_eq!(life.state(NOW, &cookies), State::Fresh, "{said}");
    }
}

/// Lines of which some mark an answer as somebody's own, in any order and number.
fn lines(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(proptest::sample::select(of), 0..6)
}

const ANSWERS: &[&str] = &[
    "Set-Cookie: s=1",
    "set-cookie: s=2",
    "Cache-Control: private",
    "Cache-Control: Private, max-age=60",
    "Cache-Control: private=\"\"",
    "Cache-Control: private=\"x",
    "Cache-Control: no-store",
    "Cache-Control: max-age=60",
    "Cache-Control: public, max-age=60",
    "Cache-Control: s-maxage=60",
    "Cache-Control: must-revalidate",
    "Cache-Control: stale-while-revalidate=60, stale-if-error=60",
    "Cache-Control: no-cache=\"set-cookie\"",
    "Cache-Control: must-understand",
    "CDN-Cache-Control: max-age=60",
    "CDN-Cache-Control: private",
    "CDN-Cache-Control: no-store",
    "Weir-Cache-Control: max-age=60",
    "Weir-Cache-Control: &",
    "Expires: Thu, 19 Nov 2099 08:52:00 GMT",
    "ETag: \"1\"",
    "Vary: Cookie",
    "Content-Range: bytes 0-1/2",
];

const REQUESTS: &[&str] = &[
    "Authorization: Basic x",
    "Cookie: s=1",
    "Cookie: _ga=1",
    "Accept: x",
    "Cache-Control: max-stale",
    "Range: bytes=0-1",
];

proptest! {
    /// Whatever else an answer says: what is somebody's own is never judged storable.
    #[test]
    fn a_personal_answer_is_never_stored(
        request in lines(REQUESTS),
        answer in lines(ANSWERS),
        status in proptest::sample::select(&[200_u16, 206, 301, 304, 404, 500][..]),
        ttl in proptest::option::of(1_u64..100_000),
        longest_error in 0_u64..2,
        must_revalidate_is_for_all: bool,
    ) {
        let policy = Policy { ttl, longest_error, must_revalidate_is_for_all, stale_if_error: ttl.unwrap_or(0), ..FRONT };
        let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let stored = verdict(&text(&request), status, &text(&answer), &policy).is_ok();
        let has = |lines: &[&str], part: &str| {
            lines.iter().any(|line| line.to_ascii_lowercase().starts_with(part))
        };
        let says = |word: &str| {
            let lines = answer.iter().map(|line| line.to_ascii_lowercase());
            lines.filter(|line| line.contains("cache-control:")).any(|line| line.contains(word))
        };
        let is_targeted = has(&answer, "cdn-") || has(&answer, "weir-cache-control: max-age");
        let is_for_all = says("public") || says("s-maxage");
        if has(&answer, "set-cookie") || status == 206 || status == 304 {
            prop_assert!(!stored);
        }
        if !is_targeted && (says("private") || says("no-store")) {
            prop_assert!(!stored);
        }
        if has(&request, "authorization") && !is_for_all && !says("must-revalidate") {
            prop_assert!(!stored);
        }
        if has(&request, "cookie") && !is_for_all && !is_targeted && !has(&request, "authorization") {
            prop_assert!(!stored);
        }
    }

    /// What time it is and what a client wants: an answer is never fresh for longer than it says.
    #[test]
    fn nothing_is_fresh_for_longer_than_it_says(
        max_age in 0_u64..100, age in 0_u64..100, later in 0_u64..200_000, asked_before in 0_u64..5000,
    ) {
        let answer = format!("cache-control: max-age={max_age}\r\nage: {age}\r\netag: \"1\"\r\n");
        let fields = Lines(answer.as_bytes());
        let answer = Answer { status: 200, fields: &fields, asked: NOW - asked_before, answered: NOW };
        let life = judge(get(&Lines(b"")), answer, &FRONT).unwrap().life;
        let is_fresh = life.state(NOW + later, &ANYBODY) == State::Fresh;
        prop_assert_eq!(is_fresh, age * 1000 + asked_before + later < max_age * 1000);
    }

    #[test]
    fn any_bytes_are_taken(request in "[ -~\r\n]{0,60}", answer in "[ -~\r\n]{0,60}", status in 0_u16..700) {
        let _ = verdict(&request, status, &answer, &FRONT);
        let bytes: [u8; LIFE_BYTES] = std::array::from_fn(|at| answer.as_bytes().get(at).copied().unwrap_or(0));
        let _ = Life::from_bytes(&bytes);
    }
}
