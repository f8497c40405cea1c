//! Expired pages are sent while one request renews them, while the pool is full, and while the application fails.

use weir_test::{Weir, wait_until, weir::request};

use crate::{runs, said, setup, with};

/// A page that has expired when it is stored, and grace.
const GRACE: &str = "cache = { preset = \"headers\", cache_status = true, grace = \"1h\", stale_wait = \"200ms\" }\n";

fn started() -> Weir {
    setup(1, GRACE).admin().start()
}

#[test]
fn an_expired_page_is_sent_while_it_is_renewed() {
    let weir = started();
    let url = with(
        "a",
        &["Cache-Control: max-age=1, stale-while-revalidate=600"],
    );
    weir.get(&url).expect(200);
    let stale = weir.get_until(&url, |answer| said(answer).contains("detail=renewed"));
    assert_eq!(stale.text(), "run 1");
    let renewed = weir.get_until(&url, |answer| answer.text() == "run 2");
    assert!(
        said(&renewed).starts_with("weir; hit"),
        "{}",
        said(&renewed)
    );
    // Renewals are not requests of clients.
    assert!(
        weir.read("log/access.log")
            .lines()
            .all(|line| line.contains("\"status\":200"))
    );
}

#[test]
fn an_expired_page_is_sent_if_the_application_fails() {
    let weir = started();
    let (dies, url) = (
        weir.scratch("dies"),
        with("a", &["Cache-Control: max-age=1"]),
    );
    let url = format!("{url}&dies={}", dies.display());
    weir.get(&url).expect(200);
    std::fs::write(&dies, "").expect("a file");
    let stale = weir.get_until(&url, |answer| said(answer).contains("detail=failed"));
    assert_eq!((stale.status, stale.text()), (200, "run 1".to_owned()));
    assert_eq!(weir.logged(&url)["cache"], "miss");
    std::fs::remove_file(&dies).expect("the file");
    weir.get_until(&url, |answer| {
        answer.status == 200 && answer.text() != "run 1"
    });
}

/// The only worker is busy for long: who wants the expired page gets it at once.
#[test]
fn an_expired_page_is_sent_while_the_pool_is_full() {
    let weir = started();
    let gate = weir.scratch("gate");
    let url = with("a", &["Cache-Control: max-age=1"]);
    weir.get(&url).expect(200);
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = weir.client();
        let busy = format!("/page.php?p=busy&gate={}&{number}", gate.display());
        client.send(request("GET", &busy, &[], b""));
        clients.push(client);
    }
    wait_until("the worker is busy", || runs(&weir, "busy") == 1);
    wait_until("the others have waited for long", || {
        weir.status()["pools"][0]["queue"]["oldest_wait"].as_f64() > Some(1.5)
    });
    let stale = weir.get_until(&url, |answer| said(answer).contains("detail=busy"));
    assert_eq!(stale.text(), "run 1");
    std::fs::write(&gate, "").expect("a file");
    for client in &mut clients {
        client.response().expect(200);
    }
    weir.get_until(&url, |answer| answer.text() == "run 2");
}
