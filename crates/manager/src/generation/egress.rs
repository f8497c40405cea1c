//! Reads what `[egress]` needs and the gateway cannot read: files with secrets, authorities, environment variables.
//!
//! They are read with the rights with which weir was started, once for each configuration, before anything of it
//! runs. If one is missing or invalid, the configuration is not served, or the reload fails. Their contents are never
//! logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use weir_config::{Config, Egress, HostSettings, SecretPiece};
use weir_control::{EgressFiles, ToGateway};
use weir_sys::memory;

use super::plan::{Problem, Runs};
use crate::{Failure, Loaded};

/// Reads all of it; `None` if there is no `[egress]`.
pub(super) fn read(loaded: &Loaded) -> Result<Option<EgressFiles>, Failure> {
    let Some(egress) = &loaded.config.egress else {
        return Ok(None);
    };
    let mut reading = Reading::default();
    reading.token(egress);
    reading.settings("egress", &egress.defaults, None);
    for host in &egress.hosts {
        let table = format!("egress.host.{}", host.name);
        reading.settings(&table, &host.settings, Some(&egress.defaults));
    }
    reading.roots();
    let size = reading.files.encode().len();
    if size > EgressFiles::MAX_ENCODED {
        let cause = format!("its files have {size} bytes together, which is too much");
        let mend = "use fewer or smaller files";
        reading.problems.push(Problem::new("egress", cause, mend));
    }
    match reading.problems.is_empty() {
        true => Ok(Some(reading.files)),
        false => Err(loaded.failure(reading.problems)),
    }
}

/// The users of the pools that run as another user than weir.
pub(crate) fn users(config: &Config, runs: &[Option<Runs>]) -> BTreeMap<String, u32> {
    let pools = config.pools.iter().zip(runs);
    let users = pools.filter_map(|(pool, runs)| {
        let identity = match runs.as_ref()? {
            Runs::Command(program) => program.identity.as_ref(),
            Runs::Php(spec) => spec.identity.as_ref(),
        };
        Some((pool.name.clone(), identity?.uid))
    });
    users.collect()
}

/// The message for the gateway.
pub(crate) fn message(files: &EgressFiles) -> io::Result<ToGateway> {
    memory::file(c"egress", &files.encode()).map(ToGateway::EgressFiles)
}

#[derive(Default)]
struct Reading {
    files: EgressFiles,
    /// Files that could not be read; the problem is already in the list.
    failed: BTreeSet<PathBuf>,
    problems: Vec<Problem>,
}

impl Reading {
    fn token(&mut self, egress: &Egress) {
        let Some(path) = &egress.token_file else {
            return;
        };
        let key = "egress.token_file";
        let mend = "create one: openssl rand -hex 32";
        if self.file(key, path, mend, true)
            && let Err(cause) = self.files.token(path)
        {
            self.problems.push(Problem::new(key, cause, mend));
        }
    }

    /// Reads the files that a table names. `above`: the settings that it inherits from the table above, whose
    /// problems are already reported.
    fn settings(&mut self, table: &str, settings: &HostSettings, above: Option<&HostSettings>) {
        let path_mend = "write the path of a file that the user who starts weir can read";
        if let Some(path) = &settings.ca_file {
            self.file(&format!("{table}.ca_file"), path, path_mend, false);
        }
        if let Some((cert, key)) = &settings.client_cert {
            self.file(&format!("{table}.client_cert"), cert, path_mend, false);
            self.file(&format!("{table}.client_key"), key, path_mend, true);
        }
        for header in &settings.set_headers {
            if above.is_some_and(|above| above.set_headers.contains(header)) {
                continue;
            }
            let (_, secret) = header;
            let at = format!("{table}.set_headers");
            let mut whole = true;
            for piece in &secret.0 {
                whole &= match piece {
                    SecretPiece::Text(_) => true,
                    SecretPiece::File(path) => self.file(&at, path, path_mend, true),
                    SecretPiece::Env(name) => self.variable(&at, name),
                };
            }
            if whole && let Err(cause) = self.files.value(secret) {
                let mend = "the file must have one line of text";
                self.problems.push(Problem::new(at, cause, mend));
            }
        }
    }

    /// Whether the file has been read now.
    fn file(&mut self, key: &str, path: &Path, mend: &str, secret: bool) -> bool {
        if self.files.files.contains_key(path) {
            return true;
        }
        if self.failed.contains(path) {
            return false;
        }
        match read_file(path, secret) {
            Ok(bytes) => {
                self.files.files.insert(path.to_owned(), bytes);
                true
            }
            Err(cause) => {
                let cause = format!("{}: {cause}", path.display());
                self.problems.push(Problem::new(key, cause, mend));
                self.failed.insert(path.to_owned());
                false
            }
        }
    }

