//! Upgrades and reloads at the same time, and new weirs that are killed while they start: afterwards one weir is in charge, and
//! no request has failed.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{process::Child, thread};

use weir_test::versions::{break_weir, installed};
use weir_test::{LIMIT, process::wait};

use super::*;

/// A site in whose folder `bin` weir runs and can be replaced.
fn site() -> Setup {
    let php = format!(
        "runtime = \"php\"\nmax_children = 2\n{}",
        weir_test::php::identity()
    );
    installed(site_without_pool().pool(&php).admin())
}

/// Lets the next weir wait for the file `go` in the test's folder before it starts.
fn stall(weir: &Weir) {
    let bin = weir.path("bin");
    fs::rename(bin.join("weir"), bin.join("real")).expect("rename");
    let (go, real) = (weir.path("go"), bin.join("real"));
    let (go, real) = (go.display(), real.display());
    let wait = format!("while [ ! -e {go} ]; do sleep 0.02; done");
    break_weir(&bin, &format!("#!/bin/sh\n{wait}\nexec {real} \"$@\"\n"));
}

fn begin(weir: &Weir, what: &str) -> Child {
    let mut command = weir.command(&[what]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("weir")
}

/// The exit code of a command, and what it has printed.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("its output");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// The manager that is in charge, according to the status.
fn manager(weir: &Weir) -> u32 {
    u32::try_from(weir.status()["manager_pid"].as_u64().expect("a number")).expect("a process")
}

/// Waits until only one manager serves, and nothing of others is left.
fn expect_one_in_charge(weir: &Weir) -> u32 {
    wait_until("one weir in charge", || {
        let status = weir.status();
        status["old_generations"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    assert_eq!(weir.get("/a.txt").expect(200).text(), "hello\n");
    pid(weir);
    manager(weir)
}

/// Whether a weir has started its gateway.
fn gateway_of(pid: u32) -> bool {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().any(|child| {
        let words = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.contains("weir: gateway")
    })
}

/// Requests for a file and a script, each over a new connection, until it is over.
struct Load {
    is_over: AtomicBool,
    answered: AtomicU64,
    failures: std::sync::Mutex<Vec<String>>,
}

impl Load {
    fn new() -> Load {
        Load {
            is_over: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            failures: Default::default(),
        }
    }

    fn run(&self, address: std::net::SocketAddr) {
        while !self.is_over.load(Relaxed) {
            for path in ["/a.txt", "/pid.php"] {
                match ask(address, path) {
                    Ok(()) => drop(self.answered.fetch_add(1, Relaxed)),
                    Err(cause) => self.failures.lock().expect("a lock").push(cause),
                }
            }
        }
    }

    /// Runs it while `act` does something.
    fn during<T>(&self, address: std::net::SocketAddr, act: impl FnOnce() -> T) -> T {
        self.is_over.store(false, Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| self.run(address));
            let over = Over(&self.is_over);
            let before = self.answered.load(Relaxed);
            wait_until("the first answers", || self.answered.load(Relaxed) > before);
            let result = act();
            drop(over);
            result
        })
    }

    #[track_caller]
    fn expect_no_failure(&self) {
        let failures = self.failures.lock().expect("a lock");
        let answered = self.answered.load(Relaxed);
        assert!(failures.is_empty(), "{failures:?}, {answered} answered");
    }
}

/// Ends the load, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn ask(address: std::net::SocketAddr, path: &str) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{path}: {error}");
    let mut stream = TcpStream::connect(address).map_err(told)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(told)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(told)?;
    match answer.starts_with("HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(format!("{path}: {answer:?}")),
    }
}

#[test]
fn a_reload_during_an_upgrade_is_the_new_ones_and_a_second_upgrade_is_refused() {
    let weir = site().start();
    let first = manager(&weir);
    let load = Load::new();
    load.during(weir.address(), || {
        stall(&weir);
        let upgrade = begin(&weir, "upgrade");
        weir.log_line("upgrade: ");
        let (code, said) = end(begin(&weir, "upgrade"));
        assert!(code == Some(70) && said.contains("already under way"), "{said}");
        // The file changes, but the program in it is the same.
        let bin = weir.path("bin");
        fs::hard_link(bin.join("real"), bin.join("again")).expect("a link");
        fs::rename(bin.join("again"), bin.join("weir")).expect("rename");
        // The new weir handles the reload.
        let file = weir.path("weir.toml");
        let text = fs::read_to_string(&file).expect("weir.toml");
        fs::write(&file, format!("{text}\n[pool.more]\nruntime = \"command\"\ncommand = [\"php-cgi\"]\nmax_children = 1\n"))
            .expect("weir.toml");
        let reload = begin(&weir, "reload");
        fs::write(weir.path("go"), "").expect("a file");
        let (code, said) = end(upgrade);
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = end(reload);
        assert_eq!(code, Some(0), "{said}");
        wait_until("the new pool", || {
            let status = weir.status();
            let pools = status["pools"].as_array().expect("pools");
            pools.iter().any(|pool| pool["name"] == "more")
        });
    });
    load.expect_no_failure();
    let second = expect_one_in_charge(&weir);
    assert_ne!(first, second);
}

#[test]
fn upgrades_and_reloads_at_the_same_time_leave_one_weir_in_charge() {
    let weir = site().start();
    let load = Load::new();
    for words in [
        &["reload", "upgrade"][..],
        &["upgrade", "reload"],
        &["upgrade", "upgrade", "upgrade"],
        &["reload", "upgrade", "reload", "upgrade"],
    ] {
        let before = manager(&weir);
        load.during(weir.address(), || {
            let begun: Vec<Child> = words.iter().map(|word| begin(&weir, word)).collect();
            let ended: Vec<_> = begun.into_iter().map(end).collect();
            for (code, said) in &ended {
                let is_refused = said.contains("already under way")
                    || said.contains("not in charge")
                    || said.contains("another weir is in charge")
                    || said.contains("another configuration is already in use");
                assert!(*code == Some(0) || is_refused, "{words:?}: {ended:?}");
            }
            assert!(ended.iter().any(|(code, _)| *code == Some(0)), "{ended:?}");
        });
        load.expect_no_failure();
        assert_ne!(expect_one_in_charge(&weir), before, "{words:?}");
    }
}

#[test]
fn an_upgrade_that_is_asked_for_while_a_reload_waits_comes_in_its_place() {
    let weir = site().server("max_old_generations = 1").start();
    let first = manager(&weir);
    let mut slow = weir.client();
    slow.send("GET /slow.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    wait_until("the slow script runs", || {
        weir.path("root/started").exists()
    });
    // The first configuration must finish this request, so no other configuration may follow the second yet.
    let (code, said) = end(begin(&weir, "reload"));
    assert_eq!(code, Some(0), "{said}");
    let waiting = begin(&weir, "reload");
    weir.log_line("the reload waits");
    let (code, said) = end(begin(&weir, "upgrade"));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = end(waiting);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(slow.response().expect(200).text(), "slow done");
    assert_ne!(expect_one_in_charge(&weir), first);
}

