//! Answers that need no script: files, redirects, replies of routes, and targets that do not exist.

use std::{path::Path, rc::Rc};

use bytes::Bytes;
use http::StatusCode;
use weir_config::{Action, Settings, Template};
use weir_http::{Body, Fields, Reply};
use weir_http1::{InvalidField, Name};

use crate::{
    answers::{compression, refusal::Refusal},
    files::{self, FileEntry, Forms},
    record::Record,
    route::Target,
    template,
};

/// Answers a target that needs no script. `said`: the head of the script that has named a file. Returns also the file
/// whose answer may be compressed.
pub(super) fn answer_target(
    record: &Record,
    target: Target<'_>,
    settings: &Settings,
    said: Option<&Fields>,
) -> Result<(Reply, Option<Rc<FileEntry>>), Refusal> {
    let mut file = None;
    let refused = |status, why: &str, tried: &Path| {
        let reason = if status == StatusCode::FORBIDDEN {
            "forbidden"
        } else {
            "not_found"
        };
        Err(Refusal::client(
            status,
            reason,
            format!("{}: {why}", tried.display()),
        ))
    };
    let reply = match target {
        Target::Action(action) => act(record, action),
        // With the client's method: a script may have redirected here with GET.
        Target::File(entry) => {
            let content_type = content_type(record, settings, said);
            let forms = Forms {
                // If the script names the file's coding, it has compressed the file.
                beside: said.is_none_or(|said| !said.has(Name::ContentEncoding)),
                made: settings.compress.then(|| compression::accepted(record)),
                content_type: content_type.as_deref(),
            };
            let reply = files::serve_as(&entry, record.method(), &record.head.fields, forms);
            file = settings.compress.then_some(entry);
            Ok(reply)
        }
        Target::DirectoryRedirect { location, status } => {
            bare(status, Name::Location, location.as_bytes()).map_err(unsaid)
        }
        Target::Options { allow } => {
            bare(StatusCode::NO_CONTENT, Name::Allow, allow.as_bytes()).map_err(unsaid)
        }
        Target::MethodNotAllowed { allow } => {
            Err(Refusal::client(StatusCode::METHOD_NOT_ALLOWED, "method", "").allow(allow))
        }
        Target::NotFound { why, tried } => refused(StatusCode::NOT_FOUND, why, &tried),
        Target::Forbidden { why, tried } => refused(StatusCode::FORBIDDEN, why, &tried),
        Target::Failed { error, tried } => {
            let message = format!("{}: {error}", tried.display());
            Err(match error.raw_os_error() {
                Some(EMFILE | ENFILE | ENOMEM) => Refusal::upstream(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "out_of_descriptors",
                    "proxy_internal_error",
                    message,
                )
                .retry_after(1),
                // The root, or a folder above it, is closed to the gateway: as for a file that it may not read.
                Some(EACCES | EPERM) => {
                    Refusal::client(StatusCode::FORBIDDEN, "forbidden", message)
                }
                _ => Refusal::upstream(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "file_error",
                    "proxy_internal_error",
                    message,
                ),
            })
        }
        Target::Script(_) | Target::Pool { .. } => Err(Refusal::client(
            StatusCode::FORBIDDEN,
            "forbidden",
            "it is a script, but only files can be sent here",
        )),
    }?;
    Ok((reply, file))
}

/// The media type of a file, if not that of its name: what the settings say, or a script's head. Without ranges, the settings
/// replace it at the end.
fn content_type(record: &Record, settings: &Settings, said: Option<&Fields>) -> Option<Vec<u8>> {
    let is_it = |name: &str| Name::of(name.as_bytes()) == Some(Name::ContentType);
    if record.head.fields.has(Name::Range)
        && let Some((_, value)) = settings.set_headers.iter().find(|(name, _)| is_it(name))
    {
        return Some(rendered(value, record));
    }
    let earlier = || record.rare.as_ref()?.kept.as_ref()?.get(Name::ContentType);
    let content_type = said
        .and_then(|said| said.get(Name::ContentType))
        .or_else(earlier);
    content_type
        .filter(|value| !value.is_empty())
        .map(<[u8]>::to_vec)
}

/// A route that answers by itself.
pub(super) fn act(record: &Record, action: &Action) -> Result<Reply, Refusal> {
    match action {
        Action::Deny => Err(Refusal::client(StatusCode::FORBIDDEN, "denied", "")),
        Action::Redirect { to, status } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
            let bad = |_| {
                Refusal::client(
                    StatusCode::BAD_REQUEST,
                    "bad_path",
                    "the redirect location is not valid in a header",
                )
            };
            bare(status, Name::Location, &rendered(to, record)).map_err(bad)
        }
        Action::Reply {
            status,
            body,
            content_type,
        } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::OK);
            let body = Bytes::from(rendered(body, record));
            let mut headers = Fields::with_capacity(64 + content_type.len());
            // One that would not be valid is left out.
            let _ = headers.append(Name::ContentType, content_type.as_bytes());
            Ok(Reply {
                status,
                headers,
                body: Body::Bytes(body),
            })
        }
    }
}

/// An answer with one field and no body.
///
/// # Errors
///
/// The value cannot be one of a field.
pub(super) fn bare(status: StatusCode, name: Name, value: &[u8]) -> Result<Reply, InvalidField> {
    let mut headers = Fields::with_capacity(64 + value.len());
    headers.append(name, value)?;
    Ok(Reply {
        status,
        headers,
        body: Body::Empty,
    })
}

pub(super) fn rendered(template: &Template, record: &Record) -> Vec<u8> {
    let mut text = Vec::new();
    template::render(template, record, &mut text);
    text
}

/// The refusal if one of weir's own fields is not valid.
pub(super) fn unsaid(_: InvalidField) -> Refusal {
    Refusal::upstream(
        StatusCode::INTERNAL_SERVER_ERROR,
        "bad_response",
        "proxy_internal_error",
        "a field of the answer is not valid",
    )
}

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
