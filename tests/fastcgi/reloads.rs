//! Reloads behind nginx that keeps its connections: a request that comes at the wrong moment is answered, too.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use weir_test::{
    Client, Setup,
    front::{Behind, WebServer},
    weir::request,
};

/// A POST is not sent again by nginx, because it may have been begun.
#[test]
fn posts_of_nginx_over_kept_connections_outlive_reloads() {
    let setup = Setup::new()
        .file(
            "count.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        )
        .server("threads = 2\nmax_old_generations = 100");
    let pool = format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = 2\n{}",
        weir_test::php::identity()
    );
    let behind = Behind::start(setup, &pool, "");
    let (root, web) = (behind.weir.root(), behind.weir.address());
    let server = format!(
        "location /web/ {{ proxy_pass http://web/; proxy_http_version 1.1; proxy_set_header Connection ''; }}\n\
         location / {{ include /etc/nginx/fastcgi_params;\n\
         fastcgi_param SCRIPT_FILENAME {}/count.php;\nfastcgi_pass weir; fastcgi_keep_conn on; }}",
        root.display()
    );
    let http = format!(
        "upstream weir {{ server {}; server unix:{}; keepalive 32; }}\n\
         upstream web {{ server {web}; keepalive 32; }}",
        behind.address,
        behind.socket()
    );
    let nginx = WebServer::nginx(behind.weir.folder(), &server, &http);
    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let failed = thread::scope(|scope| {
        let clients = [0, 1, 2, 3, 4, 5].map(|number| {
            let (done, sent, address) = (&done, &sent, nginx.address());
            scope.spawn(move || {
                let path = ["/count.php", "/web/count.php"][number % 2];
                let mut failed = Vec::new();
                while !done.load(Relaxed) {
                    let post = request("POST", path, &[("Connection", "close")], b"four");
                    let page = Client::connect(address).send(post).response();
                    if page.status != 200 || page.text() != "4" {
                        failed.push(format!("{path}: {}", page.status));
                    }
                    // Each number of a request makes another pause, so that connections are idle for a moment at any time.
                    let n = sent.fetch_add(1, Relaxed);
                    thread::sleep(Duration::from_micros(n * 7919 % 4000));
                }
                failed
            })
        });
        let until = Instant::now() + Duration::from_secs(60);
        for n in 0..25 {
            // Some requests over each connection come between two reloads.
            while sent.load(Relaxed) < n * 120 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            behind.weir.signal(Signal::HUP);
            behind.weir.log_line("reloaded");
        }
        done.store(true, Relaxed);
        clients.map(|client| client.join().unwrap()).concat()
    });
    let sent = sent.load(Relaxed);
    assert!(sent >= 1000, "only {sent} requests");
    let log = behind.weir.read("access.log");
    let odd: Vec<&str> = (log.lines())
        .filter(|line| !line.contains("\"status\":200"))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {sent}: {failed:?}\n{odd:#?}\n{}",
        failed.len(),
        nginx.log()
    );
}
