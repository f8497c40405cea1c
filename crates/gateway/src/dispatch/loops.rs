//! Applications that stay booted whose script has no loop: each of their processes answers one request and ends.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_config::Pool as Settings;
use weir_observe::error_log::{About, tell};
use weir_sys::process::Exit;

use super::Slot;

/// How many processes of a pool have ended by themselves after one request.
#[derive(Debug, Default)]
pub(super) struct Loops(AtomicUsize);

impl Loops {
    /// The process of a slot has ended. Says once if that happens again and again.
    pub(super) fn ended(&self, settings: &Settings, slot: &Slot) {
        let Some(script) = settings.php().and_then(|php| php.worker.as_ref()) else {
            return;
        };
        let by_itself = slot.exit == Some(Exit::Code(0)) && !slot.withdrawn && !slot.spent;
        if !by_itself || slot.requests != 1 || self.0.fetch_add(1, Relaxed) + 1 != TOLD_AT {
            return;
        }
        let about = About {
            pool: Some(&settings.name),
            ..About::default()
        };
        tell!(
            warning,
            about,
            "{TOLD_AT} processes have ended by themselves after their first request: if the log has no fatal error of PHP for \
             them, {} does not call frankenphp_handle_request() again; write a loop: \
             while (frankenphp_handle_request($handler)) {{}}",
            script.display()
        );
    }
}

/// Whether the pool's processes keep an application.
pub(super) fn is_application(settings: &Settings) -> bool {
    settings.php().is_some_and(|php| php.worker.is_some())
}

/// A fatal error ends a process, too, so one or two say nothing.
const TOLD_AT: usize = 3;
