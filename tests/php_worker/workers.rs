//! Workers as processes: how they end, what their scripts start, and how much they cost.

use std::{
    fs,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::support::*;
use weir_test::goes_on_as_root;

/// SIGQUIT: a worker ends after its request, as in PHP-FPM.
pub const QUIT: u8 = 3;

/// Reports that it runs, and waits until it may end.
const WAITING: &str = "<?php touch(__DIR__ . '/started'); while (!file_exists(__DIR__ . '/go')) usleep(1000); echo 'done';";

#[test]
fn an_idle_worker_that_is_asked_to_stop_ends() {
    let site = Scripts::new();
    let master = Master::start(&site.config());
    site.script("a.php", "<?php echo 1;");
    let mut worker = master.worker();
    worker.get(&site, "/a.php");
    master.signal(&worker, QUIT);
    assert_eq!(master.end_of(&worker), End::Code(0));
    assert_eq!(worker.next(), None);
}

#[test]
fn a_busy_worker_that_is_asked_to_stop_answers_first_and_is_not_ready_again() {
    let site = Scripts::new();
    site.script("a.php", WAITING);
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    worker.send(&Request::get(&site, "/a.php"));
    wait_until("it runs", || site.path("started").exists());
    master.signal(&worker, QUIT);
    // When a later order has been carried out, the first one has been, too.
    let other = master.worker();
    master.signal(&other, 9);
    master.end_of(&other);
    assert!(is_alive(worker.pid));
    site.script("go", "");
    let answer = worker.next().unwrap();
    assert!(answer.kind == STDOUT && String::from_utf8_lossy(&answer.content).ends_with("done"));
    assert_eq!(worker.next().unwrap().kind, END_REQUEST);
    assert_eq!(worker.next(), None);
    assert_eq!(master.end_of(&worker), End::Code(0));
}

#[test]
fn a_request_that_has_come_before_the_order_to_stop_is_answered() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php for ($i = 0; $i < 3; $i++) { echo $i; flush(); } echo connection_status();",
    );
    let master = Master::start(&site.config());
    for _ in 0..20 {
        let mut worker = master.worker();
        worker.get(&site, "/a.php");
        master.signal(&worker, 19);
        worker.send(&Request::get(&site, "/a.php"));
        master.signal(&worker, QUIT);
        master.signal(&worker, 18);
        let mut body = String::new();
        while let Some(record) = worker.next() {
            if record.kind == STDOUT {
                body.push_str(&String::from_utf8_lossy(&record.content));
            }
        }
        assert!(body.ends_with("0120"), "{body}");
        assert_eq!(master.end_of(&worker), End::Code(0));
    }
}

#[test]
fn a_worker_can_be_killed_in_a_script() {
    let site = Scripts::new();
    site.script("a.php", WAITING);
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    worker.send(&Request::get(&site, "/a.php"));
    wait_until("it runs", || site.path("started").exists());
    master.signal(&worker, 9);
    assert_eq!(master.end_of(&worker), End::Signal(9));
    assert_eq!(worker.next(), None);
}

#[test]
fn a_worker_that_crashes_is_told_with_its_signal_and_the_others_serve_on() {
    let site = Scripts::new();
    site.script("crash.php", "<?php posix_kill(posix_getpid(), 11); echo 1;");
    site.script("a.php", "<?php echo 1;");
    let config = site.config().with("define", "extension=posix");
    let master = Master::start(&config);
    let (mut one, mut two) = (master.worker(), master.worker());
    one.send(&Request::get(&site, "/crash.php"));
    assert_eq!(master.end_of(&one), End::Signal(11));
    assert_eq!(one.next(), None);
    assert_eq!(two.get(&site, "/a.php").body(), "1");
}

