//! What a request for a script needs on its way; [`crate::exchange`] has the way itself.
//!
//! | step | file |
//! |---|---|
//! | the body | [`body`] |
//! | `PATH_TRANSLATED` | [`fastcgi::path_info`] |
//! | its turn, its place in the queue | [`admission`] |
//! | a worker: connection, request, head of the answer | [`worker`] |
//! | the worker has the request | [`run`], in the worker's protocol: [`fastcgi`], [`proxy`] |
//! | the worker failed: another one, or an error | [`failures`] |
//! | the answer | [`response`] |

mod admission;
mod body;
mod failures;
pub(crate) mod fastcgi;
pub(crate) mod policy;
mod proxy;
mod response;
pub(crate) mod run;
pub(crate) mod self_calls;
pub(crate) mod spool;
pub(crate) mod uploads;
mod worker;

use weir_http1::Name;
use weir_observe::{
    error_log::{About, tell},
    scoreboard::Facts,
};

pub(crate) use self::{
    admission::{
        Queued, Serialized, SessionTurn, admit, no_pool, no_worker, refuse_what_crashes,
        trace_queue,
    },
    body::{Discard, Upload},
    failures::{Retry, examine, note_retry, worker_failed},
    fastcgi::path_info::{path_translated, unless_there},
    proxy::head::is_websocket,
    response::Response,
    worker::{AtWorker, HeadError, choice, connect, connected},
};
use crate::{dispatch::PoolHandle, record::Record};

/// The values of a request for the status page.
pub(crate) fn facts(record: &Record, content_length: u64) -> Facts<'_> {
    Facts {
        method: record.head.method.as_str().as_bytes(),
        uri: record.uri(),
        script: record
            .script
            .as_ref()
            .map_or(b"", |script| &script.filename),
        authorization: record.known_header(Name::Authorization).unwrap_or_default(),
        user: (record.params.as_ref())
            .and_then(|params| params.get(b"REMOTE_USER"))
            .or(record.user())
            .unwrap_or_default(),
        content_length,
    }
}

/// The subject of a request's log lines.
pub(crate) fn about(record: &Record) -> About<'_> {
    About {
        site: record.site_name(),
        pool: record.pool.as_ref().map(|pool| pool.settings.name.as_str()),
        request: Some(record.id),
        asked: Some(record.named()),
        ..About::default()
    }
}

/// Logs what is odd about an answer that is sent nevertheless, unless the pool had many of them.
#[cold]
fn odd(record: &Record, pool: &PoolHandle, what: &dyn std::fmt::Display) {
    match pool.say_odd() {
        None => {}
        Some(0) => tell!(warning, about(record), "{what}"),
        Some(others) => tell!(
            warning,
            about(record),
            "{what}; {others} other answers were odd"
        ),
    }
}
