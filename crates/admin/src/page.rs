//! The page at `/`: static files, which fetch `/status` and show it in the browser. They contain no data themselves,
//! and the browser is told to run and load nothing else.

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Html,
    Style,
    Script,
}

impl Part {
    /// The file at this path; `None`: there is none.
    pub(super) fn at(path: &str) -> Option<Part> {
        match path {
            "/" => Some(Part::Html),
            "/page.css" => Some(Part::Style),
            "/page.js" => Some(Part::Script),
            _ => None,
        }
    }

    /// Its media type.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Part::Html => "text/html; charset=utf-8",
            Part::Style => "text/css; charset=utf-8",
            Part::Script => "text/javascript; charset=utf-8",
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Part::Html => include_str!("page/page.html"),
            Part::Style => include_str!("page/page.css"),
            Part::Script => include_str!("page/page.js"),
        }
    }
}

/// Headers for all of these files.
pub(super) const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
];