#[test]
fn a_worker_inherits_what_it_needs_and_its_programs_nothing() {
    let site = Scripts::new();
    // The descriptors of the worker, and those of a program that it starts in each way that PHP has.
    site.script(
        "a.php",
        "<?php
        function files($list) { $list = array_diff(array_map('trim', $list), ['', '.', '..']); sort($list); return implode(' ', $list); }
        $own = [];
        foreach (scandir('/proc/self/fd') as $fd) { $to = @readlink(\"/proc/self/fd/$fd\"); if ($to) $own[$fd] = preg_replace('~\\\\d+~', 'N', $to); }
        echo json_encode($own, JSON_FORCE_OBJECT), \"\n\";
        $ls = 'ls /proc/self/fd';
        exec($ls, $lines); echo files($lines), \"\n\";
        echo files(explode(\"\n\", shell_exec($ls))), \"\n\";
        echo files(explode(\"\n\", stream_get_contents(popen($ls, 'r')))), \"\n\";
        $p = proc_open(['ls', '/proc/self/fd'], [1 => ['pipe', 'w']], $pipes); echo files(explode(\"\n\", stream_get_contents($pipes[1]))), \"\n\";
        exec('grep -E \"^(SigBlk|SigIgn)\" /proc/self/status', $signals); echo implode(' ', $signals), \"\n\";
        exec('readlink /proc/self/fd/0', $null); echo implode($null);",
    );
    let config = site.config().with("dumpable", "1");
    let (master, _slow) = Master::start_alone_with_slow_log(&config);
    let _others = [master.worker(), master.worker()];
    let mut worker = master.worker();
    let answer = worker.get(&site, "/a.php");
    let body = answer.body();
    let lines: Vec<&str> = body.lines().collect();
    let own: std::collections::BTreeMap<String, String> = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(own["0"], "/dev/null");
    let sockets = own.values().filter(|to| to.starts_with("socket:")).count();
    // The sockets are the stream and the slow log. There are also standard output and error, and the pipe of orders.
    assert_eq!(sockets, 2, "{own:?}");
    let pipes = own.values().filter(|to| to.starts_with("pipe:")).count();
    assert_eq!(pipes, 3, "{own:?}");
    // ls lists the folder through descriptor 3. PHP itself leaves the script open, which it reads without OPcache.
    let script = own.iter().find(|(_, to)| to.ends_with("/a.php"));
    let script = script.map(|(number, _)| number.as_str());
    for line in &lines[1..5] {
        let open: Vec<&str> = line
            .split(' ')
            .filter(|number| Some(*number) != script)
            .collect();
        assert_eq!(open, ["0", "1", "2", "3"]);
    }
    // No signal is blocked. SIGPIPE is ignored, as under PHP-FPM, and also 32 and 33, which the C library's popen
    // ignores. The environment of the tests may ignore more signals; PHP resets some of them.
    let (blocked, ignored) = lines[5].split_once(" SigIgn:\t").unwrap();
    assert_eq!(blocked, "SigBlk:\t0000000000000000");
    let set = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ours = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:\t"));
    let (ignored, sigpipe, popen) = (set(ignored), 1 << 12, 0b11 << 31);
    assert_eq!(ignored & sigpipe, sigpipe);
    assert_eq!(ignored & !(set(ours.unwrap()) | sigpipe | popen), 0);
    assert_eq!(lines[6], "/dev/null");
}

#[test]
fn a_process_that_a_script_forks_never_speaks_to_the_gateway() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php
        register_shutdown_function(function () { echo 'down of ', getmypid() === PARENT ? 'parent' : 'child'; });
        define('PARENT', getmypid());
        echo 'before ';
        $how = $_GET['how'];
        $c = FFI::cdef('int fork(void); int waitpid(int, int *, int); int execl(const char *, ...);');
        $pid = $c->fork();
        if ($pid === 0) {
            echo str_repeat('child ', 100000); error_log('of the child'); flush();
            file_get_contents('php://input'); fastcgi_finish_request(); fpm_get_status();
            if ($how === 'exit') exit(7);
            if ($how === 'return') return;
            if ($how === 'error') nothing();
            if ($how === 'kill') posix_kill(getmypid(), 9);
            if ($how === 'limit') { set_time_limit(1); while (true); }
            if ($how === 'exec') $c->execl('/bin/sh', 'sh', '-c', 'exit 9', null);
        }
        $status = $c->new('int');
        $c->waitpid($pid, FFI::addr($status), 0);
        $status = $status->cdata;
        echo $status & 127 ? -($status & 127) : $status >> 8, ' ';",
    );
    let config = calling_c(&site).with("define", "extension=posix");
    let master = Master::start(&config);
    let mut worker = master.worker();
    for (how, status) in [
        ("exit", "7"),
        ("return", "0"),
        ("error", "255"),
        ("kill", "-9"),
        ("limit", "255"),
        ("exec", "9"),
    ] {
        let answer = worker.get(&site, &format!("/a.php?how={how}"));
        assert_eq!(answer.body(), format!("before {status} down of parent"));
        assert_eq!(answer.stderr, "");
    }
    // A process that continues to run does not keep the stream open.
    site.script(
        "b.php",
        "<?php if (FFI::cdef('int fork(void);')->fork() === 0) { sleep(60); exit; } echo 'parent';",
    );
    assert_eq!(worker.get(&site, "/b.php").body(), "parent");
    master.signal(&worker, 9);
    assert_eq!(worker.next(), None);
    let children = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
            let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
            (name == executable() && folder == site.path("")).then_some(pid)
        });
    children.for_each(kill);
}

#[test]
fn workers_share_opcache() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo opcache_is_script_cached(__DIR__ . '/b.php') ? 'cached' : 'not';",
    );
    site.script("b.php", "<?php echo 'b';");
    let master = Master::start(&opcache(&site));
    let (mut one, mut two) = (master.worker(), master.worker());
    assert_eq!(one.get(&site, "/a.php").body(), "not");
    assert_eq!(one.get(&site, "/b.php").body(), "b");
    assert_eq!(two.get(&site, "/a.php").body(), "cached");
}

fn opcache(site: &Scripts) -> Config {
    with_opcache(site.config())
        .with("define", "opcache.file_update_protection=0")
        .with("define", "opcache.revalidate_freq=0")
}

#[test]
fn what_one_master_has_compiled_another_compiles_before_its_first_request() {
    let site = Scripts::new();
    for version in ["old", "new"] {
        for at in 0..20 {
            site.script(
                &format!("{version}/{at}.php"),
                &format!(
                    "<?php class C {{ const N = {at}; }} function f() {{ return {at}; }} echo f();"
                ),
            );
        }
    }
    site.script(
        "look.php",
        "<?php echo implode(' ', array_keys(opcache_get_status(true)['scripts']));",
    );
    let config = opcache(&site).with("define", "opcache.restrict_api=/nowhere");
    let master = Master::start(&config);
    let mut worker = master.worker();
    for at in 0..20 {
        for _ in at..20 {
            assert_eq!(
                worker.get(&site, &format!("/old/{at}.php")).body(),
                at.to_string()
            );
        }
    }
    let list: OwnedFd = tempfile::tempfile().unwrap().into();
    let number = master.fork(1, &[], list.try_clone().unwrap());
    assert_eq!(master.end_of_number(number), End::Code(0));
    let text = weir_sys::memory::read(list.as_fd(), 1 << 20).unwrap();
    let text = String::from_utf8(text).unwrap();
    let root = site.root();
    let expected: String = (0..20).map(|at| format!("{root}/old/{at}.php\0")).collect();
    assert_eq!(text, expected);

    // A file that is missing or does not compile is skipped.
    site.script("new/broken.php", "<?php if (");
    fs::remove_file(site.path("new/7.php")).unwrap();
    let text = text.replace("/old/3.php", "/old/broken.php") + "/none.php\0relative.php\0";
    let list = weir_sys::memory::file(c"list", text.as_bytes()).unwrap();
    let mut rewrites = Vec::new();
    for prefix in [
        "/nothing/of/this",
        "/x",
        &format!("{root}/old/"),
        &format!("{root}/new/"),
    ] {
        rewrites.extend((prefix.len() as u16).to_be_bytes());
        rewrites.extend(prefix.as_bytes());
    }
    let master = Master::start(&opcache(&site));
    let number = master.fork(2, &rewrites, list);
    assert_eq!(master.end_of_number(number), End::Code(0));
    let mut worker = master.worker();
    let answer = worker.get(&site, "/look.php").body();
    for at in 0..20 {
        let expected = ![3, 7].contains(&at);
        assert_eq!(
            answer.contains(&format!("{root}/new/{at}.php")),
            expected,
            "{at}"
        );
    }
    assert!(!answer.contains("/old/"));
    assert_eq!(master.output(), "");
}

#[test]
fn a_pool_without_opcache_has_an_empty_list_and_compiles_nothing() {
    let site = Scripts::new();
    site.script("a.php", "<?php echo 1;");
    let master = Master::start(&site.config());
    let list: OwnedFd = tempfile::tempfile().unwrap().into();
    let number = master.fork(1, &[], list.try_clone().unwrap());
    assert_eq!(master.end_of_number(number), End::Code(0));
    assert_eq!(weir_sys::memory::read(list.as_fd(), 100).unwrap(), b"");
    let list =
        weir_sys::memory::file(c"list", format!("{}/a.php\0", site.root()).as_bytes()).unwrap();
    let number = master.fork(2, &[], list);
    assert_eq!(master.end_of_number(number), End::Code(0));
}

fn preloading(site: &Scripts, script: &Path) -> Config {
    let config = opcache(site).with("define", &format!("opcache.preload={}", script.display()));
    if weir_sys::identity::is_root() {
        return config.with("define", "opcache.preload_user=root");
    }
    config
}

#[test]
fn scripts_can_be_preloaded() {
    let site = Scripts::new();
    site.script(
        "preload.php",
        "<?php class Preloaded { const WORD = 'from before'; }",
    );
    site.script("a.php", "<?php echo Preloaded::WORD;");
    let config = preloading(&site, &site.path("preload.php"));
    let master = Master::start(&config);
    let mut worker = master.worker();
    for _ in 0..2 {
        assert_eq!(worker.get(&site, "/a.php").body(), "from before");
    }
}

#[test]
fn figures_are_measured_when_they_are_asked_for() {
    let site = Scripts::new();
    site.script("light.php", "<?php echo 1;");
    site.script(
        "heavy.php",
        "<?php $a = str_repeat('x', 30000000); function used() { $u = getrusage(); return $u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6; } $start = used(); while (used() - $start < 0.1);",
    );
    let master = Master::start(&site.config().with("figures", "1"));
    let mut worker = master.worker();
    worker.get(&site, "/light.php");
    let light = worker.get(&site, "/light.php");
    let heavy = worker.get(&site, "/heavy.php");
    let after = worker.get(&site, "/light.php");
    assert!(
        light.cpu < 100_000 && light.memory < 10_000_000,
        "{light:?}"
    );
    assert!(light.resident > 1_000_000, "{light:?}");
    assert!(
        heavy.cpu > 50_000 && heavy.memory > 30_000_000,
        "{} {}",
        heavy.cpu,
        heavy.memory
    );
    assert!(heavy.resident > 30_000_000);
    assert!(
        after.cpu < 100_000 && after.memory < 10_000_000,
        "{after:?}"
    );
    let master = Master::start(&site.config());
    let none = master.worker().get(&site, "/light.php");
    assert_eq!((none.cpu, none.memory, none.resident), (0, 0, 0));
}

#[test]
fn scripts_run_in_a_chroot_and_without_capabilities() {
    let site = Scripts::new();
    site.script(
        "www/a.php",
        "<?php register_shutdown_function(fn() => print(getcwd()));
         echo __FILE__, ' ', getcwd(), ' ', file_exists('/proc') ? 'outside' : 'inside', ' ';",
    );
    let config = site
        .config()
        .with("chroot", &site.root())
        .with("chdir", "/www");
    if !weir_sys::identity::is_root() {
        // No other user may do this. The test can only check the message.
        let master = Master::launch(&config, &[]);
        assert!(matches!(master.told(), Told::Failed(why) if why.contains("chroot")));
    }
    if !goes_on_as_root() {
        return;
    }
    let request = Request::get(&site, "/a.php")
        .with("SCRIPT_FILENAME", "/www/a.php")
        .with("DOCUMENT_ROOT", "/www");
    let expected = "/www/a.php /www inside /www";
    let master = Master::start(&config);
    assert_eq!(master.worker().ask(&request).body(), expected);

    // Started as by the manager: as an ordinary user with only this capability.
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["--inh-caps=+sys_chroot", "--ambient-caps=+sys_chroot"])
        .args(program());
    let master = Master::launch_by(setpriv, &config, &[]);
    let told = master.told();
    assert!(matches!(told, Told::Ready(_)), "{told:?}");
    let mut worker = master.worker();
    assert_eq!(worker.ask(&request).body(), expected);
    for pid in [master.pid(), worker.pid] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("Uid:\t65534\t65534"), "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(
                status.contains(&format!("{set}:\t0000000000000000")),
                "{status}"
            );
        }
    }
}

