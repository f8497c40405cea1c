//! One boot for all workers: they are forked from a process that has booted the application.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use weir_test::{GROUP, Setup, USER, Weir, is_root, process, wait_until};

use super::{booted, text};

/// Counts boots in a file. What the script keeps of its boot is the zygote's, such as its process id.
const COUNT: &str = "file_put_contents(__DIR__ . '/../spool/boots', '.', FILE_APPEND);";

const ABOUT: &str = "'from' => function () use ($boot) { echo $boot === getmypid() ? '' : $boot; },
    'boot' => function () use ($boot) { echo $boot; },
    'parent' => function () { preg_match('/^PPid:\\s+(\\d+)/m', file_get_contents('/proc/self/status'), $m); echo $m[1]; },
    'work' => function () { usleep(20000); echo getmypid(); },
    'open' => function () {
        foreach (array_diff(scandir('/proc/self/fd'), ['.', '..']) as $fd) {
            $to = @readlink(\"/proc/self/fd/$fd\");
            if ($to !== false && $to !== '/proc/' . getmypid() . '/fd') { $all[] = preg_replace('/\\d{3,}|(ZendSem\\.|weir-test-)\\w+/', 'N', $to); }
        }
        sort($all);
        echo implode(\"\\n\", $all);
    },";

/// A pool that counts its boots.
fn counting(lines: &str, boot: &str, code: &str) -> Setup {
    let zygote = match lines.contains("worker_zygote") {
        true => "",
        false => "worker_zygote = true\n",
    };
    let lines = &format!("{zygote}{lines}");
    booted(lines, &format!("{COUNT}{boot}"), &format!("{ABOUT}{code}"))
}

fn boots(weir: &Weir) -> usize {
    weir.written("boots").len()
}

fn number(weir: &Weir, path: &str) -> u32 {
    text(weir, path).parse().expect("a process id")
}

/// The zygote, which is the process that the script has noted in its boot.
#[track_caller]
fn zygote(weir: &Weir) -> u32 {
    let (boot, own) = (number(weir, "/boot"), number(weir, "/pid"));
    assert_ne!(boot, own, "the worker has booted for itself");
    boot
}

/// Each worker boots for itself, and the log says why.
#[track_caller]
fn expect_declined(weir: &Weir, words: &[&str]) {
    let line = "each worker boots the application for itself";
    weir.wait_for_error(&[&[line], words].concat());
    for _ in 0..3 {
        assert_eq!(text(weir, "/boot"), text(weir, "/pid"));
    }
    let lines = weir.stderr();
    assert_eq!(lines.matches(line).count(), 1, "{lines}");
}

#[test]
fn workers_are_forked_from_one_boot_and_are_the_masters_children() {
    let setup = counting("max_children = 4\nworker_requests = 2\n", "", "").admin();
    let weir = setup.start();
    let mut pids = BTreeSet::new();
    for _ in 0..40 {
        pids.insert(number(&weir, "/pid"));
    }
    assert!(pids.len() >= 15, "{pids:?}");
    assert_eq!(boots(&weir), 1);
    let zygote = zygote(&weir);
    let status = fs::read_to_string(format!("/proc/{zygote}/status")).unwrap();
    let master = text(&weir, "/parent");
    assert!(status.contains(&format!("PPid:\t{master}\n")), "{status}");
    assert_eq!(weir.status()["pools"][0]["zygote"]["pid"], zygote);
    wait_until("those that have ended are reaped", || {
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        children.unwrap().split_whitespace().count() <= 5
    });
}

#[test]
fn worker_zygote_false_boots_each_worker() {
    let lines = "max_children = 1\nworker_requests = 2\nworker_zygote = false\n";
    let weir = counting(lines, "", "").start();
    for _ in 0..10 {
        assert_eq!(text(&weir, "/boot"), text(&weir, "/pid"));
    }
    wait_until("each worker has booted", || boots(&weir) >= 5);
}

#[test]
fn a_worker_that_is_killed_is_replaced_without_a_boot_and_quickly() {
    let weir = counting("max_children = 1\n", "sleep(4);", "").start();
    let zygote = zygote(&weir);
    for _ in 0..5 {
        let pid = number(&weir, "/pid");
        let begun = Instant::now();
        process::signal(pid, Signal::KILL);
        wait_until("another one answers", || number(&weir, "/pid") != pid);
        // A boot takes four seconds.
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
    assert_eq!(boots(&weir), 1);
    assert_eq!(number(&weir, "/boot"), zygote);
}

#[test]
fn a_connection_of_the_boot_is_named_and_each_worker_boots_for_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let boot = format!("$connection = stream_socket_client('tcp://{address}');");
    let setup = counting("max_children = 1\n", &boot, "").admin();
    let weir = setup.start();
    let peer = format!("a connection to {address} ");
    expect_declined(&weir, &[&peer, "descriptor"]);
    assert_eq!(boots(&weir), 2);
    let status = weir.status()["pools"][0]["zygote"].clone();
    assert!(
        status["declined"].as_str().unwrap().contains(&peer),
        "{status}"
    );
    let shown = |words: &[&str]| {
        let shown = weir.command(words).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        // Without the ends of lines.
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = shown(&["status"]);
    assert!(text.contains("each worker boots for itself"), "{text}");
    let text = shown(&["doctor", "-c", &setup.write_toml().display().to_string()]);
    assert!(
        text.contains("each process boots the application for itself") && text.contains(&peer),
        "{text}"
    );
}

#[test]
fn a_thread_of_the_boot_is_named_and_each_worker_boots_for_itself() {
    const BOOT: &str =
        "$libc = FFI::cdef('int pthread_create(unsigned long *, void *, void *, void *); \
         int pthread_setname_np(unsigned long, const char *); int pause(void);', 'libc.so.6');
        $thread = FFI::new('unsigned long');
        $libc->pthread_create(FFI::addr($thread), null, FFI::cast('void *', $libc->pause), null);
        $libc->pthread_setname_np($thread->cdata, 'watcher');";
    let lines = "max_children = 1\nphp_define = { \"ffi.enable\" = \"1\" }\n";
    let weir = counting(lines, BOOT, "").start();
    expect_declined(&weir, &["has started the thread \"watcher\""]);
}

#[test]
fn databases_of_sqlite_and_pipes_of_the_boot_are_not_shared() {
    for (boot, words) in [
        (
            "$file = __DIR__ . '/../spool/a.sqlite'; $first = new PDO(\"sqlite:$file\"); $first->exec('create table if not exists t (n)');",
            "the SQLite database ",
        ),
        ("$pipe = popen('cat', 'w');", "the pipe "),
        (
            "$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);",
            "a socket",
        ),
    ] {
        let weir = counting("max_children = 1\n", boot, "").start();
        expect_declined(&weir, &[words]);
    }
}

#[test]
fn garbage_of_the_boot_is_collected_once_and_what_its_destructor_throws_is_logged() {
    const BOOT: &str = "class Garbage { public $self; function __destruct() {
            file_put_contents(dirname(__DIR__) . '/spool/destroyed', '.', FILE_APPEND);
            throw new RuntimeException('thrown by garbage');
        } }
        $garbage = new Garbage(); $garbage->self = $garbage; unset($garbage);";
    let weir = counting("max_children = 2\nworker_requests = 1\n", BOOT, "").start();
    for _ in 0..6 {
        zygote(&weir);
    }
    weir.wait_for_error(&["thrown by garbage"]);
    assert_eq!(weir.written("destroyed"), ".");
}

#[test]
fn workers_have_random_numbers_of_their_own() {
    const BOOT: &str = "mt_srand(7); mt_rand(); lcg_value();";
    const CODE: &str = "'random' => function () { echo json_encode([mt_rand(), lcg_value(), rand(), uniqid('', true), bin2hex(random_bytes(8)),
        str_shuffle('abcdefghijklmnopqrstuvwxyz'), bin2hex(openssl_random_pseudo_bytes(8))]); },";
    let lines = "max_children = 1\nworker_requests = 1\n";
    let weir = counting(lines, BOOT, CODE).start();
    let all: Vec<serde_json::Value> = (0..8)
        .map(|_| serde_json::from_str(&text(&weir, "/random")).unwrap())
        .collect();
    assert_eq!(boots(&weir), 1);
    for value in 0..7 {
        let different: BTreeSet<String> = all.iter().map(|row| row[value].to_string()).collect();
        assert_eq!(different.len(), all.len(), "value {value}: {all:?}");
    }
}

