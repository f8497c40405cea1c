//! Slow pools of real PHP: what weir says about each cause.

use super::*;

use weir_test::dns::{Dns, Says};
use weir_test::goes_on_as_root;

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
        .admin()
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
    assert_eq!(weir.admin_get("/readyz").0, 200);
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

/// Two workers of this pool, which is only for scripts of these routes.
fn pool_of_two(name: &str, lines: &str) -> String {
    format!(
        "[pool.{name}]\nruntime = \"php\"\npm = \"static\"\nmax_children = 2\nrequest_slowlog_timeout = \"300ms\"\n{lines}{}",
        php::identity()
    )
}

#[test]
fn a_site_or_route_that_serializes_sessions_is_seen_and_the_others_are_named() {
    let script = format!(
        "{HOLD}session_id(md5(__FILE__)); session_save_path(__DIR__); session_start(); hold();"
    );
    // What each pool's problem says and does not say. The scripts choose their session themselves, so no request waits in the queue.
    let pools = [
        (
            "pool by_route: all 2 workers",
            "a script holds its session too long",
        ),
        (
            "pool by_site: all 2 workers",
            "a script holds its session too long",
        ),
        (
            "pool partly: all 2 workers",
            "it is not set for [site.main] route \"/partly.php\".",
        ),
        (
            "pool off_here: all 2 workers",
            "it is not set for [site.main] route \"/off_here.php\".",
        ),
        (
            "pool nowhere: all 2 workers",
            "serialize_by = \"auto\" in [pool.nowhere.queue]",
        ),
    ];
    let by_session = "serialize_by = \"cookie:PHPSESSID\"\n";
    let route = |path: &str, pool: &str, lines: &str| {
        format!("[[site.main.route]]\npath = \"{path}\"\npool = \"{pool}\"\n{lines}")
    };
    let setup = Setup::new()
        .admin()
        .server("ready_stalled = \"2s\"\nshutdown_timeout = \"1s\"\n")
        .file("by_route.php", &*script)
        .file("by_site.php", &*script)
        .file("partly.php", &*script)
        .file("off_here.php", &*script)
        .file("nowhere.php", &*script);
    let root = setup.root().display().to_string();
    let more = [
        route("/by_route.php", "by_route", by_session),
        route("/partly.php", "partly", ""),
        route("/other.php", "partly", by_session),
        // The pool's queue says so; the route does not want it.
        route("/nowhere.php", "nowhere", ""),
        route("/off_here.php", "off_here", "serialize_by = \"off\"\n"),
        format!(
            "[site.second]\nhosts = [\"second.example\"]\nroot = \"{root}\"\npool = \"by_site\"\n{by_session}"
        ),
        pool_of_two("by_route", ""),
        pool_of_two("by_site", ""),
        pool_of_two("partly", ""),
        pool_of_two("nowhere", ""),
        pool_of_two("off_here", "queue.serialize_by = \"auto\"\n"),
    ];
    let weir = setup.pool(&php::own(1, "")).more(&more.join("")).start();
    writable(&weir);
    let paths = ["by_route", "partly", "off_here", "nowhere"].iter();
    let mut stuck: Vec<Client> = paths
        .flat_map(|name| [*name; 3])
        .map(|name| begin(&weir, &format!("/{name}.php")))
        .collect();
    stuck.extend((0..3).map(|_| {
        let mut client = weir.client();
        let headers = [("Host", "second.example")];
        client.send(weir_test::weir::request(
            "GET",
            "/by_site.php",
            &headers,
            b"",
        ));
        client
    }));
    for (pool, help) in pools {
        let said = wait_for_trouble(&weir, &[pool, " in session_start() at ", help]);
        let proposed = said.contains("serialize_by = \"auto\"");
        assert_eq!(proposed, pool.contains("nowhere"), "{said}");
    }
    fs::write(weir.root().join("gate"), "").expect("a file");
    drop(stuck);
}

#[test]
fn a_name_server_that_answers_late_is_named_as_the_cause() {
    // Programs ask the servers of /etc/resolv.conf at port 53. Only the weir of this test sees the file of this test.
    if !goes_on_as_root() {
        return;
    }
    let dns = Dns::at("127.0.0.153:53".parse().expect("an address"));
    let address = "192.0.2.7".parse().expect("an address");
    dns.says("slow.example", Says::Late(vec![address], 60));
    let setup = Setup::new()
        .admin()
        .server("ready_stalled = \"1s\"\nshutdown_timeout = \"1s\"\n")
        .file("name.php", "<?php\necho gethostbyname('slow.example.');");
    let file = setup.folder().join("resolv.conf");
    let lines = "nameserver 127.0.0.153\noptions timeout:30 attempts:1\n";
    fs::write(&file, lines).expect("resolv.conf");
    let mount = format!(
        "mount --bind \"{}\" /etc/resolv.conf && exec \"$0\" \"$@\"",
        file.display()
    );
    let weir = setup
        .pool(&php::own(2, "request_slowlog_timeout = \"300ms\"\n"))
        .under(&["unshare", "--mount", "/bin/sh", "-c", &mount])
        .start();
    let mut asking: Vec<Client> = (0..3).map(|_| begin(&weir, "/name.php")).collect();
    let said = wait_for_trouble(
        &weir,
        &[
            "all 2 workers",
            "they wait (computing ",
            "2 in gethostbyname() at ",
            "/name.php:2",
            "looking up names is slow: check the DNS servers of /etc/resolv.conf",
            "More workers would wait for the same servers",
        ],
    );
    assert!(!said.contains("raise max_children"), "{said}");
    dns.answer_late();
    for client in &mut asking {
        assert_eq!(client.response().expect(200).text(), "192.0.2.7");
    }
    wait_until("nothing is wrong", || troubles(&weir).is_empty());
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
    assert_eq!(weir.admin_get("/readyz").0, 200);
    let app = begin(&weir, "/stuck.php");
    wait_until("it is not ready", || weir.admin_get("/readyz").0 == 503);
    let (_, why) = weir.admin_get("/readyz");
    assert!(why.contains("pool app"), "{why}");
    fs::write(weir.root().join("gate"), "").expect("a file");
    wait_until("it is ready", || weir.admin_get("/readyz").0 == 200);
    drop((other, app));
}