#[test]
fn a_master_that_cannot_start_says_why() {
    let site = Scripts::new();
    let broken = site.beside().join("preload.php");
    fs::write(&broken, "<?php nothing();").unwrap();
    let config = preloading(&site, &broken);
    let mut master = Master::launch(&config, &[]);
    // PHP itself ends the process; its message is in the log.
    assert_ne!(master.wait(), Some(0));
    master.said("nothing");
    for (config, why) in [
        (
            site.config().with("ini", "nonsense"),
            "a wrong value for ini",
        ),
        // The version of the protocol is checked before all other settings.
        (
            site.config()
                .with("ini", "nonsense")
                .with("protocol", "999"),
            "weir and weir-php are from different builds",
        ),
        (
            site.config().with("protocol", ""),
            "weir uses protocol an unknown version",
        ),
        (
            site.config()
                .with("weir_version", "0.0.7")
                .with("ini", "nonsense"),
            "weir is version 0.0.7",
        ),
        (
            site.config().with("weir_version", ""),
            "weir is version unknown",
        ),
        (site.config().with("chdir", "/nowhere"), "chdir to /nowhere"),
        (
            site.config().with("chroot", "/nowhere"),
            "chroot to /nowhere",
        ),
        // Without AppArmor, or if its profile has no such hat: nothing runs unconfined.
        (
            site.config().with("apparmor_hat", "no-such-hat"),
            "apparmor_hat = no-such-hat: cannot ",
        ),
    ] {
        let master = Master::launch(&config, &[]);
        let told = master.told();
        assert!(
            matches!(&told, Told::Failed(text) if text.contains(why)),
            "{told:?}"
        );
    }
}

