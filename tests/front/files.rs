//! Static files: types, conditions, ranges, compressed copies, large files, and files that change.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use weir_test::process::resident;
use weir_test::weir::write;
use weir_test::{LIMIT, Setup, wait_until};

#[test]
fn types_are_known_by_extension() {
    let names = [
        ("page.html", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("data.json", "application/json"),
        ("picture.svg", "image/svg+xml"),
        ("picture.png", "image/png"),
        ("picture.jpg", "image/jpeg"),
        ("picture.webp", "image/webp"),
        ("font.woff2", "font/woff2"),
        ("module.wasm", "application/wasm"),
        ("paper.pdf", "application/pdf"),
        ("README", "application/octet-stream"),
        ("thing.unknown", "application/octet-stream"),
        ("own.thing", "text/x-thing"),
    ];
    let setup = names
        .iter()
        .fold(Setup::new(), |setup, (name, _)| setup.file(name, "x"));
    let weir = setup.site("types = { thing = \"text/x-thing\" }").start();
    for (name, expected) in names {
        let response = weir.get(&format!("/{name}")).expect(200);
        let kind = response.header("content-type").expect("a type");
        assert!(
            kind == expected || kind.split(';').next() == Some(expected),
            "{name}: {kind}"
        );
    }
    let script = weir.get("/style.css").expect(200);
    assert_eq!(script.header("accept-ranges"), Some("bytes"));
}

#[test]
fn the_charset_can_be_said_or_left_out() {
    let page = || Setup::new().file("page.html", "x");
    let weir = page().site("charset = \"iso-8859-1\"").start();
    assert_eq!(
        weir.get("/page.html").header("content-type"),
        Some("text/html; charset=iso-8859-1")
    );
    let weir = page().site("charset = \"\"").start();
    assert_eq!(
        weir.get("/page.html").header("content-type"),
        Some("text/html")
    );
}

#[test]
fn conditions_on_the_tag() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let first = weir.get("/text.txt").expect(200);
    let tag = first.header("etag").expect("ETag").to_owned();
    let get = |name: &str, value: &str| weir.request("GET", "/text.txt", &[(name, value)], b"");

    // RFC 9110 §13.1.2
    for value in [
        tag.clone(),
        format!("\"other\", {tag}"),
        format!("W/{}", tag.trim_start_matches("W/")),
        "*".into(),
    ] {
        let response = get("If-None-Match", &value).expect(304);
        assert!(response.body.is_empty());
        assert_eq!(response.header("etag"), Some(tag.as_str()), "{value}");
    }
    get("If-None-Match", "\"other\"").expect(200);
    // RFC 9110 §13.1.1
    get("If-Match", "\"other\"").expect(412);
    get("If-Match", "*").expect(200);
    if !tag.starts_with("W/") {
        get("If-Match", &tag).expect(200);
        get("If-Match", &format!("\"other\", {tag}")).expect(200);
    }
}

#[test]
fn conditions_on_the_date() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let first = weir.get("/text.txt").expect(200);
    let date = first
        .header("last-modified")
        .expect("Last-Modified")
        .to_owned();
    let get = |name: &str, value: &str| weir.request("GET", "/text.txt", &[(name, value)], b"");
    let (past, future) = (
        "Mon, 01 Jan 1990 00:00:00 GMT",
        "Fri, 01 Jan 2100 00:00:00 GMT",
    );

    assert!(get("If-Modified-Since", &date).expect(304).body.is_empty());
    get("If-Modified-Since", past).expect(200);
    get("If-Modified-Since", "yesterday").expect(200);
    get("If-Unmodified-Since", past).expect(412);
    get("If-Unmodified-Since", &date).expect(200);
    get("If-Unmodified-Since", future).expect(200);
}

#[test]
fn tags_come_before_dates() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let first = weir.get("/text.txt").expect(200);
    let date = first
        .header("last-modified")
        .expect("Last-Modified")
        .to_owned();
    // RFC 9110 §13.2.2: If-None-Match makes weir ignore If-Modified-Since.
    let headers = [
        ("If-None-Match", "\"other\""),
        ("If-Modified-Since", date.as_str()),
    ];
    weir.request("GET", "/text.txt", &headers, b"").expect(200);
    let headers = [
        ("If-Match", "*"),
        ("If-Unmodified-Since", "Mon, 01 Jan 1990 00:00:00 GMT"),
    ];
    weir.request("GET", "/text.txt", &headers, b"").expect(200);
}

