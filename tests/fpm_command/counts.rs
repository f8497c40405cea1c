//! The numbers of processes on the status page over time, in both programs: `pm.start_servers`, spare servers, limits.
//!
//! Both look at their pools once a second. When a second begins is not known, so the tests know which numbers follow each
//! other, and not when.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    starts::configuration,
    support::{LIMIT, Place, Running, children, get, wait_until},
    transcript::Subject,
};

/// The numbers of a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    idle: usize,
    active: usize,
    total: usize,
    most_active: usize,
    reached: usize,
}

/// One of the two programs, and requests that wait for the test.
struct Pool {
    place: Place,
    running: Running,
    weir: bool,
    waiting: Vec<JoinHandle<()>>,
    rounds: usize,
}

/// Runs until the file `go` of its number exists.
const WAITS: &str = "<?php touch(__DIR__ . '/tmp/begun' . $_GET['n']);
    while (!file_exists(__DIR__ . '/tmp/go' . $_GET['round'])) { usleep(5000); clearstatcache(); }";

impl Pool {
    fn start(weir: bool, pool: &str) -> Self {
        let place = Place::new();
        let pool = format!("{pool}\npm.status_path = /status\npm.status_listen = @/status.sock");
        place.write("php-fpm.conf", configuration("", &pool));
        place.write("waits.php", WAITS);
        place.write("dies.php", "<?php posix_kill(getmypid(), 9); sleep(9);");
        fs::create_dir(place.path("tmp")).unwrap();
        fs::set_permissions(place.path("tmp"), fs::Permissions::from_mode(0o777)).unwrap();
        let running = Running::start(&Subject::program(weir, &place), &place, &[]);
        Self {
            place,
            running,
            weir,
            waiting: Vec::new(),
            rounds: 0,
        }
    }

    /// What its status page shows. With `own`, the pool itself is asked; otherwise processes that are not in the
    /// numbers answer.
    fn page(&self, own: bool, query: &str) -> serde_json::Value {
        let socket = self
            .place
            .path(if own { "fpm.sock" } else { "status.sock" });
        let page = get(
            &socket,
            Path::new("/status"),
            &format!("/status?json{query}"),
        );
        let (_, body) = page.out.split_once("\r\n\r\n").expect("a page");
        serde_json::from_str(body).expect("JSON")
    }

    fn numbers(&self) -> Numbers {
        Numbers::of(&self.page(false, ""))
    }

    /// Begins so many requests, and waits until their scripts run.
    fn ask(&mut self, count: usize) {
        self.send(count);
        let begun = |number| self.place.path(&format!("tmp/begun{number}")).exists();
        wait_until("the scripts run", || (0..self.waiting.len()).all(begun));
    }

