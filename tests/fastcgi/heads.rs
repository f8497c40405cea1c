//! What a script's head may be: the same answers as from nginx in front of the same script.

use std::fmt::Write;
use std::process::Command;

use weir_test::front::WebServer;
use weir_test::{Chance, Client, Responder, Response, Setup};

/// Fields that can be sent.
const GOOD: &[&str] = &[
    "Content-Type: text/html; charset=utf-8",
    "content-type:text/plain",
    "X-One: 1",
    "x-two:  2 \t",
    "X_Under: 3",
    "Set-Cookie: a=1; Path=/",
    "Set-Cookie: b=2",
    "X-Empty:",
    "X-Latin: \u{e9}",
    "X-Colon: a: b",
    "Status: 404 Not Found",
    "Status: 404 Gone Fishing",
    "Status: 200 Fine",
    "Status: 500 Oh\tno",
    "Status: 451 \u{e9}",
    "Status: 600 Six Hundred",
    "Status: 999 Go Away",
    "Status: 200 OK",
    "Status: 403 Forbidden",
    "Status: 410  two",
    "Location: http://elsewhere.example/",
    "Content-Length: 10",
    "Content-Length: 4",
    "Content-Length: 0",
    "Content-Length: 25",
    "X-Accel-Expires: 5",
    "X-Accel-Expires: off",
    "X-Accel-Charset: off",
    "X-Accel-Buffering: yes",
    "X-Accel-Buffering: no",
    "X-Accel-Limit-Rate: 0",
    "X-Accel-Other: 5",
    "Vary: Accept",
    "ETag: W/\"x\"",
    "X-Long: 0123456789012345678901234567890123456789012345678901234567890123456789",
];

/// Lines that cannot. nginx passes some of them on, and makes a 502 of others.
const BAD: &[&str] = &[
    "no colon here",
    "nocolon",
    "<!doctype html>",
    "HTTP/1.1 200 OK",
    "A b: c",
    "A(b): c",
    "A\u{1}b: c",
    "\u{e9}: c",
    ": c",
    " Folded: c",
    "\tFolded: c",
    "X-Nul: a\0b",
    "X-Bell: a\u{7}b",
    "X-Del: \u{7f}",
    "X-Return: a\rb",
    "Set-Cookie: c=\u{1}",
    "Location: /\u{2}",
    "Content-Length:",
    "Content-Length: -1",
    "Content-Length: +5",
    "Content-Length: 2, 2",
    "Content-Length: 2 2",
    "Content-Length: 0x4",
    "Content-Length: five",
    "Content-Length: 99999999999999999999",
];

const BODY: &str = "0123456789";

/// The script's head is in the query.
fn target(head: &str) -> String {
    let mut target = String::from("/run.php?");
    // Characters are bytes here.
    for character in head.chars() {
        write!(target, "{:02x}", character as u8).expect("a string");
    }
    target
}

fn printing() -> (Setup, Responder) {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let query = request.param("QUERY_STRING").as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let head: Vec<u8> = query.chunks(2).map(byte).collect();
        answer.at_once([&head[..], b"\r\n", BODY.as_bytes()].concat());
    });
    (setup, responder)
}

/// What is to be equal. How long a body is may be said by its length or by chunks.
fn outcome(response: &Response) -> (u16, String, Vec<(String, String)>, String, bool) {
    let of_the_server = [
        "date",
        "server",
        "connection",
        "transfer-encoding",
        "content-length",
    ];
    let fields = response.headers.iter();
    let mut fields: Vec<_> = fields
        .filter(|(name, _)| !of_the_server.contains(&name.as_str()))
        .cloned()
        .collect();
    // nginx sends some of them first.
    fields.sort();
    (
        response.status,
        // nginx's word for 302 is that of 1996.
        response.phrase.trim().replace("Moved Temporarily", "Found"),
        fields,
        response.text(),
        response.whole,
    )
}

