//! nginx, HAProxy, Apache and a simple client in front of weir, as they would be in front of PHP-FPM.

use std::net::SocketAddr;
use std::process::Command;

use weir_test::front::{Behind, WebServer};
use weir_test::php::cgi_pool;
use weir_test::{Client, Setup, wait_until};

/// The script that the web servers request.
const SHOW: &str = r#"<?php
header('X-Powered-By: a script');
error_log('said ' . ($_GET['say'] ?? 'nothing'));
$body = file_get_contents('php://input');
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SCRIPT_NAME'], ' ', ($_SERVER['PATH_INFO'] ?? '') ?: '-', ' ',
     $_SERVER['QUERY_STRING'], ' ', strlen($body), ' ', md5($body), "\n";
echo str_repeat('0123456789abcdef', intval($_GET['lines'] ?? 0));
"#;

fn shown(method: &str, rest: &str, body: &str, sum: &str) -> String {
    format!("{method} {rest} {} {sum}\n", body.len())
}

const EMPTY: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// Checks what every web server in front must be able to do.
fn expect_all(address: SocketAddr, behind: &Behind) {
    let ask = |method: &str, target: &str, body: &[u8]| {
        let mut client = Client::connect(address);
        client.send(weir_test::weir::request(method, target, &[], body));
        client.response_to(method)
    };
    let page = ask("GET", "/show.php?a=b", b"").expect(200);
    assert_eq!(page.text(), shown("GET", "/show.php - a=b", "", EMPTY));
    assert_eq!(page.header("x-powered-by"), Some("a script"));
    let page = ask("GET", "/show.php/more/of/it", b"").expect(200);
    assert_eq!(
        page.text(),
        shown("GET", "/show.php /more/of/it ", "", EMPTY)
    );
    let page = ask("POST", "/show.php", b"four").expect(200);
    let sum = "8cbad96aced40b3838dd9f07f6ef5772";
    assert_eq!(page.text(), shown("POST", "/show.php - ", "four", sum));
    // In chunks, with and without content.
    for (chunks, body) in [("", ""), ("4\r\nfour\r\n", "four")] {
        let request = format!(
            "POST /show.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
        );
        let page = Client::connect(address).send(request).response();
        let sum = if body.is_empty() { EMPTY } else { sum };
        let page = page.expect(200).text();
        assert_eq!(page, shown("POST", "/show.php - ", body, sum));
    }
    // More than weir keeps in memory, in both directions.
    let large = vec![b'x'; 3_000_000];
    let page = ask("POST", "/show.php?lines=300000", &large).expect(200);
    assert!(page.text().contains(" 3000000 "), "{}", &page.text()[..80]);
    let lines = page
        .body
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line")
        + 1;
    assert_eq!(page.body[lines..], b"0123456789abcdef".repeat(300_000));
    ask("HEAD", "/show.php", b"").expect(200);
    ask("GET", "/none.php", b"").expect(404);
    for number in 0..20 {
        let target = format!("/show.php?n={number}");
        ask("GET", &target, b"").expect(200);
    }
    let line = behind.weir.logged("/show.php?a=b");
    assert_eq!(line["remote_addr"], "127.0.0.1");
    assert_eq!(line["status"], 200);
    assert_eq!(line["pool"], "app");
    assert_eq!(line["method"], "GET");
    assert!(
        line["worker"].is_string() && line["site"].is_null(),
        "{line}"
    );
}

/// Every kind of PHP worker that weir can run.
fn php_pools() -> [String; 2] {
    let own = format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = 2\n{}",
        weir_test::php::identity()
    );
    [cgi_pool(2), own]
}

#[test]
fn nginx_in_front() {
    for pool in php_pools() {
        let setup = Setup::new().file("show.php", SHOW);
        let behind = Behind::start(setup, &pool, "");
        let root = behind.weir.root();
        let root = root.display();
        let location = |pass: &str| {
            format!(
                "root {root};\n\
                 location ~ ^(.+\\.php)(/.*)?$ {{\n\
                 fastcgi_split_path_info ^(.+\\.php)(/.*)$;\n\
                 include /etc/nginx/fastcgi_params;\n\
                 fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
                 fastcgi_param PATH_INFO $fastcgi_path_info;\n\
                 {pass}\n}}"
            )
        };
        let pass = format!("fastcgi_pass {};", behind.address);
        let nginx = WebServer::nginx(behind.weir.folder(), &location(&pass), "");
        expect_all(nginx.address(), &behind);
        // What a script logs reaches nginx's log, as with PHP-FPM.
        Client::connect(nginx.address())
            .send("GET /show.php?say=hello HTTP/1.0\r\n\r\n")
            .response()
            .expect(200);
        wait_until("nginx has logged it", || {
            let log = nginx.log();
            log.contains("FastCGI sent in stderr") && log.contains("said hello")
        });
        drop(nginx);

        let upstream = format!(
            "upstream weir {{ server unix:{}; keepalive 4; }}",
            behind.socket()
        );
        let keeps = location("fastcgi_keep_conn on; fastcgi_pass weir;");
        let nginx = WebServer::nginx(behind.weir.folder(), &keeps, &upstream);
        expect_all(nginx.address(), &behind);
        assert!(
            !nginx.log().contains("[error]") || nginx.log().contains("stderr"),
            "{}",
            nginx.log()
        );
    }
}

