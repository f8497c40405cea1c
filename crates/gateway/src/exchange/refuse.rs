//! A request is refused: the log lines, and the site's own error page.

use http::Method;
use weir_http::Reply;
use weir_http1::Name;
use weir_observe::{clock, error_log::tell};

use crate::{
    answers::refusal::Refusal,
    files,
    record::Record,
    route::{Router, Rules},
    scripts::about,
    trace,
};

/// Notes a refusal in the record, the trace and the error log.
pub(crate) fn note_refusal(record: &mut Record, refusal: &Refusal) {
    record.reason = Some(refusal.reason);
    let status = refusal.status;
    trace::step!(
        record.id,
        record.head_whole,
        "refuse",
        "{} {}",
        status.as_u16(),
        refusal.reason
    );
    if status.is_server_error() {
        record.failed(status.as_u16(), Some(refusal.reason), &refusal.message);
    }
    if refusal.message.is_empty() {
        return;
    }
    if status.is_server_error() {
        tell!(
            error,
            about(record),
            "{} {}: {}",
            status.as_u16(),
            refusal.reason,
            refusal.message
        );
    } else {
        tell!(
            notice,
            about(record),
            "{} {}: {}",
            status.as_u16(),
            refusal.reason,
            refusal.message
        );
    }
}

/// The answer to a refused request with the site's own page, if that can be read.
pub(super) async fn with_error_page(
    mut reply: Reply,
    router: &'static Router,
    rules: &'static Rules,
) -> Reply {
    if let Some(page) = router.error_page(rules, reply.status, clock::now()).await {
        let page = files::serve(&page, &Method::GET, &weir_http1::ParsedFields::default());
        if let Some(content_type) = page.headers.get(Name::ContentType) {
            // It was valid there.
            let _ = reply.headers.insert(Name::ContentType, content_type);
        }
        reply.body = page.body;
    }
    reply
}
