//! PHP-FPM's status page and ping page (`status_path`, `ping_path`), answered by the gateway.
//!
//! The gateway answers without a worker, so the pages work also when no worker is free. The figures come from
//! [`weir_observe::scoreboard`], and their formats from [`weir_observe::pool_status`].

use std::time::SystemTime;

use bytes::Bytes;
use http::StatusCode;
use weir_http::{Body, Fields, Reply};
use weir_http1::Name;
use weir_observe::pool_status::{TEXT, asked};

use crate::dispatch::{AskedBy, PoolHandle};

/// One of the pages.
#[derive(Debug)]
pub(crate) struct Page {
    content_type: &'static str,
    body: Vec<u8>,
    is_ping: bool,
    /// `PHP/8.2.29`, if PHP names itself (`expose_php`).
    powered_by: Option<String>,
}

/// The page at `path` with its `query`; `None` if `path` is not one of the two.
pub(crate) fn page(
    pool: &PoolHandle,
    path: &[u8],
    query: &[u8],
    asked_by: impl FnOnce() -> AskedBy,
) -> Option<Page> {
    let settings = &pool.settings;
    let is = |page: &Option<String>| page.as_ref().is_some_and(|page| page.as_bytes() == path);
    let powered_by = || {
        let (version, exposed) = pool.php();
        exposed.then(|| format!("PHP/{version}"))
    };
    if is(&settings.ping_path) {
        pool.count_page(&asked_by());
        return Some(Page {
            powered_by: powered_by(),
            content_type: TEXT,
            body: settings.ping_response.clone().into_bytes(),
            is_ping: true,
        });
    }
    if !is(&settings.status_path) {
        return None;
    }
    let (format, full) = asked(query);
    let asked_by = asked_by();
    pool.count_page(&asked_by);
    Some(Page {
        powered_by: powered_by(),
        content_type: format.content_type(),
        body: format.write(&pool.status(asked_by), full, SystemTime::now()),
        is_ping: false,
    })
}

impl Page {
    /// The page as an HTTP answer.
    pub(crate) fn reply(self) -> Reply {
        let mut headers = Fields::with_capacity(256);
        let fields = [
            (Name::ContentType, self.content_type),
            (Name::Expires, LONG_AGO),
            (Name::CacheControl, NO_CACHE),
        ];
        let powered_by = self.powered_by.as_deref();
        let powered_by = powered_by.map(|value| (Name::XPoweredBy, value));
        for (name, value) in powered_by.into_iter().chain(fields) {
            // An invalid header is left out.
            let _ = headers.append(name, value.as_bytes());
        }
        Reply {
            status: StatusCode::OK,
            headers,
            body: Body::Bytes(Bytes::from(self.body)),
        }
    }

    /// The headers that PHP-FPM knows when it logs the request for the page.
    pub(crate) fn head_in_log(&self, head_only: bool) -> Vec<u8> {
        let head = self.script_head(false);
        if head_only && !self.is_ping {
            let lines = head.split_inclusive(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.starts_with(b"Content-"));
            return lines.collect::<Vec<_>>().concat();
        }
        head
    }

    /// The page as a script would send it to a web server in front; for HEAD without its body.
    pub(crate) fn script_reply(self, head_only: bool) -> Reply {
        Reply {
            status: StatusCode::OK,
            headers: Fields::of_script(&[&self.script_head(head_only)[..], b"\r\n"].concat()),
            body: match head_only {
                true => Body::Empty,
                false => Body::Bytes(self.body.into()),
            },
        }
    }

    /// The lines of its head, as PHP writes them.
    fn script_head(&self, head_only: bool) -> Vec<u8> {
        // PHP writes this name with a lower-case t if it has added the charset.
        let name = match self.content_type.ends_with("UTF-8") {
            true => "Content-type",
            false => "Content-Type",
        };
        let mut content_type = format!("{name}: {}\r\n", self.content_type);
        if head_only && !self.is_ping {
            // PHP-FPM ends the request before it knows the format, so PHP adds its default.
            content_type = "Content-type: text/html; charset=UTF-8\r\n".to_owned();
        }
        let cache = format!("Expires: {LONG_AGO}\r\nCache-Control: {NO_CACHE}\r\n");
        let powered_by = match &self.powered_by {
            Some(php) => format!("X-Powered-By: {php}\r\n"),
            None => String::new(),
        };
        match self.is_ping {
            true => [powered_by, content_type, cache].concat(),
            false => [powered_by, cache, content_type].concat(),
        }
        .into_bytes()
    }
}

const LONG_AGO: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

const NO_CACHE: &str = "no-cache, no-store, must-revalidate, max-age=0";
