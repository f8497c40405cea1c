//! Which streams of a connection have something to do.
//!
//! All streams share the task of their connection. Each has a waker that notes its slot here, so that a turn polls only
//! streams that were woken. Wakers may be used on any thread.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

/// The slots that were woken.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    slots: Mutex<Vec<u32>>,
    /// The task of the connection.
    task: OnceLock<Waker>,
    /// The task runs and looks at the list before it waits again.
    is_running: AtomicBool,
}

/// Wakes one slot.
#[derive(Debug)]
pub(crate) struct SlotWaker {
    list: Arc<ReadyList>,
    slot: u32,
    is_listed: AtomicBool,
}

impl ReadyList {
    /// A turn of the connection begins.
    pub(crate) fn begin(&self, task: &Waker) {
        self.task.get_or_init(|| task.clone());
        self.is_running.store(true, SeqCst);
    }

    /// The turn ends: from now on, wakers wake the task. True: something has come between the last look and now.
    #[must_use]
    pub(crate) fn end(&self, connection: &SlotWaker) -> bool {
        self.is_running.store(false, SeqCst);
        connection.is_woken() || !self.slots().is_empty()
    }

    /// Gives up the space of the list, if it is empty.
    pub(crate) fn shrink(&self) {
        let mut slots = self.slots();
        if slots.is_empty() {
            *slots = Vec::new();
        }
    }

    /// Takes the slots that were woken.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        std::mem::swap(into, &mut *self.slots());
    }

    fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotWaker {
    pub(crate) fn new(list: &Arc<ReadyList>, slot: u32) -> Arc<SlotWaker> {
        Arc::new(SlotWaker {
            list: list.clone(),
            slot,
            is_listed: AtomicBool::new(false),
        })
    }

    /// The connection's own waker, which is not in the list.
    pub(crate) fn of_connection(list: &Arc<ReadyList>) -> Arc<SlotWaker> {
        SlotWaker::new(list, CONNECTION)
    }

    /// Whether it was woken since it was polled.
    pub(crate) fn is_woken(&self) -> bool {
        self.is_listed.load(SeqCst)
    }

    /// The slot is being polled: the next wake lists it again.
    pub(crate) fn is_polled(&self) {
        self.is_listed.store(false, SeqCst);
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, SeqCst) {
            if self.slot != CONNECTION {
                self.list.slots().push(self.slot);
            }
            if !self.list.is_running.load(SeqCst) {
                self.list.wake_task();
            }
        }
    }
}

/// Stands for the connection among the slots.
const CONNECTION: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_slot_is_listed_once_and_wakes_the_task_only_while_that_waits() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(task.clone());
        let list = Arc::new(ReadyList::default());
        let slots = [0, 1].map(|slot| SlotWaker::new(&list, slot));
        let mut taken = Vec::new();
        list.begin(&waker);
        slots[1].wake_by_ref();
        slots[1].wake_by_ref();
        assert_eq!(task.0.load(Relaxed), 0);
        list.take(&mut taken);
        assert_eq!(taken, [1]);
        slots[1].is_polled();
        let connection = SlotWaker::of_connection(&list);
        assert!(!list.end(&connection));
        assert_eq!(task.0.load(Relaxed), 0);
        slots[0].wake_by_ref();
        slots[1].wake_by_ref();
        assert_eq!(task.0.load(Relaxed), 2);
        list.begin(&waker);
        taken.clear();
        list.take(&mut taken);
        assert_eq!(taken, [0, 1]);
        slots.iter().for_each(|slot| slot.is_polled());
        // A wake after the last look is not lost.
        slots[0].wake_by_ref();
        assert!(list.end(&connection));
        // The same for the connection's own waker, although it is not listed.
        list.begin(&waker);
        taken.clear();
        list.take(&mut taken);
        connection.wake_by_ref();
        taken.clear();
        list.take(&mut taken);
        assert!(taken.is_empty());
        assert!(list.end(&connection));
        assert_eq!(task.0.load(Relaxed), 2);
    }
}
