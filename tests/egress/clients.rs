//! Programs that call other services, each in every way that it supports: PHP's own functions, Guzzle, Symfony's
//! HttpClient and curl. The tests run the examples of docs/egress.md as the page shows them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use weir_test::Setup;
use weir_test::authority::{Authority, Identity};
use weir_test::http::encode;
use weir_test::oddity::Oddity;
use weir_test::origin::{LARGE, Origin};
use weir_test::php::own;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::{mode, program, write};
use weir_test::wordpress;

/// The clients that `fixtures/clients.php` knows by these names.
const CLIENTS: [&str; 11] = [
    "curl",
    "curl-proxy",
    "curl-unix",
    "stream",
    "stream-proxy",
    "guzzle",
    "guzzle-proxy",
    "symfony",
    "symfony-proxy",
    "symfony-native",
    "symfony-native-proxy",
];

#[test]
fn every_client_of_php_in_every_way() {
    let scene = Scene::start(Origin::tls, |setup| {
        setup.file("clients.php", include_str!("fixtures/clients.php"))
    });
    for client in CLIENTS {
        expect_all(&scene, client);
    }
    scene.expect_one_connection();
    scene.expect_stranger_is_not_asked();
}

/// Calls to an origin without HTTP/2 work as well.
#[test]
fn clients_of_php_and_an_origin_of_http_1() {
    let scene = Scene::start(Origin::tls_http1, |setup| {
        setup.file("clients.php", include_str!("fixtures/clients.php"))
    });
    for client in ["curl", "stream-proxy", "guzzle", "symfony-native"] {
        expect_all(&scene, client);
    }
    assert!(scene.origin.calls().iter().all(|call| !call.http2));
    scene.expect_one_connection();
}

/// Three workers at once need three connections, or one HTTP/2 connection, however many scripts they run.
#[test]
fn workers_share_connections() {
    for (origin, needed) in [
        (Origin::tls as fn(&Path, &Identity) -> Origin, 1),
        (Origin::tls_http1, 3),
    ] {
        let script = "<?php for ($i = 0; $i < 10; $i++) {
            $answer = file_get_contents(getenv('WEIR_EGRESS') . '/HOST/echo');
            if (!str_contains($answer, 'host=HOST')) { http_response_code(500); }
        }
        echo getmypid();";
        let scene = Scene::start_with(origin, |setup, _, host| {
            let setup = setup.file("ten.php", script.replace("HOST", host));
            setup.pool(&own(3, ""))
        });
        // For an unknown origin weir does not know yet whether calls can share its connection.
        let first = format!("/{}/echo", scene.host("api.test"));
        scene.sidecar.get(&first).expect(200);
        let workers: BTreeSet<String> = std::thread::scope(|scope| {
            let ask = || scene.sidecar.weir.get("/ten.php").expect(200).text();
            let asking: Vec<_> = (0..30).map(|_| scope.spawn(ask)).collect();
            let answers = asking.into_iter().map(|one| one.join().expect("an answer"));
            answers.collect()
        });
        assert_eq!(workers.len(), 3);
        let calls = scene.origin.wait_for_calls(301).len();
        let made = scene.origin.connections();
        assert!((1..=needed).contains(&made), "{made} for {calls} calls");
    }
}

