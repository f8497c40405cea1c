//! The number of reactors follows the load (`threads = 0`), and no connection is lost when it changes.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use weir_test::{Client, Responder, Setup, Weir, goes_on_as_root, wait_until};

const GET: &str = "GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests that a client of [`Load`] sends at once.
const AT_ONCE: usize = 20;

/// A request with a long head. weir needs much more time to read it than a client to send it, so that weir has too little
/// time even while other tests run.
fn long_request() -> String {
    let fields = (0..80).map(|n| format!("X-Field-{n}: {}\r\n", "value ".repeat(10)));
    format!(
        "GET /text.txt HTTP/1.1\r\nHost: a\r\n{}\r\n",
        fields.collect::<String>()
    )
}

/// A file that no socket buffer can hold.
const LARGE: usize = 16 << 20;

fn weir(server: &str) -> Weir {
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("large", vec![b'x'; LARGE]);
    setup.admin().server(server).start()
}

/// How many reactors take connections.
fn running(weir: &Weir) -> u64 {
    let running = &weir.status()["reactors"]["running"];
    running.as_u64().expect("a number")
}

/// The load must not take the processor from the reactors, whose CPU time counts. Some containers forbid this; then only a busy machine
/// makes a difference.
fn put_first(weir: &Weir) {
    let _ = Command::new("chrt")
        .args(["--all-tasks", "--fifo", "--pid", "1"])
        .arg(weir.gateway().pid.to_string())
        .status();
}

/// A second reactor comes only where a processor is idle, so no two of these tests run at once. `setup/test.sh` runs them when no other
/// test program does.
static QUIET: Mutex<()> = Mutex::new(());

fn quiet() -> MutexGuard<'static, ()> {
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_one_processor() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
}

/// Clients that keep weir busy until they are told to stop. Each has one connection and checks every answer.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Client>>,
}

impl Load {
    fn start(weir: &Weir, clients: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (mut client, stop) = (weir.client(), stop.clone());
            std::thread::spawn(move || {
                let requests = long_request().repeat(AT_ONCE);
                while !stop.load(Relaxed) {
                    client.send(&requests);
                    for _ in 0..AT_ONCE {
                        let answer = client.response();
                        assert_eq!((answer.status, &answer.body[..]), (200, &b"a text"[..]));
                    }
                }
                client
            })
        };
        Load {
            clients: (0..clients).map(client).collect(),
            stop,
        }
    }

    /// Stops it. Returns the clients, whose connections are open.
    fn stop(self) -> Vec<Client> {
        self.stop.store(true, Relaxed);
        let clients = self.clients.into_iter();
        clients
            .map(|client| client.join().expect("every request was answered"))
            .collect()
    }
}

#[test]
fn a_second_reactor_takes_connections_under_load_and_goes_when_there_is_none() {
    if has_one_processor() {
        return;
    }
    if !goes_on_as_root() {
        return;
    }
    let _quiet = quiet();
    let weir = weir("");
    put_first(&weir);
    let mut idle: Vec<Client> = (0..4).map(|_| weir.client()).collect();
    for client in &mut idle {
        client.send(GET).response().expect(200);
    }
    assert_eq!(running(&weir), 1);
    let load = Load::start(&weir, 8);
    wait_until("a second reactor takes connections", || running(&weir) >= 2);
    weir.wait_for_error(&["reactors accept connections now", "were busy"]);
    wait_until("kept connections have moved to it", || {
        let reactors = &weir.status()["reactors"];
        let second = &reactors["busy"][1]["share"];
        reactors["moved"].as_u64() > Some(0) && second.as_f64() > Some(0.1)
    });
    // The connections are spread over all reactors, and end after these were stopped.
    let mut large: Vec<Client> = (0..4).map(|_| weir.client()).collect();
    for client in &mut large {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let mut clients = load.stop();
    clients.extend(idle);
    wait_until("one reactor is enough", || running(&weir) == 1);
    weir.wait_for_error(&["reactors accept connections now", "were busy only"]);
    // All connections are still there.
    for client in &mut clients {
        client.send(GET).response().expect(200);
    }
    for client in &mut large {
        let answer = client.response();
        assert!(answer.whole && answer.body.len() == LARGE);
        client.send(GET).response().expect(200);
    }
    let (_, metrics) = weir.admin_get("/metrics");
    for line in [
        "weir_reactors 1",
        "weir_reactor_busy_seconds_total{reactor=\"1\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn a_reload_while_two_reactors_run_loses_no_request() {
    if has_one_processor() {
        return;
    }
    if !goes_on_as_root() {
        return;
    }
    let _quiet = quiet();
    let mut weir = weir("");
    put_first(&weir);
    let load = Load::start(&weir, 8);
    wait_until("a second reactor takes connections", || running(&weir) >= 2);
    // A busy gateway closes these connections after their next answer when it drains, so they end here.
    drop(load.stop());
    let (stop, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let short = |_| {
        let (stop, answered, address) = (stop.clone(), answered.clone(), weir.address());
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                let mut client = Client::connect(address);
                client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                client.response().expect(200);
                answered.fetch_add(1, Relaxed);
            }
        })
    };
    let clients: Vec<_> = (0..4).map(short).collect();
    for _ in 0..2 {
        let before = answered.load(Relaxed);
        assert!(weir.command(&["reload"]).status().expect("weir").success());
        wait_until("requests are answered afterwards", || {
            answered.load(Relaxed) > before + 20
        });
    }
    stop.store(true, Relaxed);
    for client in clients {
        client.join().expect("every request was answered");
    }
    weir.stop();
}

#[test]
fn a_number_that_is_configured_stays() {
    let weir = weir("threads = 3");
    let reactors = &weir.status()["reactors"];
    assert_eq!(
        (reactors["running"].as_u64(), reactors["most"].as_u64()),
        (Some(3), Some(3))
    );
    // It does not matter which reactors get the connections, or how much of the processor other tests leave.
    let load = Load::start(&weir, 6);
    wait_until("some of them work", || {
        let busy = weir.status()["reactors"]["busy"].clone();
        let mut busy = busy.as_array().expect("a list").iter();
        busy.any(|one| one["share"].as_f64() > Some(0.0))
    });
    assert_eq!(running(&weir), 3);
    drop(load.stop());
    assert_eq!(weir.status()["reactors"]["moved"].as_u64(), Some(0));
}

/// The kernel knows whether a path-info is the name of a file, too: no other thread has to wait for a disk.
#[test]
fn a_path_info_needs_no_other_thread() {
    let setup = Setup::new().file("run.php", "").server("threads = 1");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.param("PATH_TRANSLATED"));
    });
    let weir = setup.pool(&responder.pool(1)).start();
    let root = weir.root();
    assert!(root.join("run.php").exists());
    assert_eq!(weir.get("/run.php").expect(200).text(), "");
    let tasks = format!("/proc/{}/task", weir.gateway().pid);
    let threads = || std::fs::read_dir(&tasks).expect("a process").count();
    let before = threads();
    for name in (0..20).map(|n| format!("product-{n}")) {
        let file = root.join(&name);
        // From now on the kernel remembers that it is not there.
        assert!(!file.exists());
        let page = weir.get(&format!("/run.php/{name}")).expect(200);
        assert_eq!(page.text(), file.display().to_string());
    }
    assert!(threads() <= before, "{} threads, not {before}", threads());
    std::fs::write(root.join("product-0"), "").expect("a file");
    assert_eq!(weir.get("/run.php/product-0").expect(200).text(), "");
}
