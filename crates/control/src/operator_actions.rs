//! Requests of operators to the manager through the admin interface, until the manager has answered.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use tokio::sync::oneshot;

use crate::{Action, ManagerHandle, ToManager};

/// Requests of operators that the manager has not answered yet.
#[derive(Debug)]
pub struct OperatorActions {
    manager: ManagerHandle,
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<ActionResult>>>,
}

impl OperatorActions {
    /// No requests yet; they go to this manager.
    pub fn new(manager: ManagerHandle) -> OperatorActions {
        OperatorActions {
            manager,
            next: AtomicU32::new(1),
            waiting: Mutex::default(),
        }
    }

    /// Sends a request to the manager. The result comes when the manager has answered.
    pub fn ask(&self, action: Action) -> oneshot::Receiver<ActionResult> {
        let id = self.next.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting().insert(id, sender);
        self.manager.tell(ToManager::Act { id, action });
        receiver
    }

    /// The manager reports the result of a request.
    pub fn done(&self, id: u32, done: bool, text: String) {
        if let Some(sender) = self.waiting().remove(&id) {
            // The task that asked may have ended meanwhile.
            let _ = sender.send(if done { Ok(text) } else { Err(text) });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<ActionResult>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was done, or why it was not done, in one line.
pub type ActionResult = Result<String, String>;