/// Checks everything that a client may do with a call.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn expect_all(scene: &Scene, client: &str) {
    let ask = |method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]| {
        let path = format!(
            "/clients.php?client={client}&method={method}&target={}",
            encode(target)
        );
        let headers: Vec<(String, &str)> = headers
            .iter()
            .map(|(name, value)| (format!("X-Send-{name}"), *value))
            .collect();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        let answer = scene.sidecar.weir.request("POST", &path, &headers, body);
        let answer = answer.expect(200).text();
        let told: Value =
            serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{client}: {answer}"));
        told
    };
    let api = |path: &str| format!("{}{path}", scene.host("api.test"));
    let header = |told: &Value, name: &str| told["headers"][name][0].as_str().map(str::to_owned);
    let text = |told: &Value| told["body"].as_str().unwrap_or_default().to_owned();

    // Its headers and the query arrive. Host and SNI have the name.
    let sent = [
        ("X-Test", "one, two"),
        ("Authorization", "Bearer of-the-application"),
        ("Cookie", "a=1; b=2"),
        ("User-Agent", "shop/1.0"),
    ];
    let told = ask("GET", &api("/echo?a=b&c=%2F%20d"), &sent, b"");
    assert_eq!(told["status"], 200, "{client}: {told}");
    assert_eq!(
        header(&told, "x-origin"),
        Some(scene.origin.address().to_string())
    );
    let said = text(&told);
    for (key, value) in [
        ("method", "GET"),
        ("uri", "/echo?a=b&c=%2F%20d"),
        ("host", &scene.host("api.test")),
        ("sni", "api.test"),
        ("x-test", "one, two"),
        ("authorization", "Bearer of-the-application"),
        ("cookie", "a=1; b=2"),
        ("user-agent", "shop/1.0"),
        ("proxy", ""),
    ] {
        assert_eq!(
            Sidecar::value(&said, key),
            value,
            "{client}: {key} in {said}"
        );
    }

    // Bodies in both directions.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let told = ask("POST", &api("/body"), &form, b"a=1&b=two");
    let said = text(&told);
    assert_eq!(Sidecar::value(&said, "body"), "a=1&b=two", "{client}");
    assert_eq!(Sidecar::value(&said, "type"), form[0].1, "{client}");
    let large: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let octets = [("Content-Type", "application/octet-stream")];
    let told = ask(
        "PUT",
        &format!("{}/", scene.host("upload.test")),
        &octets,
        &large,
    );
    assert_eq!(
        text(&told),
        "PUT 300000 bytes, as they were",
        "{client}: {told}"
    );
    let told = ask("GET", &api("/large"), &[], b"");
    assert_eq!(told["length"], LARGE, "{client}");

    // weir passes on what the origin answers: redirects, errors, several fields of one name, compressed bodies.
    let told = ask("GET", &api("/redirect"), &[], b"");
    assert_eq!(told["status"], 302, "{client}");
    let to = header(&told, "location").unwrap_or_default();
    assert!(to.ends_with("/echo?redirected"), "{client}: {to}");
    let told = ask("GET", &api("/status/503"), &[], b"");
    assert_eq!(told["status"], 503, "{client}");
    assert_eq!(header(&told, "proxy-status"), None, "{client}: {told}");
    let told = ask("GET", &api("/cookies"), &[], b"");
    assert_eq!(
        told["headers"]["set-cookie"],
        serde_json::json!(["a=1", "b=2"]),
        "{client}"
    );
    let told = ask("GET", &api("/gzip"), &[("Accept-Encoding", "gzip")], b"");
    assert_eq!(
        header(&told, "content-encoding").as_deref(),
        Some("gzip"),
        "{client}"
    );
    assert_eq!(told["unzipped"], 7000, "{client}: {told}");
    assert!(
        told["length"].as_u64().is_some_and(|length| length < 1000),
        "{client}"
    );
    let told = ask("GET", &api("/gzip"), &[], b"");
    assert_eq!(told["length"], 7000, "{client}: {told}");
    let told = ask("HEAD", &api("/large"), &[], b"");
    assert_eq!(
        (&told["status"], &told["length"]),
        (&200.into(), &0.into()),
        "{client}"
    );
    assert_eq!(
        header(&told, "content-length"),
        Some(LARGE.to_string()),
        "{client}"
    );

    // A certificate of an unknown authority, and a host that is not allowed.
    let told = ask(
        "GET",
        &format!("{}/echo", scene.host("stranger.test")),
        &[],
        b"",
    );
    assert_eq!(told["status"], 502, "{client}: {told}");
    let why = header(&told, "proxy-status").unwrap_or_default();
    assert!(why.contains("tls_certificate_error"), "{client}: {why}");
    let told = ask("GET", "evil.test/echo", &[], b"");
    assert_eq!(told["status"], 403, "{client}: {told}");
}

/// The environment of a pool is also the environment of libcurl.
#[test]
fn php_curl_finds_http_proxy_in_its_environment() {
    let script = "<?php $curl = curl_init('http://HOST/echo'); curl_exec($curl);";
    let scene = Scene::start_with(Origin::tls, |setup, outward, host| {
        let env = format!(
            "env = {{ http_proxy = \"http://{}\" }}\n",
            outward.address()
        );
        let setup = setup.file("call.php", script.replace("HOST", host));
        setup.pool(&own(1, &env))
    });
    let said = scene.sidecar.weir.get("/call.php").expect(200).text();
    assert_eq!(
        Sidecar::value(&said, "host"),
        scene.host("api.test"),
        "{said}"
    );
    scene.expect_one_connection();
}

