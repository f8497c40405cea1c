//! The sockets that take calls: the manager binds them, keeps them during reloads, and removes them.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use weir_test::oddity::Oddity;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::{LIMIT, Setup, free_address, process, wait_until};

fn origin() -> Oddity {
    Oddity::plain(|talk| talk.answer_all("hello"))
}

fn path(origin: &Oddity) -> String {
    format!("/api.test:{}/", origin.address().port())
}

/// Makes a call over a unix socket and returns its whole answer.
fn over_unix(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("weir takes calls there");
    let request = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Changes weir.toml and makes weir read it again.
fn reload(sidecar: &Sidecar, change: impl FnOnce(String) -> String) {
    let file = sidecar.file("weir.toml");
    let text = change(fs::read_to_string(&file).expect("weir.toml"));
    fs::write(&file, text).expect("weir.toml");
    let before = sidecar.weir.gateway().pid;
    sidecar.weir.signal(Signal::HUP);
    wait_until("another gateway serves", || {
        let said = sidecar.weir.stderr();
        assert!(!said.contains("nothing was changed"), "{said}");
        sidecar.weir.gateway().pid != before
    });
}

#[test]
fn a_unix_socket_is_as_it_was_asked_for_stays_over_a_reload_and_is_removed() {
    let setup = Setup::new();
    let folder = setup.folder().join("sockets");
    fs::create_dir(&folder).expect("mkdir");
    let socket = folder.join("egress");
    // A killed weir left this socket behind.
    drop(UnixListener::bind(&socket).expect("bind"));
    let origin = origin();
    let mut sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .listen(&format!("unix:{}", socket.display()))
        .lines("mode = \"0622\"")
        .start_in(setup);
    // weir binds it after the address for which the test waited.
    wait_until("weir listens there", || {
        UnixStream::connect(&socket).is_ok()
    });
    let metadata = fs::symlink_metadata(&socket).expect("a socket");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o622);
    assert!(over_unix(&socket, &path(&origin)).ends_with("hello"));

    reload(&sidecar, |text| text.replace("0622", "0666"));
    let after = fs::symlink_metadata(&socket).expect("a socket");
    assert_eq!(after.ino(), metadata.ino(), "it is the same");
    assert_eq!(after.permissions().mode() & 0o777, 0o666);
    assert!(over_unix(&socket, &path(&origin)).ends_with("hello"));

    reload(&sidecar, |text| {
        text.replace(&format!(", \"unix:{}\"", socket.display()), "")
    });
    wait_until("its name is gone", || !socket.exists());
    sidecar.get(&path(&origin)).expect(200);
    sidecar.weir.stop();
}

#[test]
fn nobody_is_refused_while_weir_reloads_or_its_gateway_dies() {
    let origin = origin();
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start();
    let over = Arc::new(AtomicBool::new(false));
    let (address, ended) = (sidecar.address, over.clone());
    let callers = std::thread::spawn(move || {
        let mut count = 0;
        while !ended.load(Ordering::SeqCst) {
            TcpStream::connect(address).expect("a program is listening");
            count += 1;
        }
        count
    });
    reload(&sidecar, |text| text + "\n# as before\n");
    sidecar.get(&path(&origin)).expect(200);
    let gateway = sidecar.weir.gateway();
    process::signal(gateway.pid, Signal::KILL);
    sidecar.weir.wait_for_error(&["accepts connections again"]);
    sidecar.get(&path(&origin)).expect(200);
    over.store(true, Ordering::SeqCst);
    assert!(callers.join().expect("nobody was refused") > 0);
}

/// New connections all the time while weir reloads: each is answered, including one that an old gateway had accepted
/// but not yet read from, and one whose request comes a little later.
#[test]
fn no_caller_is_dropped_by_reloads() {
    const RELOADS: usize = 6;
    let origin = origin();
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .lines("threads = 2")
        .start();
    let over = AtomicBool::new(false);
    let (address, path) = (sidecar.address, path(&origin));
    let answered = |pause: Duration| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        std::thread::sleep(pause);
        let asked = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
        stream.write_all(asked.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.ends_with("hello").then_some(())
    };
    let call = |pause: Duration| {
        let (mut calls, mut dropped) = (0, 0);
        while !over.load(Ordering::SeqCst) {
            calls += 1;
            dropped += usize::from(answered(pause).is_none());
        }
        (calls, dropped)
    };
    std::thread::scope(|scope| {
        let pauses = [0, 0, 1, 20, 100].map(Duration::from_millis);
        let callers = pauses.map(|pause| scope.spawn(move || call(pause)));
        for number in 0..RELOADS {
            reload(&sidecar, |text| text + &format!("\n# {number}\n"));
        }
        over.store(true, Ordering::SeqCst);
        for caller in callers {
            let (calls, dropped) = caller.join().expect("no panic");
            assert!(calls > 0 && dropped == 0, "{dropped} of {calls}");
        }
    });
}

/// A reload may close a kept connection, but not while a request has already arrived on it.
#[test]
fn a_kept_connection_is_told_by_its_next_answer_that_weir_reloads() {
    let origin = origin();
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start();
    let mut caller = sidecar.client();
    let asked = format!("GET {} HTTP/1.1\r\nHost: weir\r\n\r\n", path(&origin));
    caller.send(&asked);
    assert_eq!(caller.response().expect(200).header("connection"), None);
    let old = sidecar.weir.gateway();
    std::thread::scope(|scope| {
        // This connection gets requests again and again, so it is never idle for long.
        let asking = scope.spawn(|| {
            wait_until("it is told", || {
                caller.send(&asked);
                let answer = caller.response().expect(200);
                answer.header("connection") == Some("close")
            });
            caller.expect_closed();
        });
        reload(&sidecar, |text| text + "\n# as before\n");
        asking.join().expect("it is told");
    });
    wait_until("the old one is gone", || !old.runs());
}

#[test]
fn an_address_that_is_taken_is_told_with_its_place() {
    let taken = TcpListener::bind(SocketAddr::new(free_address().ip(), 0)).expect("bind");
    let address = taken.local_addr().expect("an address");
    let toml = format!("[egress]\nlisten = [\"{address}\"]\nallow = [\"api.test\"]\n");
    let (status, said) = Setup::new().more(&toml).start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    for words in [
        "egress.listen",
        "the port is already used by",
        &format!("listen = [\"{address}\"]"),
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let toml = "[egress]\nlisten = [\"unix:/no/such/folder/s\"]\nallow = [\"api.test\"]\n";
    let (_, said) = Setup::new().more(toml).start_in_vain();
    assert!(said.contains("egress.listen: /no/such/folder"), "{said}");
}

#[test]
fn a_reload_may_end_the_egress_and_begin_it_again() {
    let origin = origin();
    let outward = Outward::new().plain_name("api.test", origin.address());
    let egress = outward.toml();
    let sidecar = outward.start();
    sidecar.get(&path(&origin)).expect(200);
    reload(&sidecar, |text| text.replace(&egress, ""));
    wait_until("nothing is listening there", || {
        TcpStream::connect(sidecar.address).is_err()
    });
    reload(&sidecar, |text| text + &egress);
    wait_until("calls are taken", || {
        TcpStream::connect(sidecar.address).is_ok()
    });
    sidecar.get(&path(&origin)).expect(200);
}
