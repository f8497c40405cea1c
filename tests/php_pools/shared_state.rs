//! What PHP has in a pool that shares a load is what it has in one that loads PHP for itself; and what must differ between pools does.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use weir_test::{
    LIMIT, Weir, is_root, php,
    process::{Process, descendants},
    wait_for, wait_until,
};

use super::{
    masters, setup,
    shared_load::{ONE, ask, load, pools},
};

/// Whatever PHP and the kernel can tell of a process, but for what differs between two processes that are started alike.
const ALL: &str = r#"<?php
    function call($name, ...$arguments) { return function_exists($name) ? $name(...$arguments) : null; }
    function lines($file, $without = '~^$~') { return array_values(preg_grep($without, (array) @file($file, FILE_IGNORE_NEW_LINES), PREG_GREP_INVERT)); }
    function link_of($path) { return preg_replace(['~\d{4,}~', '~ZendSem\.\w+~'], ['N', 'ZendSem'], (string) @readlink($path)); }
    $all = [];
    // ---- the kernel's view of the process ----
    $all['status'] = lines('/proc/self/status', '~^(Ngid|N?S?T?P?Pid|Tgid|NStgid|NSpid|NSpgid|NSsid|Vm\w+|Rss\w+|\w*ctxt\w*|SigQ|FDSize|Cpus\w*|Mems\w*):~i');
    $stat = explode(' ', preg_replace('~^.*\) ~', '', file_get_contents('/proc/self/stat')));
    $all['stat'] = ['session is the group' => $stat[2] === $stat[3], 'group is the parent' => $stat[2] === $stat[1], 'terminal' => $stat[4], $stat[5],
        'priority' => $stat[15], 'nice' => $stat[16], 'threads' => $stat[17], 'exit signal' => $stat[35], 'real time' => $stat[37], 'policy' => $stat[38]];
    foreach (['limits', 'oom_score_adj', 'coredump_filter', 'timerslack_ns', 'personality', 'loginuid', 'sessionid', 'cgroup', 'uid_map', 'attr/current'] as $file) {
        $all["proc $file"] = lines("/proc/self/$file");
    }
    foreach (array_merge(glob('/proc/self/ns/*'), ['/proc/self/exe', '/proc/self/cwd', '/proc/self/root']) as $link) {
        $all['links'][$link] = link_of($link);
    }
    foreach (scandir('/proc/self/fd') as $number) {
        $all['descriptors'][$number] = [link_of("/proc/self/fd/$number"), lines("/proc/self/fdinfo/$number", '~^(pos|ino|mnt_id|lock|Pid|tfd)~')];
    }
    $all['shared memory'] = array_values(preg_replace(['~^\w+-\w+ ~', '~ \w+:\w+ \d+ ~'], '', preg_grep('~^\S+ ...s~', lines('/proc/self/maps'))));
    sort($all['shared memory']);
    // The files belong to root if the process is not dumpable.
    $all['owner'] = fileowner('/proc/self/environ');
    $all['environ'] = strtr(file_get_contents('/proc/self/environ'), "\0", "\n");
    // The values of the pool that shares a load, and of the pool that does not.
    $all['name'] = preg_replace('~pool (shared|own)~', 'pool', rtrim(file_get_contents('/proc/self/cmdline'), "\0"));
    // ---- PHP's view of the process ----
    foreach (['umask', 'getcwd', 'get_current_user', 'getmyuid', 'getmygid', 'php_sapi_name', 'sys_get_temp_dir', 'session_save_path', 'session_name', 'php_ini_loaded_file',
        'php_ini_scanned_files', 'posix_getrlimit', 'posix_getuid', 'posix_geteuid', 'posix_getgid', 'posix_getegid', 'posix_getgroups', 'posix_ctermid', 'posix_errno',
        'date_default_timezone_get', 'localeconv', 'get_include_path', 'error_reporting', 'error_get_last', 'connection_status', 'ignore_user_abort', 'ob_get_status',
        'get_included_files', 'spl_autoload_functions', 'stream_get_wrappers', 'stream_get_filters', 'stream_get_transports', 'hash_algos', 'gc_status', 'gc_enabled',
        'realpath_cache_size', 'get_resources', 'get_loaded_extensions', 'get_declared_classes', 'get_declared_interfaces', 'get_declared_traits', 'get_defined_functions',
        'libxml_get_errors', 'libxml_get_last_error', 'openssl_error_string', 'openssl_get_cert_locations', 'curl_version', 'mb_internal_encoding', 'mb_language',
        'mb_substitute_character', 'mb_list_encodings', 'mb_detect_order', 'intl_get_error_message', 'locale_get_default', 'iconv_get_encoding', 'gd_info', 'zend_version', 'php_uname',
        'preg_last_error_msg', 'json_last_error_msg', 'opcache_get_configuration', 'pdo_drivers', 'cal_info', 'password_algos', 'session_module_name', 'headers_list'] as $name) {
        $all[$name] = call($name);
    }
    unset($all['gc_status']['application_time'], $all['gc_status']['collector_time'], $all['gc_status']['destructor_time'], $all['gc_status']['free_time']);
    $all['ini'] = ini_get_all(null, true);
    $all['timers'] = lines('/proc/self/timers', '~^notify~');
    // Settings of OPcache that a pool may change are not part of a shared load. PHP-FPM does not list them here either.
    foreach (preg_grep('~^opcache~', array_keys($all['ini']), PREG_GREP_INVERT) as $name) {
        $all['cfg'][$name] = get_cfg_var($name);
    }
    $all['constants'] = get_defined_constants(true);
    unset($all['constants']['user']);
    $all['zend'] = get_loaded_extensions(true);
    $all['locales'] = array_map(fn($of) => setlocale($of, 0), [LC_ALL, LC_COLLATE, LC_CTYPE, LC_MONETARY, LC_NUMERIC, LC_TIME]);
    $all['times'] = [strftime_of_now(), date('e T', 0), mktime(0, 0, 0, 7, 1, 2020)];
    function strftime_of_now() { return (new DateTime('2020-07-01 12:00'))->format('c e'); }
    $all['env'] = array_map('getenv', ['PATH', 'SHOP', 'USER', 'HOME', 'LANG', 'TZ', 'PHPRC', 'PHP_INI_SCAN_DIR', 'LD_PRELOAD', 'TMPDIR']);
    $all['server'] = array_keys($_SERVER);
    $opcache = call('opcache_get_status', false);
    // The scripts that OPcache has compiled so far.
    unset($opcache['jit']['buffer_free']);
    $all['opcache'] = [$opcache['opcache_enabled'] ?? null, $opcache['jit'] ?? null, $opcache['interned_strings_usage']['buffer_size'] ?? null,
        array_sum(array_intersect_key($opcache['memory_usage'] ?? [], ['used_memory' => 1, 'free_memory' => 1, 'wasted_memory' => 1])),
        $opcache['opcache_statistics']['max_cached_keys'] ?? null, $opcache['preload_statistics'] ?? null];
    $all['has OPcache'] = (bool)($opcache['opcache_enabled'] ?? false);
    $all['preloaded'] = class_exists('Preloaded');
    $all['disabled'] = function_exists('passthru');
    foreach (get_loaded_extensions() as $name) {
        $all['reflection'][$name] = explode("\n", (string) new ReflectionExtension($name));
    }
    echo json_encode($all, JSON_PRETTY_PRINT | JSON_PARTIAL_OUTPUT_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
"#;

/// What two pools with these lines tell of their PHP: one that shares a load with a third, and one that loads for itself.
fn shared_and_own(lines: &str) -> [String; 2] {
    let user = match is_root() {
        true => "user = \"uucp\"\n".to_owned(),
        false => php::identity(),
    };
    let first = setup(ONE).admin().file("all.php", ALL).file(
        "preloaded.php",
        "<?php class Preloaded { const TEXT = 'preloaded'; }",
    );
    let root = first.root();
    let lines = lines.replace("ROOT", &root.display().to_string());
    let pools = [
        ("shared", ""),
        ("other", ""),
        ("own", "php_load = \"own\"\n"),
    ];
    let all = pools.iter().fold(first, |setup, (name, more)| {
        setup.more(&format!(
            "[pool.{name}]\nruntime = \"php\"\n{user}{ONE}{lines}{more}\n\
             [site.{name}]\nhosts = [\"{name}\"]\nroot = \"{}\"\npool = \"{name}\"\n",
            root.display()
        ))
    });
    let weir = all.start();
    let told = ["shared", "own"].map(|name| ask(&weir, name, "/all.php"));
    assert!(load(&weir, "shared")["template"].is_u64());
    assert_eq!(load(&weir, "own")["own"], "php_load = \"own\"");
    told
}

/// The first lines that only one of them has.
fn differences(shared: &[String], own: &[String]) -> Vec<String> {
    let only = |these: &[String], those: &[String], whose: &str| {
        let those: HashSet<&String> = those.iter().collect();
        let these = these.iter().filter(|line| !those.contains(line)).take(20);
        these
            .map(|line| format!("{whose}: {line}"))
            .collect::<Vec<_>>()
    };
    [only(shared, own, "shared"), only(own, shared, "own")].concat()
}

/// Lines of a pool, each way in which PHP may be loaded, and something that the pool tells then.
const WAYS: &[(&str, &str)] = &[
    (
        "php_admin_value = { \"opcache.memory_consumption\" = \"16\", memory_limit = \"99M\" }\n\
         php_value = { disable_functions = \"passthru\" }\nrlimit_files = 300\n\
         env = { SHOP = \"1\", TZ = \"Asia/Tokyo\", LC_ALL = \"C.UTF-8\" }\n",
        "\"opcache.memory_consumption\": 16777216,",
    ),
    (
        "php_admin_value = { \"opcache.preload\" = \"ROOT/preloaded.php\" }\nprocess_priority = 3\n",
        "\"preloaded\": true,",
    ),
    (
        "php_define = { \"opcache.jit_buffer_size\" = \"8M\", \"opcache.jit\" = \"tracing\" }\nclear_env = false\n",
        "\"has OPcache\": true,",
    ),
    (
        "php_define = { \"opcache.memory_consumption\" = \"24\", precision = \"7\" }\nrlimit_core = 0\nprocess_dumpable = true\n",
        "\"opcache.memory_consumption\": 25165824,",
    ),
    (
        "opcache_memory = \"32M\"\n",
        "\"opcache.memory_consumption\": 33554432,",
    ),
    // Without OPcache: it is switched off, or not loaded. PHP 8.5 has it in any case.
    (
        "php_define = { \"opcache.enable\" = \"0\" }\n",
        "\"has OPcache\": false,",
    ),
    ("no_php_ini = true\n", ""),
];

#[test]
fn php_is_the_same_as_if_the_pool_had_loaded_it() {
    for (lines, told) in WAYS {
        let [shared, own] = shared_and_own(lines);
        assert!(own.len() > 100_000, "{own}");
        assert!(own.contains(told), "{lines}: {told}");
        let [shared, own] =
            [shared, own].map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let different = differences(&shared, &own);
        assert!(shared == own, "{lines}: {different:#?}");
    }
}

/// Random numbers of each kind that PHP has.
const RANDOM: &str = r#"<?php
    use Random\{Randomizer, Engine};
    $engines = [];
    foreach ([Engine\Mt19937::class, Engine\PcgOneseq128XslRr64::class, Engine\Xoshiro256StarStar::class, Engine\Secure::class] as $engine) {
        $engines[$engine] = (new Randomizer(new $engine))->getInt(0, PHP_INT_MAX);
    }
    echo json_encode($engines + ['lcg_value' => lcg_value(), 'mt_rand' => mt_rand(), 'rand' => rand(), 'random_int' => random_int(0, PHP_INT_MAX),
        'random_bytes' => bin2hex(random_bytes(8)), 'uniqid' => uniqid(), 'more_entropy' => substr(uniqid('', true), -9),
        'str_shuffle' => str_shuffle(str_repeat('abcdefgh', 8)),
        'session' => session_create_id(), 'password' => password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]),
        'openssl' => function_exists('openssl_random_pseudo_bytes') ? bin2hex(openssl_random_pseudo_bytes(8)) : uniqid()]);