/// The examples of the page, in the order of the page.
#[test]
fn the_page_s_scripts_run() {
    let scene = Scene::start(Origin::tls, |setup| setup);
    let snippets = snippets("php");
    let names: Vec<&str> = snippets.iter().map(|(name, _)| name.as_str()).collect();
    for (name, code) in &snippets {
        if name.starts_with("wordpress") {
            continue;
        }
        let file = scene.sidecar.weir.root().join(format!("{name}.php"));
        for host in ["api.test", "stranger.test"] {
            let script = format!("<?php\n{}\necho $answer;\n", scene.localized(code, host));
            write(&file, script.as_bytes());
            for _ in 0..3 {
                let answer = scene.sidecar.weir.get(&format!("/{name}.php")).text();
                if host == "api.test" {
                    assert_eq!(Sidecar::value(&answer, "host"), scene.host(host), "{name}");
                    assert_eq!(Sidecar::value(&answer, "uri"), ASKED, "{name}: {answer}");
                } else {
                    assert!(!answer.contains("uri="), "{name}: {answer}");
                }
            }
        }
    }
    assert!(names.len() >= 9, "{names:?}");
    scene.expect_one_connection();
    scene.expect_stranger_is_not_asked();
}

/// curl as the page shows it. curl itself encrypts the calls through CONNECT.
#[test]
fn the_page_s_commands_run() {
    let scene = Scene::start(Origin::tls, |setup| setup);
    let snippets = snippets("sh");
    for (name, code) in &snippets {
        let output = Command::new("sh")
            .arg("-euc")
            .arg(scene.localized(code, "api.test"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("WEIR_EGRESS", format!("http://{}", scene.sidecar.address))
            .env("CURL_CA_BUNDLE", scene.sidecar.authority.file())
            .output()
            .expect("sh");
        let answer = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {answer}{said}");
        assert_eq!(
            Sidecar::value(&answer, "host"),
            scene.host("api.test"),
            "{name}"
        );
        assert_eq!(Sidecar::value(&answer, "uri"), ASKED, "{name}: {answer}");
    }
    let names: Vec<&str> = snippets.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["curl", "curl-http-proxy", "curl-https-proxy", "curl-unix"]
    );
    // One connection for all calls, and one for the tunnel.
    assert_eq!(scene.origin.connections(), 2);
}

/// Every weir.toml of the page is valid if the files that it names exist.
#[test]
fn the_page_s_configurations_are_right() {
    let setup = Setup::new().file("index.html", "");
    let folder = setup.folder();
    let (authority, text) = (Authority::new(), "0123456789abcdef");
    let client = authority.client("shop.test");
    for (name, source) in [
        ("bank.pem", &client.cert),
        ("bank.key", &client.key),
        ("bank-ca.pem", &authority.file()),
    ] {
        std::fs::copy(source, folder.join(name)).expect("a copy");
    }
    for name in ["egress.token", "orders.token"] {
        std::fs::write(folder.join(name), text).expect("a token");
    }
    for name in ["egress.token", "orders.token", "bank.key"] {
        mode(&folder.join(name), 0o600);
    }
    let file = folder.join("weir.toml");
    let place = format!("{}/", folder.display());
    let snippets = snippets("toml");
    let web = format!(
        "[listen.web]\naddress = \"127.0.0.1:8080\"\n[site.main]\nroot = \"{}\"\n",
        setup.root().display()
    );
    for (name, text) in &snippets {
        let text = format!("{web}{}", text.replace("/etc/weir/", &place));
        std::fs::write(&file, text).expect("weir.toml");
        let output = Command::new(program())
            .args(["check", "-c"])
            .arg(&file)
            .output();
        let output = output.expect("weir check");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
    }
    assert_eq!(snippets.len(), 7);
}

/// The defaults on the page are those of the reference page.
#[test]
fn the_page_s_defaults_are_right() {
    let reference = read("docs/configuration.md");
    let reference = reference.split("\n## `[egress]`\n").nth(1).expect("a part");
    let (page, mut count) = (read("docs/egress.md"), 0);
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [key, default, _] = cells[..] else {
            continue;
        };
        if !default.starts_with('`') {
            continue;
        }
        let row = reference
            .lines()
            .find(|row| row.starts_with(&format!("{key} | ")));
        let row = row.unwrap_or_else(|| panic!("{key} is no key"));
        assert!(row.contains(&format!(" | {default} | ")), "{line}\n{row}");
        count += 1;
    }
    assert_eq!(count, 8);
}

