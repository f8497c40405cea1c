//! http-cache-tests, the tests of <https://cache-tests.fyi>, judge the cache: their own client and their own origin, with weir between them, which speaks FastCGI
//! or HTTP with the origin. `http_cache_tests/targeted.mjs` adds tests of targeted fields (RFC 9213), which the package in the registry does not have.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};
use weir_test::built::node_modules;
use weir_test::{Setup, Weir, free_address, wait_until};

/// How many tests weir passes of each kind, and how many there are. `http_cache_tests/meant.mjs` has the others, each with its reason.
const PASSED: [(&str, u64, u64); 3] = [
    ("required", 152, 157),
    ("optimal", 67, 86),
    ("targeted", 28, 28),
];

#[test]
fn http_cache_tests_find_a_good_cache_before_fastcgi() {
    let setup = Setup::new().file("index.php", "");
    let socket = setup.path("origin.sock");
    let origin = Origin::fastcgi(&socket);
    let pool = format!("servers = [\"unix:{}\"]\n", socket.display());
    let setup = setup.site("fallback = \"/index.php\"\n").pool(&pool);
    expect_good_cache(setup, origin);
}

#[test]
fn http_cache_tests_find_a_good_cache_before_http() {
    let address = free_address();
    let origin = Origin::http(address);
    let pool = format!("protocol = \"http\"\nservers = [\"{address}\"]\n");
    expect_good_cache(Setup::new().pool(&pool), origin);
}

/// In a weir whose cache obeys the client, before that origin.
#[track_caller]
fn expect_good_cache(setup: Setup, origin: Origin) {
    let weir = setup
        .site("cache = { preset = \"headers\", client_directives = true }\n")
        .pool("runtime = \"servers\"\nqueue.maxconn = 64\n")
        .start();
    let verdict = judged(&weir);
    assert_eq!(verdict["unexpected"], json!({}));
    for (kind, passed, of) in PASSED {
        let expected = json!({ "passed": passed, "of": of });
        assert_eq!(verdict["kinds"][kind], expected, "{kind}");
    }
    drop(origin);
}

/// What `http_cache_tests/judge.mjs` prints.
fn judged(weir: &Weir) -> Value {
    let output = Command::new("node")
        .arg("--no-warnings")
        .arg(script("judge.mjs"))
        .arg(node_modules())
        .arg(format!("http://{}", weir.address()))
        .output()
        .expect("node");
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The program that answers.
struct Origin(Child);

impl Origin {
    fn fastcgi(socket: &Path) -> Origin {
        let origin = Origin::start(&["fastcgi", &socket.display().to_string()]);
        wait_until("the origin listens", || UnixStream::connect(socket).is_ok());
        origin
    }

    fn http(address: SocketAddr) -> Origin {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let origin = Origin::start(&["http", &host, &port]);
        wait_until("the origin listens", || TcpStream::connect(address).is_ok());
        origin
    }

    fn start(place: &[&str]) -> Origin {
        let child = Command::new("node")
            .arg(script("origin.mjs"))
            .arg(node_modules().join("http-cache-tests"))
            .args(place)
            .spawn();
        Origin(child.expect("node"))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cache/http_cache_tests")
        .join(name)
}