#[test]
fn a_part_of_a_file() {
    let weir = Setup::new().file("digits.txt", "0123456789").start();
    let get = |range: &str| weir.request("GET", "/digits.txt", &[("Range", range)], b"");
    let expected = [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=4-", "456789", "bytes 4-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
        ("bytes=8-100", "89", "bytes 8-9/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
    ];
    for (range, body, content_range) in expected {
        let response = get(range).expect(206);
        assert_eq!(response.text(), body, "{range}");
        assert_eq!(
            response.header("content-range"),
            Some(content_range),
            "{range}"
        );
    }
    // RFC 9110 §14.4: no byte of the range exists.
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let response = get(range).expect(416);
        assert_eq!(
            response.header("content-range"),
            Some("bytes */10"),
            "{range}"
        );
    }
    // RFC 9110 §14.2: an invalid range is ignored or refused.
    for range in [
        "bytes=3-1",
        "bytes=a-b",
        "lines=1-2",
        "bytes",
        "bytes=",
        "bytes=1-2x",
    ] {
        let response = get(range);
        assert!(
            matches!(response.status, 200 | 416),
            "{range}: {response:?}"
        );
        assert!(
            response.status == 416 || response.text() == "0123456789",
            "{range}"
        );
    }
    // Ranges apply only to GET.
    let head = weir.request("HEAD", "/digits.txt", &[("Range", "bytes=0-3")], b"");
    assert_eq!(head.expect(200).header("content-length"), Some("10"));
}

#[test]
fn several_parts_of_a_file() {
    let weir = Setup::new()
        .file("digits.txt", "0123456789".repeat(1000))
        .start();
    let response = weir
        .request(
            "GET",
            "/digits.txt",
            &[("Range", "bytes=0-1,5004-5005,-1")],
            b"",
        )
        .expect(206);
    let kind = response.header("content-type").expect("a type").to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("byteranges")
        .trim_matches('"');
    assert_eq!(response.header("content-range"), None);
    let text = response.text();
    let delimiter = format!("--{boundary}");
    let parts: Vec<&str> = text.split(delimiter.as_str()).collect();
    assert_eq!(parts.len(), 5, "{text}");
    assert!(parts[4].starts_with("--"));
    for (part, range, body) in [
        (1, "bytes 0-1/10000", "01"),
        (2, "bytes 5004-5005/10000", "45"),
        (3, "bytes 9999-9999/10000", "9"),
    ] {
        let (head, content) = parts[part].split_once("\r\n\r\n").expect("a part's head");
        assert!(
            head.to_lowercase()
                .contains(&format!("content-range: {range}")),
            "{head}"
        );
        assert!(
            head.to_lowercase().contains("content-type: text/plain"),
            "{head}"
        );
        assert_eq!(content.trim_end_matches("\r\n"), body);
    }
    // A range that does not exist is left out.
    let response = weir
        .request(
            "GET",
            "/digits.txt",
            &[("Range", "bytes=0-1,50000-60000")],
            b"",
        )
        .expect(206);
    assert!(response.text().contains("01"));
}

#[test]
fn so_many_parts_that_they_are_an_attack_cost_no_more_than_the_file() {
    let weir = Setup::new().file("large.bin", vec![b'x'; 100_000]).start();
    let ranges: Vec<String> = (0..500).map(|start| format!("{start}-")).collect();
    let range = format!("bytes={}", ranges.join(","));
    let response = weir.request("GET", "/large.bin", &[("Range", &range)], b"");
    assert!(
        matches!(response.status, 200 | 206 | 416),
        "{}",
        response.status
    );
    assert!(
        response.body.len() <= 200_000,
        "{} bytes",
        response.body.len()
    );
}