/// WordPress's HTTP API, through the filter and through a proxy.
#[test]
fn wordpress_calls_others() {
    let script = "<?php\n\
        define('WP_INSTALLING', true);\n\
        define('DISABLE_WP_CRON', true);\n\
        require __DIR__ . '/wp-load.php';\n\
        $arguments = ['sslcertificates' => 'AUTHORITY'];\n\
        if ($_SERVER['REQUEST_METHOD'] === 'POST') {\n\
            $arguments['body'] = $_POST;\n\
            $answer = wp_remote_post($_GET['url'], $arguments);\n\
        } else {\n\
            $answer = $_GET['with']($_GET['url'], $arguments);\n\
        }\n\
        if (is_wp_error($answer)) {\n\
            http_response_code(500);\n\
            exit($answer->get_error_message());\n\
        }\n\
        http_response_code(wp_remote_retrieve_response_code($answer));\n\
        echo wp_remote_retrieve_body($answer);\n";
    let mut database = None;
    let scene = Scene::start_with(Origin::tls, |setup, outward, _| {
        let setup = wordpress::prepare(setup);
        database = Some(wordpress::Database::start(setup.folder()));
        // One installation supports both ways. The request says which one to use.
        let config = setup.root().join("wp-config.php");
        let text = std::fs::read_to_string(&config).expect("wp-config.php");
        let proxy = snippet("wordpress-proxy");
        let blocked = "define('WP_HTTP_BLOCK_EXTERNAL', true);";
        assert!(text.contains(blocked));
        let text = text.replace(
            blocked,
            &format!("if (isset($_GET['proxy'])) {{ {proxy} }}"),
        );
        std::fs::write(&config, text).expect("wp-config.php");
        let filter = snippet("wordpress-filter") + &snippet("wordpress-unix");
        let filter = format!("<?php if (!isset($_GET['proxy'])) {{ {filter} }}");
        let authority = outward.authority.file();
        let script = script.replace("AUTHORITY", authority.to_str().expect("a path"));
        let setup = setup
            .file("wp-content/mu-plugins/weir.php", filter)
            .file("call.php", script);
        setup.pool(&own(2, ""))
    });
    let weir = &scene.sidecar.weir;
    let url = |scheme: &str, host: &str| encode(&format!("{scheme}://{}{ASKED}", scene.host(host)));
    let expect = |query: &str| {
        let said = weir.get(&format!("/call.php?{query}")).expect(200).text();
        assert_eq!(
            Sidecar::value(&said, "host"),
            scene.host("api.test"),
            "{said}"
        );
        assert_eq!(Sidecar::value(&said, "uri"), ASKED, "{said}");
    };
    for with in ["wp_remote_get", "wp_safe_remote_get"] {
        expect(&format!("with={with}&url={}", url("https", "api.test")));
    }
    expect(&format!(
        "proxy&with=wp_remote_get&url={}",
        url("http", "api.test")
    ));
    let target = encode(&format!("https://{}/body", scene.host("api.test")));
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let path = format!("/call.php?url={target}");
    let said = weir
        .request("POST", &path, &form, b"a=1&b=two")
        .expect(200)
        .text();
    assert_eq!(Sidecar::value(&said, "body"), "a=1&b=two");
    let query = format!("with=wp_remote_get&url={}", url("https", "stranger.test"));
    weir.get(&format!("/call.php?{query}")).expect(502);
    scene.expect_one_connection();
    scene.expect_stranger_is_not_asked();
    // Through CONNECT, WordPress checks certificates itself.
    expect(&format!(
        "proxy&with=wp_remote_get&url={}",
        url("https", "api.test")
    ));
    assert_eq!(scene.origin.connections(), 2);
    let query = format!(
        "proxy&with=wp_remote_get&url={}",
        url("https", "stranger.test")
    );
    weir.get(&format!("/call.php?{query}")).expect(500);
    scene.expect_stranger_is_not_asked();
    drop(scene);
    drop(database);
}

/// A weir with PHP workers, a trusted origin, and one that is not trusted.
struct Scene {
    // The fields are dropped in this order: the origins' logs are in the sidecar's folder.
    origin: Origin,
    stranger: Origin,
    upload: Oddity,
    sidecar: Sidecar,
    socket: PathBuf,
}

