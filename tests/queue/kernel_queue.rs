//! The kernel's queue in front of listeners: `weir watch` on PHP-FPM, nginx and weir, weir's own warnings, and what
//! agent-check tells a HAProxy in front.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use serde_json::Value;

use weir_test::front::{Front, Params, WebServer};
use weir_test::php::Fpm;
use weir_test::process::{descendants, signal, wait};
use weir_test::weir::program;
use weir_test::{Client, Gate, LIMIT, Responder, Setup, Weir, free_address, wait_for, wait_until};

/// Runs `weir watch ARGUMENTS` to its end.
fn watch(arguments: &[&str]) -> Output {
    Command::new(program())
        .arg("watch")
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("weir")
}

/// Looks once at a listener and returns the JSON.
#[track_caller]
fn look(address: &str) -> Value {
    let output = watch(&[address, "--once", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// Looks at a listener that is the only one at its address.
#[track_caller]
fn listener(address: &str) -> Value {
    let mut seen = look(address);
    let listeners = seen["listeners"].as_array_mut().expect("a list");
    assert_eq!(listeners.len(), 1, "{listeners:?}");
    listeners.remove(0)
}

/// Connects without waiting.
fn connect(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => socket,
        Err(error) => panic!("{address}: {error}"),
    }
}

/// A file that no socket buffer can hold.
const LARGE: usize = 16 << 20;

/// A client whose connection takes the only place of `max_connections` = 1, and has a request: idle and silent ones are closed
/// to make room. It asks for `/large`, and does not read it.
fn holds_the_only_place(weir: &Weir) -> Client {
    let mut client = weir.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().expect("an answer").status, 200);
    client
}

/// A stopped process. It continues when this is dropped, also if the test fails.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        signal(pid, Signal::STOP);
        // Until the process has stopped it may still accept.
        let stopped = Stopped(pid);
        wait_until("all of its threads stand still", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ")
                    .is_none_or(|(_, rest)| rest.starts_with('T'))
            })
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

#[test]
fn the_queue_of_php_fpm_is_seen_where_its_own_status_shows_nothing() {
    let setup = Setup::new().file(
        "wait.php",
        "<?php $go = __DIR__ . '/go';\n\
         for ($i = 0; $i < 3000 && !file_exists($go); $i++) { usleep(10000); clearstatcache(); }\n\
         echo 'done';",
    );
    let status = free_address();
    let lines =
        format!("listen.backlog = 2\npm.status_path = /status\npm.status_listen = {status}\n");
    let fpm = Fpm::unix_with(setup.folder(), 1, &lines);
    let address = format!("unix:{}", fpm.socket());
    wait_until("PHP-FPM is idle", || listener(&address)["length"] == 0);

    // Its only child is busy. Three more connections fit into a queue of two, and the fourth is refused.
    let (path, root) = (Path::new(fpm.socket()), setup.root());
    let busy = std::thread::spawn({
        let (path, root) = (path.to_owned(), root.clone());
        move || Front::unix(&path).ask(&Params::get(&root, "/wait.php"), b"")
    });
    let ask = || {
        let params = Params::get(&root, "/status").with("SCRIPT_FILENAME", "/status");
        Front::tcp(status).ask(&params, b"").text().1
    };
    wait_until("its child is busy", || {
        ask().contains("active processes:     1")
    });
    let waiting: Vec<UnixStream> = (0..3)
        .map(|_| UnixStream::connect(path).expect("room in the queue"))
        .collect();

    let seen = listener(&address);
    assert_eq!(
        (&seen["length"], &seen["limit"], &seen["full"]),
        (&3.into(), &2.into(), &true.into()),
        "{seen}"
    );
    assert_eq!(seen["kind"], "unix");
    let processes = seen["processes"].as_array().expect("a list");
    let names: Vec<&str> = processes
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("php-fpm")),
        "{seen}"
    );
    let page = ask();
    assert!(page.contains("listen queue:         0"), "{page}");

    // The same as text, for the plain path.
    let shown = watch(&[fpm.socket(), "--once"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let line = shown
        .lines()
        .find(|line| line.contains("php-fpm"))
        .expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..6], [&address, "3", "2", "3", "-"], "{shown}");
    assert!(shown.contains("is full"), "{shown}");

    drop(waiting);
    fs::write(root.join("go"), "").expect("go");
    assert_eq!(busy.join().expect("an answer").text().1, "done");
    wait_until("the queue is empty", || listener(&address)["length"] == 0);
}

