//! The page of `--html`, in a real browser.

use std::path::Path;

use weir_test::browser::{Rendered, render};

use super::server::{Server, answer};
use super::{bench, report};

/// How the browser shows a page without a network, and the errors that it reports.
fn browse(folder: &Path, page: &Path, more: &[&str]) -> Rendered {
    let options = [
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--window-size=900,2200",
        "--virtual-time-budget=2000",
    ];
    let url = format!("file://{}", page.display());
    render(folder, &url, &[&options, more].concat())
}

#[test]
fn the_page_opens_without_a_network_and_without_complaints() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |talk| {
        while talk.request().is_some() {
            let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let refused = "Proxy-Status: <script>alert(1)</script>; details=\"queue<b>full\"\r\n";
            talk.say(match turn % 10 {
                0 => answer("503 Service Unavailable", refused, ""),
                1 => answer("500 Internal Server Error", "", ""),
                _ => answer("200 OK", "", "x"),
            });
        }
    });
    let folder = tempfile::TempDir::new().expect("a folder");
    let folder = folder.path();
    let page = folder.join("report.html");
    let file = page.display().to_string();
    let url = server.url("/?a='<b>&c");
    report(&[
        &server.url("/?a=b&c=%3Cd%3E"),
        "-r",
        "100",
        "-t",
        "3s",
        "--html",
        &file,
        "--no-probe",
    ]);
    assert!(
        !bench(&[&url, "--html", &file]).status.success(),
        "that is no URL"
    );
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(
        !text.contains("<script") && !text.contains("queue<b>"),
        "{text}"
    );
    for place in ["http://", "https://", "//"] {
        // The page loads nothing from other places. The tested URL is only text, and a namespace is only a name.
        for attribute in ["src=\"", "href=\"", "url("] {
            assert!(
                !text.contains(&format!("{attribute}{place}")),
                "{attribute}{place}"
            );
        }
    }
    for light in [
        &[][..],
        &[
            "--force-dark-mode",
            "--enable-features=WebContentsForceDark",
        ],
    ] {
        let Rendered {
            output: dom,
            errors: said,
        } = browse(folder, &page, &[&["--dump-dom"], light].concat());
        assert_eq!(dom.matches("<svg").count(), 3, "{dom}");
        assert_eq!(dom.matches("role=\"img\"").count(), 3);
        for word in [
            "Goodput",
            "Waits",
            "Distribution",
            "queuebfull",
            "?a=b&amp;c=%3Cd%3E",
        ] {
            assert!(dom.contains(word), "{word}: {dom}");
        }
        assert!(!said.contains("CONSOLE"), "{said}");
    }
    let picture = folder.join("page.png");
    browse(
        folder,
        &page,
        &[&format!("--screenshot={}", picture.display())],
    );
    let picture = std::fs::read(&picture).expect("a picture");
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 10_000,
        "{} bytes",
        picture.len()
    );
}

#[test]
fn a_page_of_nothing_and_a_place_that_cannot_be_written() {
    let server = Server::start(|talk| {
        talk.request();
    });
    let folder = tempfile::TempDir::new().expect("a folder");
    let page = folder.path().join("report.html");
    let file = page.display().to_string();
    report(&[&server.url("/"), "-n", "2", "--html", &file, "--no-probe"]);
    let Rendered {
        output: dom,
        errors: said,
    } = browse(folder.path(), &page, &["--dump-dom"]);
    assert!(dom.contains("no answer") && !dom.contains("NaN"), "{dom}");
    assert!(!said.contains("CONSOLE"), "{said}");
    let output = bench(&[
        &server.url("/"),
        "-n",
        "2",
        "--html",
        "/no/such/folder/x.html",
        "--no-probe",
    ]);
    assert_eq!(output.status.code(), Some(64));
    assert!(super::text(&output.stderr).contains("/no/such/folder/x.html"));
}
