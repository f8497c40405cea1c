//! Slow pools of real PHP: what weir says about each cause.

use super::*;

/// Name, script, and what the problem must name.
const CAUSES: &[(&str, &str, &[&str])] = &[
    (
        "lock",
        "$file = fopen(__FILE__ . '.lock', 'c'); flock($file, LOCK_EX); hold();",
        &[
            "they wait (computing ",
            "1 in flock() at ",
            "/lock.php:2",
            "lock that another one holds",
        ],
    ),
    (
        "session",
        "session_id('same'); session_save_path(__DIR__); session_start(); hold();",
        &[
            "they wait",
            " in session_start() at ",
            "serialize_by = \"auto\" in [pool.session.queue]",
        ],
    ),
    (
        "loop",
        "while (!file_exists(__DIR__ . '/gate')) { for ($i = 0; $i < 100000; $i++) { $a = $i * 3; } clearstatcache(); }",
        &[
            "they compute",
            "/loop.php:2",
            "make the script compute less",
        ],
    ),
    (
        "pause",
        "sleep(300);",
        &["they wait", "2 in sleep() at ", "pauses on purpose"],
    ),
    (
        "call",
        "$call = curl_init('http://' . file_get_contents(__DIR__ . '/api')); curl_exec($call);",
        &["they wait", "2 in curl_exec() at ", "CURLOPT_TIMEOUT"],
    ),
    (
        "base",
        "$sql = new PDO('sqlite:' . __DIR__ . '/base.sql', null, null, [PDO::ATTR_TIMEOUT => 300]);
$sql->exec('BEGIN EXCLUSIVE'); hold();",
        &[
            "they wait",
            "1 in PDO::exec() at ",
            "the database is slow or has locks",
        ],
    ),
];

const HOLD: &str = "<?php function hold() { while (!file_exists(__DIR__ . '/gate')) { usleep(20000); clearstatcache(); } }\n";

#[test]
fn each_cause_of_slowness_is_named() {
    let api = Oddity::plain(|talk| {
        if talk.request().is_some() {
            talk.hold();
        }
    });
    let mut setup = Setup::new()
        .window()
        .server("ready_stalled = \"2s\"\nshutdown_timeout = \"1s\"\n")
        .file("api", api.address().to_string());
    for (name, script, _) in CAUSES {
        let pool = format!(
            "[[site.main.route]]\npath = \"/{name}.php\"\npool = \"{name}\"\n[pool.{name}]\nruntime = \"php\"\n\
             pm = \"static\"\nmax_children = 2\nrequest_slowlog_timeout = \"300ms\"\n{}",
            php::identity()
        );
        setup = setup
            .file(&format!("{name}.php"), format!("{HOLD}{script}"))
            .more(&pool);
    }
    let weir = setup.pool(&php::own(1, "")).start();
    writable(&weir);
    let stuck: Vec<Client> = CAUSES
        .iter()
        .flat_map(|(name, ..)| [*name; 3])
        .map(|name| begin(&weir, &format!("/{name}.php")))
        .collect();
    for (name, _, parts) in CAUSES {
        let pool = format!("pool {name}: all 2 workers");
        let mut parts = parts.to_vec();
        parts.push(&pool);
        let said = wait_for_trouble(&weir, &parts);
        assert!(!said.contains("raise max_children"), "{said}");
    }
    // The pool of the default site serves, so the machine stays on the balancer.
    assert_eq!(weir.window_get("/readyz").0, 200);
    let shown = text(&weir);
    assert!(shown.contains(", ready, 6 problems"), "{shown}");
    fs::write(weir.root().join("gate"), "").expect("a file");
    drop(stuck);
}

/// Scripts, which may have another user, write beside themselves.
fn writable(weir: &Weir) {
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(weir.root(), all).expect("rights");
}

#[test]
fn pools_that_count_for_readiness_are_named() {
    let weir = own_php(1, "ready_stalled = \"1s\"\nready_pools = [\"app\"]\n", "")
        .more(&format!(
            "[pool.other]\nruntime = \"php\"\npm = \"static\"\nmax_children = 1\n{}\
             [[site.main.route]]\npath = \"/other.php\"\npool = \"other\"\n",
            php::identity()
        ))
        .file("stuck.php", format!("{HOLD}hold();"))
        .file("other.php", format!("{HOLD}hold();"))
        .start();
    let other = begin(&weir, "/other.php");
    wait_for_trouble(&weir, &["pool other: its only worker has been busy"]);
    assert_eq!(weir.window_get("/readyz").0, 200);
    let app = begin(&weir, "/stuck.php");
    wait_until("it is not ready", || weir.window_get("/readyz").0 == 503);
    let (_, why) = weir.window_get("/readyz");
    assert!(why.contains("pool app"), "{why}");
    fs::write(weir.root().join("gate"), "").expect("a file");
    wait_until("it is ready", || weir.window_get("/readyz").0 == 200);
    drop((other, app));
}