"#;

#[test]
fn no_two_pools_and_no_two_masters_have_the_same_random_numbers() {
    let names = ["a", "b", "c"];
    let weir = pools(&names.map(|name| (name, "")))
        .file("random.php", RANDOM)
        .start();
    let mut seen: HashSet<String> = HashSet::new();
    for _ in 0..4 {
        for name in names {
            let numbers: Value = serde_json::from_str(&ask(&weir, name, "/random.php")).unwrap();
            for (kind, number) in numbers.as_object().unwrap() {
                let is_new = seen.insert(format!("{kind} {number}"));
                assert!(is_new, "{kind} of {name} once more: {number}");
            }
            let output = weir.command(&["pool", name, "restart"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
    assert_eq!(seen.len(), 4 * names.len() * 15);
    assert!(load(&weir, "a")["template"].is_u64());
}

#[test]
fn timers_and_connections_work_in_pools_that_share_a_load() {
    let weir = pools(&[("a", ""), ("b", "")])
        .file("long.php", "<?php set_time_limit(1); for (;;);")
        .file(
            "call.php",
            "<?php $url = \"http://$_SERVER[SERVER_ADDR]:$_SERVER[SERVER_PORT]/pid.php\";\n\
             $of_curl = function_exists('curl_init') ? curl_init($url) : null;\n\
             $of_curl && curl_setopt($of_curl, CURLOPT_RETURNTRANSFER, true);\n\
             echo json_encode([!$of_curl || (int) curl_exec($of_curl) > 0, (int) file_get_contents($url) > 0]);",
        )
        .start();
    let answer = weir.request("GET", "/long.php", &[("Host", "a")], b"");
    assert_eq!(answer.status, 500);
    weir.wait_for_error(&["Maximum execution time of 1 second exceeded"]);
    assert_eq!(ask(&weir, "b", "/call.php"), "[true,true]");
}

/// What the kernel tells of a master, but for what differs between two that are started alike.
fn of_kernel(pid: u32) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let own = [
        "Pid:",
        "Tgid:",
        "Ngid:",
        "NS",
        "Vm",
        "Rss",
        "SigQ",
        "FDSize",
        "voluntary",
        "nonvoluntary",
        "Cpus",
        "Mems",
    ];
    let status = read("status");
    let status = status
        .lines()
        .filter(|line| !own.iter().any(|name| line.starts_with(name)));
    let mut all: Vec<String> = status.map(str::to_owned).collect();
    for file in [
        "limits",
        "oom_score_adj",
        "coredump_filter",
        "loginuid",
        "sessionid",
        "cgroup",
        "timerslack_ns",
        "attr/current",
    ] {
        all.extend(read(file).lines().map(|line| format!("{file}: {line}")));
    }
    let stat = read("stat");
    let stat: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let pid = pid.to_string();
    all.push(format!(
        "leads its group and session: {} {}",
        stat[3] == pid,
        stat[4] == pid
    ));
    all.push(format!(
        "terminal, priority, nice, threads: {} {:?}",
        stat[5],
        &stat[16..19]
    ));
    // Without the number of a pipe or socket. OPcache's lock is a file in a folder, or in memory.
    let number = |link: String| match link.contains("/.ZendSem.") || link.contains("opcache_lock") {
        true => "OPcache's lock".to_owned(),
        false => link.split('[').next().unwrap_or_default().to_owned(),
    };
    let link = |path: String| {
        fs::read_link(path)
            .map_or_else(|error| error.to_string(), |link| link.display().to_string())
    };
    for name in [
        "cwd", "root", "exe", "ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/ipc",
    ] {
        all.push(format!("{name}: {}", link(format!("/proc/{pid}/{name}"))));
    }
    // Root's if it is not dumpable.
    all.extend(
        fs::metadata(format!("/proc/{pid}/environ")).map(|about| format!("owner: {}", about.uid())),
    );
    let mut open: Vec<String> = (fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten())
    .map(|entry| number(link(entry.path().display().to_string())))
    .collect();
    open.sort();
    all.extend(open);
    all.push(read("environ").replace('\0', "\n"));
    all
}

/// The master of a pool.
fn master_of(weir: &Weir, name: &str) -> u32 {
    let title = format!("weir-php: pool {name}\0");
    wait_for("the pool's master", || {
        let named = |one: &Process| {
            let line = fs::read(format!("/proc/{}/cmdline", one.pid)).unwrap_or_default();
            line.starts_with(title.as_bytes())
        };
        masters(weir).into_iter().find(named).map(|one| one.pid)
    })
}

#[test]
fn a_master_has_of_the_kernel_what_one_has_that_loads_php_itself() {
    let limited = "rlimit_files = 300\nrlimit_core = 0\nprocess_priority = 3\n";
    let chroot = "chroot = \"ROOT\"\n";
    for lines in [limited, chroot] {
        if lines == chroot && !is_root() {
            // Only root can use it.
            continue;
        }
        let own = format!("{lines}php_load = \"own\"\n");
        // The first and the last have one user.
        let weir = pools(&["a", "b", "c", "d", "e"].map(|name| match name {
            "e" => (name, own.as_str()),
            _ => (name, lines),
        }))
        .start();
        for name in ["a", "e"] {
            let is_ready = || !load(&weir, name).is_null();
            wait_until("PHP is loaded", is_ready);
        }
        // A master reports that PHP is loaded before it waits for orders. Two masters can be compared only while both
        // wait.
        let different = || {
            let [shared, own] = ["a", "e"].map(|name| of_kernel(master_of(&weir, name)));
            differences(&shared, &own)
        };
        let end = Instant::now() + LIMIT;
        while !different().is_empty() {
            assert!(Instant::now() < end, "{lines}: {:#?}", different());
            thread::sleep(Duration::from_millis(20));
        }
        assert!(load(&weir, "a")["template"].is_u64());
        assert!(load(&weir, "e")["own"].is_string());
    }
}

/// The memory of a process that is no file's, bytes: OPcache's, too, as far as it is used.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("a number of kB")
    };
    (of("Pss_Anon:") + of("Pss_Shmem:")) << 10
}

#[test]
fn a_pool_that_shares_a_load_has_a_fraction_of_the_memory() {
    if !is_root() {
        // Nobody else may look into these processes.
        return;
    }
    let weir = pools(&[("a", ""), ("b", ""), ("c", "php_load = \"own\"\n")]).start();
    for host in ["a", "b", "c"] {
        ask(&weir, host, "/pid.php");
    }
    let of_pool = |name: &str| {
        let master = master_of(&weir, name);
        let workers = descendants(master);
        memory(master) + workers.iter().map(|one| memory(one.pid)).sum::<u64>()
    };
    let (shared, own) = (of_pool("a"), of_pool("c"));
    println!("{shared} bytes, and {own} with a load of its own");
    assert!(
        shared * 2 < own,
        "{shared} bytes, and {own} with a load of its own"
    );
}
