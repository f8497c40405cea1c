//! Scripts that answer with another URL of the site, or with a file.

use std::borrow::Cow;

use http::{Method, StatusCode, Uri};
use weir_config::Settings;
use weir_http::{Fields, Reply};
use weir_http1::Name;
use weir_observe::clock;
use weir_semantics::path;

use super::{Exchange, Named, Next, Step, targets::answer_target};
use crate::{
    Gateway,
    answers::refusal::Refusal,
    record::Record,
    route::{Rules, Target},
    scripts::fastcgi::cgi::Head,
    trace,
};

/// The script wants the answer of another URL of the site, as if it was requested with GET (RFC 3875 §6.2.2).
fn redirect_within(record: &mut Record, location: &[u8]) -> Result<(), Refusal> {
    let uri = Uri::try_from(location)
        .ok()
        .filter(|uri| uri.path().starts_with('/'))
        .ok_or_else(|| no_path(&String::from_utf8_lossy(location)))?;
    let asked = (
        std::mem::replace(&mut record.head.method, Method::GET),
        std::mem::replace(&mut record.head.target, uri.into()),
    );
    let rare = record.rare_mut();
    rare.asked.get_or_insert(asked);
    // The guards of that URL have not run.
    rare.is_admitted = false;
    rare.redirects += 1;
    let redirects = rare.redirects;
    trace::step!(record.id, record.head_whole, "redirect", "{}", record.head);
    match redirects > MAX_LOCAL_REDIRECTS {
        false => Ok(()),
        true => Err(Refusal::upstream(
            StatusCode::BAD_GATEWAY,
            "bad_response",
            "http_protocol_error",
            format!("more than {MAX_LOCAL_REDIRECTS} local redirects"),
        )),
    }
}

/// The answer if a script redirects to something that is not a path.
pub(super) fn no_path(location: &str) -> Refusal {
    Refusal::upstream(
        StatusCode::BAD_GATEWAY,
        "bad_response",
        "http_protocol_error",
        format!("the script sent a location that is not a path: {location:?}"),
    )
}

impl Exchange {
    /// The script wants the answer of another URL of the site.
    pub(super) fn redirect(&mut self, location: &[u8]) -> Result<Next, Refusal> {
        redirect_within(&mut self.record, location)?;
        Ok(Next::Step(Step::Route))
    }

    /// `File`: it was found, or the script has named another URL of the site.
    pub(super) fn send_file(
        &mut self,
        redirect: Result<FileRedirect, Refusal>,
    ) -> Result<Next, Refusal> {
        let mut redirect = redirect?;
        let Some((target, rules)) = redirect.target.take().zip(self.rules) else {
            return self.redirect(redirect.location());
        };
        let reply = redirect.answer(&mut self.record, target, &rules.settings)?;
        Ok(self.deliver((reply, None)))
    }
}

/// A script's answer that names a file, or another URL of the site.
pub(super) struct FileRedirect {
    to: Destination,
    status: StatusCode,
    /// The script's head.
    said: Fields,
    /// Headers of earlier scripts that are kept for this file.
    earlier: Option<Fields>,
    /// The file, once it was looked for. `None`: it is another URL of the site, [`Self::location`].
    pub(super) target: Option<Target<'static>>,
}

enum Destination {
    /// `X-Accel-Redirect`: a URL path below one of `accel_redirect`, or any other of the site.
    Url(Vec<u8>),
    /// `X-Sendfile`: a path below one of `sendfile_dirs`.
    Path(Vec<u8>),
}

impl FileRedirect {
    /// The one in this head. The record keeps some of its fields, for an answer that is not a file.
    pub(super) fn new(record: &mut Record, mut head: Head) -> FileRedirect {
        let elsewhere = head.elsewhere.take().unwrap_or_default();
        FileRedirect {
            to: match elsewhere.accel_redirect {
                Some(url) => Destination::Url(url),
                None => Destination::Path(elsewhere.sendfile.unwrap_or_default()),
            },
            status: head.status,
            earlier: keep(record, &head.headers),
            said: head.headers,
            target: None,
        }
    }

    /// Looks for the file.
    ///
    /// # Errors
    ///
    /// The script may not name this.
    pub(super) async fn look(
        mut self,
        gateway: &'static Gateway,
        rules: &'static Rules,
    ) -> Result<FileRedirect, Refusal> {
        let (router, now) = (&gateway.router, clock::now());
        self.target = match &mut self.to {
            Destination::Url(url) => {
                let target = internal_target(url).ok_or_else(|| unsafe_url(url))?;
                *url = target.into_owned();
                router.accel_redirect(rules, url, now).await
            }
            Destination::Path(path) => match router.sendfile(rules, path, now).await {
                Some(target) => Some(target),
                None => {
                    let path = String::from_utf8_lossy(path);
                    return Err(Refusal::upstream(
                        StatusCode::BAD_GATEWAY,
                        "bad_response",
                        "http_protocol_error",
                        format!("X-Sendfile {path:?} is not below sendfile_dirs"),
                    ));
                }
            },
        };
        Ok(self)
    }

