//! Pools whose masters are forked from one process that has loaded PHP: they are as if each had loaded it, whatever that process
//! does, and share nothing that a script or client has made.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{FileExt, MetadataExt, chown},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_test::{
    Setup, Weir, is_root, php,
    process::{Process, descendants},
    wait_until,
    weir::program,
};

use super::{masters, setup, workers};

/// Users of Debian that own nothing.
const USERS: [&str; 4] = ["games", "lp", "news", "uucp"];

pub(super) const ONE: &str = "pm = \"static\"\nmax_children = 1\n";

/// A pool for each of these lines, of different users where root starts weir, with a site of its name. ROOT is the sites' root.
pub(super) fn pools(names: &[(&str, &str)]) -> Setup {
    let first = setup(ONE).admin();
    let root = first.root();
    let mut users = USERS.iter().cycle();
    names.iter().fold(first, |setup, (name, lines)| {
        let lines = lines.replace("ROOT", &root.display().to_string());
        let who = match is_root() {
            true => format!("user = \"{}\"\n", users.next().unwrap()),
            false => php::identity(),
        };
        setup.more(&format!(
            "[pool.{name}]\nruntime = \"php\"\n{who}{ONE}{lines}\n\
             [site.{name}]\nhosts = [\"{name}\"]\nroot = \"{}\"\npool = \"{name}\"\n",
            root.display()
        ))
    })
}

pub(super) fn ask(weir: &Weir, host: &str, path: &str) -> String {
    let answer = weir.request("GET", path, &[("Host", host)], b"");
    answer.expect(200).text()
}

pub(super) fn templates(weir: &Weir) -> Vec<Process> {
    let all = weir.processes().into_iter();
    all.filter(|process| process.name == "weir-template")
        .collect()
}

/// What the status says of a pool's load.
pub(super) fn load(weir: &Weir, name: &str) -> Value {
    let status = weir.status();
    let pools = status["pools"].as_array().expect("pools").iter();
    let mut named = pools.filter(|pool| pool["name"] == name);
    named.next().expect("the pool")["php_load"].clone()
}

pub(super) fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_raw(process.pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("a signal");
}

/// A line of /proc/PID/status.
pub(super) fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the field").trim().to_owned()
}

#[test]
fn pools_of_several_users_share_a_load_and_have_no_right_of_the_process_that_loads() {
    let weir = pools(&[("a", ""), ("b", "")]).start();
    super::pid(&weir);
    for host in ["a", "b"] {
        ask(&weir, host, "/pid.php");
    }
    let [template] = &templates(&weir)[..] else {
        panic!("not one template: {:?}", templates(&weir));
    };
    assert_eq!(load(&weir, "a")["template"], template.pid);
    assert_eq!(load(&weir, "b")["template"], template.pid);
    let masters = masters(&weir);
    assert_eq!(masters.len(), 3);
    let template_user = field(template.pid, "Uid:");
    for process in masters.iter().chain(&workers(&weir)) {
        for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
            assert_eq!(field(process.pid, set), "0000000000000000", "{process:?}");
        }
        if is_root() {
            assert_ne!(field(process.pid, "Uid:"), template_user);
        }
    }
    for master in &masters {
        assert_eq!(field(master.pid, "PPid:"), weir.pid().to_string());
        let line = fs::read_to_string(format!("/proc/{}/cmdline", master.pid)).unwrap();
        assert!(line.starts_with("weir-php: pool "), "{line}");
    }
    // The template's capabilities are permitted, but none is effective.
    assert_eq!(field(template.pid, "CapEff:"), "0000000000000000");
    assert!(descendants(template.pid).is_empty());
}

