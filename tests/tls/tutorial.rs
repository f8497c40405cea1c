//! docs/tutorial.md and docs/backup.md: the files of the pages, served as the pages say, with Pebble in the place of Let's Encrypt.
//! Addresses, users and folders are those of the test. It prints times, for the page.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use tempfile::TempDir;
use weir_test::pebble::{Habits, Pebble};
use weir_test::weir::program;
use weir_test::{GROUP, Setup, USER, Weir, is_root, wait_until};

use super::acme::{file, got, listed};

/// The block in this language that contains these words.
fn block(page: &str, language: &str, words: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(page);
    let page = fs::read_to_string(page).expect("a page");
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().expect("a block").to_owned());
    let found = blocks.find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("no {language} with {words}"))
}

/// The site of the tutorial, and its authority.
struct Tutorial {
    setup: Setup,
    toml: String,
    pebble: Pebble,
    store: TempDir,
    plain: SocketAddr,
}

impl Tutorial {
    fn new() -> Tutorial {
        let setup = Setup::new().file("index.php", block("tutorial.md", "php", "Hello from"));
        let tls = setup.address();
        let plain = SocketAddr::new(tls.ip(), 20_000 + tls.port() % 10_000);
        let pebble = Pebble::new(tls.ip(), (plain.port(), tls.port()), Habits::default());
        let store = TempDir::with_prefix("weir-test-").expect("a temporary folder");
        let mut toml = block("tutorial.md", "toml", "[site.shop]");
        let folder = setup.folder().display().to_string();
        let user = format!("user = \"{USER}\"\ngroup = \"{GROUP}\"\n");
        let server = format!("[server]\nadmin = \"off\"\nspool_dir = \"{folder}/spool\"\n");
        let server = if is_root() { server + &user } else { server };
        let store_at = store.path().display();
        for (from, to) in [
            ("[server]\n", server),
            ("\"/run/weir/", format!("\"{folder}/")),
            ("\"/var/log/weir/", format!("\"{folder}/log/")),
            (
                "\"/srv/shop/public\"",
                format!("\"{}\"", setup.root().display()),
            ),
            ("\"0.0.0.0:80\"", format!("\"{plain}\"")),
            ("\"0.0.0.0:443\"", format!("\"{tls}\"")),
            (
                "user = \"shop\"\n",
                if is_root() { user } else { String::new() },
            ),
            (
                "[tls.acme]\n",
                format!("[tls]\ncertificates = \"{store_at}/certificates\"\n[tls.acme]\n"),
            ),
        ] {
            assert!(toml.contains(from), "{from} in {toml}");
            toml = toml.replace(from, &to);
        }
        // The authority of the test, with the page's address for its mail.
        let authority = pebble.toml();
        let authority = authority.lines().filter(|line| !line.starts_with("email"));
        let authority: String = authority.map(|line| format!("{line}\n")).collect();
        toml = toml.replace("[tls.acme]\n", &authority);
        Tutorial {
            setup,
            toml,
            pebble,
            store,
            plain,
        }
    }

    fn weir(&self, command: &str) -> Output {
        Command::new(program())
            .args([command, "-c"])
            .arg(self.setup.folder().join("weir.toml"))
            .env("NO_COLOR", "1")
            .output()
            .expect("weir")
    }

    fn start(&self) -> Weir {
        self.setup.start_toml(&self.toml)
    }
}

#[test]
fn the_tutorial_ends_with_a_page_over_https() {
    let mut tutorial = Tutorial::new();
    tutorial.setup.write_config(&tutorial.toml);
    let began = Instant::now();
    let output = tutorial.weir("check");
    println!("step 3, weir check: {:.1?}", began.elapsed());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ok\n",
        "{output:?}"
    );
    tutorial.pebble.come();
    let began = Instant::now();
    let weir = tutorial.start();
    let root = tutorial.pebble.root();
    let page = block("tutorial.md", "text", "Hello from");
    wait_until("the page", || {
        // The port is not the usual one here.
        let port = format!(":{}", weir.address().port());
        got(&weir, &root, "shop.example", "/").replace(&port, "") == page
    });
    println!(
        "steps 4 and 5, until the page is there: {:.1?}",
        began.elapsed()
    );
    let output = Command::new("curl")
        .args(["-sS", "-I", "--resolve"])
        .arg(format!(
            "shop.example:{}:{}",
            tutorial.plain.port(),
            tutorial.plain.ip()
        ))
        .arg(format!("http://shop.example:{}/", tutorial.plain.port()))
        .output()
        .expect("curl");
    let head = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(head.starts_with("http/1.1 308 "), "{head}");
    assert!(head.contains("\nlocation: https://shop.example"), "{head}");
    assert_eq!(listed(&weir)[0]["names"][0], "shop.example");
}

#[test]
fn a_backup_of_the_certificates_is_enough_and_without_one_they_are_ordered_again() {
    let mut tutorial = Tutorial::new();
    tutorial.pebble.come();
    let mut weir = tutorial.start();
    let root = tutorial.pebble.root();
    wait_until("the page", || {
        got(&weir, &root, "shop.example", "/").starts_with("Hello")
    });
    let chain = file(&tutorial.store, "shop.example/chain.pem");
    let first = fs::read(&chain).expect("a chain");
    // The commands of the page, for the test's folder.
    let archive = tutorial.setup.path("backup.tar.gz");
    let folder = file(&tutorial.store, "");
    let tar = |arguments: &[&str], more: &[&Path]| {
        let output = Command::new("tar")
            .args(arguments)
            .arg(&archive)
            .args(more)
            .output();
        let output = output.expect("tar");
        assert!(output.status.success(), "{output:?}");
    };
    tar(&["--create", "--gzip", "--file"], &[&folder]);
    weir.stop();
    fs::remove_dir_all(&folder).expect("a folder");
    tutorial.pebble.go();
    tar(
        &["--extract", "--gzip", "--file"],
        &[Path::new("--directory"), Path::new("/")],
    );
    let mut weir = tutorial.start();
    wait_until("the same certificate", || {
        got(&weir, &root, "shop.example", "/").starts_with("Hello")
    });
    assert_eq!(fs::read(&chain).expect("a chain"), first);
    // Somebody may have the keys: the certificate's folder is removed.
    weir.stop();
    fs::remove_dir_all(file(&tutorial.store, "shop.example")).expect("a folder");
    tutorial.pebble.come();
    let weir = tutorial.start();
    let root = tutorial.pebble.root();
    wait_until("another certificate", || {
        got(&weir, &root, "shop.example", "/").starts_with("Hello")
    });
    assert_ne!(fs::read(&chain).expect("a chain"), first);
}
