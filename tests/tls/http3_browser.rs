//! HTTP/3 as a real browser uses it.

use std::process::Command;

use weir_test::{Gate, Responder, Weir};

use crate::Tls;
use crate::browser::{self, PROTOCOL, page};

/// What makes a browser accept the certificate of `main.test`: the hash of its key. For HTTP/3 it wants this, or an authority that comes
/// with the browser.
fn accepted(weir: &Weir) -> String {
    let chain = weir.folder().join("main.pem");
    let script = "openssl x509 -in \"$1\" -pubkey -noout | openssl pkey -pubin -outform der |\n\
                  openssl dgst -sha256 -binary | openssl base64 -A";
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&chain)
        .output()
        .expect("sh");
    let hash = String::from_utf8(output.stdout).expect("a hash");
    assert_eq!(hash.len(), 44, "{hash:?}");
    format!("--ignore-certificate-errors-spki-list={hash}")
}

/// A browser speaks HTTP/3 from the beginning with this port of `main.test`. On its other ports, too, it accepts authorities for HTTP/3
/// that did not come with it.
fn forced(port: u16) -> String {
    format!("--origin-to-force-quic-on=main.test:{port}")
}

#[test]
fn a_browser_uploads_and_decodes_over_http3() {
    let upload = "fetch('/echo.php', { method: 'POST', body: new Blob([new Uint8Array(3000000)]) })\n\
        .then(answer => answer.text()).then(async text => {\n\
        const answer = await fetch('/long.php');\n\
        const lines = (await answer.text()).split('\\n');\n\
        window.answer = [text, answer.headers.get('content-encoding'), lines.length, lines[19999]].join(' '); });";
    let echo = "<?php header('Content-Type: text/plain'); echo $_SERVER['SERVER_PROTOCOL'], ' ',\n\
                strlen(file_get_contents('php://input'));";
    let long = "<?php header('Content-Type: text/plain; charset=utf-8');\n\
        for ($i = 0; $i < 20000; $i++) { echo \"line $i \u{e4}\\n\"; }";
    let (weir, _) = Tls::new()
        .with_php()
        .with(|setup| {
            let setup = setup
                .file("echo.php", echo)
                .file("long.php", long)
                .file("page.html", page(upload));
            setup.site("compress = true").listen("http3 = true")
        })
        .start();
    let mut browser = browser::open(
        &weir,
        "/page.html",
        &[&accepted(&weir), &forced(weir.address().port())],
    );
    assert_eq!(
        browser.run("window.answer"),
        "HTTP/3.0 3000000 zstd 20001 line 19999 \u{e4}"
    );
    assert_eq!(browser.run(PROTOCOL), "h3");
    assert_eq!(weir.logged("/echo.php")["protocol"], "HTTP/3.0");
}

/// The page comes only after the browser has asked for what a hint names.
#[test]
fn a_browser_follows_early_hints_over_http3() {
    let script = page(
        "addEventListener('load', () => {\n\
        const style = performance.getEntriesByName(new URL('/style.php', location).href)[0];\n\
        window.answer = [style.initiatorType, style.nextHopProtocol].join(' '); });",
    );
    let text = format!("{script}<link rel=stylesheet href=/style.php>");
    let gate = Gate::default();
    let mut responder = None;
    let (weir, _) = Tls::new()
        .with(|setup| {
            let one = Responder::unix(setup.folder(), move |request, answer| {
                if request.param("SCRIPT_NAME") == "/style.php" {
                    gate.open();
                    answer.stdout("Content-Type: text/css\r\nCache-Control: max-age=60\r\n\r\n");
                    answer.stdout("b { color: red }");
                    answer.end();
                    return;
                }
                let link = "Link: </style.php>; rel=preload; as=style";
                answer.stdout(format!("Status: 103 Early Hints\r\n{link}\r\n\r\n"));
                gate.pass();
                answer.stdout("Content-Type: text/html\r\n\r\n");
                answer.stdout(&text);
                answer.end();
            });
            let pool = one.pool(2);
            responder = Some(one);
            let setup = setup.file("page.php", "").file("style.php", "");
            setup.pool(&pool).listen("http3 = true")
        })
        .start();
    let port = weir.address().port();
    let mut browser = browser::open(&weir, "/page.php", &[&accepted(&weir), &forced(port)]);
    assert_eq!(browser.run("window.answer"), "early-hints h3");
    assert_eq!(browser.run(PROTOCOL), "h3");
}

/// It begins with HTTP/2, and changes because an answer says that there is HTTP/3 (RFC 7838).
#[test]
fn a_browser_changes_to_http3_when_it_is_told() {
    let script = page(
        "(async () => { for (let count = 0; window.answer === undefined; count++) {\n\
        await (await fetch('/text.txt?' + count)).text();\n\
        const entries = performance.getEntriesByType('resource');\n\
        if (entries[entries.length - 1].nextHopProtocol === 'h3') window.answer = 'h3';\n\
        await new Promise(go => setTimeout(go, 20)); } })();",
    );
    let (weir, _) = Tls::new()
        .with(|setup| {
            let setup = setup.file("page.html", script).file("text.txt", "a text\n");
            setup.listen("http3 = true")
        })
        .start();
    let mut browser = browser::open(&weir, "/page.html", &[&accepted(&weir), &forced(1)]);
    assert_eq!(browser.run(PROTOCOL), "h2");
    assert_eq!(browser.run("window.answer"), "h3");
}
