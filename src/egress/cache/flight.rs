//! Equal questions that are on their way: one leads, the others wait for what becomes of its answer.

use std::{sync::Arc, time::SystemTime};

use http::{HeaderValue, StatusCode};
use tokio::sync::watch;

use super::{
    super::fault::{Fault, Kind},
    Cache, Look, Manner,
    question::{Key, Question},
};
use crate::clock;

/// What became of a question, for those that wait. That its sender is gone without a word means that its caller left:
/// one of them leads then.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// It is asked, or its answer is being read.
    Underway,
    /// Its answer is kept.
    Kept,
    /// Its answer is for nobody else.
    Apart,
    /// The origin failed.
    Failed(Failure),
}

/// How an origin failed, for those that wait.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// It could not be asked, after all tries that there may be.
    Fault(Arc<Fault>),
    /// It answered so (5xx), and said when to come again.
    Status(StatusCode, Option<HeaderValue>),
    /// Its answer ended before its end.
    Cut(Kind),
}

impl Failure {
    /// Whether the next one might have more luck: whoever could not ask has tried again already.
    fn may_pass(&self) -> bool {
        !matches!(self, Failure::Fault(_))
    }
}

/// A question on its way to the origin, from when it is asked to the end of its answer.
pub(super) struct Journey {
    cache: Arc<Cache>,
    key: Key,
    since: u64,
}

impl Journey {
    /// `since`: [`super::store::Store::sets_out`]'s.
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

/// The one that asks.
pub(super) struct Leader {
    cache: Arc<Cache>,
    question: Arc<Question>,
    id: u64,
    stage: watch::Sender<Stage>,
}

/// One that waits for another's answer.
pub(crate) struct Following {
    cache: Arc<Cache>,
    question: Arc<Question>,
    stage: watch::Receiver<Stage>,
    /// How many leaders have left it already.
    left: u32,
}

impl Leader {
    /// `id` is [`super::store::Store::take_off`]'s.
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

    /// Tells those that wait, and nobody new comes.
    pub(super) fn ends(self, stage: Stage) {
        self.land();
        self.stage.send_replace(stage);
    }

    /// Whether somebody waits.
    pub(super) fn is_followed(&self) -> bool {
        // One receiver is the flight's own, from which others are made.
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

    /// Waits until it is known what becomes of the other's answer, but not past `deadline` ([`clock::now`]): none then.
    /// `time` is asked once that is known.
    pub(crate) async fn wait(self, deadline: u64, time: impl Fn() -> SystemTime) -> Option<Look> {
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
                // If all asked by themselves now, an origin that fails would be asked by all of them at once.
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
                Look::Follow(again) => {
                    (question, stage, left) = (again.question, again.stage, again.left);
                }
                look => return Some(look),
            }
        }
    }
}

/// Whose leaders have failed so often gets what the last one got.
const MOST_FAILED: u32 = 2;

/// Who was left by so many leaders goes alone.
const MOST_LEADERS: u32 = 5;
