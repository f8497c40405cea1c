use super::*;
use serde_json::json;

fn pool(work: Value) -> Value {
    json!({ "name": "shop", "runtime": "php", "work": work })
}

/// A pool whose workers compute in this share of their time, with these slow scripts.
fn slow(computing: f64, places: &[(&str, u64)]) -> Value {
    let places = places.iter().map(|(function, count)| {
        json!({ "function": function, "at": format!("/srv/{count}.php:3"), "count": count })
    });
    json!({
        "computing": computing, "processors": 0.1, "usable_processors": 4, "machine": 0.2, "serialized": false,
        "request_slowlog_timeout": 5.0, "slow_at": places.collect::<Vec<_>>(), "calls": [],
    })
}

#[track_caller]
fn advice(work: Value) -> (String, Help) {
    let pool = pool(work);
    let work = Work::of(&pool);
    (work.told().expect("something"), work.help("max_children"))
}

#[test]
fn each_cause_of_slowness_has_its_words_and_locks_never_get_more_workers() {
    for (places, words) in [
        (&[("session_start", 9), ("sleep", 1)][..], "serialize_by"),
        (
            &[("sleep", 9), ("session_start", 5)],
            "session_write_close()",
        ),
        (&[("flock", 1), ("sleep", 1)], "lock that another one holds"),
        (
            &[("SplFileObject::flock", 3)],
            "lock that another one holds",
        ),
        (&[("usleep", 3), ("flock", 1)], "pauses on purpose"),
        (&[("gethostbyname", 4)], "looking up names"),
        (&[("dns_get_record", 4)], "looking up names"),
        (&[("curl_exec", 4)], "CURLOPT_TIMEOUT"),
        (&[("curl_multi_select", 4), ("sleep", 1)], "CURLOPT_TIMEOUT"),
        (&[("fsockopen", 4)], "another service answers slowly"),
        (&[("PDOStatement::execute", 4)], "the database"),
        (&[("mysqli_query", 4)], "the database"),
        (&[("mysqli::query", 4)], "the database"),
        (&[("Redis::get", 4)], "the cache server"),
        (&[("shell_exec", 4)], "programs that they start"),
        (&[("mail", 4)], "mail server"),
        (&[("file_get_contents", 4)], "a file system, a socket"),
    ] {
        let (told, help) = advice(slow(0.02, places));
        assert!(
            told.contains("they wait (computing 2 % of the time)"),
            "{told}"
        );
        let (function, count) = places[0];
        let first = format!("{count} in {function}() at /srv/{count}.php:3");
        assert!(told.contains(&first), "{told}");
        assert!(help.text.contains(words), "{places:?}: {help:?}");
        assert!(
            !help.more_workers && !help.text.contains("max_children"),
            "{help:?}"
        );
    }
}

#[test]
fn computing_is_told_apart_from_waiting() {
    // Some processors are idle: more workers may use them.
    let (told, help) = advice(slow(0.97, &[("{main}", 2)]));
    assert_eq!(
        told,
        "they compute (97 % of the time): 2 in {main}() at /srv/2.php:3"
    );
    assert!(
        help.more_workers && help.text.contains("look at {main}() at /srv/2.php:3"),
        "{help:?}"
    );
    for (key, value) in [("processors", 3.9), ("machine", 0.95)] {
        let mut full = slow(0.97, &[]);
        full[key] = value.into();
        let (_, help) = advice(full);
        assert!(
            !help.more_workers && help.text.contains("share the same processors"),
            "{help:?}"
        );
    }
    // Ten workers on two processors compute in a fifth of the time, because they wait for a processor.
    let mut starved = slow(0.2, &[("md5", 8)]);
    starved["processors"] = 1.98.into();
    starved["usable_processors"] = 2.into();
    let (told, help) = advice(starved);
    assert!(
        told.starts_with("they compute: the processors are busy, and the pool gets 2.0 of 2"),
        "{told}"
    );
    assert!(
        help.text.contains("More workers would only share") && !help.more_workers,
        "{help:?}"
    );
    // A neighbour computes. The workers wait for something else.
    let mut beside = slow(0.02, &[("curl_exec", 4)]);
    beside["machine"] = 1.0.into();
    assert!(advice(beside).0.starts_with("they wait"), "a neighbour");
}

#[test]
fn the_host_that_is_called_is_named() {
    for function in ["curl_exec", "fread", "{main}"] {
        let mut calls = slow(0.01, &[(function, 3)]);
        calls["calls"] =
            json!([{ "host": "api.example.com", "count": 3 }, { "host": "b.example", "count": 1 }]);
        let (told, help) = advice(calls);
        assert!(
            told.ends_with("; 3 calls to api.example.com run; 1 call to b.example runs"),
            "{told}"
        );
        assert!(
            help.text.starts_with("api.example.com answers slowly"),
            "{help:?}"
        );
    }
}

#[test]
fn a_session_that_is_serialized_already_is_held_too_long() {
    let mut serialized = slow(0.01, &[("session_start", 3)]);
    assert!(
        advice(serialized.clone())
            .1
            .text
            .contains("serialize_by = \"auto\" in [pool.shop.queue]")
    );
    serialized["serialized"] = true.into();
    let (_, help) = advice(serialized);
    assert!(
        !help.text.contains("serialize_by") && help.text.contains("read_and_close"),
        "{help:?}"
    );
}

#[test]
fn a_session_that_is_serialized_in_some_places_names_the_others() {
    let mut partly = slow(0.01, &[("session_start", 3)]);
    let others = |count: usize| (0..count).map(|number| format!("[site.s{number}]"));
    partly["not_serialized"] = others(2).collect();
    let (_, help) = advice(partly.clone());
    let words = "it is not set for [site.s0], [site.s1]. More";
    assert!(help.text.contains(words), "{help:?}");
    assert!(!help.text.contains("[pool.shop.queue]"), "{help:?}");
    partly["not_serialized"] = others(5).collect();
    let (_, help) = advice(partly);
    assert!(help.text.contains("[site.s2] and 2 more. "), "{help:?}");
}

#[test]
fn what_is_not_known_is_not_made_up() {
    let (told, help) = advice(slow(0.03, &[]));
    assert_eq!(told, "they wait (computing 3 % of the time)");
    assert!(
        help.more_workers && help.text.contains("a shorter request_slowlog_timeout"),
        "{help:?}"
    );
    let nothing = pool(json!({ "slow_at": [], "calls": [], "computing": null }));
    let work = Work::of(&nothing);
    assert_eq!(work.told(), None);
    assert!(work.help("maxconn").text.starts_with("raise maxconn if"));
    assert_eq!(Work::of(&json!({})).told(), None);
}