/// Lines that can be sent together: of some names, nginx takes the last one or none.
fn generated(chance: &mut Chance) -> (String, String) {
    let (mut all, mut good) = (String::new(), String::new());
    let mut names = Vec::new();
    let has_length = chance.below(2) == 0;
    for _ in 0..chance.below(7) {
        let is_bad = chance.below(3) == 0;
        let line = chance.of(if is_bad { BAD } else { GOOD });
        let name = line.split(':').next().expect("a name").to_lowercase();
        let is_length = name == "content-length";
        if is_length && is_bad == has_length
            || !is_bad && names.contains(&name) && name != "set-cookie"
        {
            continue;
        }
        names.push(name);
        let end = if chance.below(4) == 0 { "\n" } else { "\r\n" };
        all += &format!("{line}{end}");
        if !is_bad {
            good += &format!("{line}{end}");
        }
    }
    (all, good)
}

/// A line that cannot be sent is as if it was not there; all else is sent as nginx sends it.
#[test]
fn a_page_is_nginx_s_without_what_cannot_be_sent() {
    let (setup, responder) = printing();
    let server = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_pass {}; }}",
        responder.server()
    );
    let nginx = WebServer::nginx(setup.folder(), &server, "default_type \"\";");
    let weir = setup.pool(&responder.pool(2)).start();
    let ask = |address, head: &str| {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            target(head)
        );
        Client::connect(address).send(request).response()
    };
    let mut chance = Chance(14);
    for _ in 0..300 {
        let (all, good) = generated(&mut chance);
        let (expected, found) = (
            outcome(&ask(nginx.address(), &good)),
            outcome(&ask(weir.address(), &all)),
        );
        assert_eq!(found, expected, "{all:?}");
    }
    for head in [
        "Status:\r\n",
        "Status: abc\r\n",
        "Status: 99 Low\r\nX-One: 1\r\n",
        "Status: -1\r\n",
    ] {
        assert_eq!(ask(nginx.address(), head).status, 502, "{head}");
        ask(weir.address(), head)
            .expect(502)
            .expect_reason("bad_response");
    }
}

#[test]
fn what_is_left_out_of_a_page_is_told_and_not_without_end() {
    let (setup, responder) = printing();
    let weir = setup.pool(&responder.pool(2)).start();
    let short = target("Content-Length: 25\r\n");
    assert!(!weir.get(&short).whole);
    weir.wait_for_error(&["announced Content-Length 25 but printed 10 bytes"]);
    assert_eq!(weir.logged(&short)["reason"], "truncated");
    let bad = target("X-One: 1\r\nno colon\r\nContent-Length: 2, 2\r\n");
    let mut client = weir.client();
    for _ in 0..200 {
        client.send(format!("GET {bad} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let page = client.response().expect(200);
        assert_eq!(
            (page.text().as_str(), page.header("x-one")),
            (BODY, Some("1"))
        );
    }
    weir.wait_for_error(&["left out", "\"no colon\" and 1 more", "pool=app"]);
    let lines = weir.stderr().matches("left out").count();
    assert!(lines <= 40, "{lines}");
}

/// 400 cookies, as some applications delete them, over each wire.
#[test]
fn a_head_may_be_large() {
    let cookies: String = (0..400)
        .map(|n| format!("Set-Cookie: c{n}={}\r\n", "x".repeat(200)))
        .collect();
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), move |_, answer| {
        answer.stdout(format!("{cookies}\r\nbody"));
        answer.end();
    });
    let weir = setup
        .pool(&responder.pool(1))
        .listen("http2 = \"clear\"")
        .start();
    let page = weir.get("/run.php").expect(200);
    assert_eq!(
        (page.all("set-cookie").len(), page.text().as_str()),
        (400, "body")
    );
    let output = Command::new("curl")
        .args(["-s", "-i", "--http2-prior-knowledge"])
        .arg(format!("http://{}/run.php", weir.address()))
        .output()
        .expect("curl");
    let page = String::from_utf8_lossy(&output.stdout);
    assert_eq!(page.matches("set-cookie: c").count(), 400);
    assert!(page.ends_with("\r\n\r\nbody"), "{page}");
}

