//! Equal requests at the same time: one of them (the leader) asks the origin, and the others wait for its answer.

use std::{sync::Arc, time::SystemTime};

use http::{HeaderValue, StatusCode};
use tokio::sync::watch;
use weir_observe::clock;

use super::{
    super::fault::{Fault, Kind},
    Cache, Lookup, Manner,
    question::{Key, Question},
};

/// The state of a request, for those that wait for it. If the sender is dropped without a final state, its caller has
/// left, and one of the waiting requests becomes the leader.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// The origin is being asked, or its answer is being read.
    Underway,
    /// The answer was stored.
    Kept,
    /// The answer cannot be used by others.
    Apart,
    /// The origin failed.
    Failed(Failure),
}

/// How the origin failed, for the waiting requests.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The origin could not be asked, after all allowed retries.
    Fault(Arc<Fault>),
    /// The origin answered with this status (5xx) and perhaps a Retry-After.
    Status(StatusCode, Option<HeaderValue>),
    /// The origin's answer ended too early.
    Cut(Kind),
}

impl Failure {
    /// Whether the next request may succeed. After a fault, all retries were already used.
    fn may_pass(&self) -> bool {
        !matches!(self, Failure::Fault(_))
    }
}

/// A request to the origin, from the start to the end of its answer.
pub(super) struct Journey {
    cache: Arc<Cache>,
    key: Key,
    since: u64,
}

impl Journey {
    /// `since`: from [`super::store::Store::sets_out`].
    pub(super) fn new(cache: &Arc<Cache>, key: &Key, since: u64) -> Journey {
        Journey {
            cache: cache.clone(),
            key: key.clone(),
            since,
        }
    }

    pub(super) fn since(&self) -> u64 {
        self.since
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.cache.store().arrives(&self.key);
    }
}

/// The request that asks the origin.
pub(super) struct Leader {
    cache: Arc<Cache>,
    question: Arc<Question>,
    id: u64,
    stage: watch::Sender<Stage>,
}

/// A request that waits for the answer of another one.
pub(crate) struct Following {
    cache: Arc<Cache>,
    question: Arc<Question>,
    stage: watch::Receiver<Stage>,
    /// How many leaders have left it already.
    left: u32,
}

impl Leader {
    /// `id` is from [`super::store::Store::take_off`].
    pub(super) fn new(
        cache: &Arc<Cache>,
        question: &Arc<Question>,
        id: u64,
        stage: watch::Sender<Stage>,
    ) -> Leader {
        Leader {
            cache: cache.clone(),
            question: question.clone(),
            id,
            stage,
        }
    }

    /// Informs the waiting requests; no new ones can join.
    pub(super) fn ends(self, stage: Stage) {
        self.land();
        self.stage.send_replace(stage);
    }

    /// Whether other requests wait.
    pub(super) fn is_followed(&self) -> bool {
        // One receiver is the flight's own; the others are cloned from it.
        self.stage.receiver_count() > 1
    }

    fn land(&self) {
        self.cache.store().landed(&self.question.key, self.id);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.land();
    }
}

impl Following {
    pub(super) fn new(
        cache: &Arc<Cache>,
        question: Arc<Question>,
        stage: watch::Receiver<Stage>,
        left: u32,
    ) -> Following {
        Following {
            cache: cache.clone(),
            question,
            stage,
            left,
        }
    }

    /// Waits until the result of the other request is known, at most until `deadline` ([`clock::now`]), after which
    /// it returns `None`. `time` is called when the result is known.
    pub(crate) async fn wait(self, deadline: u64, time: impl Fn() -> SystemTime) -> Option<Lookup> {
        let Following {
            cache,
            mut question,
            mut stage,
            mut left,
        } = self;
        let mut failed = 0;
        loop {
            let settled = async {
                let settled = stage.wait_for(|stage| !matches!(stage, Stage::Underway));
                settled.await.map(|stage| stage.clone()).ok()
            };
            let manner = match clock::in_time(settled, deadline).await? {
                Some(Stage::Kept) => Manner::Joined,
                // If all of them asked the origin now, a failing origin would get all these requests at once.
                Some(Stage::Failed(failure)) if failure.may_pass() && failed < MOST_FAILED => {
                    failed += 1;
                    Manner::AfterFailure { left }
                }
                Some(Stage::Failed(failure)) => {
                    return Some(cache.after_failure(&question, time(), &failure));
                }
                Some(Stage::Apart | Stage::Underway) => Manner::Alone,
                None if left == MOST_LEADERS => Manner::Alone,
                None => Manner::Usual { left: left + 1 },
            };
            match cache.look_at(question, time(), manner) {
                Lookup::Follow(again) => {
                    (question, stage, left) = (again.question, again.stage, again.left);
                }
                look => return Some(look),
            }
        }
    }
}

/// After this many failed leaders, a waiting request gets the last leader's result.
const MOST_FAILED: u32 = 2;

/// After this many leaders have left, a waiting request asks the origin itself.
const MOST_LEADERS: u32 = 5;
