//! The example site in a real browser.

use weir_test::browser::render;
use weir_test::{Setup, weir};

/// The site that `make run` serves, in the document root.
fn example(setup: Setup) -> Setup {
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site");
    for entry in std::fs::read_dir(from).expect(from).flatten() {
        let content = std::fs::read(entry.path()).expect("a file");
        weir::write(&setup.root().join(entry.file_name()), &content);
    }
    setup
}

#[test]
fn the_example_site_works_in_a_browser() {
    let weir = example(Setup::new()).start_folder(&["--workers", "4"]);
    let url = format!("http://{}/", weir.address());
    let picture = weir.folder().join("page.png");
    let browse = |more: &str| {
        let size = ["--window-size=1000,1400", "--virtual-time-budget=4000"];
        render(weir.folder(), &url, &[size[0], size[1], more]).output
    };

    let page = browse("--dump-dom");
    assert!(page.contains("PHP "), "PHP has run: {page}");
    // The page's own script has read the stream and the slow script.
    assert!(page.contains("data-stream=\"done\""), "{page}");

    browse(&format!("--screenshot={}", picture.display()));
    let picture = std::fs::read(&picture).expect("a picture");
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 10_000,
        "{} bytes",
        picture.len()
    );

    // Every file that the browser requested exists.
    let log = weir.stdout() + &weir.stderr();
    assert!(log.contains("/style.css"), "{log}");
    assert!(
        !log.contains("\" 404 ") && !log.contains("\" 500 "),
        "{log}"
    );
}

#[test]
fn the_example_sites_scripts_do_what_the_page_says() {
    let weir = example(Setup::new()).start_folder(&["--workers", "4"]);
    let page = weir.get("/").expect(200).text();
    assert!(page.contains("<html"));
    for link in page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        if link.starts_with('#') || link.contains("://") {
            continue;
        }
        let path = format!("/{}", link.trim_start_matches('/'));
        assert_eq!(weir.get(&path.replace("&amp;", "&")).status, 200, "{path}");
    }
    let hello = weir.get("/hello.php/a/b?c=d").expect(200).text();
    assert!(hello.contains("/a/b") && hello.contains("c=d"), "{hello}");
    let echo = weir.request(
        "POST",
        "/form.php",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        b"name=%3Cb%3EAda",
    );
    let text = echo.expect(200).text();
    assert!(text.contains("&lt;b&gt;Ada"), "{text}");
    let body = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--x--\r\n";
    let headers = [("Content-Type", "multipart/form-data; boundary=x")];
    let text = weir
        .request("POST", "/form.php", &headers, body.as_bytes())
        .expect(200)
        .text();
    assert!(text.contains("a.txt") && text.contains("5 bytes"), "{text}");
    assert!(
        weir.get("/slow.php?ms=50")
            .expect(200)
            .text()
            .contains("50")
    );
    let stream = weir.get("/stream.php").expect(200);
    assert_eq!(
        stream
            .header("content-type")
            .map(|kind| kind.split(';').next().unwrap_or(kind)),
        Some("text/event-stream")
    );
    assert!(stream.text().matches("data: ").count() >= 3);
}