#[test]
fn the_queue_of_nginx_fills_while_its_worker_stands_still() {
    let setup = Setup::new();
    let nginx = WebServer::nginx(setup.folder(), "return 204;", "");
    let address = nginx.address();
    let seen = listener(&address.to_string());
    assert_eq!(
        (&seen["kind"], &seen["limit"]),
        (&"tcp".into(), &511.into()),
        "{seen}"
    );
    let processes = seen["processes"].as_array().expect("a list");
    assert_eq!(processes[0]["name"], "nginx");
    // Master and workers, in any order.
    let stopped: Vec<Stopped> = (processes.iter())
        .map(|process| Stopped::new(process["pid"].as_u64().expect("a pid") as u32))
        .collect();
    assert!(stopped.len() > 1, "{seen}");
    let clients: Vec<OwnedFd> = (0..5).map(|_| connect(address)).collect();
    wait_until("five clients wait", || {
        listener(&address.to_string())["length"] == 5
    });
    drop(stopped);
    wait_until("nginx has taken them", || {
        listener(&address.to_string())["length"] == 0
    });
    drop(clients);
}

#[test]
fn each_socket_of_a_shared_address_is_counted() {
    let weir = Setup::new()
        .server("threads = 3")
        .listen("backlog = 7")
        .start();
    let seen = listener(&weir.address().to_string());
    assert_eq!(
        seen["sockets"].as_array().expect("a list").len(),
        3,
        "{seen}"
    );
    assert_eq!(seen["limit"], 21);
    // Only the port is given. Other addresses of 127.0.0.0/8 may use it too.
    let seen = look(&format!(":{}", weir.address().port()));
    let listeners = seen["listeners"].as_array().expect("a list");
    let ours = weir.address().to_string();
    assert!(
        listeners.iter().any(|l| l["address"] == ours.as_str()),
        "{seen}"
    );
}

#[test]
fn weirs_own_queue_that_runs_over_is_seen_and_told() {
    let weir = Setup::new()
        .server("threads = 1")
        .listen("backlog = 4")
        .start();
    let address = weir.address().to_string();
    let before = look(&address)["tcp_overflows"].as_u64().expect("a number");
    let stopped = Stopped::new(weir.gateway().pid);
    let clients: Vec<OwnedFd> = (0..12).map(|_| connect(weir.address())).collect();
    wait_until("the kernel turns clients away", || {
        let seen = listener(&address);
        seen["full"] == true && seen["drops"].as_u64() > Some(0)
    });
    let seen = look(&address);
    assert_eq!(
        (
            &seen["listeners"][0]["length"],
            &seen["listeners"][0]["limit"]
        ),
        (&5.into(), &4.into())
    );
    assert!(seen["tcp_overflows"].as_u64() > Some(before), "{seen}");
    drop(stopped);
    let said = weir.wait_for_error(&["accept queue of listen.web", "full"]);
    assert!(
        said.contains("of 4 wait") && said.contains("raise backlog"),
        "{said}"
    );
    drop(clients);
}

#[test]
fn a_queue_that_fills_at_max_connections_says_so_once() {
    let weir = Setup::new()
        .file("large", vec![b'x'; LARGE])
        .server("max_connections = 1\nthreads = 1")
        // The queue has room for the connections that tested whether weir accepts. They must not fill it.
        .listen("backlog = 4\nsend_timeout = \"300s\"")
        .start();
    let first = holds_the_only_place(&weir);
    let clients: Vec<OwnedFd> = (0..12).map(|_| connect(weir.address())).collect();
    let said = weir.wait_for_error(&["accept queue of listen.web"]);
    assert!(said.contains("max_connections = 1"), "{said}");
    // weir looks once a second. By then it would have logged the message again.
    let address = weir.address().to_string();
    let again = watch(&[&address, "--count", "3", "--json"]);
    assert_eq!(
        again.stdout.iter().filter(|byte| **byte == b'\n').count(),
        3
    );
    let told = weir.stderr().matches("accept queue of listen.web").count();
    assert_eq!(told, 1, "{}", weir.stderr());
    drop((first, clients));
}

#[test]
fn a_backlog_that_the_kernel_cuts_is_told_at_the_start_with_what_mends_it() {
    let weir = Setup::new().listen("backlog = 1000000").start();
    let said = weir.wait_for_error(&["[listen.web] backlog = 1000000"]);
    assert!(
        said.contains("sysctl -w net.core.somaxconn=1000000"),
        "{said}"
    );
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("somaxconn");
    let seen = listener(&weir.address().to_string());
    assert_eq!(seen["limit_is_somaxconn"], true);
    let sockets = seen["sockets"].as_array().expect("a list");
    assert_eq!(sockets[0]["limit"].to_string(), most.trim());
}