/// What nginx keeps of the script's head over X-Accel-Redirect, and what it does not.
const SAID: &str = "Content-Type: text/x-own\r\nX-Own: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
                    Content-Disposition: attachment\r\nCache-Control: no-store\r\nExpires: 0\r\nETag: \"script\"\r\n\
                    X-Accel-Expires: 3\r\nX-Accel-Charset: off\r\nContent-Length: 3\r\n";

/// Where scripts send their clients, by targets that are right, wrong, denied and missing.
const TARGETS: &[&str] = &[
    "/files/long.bin",
    "/files/long.bin?a=b",
    "/files/lon%67.bin",
    "/files//long.bin",
    "/files/a b.txt",
    "/files/a%20b.txt",
    "/files/\u{c3}\u{bc}.txt",
    "/files/none.bin",
    "/files/../open.txt",
    "/files/%2e%2e/open.txt",
    "/files/",
    "/open.txt",
    "/o%70en.txt",
    "/./open.txt",
    "/none.txt",
    "/plain.php?x",
    "/%zz",
    "/files/%zz",
    "/files/none%",
    "/%00",
    "/a/../../b",
    "nowhere",
    "",
    "http://a/open.txt",
    "/open.txt#part",
    "/closed/open.txt",
    "/asked/open.txt",
    "/mine/open.txt",
];

/// A site of weir and one of nginx with the same files, rules and scripts.
fn both() -> (WebServer, weir_test::Weir, Responder) {
    let setup = [
        "open.txt",
        "closed/open.txt",
        "asked/open.txt",
        "mine/open.txt",
    ]
    .iter()
    .fold(Setup::new(), |setup, name| setup.file(name, "open"))
    .file("run.php", "")
    .file("plain.php", "");
    let folder = setup.folder().display().to_string();
    std::fs::create_dir(setup.folder().join("files")).expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(setup.folder().join(name), bytes).expect("a file");
    };
    let long: Vec<u8> = (0..100_000).map(|n| b'a' + (n % 23) as u8).collect();
    write("files/long.bin", &long);
    write("files/a b.txt", b"a b");
    write("files/\u{fc}.txt", b"umlaut");
    write("users", b"somebody:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let query = request.param("QUERY_STRING").as_bytes();
        if query == b"x" {
            let head = "Content-Type: text/y\r\nSet-Cookie: c=3\r\nCache-Control: private\r\n";
            answer.at_once(format!("{head}\r\nplain"));
            return;
        }
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let head: Vec<u8> = query.chunks(2).map(byte).collect();
        answer.at_once([&head[..], b"\r\nnot this"].concat());
    });
    let root = setup.root().display().to_string();
    let nginx = WebServer::nginx(
        setup.folder(),
        &format!(
            "root {root};\nlocation ~ \\.php$ {{ include /etc/nginx/fastcgi_params; fastcgi_pass {}; }}\n\
             location /files/ {{ internal; alias {folder}/files/; }}\n\
             location /closed/ {{ deny 127.0.0.0/8; }}\nlocation /mine/ {{ allow 192.0.2.1; deny all; }}\n\
             location /asked/ {{ auth_basic here; auth_basic_user_file {folder}/users; }}\n",
            responder.server()
        ),
        "default_type text/plain;",
    );
    let weir = setup
        .pool(&responder.pool(2))
        .site(&format!("accel_redirect = {{ \"/files/\" = \"{folder}/files\" }}\nsendfile_dirs = [\"{folder}/files\"]"))
        .more(&format!(
            "[[site.main.route]]\npath = \"/closed/*\"\ndeny = [\"127.0.0.0/8\"]\n\
             [[site.main.route]]\npath = \"/mine/*\"\nallow = [\"192.0.2.1\"]\n\
             [[site.main.route]]\npath = \"/asked/*\"\nbasic_auth = {{ realm = \"here\", file = \"{folder}/users\" }}\n\
             [[site.main.route]]\npath = \"/set/*\"\nset_headers = {{ Content-Type = \"text/x-set\" }}\n"
        ))
        .start();
    (nginx, weir, responder)
}

