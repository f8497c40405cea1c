//! A request is refused: the log lines, and the site's own error page.

use http::Method;
use weir_http::Reply;
use weir_http1::Name;
use weir_observe::{clock, error_log::tell};

use super::{Exchange, Next, Step, fastcgi_front};
use crate::{
    answers::refusal::Refusal,
    files,
    record::Record,
    route::{Router, Rules},
    scripts::about,
    trace,
};

impl Exchange {
    /// Turns a refusal into an answer, and logs it.
    pub(super) fn or_refuse(&mut self, next: Result<Next, Refusal>) -> Next {
        next.unwrap_or_else(|refusal| self.refuse(&refusal))
    }

    #[cold]
    fn refuse(&mut self, refusal: &Refusal) -> Next {
        if refusal.status.is_server_error()
            && let Some(next) = self.stale_instead()
        {
            return next;
        }
        let record = &mut *self.record;
        note_refusal(record, refusal);
        if record.params.is_some() {
            let reply = fastcgi_front::refuse(record, &self.client.conn, refusal);
            return self.deliver((reply, None));
        }
        let (reply, status) = (refusal.reply(), refusal.status);
        match self.rules {
            Some(rules) if rules.has_error_page(status) => {
                let reading = with_error_page(reply, &record.gateway.router, rules);
                Next::Step(Step::ErrorPage(Box::pin(reading)))
            }
            _ => self.deliver((reply, None)),
        }
    }
}

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
async fn with_error_page(
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
