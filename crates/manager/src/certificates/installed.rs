//! A certificate in force, and its files.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use weir_acme::is_pair_unfinished;
use weir_config::Certificate;

use super::changes::Files;
use crate::{
    certificates::keeper::{InstalledCertificate, KeyHandle, Refused},
    generation::plan::Problem,
};

/// A certificate as it is in force.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) name: String,
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    /// The files that it is from.
    pub(super) files: Option<Stamps>,
    /// What the keeper has of it; `None`: the gateway has it.
    pub(super) held: Option<Rc<(KeyHandle, Vec<Vec<u8>>)>>,
    /// The one before, with which handshakes may be under way.
    before: Option<Rc<(KeyHandle, Vec<Vec<u8>>)>>,
    /// Changed files that could not be used, and whether that was told.
    bad: Option<(Option<Stamps>, bool)>,
}

/// The certificates of an earlier configuration by the files of chain and key.
pub(super) type ByFiles<'c> = HashMap<(&'c Path, &'c Path), &'c Installed>;

/// By what a file is known that was replaced or written to.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// The stamps of chain and key.
pub(super) type Stamps = (Stamp, Stamp);

impl Installed {
    /// As in `before`, if its files are the same; otherwise still to be read.
    pub(super) fn new(certificate: &Certificate, before: &ByFiles<'_>) -> Installed {
        let Certificate { name, chain, .. } = certificate;
        Installed::of_files((name, chain, certificate.key_file()), before)
    }

    /// The same with this name, in the files of chain and key.
    pub(super) fn of_files(
        (name, chain, key): (&str, &Path, &Path),
        before: &ByFiles<'_>,
    ) -> Installed {
        let fresh = Installed {
            name: name.to_owned(),
            chain: chain.to_owned(),
            key: key.to_owned(),
            files: None,
            held: None,
            before: None,
            bad: None,
        };
        let before = before.get(&(&*fresh.chain, &*fresh.key));
        let is_same = |old: &&&Installed| old.files.is_some() && old.files == fresh.stamps();
        match before.filter(is_same) {
            None => fresh,
            Some(old) => Installed {
                name: name.to_owned(),
                bad: None,
                ..(*old).clone()
            },
        }
    }

    /// Whether it is as its files are.
    pub(super) fn is_current(&self) -> bool {
        self.files.is_some() && self.files == self.stamps()
    }

    pub(super) fn install(&mut self, files: Option<Stamps>, held: Option<InstalledCertificate>) {
        self.files = files;
        self.bad = None;
        if let Some(InstalledCertificate {
            key,
            chain,
            warnings,
        }) = held
        {
            for warning in warnings {
                log::warn!(
                    "[certificate.{}] chain: {}: {warning}",
                    self.name,
                    self.chain.display()
                );
            }
            self.before = self.held.replace(Rc::new((key, chain)));
        }
    }

    /// One from an authority cannot be used, perhaps because a node was killed between its files: a new one is ordered.
    pub(super) fn order_again(&self, refused: &Refused) {
        if is_pair_unfinished(&self.chain) || is_recent(&self.chain) {
            log::warn!(
                "{}; a node may be replacing it, so it is looked at again",
                self.said(refused)
            );
            return;
        }
        log::error!("{}; a new one is ordered", self.said(refused));
        if let Err(error) = std::fs::remove_file(&self.chain) {
            log::error!("{}: {error}", self.chain.display());
        }
    }

    pub(super) fn stamps(&self) -> Option<Stamps> {
        Some((stamp(&self.chain)?, stamp(&self.key)?))
    }

    pub(super) fn has_changed(&self) -> bool {
        let now = self.stamps();
        let is_known_bad = self
            .bad
            .as_ref()
            .is_some_and(|(stamps, told)| *told && *stamps == now);
        now != self.files && !is_known_bad
    }

    /// Changed files cannot be used. It is told if they are the same at the next look.
    pub(super) fn is_bad(&mut self, stamps: Option<Stamps>, refused: &Refused) {
        let again = self
            .bad
            .as_ref()
            .is_some_and(|(before, _)| *before == stamps);
        if again {
            log::warn!(
                "{}; the earlier certificate stays in use",
                self.said(refused)
            );
        }
        self.bad = Some((stamps, again));
    }

    /// The files of chain and key.
    pub(super) fn open(&self) -> Result<(File, File), Refused> {
        open_pair(&self.chain, &self.key)
    }

    pub(super) fn problem(&self, refused: &Refused) -> Problem {
        let (key, path) = self.place(refused);
        let (cause, mend) = refused
            .message
            .split_once("; ")
            .unwrap_or((&refused.message, "name another file"));
        Problem::new(key, format!("{}: {cause}", path.display()), mend)
    }

    pub(super) fn said(&self, refused: &Refused) -> String {
        let (key, path) = self.place(refused);
        format!("{key}: {}: {}", path.display(), refused.message)
    }

    fn place(&self, refused: &Refused) -> (String, &Path) {
        match refused.in_key && self.key != self.chain {
            true => (format!("certificate.{}.key", self.name), &self.key),
            false => (format!("certificate.{}.chain", self.name), &self.chain),
        }
    }
}

/// The files of each certificate.
pub(super) fn files_of<'l>(list: &'l [Installed]) -> impl Fn(u32) -> Files<'l> {
    move |number| {
        let one = &list[number as usize];
        [&*one.chain, &*one.key]
    }
}

/// Opens the files of chain and key.
pub(crate) fn open_pair(chain: &Path, key: &Path) -> Result<(File, File), Refused> {
    let open =
        |path: &Path, in_key: bool| open_file(path).map_err(|message| Refused { in_key, message });
    Ok((open(chain, false)?, open(key, true)?))
}

/// Opens a file, and nothing else that could be at this path.
pub(super) fn open_file(path: &Path) -> Result<File, String> {
    /// Opening a pipe does not wait for its writer.
    const O_NONBLOCK: i32 = 0o4000;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path);
    let file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check the path".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "it may not be read; give the user who starts weir read access".to_owned()
        }
        _ => error.to_string(),
    })?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err("this is not a file; name the file itself".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a file was changed lately.
fn is_recent(path: &Path) -> bool {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < RECENT))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ))
}

/// A file that was changed within this time may be one of a pair that is being replaced.
const RECENT: Duration = Duration::from_secs(10);
