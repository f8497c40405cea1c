//! Equal requests wait as one, and all of them go on at once.

use weir_test::{Client, Weir, wait_until, weir::request};

use crate::{fresh, runs, said, setup, with};

const HEADERS: &str = "cache = { preset = \"headers\", cache_status = true }\n";

/// Sends this many requests, each over a connection of its own.
fn crowd(weir: &Weir, count: usize, url: &str) -> Vec<Client> {
    let send = |_| {
        let mut client = weir.client();
        client.send(request("GET", url, &[], b""));
        client
    };
    (0..count).map(send).collect()
}

#[test]
fn a_crowd_waits_for_one_script() {
    let weir = setup(4, HEADERS).admin().start();
    let gate = weir.scratch("gate");
    let url = format!("{}&gate={}", fresh("a"), gate.display());
    let clients = crowd(&weir, 60, &url);
    wait_until("the script runs", || runs(&weir, "a") == 1);
    // The others hold no worker.
    assert_eq!(weir.get("/page.php?p=other").expect(200).text(), "run 1");
    std::fs::write(&gate, "").expect("a file");
    let mut joined = 0;
    for mut client in clients {
        let answer = client.response().expect(200);
        assert_eq!(answer.text(), "run 1");
        joined += usize::from(said(&answer).contains("collapsed"));
    }
    assert!(joined > 0, "nobody has waited for the script");
    assert_eq!(runs(&weir, "a"), 1);
}

/// A page that turns out to be somebody's own: all who have waited get their own at once.
#[test]
fn a_crowd_is_released_if_the_page_is_not_for_all() {
    let weir = setup(4, HEADERS).admin().start();
    let gate = weir.scratch("gate");
    let url = with("a", &["Set-Cookie: a=b"]) + &format!("&gate={}", gate.display());
    let clients = crowd(&weir, 20, &url);
    wait_until("the script runs", || runs(&weir, "a") == 1);
    std::fs::write(&gate, "").expect("a file");
    for mut client in clients {
        client.response().expect(200);
    }
    assert_eq!(runs(&weir, "a"), 20);
    // That is remembered: nobody waits for another one.
    std::fs::remove_file(&gate).expect("the file");
    let clients = crowd(&weir, 3, &url);
    wait_until("all of them run", || runs(&weir, "a") == 23);
    std::fs::write(&gate, "").expect("a file");
    for mut client in clients {
        client.response().expect(200);
    }
}

/// Who waits, and whoever asks the application, may leave.
#[test]
fn a_leader_that_leaves_hands_over() {
    let weir = setup(1, HEADERS).admin().start();
    let gate = weir.scratch("gate");
    // The only worker is busy, so that the leader waits in the queue.
    let mut busy = crowd(
        &weir,
        1,
        &format!("/page.php?p=busy&gate={}", gate.display()),
    );
    wait_until("the worker is busy", || runs(&weir, "busy") == 1);
    let leader = crowd(&weir, 1, &fresh("a"));
    wait_until("the leader waits", || weir.busy_and_waiting().1 == 1);
    let mut followers = crowd(&weir, 2, &fresh("a"));
    wait_until("the others wait for it", || {
        let status = weir.status();
        // The busy page, and this one.
        status["cache"]["fetching"] == 2 && status["connections"]["now"] == 4
    });
    drop(leader);
    std::fs::write(&gate, "").expect("a file");
    busy[0].response().expect(200);
    for client in &mut followers {
        assert_eq!(client.response().expect(200).text(), "run 1");
    }
}

/// A request that waits for another one has its own deadline.
#[test]
fn a_follower_has_its_own_deadline() {
    let weir = setup(2, &format!("{HEADERS}timeout_header = \"X-Timeout\"\n")).start();
    let gate = weir.scratch("gate");
    let url = format!("{}&gate={}", fresh("a"), gate.display());
    let mut leader = crowd(&weir, 1, &url);
    wait_until("the script runs", || runs(&weir, "a") == 1);
    let late = weir.request("GET", &url, &[("X-Timeout", "0.2")], b"");
    assert_eq!(late.status, 503);
    std::fs::write(&gate, "").expect("a file");
    assert_eq!(leader[0].response().expect(200).text(), "run 1");
}