#[test]
fn a_worker_is_made_fast_and_many_can_be() {
    let site = Scripts::new();
    site.script("a.php", "<?php echo getmypid();");
    let master = Master::start(&site.config());
    let start = Instant::now();
    let mut workers: Vec<Worker> = (0..60).map(|_| master.worker()).collect();
    for worker in &mut workers {
        assert_eq!(worker.get(&site, "/a.php").body(), worker.pid.to_string());
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    let pids: Vec<u32> = workers.iter().map(|worker| worker.pid).collect();
    drop(workers);
    for _ in pids {
        let told = master.told_when(|told| matches!(told, Told::Exited { .. }));
        assert!(
            matches!(
                told,
                Told::Exited {
                    end: End::Code(0),
                    ..
                }
            ),
            "{told:?}"
        );
    }
}

#[test]
fn the_program_says_what_php_is() {
    let said = |arguments: &[&str]| {
        let mut child = command(&program())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        (child.wait().unwrap().code().unwrap(), text)
    };
    let (code, version) = said(&["-n", "-v"]);
    assert!(
        code == 0 && version.starts_with("PHP 8.") && version.contains("(fpm-fcgi)"),
        "{version}"
    );
    assert!(version.contains("Zend Engine v4."), "{version}");
    let (code, modules) = said(&["-n", "-m"]);
    assert!(
        code == 0 && modules.starts_with("[PHP Modules]\ncgi-fcgi\nCore\n"),
        "{modules}"
    );
    assert!(modules.contains("\n[Zend Modules]\n"), "{modules}");
    let (code, info) = said(&["-n", "-d", "user_agent=of the line", "-i"]);
    assert!(
        code == 0 && info.contains("Server API => FPM/FastCGI"),
        "{info}"
    );
    assert!(
        info.contains("user_agent => of the line => of the line"),
        "{info}"
    );
    assert!(info.contains("\ncgi-fcgi\n\nphp-fpm => active\n"), "{info}");
    let (code, usage) = said(&["--nonsense"]);
    assert!(code == 64 && usage.contains("Usage: weir-php"), "{usage}");
    assert_eq!(said(&["-h"]).0, 0);
    assert_eq!(said(&["-n"]).0, 64);
}

/// What READY says of the session of a request.
#[test]
fn a_request_tells_how_long_it_held_the_lock_of_its_session() {
    const SHORT: u64 = 300_000;
    let site = Scripts::new();
    let sessions = site.path("sessions");
    fs::create_dir(&sessions).unwrap();
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o777)).unwrap();
    let pause = format!("usleep({SHORT});");
    let save = "session_set_save_handler(new H);";
    let wrapped = "class H extends SessionHandler {}";
    let foreign = "class H implements SessionHandlerInterface { \
        function open($path, $name): bool { return true; } function close(): bool { return true; } \
        function read($id): string { return ''; } function write($id, $data): bool { return true; } \
        function destroy($id): bool { return true; } function gc($age): int { return 0; } }";
    for (name, code) in [
        ("held", format!("session_start(); {pause}")),
        (
            "twice",
            format!("session_start(); session_commit(); session_start(); {pause}"),
        ),
        (
            "named",
            format!("session_name('SHOP'); session_start(); {pause}"),
        ),
        (
            "wrapped",
            format!("{wrapped} {save} session_start(); {pause}"),
        ),
        (
            "end",
            format!("register_shutdown_function(function () {{ {pause} }}); session_start();"),
        ),
        (
            "early",
            format!("session_start(); session_write_close(); {pause}"),
        ),
        (
            "aborted",
            format!("session_start(); session_abort(); {pause}"),
        ),
        ("none", pause.clone()),
        (
            "read",
            format!("session_start(['read_and_close' => true]); {pause}"),
        ),
        (
            "foreign",
            format!("{foreign} {save} session_start(); {pause}"),
        ),
        (
            "unnamed",
            format!("ini_set('session.use_cookies', 0); session_start(); {pause}"),
        ),
    ] {
        site.script(&format!("{name}.php"), &format!("<?php {code}"));
    }
    let path = sessions.display().to_string();
    let config = site
        .config()
        .with("define", &format!("session.save_path={path}"));
    let master = Master::start(&config);
    let mut worker = master.worker();
    let mut of = |name: &str| worker.get(&site, &format!("/{name}.php")).session;
    for (name, cookie) in [
        ("held", "PHPSESSID"),
        ("twice", "PHPSESSID"),
        ("named", "SHOP"),
        ("wrapped", "PHPSESSID"),
        ("end", "PHPSESSID"),
    ] {
        let (held, _, of) = of(name).unwrap_or_else(|| panic!("{name} held it"));
        assert!(held >= SHORT && of == cookie, "{name}: {held} {of}");
    }
    for name in ["none", "read", "foreign", "unnamed"] {
        assert_eq!(of(name), None, "{name}");
    }
    // They held the lock for a moment only.
    for name in ["early", "aborted"] {
        let (held, ..) = of(name).unwrap_or_else(|| panic!("{name} held it"));
        assert!(held < SHORT, "{name}: {held}");
    }

    // The second request of a session waits for the first one, and says so.
    site.script("wait.php", &format!("<?php {WAIT}"));
    let mut other = master.worker();
    let mut request = Request::get(&site, "/wait.php");
    request = request.with("HTTP_COOKIE", "PHPSESSID=same");
    worker.send(&request);
    wait_until("it has the session", || site.path("here").exists());
    other.send(&request);
    std::thread::sleep(Duration::from_micros(SHORT));
    site.script("go", "");
    worker.answer();
    let (_, waited, _) = other.answer().session.expect("it held the lock, too");
    assert!(waited > 0, "{waited}");
}

/// Opens the session, and waits until it may go on.
const WAIT: &str = "session_start(); touch(__DIR__ . '/here'); while (!file_exists(__DIR__ . '/go')) { usleep(1000); clearstatcache(); }";