fn get(address: std::net::SocketAddr, target: &str, fields: &str) -> Response {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    Client::connect(address).send(request).response()
}

#[test]
fn what_a_script_hands_out_is_as_nginx_hands_it_out() {
    let (nginx, weir, _responder) = both();
    let kept = [
        "set-cookie",
        "content-disposition",
        "cache-control",
        "expires",
        "x-accel-expires",
        "x-accel-charset",
    ];
    let seen = |response: Response| {
        let fields = response.headers.iter();
        let mut fields: Vec<_> = fields
            .filter(|(name, _)| kept.contains(&name.as_str()))
            .cloned()
            .collect();
        fields.sort();
        let page = (response.status == 200).then(|| {
            (
                response.header("content-type").map(str::to_owned),
                response.text(),
            )
        });
        (response.status, fields, page)
    };
    for to in TARGETS {
        let query = target(&format!("X-Accel-Redirect: {to}\r\n{SAID}"));
        for fields in ["", "Authorization: Basic c29tZWJvZHk6c2VjcmV0\r\n"] {
            let expected = seen(get(nginx.address(), &query, fields));
            let found = seen(get(weir.address(), &query, fields));
            assert_eq!(found, expected, "{to:?} {fields:?}");
        }
    }
    for path in ["/files/long.bin", "/closed/open.txt", "/asked/open.txt"] {
        assert!(get(weir.address(), path, "").status >= 401, "{path}");
    }
}

/// The parts of an answer with several ranges: type, range, bytes.
fn parts(response: &Response) -> Vec<(String, String, String)> {
    let content_type = response.header("content-type").expect("a type");
    let (kind, boundary) = content_type.split_once("; boundary=").expect(content_type);
    assert_eq!((response.status, kind), (206, "multipart/byteranges"));
    let body = format!("\r\n{}", response.text());
    let between = format!("\r\n--{boundary}");
    let parts = body.split(&between).skip(1);
    let parts = parts.take_while(|part| !part.starts_with("--"));
    let part = |part: &str| {
        let (head, bytes) = part.split_once("\r\n\r\n").expect("a head");
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        (
            field("Content-Type:"),
            field("Content-Range:"),
            bytes.to_owned(),
        )
    };
    parts.map(part).collect()
}

#[test]
fn several_ranges_of_what_a_script_hands_out_can_be_read() {
    let (nginx, weir, _responder) = both();
    let ranges = "Range: bytes=0-9,90000-90009\r\n";
    let file = format!("{}/files/long.bin", weir.folder().display());
    for said in ["Content-Type: text/x-own\r\n", "Content-Type:\r\n", ""] {
        let accel = target(&format!("X-Accel-Redirect: /files/long.bin\r\n{said}"));
        let mut expected = parts(&get(nginx.address(), &accel, ranges));
        let sendfile = target(&format!("X-Sendfile: {file}\r\n{said}"));
        for query in [accel, sendfile] {
            let found = parts(&get(weir.address(), &query, ranges));
            if said.len() < 20 {
                // The types of their names differ.
                expected = expected
                    .into_iter()
                    .zip(&found)
                    .map(|(part, found)| (found.0.clone(), part.1, part.2))
                    .collect();
            }
            assert_eq!(found, expected, "{said:?}");
        }
    }
    let set = weir.root().join("set");
    std::fs::create_dir(&set).expect("a folder");
    std::fs::copy(&file, set.join("long.bin")).expect("a file");
    let found = parts(&get(weir.address(), "/set/long.bin", ranges));
    assert!(
        found.len() == 2 && found.iter().all(|part| part.0 == "text/x-set"),
        "{found:?}"
    );
    let one = get(weir.address(), "/set/long.bin", "Range: bytes=0-9\r\n");
    assert_eq!(
        (one.status, one.header("content-type")),
        (206, Some("text/x-set"))
    );
}
