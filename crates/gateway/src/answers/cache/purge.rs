//! What makes stored pages outdated: the application's own word (`Weir-Purge`), successful writes (RFC 9111 §4.4), edits by
//! people who are signed in (`purge_on`, `purge_params`), and operators.
//!
//! Purges of an answer are in force before its head is sent: who has seen that an edit is saved, sees the edit.
//!
//! A purge is *soft* unless it says otherwise: the pages are renewed by the next request, and are sent only while the pool is
//! full or fails.

use http::{Method, Uri};
use weir_bus::What;
use weir_cache::purges::Manner;
use weir_http1::Name;
use weir_semantics::path;

use super::{
    Pages,
    question::{Page, bypass_cookie, parameters, path_of, target},
    rules::{Cached, any},
};
use crate::{
    record::Record,
    scripts::{fastcgi::cgi::Head, spool::Spooled},
};

/// Obeys `Weir-Purge` in an answer of the application, and removes the field. Its list has tags, paths (`/shop/lamps?page=2`),
/// beginnings of paths (`/shop/*`), or `*` for all pages of the site. Behind a semicolon may stand `hard`.
pub(super) fn said(pages: &Pages, record: &Record, cached: &Cached, head: &mut Head) {
    if head.headers.get(PURGE).is_none() {
        return;
    }
    for value in head.headers.all(&PURGE) {
        let (list, manner) = match split(value, b';') {
            (list, Some(said)) if said.trim_ascii().eq_ignore_ascii_case(b"hard") => {
                (list, Manner::Hard)
            }
            (list, _) => (list, Manner::Soft),
        };
        for wanted in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if let Some(what) = what(record, cached, wanted) {
                pages.purge(what, manner);
            }
        }
    }
    head.headers.remove(PURGE);
}

/// What an element of `Weir-Purge` means.
fn what(record: &Record, cached: &Cached, wanted: &[u8]) -> Option<What> {
    let site = record.site_name()?.as_bytes().to_vec();
    Some(match wanted {
        b"" => return None,
        b"*" => What::Site { site },
        [b'/', ..] => match wanted.strip_suffix(b"*") {
            Some(prefix) => What::Prefix {
                site,
                host: None,
                target: prefix.to_vec(),
            },
            None => url(record, cached, wanted)?,
        },
        tag => What::Tag {
            site,
            tag: tag.to_vec(),
        },
    })
}

/// A URL of the request's site and host.
fn url(record: &Record, cached: &Cached, uri: &[u8]) -> Option<What> {
    let host = record.head.fields.get(Name::Host).unwrap_or_default();
    let (path, query) = split(uri, b'?');
    Some(What::Url {
        site: record.site_name()?.as_bytes().to_vec(),
        host: host.to_ascii_lowercase(),
        target: target(path, query.unwrap_or_default(), cached),
    })
}

/// A request that may have changed something was answered like this. `page`: what it was sent to.
pub(super) fn written(
    (pages, record, cached): (&Pages, &Record, &Cached),
    page: &Page,
    head: &Head,
) {
    let status = head.status;
    if !(status.is_success() || status.is_redirection()) {
        return;
    }
    let own = What::Url {
        site: record.site_name().unwrap_or_default().into(),
        host: page.host.clone(),
        target: page.target.clone(),
    };
    pages.purge(own, Manner::Soft);
    for name in [Name::Location.as_str(), "Content-Location"] {
        for location in head.headers.all(&name) {
            let Some(location) = own_target(location, &page.host) else {
                continue;
            };
            // WordPress redirects who has written a comment to the page, with a query.
            for uri in [location, path_of(location)] {
                if let Some(what) = url(record, cached, uri) {
                    pages.purge(what, Manner::Soft);
                }
            }
        }
    }
}

