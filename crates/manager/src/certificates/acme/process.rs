//! The process that talks to authorities, as the manager has it: its start, and its messages.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

use weir_acme::{FromAcme, ROLE, ToAcme, receive, send};
use weir_config::Acme;

use super::{Orders, times::RESTART};
use crate::children::role;

/// What it is called in messages.
pub(super) const PROCESS: &str = "the process for certificates";

/// The process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) channel: OwnedFd,
    pub(super) is_ready: bool,
}

impl Orders {
    /// Whether the process runs; it is started if it may be.
    pub(super) fn runs(&mut self, now: Instant) -> bool {
        if self.running.is_none() && now >= self.starts_at {
            self.starts_at = now + RESTART;
            if let Err(error) = self.start() {
                log::error!("the process for certificates cannot start: {error}");
            }
        }
        self.running
            .as_ref()
            .is_some_and(|running| running.is_ready)
    }

    fn start(&mut self) -> Result<(), String> {
        let (pid, channel) = role::start_bare("weir: acme", ROLE)?;
        self.running = Some(Running {
            pid,
            channel,
            is_ready: false,
        });
        let who = self.who.as_ref().map(|who| (who.uid, who.gid));
        self.tell(&ToAcme::Become(who));
        self.introduce();
        Ok(())
    }

    /// Sends the process the settings of the authority.
    pub(super) fn introduce(&mut self) {
        let Some(authority) = &self.authority else {
            return;
        };
        let settings = &authority.settings;
        let ca = match settings.ca_file.as_ref().map(fs::read_to_string) {
            None => None,
            Some(Ok(text)) => Some(text),
            Some(Err(error)) => {
                log::error!(
                    "tls.acme.ca_file cannot be read: {error}; the machine's certificates are used"
                );
                None
            }
        };
        let account = fs::read_to_string(&authority.account).ok();
        let message = ToAcme::Authority {
            directory: settings.directory.clone(),
            email: settings.email.clone(),
            ca,
            account: account.clone(),
            elsewhere: elsewhere(settings),
        };
        self.account = account;
        self.tell(&message);
    }

    pub(super) fn tell(&self, message: &ToAcme) {
        if let Some(running) = &self.running
            && let Err(error) = send(running.channel.as_fd(), message, false)
        {
            log::error!("the process for certificates does not read its messages: {error}");
        }
    }

    /// Reads what the process says.
    pub(crate) fn hear(&mut self, now: Instant) {
        while let Some(running) = &self.running {
            match receive::<FromAcme>(running.channel.as_fd(), false) {
                Ok(Some(message)) => self.heard(message, now),
                // The end of the process is reported elsewhere.
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    log::error!("the process for certificates sent a wrong message: {error}");
                    return role::kill(PROCESS, running.pid);
                }
            }
        }
    }
}

/// The account at the authority's other service.
fn elsewhere(settings: &Acme) -> Option<(String, String)> {
    let (id, file) = (
        settings.eab_key_id.as_ref()?,
        settings.eab_key_file.as_ref()?,
    );
    match fs::read_to_string(file) {
        Ok(key) => Some((id.clone(), key.trim().to_owned())),
        Err(error) => {
            log::error!("tls.acme.eab_key_file: {}: {error}", file.display());
            None
        }
    }
}
