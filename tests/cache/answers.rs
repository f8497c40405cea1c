//! What is stored because the application allows it, and what clients get of it.

use weir_test::Weir;

use crate::{fresh, runs, said, setup, with};

const HEADERS: &str = "cache = { preset = \"headers\", cache_status = true }\n";

fn started() -> Weir {
    setup(2, HEADERS).start()
}

#[test]
fn a_page_is_made_once_for_all() {
    let weir = started();
    let first = weir.get(&fresh("a")).expect(200);
    assert!(
        said(&first).starts_with("weir; fwd=uri-miss; fwd-status=200; stored"),
        "{}",
        said(&first)
    );
    assert_eq!(first.header("age"), None);
    for _ in 0..3 {
        let again = weir.get(&fresh("a")).expect(200);
        assert_eq!(again.text(), "run 1");
        assert!(
            said(&again).starts_with("weir; hit; ttl="),
            "{}",
            said(&again)
        );
        assert!(again.header("age").is_some() && again.header("date").is_some());
    }
    assert_eq!(runs(&weir, "a"), 1);
    let line = weir.logged(&fresh("a"));
    assert_eq!(line["cache"], "miss");
    assert_eq!(weir.get(&fresh("b")).text(), "run 1");
}

#[test]
fn head_and_parts_are_of_the_stored_page() {
    let weir = started();
    let url = fresh("a") + "&bytes=1000&etag=v1";
    let whole = weir.get(&url).expect(200);
    let head = weir.request("HEAD", &url, &[], b"").expect(200);
    assert_eq!(head.header("content-length"), Some("1000"));
    let part = weir
        .request("GET", &url, &[("Range", "bytes=10-19")], b"")
        .expect(206);
    assert_eq!(part.header("content-range"), Some("bytes 10-19/1000"));
    assert_eq!(part.text(), "0123456789");
    let parts = weir
        .request("GET", &url, &[("Range", "bytes=0-1,990-999")], b"")
        .expect(206);
    assert!(
        parts.text().contains("Content-Range: bytes 990-999/1000"),
        "{}",
        parts.text()
    );
    let none = weir
        .request("GET", &url, &[("Range", "bytes=2000-")], b"")
        .expect(416);
    assert_eq!(none.header("content-range"), Some("bytes */1000"));
    let had = weir
        .request("GET", &url, &[("If-None-Match", "\"v1\"")], b"")
        .expect(304);
    assert_eq!(had.header("etag"), Some("\"v1\""));
    let other = weir
        .request("GET", &url, &[("If-None-Match", "\"v0\"")], b"")
        .expect(200);
    assert_eq!(other.body, whole.body);
    assert_eq!(runs(&weir, "a"), 1);
}

/// The application is asked for all of the page, and the client gets what it wants.
#[test]
fn the_first_client_may_want_a_part_or_have_the_page() {
    let weir = started();
    let part = weir.request(
        "GET",
        &(fresh("a") + "&bytes=100"),
        &[("Range", "bytes=5-6")],
        b"",
    );
    assert_eq!((part.status, part.text()), (206, "56".to_owned()));
    let url = fresh("b") + "&etag=v1";
    let had = weir
        .request("GET", &url, &[("If-None-Match", "\"v1\"")], b"")
        .expect(304);
    assert!(said(&had).contains("stored"), "{}", said(&had));
    assert_eq!(weir.get(&url).expect(200).text(), "run 1");
}

#[test]
fn what_is_somebodys_own_is_not_stored() {
    let weir = started();
    for (name, field, reason) in [
        ("cookie", "Set-Cookie: a=b", "set_cookie"),
        ("private", "Cache-Control: private", "private"),
        ("nostore", "Cache-Control: no-store", "no_store"),
        ("vary", "Vary: *", "vary_all"),
    ] {
        let url = with(name, &["Cache-Control: max-age=60", field]);
        for run in 1..3 {
            let answer = weir.get(&url).expect(200);
            assert_eq!(answer.text(), format!("run {run}"), "{name}");
            assert!(
                said(&answer).ends_with(&format!("detail={reason}")),
                "{}",
                said(&answer)
            );
        }
    }
    let nothing = weir.get(&with("nothing", &[])).expect(200);
    assert!(
        said(&nothing).ends_with("detail=no_lifetime"),
        "{}",
        said(&nothing)
    );
    for (name, value, reason) in [
        ("Authorization", "Basic YTpi", "credentials"),
        ("Cookie", "user=1", "cookies"),
    ] {
        let url = fresh(&format!("own-{name}"));
        for _ in 0..2 {
            let answer = weir.request("GET", &url, &[(name, value)], b"").expect(200);
            assert!(
                said(&answer).ends_with(&format!("detail={reason}")),
                "{}",
                said(&answer)
            );
        }
        // Others do not get it either.
        assert_eq!(weir.get(&url).text(), "run 3");
        assert_eq!(weir.get(&url).text(), "run 3");
    }
}

