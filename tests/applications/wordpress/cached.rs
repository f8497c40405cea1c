//! WordPress with the cache of pages: who is signed in or has commented gets pages of their own, nobody gets those of another, and each edit is
//! seen by the next request.

use serde_json::{Value, json};
use weir_test::wordpress::{Browser, field};
use weir_test::{Chance, Response, Weir, scaled};

use super::{PASSWORD, local};

/// After the walk through the site.
pub fn pages_are_of_nobody(weir: &Weir) {
    let mut author = signed_in(weir, "author", PASSWORD);
    let mut visitor = Browser::new(weir);
    assert!(is_hit(&again(&mut visitor, "/")));
    let (id, link) = a_post(weir, &mut author);
    users(weir, &mut author, &link);
    edits(&mut author, &mut visitor, (id, &link));
    comments(weir, (id, &link));
}

fn signed_in<'w>(weir: &'w Weir, user: &str, password: &str) -> Browser<'w> {
    let mut browser = Browser::new(weir);
    browser.get("/wp-login.php").expect(200);
    let login = [
        ("log", user),
        ("pwd", password),
        ("testcookie", "1"),
        ("redirect_to", "/wp-admin/"),
    ];
    browser.post("/wp-login.php", &login).expect(302);
    browser
}

fn is_hit(answer: &Response) -> bool {
    let said = answer.header("cache-status").unwrap_or_default();
    said.starts_with("weir; hit")
}

/// The second answer: the first request may have made it.
fn again(browser: &mut Browser<'_>, url: &str) -> Response {
    browser.get(url).expect(200);
    browser.get(url).expect(200)
}

/// Sends JSON as the block editor does.
fn send(author: &mut Browser<'_>, path: &str, value: &Value) -> Value {
    let nonce = author.get("/wp-admin/admin-ajax.php?action=rest-nonce");
    let nonce = nonce.expect(200).text();
    let fields = [
        ("X-WP-Nonce", nonce.as_str()),
        ("Content-Type", "application/json"),
    ];
    let answer = author.request("POST", path, &fields, value.to_string().as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn a_post(weir: &Weir, author: &mut Browser<'_>) -> (u64, String) {
    let post = json!({ "title": "Edited 0", "status": "publish", "content": "<p>Cached.</p>" });
    let told = send(author, "/wp-json/wp/v2/posts", &post);
    let id = told["id"].as_u64().expect("a number");
    (id, local(weir, told["link"].as_str().expect("a link")))
}

/// Users and visitors send mixed requests.
fn users(weir: &Weir, author: &mut Browser<'_>, link: &str) {
    let mut users = Vec::new();
    for number in 0..scaled(4, 50) {
        let name = format!("reader{number}x");
        let user = json!({
            "username": name, "email": format!("{name}@example.org"),
            "password": PASSWORD, "roles": ["subscriber"],
        });
        send(author, "/wp-json/wp/v2/users", &user);
        users.push((signed_in(weir, &name, PASSWORD), name));
    }
    let mut visitors = [Browser::new(weir), Browser::new(weir)];
    let mut chance = Chance(11);
    let mut hits = 0;
    for _ in 0..scaled(120, 20_000) {
        let url = chance.of(&["/", link, "/feed/", "/?utm_source=x", "/wp-login.php"]);
        if chance.below(3) == 0 {
            let number = chance.below(users.len());
            let (browser, name) = &mut users[number];
            let text = browser.get(url).text();
            assert!(!is_of_another(&text, name), "{name} {url}: {text}");
            if matches!(url, "/") || url == link {
                assert!(
                    text.contains(&**name),
                    "{url} does not greet {name}: {text}"
                );
            }
        } else {
            let answer = visitors[chance.below(2)].get(url);
            let text = answer.text();
            assert!(!is_of_another(&text, "nobody"), "{url}: {text}");
            hits += usize::from(is_hit(&answer));
        }
    }
    assert!(hits > 20, "{hits}");
}

/// Whether a page names a user who is not this one.
fn is_of_another(page: &str, name: &str) -> bool {
    let mut names = page.match_indices("reader");
    names.any(|(at, _)| {
        let rest = &page[at + 6..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        end > 0 && rest[end..].starts_with('x') && !page[at..].starts_with(name)
    })
}

/// Each edit, whichever way, is seen by the next request.
fn edits(author: &mut Browser<'_>, visitor: &mut Browser<'_>, (id, link): (u64, &str)) {
    for number in 1..4 {
        for url in ["/", link] {
            assert!(is_hit(&again(visitor, url)), "{url}");
        }
        let title = format!("Edited {number}");
        send(
            author,
            &format!("/wp-json/wp/v2/posts/{id}"),
            &json!({ "title": title }),
        );
        for url in ["/", link, "/feed/"] {
            let page = visitor.get(url).expect(200).text();
            assert!(page.contains(&title), "{url}: {page}");
        }
    }
    // The classic form of settings.
    let page = author
        .get("/wp-admin/options-general.php")
        .expect(200)
        .text();
    let nonce = field(&page, "_wpnonce");
    let fields = [
        ("option_page", "general"),
        ("action", "update"),
        ("_wpnonce", &nonce),
        ("blogname", "A new name"),
        ("blogdescription", ""),
    ];
    assert!(is_hit(&again(visitor, "/")));
    author.post("/wp-admin/options.php", &fields).expect(302);
    let front = visitor.get("/").expect(200).text();
    assert!(front.contains("A new name"), "{front}");
    // What the editor saves by itself changes no page.
    assert!(is_hit(&again(visitor, "/")));
    send(
        author,
        &format!("/wp-json/wp/v2/posts/{id}/autosaves"),
        &json!({ "title": "Draft" }),
    );
    author.post(
        "/wp-admin/admin-ajax.php",
        &[("action", "heartbeat"), ("interval", "60")],
    );
    assert!(is_hit(&visitor.get("/").expect(200)));
}

/// Who comments sees that the comment waits, and nobody else does.
fn comments(weir: &Weir, (id, link): (u64, &str)) {
    let (mut writer, mut reader) = (Browser::new(weir), Browser::new(weir));
    assert!(is_hit(&again(&mut reader, link)));
    let id = id.to_string();
    let fields = [
        ("comment", "My very own words."),
        ("author", "Writer"),
        ("email", "writer@example.org"),
        ("comment_post_ID", id.as_str()),
        ("comment_parent", "0"),
        ("wp-comment-cookies-consent", "yes"),
    ];
    let answer = writer.post("/wp-comments-post.php", &fields).expect(302);
    let own = local(weir, answer.header("location").expect("Location"));
    let own = own.split('#').next().unwrap_or_default();
    let page = writer.get(own).expect(200);
    assert!(page.text().contains("My very own words.") && !is_hit(&page));
    let page = writer.get(link).expect(200);
    assert!(
        page.text().contains("writer@example.org") && !is_hit(&page),
        "{}",
        page.text()
    );
    for url in [link, link, "/"] {
        let page = reader.get(url).expect(200).text();
        assert!(
            !page.contains("writer@example.org") && !page.contains("My very own"),
            "{page}"
        );
    }
}
