//! What `weir bench` does not do unless it is explicitly told to.

use std::time::Instant;

use super::{bench, text};

#[track_caller]
fn expect_refusal(words: &[&str], code: i32, says: &[&str]) {
    let began = Instant::now();
    let output = bench(words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    for word in says {
        assert!(said.contains(word), "{word} is missing: {said}");
    }
    assert!(output.stdout.is_empty(), "{words:?}");
    assert!(
        began.elapsed().as_secs() < 20,
        "{words:?}: it has sent something"
    );
}

#[test]
fn another_machine_needs_a_word() {
    expect_refusal(
        &["http://192.0.2.1:9/", "-t", "60s"],
        64,
        &["192.0.2.1 is not this machine", "--yes"],
    );
    // TEST-NET-1 as an IPv4-mapped IPv6 address.
    expect_refusal(&["http://[::ffff:192.0.2.1]/"], 64, &["--yes"]);
    expect_refusal(
        &["http://192.0.2.1/", "--replay", "/dev/null"],
        64,
        &["--yes"],
    );
}

#[test]
fn a_wrong_command_line_is_64_and_nothing_is_sent() {
    for (words, says) in [
        (&["https://127.0.0.1/"][..], "https is not built yet"),
        (&["ftp://127.0.0.1/"], "not http"),
        (&["http://127.0.0.1/", "-c", "weir.toml"], "number of users"),
        (
            &["http://127.0.0.1/", "-c", "1", "-r", "1"],
            "cannot be used with",
        ),
        (&["http://127.0.0.1/", "-H", "nonsense"], "Name: value"),
        (&["http://127.0.0.1/", "-t", "soon"], "not a duration"),
        (&["http://127.0.0.1/", "--timeout", "0"], "--timeout 0"),
        (&["http://127.0.0.1/", "--urls", "/dev/null"], "no URL"),
        (
            &["http://127.0.0.1/", "--replay", "/dev/null"],
            "nothing to send",
        ),
        (
            &["http://127.0.0.1/", "--body", "@/no/such/file"],
            "/no/such/file",
        ),
        (
            &["http://127.0.0.1/", "--source", "192.0.2.1"],
            "does not have",
        ),
        (&[], "URL"),
    ] {
        expect_refusal(words, 64, &[says]);
    }
}