#[test]
fn variants_are_stored_beside_each_other() {
    let weir = started();
    let url = with("a", &["Cache-Control: max-age=60", "Vary: Accept-Language"]);
    let get = |language: &str| {
        let fields = [("Accept-Language", language)];
        weir.request("GET", &url, &fields, b"").expect(200).text()
    };
    assert_eq!(
        (get("de"), get("en"), get("de"), get("en")),
        (
            "run 1".to_owned(),
            "run 2".to_owned(),
            "run 1".to_owned(),
            "run 2".to_owned()
        )
    );
}

#[test]
fn lifetimes_for_this_cache_alone_do_not_reach_clients() {
    let weir = started();
    let url = with(
        "a",
        &["Cache-Control: no-store", "Weir-Cache-Control: max-age=60"],
    );
    weir.get(&url).expect(200);
    let hit = weir.get(&url).expect(200);
    assert_eq!(
        (hit.text(), hit.header("cache-control")),
        ("run 1".to_owned(), Some("no-store"))
    );
    assert_eq!(hit.header("weir-cache-control"), None);
}

/// The application says by 304 that what is stored is still valid.
#[test]
fn an_expired_page_is_validated() {
    let weir = started();
    let url = with("a", &["Cache-Control: no-cache"]) + "&etag=v1";
    assert_eq!(weir.get(&url).expect(200).text(), "run 1");
    let validated = weir.get(&url).expect(200);
    assert_eq!(validated.text(), "run 1");
    assert!(
        said(&validated).starts_with("weir; fwd=stale; fwd-status=304"),
        "{}",
        said(&validated)
    );
    assert_eq!(runs(&weir, "a"), 2);
}

#[test]
fn a_large_page_is_stored_while_it_is_sent() {
    let weir = started();
    let url = fresh("large") + "&bytes=900000";
    let first = weir.get(&url).expect(200);
    assert_eq!(first.body.len(), 900_000);
    let hit = weir.get(&url).expect(200);
    assert!(said(&hit).starts_with("weir; hit"), "{}", said(&hit));
    assert_eq!(hit.body, first.body);
    // Larger ones are not.
    let url = fresh("huge") + "&bytes=20000000";
    for _ in 0..2 {
        assert_eq!(weir.get(&url).expect(200).body.len(), 20_000_000);
    }
    assert_eq!(runs(&weir, "huge"), 2);
}

/// The compressed form is kept with the page.
#[test]
fn a_page_is_compressed_once() {
    let weir = setup(
        2,
        &format!("{HEADERS}compress = true\ncompress_types = [\"text/plain\"]\n"),
    )
    .start();
    for bytes in [4000, 60_000] {
        let url = fresh(&bytes.to_string()) + &format!("&bytes={bytes}");
        let get = || {
            weir.request("GET", &url, &[("Accept-Encoding", "gzip")], b"")
                .expect(200)
        };
        let (first, second, third) = (get(), get(), get());
        for hit in [&second, &third] {
            assert_eq!(hit.header("content-encoding"), Some("gzip"));
            assert_eq!(hit.body, first.body);
        }
        assert_eq!(weir.get(&url).expect(200).body.len(), bytes);
        assert_eq!(runs(&weir, &bytes.to_string()), 1);
    }
}

#[test]
fn a_site_without_a_cache_has_none() {
    let weir = setup(1, "").start();
    for run in 1..3 {
        let answer = weir.get(&fresh("a")).expect(200);
        assert_eq!((answer.text(), said(&answer)), (format!("run {run}"), ""));
    }
    assert_eq!(weir.logged(&fresh("a"))["cache"], serde_json::Value::Null);
}

/// Clients may send what applications believe of proxies: it must not get into pages of others.
#[test]
fn nobody_poisons_the_pages_of_others() {
    let weir = started();
    let url = fresh("a") + "&show[]=HTTP_X_ORIGINAL_URL";
    let evil = weir
        .request("GET", &url, &[("X-Original-URL", "/evil")], b"")
        .expect(200);
    assert!(evil.text().ends_with("=/evil"), "{}", evil.text());
    let own = weir.get(&url).expect(200);
    assert!(
        own.text().ends_with("HTTP_X_ORIGINAL_URL="),
        "{}",
        own.text()
    );
}

/// An answer whose script dies before its end is not stored.
#[test]
fn a_cut_answer_is_not_stored() {
    let cut =
        "<?php header('Cache-Control: max-age=60'); header('Content-Length: 50'); echo 'short';";
    let weir = setup(2, HEADERS).file("cut.php", cut).start();
    let get = || {
        let mut client = weir.client();
        client.send(weir_test::weir::request("GET", "/cut.php", &[], b""));
        client.response()
    };
    assert!(!get().whole && !get().whole);
}