/// nginx reports a crash and a time limit itself: its own 502, its error page, its error log.
#[test]
fn nginx_tells_of_a_worker_that_fails_as_with_php_fpm() {
    let setup = Setup::new()
        .file("crash.php", "<?php posix_kill(getmypid(), 11);")
        .file("late.php", "<?php sleep(60);")
        .file("fine.php", "<?php echo 'fine';")
        .file("sorry.html", "sorry");
    let pool = format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = 2\nretries = 0\nrequest_terminate_timeout = \"1s\"\n{}",
        weir_test::php::identity()
    );
    let behind = Behind::start(setup, &pool, "");
    let server = format!(
        "root {};\nerror_page 502 /sorry.html;\n\
         location ~ \\.php$ {{\ninclude /etc/nginx/fastcgi_params;\n\
         fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\nfastcgi_pass unix:{};\n}}",
        behind.weir.root().display(),
        behind.socket()
    );
    let nginx = WebServer::nginx(behind.weir.folder(), &server, "");
    for (number, script) in ["crash", "late"].into_iter().enumerate() {
        let request = format!("GET /{script}.php HTTP/1.0\r\n\r\n");
        let page = Client::connect(nginx.address()).send(request).response();
        let page = page.expect(502);
        assert_eq!(page.text(), "sorry", "{script}");
        assert_eq!(page.header("proxy-status"), None, "{script}");
        wait_until("nginx has logged it", || {
            let log = nginx.log();
            let lines = log.matches("upstream prematurely closed").count()
                + log.matches("Connection reset by peer").count();
            lines == number + 1
        });
    }
    let page = Client::connect(nginx.address())
        .send("GET /fine.php HTTP/1.0\r\n\r\n")
        .response();
    assert_eq!(page.expect(200).text(), "fine");
}

#[test]
fn haproxy_in_front() {
    for pool in php_pools() {
        let behind = Behind::start(Setup::new().file("show.php", SHOW), &pool, "");
        for options in [
            "",
            "option keep-conn\n option get-values\n option mpxs-conns",
        ] {
            let haproxy = WebServer::haproxy(
                behind.weir.folder(),
                &format!(
                    "global\n maxconn 100\n\
                     defaults\n mode http\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
                     fcgi-app php\n docroot {}\n path-info ^(/.+\\.php)(/.*)?$\n {options}\n\
                     frontend web\n bind ADDRESS\n default_backend weir\n\
                     backend weir\n use-fcgi-app php\n server one {} proto fcgi\n",
                    behind.weir.root().display(),
                    behind.address
                ),
            );
            expect_all(haproxy.address(), &behind);
        }
    }
}

#[test]
fn apache_in_front() {
    // php-cgi takes the script's name as it is. PHP-FPM and weir's own PHP know the prefix that Apache adds.
    for (pool, backend) in php_pools().into_iter().zip(["GENERIC", "FPM"]) {
        let behind = Behind::start(Setup::new().file("show.php", SHOW), &pool, "");
        let (root, address) = (behind.weir.root(), behind.address);
        let root = root.display();
        for proxy in ["", "enablereuse=on"] {
            let apache = WebServer::apache(
                behind.weir.folder(),
                &format!(
                    "ProxyFCGIBackendType {backend}\nDocumentRoot {root}\n<Directory {root}>\nRequire all granted\nAcceptPathInfo On\n</Directory>\n\
                     <FilesMatch \"\\.php$\">\nSetHandler \"proxy:fcgi://{address}\"\n</FilesMatch>\n\
                     <Proxy \"fcgi://{address}\" {proxy}>\n</Proxy>\n"
                ),
            );
            expect_all(apache.address(), &behind);
        }
    }
}

#[test]
fn a_plain_client_over_tcp_and_a_unix_socket() {
    let behind = Behind::start(Setup::new().file("show.php", SHOW), &cgi_pool(1), "");
    let script = behind.weir.root().join("show.php");
    for place in [behind.address.to_string(), behind.socket()] {
        let output = Command::new("/usr/bin/cgi-fcgi")
            .args(["-bind", "-connect", &place])
            .env_clear()
            .env("REQUEST_METHOD", "GET")
            .env("SCRIPT_FILENAME", &script)
            .env("SCRIPT_NAME", "/show.php")
            .env("QUERY_STRING", "x=1")
            .output()
            .expect("cgi-fcgi; setup/install.sh test installs it");
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = shown("GET", "/show.php - x=1", "", EMPTY);
        assert!(
            text.contains("X-Powered-By: a script") && text.ends_with(&expected),
            "{output:?}"
        );
        // Without REQUEST_URI the log shows the parts of the URI that are known.
        behind.weir.logged("/show.php?x=1");
    }
}
