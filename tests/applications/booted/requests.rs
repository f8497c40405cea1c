//! The requests that both applications answer, and a client that sends them.

use weir_test::Weir;
use weir_test::http::form;
use weir_test::wordpress::{Browser, field};

use super::{Application, SITE};

/// A request, and the status that it should have.
#[derive(Debug, Clone)]
pub struct Ask {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    status: u16,
    /// Without the client's own cookies.
    is_stranger: bool,
}

impl Ask {
    fn new(method: &'static str, path: impl Into<String>, status: u16) -> Ask {
        Ask {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            status,
            is_stranger: false,
        }
    }

    fn get(path: impl Into<String>, status: u16) -> Ask {
        Ask::new("GET", path, status)
    }

    /// A form. A value `{token}` becomes that of the last page that had one.
    fn form(path: &str, fields: &[(&str, &str)], status: u16) -> Ask {
        Ask::new("POST", path, status).sends("application/x-www-form-urlencoded", form(fields))
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Ask {
        self.headers.push((name, value.into()));
        self
    }

    fn sends(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Ask {
        self.body = body.into();
        self.header("Content-Type", kind)
    }

    fn by_stranger(mut self) -> Ask {
        self.is_stranger = true;
        self
    }
}

/// A file as a form uploads it, beside a field.
fn upload(name: &str, content: &[u8], field: &str) -> (String, Vec<u8>) {
    let mut body = format!(
        "--limit\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n{field}\r\n\
         --limit\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"{name}\"\r\nContent-Type: image/png\r\n\r\n"
    )
    .into_bytes();
    body.extend(content);
    body.extend(b"\r\n--limit--\r\n");
    ("multipart/form-data; boundary=limit".to_owned(), body)
}

/// All requests of the client of this name, those of its session in their order.
pub fn all(application: Application, name: &str) -> Vec<Ask> {
    let mut asks = pages(name);
    asks.extend(session(name));
    asks.extend(bodies(name));
    asks.extend(trouble(name));
    if application == Application::Laravel {
        asks.extend([
            Ask::get(format!("/changed?note={name}"), 200),
            Ask::get("/echo/after-a-change", 200).by_stranger(),
        ]);
    }
    asks
}

fn pages(name: &str) -> Vec<Ask> {
    vec![
        Ask::get("/", 200),
        Ask::get(format!("/?name={name}"), 200),
        Ask::get("/", 200),
        Ask::get("/?q=gate", 200),
        Ask::get("/?page=4", 200),
        Ask::get(format!("/?q=%3Cb%3E{name}&name=%22%26{name}"), 200),
        Ask::get("/item/3", 200),
        Ask::new("HEAD", "/item/4", 200),
        Ask::get("/item/99", 404),
        Ask::get("/old/7", 301),
        Ask::get(format!("/remember?page={name}"), 200),
        Ask::get("/remember?page=two", 200),
        Ask::get("/remember?page=three", 200),
        Ask::get("/streamed?lines=50", 200),
        Ask::get("/streamed", 200),
    ]
}

/// A cart, and messages that the next page shows once.
fn session(name: &str) -> Vec<Ask> {
    let add = |number: &str, note: &str, status| {
        let fields = [("_token", "{token}"), ("number", number), ("note", note)];
        Ask::form("/cart", &fields, status)
    };
    let remove = [("_token", "{token}"), ("_method", "DELETE")];
    vec![
        Ask::get("/cart", 200),
        // Its form has the token.
        Ask::get("/item/5", 200),
        add("5", &format!("for {name}"), 303),
        Ask::get("/cart", 200),
        Ask::get("/cart", 200),
        add("6", "<i>&\"'", 303),
        add("7", name, 303),
        Ask::get("/cart", 200),
        Ask::form("/cart/1", &remove, 303),
        Ask::get("/cart", 200),
        add("400", "not there", 404),
        Ask::get("/cart", 200).by_stranger(),
        Ask::get("/cart", 200),
    ]
}

fn bodies(name: &str) -> Vec<Ask> {
    let (kind, body) = upload("a.png", &vec![b'p'; 70_000], name);
    let (_, empty) = upload("", b"", name);
    let (_, small) = upload("b.png", name.as_bytes(), "small");
    let json =
        |method, body: String| Ask::new(method, "/echo/json", 200).sends("application/json", body);
    let asks = vec![
        Ask::new("POST", "/upload", 201).sends(&kind, body),
        Ask::new("POST", "/upload", 201).sends(&kind, empty),
        Ask::new("POST", "/upload", 201).sends(&kind, small),
        Ask::form("/upload", &[("note", name)], 201),
        Ask::get(format!("/echo/{name}/b%20c?a[]=1&a[x]={name}&e="), 200)
            .header("Accept-Language", "de-CH, fr;q=0.5"),
        Ask::get("/echo", 200),
        Ask::get("/echo/cookies", 200).header("Cookie", format!("one={name}; two=%20x%3D")),
        // "user:NAME" in base64 would differ in length; these are the same for all.
        Ask::get("/echo/login", 200).header("Authorization", "Basic dXNlcjpzZWNyZXQ="),
        Ask::get("/echo/nobody", 200),
        json(
            "POST",
            format!("{{\"who\":\"{name}\",\"list\":[1,2.5,null]}}"),
        ),
        json("PUT", format!("{{\"put\":\"{name}\"}}")),
        json("PATCH", "{}".to_owned()),
        Ask::form(
            "/echo/form",
            &[("a[b][]", name), ("a[b][]", "2"), ("ü", "ß")],
            200,
        ),
        Ask::new("POST", "/echo/text", 200).sends("text/plain", vec![b'x'; 200_000]),
        Ask::new("POST", "/echo/nothing", 200),
        Ask::get("/echo/last", 200),
    ];
    asks.into_iter().map(Ask::by_stranger).collect()
}

/// Errors, and what comes after them.
pub fn trouble(name: &str) -> Vec<Ask> {
    vec![
        Ask::get("/item/98", 404),
        Ask::get("/broken", 500),
        Ask::get("/", 200),
        Ask::get("/forbidden", 403),
        Ask::get(format!("/no/such/page?{name}"), 404),
        Ask::new("POST", "/item/3", 405),
        Ask::new("OPTIONS", "/nowhere", 404),
        Ask::get("/item/3", 200),
    ]
}

/// An answer, as its application makes it comparable.
pub struct Answer {
    status: u16,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn expect_status(&self, ask: &Ask) {
        assert_eq!(self.status, ask.status, "{ask:?}: {}", self.text);
    }
}

/// A client with cookies.
pub struct Script<'a> {
    application: Application,
    weir: &'a Weir,
    browser: Browser<'a>,
    name: String,
    /// Of the last page with a form.
    token: String,
}

impl<'a> Script<'a> {
    pub fn new(application: Application, weir: &'a Weir, name: &str) -> Script<'a> {
        Script {
            application,
            weir,
            browser: Browser::of_site(weir, SITE),
            name: name.to_owned(),
            token: String::new(),
        }
    }

    #[track_caller]
    pub fn send(&mut self, ask: &Ask) -> Answer {
        let token = form(&[("", &self.token)]);
        let token = token.trim_start_matches('=').as_bytes();
        let body = replaced(&ask.body, b"%7Btoken%7D", token);
        let agent = format!("client of {}", self.name);
        let mut headers = vec![("User-Agent", agent.as_str())];
        headers.extend(
            ask.headers
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let mut stranger = Browser::of_site(self.weir, SITE);
        let browser = match ask.is_stranger {
            true => &mut stranger,
            false => &mut self.browser,
        };
        let response = browser.request(ask.method, &ask.path, &headers, &body);
        let page = response.text();
        if !ask.is_stranger && page.contains("name=\"_token\"") {
            self.token = field(&page, "_token");
        }
        Answer {
            status: response.status,
            text: self.application.normalised(&response),
        }
    }
}

/// The bytes with each `from` replaced.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut left = bytes;
    let mut all = Vec::with_capacity(bytes.len());
    while let Some(at) = left.windows(from.len()).position(|part| part == from) {
        all.extend(&left[..at]);
        all.extend(to);
        left = &left[at + from.len()..];
    }
    all.extend(left);
    all
}
