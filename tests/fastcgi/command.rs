//! FastCGI programs that are not PHP, as pools of `runtime = "command"`: Perl's FCGI, CGI scripts through fcgiwrap,
//! and a C program with libfcgi.

use std::collections::BTreeSet;
use std::process::Command;

use weir_test::php::identity;
use weir_test::weir::{mode, write};
use weir_test::{Setup, Weir, wait_until};

/// A pool of a command, with a site that sends everything below /app to it.
fn pool(command: &[&str], children: usize) -> String {
    format!(
        "runtime = \"command\"\ncommand = {command:?}\nmax_children = {children}\nlimit_extensions = []\n{}",
        identity()
    )
}

/// A weir whose scripts a program in Perl runs, in so many processes.
fn perl(children: usize) -> Weir {
    let setup = Setup::new()
        .file("app.fcgi", "")
        .site(r"script = '^(/.+\.fcgi)(/.*)?$'");
    let program = setup.folder().join("echo.pl");
    write(&program, include_bytes!("fixtures/echo.pl"));
    mode(&program, 0o755);
    let pool = pool(&[program.to_str().expect("a path")], children);
    setup.pool(&pool).start()
}

#[test]
fn a_program_with_perls_fcgi() {
    let weir = perl(2);

    let mut workers = Vec::new();
    let mut client = weir.client();
    for _ in 0..10 {
        client.send("POST /app.fcgi/a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let response = client.response().expect(202);
        let text = response.text();
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(
            (words[0], &words[3..]),
            ("perl", &["POST", "/a/b", "5"][..]),
            "{text}"
        );
        workers.push(words[1].to_owned());
    }
    // weir uses the most recently used worker first. If the other worker starts meanwhile, weir may use that one
    // instead.
    workers.dedup();
    assert!(workers.len() <= 2, "{workers:?}");
    let running: BTreeSet<String> = weir
        .workers()
        .iter()
        .map(|worker| worker.pid.to_string())
        .collect();
    assert!(workers.iter().all(|worker| running.contains(worker)));
    assert_eq!(running.len(), 2);

    let body = vec![b'x'; 1_000_000];
    assert!(
        weir.request("POST", "/app.fcgi", &[], &body)
            .expect(202)
            .text()
            .ends_with(" 1000000")
    );
    weir.get("/app.fcgi?complain").expect(202);
    weir.wait_for_error(&["app", "perl complains"]);
}

#[test]
fn a_cgi_script_through_fcgiwrap() {
    let setup = Setup::new()
        .file("hello.cgi", include_bytes!("fixtures/hello.cgi"))
        .file("plain.txt", "plain");
    mode(&setup.root().join("hello.cgi"), 0o755);
    let setup = setup
        .site(r"script = '^(/.+\.cgi)(/.*)?$'")
        .pool(&pool(&["/usr/sbin/fcgiwrap"], 2));
    let weir = setup.start();
    for _ in 0..5 {
        let response = weir
            .request("POST", "/hello.cgi/a?b=c", &[], b"hello")
            .expect(200);
        assert_eq!(response.text(), "cgi POST /a b=c 5\n");
    }
    assert_eq!(weir.get("/plain.txt").expect(200).text(), "plain");
    assert_eq!(weir.get("/missing.cgi").status, 404);
}

#[test]
fn a_program_with_libfcgi() {
    let setup = Setup::new()
        .file("app.fcgi", "")
        .site(r"script = '^(/.+\.fcgi)(/.*)?$'");
    let source = setup.folder().join("echo.c");
    write(&source, include_bytes!("fixtures/echo.c"));
    let program = setup.folder().join("echo");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .arg("-lfcgi")
        .output()
        .expect("cc");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let pool = pool(&[program.to_str().expect("a path")], 1);
    let weir = setup.pool(&pool).start();
    for count in 1..=20 {
        let text = weir
            .request("PUT", "/app.fcgi/x", &[], b"0123456789")
            .expect(200)
            .text();
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(
            (words[0], words[2]),
            ("c", count.to_string().as_str()),
            "the connection is kept: {text}"
        );
        assert_eq!(&words[3..], ["PUT", "/x", "10"]);
    }
}

#[test]
fn so_many_workers_as_are_said() {
    let weir = perl(5);
    wait_until("five workers", || weir.workers().len() == 5);
    weir.get("/app.fcgi").expect(202);
}