/// This test uses its own network namespace, so no other process changes its settings and counters.
#[test]
fn several_sockets_make_up_for_queues_that_the_kernel_cuts() {
    let setup = Setup::new().server("threads = 2").listen("backlog = 512");
    let (file, out) = (setup.write_toml(), setup.folder().join("seen"));
    let script = format!(
        "echo 128 > /proc/sys/net/core/somaxconn || exit 9\n\
         echo 1 > /proc/sys/net/ipv4/tcp_abort_on_overflow || exit 9\n\
         {weir} check -c {file} 2> {checked} || exit 8\n\
         {weir} serve -c {file} 2> {said} & weir=$!\n\
         for i in $(seq 300); do {weir} watch {address} --once --json > {out} 2> /dev/null && break; sleep 0.1; done\n\
         kill -TERM $weir; wait $weir\n",
        weir = program(),
        file = file.display(),
        said = setup.folder().join("log/stderr").display(),
        checked = setup.folder().join("log/checked").display(),
        out = out.display(),
        address = setup.address(),
    );
    let namespace: &[&str] = match weir_test::is_root() {
        true => &["--net"],
        false => &["--net", "--map-root-user"],
    };
    let status = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", &script])
        .status()
        .expect("unshare");
    let said = fs::read_to_string(setup.folder().join("log/stderr")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{said}");
    let checked = fs::read_to_string(setup.folder().join("log/checked")).unwrap_or_default();
    for told in [&said, &checked] {
        assert!(
            told.contains("sysctl -w net.ipv4.tcp_abort_on_overflow=0"),
            "{told}"
        );
    }
    let seen: Value = serde_json::from_slice(&fs::read(out).expect("seen")).expect("an object");
    let listener = &seen["listeners"][0];
    assert_eq!(listener["limit"], 512, "{seen}");
    assert_eq!(listener["sockets"].as_array().expect("a list").len(), 4);
    assert_eq!(
        (&seen["somaxconn"], &seen["tcp_overflows"]),
        (&128.into(), &0.into())
    );
}

#[test]
fn what_cannot_be_watched_is_told_with_its_reason() {
    let setup = Setup::new();
    let (file, stale) = (
        setup.folder().join("file"),
        setup.folder().join("stale.sock"),
    );
    fs::write(&file, "").expect("a file");
    drop(UnixListener::bind(&stale).expect("a socket"));
    let free = free_address().to_string();
    for (address, code, words) in [
        (free.as_str(), 69, "nothing is listening there"),
        (file.to_str().expect("UTF-8"), 69, "not a socket"),
        (
            stale.to_str().expect("UTF-8"),
            69,
            "nothing is listening there",
        ),
        ("/no/such/socket", 69, "does not exist"),
        ("127.0.0.1", 64, "host:port"),
        ("unix:", 64, "path is missing"),
    ] {
        let output = watch(&[address, "--once"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{address}: {said}");
        assert!(said.contains(words), "{address}: {said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(watch(&[&free, "--interval", "1ms"]).status.code(), Some(64));
}

#[test]
fn a_listener_that_is_waited_for_appears_and_goes() {
    let setup = Setup::new();
    let path = setup.folder().join("late.sock");
    let address = format!("unix:{}", path.display());
    let mut watching = Command::new(program())
        .args(["watch", &address, "--wait", "--json", "--interval", "100ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("weir");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    let mut until = |what: &str, is: &dyn Fn(&Value) -> bool| {
        wait_until(what, || {
            let line = lines.next().expect("a line").expect("text");
            is(&serde_json::from_str(&line).expect("an object"))
        });
    };
    until("it is not there yet", &|seen| {
        seen["absent"][0]["why"] == "this file does not exist"
    });
    let socket = UnixListener::bind(&path).expect("a socket");
    until("it is there", &|seen| {
        seen["listeners"][0]["address"] == address.as_str()
    });
    let client = UnixStream::connect(&path).expect("a client");
    until("a client waits", &|seen| {
        seen["listeners"][0]["length"] == 1
    });
    drop((client, socket));
    until("it is gone", &|seen| {
        seen["listeners"].as_array().is_some_and(Vec::is_empty)
    });
    signal(watching.id(), Signal::INT);
    let status = wait(&mut watching, LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_terminal_is_left_as_it_was() {
    let weir = Setup::new().start();
    // script(1) of util-linux gives it a terminal.
    let line = format!("{} watch {} --interval 100ms", program(), weir.address());
    let output = weir.folder().join("typescript");
    let mut script = Command::new("script")
        .args(["-q", "-f", "-e", "-c", &line])
        .arg(&output)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("script");
    let shown = || fs::read_to_string(&output).unwrap_or_default();
    // The table is drawn, and then drawn again in the same place.
    wait_until("it is drawn again", || {
        shown().matches("\x1b[J").count() > 2
    });
    let watching = wait_for("weir watch", || {
        let all = descendants(script.id());
        all.into_iter().find(|process| process.name == "weir")
    });
    signal(watching.pid, Signal::INT);
    let status = wait(&mut script, LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(0));
    let shown = shown();
    assert!(
        shown.contains("\x1b[?25l") && shown.contains("F\x1b[J"),
        "{shown:?}"
    );
    let cursor = shown.rfind("\x1b[?25h").expect("the cursor is back");
    assert!(
        cursor > shown.rfind("\x1b[J").expect("a table"),
        "{shown:?}"
    );
}

#[test]
fn without_an_address_the_running_weirs_listeners_are_meant() {
    let setup = Setup::new();
    let admin = format!("unix:{}/admin.sock", setup.folder().display());
    let weir = setup.server(&format!("admin = \"{admin}\"")).start();
    let admin_is = format!("--admin={admin}");
    // The kernel accepts connections before weir answers them.
    weir.get("/").expect(404);
    let output = watch(&["--once", "--json", &admin_is]);
    let seen: Value = serde_json::from_slice(&output.stdout).expect("an object");
    let listeners = seen["listeners"].as_array().expect("a list");
    assert_eq!(listeners.len(), 1, "{seen}");
    assert_eq!(listeners[0]["address"], weir.address().to_string().as_str());
    let all = watch(&["--all", "--once", "--json"]);
    let all: Value = serde_json::from_slice(&all.stdout).expect("an object");
    let addresses = all["listeners"].as_array().expect("a list").iter();
    let addresses: Vec<&str> = addresses.filter_map(|l| l["address"].as_str()).collect();
    assert!(addresses.contains(&admin.as_str()), "{addresses:?}");
    drop(weir);
    let nobody = watch(&["--once", &admin_is]);
    assert_eq!(nobody.status.code(), Some(69));
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert!(said.contains("no weir is running"), "{said}");
}

/// A weir whose pool uses this responder, and whose agent reports on that pool.
fn with_agent(pool: &str) -> (Weir, SocketAddr) {
    let agent = free_address();
    let weir = Setup::new()
        .file("index.php", "")
        // A balancer that uses the agent check may need longer than usual to learn of a drain.
        .server("shutdown_timeout = \"120s\"")
        .pool(pool)
        .more(&format!(
            "[listen.agent]\nprotocol = \"agent-check\"\naddress = \"{agent}\"\npool = \"app\""
        ))
        .start();
    (weir, agent)
}

/// The agent's line, or an empty string if it closes the connection without one.
fn told(agent: SocketAddr) -> String {
    let mut stream = TcpStream::connect(agent).expect("an agent");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut line = String::new();
    let _ = stream.read_to_string(&mut line);
    line
}

#[test]
fn haproxy_follows_what_the_agent_tells() {
    let gate = Gate::default();
    let shut = gate.clone();
    let responder = Responder::tcp(move |_, answer| {
        shut.pass();
        answer.page("done");
    });
    let (mut weir, agent) = with_agent(&responder.pool(3));
    let stats = weir.folder().join("haproxy.sock");
    let haproxy = WebServer::haproxy(
        weir.folder(),
        &format!(
            "global\n stats socket {} mode 600 level admin\n\
             defaults\n mode http\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             frontend web\n bind ADDRESS\n default_backend weir\n\
             backend weir\n server one {} maxconn 99 weight 100 agent-check agent-addr {} agent-port {} agent-inter 100ms\n",
            stats.display(),
            weir.address(),
            agent.ip(),
            agent.port(),
        ),
    );
    // One row of `show stat`, by column name.
    let server = |column: &str| {
        let mut socket = UnixStream::connect(&stats).expect("HAProxy's socket");
        socket.write_all(b"show stat\n").expect("asked");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let place = rows[0]
            .iter()
            .position(|name| *name == column)
            .expect(column);
        let row = rows
            .iter()
            .find(|row| row.len() > 1 && row[0] == "weir" && row[1] == "one");
        row.expect("the server's row")[place].to_owned()
    };
    // HAProxy gives its socket its name after it has begun to listen.
    wait_until("HAProxy's socket has its name", || stats.exists());
    wait_until("HAProxy takes the pool's maxconn", || server("slim") == "3");
    assert_eq!(server("weight"), "100");
    // While HAProxy asks once more, it writes an asterisk before the result of the last time.
    let status = server("agent_status");
    assert_eq!(status.trim_start_matches("* "), "L7OK");

    // Four clients: three run in weir, the fourth waits in HAProxy. Then weir drains, and HAProxy sends it no more
    // requests.
    let address = haproxy.address();
    let clients: Vec<std::thread::JoinHandle<u16>> = (0..3)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address).patient(LIMIT);
                client.send("GET /index.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                client.response().status
            })
        })
        .collect();
    wait_until("three are at work", || responder.running() == 3);
    weir.signal(Signal::TERM);
    wait_until("HAProxy knows of the drain", || {
        server("status").starts_with("DRAIN")
    });
    assert_eq!(told(agent), "drain\n");
    gate.open();
    for client in clients {
        assert_eq!(client.join().expect("an answer"), 200);
    }
    assert_eq!(weir.wait_for_end().code(), Some(0));
}

#[test]
fn a_reload_is_no_drain_for_the_balancer() {
    let responder = Responder::tcp(|_, answer| answer.page("done"));
    let (weir, agent) = with_agent(&responder.pool(3));
    let before = weir.gateway();
    weir.signal(Signal::HUP);
    wait_until("another gateway serves, and the first is gone", || {
        assert_eq!(told(agent), "up ready 100% maxconn:3\n");
        !before.runs()
    });
    assert_eq!(told(agent), "up ready 100% maxconn:3\n");
}

#[test]
fn a_pool_that_cannot_start_is_down_for_the_balancer() {
    let (weir, agent) =
        with_agent("runtime = \"command\"\ncommand = [\"/bin/false\"]\nmax_children = 2\n");
    wait_until("the agent says down", || {
        told(agent) == "down#no worker of pool app can start\n"
    });
    drop(weir);
}

#[test]
fn agents_peers_that_hang_or_talk_do_not_keep_others_waiting() {
    let responder = Responder::tcp(|_, answer| answer.page("done"));
    let (weir, agent) = with_agent(&responder.pool(5));
    let line = "up ready 100% maxconn:5\n";
    assert_eq!(told(agent), line);
    // The first peer sends a line as with agent-send. The second sends data without end, which is a mistake.
    let mut talks = TcpStream::connect(agent).expect("an agent");
    talks.write_all(b"status\n").expect("sent");
    let mut said = String::new();
    talks
        .read_to_string(&mut said)
        .expect("the line, then the end");
    assert_eq!(said, line);
    let mut floods = TcpStream::connect(agent).expect("an agent");
    floods.set_write_timeout(Some(LIMIT)).expect("a limit");
    let flood = vec![b'x'; 64 << 10];
    wait_until("a peer that talks for ever is closed", || {
        floods.write_all(&flood).is_err()
    });
    // More connections than weir answers at once. They neither read nor close.
    let hang: Vec<OwnedFd> = (0..100).map(|_| connect(agent)).collect();
    wait_until("others are answered", || told(agent) == line);
    weir.get("/").expect(200);
    drop(hang);
}

#[test]
fn who_may_ask_the_agent_is_said() {
    let agent = free_address();
    let weir = Setup::new()
        .pool("runtime = \"servers\"\nservers = [\"127.0.0.1:9\"]\nqueue.maxconn = 1\n")
        .more(&format!(
            "[listen.agent]\nprotocol = \"agent-check\"\naddress = \"{agent}\"\npool = \"app\"\n\
             allowed_clients = [\"192.0.2.1\"]"
        ))
        .start();
    assert_eq!(told(agent), "");
    weir.wait_for_error(&["127.", "allowed_clients"]);
}

/// Netlink needs no file system, and weir opened the counters before.
#[test]
fn a_gateway_in_a_chroot_watches_its_queues_too() {
    if !weir_test::goes_on_as_root() {
        return;
    }
    let setup = Setup::new().file("large", vec![b'x'; LARGE]);
    let folder = setup.folder().display().to_string();
    let weir = setup
        .server(&format!(
            "chroot = \"{folder}\"\nadmin = \"unix:{folder}/admin.sock\"\nmax_connections = 1\nthreads = 1"
        ))
        // The queue has room for the connections that tested whether weir accepts. They must not fill it.
        .listen("backlog = 4\nsend_timeout = \"300s\"")
        .start();
    let first = holds_the_only_place(&weir);
    let clients: Vec<OwnedFd> = (0..12).map(|_| connect(weir.address())).collect();
    weir.wait_for_error(&["accept queue of listen.web", "max_connections = 1"]);
    let address = weir.address().to_string();
    wait_until("clients are turned away", || {
        listener(&address)["drops"].as_u64() > Some(0)
    });
    drop((first, clients));
}
