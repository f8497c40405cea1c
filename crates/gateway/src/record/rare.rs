//! What few requests have: a request that waits keeps none of it.

use std::{num::NonZeroU64, sync::Arc};

use http::Method;
use weir_http::{Fields, Target};
use weir_semantics::coding::{Accepted, Coding};

use super::SignedIn;
use crate::{
    access::rates::RateFields,
    answers::{
        cache::{Asking, StoredPage},
        compression::Compressed,
    },
};

/// Values that few requests have. In a box, because each waiting request keeps a record.
#[derive(Debug, Default)]
pub(crate) struct RareValues {
    /// The target for a server that speaks HTTP, if it is not the client's.
    pub(crate) target: Option<Vec<u8>>,
    /// `PATH_TRANSLATED`, if the worker is to get it.
    pub(crate) path_translated: Option<Vec<u8>>,
    /// The client's method and target, if a local redirect of a script has replaced those in the head.
    pub(crate) asked: Option<(Method, Target)>,
    /// How often that was done.
    pub(crate) redirects: u8,
    /// Fields of scripts that redirected the request with X-Accel-Redirect, which the answer gets, too.
    pub(crate) kept: Option<Fields>,
    /// The codings that the client accepts, if the worker is told something else.
    pub(crate) accepted: Option<Accepted>,
    /// How the answer is compressed that the client has, by a tag of its If-None-Match.
    pub(crate) has_compressed: Option<Coding>,
    /// Totals of earlier scripts that redirected the request (local redirects).
    pub(crate) earlier: Earlier,
    /// How the answer was compressed.
    pub(crate) compressed: Option<Compressed>,
    /// What the cache needs of the request when the application has answered.
    pub(crate) asking: Option<Box<Asking>>,
    /// The stored page that the client gets.
    pub(crate) page: Option<Arc<StoredPage>>,
    /// The speed of the answer that a script has set; `Some(None)`: no limit.
    pub(crate) bandwidth: Option<Option<NonZeroU64>>,
    /// What the client is told of its `rate`.
    pub(crate) rate: Option<Box<RateFields>>,
    /// The user, if a password was needed.
    pub(crate) signed_in: Option<SignedIn>,
    /// The client's address may use the path, and its `rate` has counted the request.
    pub(crate) is_admitted: bool,
}

/// Totals of scripts that redirected a request to another script.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earlier {
    /// Time in queues, µs.
    pub(crate) waited: u64,
    pub(crate) retries: u32,
    pub(crate) unread: u32,
}
