//! Checks what `[egress]` needs of the machine: files with secrets, certificates, environment variables. weir checks
//! their content when it starts.

use std::path::Path;

use super::{Obstacle, Pass};
use crate::model::{Address, HostSettings, SecretPiece, SocketPath};

impl Pass<'_> {
    pub(super) fn egress(&mut self) {
        let Some(egress) = &self.checked.config.egress else {
            return;
        };
        for address in &egress.listen {
            if let Address::Unix(path) = address {
                self.parent("egress.listen", path);
            }
        }
        if let SocketPath::At(path) = &egress.socket {
            self.parent("egress.socket", path);
        }
        self.names(
            "egress.owner",
            egress.owner.as_deref(),
            "egress.group",
            egress.group.as_deref(),
        );
        if let Some(file) = &egress.token_file {
            self.secret(
                "egress.token_file",
                file,
                "create one: openssl rand -hex 32",
            );
        }
        self.calls("egress", &egress.defaults, None);
        for host in &egress.hosts {
            let path = format!("egress.host.{}", host.name);
            self.calls(&path, &host.settings, Some(&egress.defaults));
        }
    }

    /// Checks one table. `above`: the settings that it inherits; these were already checked.
    fn calls(&mut self, path: &str, settings: &HostSettings, above: Option<&HostSettings>) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(file) = &settings.ca_file
            && above.is_none_or(|above| above.ca_file != settings.ca_file)
        {
            self.file(&at("ca_file"), file, CORRECT);
        }
        if let Some((cert, key)) = &settings.client_cert
            && above.is_none_or(|above| above.client_cert != settings.client_cert)
        {
            self.file(&at("client_cert"), cert, CORRECT);
            self.secret(&at("client_key"), key, CORRECT);
        }
        for header in &settings.set_headers {
            if above.is_some_and(|above| above.set_headers.contains(header)) {
                continue;
            }
            let (name, secret) = header;
            let at = at(&format!("set_headers.{name}"));
            for piece in &secret.0 {
                match piece {
                    SecretPiece::Text(_) => {}
                    SecretPiece::File(file) => drop(self.secret(&at, file, CORRECT)),
                    SecretPiece::Env(name) => self.variable(&at, name),
                }
            }
        }
    }

    /// Checks a file that nobody else should be able to read. Returns whether it can be read.
    pub(super) fn secret(&mut self, at: &str, file: &Path, mend: &str) -> bool {
        let is_read = self.file(at, file, mend);
        if is_read && self.machine.open_to_all(file) {
            let shown = file.display();
            let hint = format!("chmod o-rwx {shown}");
            self.warning(at, format!("everybody can read {shown}"), &hint);
        }
        is_read
    }

    /// Checks a file that weir reads at its start. Returns whether it can be read.
    pub(super) fn file(&mut self, at: &str, file: &Path, mend: &str) -> bool {
        match self.machine.readable(file) {
            Ok(()) => return true,
            Err(Obstacle::Absent(reason)) => self.error(at, reason, mend),
            Err(Obstacle::Barred(reason)) => match self.starts_weir() {
                true => self.error(at, reason, "give the user who starts weir read access"),
                false => self.warning(at, reason, "root can, and root seems to start weir"),
            },
        }
        false
    }

    fn variable(&mut self, at: &str, name: &str) {
        if self.machine.has_variable(name) {
            return;
        }
        let message = format!("the variable {name} is not set");
        let hint = "set it in weir's environment (systemd: Environment=, EnvironmentFile=), or use ${file:…}";
        match self.starts_weir() {
            true => self.error(at, message, hint),
            false => self.warning(
                at,
                message,
                "root can, and root seems to start weir have it",
            ),
        }
    }

    /// Whether the current user can be the one who starts weir: if the gateway changes its user, only root can.
    fn starts_weir(&self) -> bool {
        self.machine.is_root() || self.checked.config.server.user.is_none()
    }
}

const CORRECT: &str = "correct the path, or create the file";