impl Scene {
    fn start(
        origin: impl Fn(&Path, &Identity) -> Origin,
        prepare: impl FnOnce(Setup) -> Setup,
    ) -> Scene {
        Scene::start_with(origin, |setup, _, _| prepare(setup).pool(&own(3, "")))
    }

    /// `prepare` adds scripts and a pool. It gets the egress and the origin's `HOST:PORT`.
    fn start_with(
        origin: impl Fn(&Path, &Identity) -> Origin,
        prepare: impl FnOnce(Setup, &Outward, &str) -> Setup,
    ) -> Scene {
        let setup = Setup::new();
        let outward = Outward::new();
        let identity = outward
            .authority
            .server(&["DNS:api.test", "DNS:upload.test"]);
        let unknown = Authority::new();
        let origin = origin(setup.folder(), &identity);
        let stranger = Origin::tls(setup.folder(), &unknown.server(&["DNS:stranger.test"]));
        let upload = Oddity::tls(&identity, &["http/1.1"], |talk| {
            while let Some(request) = talk.request_bytes() {
                let end = request.windows(4).position(|end| end == b"\r\n\r\n");
                let body = &request[end.expect("a head") + 4..];
                let same = (0..).zip(body).all(|(n, byte)| n % 251 == u32::from(*byte));
                let same = if same { "as they were" } else { "changed" };
                let method = String::from_utf8_lossy(&request[..3]).into_owned();
                talk.answer(&format!("{method} {} bytes, {same}", body.len()));
            }
        });
        let socket = setup.folder().join("egress.sock");
        let upgraded = [
            format!("api.test:{}", origin.address().port()),
            format!("stranger.test:{}", stranger.address().port()),
            format!("upload.test:{}", upload.address().port()),
        ];
        let outward = outward
            .name("api.test", origin.address())
            .name("stranger.test", stranger.address())
            .name("upload.test", upload.address())
            .listen(&format!("unix:{}", socket.display()))
            .lines(&format!("upgrade = {upgraded:?}"))
            // Each client must find out by itself that the stranger's certificate is wrong.
            .usual("max_fails = 0");
        let setup = prepare(setup, &outward, &upgraded[0]);
        let sidecar = outward.start_in(setup);
        Scene {
            sidecar,
            origin,
            stranger,
            upload,
            socket,
        }
    }

    /// `HOST:PORT` of an origin.
    fn host(&self, name: &str) -> String {
        let address: SocketAddr = match name {
            "api.test" => self.origin.address(),
            "stranger.test" => self.stranger.address(),
            _ => self.upload.address(),
        };
        format!("{name}:{}", address.port())
    }

    /// A text of the page, with the names of this test.
    fn localized(&self, text: &str, host: &str) -> String {
        text.replace("api.example.com", &self.host(host))
            .replace("127.0.0.1:8083", &self.sidecar.address.to_string())
            .replace(
                "/run/weir/egress.sock",
                self.socket.to_str().expect("a path"),
            )
    }

    /// All calls of all workers, one after another, used one connection.
    #[track_caller]
    fn expect_one_connection(&self) {
        let calls = self.origin.calls();
        let connections = self.origin.connections();
        assert_eq!(connections, 1, "for {} calls", calls.len());
        for call in &calls {
            let told = (call.host.as_str(), call.sni.as_str());
            assert_eq!(
                told,
                (self.host("api.test").as_str(), "api.test"),
                "{call:?}"
            );
        }
    }

    /// weir checked the certificate before it sent anything.
    #[track_caller]
    fn expect_stranger_is_not_asked(&self) {
        assert!(self.stranger.connections() > 0);
        assert_eq!(self.stranger.calls(), []);
    }
}

/// The path that the page's snippets request.
const ASKED: &str = "/v1/orders?open=1";

/// The page's script of this name.
fn snippet(name: &str) -> String {
    let mut all = snippets("php").into_iter();
    let found = all.find(|(known, _)| known == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in the page"))
        .1
}

/// The page's named code blocks in this language: name and code.
fn snippets(language: &str) -> Vec<(String, String)> {
    let page = read("docs/egress.md");
    let start = format!("```{language} ");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.trim_start().strip_prefix(&start) {
            let indent = line.len() - line.trim_start().len();
            let code = lines.by_ref().take_while(|line| line.trim() != "```");
            let code: Vec<&str> = code.map(|line| line.get(indent..).unwrap_or("")).collect();
            found.push((name.to_owned(), code.join("\n")));
        }
    }
    found
}

/// A file of the project.
fn read(path: &str) -> String {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"))
}
