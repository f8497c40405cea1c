//! Scripts that call their own site through weir when no worker is left for the call.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use super::{fixed, wait_for_workers, workers};
use weir_test::process::{Process, signal};
use weir_test::sidecar::Outward;
use weir_test::{LIMIT, Setup, Weir, free_address, wait_until, weir};

/// Calls `$_GET['path']` of its own site over `$_GET['at']` and prints the response. `depth` is the number of nested
/// calls.
const CALLS: &str = "<?php
    $depth = (int)($_GET['depth'] ?? 1);
    if (isset($_GET['came'])) {
        touch($_GET['came'] . '.' . getmypid());
        while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    }
    $at = $_GET['at'];
    $at = str_starts_with($at, 'egress:') ? 'unix://' . getenv('WEIR_EGRESS_SOCKET') : $at;
    $before = str_starts_with($_GET['at'], 'egress:') ? substr($_GET['at'], 7) : '';
    $path = $before . ($depth > 1 ? '/calls.php?depth=' . ($depth - 1) . '&at=' . urlencode($_GET['at']) : '/pid.php');
    if (isset($_GET['stays'])) {
        require 'stay.php';
    }
    $socket = stream_socket_client($at, $no, $text, 60);
    fwrite($socket, \"GET $path HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n\");
    stream_set_timeout($socket, 60);
    $answer = stream_get_contents($socket);
    echo strtok($answer, \"\\r\"), ' ', strpos($answer, 'self_call') ? 'self_call' : '';
";

fn site(workers: usize, lines: &str) -> Setup {
    let lines = format!("queue.timeout = \"50s\"\n{lines}");
    let setup = fixed(workers, &lines).file("calls.php", CALLS).file(
        "headers.php",
        "<?php echo $_SERVER['HTTP_WEIR_CALL'] ?? '';",
    );
    setup.admin()
}

/// Starts this many callers at once. All have a worker before the first call. Returns the responses to their calls.
fn call_at_once(weir: &Weir, at: &str, callers: usize, depth: usize) -> Vec<String> {
    let file = |name: &str| weir.scratch(name).display().to_string();
    let _ = std::fs::remove_file(file("gate"));
    let path = format!(
        "/calls.php?at={at}&depth={depth}&gate={}&came={}{depth}",
        file("gate"),
        file("came")
    );
    let thread = |_| {
        let (path, mut client) = (path.clone(), weir.client().patient(LIMIT * 2));
        std::thread::spawn(move || {
            client.send(weir::request("GET", &path, &[], b""));
            client.response().expect(200).text()
        })
    };
    let threads: Vec<_> = (0..callers).map(thread).collect();
    wait_until("all have a worker", || {
        super::count(weir, &format!("came{depth}.")) == callers
    });
    std::fs::write(file("gate"), "").expect("the gate");
    let answers = threads.into_iter();
    answers
        .map(|thread| thread.join().expect("an answer"))
        .collect()
}

/// Removes what earlier calls have left.
fn clear(weir: &Weir) {
    let files = std::fs::read_dir(weir.folder().join("spool")).expect("the spool");
    for file in files.flatten() {
        let _ = std::fs::remove_file(file.path());
    }
}

#[test]
fn callers_of_their_own_site_that_hold_all_workers_are_served_by_one_beside_them() {
    let setup = site(4, "self_call_workers = 1\n").listen("");
    let socket = setup.folder().join("own.sock");
    let more = format!(
        "[listen.own]\naddress = \"unix:{}\"\nmode = \"0666\"\n",
        socket.display()
    );
    let weir = setup.more(&more).start();
    wait_for_workers(&weir, 4);
    for at in [
        format!("tcp://{}", weir.address()),
        format!("unix://{}", socket.display()),
    ] {
        // A call that waits for too long gets 503.
        let answers = call_at_once(&weir, &at, 4, 1);
        assert!(
            answers
                .iter()
                .all(|answer| answer.starts_with("HTTP/1.1 200")),
            "{at}: {answers:?}"
        );
        clear(&weir);
    }
    // The additional worker ends when it is not needed any more.
    wait_for_workers(&weir, 4);
}

/// The process of a script that includes this does not end when it is told to: the end of an extension (MSHUTDOWN) is pause(2).
const STAY: &str = "<?php
    $c = FFI::cdef('typedef int (*function)(void);
        extern char module_registry; function *zend_hash_str_find(char *, const char *, size_t); int pause(void);');
    $found = $c->zend_hash_str_find(FFI::addr($c->module_registry), 'json', 4);
    $module = $c->cast('function **', $found)[0];
    // The eighth word of a zend_module_entry.
    $module[7] = $c->pause;
";

#[test]
fn a_call_waits_for_the_place_of_a_worker_that_ends() {
    let lines = "self_call_workers = 1\nphp_define = { \"ffi.enable\" = \"1\" }\n";
    let weir = site(2, lines)
        .file("stay.php", STAY)
        .file("pid.php", "<?php require 'stay.php'; echo getmypid();")
        .start();
    wait_for_workers(&weir, 2);
    let at = format!("tcp://{}", weir.address());
    let is_served = |answers: Vec<String>| {
        let is_good = |answer: &String| answer.starts_with("HTTP/1.1 200");
        assert!(answers.iter().all(is_good), "{answers:?}");
    };
    is_served(call_at_once(&weir, &format!("{at}&stays=1"), 2, 1));
    wait_until("one of the three ends, and stays", || {
        super::pool_status(&weir)["workers"]["leaving"] == 1
    });
    clear(&weir);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| call_at_once(&weir, &at, 2, 1));
        // There is no room for one more worker yet.
        wait_until("both calls wait", || {
            super::pool_status(&weir)["queue"]["waiting_own_calls"] == 2
        });
        let calls_now =
            |worker: &Process| super::count(&weir, &format!("came1.{}", worker.pid)) == 1;
        for worker in workers(&weir).iter().filter(|worker| !calls_now(worker)) {
            signal(worker.pid, Signal::KILL);
        }
        is_served(calls.join().expect("answers"));
    });
}