    /// The URL or path.
    pub(super) fn location(&self) -> &[u8] {
        match &self.to {
            Destination::Url(location) | Destination::Path(location) => location,
        }
    }

    /// The answer with the file that was found.
    ///
    /// # Errors
    ///
    /// It cannot be sent.
    pub(super) fn answer(
        self,
        record: &mut Record,
        target: Target<'_>,
        settings: &Settings,
    ) -> Result<Reply, Refusal> {
        let FileRedirect {
            status,
            said,
            earlier,
            ..
        } = self;
        trace::step!(
            record.id,
            record.head_whole,
            "send file",
            "{}",
            Named(&target)
        );
        let (mut reply, file) = answer_target(record, target, settings, Some(&said))?;
        record.file = file;
        record.rare_mut().kept = earlier;
        if reply.status == StatusCode::OK && status != StatusCode::OK {
            reply.status = status;
        }
        // The script decides the headers about the meaning of the file, the file those about its bytes. The type is in the
        // answer or in its parts already.
        let of_the_file = [
            Name::ContentLength,
            Name::ContentRange,
            Name::ContentType,
            Name::Etag,
            Name::LastModified,
        ];
        let of_the_script: Vec<_> = (said.iter())
            .map(|(name, value)| ((Name::of(name), name), value))
            .filter(|((known, _), _)| !known.is_some_and(|known| of_the_file.contains(&known)))
            .collect();
        for (name, _) in &of_the_script {
            reply.headers.remove(*name);
        }
        for (name, value) in of_the_script {
            // This cannot fail: the value was valid in the script's answer.
            let _ = reply.headers.append(name, value);
        }
        Ok(reply)
    }
}

/// Notes the fields that nginx keeps over X-Accel-Redirect. Returns those of earlier scripts.
fn keep(record: &mut Record, said: &Fields) -> Option<Fields> {
    let rare = record.rare_mut();
    let earlier = rare.kept.clone();
    let kept = rare.kept.get_or_insert_default();
    for (name, value) in said.iter() {
        if let Some(known) = Name::of(name).filter(|known| KEPT.contains(known)) {
            if known == Name::ContentType {
                kept.remove(known);
            }
            // This cannot fail: the value was valid in the script's answer.
            let _ = kept.append((Some(known), name), value);
        }
    }
    earlier
}

/// Adds to an answer what was kept of the scripts that redirected to it. A file has their media type already. `is_script`:
/// another script has answered, and its values replace these.
pub(super) fn keep_said(record: &mut Record, reply: &mut Reply, is_script: bool) {
    let Some(kept) = record.rare.as_mut().and_then(|rare| rare.kept.take()) else {
        return;
    };
    let fields = &mut reply.headers;
    for name in KEPT.into_iter().filter(|name| kept.has(*name)) {
        let is_there = fields.has(name);
        let is_added = match name {
            Name::SetCookie => true,
            Name::ContentType => false,
            // Only files have ranges.
            Name::AcceptRanges => is_there && !is_script,
            Name::CacheControl => true,
            _ => !is_there || !is_script,
        };
        if !is_added {
            continue;
        }
        if !is_script && name != Name::SetCookie {
            fields.remove(name);
        }
        for value in kept.all(&name) {
            // This cannot fail: the value was valid in the script's answer.
            let _ = fields.append(name, value);
        }
    }
}

/// The target of X-Accel-Redirect, with all characters encoded that a URL cannot have. `None`: nginx would follow it to
/// nowhere, or not at all (no path, dot segments, NUL), or an escape is none.
fn internal_target(url: &[u8]) -> Option<Cow<'_, [u8]>> {
    let at = memchr::memchr(b'?', url).unwrap_or(url.len());
    let normal = path::normalise(&url[..at]).ok()?;
    if normal.dotted && leads_up(&url[..at]) {
        return None;
    }
    let is_of_url = |byte: &u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(byte);
    if url.iter().all(is_of_url) {
        return Some(Cow::Borrowed(url));
    }
    let mut encoded = Vec::with_capacity(url.len() + 32);
    for byte in url {
        match is_of_url(byte) {
            true => encoded.push(*byte),
            false => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    Some(Cow::Owned(encoded))
}

/// Whether a path has a segment `..`, in any spelling.
fn leads_up(path: &[u8]) -> bool {
    let path = String::from_utf8_lossy(path).to_ascii_lowercase();
    let path = path.replace("%2e", ".").replace("%2f", "/");
    path.split('/').any(|segment| segment == "..")
}

/// The answer to a target that is none, as nginx gives it.
fn unsafe_url(url: &[u8]) -> Refusal {
    let url = String::from_utf8_lossy(url);
    Refusal::client(
        StatusCode::NOT_FOUND,
        "not_found",
        format!("X-Accel-Redirect {url:?} is not a path of the site"),
    )
}

/// What nginx keeps of a script's head when it follows X-Accel-Redirect.
const KEPT: [Name; 6] = [
    Name::ContentType,
    Name::SetCookie,
    Name::ContentDisposition,
    Name::CacheControl,
    Name::Expires,
    Name::AcceptRanges,
];

/// Maximum number of local redirects for one request; nginx has the same limit.
const MAX_LOCAL_REDIRECTS: u8 = 10;