#[test]
fn a_new_weir_that_is_killed_at_any_moment_before_it_is_in_charge_changes_nothing() {
    let rounds = weir_test::scaled(8, 100);
    let mut weir = site().start();
    let begun = Instant::now();
    let (code, said) = end(begin(&weir, "upgrade"));
    assert_eq!(code, Some(0), "{said}");
    let usual = begun.elapsed();
    weir.signal(Signal::TERM);
    weir.wait_for_end();
    let mut weir = site().start();
    let (mut random, mut killed, mut whole) = (11_u64, 0, 0);
    for round in 0..rounds {
        let known = weir.children();
        let load = Load::new();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Moments from the first instruction to shortly before the end of a usual upgrade. Early moments are more
        // frequent, because the new weir soon has a gateway.
        let share = (random >> 33) as f64 / f64::from(u32::MAX >> 1);
        let delay = match round % 4 {
            0 => Duration::ZERO,
            _ => usual.mul_f64(share * share),
        };
        let mut had_gateway = false;
        let (code, said) = load.during(weir.address(), || {
            let upgrade = begin(&weir, "upgrade");
            let mut new = None;
            wait_until("the new weir", || {
                let children = weir.children();
                let is_it = |pid: &&u32| {
                    let name = fs::read_to_string(format!("/proc/{pid}/cmdline"));
                    !known.contains(pid) && name.is_ok_and(|name| name.contains("serve"))
                };
                new = children.iter().find(is_it).copied();
                new.is_some()
            });
            let new = new.expect("a process");
            thread::sleep(delay);
            // A gateway of it may have taken connections, which end with it.
            had_gateway = gateway_of(new);
            // The id of a process that was already waited for does not belong to another process yet.
            signal(new, Signal::KILL);
            end(upgrade)
        });
        if code == Some(0) {
            // This weir was in charge, so its end is the same as a kill of weir.
            println!("round {round}: killed after {delay:?}, too late");
            assert_eq!(weir.wait_for_end().code(), Some(70));
            weir = site().start();
            continue;
        }
        assert!(said.contains("ended before it served"), "{said}");
        if !had_gateway {
            load.expect_no_failure();
            whole += 1;
        }
        assert_eq!(expect_one_in_charge(&weir), weir.pid());
        // No other weir serves beside it. From now on nothing is lost.
        let load = Load::new();
        load.during(weir.address(), || ());
        load.expect_no_failure();
        killed += 1;
    }
    println!(
        "{killed} of {rounds} were killed before they were in charge, {whole} before they had a gateway"
    );
    assert!(whole > 0);
    // A new weir whose old weir is gone takes over.
    let (code, said) = end(begin(&weir, "upgrade"));
    assert_eq!(code, Some(0), "{said}");
    assert_ne!(expect_one_in_charge(&weir), weir.pid());
    let _ = wait(&mut begin(&weir, "stop"), Duration::from_secs(60));
    weir.wait_for_end();
}