#[test]
fn each_worker_has_its_own_place_in_files_of_the_boot() {
    const BOOT: &str = "$path = __DIR__ . '/../spool/words'; file_put_contents($path, implode(\"\\n\", range(100, 999)));
        $file = fopen($path, 'r'); fgets($file); $folder = opendir(__DIR__);
        $log = fopen(__DIR__ . '/../spool/log', 'a');";
    const CODE: &str = "'line' => function () use ($file, $log) { fwrite($log, getmypid() . \"\\n\"); echo getmypid(), ' ', ftell($file), ' ', fgets($file); usleep(20000); },";
    let weir = counting("max_children = 3\n", BOOT, CODE).start();
    zygote(&weir);
    let lines: Vec<String> = thread::scope(|scope| {
        let asked = (0..12).map(|_| scope.spawn(|| text(&weir, "/line")));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut by_pid = std::collections::BTreeMap::<&str, BTreeSet<&str>>::new();
    for line in &lines {
        let (pid, rest) = line.trim().split_once(' ').unwrap();
        assert!(by_pid.entry(pid).or_default().insert(rest), "{lines:?}");
    }
    assert!(by_pid.len() > 1, "{lines:?}");
    for places in by_pid.values() {
        assert!(places.contains("4 101"), "{lines:?}");
    }
    assert_eq!(weir.written("log").lines().count(), 12);
}

#[test]
fn workers_have_no_descriptor_more_than_those_that_boot_for_themselves() {
    let open = |zygote: bool| {
        let lines = format!("max_children = 2\nworker_zygote = {zygote}\n");
        let weir = counting(&lines, "", "").start();
        // The first worker does not count: there is no other worker beside it.
        process::signal(number(&weir, "/pid"), Signal::KILL);
        weir.get_until("/open", |answer| answer.status == 200)
            .text()
    };
    assert_eq!(open(true), open(false));
}

/// Sends requests from some clients until `act` returns; each must be answered.
#[track_caller]
fn under_load<T>(weir: &Weir, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ask = || {
            let mut answered = 0;
            while !over.load(Relaxed) {
                weir.get("/work").expect(200);
                answered += 1;
            }
            answered
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        // Without this, a failure in `act` would leave the clients, and the test, running for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        over.store(true, Relaxed);
        let answered: Vec<i32> = clients.into_iter().map(|it| it.join().unwrap()).collect();
        assert!(answered.iter().all(|count| *count > 0), "{answered:?}");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_zygote_that_dies_under_load_takes_no_request_and_no_worker_with_it() {
    let weir = counting("max_children = 3\nworker_requests = 20\n", "", "").start();
    let first = zygote(&weir);
    let last = under_load(&weir, || {
        let mut before = first;
        for deaths in 1..4 {
            process::signal(before, Signal::KILL);
            wait_until("its death is said", || {
                let said = "that workers are forked from has ended: SIGKILL";
                weir.stderr().matches(said).count() == deaths
            });
            wait_until("workers are forked from another one", || {
                // Some workers boot by themselves meanwhile.
                let from = text(&weir, "/from").parse().unwrap_or(before);
                let is_new = from != before && process::is_alive(from);
                before = if is_new { from } else { before };
                is_new
            });
            let log = weir.stderr();
            assert!(
                !log.contains("worker died"),
                "a worker has died with its zygote: {log}"
            );
        }
        before
    });
    assert_ne!(first, last);
    assert!(!process::is_alive(first));
}

#[test]
fn a_zygote_that_is_stopped_goes_on_when_a_worker_is_needed() {
    let weir = counting("max_children = 1\n", "", "").start();
    let (zygote, worker) = (zygote(&weir), number(&weir, "/pid"));
    process::signal(zygote, Signal::STOP);
    process::signal(worker, Signal::KILL);
    wait_until("another one answers", || number(&weir, "/pid") != worker);
    assert_eq!(boots(&weir), 1);
}

#[test]
fn a_fork_that_fails_is_said_and_tried_again() {
    let weir = counting("max_children = 1\n", "", "").start();
    let (zygote, worker) = (zygote(&weir), number(&weir, "/pid"));
    let limits = fs::read_to_string(format!("/proc/{zygote}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max processes"));
    let before = line.unwrap().split_whitespace().nth(2).unwrap().to_owned();
    let limit = |limit: &str| {
        let words = format!("prlimit --pid={zygote} --nproc={limit}:");
        // Its own user may do that.
        let user = format!("setpriv --reuid={USER} --regid={GROUP} --clear-groups {words}");
        let words = if is_root() { user } else { words };
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        assert!(command.args(words).status().unwrap().success());
    };
    limit("1");
    process::signal(worker, Signal::KILL);
    weir.get("/pid").expect(503);
    weir.wait_for_error(&["no worker can be forked", "temporarily unavailable"]);
    limit(&before);
    weir.get_until("/pid", |answer| answer.status == 200);
    assert_eq!(boots(&weir), 1);
}

#[test]
fn a_worker_does_not_outlive_the_master_and_the_pool_comes_back() {
    let weir = counting("max_children = 2\n", "", "").start();
    let (zygote, worker, master) = (
        zygote(&weir),
        number(&weir, "/pid"),
        number(&weir, "/parent"),
    );
    process::signal(master, Signal::KILL);
    wait_until("they have ended", || {
        !process::is_alive(zygote) && !process::is_alive(worker)
    });
    let answer = weir.get_until("/boot", |answer| answer.status == 200);
    assert_ne!(answer.text(), zygote.to_string());
}

#[test]
fn a_stop_and_a_killed_manager_leave_no_process() {
    for kill in [false, true] {
        let mut weir = counting("max_children = 3\n", "", "").start();
        zygote(&weir);
        let mut all = Vec::new();
        wait_until("gateway, master, zygote and workers are there", || {
            all = weir.processes().iter().map(|it| it.pid).collect();
            all.len() >= 6
        });
        match kill {
            true => weir.kill(),
            false => weir.stop(),
        }
        wait_until("all have ended", || {
            all.iter().all(|pid| !process::is_alive(*pid))
        });
    }
}

#[test]
fn a_reload_brings_a_zygote_with_the_new_code_and_ends_the_old_one() {
    let setup = counting(
        "max_children = 2\n",
        "define('VERSION', 'one');",
        "'version' => function () { echo VERSION; },",
    );
    let weir = setup.clone().start();
    let (old, master) = (zygote(&weir), text(&weir, "/parent"));
    let script = weir.root().join("app.php");
    let code = fs::read_to_string(&script)
        .unwrap()
        .replace("'one'", "'two'");
    weir_test::weir::write(&script, code.as_bytes());
    under_load(&weir, || {
        weir.signal(Signal::HUP);
        weir.log_line("reloaded: the new configuration serves");
        weir.get_until("/version", |answer| answer.text() == "two");
    });
    assert_eq!(text(&weir, "/parent"), master);
    assert_ne!(zygote(&weir), old);
    assert_eq!(boots(&weir), 2);
    wait_until("the old one has ended", || !process::is_alive(old));
}

#[test]
fn a_worker_holds_its_own_lock_of_opcache() {
    let weir = counting("max_children = 1\n", "", "").start();
    let (zygote, worker) = (zygote(&weir), number(&weir, "/pid"));
    // The kernel may show a lock twice and leave another one out while other programs lock and unlock files.
    wait_until("both have a lock", || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let has = |pid: u32| {
            let words = ["POSIX", "READ", &format!(" {pid} "), " 1 1\n"].map(str::to_owned);
            let mut lines = locks.split_inclusive('\n');
            lines.any(|line| words.iter().all(|word| line.contains(word.as_str())))
        };
        has(zygote) && has(worker)
    });
}

#[test]
fn opcache_that_is_full_restarts_the_pool_with_and_without_a_zygote() {
    const CODE: &str = "'fill' => function () {
        static $n = 0;
        $file = dirname(__DIR__) . '/spool/' . getmypid() . '.php';
        file_put_contents($file, '<?php return [' . implode(',', range(++$n, $n + 30000)) . '];');
        touch($file, 1000000000 + $n);
        echo count(include $file);
    },";
    for zygote in [true, false] {
        let lines = format!(
            "max_children = 2\nopcache_memory = \"16M\"\nworker_zygote = {zygote}\nphp_define = {{ \"opcache.max_wasted_percentage\" = \"5\", \"opcache.interned_strings_buffer\" = \"1\" }}\n"
        );
        let weir = counting(&lines, "", CODE).admin().start();
        let first = text(&weir, "/boot");
        let generation = || weir.status()["pools"][0]["generation"].as_u64().unwrap();
        let before = generation();
        under_load(&weir, || {
            wait_until("the pool is restarted", || {
                assert_eq!(text(&weir, "/fill"), "30001");
                generation() > before
            });
            wait_until("processes have booted anew", || {
                let boot = text(&weir, "/boot");
                boot != first && zygote != (boot == text(&weir, "/pid"))
            });
        });
        weir.wait_for_error(&["OPcache must clear its memory"]);
        assert!(!weir.stderr().contains("worker died"), "{}", weir.stderr());
    }
}

#[test]
fn a_boot_that_fails_now_and_then_costs_no_request() {
    const BOOT: &str =
        "if (file_exists(__DIR__ . '/../spool/broken')) { throw new Exception('no database'); }";
    let weir = counting("max_children = 2\n", BOOT, "").start();
    let (zygote, worker) = (zygote(&weir), number(&weir, "/pid"));
    fs::write(weir.scratch("broken"), "").unwrap();
    process::signal(zygote, Signal::KILL);
    weir.wait_for_error(&[
        "ended before it called frankenphp_handle_request()",
        "is tried again",
    ]);
    // Those that are there go on.
    text(&weir, "/pid");
    process::signal(worker, Signal::KILL);
    weir.wait_for_error(&["no database"]);
    fs::remove_file(weir.scratch("broken")).unwrap();
    wait_until("there is another zygote", || {
        number(&weir, "/boot") != zygote
    });
}