/// Path and query of a location on this host. `None`: it is elsewhere, or relative.
fn own_target<'l>(location: &'l [u8], host: &[u8]) -> Option<&'l [u8]> {
    let (location, _) = split(location, b'#');
    if location.starts_with(b"/") && !location.starts_with(b"//") {
        return Some(location);
    }
    let at = memchr::memmem::find(location, b"//")? + 2;
    let (named, rest) = location[at..]
        .split_at(memchr::memchr2(b'/', b'?', &location[at..]).unwrap_or(location.len() - at));
    let is_here = named.eq_ignore_ascii_case(host) && rest.starts_with(b"/");
    is_here.then_some(rest)
}

/// Purges the site if the request was an edit by somebody who is signed in.
pub(super) fn edited(
    (pages, record, cached): (&Pages, &Record, &Cached),
    body: Option<&Spooled>,
    head: &Head,
) {
    if head.status.is_client_error()
        || head.status.is_server_error()
        || !is_edit(record, cached, body)
    {
        return;
    }
    let location = head.headers.get(Name::Location);
    let is_to_login = location.is_some_and(|location| leads_to_login(location, cached));
    if let (false, Some(site)) = (is_to_login, record.site_name()) {
        pages.purge(What::Site { site: site.into() }, Manner::Soft);
    }
}

fn is_edit(record: &Record, cached: &Cached, body: Option<&Spooled>) -> bool {
    if cached.purge_on.is_empty() && cached.purge_params.is_empty() {
        return false;
    }
    let (head, query) = (&record.head, record.query().unwrap_or_default());
    let is_named =
        bypass_cookie(&head.fields, cached).is_some() || head.fields.has(Name::Authorization);
    if !is_named {
        return false;
    }
    let is_write = !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let by_path = || {
        let acts = is_write || cached.bypass_query.first(parameters(query)).is_some();
        acts && any(&cached.purge_on, &record.path)
    };
    let by_parameter = || {
        let form = body.map_or(&b""[..], |body| body.memory());
        let form = &form[..form.len().min(MOST_SEARCHED)];
        let mut pairs = parameters(query).chain(parameters(form));
        is_write
            && (pairs.any(|pair| cached.purge_params.has(pair))
                || parts(form).any(|pair| cached.purge_params.has(&pair)))
    };
    by_path() || by_parameter()
}

/// `name=value` of the parts of a form that is sent as multipart/form-data.
fn parts(form: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    const NAME: &[u8] = b"; name=\"";
    memchr::memmem::find_iter(form, NAME).filter_map(|at| {
        let name = &form[at + NAME.len()..];
        let end = memchr::memchr(b'"', name)?;
        let value = name[end..].strip_prefix(b"\"\r\n\r\n")?;
        let value = &value[..memchr::memchr(b'\r', value)?];
        Some([&name[..end], b"=", value].concat())
    })
}

fn leads_to_login(location: &[u8], cached: &Cached) -> bool {
    let uri = Uri::try_from(location).ok();
    let at = uri.as_ref().map(Uri::path).unwrap_or_default();
    path::normalise(at.as_bytes()).is_ok_and(|normal| any(&cached.login_paths, &normal.path))
}

/// What is in front of the first of these bytes, and what is behind it.
fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(at, text) {
        Some(found) => (&text[..found], Some(&text[found + 1..])),
        None => (text, None),
    }
}

/// The field by which an application purges pages.
const PURGE: &str = "Weir-Purge";

/// How much of a form is searched for parameters, bytes.
const MOST_SEARCHED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locations_of_the_same_host_are_outdated() {
        let here = |location: &'static str| own_target(location.as_bytes(), b"shop.example:8080");
        assert_eq!(here("/a?b#c"), Some(&b"/a?b"[..]));
        assert_eq!(here("http://Shop.example:8080/a"), Some(&b"/a"[..]));
        for elsewhere in [
            "//shop.example/a",
            "http://shop.example/a",
            "a",
            "",
            "http://shop.example:8080",
            "mailto:a",
        ] {
            assert_eq!(here(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn parts_of_forms_are_parameters() {
        let form =
            b"--x\r\nContent-Disposition: form-data; name=\"action\"\r\n\r\ninline-save\r\n--x\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nb\r\n";
        let found: Vec<_> = parts(form).collect();
        assert_eq!(found, [b"action=inline-save".to_vec()]);
    }
}
