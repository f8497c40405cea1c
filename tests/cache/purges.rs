//! What applications and edits outdate.

use weir_test::{Weir, http::form};

use crate::{fresh, said, setup, with};

const HEADERS: &str = "cache = { preset = \"headers\", cache_status = true }\n";

fn started() -> Weir {
    setup(2, HEADERS).start()
}

fn text(weir: &Weir, url: &str) -> String {
    weir.get(url).expect(200).text()
}

/// The application says in an answer what is outdated: when the client has the answer, nobody gets the old page.
#[test]
fn the_application_purges_by_tag_path_and_prefix() {
    let weir = started();
    let tagged = |name: &str, tag: &str| with(name, &["Cache-Control: max-age=60", tag]);
    let (lamp, sofa) = (
        tagged("lamp", "Surrogate-Key: lamps all"),
        tagged("sofa", "Cache-Tag: sofas,all"),
    );
    let purge = |what: &str| {
        let answer = weir
            .get(&with("purge", &[&format!("Weir-Purge: {what}")]))
            .expect(200);
        assert_eq!(answer.header("weir-purge"), None);
    };
    let state = || (text(&weir, &lamp), text(&weir, &sofa));
    let runs = |lamp: usize, sofa: usize| (format!("run {lamp}"), format!("run {sofa}"));
    assert_eq!(state(), runs(1, 1));
    purge("lamps");
    assert_eq!(state(), runs(2, 1));
    purge("all; hard");
    assert_eq!(state(), runs(3, 2));
    purge(&sofa);
    assert_eq!(state(), runs(3, 3));
    purge("/page.php?p=l*, nothing");
    assert_eq!(state(), runs(4, 3));
    purge("*");
    assert_eq!(state(), runs(5, 4));
    purge("other");
    assert_eq!(state(), runs(5, 4));
}

#[test]
fn a_write_outdates_its_url_and_those_that_it_names() {
    let weir = started();
    let url = fresh("a");
    assert_eq!(text(&weir, &url), "run 1");
    weir.request("POST", &url, &[], b"x").expect(200);
    assert_eq!(text(&weir, &url), "run 3");
    // A failed one changes nothing.
    weir.request("POST", &(url.clone() + "&status=403"), &[], b"x")
        .expect(403);
    weir.request("OPTIONS", &url, &[], b"").expect(200);
    let before = text(&weir, &url);
    assert_eq!(text(&weir, &url), before);
    let comment = with("b", &[&format!("Location: {url}")]) + "&status=302";
    weir.request("POST", &comment, &[], b"x").expect(302);
    assert_ne!(text(&weir, &url), before);
}

/// Edits of people who are signed in, as the rules of an application name them.
#[test]
fn an_edit_is_seen_by_the_next_request() {
    let rules = "cache.preset = \"headers\"\ncache.cache_status = true\ncache.ttl = \"10m\"\ncache.bypass_cookies = [\"user_*\"]\n\
        cache.bypass_query = [\"_nonce\"]\ncache.purge_on = [\"/page.php/admin/*\"]\ncache.purge_params = [\"action=save*\"]\n\
        cache.login_paths = [\"/login.php\"]\n";
    let weir = setup(2, &format!("script = '^(/.+\\.php)(/.*)?$'\n{rules}")).start();
    let user = [("Cookie", "a=b; user_1=x")];
    let page = with("a", &[]);
    let seen = |run: usize| assert_eq!(text(&weir, &page), format!("run {run}"));
    let form_of = |action: &str| form(&[("action", action)]);
    let typed = [
        ("Cookie", "user_1=x"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    seen(1);
    seen(1);
    weir.request("POST", "/page.php/admin/post?p=edit", &user, b"x")
        .expect(200);
    seen(2);
    weir.request("GET", "/page.php/admin/post?p=edit&_nonce=1", &user, b"")
        .expect(200);
    seen(3);
    weir.request(
        "POST",
        "/page.php?p=edit",
        &typed,
        form_of("save-quick").as_bytes(),
    )
    .expect(200);
    seen(4);
    // No edits: nobody is signed in, it is another path or action, it has failed, or it was sent to the login.
    weir.request("POST", "/page.php/admin/post?p=edit", &[], b"x")
        .expect(200);
    weir.request("POST", "/page.php/other?p=edit", &user, b"x")
        .expect(200);
    weir.request(
        "POST",
        "/page.php?p=edit",
        &typed,
        form_of("heartbeat").as_bytes(),
    )
    .expect(200);
    weir.request(
        "POST",
        "/page.php/admin/post?p=edit&status=403",
        &user,
        b"x",
    )
    .expect(403);
    let login = "/page.php/admin/post?p=edit&status=302&h[]=Location:%20/login.php";
    weir.request("POST", login, &user, b"x").expect(302);
    seen(4);
    let hit = weir.get(&page);
    assert!(said(&hit).starts_with("weir; hit"), "{}", said(&hit));
}