#[test]
fn pools_that_cannot_share_a_load_say_why() {
    let weir = pools(&[
        ("a", ""),
        ("b", "php_define = { precision = \"5\" }\n"),
        ("c", "php_admin_value = { \"opcache.enable\" = \"0\" }\n"),
    ])
    .file("precision.php", "<?php echo ini_get('precision');")
    .file(
        "enabled.php",
        "<?php echo json_encode(@opcache_get_status(false)['opcache_enabled'] ?? false);",
    )
    .start();
    assert_eq!(ask(&weir, "b", "/precision.php"), "5");
    assert_eq!(ask(&weir, "c", "/enabled.php"), "false");
    assert_eq!(ask(&weir, "a", "/enabled.php"), "true");
    let why = |name: &str| {
        load(&weir, name)["own"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(why("b"), "no other pool loads the same PHP");
    assert!(why("c").contains("OPcache"), "{}", why("c"));
    assert!(load(&weir, "a")["template"].is_u64());
    let text = weir.command(&["status", "c"]).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("loaded for this pool alone"), "{text}");
}

#[test]
fn what_only_a_pool_s_user_may_read_is_not_left_out() {
    if !is_root() {
        // All processes have one user then.
        return;
    }
    let ini = "php_ini = \"ROOT/php.ini\"\n";
    let cache = "php_define = { \"opcache.file_cache\" = \"ROOT/cache\" }\n";
    let setup = pools(&[("a", ini), ("b", ini), ("c", cache), ("d", cache)])
        .file("php.ini", "precision = 5\n")
        .file("cache/none", "")
        .file("precision.php", "<?php echo ini_get('precision');");
    // The first pool's user, and the third's.
    for (path, user, mode) in [("php.ini", USERS[0], 0o400), ("cache", USERS[2], 0o700)] {
        let path = setup.root().join(path);
        let id = Command::new("id").args(["-u", user]).output().unwrap();
        let id = String::from_utf8(id.stdout).unwrap();
        chown(&path, Some(id.trim().parse().unwrap()), None).unwrap();
        weir_test::weir::mode(&path, mode);
    }
    let weir = setup.start();
    assert_eq!(ask(&weir, "a", "/precision.php"), "5");
    assert_eq!(ask(&weir, "b", "/precision.php"), "14");
    for (host, what) in [("b", "root/php.ini"), ("c", "root/cache")] {
        ask(&weir, host, "/pid.php");
        let load = load(&weir, host);
        let why = load["own"].as_str().unwrap_or_default();
        assert!(
            why.contains("no permission for") && why.ends_with(what),
            "{load}"
        );
    }
}

#[test]
fn applications_that_stay_booted_are_forked_in_pools_that_share_a_load() {
    let lines = "worker = \"ROOT/app.php\"\n";
    let script = "<?php $boot = getmypid(); while (frankenphp_handle_request(function () use ($boot) {\n\
                  echo $boot === getmypid() ? 'booted' : 'forked', ' ', getmypid(); })) {}";
    let weir = pools(&[("a", lines), ("b", lines)])
        .file("app.php", script)
        .start();
    for host in ["a", "b"] {
        let said = ask(&weir, host, "/app.php");
        let (how, pid) = said.split_once(' ').expect("how, and a process id");
        assert_eq!(how, "forked", "{said}");
        let worker = workers(&weir)
            .into_iter()
            .find(|one| one.pid.to_string() == pid);
        signal(&worker.expect("it runs"), Signal::KILL);
        let next = ask(&weir, host, "/app.php");
        assert!(
            next.starts_with("forked") && next != said,
            "{next} behind {said}"
        );
        assert!(load(&weir, host)["template"].is_u64());
    }
}

#[test]
fn a_single_pool_has_no_second_process() {
    let weir = setup(ONE).admin().start();
    super::pid(&weir);
    assert!(templates(&weir).is_empty());
}

#[test]
fn pools_run_on_without_the_process_that_loaded_php_and_the_next_start_loads_again() {
    let weir = pools(&[("a", ""), ("b", "")]).start();
    for host in ["a", "b"] {
        ask(&weir, host, "/pid.php");
    }
    let before = masters(&weir);
    signal(&templates(&weir)[0], Signal::KILL);
    wait_until("it is gone", || templates(&weir).is_empty());
    for host in ["a", "b"] {
        ask(&weir, host, "/pid.php");
    }
    assert_eq!(masters(&weir), before);
    let output = weir.command(&["pool", "a", "restart"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    ask(&weir, "a", "/pid.php");
    assert_eq!(templates(&weir).len(), 1);
    assert_eq!(load(&weir, "a")["template"], templates(&weir)[0].pid);
    assert_ne!(masters(&weir), before);
}

#[test]
fn a_process_that_hangs_holds_no_pool() {
    let weir = pools(&[("a", ""), ("b", "")]).start();
    for host in ["a", "b"] {
        ask(&weir, host, "/pid.php");
    }
    signal(&templates(&weir)[0], Signal::STOP);
    let output = weir.command(&["pool", "a", "restart"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    ask(&weir, "a", "/pid.php");
    let why = load(&weir, "a")["own"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(why.contains("does not answer"), "{why}");
    wait_until("the one that hangs is killed", || {
        templates(&weir).is_empty()
    });
}

/// Which of these texts, which all begin with `first`, a process has somewhere in its memory.
fn found_in_memory(pid: u32, first: &str, texts: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else {
        return found;
    };
    let mut piece = vec![0; 1 << 20];
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap_or_default(), fields.next());
        let (begin, end) = range.split_once('-').unwrap_or_default();
        let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (mut at, end) = (parse(begin), parse(end));
        if !rights.is_some_and(|rights| rights.starts_with("rw")) || line.ends_with("[vvar]") {
            continue;
        }
        while at < end {
            let length = piece
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let piece = &mut piece[..length];
            let is_read = memory.read_exact_at(piece, at).is_ok();
            let piece = &*piece;
            // The memory is large: most of it is searched only once.
            let has = |text: &str| memchr::memmem::find(piece, text.as_bytes()).is_some();
            if is_read && has(first) {
                found.extend(texts.iter().filter(|text| has(text)).cloned());
            }
            at += length as u64;
        }
    }
    found
}

#[test]
fn no_pool_has_anything_of_another_ones_scripts_in_its_memory() {
    if !is_root() {
        // Nobody else may look into these processes.
        return;
    }
    const FIRST: &str = "secret-of-";
    let names = ["a", "b", "c"];
    let text = |name: &str| format!("{FIRST}{name}-{name}{name}{name}-0123456789");
    let mut setup = pools(&names.map(|name| (name, "")));
    for name in names {
        let script = format!(
            "<?php class Of_{name} {{ const TEXT = '{0}'; }} function f_{name}() {{ return Of_{name}::TEXT; }}\n\
             define('{0}x', 1); $GLOBALS['kept'] = str_repeat(f_{name}(), 3); ini_set('user_agent', f_{name}()); echo f_{name}();",
            text(name)
        );
        setup = setup.file(&format!("{name}.php"), &script);
    }
    let weir = setup.start();
    for name in names {
        // OPcache does not take files that were written just now.
        let script = fs::File::options()
            .write(true)
            .open(weir.root().join(format!("{name}.php")))
            .unwrap();
        let before = std::time::SystemTime::now() - Duration::from_secs(60);
        script.set_modified(before).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&weir, name, &format!("/{name}.php")), text(name));
        }
    }
    // One pool is restarted after the other pools have run scripts.
    let output = weir.command(&["pool", "b", "restart"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let of_pool = |name: &str| {
        let title = format!("weir-php: pool {name}\0");
        let all = weir.processes().into_iter();
        all.filter(|process| {
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.starts_with(title.as_bytes())
        })
        .collect::<Vec<_>>()
    };
    let texts = names.map(text);
    for name in names {
        // The processes of the restarted pool have this memory when one of them has served a request.
        wait_until("the search finds what is there", || {
            assert_eq!(ask(&weir, name, &format!("/{name}.php")), text(name));
            let mut own = of_pool(name).into_iter();
            own.any(|one| !found_in_memory(one.pid, FIRST, &texts).is_empty())
        });
        let own = of_pool(name);
        assert!(own.len() >= 2, "{own:?}");
        let mut all = BTreeSet::new();
        for process in own {
            let found = found_in_memory(process.pid, FIRST, &texts);
            let others = found.iter().filter(|one| **one != text(name)).count();
            assert_eq!(others, 0, "{process:?} of {name} has {found:?}");
            all.extend(found);
        }
        assert!(!all.is_empty(), "the search finds what is there: {name}");
    }
    for template in templates(&weir) {
        let found = found_in_memory(template.pid, FIRST, &texts);
        assert!(found.is_empty(), "{template:?} has {found:?}");
    }
}

/// What a script can do to the process with this number.
const REACH: &str = r#"<?php
    $pid = (int) $_GET['pid'];
    $c = FFI::cdef('int kill(int, int); long ptrace(long, int, void *, void *); int prlimit(int, int, void *, void *);
        int setpriority(int, int, int); int sched_setaffinity(int, size_t, void *); int pidfd_open(int, unsigned);
        struct piece { void *at; size_t length; }; long process_vm_readv(int, struct piece *, long, struct piece *, long, long);
        long syscall(long, ...);');
    $mask = $c->new('long[16]');
    $mask[0] = 3;
    $limit = $c->new('long[2]');
    [$byte, $one] = [$c->new('char[8]'), $c->new('struct piece[2]')];
    $one[0]->at = FFI::addr($byte);
    $one[1]->at = $c->cast('void *', 0x400000);
    $one[0]->length = $one[1]->length = 8;
    $can = ['be signalled' => $c->kill($pid, 0) === 0, 'be limited' => $c->prlimit($pid, 7, null, FFI::addr($limit)) === 0,
        'get a priority' => $c->setpriority(0, $pid, 19) === 0, 'get processors' => $c->sched_setaffinity($pid, 128, FFI::addr($mask)) === 0,
        'be traced' => $c->ptrace(0x4206, $pid, null, null) === 0,
        'be read' => $c->process_vm_readv($pid, FFI::addr($one[0]), 1, FFI::addr($one[1]), 1, 0) >= 0];
    foreach (['mem', 'environ', 'maps', 'smaps', 'auxv', 'stack', 'syscall', 'io', 'pagemap'] as $file) {
        $can["show $file"] = @file_get_contents("/proc/$pid/$file", false, null, 0, 1) !== false;
    }
    foreach (['exe', 'cwd', 'root', 'fd/0', 'fd/1', 'ns/mnt'] as $link) {
        $can["show $link"] = @readlink("/proc/$pid/$link") !== false;
    }
    $can['show fd'] = @scandir("/proc/$pid/fd") !== false;
    echo json_encode(array_keys(array_filter($can)));
"#;

#[test]
fn no_pool_reaches_a_process_that_loads_php() {
    if !is_root() {
        // All processes have one user then.
        return;
    }
    let ffi = "php_admin_value = { \"ffi.enable\" = \"1\" }\n";
    let other = format!("{ffi}php_define = {{ precision = \"5\" }}\n");
    let names = [("a", ffi), ("b", ffi), ("c", &other), ("d", &other)];
    let weir = pools(&names).file("reach.php", REACH).start();
    for (host, _) in names {
        ask(&weir, host, "/pid.php");
    }
    let reached = |host: &str, pid: u32| ask(&weir, host, &format!("/reach.php?pid={pid}"));
    let templates = templates(&weir);
    assert_eq!(templates.len(), 2);
    for template in &templates {
        for (host, _) in names {
            assert_eq!(reached(host, template.pid), "[]", "{host}: {template:?}");
        }
        // Another template with the same user cannot be reached either: it is not dumpable, so its files in /proc
        // belong to root.
        let files = fs::metadata(format!("/proc/{}/mem", template.pid)).unwrap();
        assert_eq!(files.uid(), 0);
    }
    // The check itself works: a process of the same user can be reached.
    let own = workers(&weir).into_iter().find(|worker| {
        let parent = field(worker.pid, "PPid:");
        let line = fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        line.starts_with(b"weir-php: pool a\0")
    });
    let of_own = reached("a", own.expect("its worker").pid);
    assert!(
        of_own.contains("be signalled") && of_own.contains("show maps"),
        "{of_own}"
    );
}

/// The memory that a process shares with those that were forked from it, and OPcache's lock, by their numbers (inodes).
fn what_is_shared(pid: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the maps of a process");
    let shared = maps.lines().filter(|line| line.contains(" rw-s "));
    let memory = shared.filter_map(|line| Some(format!("memory {}", line.split(' ').nth(4)?)));
    let descriptors =
        fs::read_dir(format!("/proc/{pid}/fd")).expect("the descriptors of a process");
    let locks = descriptors.flatten().filter_map(|entry| {
        let name = fs::read_link(entry.path()).ok()?.display().to_string();
        let is_lock = name.contains("opcache_lock") || name.contains("/.ZendSem.");
        let inode = fs::metadata(entry.path()).ok()?.ino();
        is_lock.then(|| format!("lock {inode}"))
    });
    memory.chain(locks).collect()
}

/// Also where OPcache has started before the fork, which is so only if no pool has settings of it.
#[test]
fn pools_share_neither_opcache_s_memory_nor_its_lock() {
    if !is_root() {
        // Nobody else may look into these processes.
        return;
    }
    let of_opcache = "php_admin_value = { \"opcache.revalidate_freq\" = \"3\" }\n";
    // With JIT, OPcache's memory has machine code, so OPcache starts in each master. In PHP 8.5 it does so in any case.
    let script = "<?php $has_jit = ini_get('opcache.jit') !== 'disable' && (int) ini_get('opcache.jit_buffer_size');\n\
                  echo $has_jit || PHP_VERSION_ID >= 80500 ? 'late' : 'early';";
    for lines in ["", of_opcache] {
        let setup = pools(&[("a", ""), ("b", ""), ("c", lines)]);
        let weir = setup.file("jit.php", script).start();
        let mut starts_early = lines.is_empty();
        for name in ["a", "b", "c"] {
            starts_early &= ask(&weir, name, "/jit.php") == "early";
        }
        let template = templates(&weir)[0].pid;
        let of_template = what_is_shared(template);
        assert_eq!(!of_template.is_empty(), starts_early, "{of_template:?}");
        let mut seen = of_template;
        for master in masters(&weir) {
            let own = what_is_shared(master.pid);
            assert!(own.iter().any(|one| one.starts_with("memory")), "{own:?}");
            assert!(own.iter().any(|one| one.starts_with("lock")), "{own:?}");
            assert!(seen.is_disjoint(&own), "{seen:?} {own:?}");
            seen.extend(own);
        }
    }
}

/// An extension that makes shared memory while it starts, as APCu does.
const SHARES: &str = r#"
#include <sys/mman.h>
#include "php.h"
static PHP_MINIT_FUNCTION(shares)
{
    return mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? FAILURE : SUCCESS;
}
zend_module_entry shares_module_entry = {STANDARD_MODULE_HEADER, "shares", NULL, PHP_MINIT(shares), NULL, NULL, NULL, NULL, "1",
    STANDARD_MODULE_PROPERTIES};
ZEND_GET_MODULE(shares)
"#;

/// Compiles an extension from this source, and returns the folder that it is in, and its file.
pub(super) fn extension(name: &str, source: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    weir_test::weir::mode(folder.path(), 0o755);
    let [text, object] = ["c", "so"].map(|end| folder.path().join(format!("{name}.{end}")));
    fs::write(&text, source).unwrap();
    let includes = Command::new("php-config")
        .arg("--includes")
        .output()
        .unwrap();
    let includes = String::from_utf8(includes.stdout).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-D_GNU_SOURCE"])
        .arg(format!("-DCOMPILE_DL_{}", name.to_uppercase()))
        .args(includes.split_whitespace())
        .arg("-o")
        .args([&object, &text])
        .status()
        .unwrap();
    assert!(compiled.success());
    (folder, object)
}

#[test]
fn an_extension_that_shares_memory_is_loaded_by_each_pool() {
    let (_folder, object) = extension("shares", SHARES);
    let line = format!("php_define = {{ extension = \"{}\" }}\n", object.display());
    let weir = pools(&[("a", &line), ("b", &line), ("c", ""), ("d", "")]).start();
    for host in ["a", "b", "c", "d"] {
        ask(&weir, host, "/pid.php");
    }
    let why = load(&weir, "a")["own"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(why.contains("shared memory of 1024 KiB"), "{why}");
    assert_eq!(load(&weir, "b")["own"], why);
    assert!(load(&weir, "c")["template"].is_u64());
    weir.wait_for_error(&["each pool loads PHP", "shared memory of 1024 KiB"]);
}

/// What `weir check` prints of this configuration.
fn check(setup: &Setup) -> String {
    let file = setup.write_toml();
    let output = Command::new(program())
        .arg("check")
        .arg("-c")
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn weir_check_says_which_pools_share_a_load() {
    let said = check(&pools(&[("a", ""), ("b", "")]));
    assert_eq!(said, "ok\nPHP is loaded once for all 3 pools\n");
    assert_eq!(check(&setup(ONE)), "ok\n");
    let (_folder, object) = extension("shares", SHARES);
    let shares = format!("php_define = {{ extension = \"{}\" }}\n", object.display());
    let said = check(&pools(&[
        ("a", ""),
        ("b", ""),
        ("c", "php_load = \"own\"\n"),
        ("d", &shares),
        ("e", &shares),
    ]));
    let lines: Vec<&str> = said.lines().collect();
    let [ok, shared, extension, own] = lines[..] else {
        panic!("{said}");
    };
    assert_eq!(ok, "ok");
    assert_eq!(shared, "PHP is loaded once for 3 pools: app, a, b");
    let why = "PHP is loaded 2 times, for each of these pools alone: d, e: an extension makes shared memory of 1024 KiB";
    assert!(extension.starts_with(why), "{extension}");
    assert_eq!(own, "PHP is loaded for pool c alone: php_load = \"own\"");
}
