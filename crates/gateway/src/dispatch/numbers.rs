//! Which worker a process is, by its number: one look-up for all pools, which locks none of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The processes of all pools.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<HashMap<u32, WorkerPlace>>);

/// Where a worker is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerPlace {
    /// Index into the configuration's pools.
    pub(crate) pool: u16,
    pub(super) slot: usize,
    /// The manager's number for the process. The kernel gives numbers of processes again.
    process: u32,
}

/// A worker in the table, until this is dropped.
#[derive(Debug)]
pub(super) struct Known {
    numbers: Arc<Numbers>,
    pid: u32,
    process: u32,
}

impl Numbers {
    pub(crate) fn find(&self, pid: u32) -> Option<WorkerPlace> {
        self.places().get(&pid).copied()
    }

    pub(super) fn add(
        self: &Arc<Self>,
        pid: u32,
        process: u32,
        (pool, slot): (u16, usize),
    ) -> Known {
        let place = WorkerPlace {
            pool,
            slot,
            process,
        };
        self.places().insert(pid, place);
        Known {
            numbers: self.clone(),
            pid,
            process,
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<u32, WorkerPlace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut places = self.numbers.places();
        if (places.get(&self.pid)).is_some_and(|place| place.process == self.process) {
            places.remove(&self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_number_until_it_has_ended() {
        let numbers = Arc::new(Numbers::default());
        let first = numbers.add(100, 1, (0, 3));
        let _other = numbers.add(101, 2, (7, 0));
        let found = |pid| numbers.find(pid).map(|place| (place.pool, place.slot));
        assert_eq!((found(100), found(101)), (Some((0, 3)), Some((7, 0))));
        assert_eq!(found(102), None);
        // A new process has the number of one whose end was not reported yet.
        let again = numbers.add(100, 3, (2, 1));
        drop(first);
        assert_eq!(found(100), Some((2, 1)));
        drop(again);
        assert_eq!(found(100), None);
    }
}
