//! Active checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

use super::{Load, fpm_again, fpms, plain, pool, pool_status, site, states, tally};
use weir_test::fcgi::{Answer, Request, STDOUT};
use weir_test::{Responder, wait_until};

#[test]
fn a_stopped_fpm_is_found_out_by_its_ping_page() {
    let setup = site();
    let fpms = fpms(&setup, &[2, 2]);
    let lines = "check = \"fastcgi\"\ncheck_interval = \"100ms\"\ncheck_timeout = \"500ms\"\nfall = 2\nrise = 2\n\
                 queue.maxconn = 4";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    wait_until("both were checked", || {
        let servers = pool_status(&weir)["servers"].clone();
        (0..2).all(|server| servers[server]["last_check"]["good"] == true)
    });
    assert_eq!(
        pool_status(&weir)["servers"][0]["last_check"]["what"],
        "status 200"
    );
    // Its socket still takes connections.
    fpms[1].signal(Signal::STOP);
    weir.wait_for_error(&[
        "/b/fpm.sock is down",
        "has failed its checks",
        "no answer within 500 ms",
    ]);
    let seen = tally(&weir, "/who.php", 10);
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["a"]);
    fpms[1].signal(Signal::CONT);
    weir.wait_for_error(&["/b/fpm.sock is up again"]);
    assert_eq!(tally(&weir, "/who.php", 10).len(), 2);
}

#[test]
fn a_busy_fpm_is_not_taken_for_a_dead_one() {
    let setup = site();
    let fpms = fpms(&setup, &[1]);
    // A ping waits behind scripts for longer than a check may take.
    let lines = "check = \"fastcgi\"\ncheck_interval = \"50ms\"\ncheck_timeout = \"300ms\"\nfall = 1\nqueue.maxconn = 3";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    let load = Load::start(&weir, 6, "/sleep.php?ms=200");
    let checks = |good: fn(&serde_json::Value) -> bool| {
        let status = pool_status(&weir);
        good(&status["servers"][0]["last_check"])
    };
    wait_until("a check was not answered in time", || {
        checks(|check| check["good"].is_null() && check["what"].is_string())
    });
    assert_eq!(states(&weir), ["up"]);
    let seen = load.end();
    assert!(seen.iter().all(|(status, _)| *status == 200), "{seen:?}");
}

#[test]
fn kept_connections_leave_a_worker_for_the_check() {
    let setup = site();
    let fpms = fpms(&setup, &[2]);
    let lines = "keep_conn = true\ncheck = \"fastcgi\"\ncheck_interval = \"100ms\"\ncheck_timeout = \"1s\"\nfall = 1\n\
                 queue.maxconn = 2";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    let load = Load::start(&weir, 4, "/sleep.php?ms=20");
    wait_until("both workers have a connection", || {
        pool_status(&weir)["workers"]["most_busy"] == 2
    });
    let seen = load.end();
    assert!(seen.iter().all(|(status, _)| *status == 200), "{seen:?}");
    // From here on there are no requests, and the connections stay open.
    let mut times = Vec::new();
    wait_until("it was checked again and again", || {
        let check = pool_status(&weir)["servers"][0]["last_check"].clone();
        assert_ne!(check["good"], false, "{check}");
        if times.last() != Some(&check["time"]) {
            times.push(check["time"].clone());
        }
        times.len() > 5
    });
    assert_eq!(states(&weir), ["up"]);
}

#[test]
fn a_tcp_check_sees_who_listens() {
    let setup = site();
    let mut fpms = fpms(&setup, &[1, 1]);
    let lines = "check = \"tcp\"\ncheck_interval = \"100ms\"\nrise = 2\nqueue.maxconn = 2";
    let servers = plain(&fpms);
    drop(fpms.remove(1));
    let weir = setup.pool(&pool(&servers, lines)).start();
    // The first check is enough.
    wait_until("it is down", || states(&weir) == ["up", "down"]);
    assert_eq!(
        tally(&weir, "/who.php", 5).keys().collect::<Vec<_>>(),
        ["a"]
    );
    let second = fpm_again(&weir, 'b', 1);
    wait_until("it is up", || states(&weir) == ["up", "up"]);
    assert_eq!(tally(&weir, "/who.php", 10).len(), 2);
    drop(second);
}

type Handler = fn(&Request, &mut Answer);

#[test]
fn whatever_a_server_says_to_a_check_is_survived() {
    let handlers: [(&str, Handler); 7] = [
        ("does not speak FastCGI", |_, answer| {
            answer.raw([0x47; 300])
        }),
        ("no answer within", |_, answer| {
            answer.wait_for_close();
        }),
        ("closed the connection", |_, answer| answer.hang_up()),
        ("status 404", |_, answer| {
            answer.at_once("Status: 404 Not Found\r\n\r\n")
        }),
        ("has no head", |_, answer| answer.end()),
        ("longer than", |_, answer| {
            while !answer.gone() {
                answer.stdout("a: b\r\n".repeat(1_000));
            }
        }),
        ("wrong", |_, answer| {
            answer.at_once("no head at all\r\n\r\n")
        }),
    ];
    let setup = site();
    let seen = Arc::new(AtomicUsize::new(0));
    let asked = seen.clone();
    let good = Responder::tcp(move |request, answer| {
        if request.param("SCRIPT_NAME") == "/fpm-ping" {
            assert_eq!(request.param("SCRIPT_FILENAME"), "/fpm-ping");
            assert!(!request.keep);
            asked.fetch_add(1, Ordering::SeqCst);
            // A check needs only the head.
            answer.stdout("Status: 302 Found\r\nLocation: /\r\n\r\n");
            while !answer.gone() {
                answer.record(STDOUT, &[b'x'; 1024]);
            }
            return;
        }
        answer.page("good");
    });
    let bad: Vec<Responder> = handlers
        .iter()
        .map(|(_, handler)| Responder::tcp(*handler))
        .collect();
    let mut servers: Vec<String> = bad.iter().map(Responder::server).collect();
    servers.push(good.server());
    let servers: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    let lines = "check = \"fastcgi\"\ncheck_path = \"/fpm-ping\"\ncheck_interval = \"200ms\"\n\
                 check_timeout = \"700ms\"\nqueue.maxconn = 16";
    let weir = setup.pool(&pool(&servers, lines)).start();
    let expected: Vec<&str> = std::iter::repeat_n("down", handlers.len())
        .chain(["up"])
        .collect();
    wait_until("all were checked", || states(&weir) == expected);
    let said = pool_status(&weir);
    for (index, (what, _)) in handlers.iter().enumerate() {
        let check = &said["servers"][index]["last_check"];
        let told = check["what"].as_str().expect("what was wrong");
        assert!(told.contains(what), "{told} instead of {what}");
        weir.wait_for_error(&[&bad[index].server(), what]);
    }
    assert_eq!(tally(&weir, "/who.php", 5)["good"], 5);
    let before = seen.load(Ordering::SeqCst);
    wait_until("it is checked again", || {
        seen.load(Ordering::SeqCst) > before + 2
    });
}
