//! What is somebody's own never reaches another client, whatever the application forgets to say.

use weir_test::{Setup, Weir, php, scaled};

/// An application that greets who is signed in, and forgets to say that its pages are somebody's own: no Cache-Control, no Vary.
const FORGETFUL: &str = r#"<?php
session_cache_limiter('');
$who = '';
foreach ($_COOKIE as $name => $value) { $who .= "[$name=$value]"; }
$auth = ($_SERVER['HTTP_AUTHORIZATION'] ?? '') . ($_SERVER['HTTP_X_API_KEY'] ?? '') . ($_SERVER['HTTP_X_AUTH_USER'] ?? '');
if (isset($_GET['login'])) { setcookie('wordpress_logged_in_x', $_GET['login']); }
if (isset($_GET['track'])) { setcookie('tracker', bin2hex(random_bytes(4))); }
echo "who:$who auth:$auth query:", $_SERVER['QUERY_STRING'], " uri:", $_SERVER['REQUEST_URI'];
"#;

const RULES: &str = "cache.preset = \"headers\"\ncache.cache_status = true\ncache.ttl = \"10m\"\n\
    cache.bypass_cookies = [\"wordpress_logged_in*\", \"cart\"]\ncache.bypass_query = [\"preview\"]\n\
    cache.drop_query = [\"utm_*\"]\ncache.vary_cookies = [\"lang\"]\n";

fn started() -> Weir {
    Setup::new()
        .file("index.php", FORGETFUL)
        .site(RULES)
        .pool(&php::own(4, ""))
        .start()
}

/// Fifty users send mixed requests. No page that one of them gets names another one.
#[test]
fn no_page_of_one_user_reaches_another() {
    let weir = started();
    let mut chance = weir_test::Chance(7);
    let mut hits = 0;
    let mut client = weir.client();
    for _ in 0..scaled(3_000, 100_000) {
        let user = chance.below(50);
        let mut cookies = Vec::new();
        if chance.below(3) == 0 {
            cookies.push(format!("wordpress_logged_in_x=user{user}"));
        }
        if chance.below(4) == 0 {
            cookies.push(format!("unknown=user{user}"));
        }
        if chance.below(9) == 0 {
            cookies.push(format!("cart=user{user}"));
        }
        let lang = chance.of(&["de", "en"]);
        if chance.below(3) == 0 {
            cookies.push(format!("lang={lang}"));
        }
        let page = chance.below(5);
        let mut url = format!("/index.php?page={page}");
        if chance.below(6) == 0 {
            url += &format!("&utm_source=user{user}");
        }
        if chance.below(30) == 0 {
            url += &format!("&login=user{user}");
        }
        let cookie = cookies.join("; ");
        let auth = format!("Bearer user{user}");
        let mut fields = vec![("Connection", "keep-alive")];
        if !cookie.is_empty() {
            fields.push(("Cookie", &cookie));
        }
        if chance.below(20) == 0 {
            fields.push((
                chance.of(&["Authorization", "X-Api-Key", "X-Auth-User"]),
                &auth,
            ));
        }
        client.send(weir_test::weir::request("GET", &url, &fields, b""));
        let answer = client.response().expect(200);
        let text = answer.text();
        hits += usize::from(
            answer
                .header("cache-status")
                .is_some_and(|said| said.contains("hit")),
        );
        for named in text.split("user").skip(1) {
            let number: String = named.chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(
                number,
                user.to_string(),
                "user{user}: {url} {cookie}: {text}"
            );
        }
        assert!(text.contains(&format!("page={page}")), "{url}: {text}");
        for cookie in &answer.all("set-cookie") {
            assert!(cookie.contains(&format!("user{user}")), "{cookie}");
        }
        let is_signed_in = cookie.contains("logged_in") || cookie.contains("cart");
        if is_signed_in {
            assert!(text.contains(&format!("user{user}")), "{cookie}: {text}");
        }
        if cookie.contains("lang=") && !is_signed_in {
            assert!(text.contains(&format!("[lang={lang}]")), "{cookie}: {text}");
        }
    }
    assert!(hits > 1_000, "{hits}");
}

/// The application does not see what does not belong to the page, and each visitor keeps what is in the log.
#[test]
fn a_stored_page_is_of_nobody() {
    let weir = started();
    let fields = [("Cookie", "ga=1; lang=de")];
    let url = "/index.php?page=1&utm_source=x";
    let first = weir.request("GET", url, &fields, b"").expect(200);
    assert_eq!(
        first.text(),
        "who:[lang=de] auth: query:page=1 uri:/index.php?page=1"
    );
    let second = weir.request("GET", "/index.php?page=1", &[("Cookie", "lang=de")], b"");
    assert_eq!(second.text(), first.text());
    assert!(
        second
            .header("cache-status")
            .unwrap_or_default()
            .contains("hit")
    );
    assert_eq!(weir.logged(url)["cache"], "miss");
}
