//! Scripts that answer with another URL of the site, or with a file.

use http::{Method, StatusCode, Uri};
use weir_http::{Fields, Reply};
use weir_http1::Name;
use weir_observe::clock;

use super::{Named, targets::answer_target};
use crate::{record::Record, refusal::Refusal, route::Rules, script::FileRedirect, trace};

/// The script wants the answer of another URL of the site, as if it was requested with GET (RFC 3875 §6.2.2).
pub(super) fn redirect_within(record: &mut Record, location: &[u8]) -> Result<(), Refusal> {
    let uri = Uri::try_from(location)
        .ok()
        .filter(|uri| uri.path().starts_with('/'))
        .ok_or_else(|| no_path(&String::from_utf8_lossy(location)))?;
    let asked = (
        std::mem::replace(&mut record.head.method, Method::GET),
        std::mem::replace(&mut record.head.target, uri.into()),
    );
    record.rare_mut().asked.get_or_insert(asked);
    trace::step!(record.id, record.head_whole, "redirect", "{}", record.head);
    Ok(())
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

/// The script wants a file to be sent. `None` if it named another URL of the site, which is requested next.
pub(super) async fn follow_file_redirect(
    record: &mut Record,
    rules: &'static Rules,
    redirect: &FileRedirect,
    status: StatusCode,
    said: Fields,
) -> Result<Option<Reply>, Refusal> {
    let (gateway, now) = (record.gateway, clock::now());
    let target =
        match redirect {
            FileRedirect::Url(url) => match gateway.router.accel_redirect(rules, url, now).await {
                Some(target) => target,
                None => return redirect_within(record, url).map(|()| None),
            },
            FileRedirect::Path(path) => gateway
                .router
                .sendfile(rules, path, now)
                .await
                .ok_or_else(|| {
                    let path = String::from_utf8_lossy(path);
                    let message = format!("X-Sendfile {path:?} is not below sendfile_dirs");
                    Refusal::upstream(
                        StatusCode::BAD_GATEWAY,
                        "bad_response",
                        "http_protocol_error",
                        message,
                    )
                })?,
        };
    trace::step!(
        record.id,
        record.head_whole,
        "send file",
        "{}",
        Named(&target)
    );
    // If the script names the file's coding, it has compressed the file.
    let beside = !said.has(Name::ContentEncoding);
    let (mut reply, file) = answer_target(record, target, (&rules.settings, beside))?;
    record.file = file;
    if reply.status == StatusCode::OK && status != StatusCode::OK {
        reply.status = status;
    }
    // The script decides the headers about the meaning of the file, the file those about its bytes.
    let of_the_file = [
        Name::ContentLength,
        Name::ContentRange,
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
        // It was valid in the script's answer.
        let _ = reply.headers.append(name, value);
    }
    Ok(Some(reply))
}
