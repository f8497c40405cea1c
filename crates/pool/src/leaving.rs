//! How many workers end at a time.
//!
//! The end of a PHP needs about 10 ms of CPU time. If hundreds end at once, they take it from the workers that serve or
//! start.

/// How many of so many workers may end at a time because they are idle.
pub(crate) fn idle_at_once(workers: usize) -> usize {
    (workers / 100).max(4)
}

/// How many of so many workers may end at a time because they are to be replaced.
pub(crate) fn outdated_at_once(workers: usize) -> usize {
    (workers / 20).max(16)
}
