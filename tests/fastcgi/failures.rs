//! `protocol = "fastcgi"`: what a web server in front gets if a worker fails.

use weir_test::front::Behind;
use weir_test::{Responder, Setup};

/// What a worker may do wrong, and what the access log says about it.
const FAILURES: [(&str, u16, &str); 4] = [
    ("dies", 502, "worker_died"),
    ("nonsense", 502, "bad_response"),
    ("no-head", 502, "bad_response"),
    ("silent", 504, "terminated"),
];

fn failing(setup: &Setup) -> Responder {
    Responder::unix(setup.folder(), |request, answer| {
        match request.param("QUERY_STRING") {
            "dies" => {}
            "nonsense" => answer.raw("this is no record at all"),
            "no-head" => {
                answer.stdout("<html>");
                answer.end();
            }
            "silent" => {
                answer.wait_for_close();
            }
            "cut" => answer.stdout([b"A: b\r\n\r\n".to_vec(), vec![b'x'; 2_000_000]].concat()),
            other => panic!("{other}"),
        }
    })
}

/// Like a child of PHP-FPM that has died: the web server tells its clients in its own way.
#[test]
fn where_a_worker_fails_the_web_server_is_left_without_an_end() {
    let setup = Setup::new();
    let responder = failing(&setup);
    let pool = format!("{}read_timeout = \"1s\"\nretries = 0\n", responder.pool(2));
    let behind = Behind::start(setup, &pool, "");
    for (what, status, reason) in FAILURES {
        let target = format!("/run.php?{what}");
        let mut front = behind.front();
        let answered = front.ask(&behind.params(&target), b"");
        assert_eq!(
            (answered.ended, answered.stdout.len()),
            (None, 0),
            "{what}: {answered:?}"
        );
        let line = behind.weir.logged(&target);
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["reason"], reason, "{line}");
        behind.weir.wait_for_error(&[reason]);
    }
}

#[test]
fn what_goes_wrong_at_a_worker_has_its_status() {
    let setup = Setup::new();
    let responder = failing(&setup);
    let pool = format!("{}read_timeout = \"1s\"\nretries = 0\n", responder.pool(2));
    let lines = "on_worker_failure = \"answer\"\nproxy_status = true";
    let behind = Behind::start(setup, &pool, lines);
    for (what, status, reason) in FAILURES {
        let target = format!("/run.php?{what}");
        let (head, _) = behind.front().ask(&behind.params(&target), b"").text();
        assert!(
            head.starts_with(&format!("Status: {status} ")),
            "{what}: {head}"
        );
        assert!(
            head.contains(&format!("details=\"{reason}\"")),
            "{what}: {head}"
        );
        assert_eq!(behind.weir.logged(&target)["reason"], reason);
    }
    // weir does not end half an answer as if it were complete.
    let answered = behind.front().ask(&behind.params("/run.php?cut"), b"");
    assert_eq!(answered.ended, None);
    assert_eq!(answered.stdout.len(), 2_000_008);
    assert_eq!(behind.weir.logged("/run.php?cut")["reason"], "truncated");
}