    /// Begins so many requests.
    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.waiting.len();
            let uri = format!("/waits.php?n={number}&round={}", self.rounds);
            let (socket, script) = (self.place.path("fpm.sock"), self.place.path("waits.php"));
            self.waiting.push(thread::spawn(move || {
                get(&socket, &script, &uri);
            }));
        }
    }

    /// Lets the scripts end.
    fn go(&mut self) {
        fs::write(self.place.path(&format!("tmp/go{}", self.rounds)), "").unwrap();
        self.rounds += 1;
        for one in self.waiting.drain(..) {
            one.join().unwrap();
        }
        for entry in fs::read_dir(self.place.path("tmp")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("begun") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// All different numbers, with the times of their pages, until these hold.
    fn until(&self, what: &str, holds: impl Fn(&Numbers) -> bool) -> Vec<(Instant, Numbers)> {
        let until = Instant::now() + LIMIT;
        let mut seen: Vec<(Instant, Numbers)> = Vec::new();
        loop {
            let now = self.numbers();
            if seen.last().is_none_or(|(_, last)| *last != now) {
                seen.push((Instant::now(), now));
            }
            if holds(&now) {
                return seen;
            }
            assert!(
                Instant::now() < until,
                "{what}, weir: {}: {seen:?}",
                self.weir
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for these numbers.
    fn shows(&self, idle: usize, active: usize) -> Vec<(Instant, Numbers)> {
        self.until(&format!("{idle} idle, {active} active"), |now| {
            (now.idle, now.active, now.total) == (idle, active, idle + active)
        })
    }

    /// The processes that run scripts.
    fn processes(&self) -> usize {
        let all = children(self.running.pid);
        let below = all.iter().flat_map(|(child, _)| children(*child));
        let below: Vec<_> = below.chain(all.iter().cloned()).collect();
        let workers = below.iter().filter(|(_, line)| line == "php-fpm: pool www");
        // weir has one process more: the one that forks the workers.
        workers.count() - usize::from(self.weir)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The threads of a failed test.
        let _ = fs::write(self.place.path(&format!("tmp/go{}", self.rounds)), "");
    }
}

impl Numbers {
    fn of(page: &serde_json::Value) -> Self {
        let number = |name: &str| page[name].as_u64().expect(name) as usize;
        Self {
            idle: number("idle processes"),
            active: number("active processes"),
            total: number("total processes"),
            most_active: number("max active processes"),
            reached: number("max children reached"),
        }
    }
}

/// Runs this for both programs at the same time.
fn both(check: impl Fn(bool) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| check(false));
        check(true);
    });
}

#[test]
fn spare_servers_are_counted_as_php_fpm_counts_them() {
    both(|weir| {
        let mut pool = Pool::start(
            weir,
            "pm = dynamic\npm.max_children = 9\npm.start_servers = 4\npm.min_spare_servers = 4\n\
             pm.max_spare_servers = 4",
        );
        pool.shows(4, 0);
        pool.ask(1);
        let seen = pool.shows(4, 1);
        // A child that begins to wait counts itself in the place of one that works, until its master counts again.
        let known = [(4, 0), (3, 1), (4, 1)];
        for (_, now) in &seen {
            assert!(known.contains(&(now.idle, now.active)), "{weir} {seen:?}");
        }
        assert_eq!(pool.processes(), 5);
        pool.go();
        // There is one idle worker too many. It stays in the numbers until the next second after its end.
        let seen = pool.shows(4, 0);
        assert_eq!(pool.processes(), 4);
        assert_eq!(seen.last().unwrap().1.most_active, 1, "{weir} {seen:?}");
        assert_eq!(seen.last().unwrap().1.reached, 0);
    });
}

/// 1, 2, 4, … a second are started, and one a second ends.
#[test]
fn spare_servers_come_and_go_in_php_fpm_s_steps() {
    both(|weir| {
        let mut pool = Pool::start(
            weir,
            "pm = dynamic\npm.max_children = 40\npm.start_servers = 8\npm.min_spare_servers = 8\n\
             pm.max_spare_servers = 13",
        );
        pool.shows(8, 0);
        pool.ask(8);
        let seen = pool.shows(8, 8);
        let mut most = 1;
        for pair in steps(&seen) {
            assert!(
                pair[1] > pair[0] && pair[1] - pair[0] <= most,
                "{weir} {seen:?}"
            );
            most *= 2;
        }
        pool.go();
        let seen = pool.shows(13, 0);
        for pair in steps(&seen) {
            assert_eq!(pair[0] - pair[1], 1, "{weir} {seen:?}");
        }
        assert_eq!(pool.processes(), 13);
    });
}

/// The totals that followed each other. Empty if pages were missed because this machine is busy.
fn steps(seen: &[(Instant, Numbers)]) -> Vec<[usize; 2]> {
    let slow = |pair: &[(Instant, Numbers)]| pair[1].0 - pair[0].0 > Duration::from_millis(1900);
    if seen.windows(2).any(slow) {
        return Vec::new();
    }
    let mut totals: Vec<usize> = seen.iter().map(|(_, now)| now.total).collect();
    totals.dedup();
    totals.windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

#[test]
fn a_reached_limit_is_counted_as_php_fpm_counts_it() {
    both(|weir| {
        let mut pool = Pool::start(
            weir,
            "pm = dynamic\npm.max_children = 2\npm.start_servers = 1\npm.min_spare_servers = 1\n\
             pm.max_spare_servers = 1",
        );
        pool.shows(1, 0);
        pool.ask(1);
        // Only a spare server is missing.
        pool.shows(1, 1);
        assert_eq!(pool.numbers().reached, 0, "{weir}");
        pool.ask(1);
        pool.until("it is reached", |now| now.reached == 1);
        let now = pool.shows(0, 2);
        assert_eq!(now.last().unwrap().1.most_active, 2, "{weir}");
        pool.go();
        pool.shows(1, 0);
        assert_eq!(pool.numbers().reached, 1, "{weir}");
    });
}

#[test]
fn children_on_demand_are_counted_as_php_fpm_counts_them() {
    both(|weir| {
        let mut pool = Pool::start(
            weir,
            "pm = ondemand\npm.max_children = 1\npm.process_idle_timeout = 2s",
        );
        pool.shows(0, 0);
        pool.ask(1);
        pool.shows(0, 1);
        pool.go();
        pool.shows(1, 0);
        assert_eq!(pool.numbers().reached, 0, "{weir}");
        pool.ask(1);
        // One more request comes, and there are already as many workers as allowed.
        pool.send(1);
        pool.until("it is reached", |now| now.reached == 1);
        pool.go();
        pool.shows(0, 0);
        assert_eq!(pool.processes(), 0, "{weir}");
        assert_eq!(pool.numbers().most_active, 1, "{weir}");
    });
}

/// In PHP-FPM, one of the processes answers with the page.
#[test]
fn the_status_page_counts_its_own_request() {
    for pm in [
        "pm = static",
        "pm = dynamic\npm.start_servers = 2\npm.min_spare_servers = 1\npm.max_spare_servers = 2",
        "pm = ondemand",
    ] {
        let shown = [false, true].map(|weir| {
            let pool = Pool::start(weir, pm);
            if !pm.contains("ondemand") {
                pool.shows(2, 0);
            }
            let page = pool.page(true, "&full");
            let processes = page["processes"].as_array().expect("processes");
            let mut states: Vec<String> = processes
                .iter()
                .map(|one| {
                    let what = ["state", "request method", "request uri", "script"];
                    what.map(|name| one[name].as_str().unwrap_or_default())
                        .join(" ")
                })
                .collect();
            states.sort();
            let accepted = |page: &serde_json::Value| page["accepted conn"].as_u64();
            let counted = (accepted(&page), accepted(&pool.page(false, "")));
            (Numbers::of(&page), states, counted)
        });
        assert_eq!(shown[1], shown[0], "{pm}");
    }
}

/// PHP-FPM replaces it at once, whatever the number of spare servers is.
#[test]
fn a_child_that_died_is_replaced_and_counted_as_php_fpm_does() {
    both(|weir| {
        let pool = Pool::start(
            weir,
            "pm = dynamic\npm.max_children = 9\npm.start_servers = 4\npm.min_spare_servers = 1\n\
             pm.max_spare_servers = 5",
        );
        pool.shows(4, 0);
        let (socket, script) = (pool.place.path("fpm.sock"), pool.place.path("dies.php"));
        get(&socket, &script, "/dies.php");
        pool.running.wait_for_log("exited on signal 9");
        pool.running.wait_for_log("started");
        pool.shows(4, 0);
        wait_until("there are as many as before", || pool.processes() == 4);
    });
}
