//! Draining: the gateway accepts nothing new, and reports to the manager what it still waits for.

use std::{
    sync::{Condvar, Mutex, PoisonError, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use weir_control::{DrainStatus, ToManager};
use weir_observe::pool_status::Stage;

use crate::{Gateway, dispatch::AskedBy};

/// Accepts nothing new, and notifies the manager when the last connection and the last script have ended. A script may
/// continue after its client has left; then its lease still exists. If this is the `last` gateway, the admin interface
/// stays open, so that an operator can request a faster stop.
pub(crate) fn drain(gateway: &'static Gateway, last: bool) {
    if gateway.drain.has_started() {
        return;
    }
    // The order matters: if another gateway follows, agent checks must not report this drain.
    if !last {
        gateway.admin_ends.start();
    }
    gateway.drain.start();
    gateway.taking.end();
    gateway.pools.iter().for_each(|pool| pool.wind_down());
    if let Some(egress) = gateway.egress.get()
        && !last
    {
        egress.drain();
    }
    let watch = move || {
        let admin = || usize::from(last && !gateway.admin_closed.is_set());
        let (mut told, mut is_closed) = (None, last);
        let mut tell = |calls: bool| {
            if !is_closed && weir_net::accepting() == 0 {
                is_closed = true;
                gateway.manager.tell(ToManager::AcceptsNothing);
            }
            if told.is_none_or(|told: Instant| told.elapsed() >= TELL_HOLDING) {
                told = Some(Instant::now());
                gateway
                    .manager
                    .tell(ToManager::DrainStatus(holding(gateway, calls)));
            }
            thread::sleep(LOOK);
        };
        while gateway.listening.load(Relaxed) > admin()
            || gateway.taking.is_open()
            || gateway.connections.count() > 0
            || gateway.pools.iter().any(|pool| pool.busy() > 0)
        {
            tell(false);
        }
        // Until this point scripts could make calls.
        if let Some(egress) = gateway.egress.get() {
            egress.drain();
            while !egress.is_done() {
                tell(true);
            }
        }
        // Workers end with this process. If many end at once, they need CPU time that the next gateway needs to start
        // its own. So most of them are stopped before that, like idle ones.
        let began = Instant::now();
        let left = || gateway.pools.iter().map(|pool| pool.idle_workers());
        while !last && began.elapsed() < LONGEST_WIND_DOWN && left().sum::<usize>() > FEW_WORKERS {
            tell(false);
        }
        // Sent last, after all other messages.
        gateway.manager.tell(ToManager::Drained);
    };
    if let Err(error) = thread::Builder::new().name("drain".into()).spawn(watch) {
        log::error!(
            "cannot check whether the drain is complete: {error}; it ends at shutdown_timeout"
        );
    }
}

/// What a draining gateway still waits for; `calls`: whether calls of the application are running.
fn holding(gateway: &Gateway, calls: bool) -> DrainStatus {
    let mut longest = None;
    for pool in &gateway.pools {
        for worker in pool.status(AskedBy::Nobody).workers {
            let ran = worker.request.duration;
            if worker.stage != Stage::Idle && longest.as_ref().is_none_or(|(most, _)| ran > *most) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (method, uri) = (text(&worker.request.method), text(&worker.request.uri));
                let request = format!("{method} {uri} (pool {})", pool.settings.name);
                longest = Some((ran, request));
            }
        }
    }
    let (ran, request) = longest.unwrap_or_default();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    DrainStatus {
        connections: count(gateway.connections.count()),
        requests: count(gateway.pools.iter().map(|pool| pool.busy()).sum()),
        calls,
        longest: u64::try_from(ran.as_millis()).unwrap_or(u64::MAX),
        request,
    }
}

/// An event that happens once, and that a thread can wait for.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    set: Mutex<bool>,
    told: Condvar,
}

impl Flag {
    pub(crate) fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the event, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(set, limit, |set| !*set);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// How often a draining gateway reports what it waits for.
const TELL_HOLDING: Duration = Duration::from_millis(500);

/// How many workers may end at once.
const FEW_WORKERS: usize = 16;

/// The longest time that a gateway waits for the end of its idle workers.
const LONGEST_WIND_DOWN: Duration = Duration::from_secs(30);

/// How often a draining gateway checks whether it is done.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