#[test]
fn a_part_only_if_the_file_is_the_same() {
    let weir = Setup::new().file("digits.txt", "0123456789").start();
    // A date is a strong validator only once it is old enough (RFC 9110 §8.8.2.2).
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    let file = File::options()
        .write(true)
        .open(weir.root().join("digits.txt"))
        .expect("the file");
    file.set_modified(old).expect("utimens");
    let first = weir.get("/digits.txt").expect(200);
    let tag = first.header("etag").expect("ETag").to_owned();
    let date = first
        .header("last-modified")
        .expect("Last-Modified")
        .to_owned();
    let get = |value: &str| {
        weir.request(
            "GET",
            "/digits.txt",
            &[("Range", "bytes=0-1"), ("If-Range", value)],
            b"",
        )
    };
    if !tag.starts_with("W/") {
        get(&tag).expect(206);
    }
    get(&date).expect(206);
    get("\"other\"").expect(200);
    get("Mon, 01 Jan 1990 00:00:00 GMT").expect(200);
    get(&format!("W/{}", tag.trim_start_matches("W/"))).expect(200);
}

#[test]
fn compressed_neighbours_are_chosen_by_what_the_client_accepts() {
    let weir = Setup::new()
        .file("app.js", "plain")
        .file("app.js.br", "brotli")
        .file("app.js.zst", "zstandard")
        .file("app.js.gz", "gzip")
        .file("only.js", "plain")
        .start();
    let get = |accepts: &str| {
        weir.request("GET", "/app.js", &[("Accept-Encoding", accepts)], b"")
            .expect(200)
    };
    let expected = [
        ("gzip", "gzip", Some("gzip")),
        ("br", "brotli", Some("br")),
        ("zstd", "zstandard", Some("zstd")),
        ("gzip;q=0.5, br;q=0", "gzip", Some("gzip")),
        ("gzip;q=1.0, br;q=0.1", "gzip", Some("gzip")),
        ("deflate", "plain", None),
        ("identity", "plain", None),
        ("gzip;q=0", "plain", None),
        ("GZIP", "gzip", Some("gzip")),
    ];
    for (accepts, body, encoding) in expected {
        let response = get(accepts);
        assert_eq!(response.text(), body, "{accepts}");
        assert_eq!(response.header("content-encoding"), encoding, "{accepts}");
        let vary = response.header("vary").expect("Vary").to_lowercase();
        assert!(vary.contains("accept-encoding"), "{accepts}: {vary}");
        let kind = response.header("content-type").expect("a type");
        assert!(kind.contains("javascript"), "{accepts}: {kind}");
    }
    assert_ne!(get("gzip, br, zstd").header("content-encoding"), None);
    // Different bytes have different tags (RFC 9110 §8.8.3.3).
    assert_ne!(get("gzip").header("etag"), get("identity").header("etag"));
    let response = weir
        .request("GET", "/only.js", &[("Accept-Encoding", "gzip")], b"")
        .expect(200);
    assert_eq!(
        (
            response.header("content-encoding"),
            response.text().as_str()
        ),
        (None, "plain")
    );
}

#[test]
fn a_compressed_neighbour_that_is_older_than_its_file_is_stale() {
    let weir = Setup::new()
        .file("app.js", "new")
        .file("app.js.gz", "old")
        .start();
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    let file = File::options()
        .write(true)
        .open(weir.root().join("app.js.gz"))
        .expect("the file");
    file.set_modified(old).expect("utimens");
    let response = weir
        .request("GET", "/app.js", &[("Accept-Encoding", "gzip")], b"")
        .expect(200);
    assert_eq!(response.text(), "new");
}

#[test]
fn compressed_neighbours_can_be_left_alone() {
    let weir = Setup::new()
        .file("app.js", "plain")
        .file("app.js.gz", "gzip")
        .site("precompressed = false")
        .start();
    let response = weir
        .request("GET", "/app.js", &[("Accept-Encoding", "gzip")], b"")
        .expect(200);
    assert_eq!(response.text(), "plain");
}

#[test]
fn an_empty_file_is_a_file() {
    let weir = Setup::new().file("empty.txt", "").start();
    let response = weir.get("/empty.txt").expect(200);
    assert_eq!(response.header("content-length"), Some("0"));
    let response = weir.request("GET", "/empty.txt", &[("Range", "bytes=0-")], b"");
    assert!(matches!(response.status, 200 | 416), "{response:?}");
    assert!(response.whole);
}

