//! `basic_auth`: users and passwords of a file.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use weir_test::front::WebServer;
use weir_test::weir::{program, write};
use weir_test::{Client, Response, Setup, Weir, php, wait_until};

/// What htpasswd makes of a user and a password.
fn hashed(user: &str, password: &str, words: &[&str]) -> String {
    let made = Command::new("htpasswd")
        .arg("-nb")
        .args(words)
        .args([user, password])
        .output()
        .expect("htpasswd");
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout)
        .expect("text")
        .trim()
        .to_owned()
        + "\n"
}

/// Quick to verify.
const QUICK: &[&str] = &["-B", "-C", "4"];
/// One of these takes a thread some seconds where tests run.
const SLOW: &[&str] = &["-B", "-C", "13"];

fn protected(users: &str) -> Setup {
    let setup = Setup::new().file("a.txt", "inside");
    write(&setup.folder().join("users"), users.as_bytes());
    setup.site("basic_auth = { realm = \"the \\\"inner\\\" ring\", file = \"users\" }")
}

fn basic(user: &str, password: &str) -> String {
    let pair = format!("{user}:{password}");
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("Basic ");
    for group in pair.as_bytes().chunks(3) {
        let value = group
            .iter()
            .zip([16, 8, 0])
            .fold(0, |value, (byte, shift)| value | u32::from(*byte) << shift);
        for digit in 0..4 {
            text.push(match digit <= group.len() {
                true => char::from(digits[(value >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}

fn get(weir: &Weir, path: &str, user: &str, password: &str) -> Response {
    let authorization = basic(user, password);
    weir.request("GET", path, &[("Authorization", &authorization)], b"")
}

/// Waits until this user is answered with this status: a changed file is seen within a moment.
fn wait_for(weir: &Weir, (user, password): (&str, &str), status: u16) {
    wait_until(&format!("{status} for {user}"), || {
        get(weir, "/a.txt", user, password).status == status
    });
}

#[test]
fn only_users_of_the_file_come_in() {
    let weir = protected(&hashed("ada", "zw\u{f6}lf:1", QUICK)).start();
    let challenge = "Basic realm=\"the \\\"inner\\\" ring\", charset=\"UTF-8\"";
    for (name, value) in [
        ("X-Nothing", String::new()),
        ("Authorization", basic("ada", "wrong")),
        ("Authorization", basic("ada", "")),
        ("Authorization", basic("eve", "zw\u{f6}lf:1")),
        ("Authorization", basic("", "zw\u{f6}lf:1")),
        ("Authorization", basic("ada", "zw\u{f6}lf:1\0")),
        ("Authorization", "Basic ???".into()),
        ("Authorization", "Bearer abc".into()),
        (
            "Authorization",
            basic("ada", "zw\u{f6}lf:1").replace("Basic", "Basik"),
        ),
    ] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let answer = weir
                .request(method, "/a.txt", &[(name, &value)], b"")
                .expect(401);
            assert_eq!(
                answer.header("www-authenticate"),
                Some(challenge),
                "{value}"
            );
        }
    }
    let right = basic("ada", "zw\u{f6}lf:1");
    let twice = [("Authorization", &right[..]), ("Authorization", &right)];
    weir.request("GET", "/a.txt", &twice, b"").expect(400);
    // The password is verified at first, and remembered then.
    for _ in 0..3 {
        let answer = get(&weir, "/a.txt", "ada", "zw\u{f6}lf:1").expect(200);
        assert_eq!(answer.text(), "inside");
        get(&weir, "/missing", "ada", "zw\u{f6}lf:1").expect(404);
        get(&weir, "/a.txt", "ada", "zw\u{f6}lf:2").expect(401);
    }
}

/// The same files, users and passwords to weir and to nginx.
#[test]
fn hashes_and_broken_files_are_answered_as_by_nginx() {
    let mut users = String::from("# people\n\njust words\n");
    users += &hashed("bcrypt", "pw", QUICK);
    users += &hashed("apr1", "pw", &["-m"]);
    users += &hashed("sha", "pw", &["-s"]);
    users += &hashed("sha256", "pw", &["-2"]);
    users += &hashed("sha512", "pw", &["-5", "-r", "1000"]);
    users += &hashed("twice", "pw", &["-m"]);
    users += &hashed("twice", "other", &["-m"]);
    users += &hashed("comment", "pw", &["-m"]).replace('\n', ":Ada Lovelace:1\n");
    users += "garbage:$9$nothing\n";
    let weir = protected(&users).start();
    let folder = weir.folder();
    let nginx = WebServer::nginx(
        folder,
        &format!(
            "root {0}/root; auth_basic \"x\"; auth_basic_user_file {0}/users;",
            folder.display()
        ),
        "",
    );
    let both = |user: &str, password: &str| {
        let authorization = basic(user, password);
        let fields = [("Authorization", &authorization[..])];
        let bytes = weir_test::weir::request("GET", "/a.txt", &fields, b"");
        let theirs = Client::connect(nginx.address()).send(bytes).response();
        let ours = get(&weir, "/a.txt", user, password);
        (ours.status, theirs.status)
    };
    for user in [
        "bcrypt", "apr1", "sha", "sha256", "sha512", "twice", "comment",
    ] {
        assert_eq!(both(user, "pw"), (200, 200), "{user}");
        assert_eq!(both(user, "other"), (401, 401), "{user}");
    }
    assert_eq!(both("garbage", "x"), (401, 401));
    assert_eq!(both("just words", "x"), (401, 401));
    weir.wait_for_error(&["basic_auth", "users line 3: there is no colon"]);
    weir.wait_for_error(&["the user \"garbage\"", "line 12"]);
    let file = folder.join("users");
    std::fs::remove_file(&file).expect("remove");
    wait_until("403 without the file", || both("apr1", "pw") == (403, 403));
    weir.wait_for_error(&["403 auth_failed", "No such file"]);
    std::fs::create_dir(&file).expect("a folder");
    wait_until("500 with a folder", || both("apr1", "pw") == (500, 500));
}

#[test]
fn a_changed_file_is_used_at_once_and_nobody_is_remembered_by_the_old_one() {
    let weir = protected(&(hashed("ada", "one", QUICK) + &hashed("bob", "one", QUICK))).start();
    let file = weir.folder().join("users");
    for user in ["ada", "bob"] {
        get(&weir, "/a.txt", user, "one").expect(200);
    }
    // In place, as htpasswd writes it; then by renaming, as most tools do. The time stays the same.
    let before = std::fs::metadata(&file).and_then(|data| data.modified());
    let before: SystemTime = before.expect("a time");
    write(&file, hashed("ada", "two", QUICK).as_bytes());
    let opened = std::fs::File::options()
        .write(true)
        .open(&file)
        .expect("open");
    opened.set_modified(before).expect("set the time");
    wait_for(&weir, ("ada", "two"), 200);
    get(&weir, "/a.txt", "ada", "one").expect(401);
    get(&weir, "/a.txt", "bob", "one").expect(401);
    let new = weir.folder().join("new");
    write(&new, hashed("bob", "three", QUICK).as_bytes());
    std::fs::rename(&new, &file).expect("rename");
    wait_for(&weir, ("bob", "three"), 200);
    get(&weir, "/a.txt", "ada", "two").expect(401);
}

#[test]
fn scripts_learn_the_user_and_the_log_too() {
    let setup = protected(&hashed("ada", "secret", QUICK))
        .file(
            "run.php",
            "<?php foreach (['REMOTE_USER', 'AUTH_TYPE', 'PHP_AUTH_USER', 'PHP_AUTH_PW'] as $name) \
               echo $_SERVER[$name] ?? '-', '|';",
        )
        .more("[[site.main.route]]\npath = \"/free.php\"\nbasic_auth = false\n")
        .file("free.php", "<?php include 'run.php';");
    let weir = setup.pool(&php::own_pool(1)).start();
    let said = get(&weir, "/run.php?one", "ada", "secret")
        .expect(200)
        .text();
    assert_eq!(said, "ada|Basic|ada|secret|");
    assert_eq!(weir.logged("/run.php?one")["remote_user"], "ada");
    // As in nginx, the log has the name that was sent.
    get(&weir, "/run.php?two", "eve", "wrong").expect(401);
    assert_eq!(weir.logged("/run.php?two")["remote_user"], "eve");
    // Nobody has verified that.
    let said = get(&weir, "/free.php", "eve", "wrong").expect(200).text();
    assert_eq!(said, "-|-|eve|wrong|");
    weir.get("/run.php?three").expect(401);
    assert_eq!(
        weir.logged("/run.php?three")["remote_user"],
        serde_json::Value::Null
    );
}

#[test]
fn no_other_path_leads_around_the_password() {
    let routes = "[[site.main.route]]\npath = \"/inner/*\"\nbasic_auth = { realm = \"a\", file = \"users\" }\n\
                  [[site.main.route]]\npath = \"/shop/index.html\"\nbasic_auth = { realm = \"b\", file = \"users\" }\n\
                  [[site.main.route]]\npath = \"~^/inner-old/(.*)$\"\nrewrite = \"/inner/$1\"\n\
                  [[site.main.route]]\npath = \"~^/locked/(.*)$\"\nrewrite = \"/$1\"\n\
                  basic_auth = { realm = \"c\", file = \"others\" }\n";
    let setup = Setup::new()
        .file("inner/a.txt", "inside")
        .file("shop/index.html", "inside")
        .file("b.txt", "outside");
    write(
        &setup.folder().join("users"),
        hashed("ada", "one", QUICK).as_bytes(),
    );
    let others = hashed("ada", "one", QUICK) + &hashed("bob", "two", QUICK);
    write(&setup.folder().join("others"), others.as_bytes());
    let weir = setup.more(routes).start();
    weir.get("/b.txt").expect(200);
    for path in [
        "/inner/a.txt",
        "/inner-old/a.txt",
        "/x/../inner/a.txt",
        "/inner/../inner/./a.txt",
        "/%69nner/a.txt",
        "//inner/a.txt",
        "/shop/",
        "/shop/index.html",
        "/locked/b.txt",
        "/locked/inner/a.txt",
    ] {
        weir.get(path).expect(401);
        get(&weir, path, "ada", "wrong").expect(401);
        get(&weir, path, "ada", "one").expect(200);
        get(&weir, path, "ada", "one").expect(200);
    }
    // Of two files, both must have the user.
    get(&weir, "/locked/b.txt", "bob", "two").expect(200);
    get(&weir, "/locked/inner/a.txt", "bob", "two").expect(401);
}

#[test]
fn addresses_rates_and_passwords_must_all_be_right() {
    let users = hashed("ada", "one", QUICK);
    let denied = protected(&users).site("deny = [\"127.0.0.1\"]").start();
    get(&denied, "/a.txt", "ada", "one").expect(403);
    drop(denied);
    let limited = protected(&users).site("rate = \"3/h\"").start();
    // The first request, whose password must be verified, also counts once.
    for _ in 0..3 {
        get(&limited, "/a.txt", "ada", "one").expect(200);
    }
    get(&limited, "/a.txt", "ada", "one").expect(429);
    // Nobody can guess passwords faster than that either.
    get(&limited, "/a.txt", "ada", "two").expect(429);
}

#[test]
fn so_many_wrong_passwords_are_refused_and_others_go_on() {
    let users = hashed("slow", "one", SLOW) + &hashed("ada", "one", QUICK);
    let weir = protected(&users)
        .server("max_waiting_passwords = 1")
        .more("[[site.main.route]]\npath = \"/free.txt\"\nbasic_auth = false\n")
        .file("free.txt", "free")
        .start();
    get(&weir, "/a.txt", "ada", "one").expect(200);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (refused, wrong) = thread::scope(|scope| {
        let attempts: Vec<_> = (0..cores + 8)
            .map(|_| {
                scope.spawn(|| {
                    let authorization = basic("slow", "wrong");
                    let fields = [("Authorization", &authorization[..])];
                    let bytes = weir_test::weir::request("GET", "/a.txt", &fields, b"");
                    let mut client = weir.client().patient(Duration::from_secs(120));
                    client.send(bytes).response()
                })
            })
            .collect();
        // Meanwhile the reactors serve files, and users who are remembered.
        for _ in 0..20 {
            weir.get("/free.txt").expect(200);
            get(&weir, "/a.txt", "ada", "one").expect(200);
        }
        let answers = attempts
            .into_iter()
            .map(|attempt| attempt.join().expect("an answer"));
        let (refused, wrong): (Vec<_>, Vec<_>) = answers.partition(|answer| answer.status == 503);
        (refused, wrong)
    });
    assert!(!wrong.is_empty() && wrong.iter().all(|answer| answer.status == 401));
    assert!(!refused.is_empty());
    for answer in refused {
        let answer = answer.expect_reason("auth_busy");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    weir.wait_for_error(&["auth_busy", "max_waiting_passwords"]);
}

#[test]
fn check_names_the_lines_that_are_wrong() {
    let users = format!("{}plain:secret\nno colon\n", hashed("ada", "one", QUICK));
    let setup = protected(&users);
    let file = setup.folder().join("users");
    let told = |toml: &Path| {
        let checked = Command::new(program())
            .args(["check", "-c"])
            .arg(toml)
            .output();
        let checked = checked.expect("weir check");
        let text = [checked.stdout, checked.stderr].concat();
        (
            checked.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let toml = setup.write_toml();
    let (code, text) = told(&toml);
    assert_eq!(code, Some(78), "{text}");
    for words in [
        "users: line 2: a password in plain text",
        "users: line 3: there is no colon",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("secret"), "{text}");
    std::fs::remove_file(&file).expect("remove");
    let (code, text) = told(&toml);
    assert!(code == Some(78) && text.contains("htpasswd -cB"), "{text}");
    write(&file, hashed("ada", "one", QUICK).as_bytes());
    weir_test::weir::mode(&file, 0o640);
    let (code, text) = told(&toml);
    assert_eq!(code, Some(0), "{text}");
}