    /// The authorities that the machine trusts. Certificates that cannot be parsed are skipped, as in every TLS
    /// client, if there is at least one valid one.
    fn roots(&mut self) {
        let found = rustls_native_certs::load_native_certs();
        let names = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
        let named = names.iter().find(|name| std::env::var_os(name).is_some());
        let said = |error: &rustls_native_certs::Error| format!("; {error}");
        let errors: String = found.errors.iter().take(MOST_TOLD).map(said).collect();
        match (found.certs.is_empty(), named) {
            (true, Some(name)) => {
                let cause = format!("no certificate authority was found in {name}{errors}");
                let mend =
                    "set it to certificates in PEM format, or remove it from weir's environment";
                self.problems.push(Problem::new("egress", cause, mend));
            }
            (true, None) => log::warn!(
                "[egress]: no trusted certificate authorities found{errors}: https hosts can be \
                 called only with ca_file; install ca-certificates, or set SSL_CERT_FILE"
            ),
            (false, _) if !errors.is_empty() => {
                log::warn!("[egress]: some authorities cannot be read{errors}");
            }
            (false, _) => {}
        }
        self.files.roots = found.certs.iter().map(|cert| cert.to_vec()).collect();
    }

    fn variable(&mut self, key: &str, name: &str) -> bool {
        let cause = match std::env::var(name) {
            Ok(value) => {
                self.files.env.insert(name.to_owned(), value);
                return true;
            }
            Err(std::env::VarError::NotPresent) => {
                format!("the variable {name} is not set in weir's environment")
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                format!("the variable {name} is not UTF-8 text")
            }
        };
        let mend = "set it in weir's environment (systemd: Environment=, EnvironmentFile=), or use ${file:…}";
        self.problems.push(Problem::new(key, cause, mend));
        false
    }
}

fn read_file(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    // Opening something other than a file could block forever.
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("this is not a file".to_owned());
    }
    if secret && metadata.permissions().mode() & 0o007 != 0 {
        let shown = path.display();
        log::warn!("[egress]: everybody can read {shown}: chmod o-rwx {shown}");
    }
    let mut bytes = Vec::new();
    let opened = File::open(path);
    let read = opened.and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    match read {
        Ok(count) if count as u64 > MAX_FILE => Err(format!("it has more than {MAX_FILE} bytes")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// How many unreadable files are listed in a message.
const MOST_TOLD: usize = 3;

/// Maximum size of a certificate, key or token, bytes; a bundle of all authorities has about 220 KiB.
const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Secret;

    fn settings(header: SecretPiece) -> HostSettings {
        HostSettings {
            set_headers: vec![("authorization".to_owned(), Secret(vec![header]))],
            ..HostSettings::usual()
        }
    }

    fn problems(settings: &HostSettings) -> Vec<String> {
        let mut reading = Reading::default();
        reading.settings("egress.host.a", settings, None);
        // It is not reported again for tables that inherit it.
        reading.settings("egress.host.b", settings, Some(settings));
        let told = reading.problems.into_iter();
        told.map(|p| format!("{}: {}", p.key, p.cause)).collect()
    }

    #[test]
    fn what_cannot_be_had_is_told_once_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("two"), "a\nb\n").expect("a file");
        fs::write(path("good"), "a\n").expect("a file");
        let long = vec![b'x'; MAX_FILE as usize + 1];
        fs::write(path("long"), long).expect("a file");
        for (name, cause) in [
            ("none", "No such file"),
            ("two", "line break"),
            ("long", "more than 1048576 bytes"),
            (".", "not a file"),
        ] {
            let told = problems(&settings(SecretPiece::File(path(name))));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(
                told[0].starts_with("egress.host.a.set_headers: "),
                "{told:?}"
            );
            assert!(told[0].contains(cause), "{told:?}");
        }
        let none = SecretPiece::Env("WEIR_TEST_NO_SUCH_VARIABLE".to_owned());
        assert!(problems(&settings(none))[0].contains("the variable WEIR_TEST_NO"));
        let good = settings(SecretPiece::File(path("good")));
        assert!(problems(&good).is_empty());
        let ca = HostSettings {
            ca_file: Some(path("none")),
            client_cert: Some((path("good"), path("none"))),
            ..good
        };
        let told = problems(&ca);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("egress.host.a.ca_file: "), "{told:?}");
    }
}
