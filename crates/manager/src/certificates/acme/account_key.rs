//! Another key for the account at the authority, which `weir certificates --new-account-key` asks for by a file in the folder.

use std::{
    fs,
    time::{Duration, Instant},
};

use weir_acme::{Draft, Lock, Store, ToAcme};

use super::{Orders, times::LOCK_LIFE};

/// A change that is asked for or under way.
#[derive(Debug)]
pub(super) struct KeyChange {
    is_under_way: bool,
    look_at: Instant,
}

impl KeyChange {
    pub(super) fn at(now: Instant) -> KeyChange {
        KeyChange {
            is_under_way: false,
            look_at: now,
        }
    }

    /// Orders must wait.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }
}

impl Orders {
    pub(super) fn key_change_at(&self) -> Option<Instant> {
        let is_wanted = !self.wanted.is_empty() && !self.key_change.is_under_way;
        is_wanted.then_some(self.key_change.look_at)
    }

    /// Begins a change if one is asked for, and no order is under way: orders would go on with the earlier key.
    pub(super) fn change_key(&mut self, now: Instant) {
        if self.key_change_at().is_none_or(|at| now < at) {
            return;
        }
        self.key_change.look_at = now + LOOK_EVERY;
        let Some(authority) = &self.authority else {
            return;
        };
        let request = Store::key_request(&authority.account);
        let is_asked = fs::read_to_string(&request).is_ok_and(|text| text.is_empty());
        let is_ordering = self.wanted.iter().any(|one| one.order.is_some());
        if !is_asked || is_ordering || self.account_lock.is_some() || !self.runs(now) {
            return;
        }
        match self.lock_account() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return log::error!("the key of the account is not changed: {error}"),
        }
        // Another node may have changed it meanwhile.
        self.introduce();
        if request.exists() {
            self.key_change.is_under_way = true;
            self.tell(&ToAcme::ChangeKey);
        } else {
            self.account_lock = None;
        }
    }

    /// Takes the lock of the account. Returns false if another node has it.
    pub(super) fn lock_account(&mut self) -> Result<bool, String> {
        let Some(authority) = &self.authority else {
            return Ok(false);
        };
        let name = authority.account.file_stem().unwrap_or_default();
        let name = format!("account-{}", name.to_string_lossy());
        self.account_lock = Lock::take(&authority.store, &name, LOCK_LIFE)?;
        Ok(self.account_lock.is_some())
    }

    /// The key was changed, or was not, for this reason.
    pub(super) fn key_is_changed(&mut self, result: Result<(), String>) {
        let Some(authority) = &self.authority else {
            return;
        };
        if !std::mem::take(&mut self.key_change.is_under_way) {
            return;
        }
        let request = Store::key_request(&authority.account);
        match result {
            Ok(()) => {
                log::info!("the account at the authority has a new key");
                let _ = fs::remove_file(request);
            }
            Err(cause) => {
                log::error!("the account at the authority keeps its key: {cause}");
                let told = Draft::new(&request, 0o600).and_then(|mut draft| {
                    draft.write(cause.as_bytes())?;
                    draft.install()
                });
                if let Err(error) = told {
                    log::error!("{error}");
                }
            }
        }
        self.account_lock = None;
    }
}

/// How often it is looked whether somebody asks.
const LOOK_EVERY: Duration = Duration::from_millis(400);
