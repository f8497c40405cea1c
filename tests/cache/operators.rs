//! What operators see of the cache, and what they can purge.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use serde_json::Value;
use weir_test::{Weir, browser::render, free_address, http::encode};

use crate::{fresh, setup, with};

const HEADERS: &str =
    "cache = { preset = \"headers\", cache_status = true, bypass_cookies = [\"user\"] }\n";

fn started() -> Weir {
    setup(2, HEADERS).admin().start()
}

fn why(weir: &Weir, query: &str) -> Value {
    let (status, text) = weir.admin_get(&format!("/cache/why?{query}"));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

fn purge(weir: &Weir, query: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(weir.path("admin.sock")).expect("the admin interface");
    let request =
        format!("POST /cache/purge?{query} HTTP/1.0\r\nHost: weir\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.expect("a status"), answer)
}

#[test]
fn pages_are_purged_by_tag_url_prefix_and_site() {
    let weir = started();
    let url = with("a", &["Cache-Control: max-age=60", "xkey: lamps"]);
    let mut run = 0;
    for query in [
        "tag=lamps".to_owned(),
        "tag=lamps&site=main&hard=yes".to_owned(),
        format!("url={}", encode(&format!("http://localhost{url}"))),
        format!("prefix={}", encode("/page.php?p=a")),
        format!("prefix={}", encode("http://localhost/page")),
        "site=main".to_owned(),
        "all=yes".to_owned(),
    ] {
        run += 1;
        for _ in 0..2 {
            assert_eq!(
                weir.get(&url).expect(200).text(),
                format!("run {run}"),
                "before {query}"
            );
        }
        let (status, said) = purge(&weir, &query);
        assert_eq!(status, 200, "{said}");
    }
    assert_eq!(weir.get(&url).text(), format!("run {}", run + 1));
    for wrong in ["", "tag=a&url=b", "site=none", "url=/a", "what=1", "all=no"] {
        assert_eq!(purge(&weir, wrong).0, 400, "{wrong}");
    }
}

#[test]
fn an_operator_learns_why_a_page_is_not_stored() {
    let weir = started();
    let url = |path: &str| format!("url={}", encode(&format!("http://localhost{path}")));
    let (page, own) = (fresh("a"), with("own", &["Set-Cookie: a=b"]));
    assert_eq!(why(&weir, &url(&page))["cache"], "miss");
    weir.get(&page).expect(200);
    weir.get(&own).expect(200);
    let stored = why(&weir, &url(&page));
    assert_eq!(
        (&stored["cache"], &stored["stored"]["status"]),
        (&"hit".into(), &200.into())
    );
    let refused = why(&weir, &url(&own));
    assert_eq!(refused["last_answer"], "set_cookie");
    assert!(
        refused["why"]
            .as_str()
            .is_some_and(|why| why.contains("Set-Cookie"))
    );
    let bypass = why(&weir, &(url(&page) + "&cookie=user%3D1"));
    assert_eq!(
        (&bypass["cache"], &bypass["rule"]),
        (&"bypass".into(), &"bypass_cookies".into())
    );
    purge(&weir, "all=yes");
    assert_eq!(why(&weir, &url(&page))["stored"]["purged"], true);
}

#[test]
fn uses_are_counted() {
    let weir = started();
    for _ in 0..3 {
        weir.get(&fresh("a")).expect(200);
    }
    weir.request("GET", &fresh("a"), &[("Cookie", "user=1")], b"")
        .expect(200);
    let cache = &weir.status()["cache"];
    let counts = &cache["sites"]["main"];
    assert_eq!(
        (&counts["hit"], &counts["miss"], &counts["bypass"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert!(
        cache["bytes"].as_u64() > Some(0) && cache["objects"] == 1,
        "{cache}"
    );
    let (_, metrics) = weir.admin_get("/metrics");
    for line in [
        "weir_site_cache_requests_total{site=\"main\",result=\"hit\"} 2",
        "weir_cache_answers 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    weir.expect_sound_metrics(&metrics);
}

#[test]
fn the_page_shows_the_share_of_requests_that_needed_no_worker() {
    let address = free_address();
    let weir = setup(2, HEADERS)
        .admin()
        .server(&format!("admin_tcp = \"{address}\"\n"))
        .start();
    for _ in 0..4 {
        weir.get(&fresh("a")).expect(200);
    }
    let options = [
        "--enable-logging=stderr",
        "--virtual-time-budget=9000",
        "--dump-dom",
    ];
    let page = render(weir.folder(), &format!("http://{address}/"), &options);
    assert!(!page.errors.contains("CONSOLE"), "{}", page.errors);
    for part in [
        "data-key=\"cache\">from cache<",
        "<td>75 %</td>",
        "stored pages",
    ] {
        assert!(page.output.contains(part), "{part}: {}", page.output);
    }
    let text = weir.command(&["cache", "stats"]).output().expect("weir");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("75%"), "{text}");
    let url = format!("http://localhost{}", fresh("a"));
    let why = weir
        .command(&["cache", "why", &url])
        .output()
        .expect("weir");
    let why = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(
        why.starts_with("hit: ") && why.contains("fresh for"),
        "{why}"
    );
}
