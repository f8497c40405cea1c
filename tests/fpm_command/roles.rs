//! FastCGI roles beside that of a responder, and what is not a page at `pm.status_listen`.

use std::{io::Write, os::unix::net::UnixStream};

use weir_test::{
    fcgi::{DATA, record},
    front::{self, Params},
};

use crate::{
    pages::request,
    support::{LIMIT, answer},
    transcript::Subject,
};

const PAGES: &str =
    "pm.status_path = /status\nping.path = /ping\npm.status_listen = @/status.sock\n";

const ROLE: &str = "<?php echo $_SERVER['FCGI_ROLE'], ' ', $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');";

/// The answer to two requests in this role, one after the other, with this content of DATA; and whether both are on the same
/// connection.
fn called(
    subject: &Subject,
    role: u8,
    uri: &str,
    body: &str,
    (data, keep): (&[u8], bool),
) -> String {
    let connect = || {
        let stream = UnixStream::connect(subject.place.path("fpm.sock")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    };
    let script = subject.place.path(&uri[1..]);
    let length = body.len().to_string();
    let params = Params::of(&[
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("SCRIPT_NAME", uri),
        ("REQUEST_URI", uri),
        (
            "REQUEST_METHOD",
            if body.is_empty() { "GET" } else { "POST" },
        ),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", &length),
        ("FCGI_DATA_LAST_MOD", "0"),
        ("FCGI_DATA_LENGTH", "4"),
    ]);
    let mut bytes = front::request(1, keep, &params, body.as_bytes());
    // The second byte of the first record's content.
    bytes[9] = role;
    if !keep {
        if !data.is_empty() {
            bytes.extend(record(DATA, 1, data));
        }
        bytes.extend(record(DATA, 1, b""));
    }
    let mut stream = connect();
    let mut said = String::new();
    for _ in 0..2 {
        stream.write_all(&bytes).unwrap();
        let answer = answer(&stream);
        said += &format!("{}{}", answer.out, answer.err);
        if !keep {
            stream = connect();
        }
    }
    said
}

/// PHP runs the script as for a responder, and does not read the file that the web server sends after the body.
#[test]
fn a_filter_is_answered_as_php_fpm_answers_it() {
    const FILTER: u8 = 3;
    let answers = [false, true].map(|weir| {
        let subject = Subject::start(weir, "", PAGES, &[("role.php", ROLE)]);
        let mut answers = Vec::new();
        for uri in ["/role.php", "/missing.php", "/ping"] {
            for body in ["", "12345"] {
                for (data, keep) in [(&b""[..], false), (b"file", false), (b"", true)] {
                    let said = called(&subject, FILTER, uri, body, (data, keep));
                    answers.push(format!("{uri} {body} {keep}: {said}"));
                }
            }
        }
        answers
    });
    assert_eq!(answers[1], answers[0]);
    assert!(answers[0][0].contains("FILTER GET"), "{answers:?}");
}

/// PHP-FPM takes the record for the end of the body, so its scripts may run with a part of it.
#[test]
fn a_file_for_a_responder_is_refused() {
    const RESPONDER: u8 = 1;
    let subject = Subject::start(true, "", PAGES, &[("role.php", ROLE)]);
    for body in ["", "12345"] {
        let said = called(&subject, RESPONDER, "/role.php", body, (b"file", false));
        assert_eq!(said, "");
    }
    let whole = request(&subject.place, "/role.php", "POST", &[], "12345").out;
    assert!(whole.ends_with("RESPONDER POST 12345"), "{whole}");
}

/// PHP-FPM has children there, which run scripts without the settings of the pool: its `php_admin_value`, its `chroot`. weir
/// runs none, and answers as if there were none.
#[test]
fn what_is_no_page_is_not_found_at_status_listen() {
    let answers = [false, true].map(|weir| {
        let subject = Subject::start(weir, "", PAGES, &[("role.php", ROLE)]);
        let ask = |uri: &str, method: &str| {
            let stream = UnixStream::connect(subject.place.path("status.sock")).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let script = subject.place.path(&uri[1..]);
            let params = [
                ("SCRIPT_FILENAME", script.to_str().unwrap()),
                ("SCRIPT_NAME", uri),
                ("REQUEST_URI", uri),
                ("REQUEST_METHOD", method),
            ];
            let answer = crate::support::ask(stream, &params, "");
            format!("{method} {uri}: {} {}", answer.out, answer.err)
        };
        let uris = ["/missing.php", "/status/x", "/pong", "/a.txt", "/ping"];
        let answers = uris.map(|uri| ["GET", "HEAD", "POST"].map(|method| ask(uri, method)));
        // Where the pool itself listens, it runs.
        let ran = request(&subject.place, "/role.php", "GET", &[], "").out;
        assert!(ran.ends_with("RESPONDER GET "), "{ran}");
        if weir {
            let refused = ask("/role.php", "GET");
            assert!(refused.contains("File not found."), "{refused}");
        }
        answers
    });
    assert_eq!(answers[1], answers[0]);
}