#[test]
fn a_file_of_100_kilobytes_arrives_as_it_is() {
    let content: Vec<u8> = (0..102_400u32).map(|at| (at * 31 / 7) as u8).collect();
    let weir = Setup::new().file("picture.bin", &content).start();
    let mut client = weir.client();
    for _ in 0..20 {
        client.send("GET /picture.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.response().expect(200).body == content);
    }
}

#[test]
fn files_larger_than_memory_pass_through_little_of_it() {
    const SIZE: u64 = 6 << 30;
    let weir = Setup::new().start();
    let mut file = File::create(weir.root().join("huge.bin")).expect("a file");
    file.set_len(SIZE).expect("a sparse file");
    file.seek(SeekFrom::Start(SIZE - 4)).expect("seek");
    file.write_all(b"tail").expect("write");
    drop(file);
    let gateway = weir.gateway();

    let response = weir
        .request("GET", "/huge.bin", &[("Range", "bytes=-4")], b"")
        .expect(206);
    assert_eq!(response.text(), "tail");
    assert_eq!(
        response.header("content-range"),
        Some(format!("bytes {}-{}/{SIZE}", SIZE - 4, SIZE - 1).as_str())
    );

    let mut client = weir.client();
    client.send("GET /huge.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().expect("a head").status, 200);
    let mut buffer = vec![0; 1 << 20];
    let (mut taken, mut most) = (0, 0);
    while taken < 512 << 20 {
        let count = client.stream().read(&mut buffer).expect("the file");
        assert!(count > 0, "cut after {taken} bytes");
        taken += count;
        most = most.max(resident(gateway.pid));
    }
    assert!(most < 64 << 20, "the gateway took {} MB", most >> 20);
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_is_never_passed_off_as_whole() {
    let weir = Setup::new().start();
    let path = weir.root().join("large.bin");
    let file = File::create(&path).expect("a file");
    file.set_len(256 << 20).expect("a sparse file");
    let mut client = weir.client();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head().expect("a head");
    assert_eq!(head.status, 200);
    file.set_len(1 << 20).expect("truncate");
    let (rest, _) = client.rest();
    assert!(
        rest.len() < 256 << 20,
        "{} bytes of a file that has fewer",
        rest.len()
    );
    // The next request works and gets the new length.
    let response = weir.get("/large.bin").expect(200);
    assert_eq!(response.body.len(), 1 << 20);
}

#[test]
fn a_file_that_grows_while_it_is_sent_ends_where_it_ended() {
    let weir = Setup::new().start();
    let path = weir.root().join("large.bin");
    let file = File::create(&path).expect("a file");
    file.set_len(64 << 20).expect("a sparse file");
    let mut client = weir.client();
    client.send(
        "GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\nGET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    // Once the head is sent, it contains the length.
    assert!(!client.quiet_for(LIMIT));
    file.set_len(65 << 20).expect("grow");
    assert_eq!(client.response().expect(200).body.len(), 64 << 20);
    assert_eq!(client.response().expect(200).body.len(), 65 << 20);
}

#[test]
fn a_file_that_was_replaced_is_seen() {
    let weir = Setup::new().file("text.txt", "first").start();
    let path = weir.root().join("text.txt");
    for _ in 0..50 {
        assert_eq!(weir.get("/text.txt").expect(200).text(), "first");
    }
    // Another file of the same length takes its place, as in a deployment.
    let new = weir.root().join("new");
    write(&new, b"other");
    fs::rename(&new, &path).expect("rename");
    wait_until("the new file is served", || {
        weir.get("/text.txt").expect(200).text() == "other"
    });
    // The same file is written again.
    write(&path, b"longer than before");
    wait_until("the new content is served", || {
        weir.get("/text.txt").expect(200).text() == "longer than before"
    });
    fs::remove_file(&path).expect("remove");
    wait_until("it is gone", || weir.get("/text.txt").status == 404);
}

#[test]
fn what_is_no_file_is_not_served_and_holds_nobody_up() {
    let weir = Setup::new().file("text.txt", "x").start();
    let pipe = weir.root().join("pipe");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::Mode::from_raw_mode(0o666),
    )
    .expect("mkfifo");
    let _socket = std::os::unix::net::UnixListener::bind(weir.root().join("socket")).expect("bind");
    for path in ["/pipe", "/socket"] {
        let response = weir.get(path);
        assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
    }
    weir.get("/text.txt").expect(200);
}

#[test]
fn a_file_that_may_not_be_read_is_403() {
    let weir = Setup::new().file("secret.txt", "secret").start();
    weir_test::weir::mode(&weir.root().join("secret.txt"), 0o000);
    let response = weir.get("/secret.txt").expect(403);
    assert!(!response.text().contains("secret"));
    weir.wait_for_error(&["secret.txt"]);
}

#[test]
fn a_path_below_a_file_is_404() {
    let weir = Setup::new().file("text.txt", "x").start();
    assert_eq!(weir.get("/text.txt/more").status, 404);
    assert_eq!(weir.get("/text.txt/").status, 404);
}

#[test]
fn links_within_the_root_are_followed() {
    let weir = Setup::new().file("releases/2/text.txt", "two").start();
    std::os::unix::fs::symlink("releases/2", weir.root().join("current")).expect("symlink");
    assert_eq!(weir.get("/current/text.txt").expect(200).text(), "two");
}

#[test]
fn links_out_of_the_root_are_followed_where_that_is_said() {
    let weir = Setup::new().site("follow_symlinks = true").start();
    write(&weir.folder().join("outside/text.txt"), b"outside");
    std::os::unix::fs::symlink("../outside", weir.root().join("link")).expect("symlink");
    assert_eq!(weir.get("/link/text.txt").expect(200).text(), "outside");
}

#[test]
fn many_clients_get_many_files_at_once() {
    let setup = (0..50).fold(Setup::new(), |setup, number| {
        setup.file(
            &format!("{number}.bin"),
            vec![number as u8; 1000 * number + 1],
        )
    });
    let weir = setup.start();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let weir = &weir;
            scope.spawn(move || {
                let mut client = weir.client();
                for round in 0..100 {
                    let number = (worker * 13 + round * 7) % 50;
                    client.send(format!("GET /{number}.bin HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let response = client.response().expect(200);
                    assert_eq!(response.body.len(), 1000 * number + 1);
                    assert!(response.body.iter().all(|byte| *byte == number as u8));
                }
            });
        }
    });
}

/// A folder that a FUSE daemon mounts at another place. It is unmounted when this is dropped.
struct Mirror {
    daemon: std::process::Child,
    at: std::path::PathBuf,
}

impl Mirror {
    fn of(folder: &std::path::Path, at: std::path::PathBuf) -> Mirror {
        fs::create_dir_all(&at).expect("a folder");
        // The kernel asks for a file's attributes again each time, but for its name only after a while. weir runs as
        // another user if root runs the tests.
        let options = match weir_test::is_root() {
            true => "cache.attr=0,cache.entry=600,allow_other",
            false => "cache.attr=0,cache.entry=600",
        };
        let daemon = std::process::Command::new("mergerfs")
            .args(["-f", "-o", options])
            .args([folder, &at])
            .spawn()
            .expect("mergerfs");
        let mirror = Mirror { daemon, at };
        wait_until("it is mounted", || {
            let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
            mounts.contains(&format!(" {} fuse", mirror.at.display()))
        });
        mirror
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        rustix::process::kill_process(pid, signal).expect("a daemon");
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::CONT);
        // The daemon unmounts the folder and ends.
        self.signal(rustix::process::Signal::TERM);
        self.daemon.wait().ok();
    }
}

#[test]
fn a_file_system_that_hangs_holds_up_only_who_wants_its_files() {
    let setup = Setup::new().server("threads = 1").file("near.txt", "near");
    let folder = setup.folder().to_owned();
    let file = folder.join("original/far.txt");
    write(&file, b"far");
    // Old enough that weir keeps it open.
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    let opened = File::options().write(true).open(&file).expect("a file");
    opened.set_modified(old).expect("a time");
    let mirror = Mirror::of(&folder.join("original"), folder.join("mirror"));
    let weir = setup
        .more(&format!(
            "[site.far]\nhosts = [\"far.test\"]\nroot = \"{}\"\n",
            mirror.at.display()
        ))
        .start();
    let far = "GET /far.txt HTTP/1.1\r\nHost: far.test\r\n\r\n";
    let mut client = weir.client();
    for _ in 0..3 {
        assert_eq!(client.send(far).response().expect(200).text(), "far");
        assert_eq!(weir.get("/near.txt").expect(200).text(), "near");
    }
    mirror.signal(rustix::process::Signal::STOP);
    client.send(far);
    for _ in 0..20 {
        assert_eq!(weir.get("/near.txt").expect(200).text(), "near");
    }
    mirror.signal(rustix::process::Signal::CONT);
    assert_eq!(client.response().expect(200).text(), "far");
}