#[test]
fn a_call_within_a_call_that_found_a_worker_at_once_is_served_too() {
    let weir = site(2, "self_call_workers = 1\n").start();
    wait_for_workers(&weir, 2);
    let at = format!("tcp://{}", weir.address());
    // The first call takes the second worker without waiting, and calls once more.
    let answers = call_at_once(&weir, &at, 1, 2);
    assert!(answers[0].starts_with("HTTP/1.1 200"), "{answers:?}");
}

#[test]
fn a_call_that_no_worker_can_ever_serve_is_refused_at_once_and_the_reason_told() {
    for (beyond, depth) in [(0, 1), (1, 3), (0, 3)] {
        let weir = site(2, &format!("self_call_workers = {beyond}\n")).start();
        wait_for_workers(&weir, 2);
        let began = std::time::Instant::now();
        let at = format!("tcp://{}", weir.address());
        call_at_once(&weir, &at, 2, depth);
        assert!(
            began.elapsed() < Duration::from_secs(45),
            "{beyond} {depth}"
        );
        weir.wait_for_error(&["self_call", "self_call_workers", "every worker"]);
        wait_for_workers(&weir, 2);
        assert_eq!(workers(&weir).len(), 2);
    }
}

#[test]
fn calls_of_workers_go_before_what_others_ask() {
    let weir = site(2, "").start();
    wait_for_workers(&weir, 2);
    let at = format!("tcp://{}", weir.address());
    // One caller, one worker that needs some time, and many requests that wait.
    let file = |name: &str| weir.scratch(name).display().to_string();
    let long = super::Gated::start(&weir, "long", 1);
    wait_until("it runs", || super::count(&weir, "came-long") == 1);
    let caller = {
        let path = format!(
            "/calls.php?at={at}&gate={}&came={}",
            file("go"),
            file("caller")
        );
        let mut client = weir.client().patient(LIMIT);
        std::thread::spawn(move || {
            client.send(weir::request("GET", &path, &[], b""));
            client.response().expect(200).text()
        })
    };
    wait_until("it runs", || super::count(&weir, "caller.") == 1);
    let others = super::Gated::start(&weir, "others", 6);
    let waiting = || super::pool_status(&weir)["queue"]["waiting"].as_u64();
    wait_until("the others wait", || waiting() == Some(6));
    std::fs::write(file("go"), "").expect("the gate");
    wait_until("the call waits", || waiting() == Some(7));
    // The call is served first as soon as weir knows which script made it.
    let known = || super::pool_status(&weir)["queue"]["waiting_own_calls"].as_u64();
    wait_until("its worker is found", || known() == Some(1));
    // The other requests would hold both workers until their gate opens.
    assert_eq!(long.open(), [200]);
    let said = caller.join().expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(others.open(), [200; 6]);
}

/// Through `[egress]` the request comes over a connection that weir itself made.
#[test]
fn callers_of_their_own_site_through_egress_are_known() {
    let setup = site(2, "self_call_workers = 1\n");
    let at = format!("egress:/{}", setup.address());
    let outward = Outward::new().allow(&format!("\"http://{}\"", setup.address()));
    let weir = call_through_egress(setup, outward, &at);
    // An unknown token has no effect, and no script sees it.
    let answer = weir.request("GET", "/headers.php", &[("Weir-Call", "0")], b"");
    assert_eq!(answer.expect(200).text(), "");
}

/// Through `[egress]` and a proxy in front the request comes over one of the proxy's connections.
#[test]
fn callers_of_their_own_site_through_egress_are_known_behind_a_proxy() {
    let proxy = std::net::TcpListener::bind(free_address()).expect("a listener");
    let front = proxy.local_addr().expect("an address");
    let setup = site(2, "self_call_workers = 1\n").site("hosts = [\"shop.test\", \"localhost\"]");
    let site = setup.address();
    std::thread::spawn(move || {
        while let Ok((near, _)) = proxy.accept() {
            let Ok(far) = TcpStream::connect(site) else {
                return;
            };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let mut from = from.try_clone().expect("a descriptor");
                let mut to = to.try_clone().expect("a descriptor");
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    let outward = Outward::new().plain_name("shop.test", front);
    let at = format!("egress:/shop.test:{}", front.port());
    call_through_egress(setup, outward, &at);
    // Ends the thread that acts as the proxy.
    let _ = TcpStream::connect(front);
}

/// Two callers hold both workers. An additional worker answers their calls.
fn call_through_egress(setup: Setup, outward: Outward, at: &str) -> Weir {
    let socket = setup.folder().join("egress.sock");
    let sidecar = outward
        .lines(&format!("socket = \"unix:{}\"", socket.display()))
        .start_in(setup);
    wait_for_workers(&sidecar.weir, 2);
    let answers = call_at_once(&sidecar.weir, at, 2, 1);
    assert!(
        answers
            .iter()
            .all(|answer| answer.starts_with("HTTP/1.1 200")),
        "{answers:?}"
    );
    wait_for_workers(&sidecar.weir, 2);
    sidecar.weir
}
