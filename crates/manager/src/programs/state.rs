//! The file in which weir notes how far schedules were followed, so that a restart neither loses nor repeats a time.
//!
//! It is written when a time has come, before the program is started. If it cannot be written, weir goes on, and tries again until it can.
//! What is noted would be wrong meanwhile, and a restart would repeat what has run since: so it is removed, and a restart makes nothing up.
//! Each configuration file has a file of its own, because several weirs may share the folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::times::Last;

#[derive(Debug)]
pub(super) struct StateFile {
    /// The configuration file; `None`: nothing is noted.
    configuration: Option<PathBuf>,
    path: Option<PathBuf>,
    read: Content,
    /// It cannot be written, which was logged: when that is tried again.
    retry_at: Option<Instant>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// For people who wonder whose file this is.
    configuration: PathBuf,
    programs: BTreeMap<String, Last>,
}

impl StateFile {
    /// The file of a configuration file; in no folder yet.
    pub(super) fn of(file: Option<&Path>) -> Self {
        let real = |file: &Path| file.canonicalize().unwrap_or_else(|_| file.to_owned());
        Self {
            configuration: file.map(real),
            path: None,
            read: Content::default(),
            retry_at: None,
        }
    }

    /// Uses this folder from now on; `None`: the usual one. `reads`: weir starts, and continues what another weir has noted there.
    pub(super) fn move_to(&mut self, folder: Option<&Path>, reads: bool) {
        let Some(configuration) = &self.configuration else {
            return;
        };
        let folder = folder.map_or_else(weir_machine::usual_state_dir, Path::to_owned);
        let path = folder.join(name(configuration));
        if self.path.as_ref() == Some(&path) {
            return;
        }
        (self.retry_at, self.read) = (None, Content::default());
        if reads {
            self.read = match read(&path) {
                Ok(content) => content,
                Err(error) if error.kind() == ErrorKind::NotFound => Content::default(),
                Err(error) => {
                    let file = path.display();
                    log::warn!("{file}: {error}: missed times of programs are not made up");
                    Content::default()
                }
            };
        }
        // Only the last folder: a whole path that is missing is rather a mistake.
        if let Err(error) = fs::create_dir(&folder)
            && error.kind() != ErrorKind::AlreadyExists
        {
            log::debug!("{}: {error}", folder.display());
        }
        self.path = Some(path);
    }

    /// How far the schedule of a program was followed by an earlier weir.
    pub(super) fn last(&self, program: &str) -> Option<Last> {
        self.read.programs.get(program).cloned()
    }

    /// Notes how far schedules were followed.
    pub(super) fn write(&mut self, programs: impl Iterator<Item = (String, Last)>, now: Instant) {
        let (Some(path), Some(configuration)) = (&self.path, &self.configuration) else {
            return;
        };
        let content = Content {
            configuration: configuration.clone(),
            programs: programs.collect(),
        };
        if content.programs.is_empty() && !path.exists() {
            return;
        }
        // On a full disk, the place of the old file may be enough for the new one.
        let written = write(path, &content).or_else(|error| match fs::remove_file(path) {
            Ok(()) => write(path, &content),
            Err(_) => Err(error),
        });
        let was_failing = self.retry_at.is_some();
        self.retry_at = written.is_err().then(|| now + RETRY);
        match written {
            Ok(()) if was_failing => log::info!("{} is written again", path.display()),
            Err(error) if !was_failing => log::warn!("{}", failure(path, &error)),
            _ => {}
        }
    }

    /// Whether times cannot be noted.
    pub(super) fn is_failing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When it is to be written again, because it could not be. `None`: it could.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

/// Why the file cannot be written, what follows from that, and what to do.
fn failure(path: &Path, error: &io::Error) -> String {
    let follows = match path.exists() {
        false => "missed times of programs are not made up",
        true => "programs may repeat what they have run since this file was written",
    };
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space there, or write",
        _ => "write",
    };
    format!(
        "{}: {error}: after a restart of weir, {follows}; {help} state_dir = \"FOLDER\" in [server], where weir's user may write",
        path.display()
    )
}

fn read(path: &Path) -> io::Result<Content> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces the file at once: a weir that is killed meanwhile leaves the old one.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    let next = path.with_extension("new");
    match fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Follows no link.
    let mut file = File::create_new(&next)?;
    let written = file.write_all(&serde_json::to_vec_pretty(content)?);
    let replaced = written.and_then(|()| fs::rename(&next, path));
    if replaced.is_err() {
        // A part of it takes place, too.
        let _ = fs::remove_file(next);
    }
    replaced
}

/// A name that belongs to this configuration file.
fn name(configuration: &Path) -> String {
    let bytes = configuration.as_os_str().as_encoded_bytes();
    // FNV-1a, 64 bits: the same for each build of weir.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("programs-{hash:016x}.json")
}

/// How often writing is tried while that fails.
const RETRY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn last(minute: i64) -> Last {
        let text = format!(r#"{{ "schedule": "@daily", "zone": null, "minute": {minute} }}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn note(file: &mut StateFile, minute: i64) {
        let programs = [("queue".to_owned(), last(minute))];
        file.write(programs.into_iter(), Instant::now());
    }

    fn opened(configuration: &Path, folder: &Path) -> StateFile {
        let mut file = StateFile::of(Some(configuration));
        file.move_to(Some(folder), true);
        file
    }

    #[test]
    fn what_one_weir_notes_the_next_one_with_its_configuration_knows() {
        let folder = tempfile::tempdir().unwrap();
        // The last folder is made.
        let state = folder.path().join("state");
        let [ours, others] = ["a.toml", "b.toml"].map(|name| folder.path().join(name));
        let mut file = opened(&ours, &state);
        assert_eq!(file.last("queue"), None);
        for minute in [5, 7] {
            note(&mut file, minute);
        }
        assert_eq!(opened(&ours, &state).last("queue"), Some(last(7)));
        assert_eq!(opened(&others, &state).last("queue"), None);
        assert!(!file.is_failing());
    }

    #[test]
    fn a_file_that_cannot_be_written_has_nothing_old_and_is_written_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let configuration = folder.path().join("a.toml");
        let mut file = opened(&configuration, folder.path());
        note(&mut file, 5);
        // Nothing can be made in its place.
        let next = folder
            .path()
            .join(name(&configuration))
            .with_extension("new");
        fs::create_dir(&next).unwrap();
        note(&mut file, 6);
        assert!(file.is_failing() && file.retry_at() > Some(Instant::now()));
        // The next weir would repeat what has run in minute 6.
        assert_eq!(opened(&configuration, folder.path()).last("queue"), None);
        fs::remove_dir(next).unwrap();
        note(&mut file, 7);
        assert!(!file.is_failing());
        assert_eq!(
            opened(&configuration, folder.path()).last("queue"),
            Some(last(7))
        );
    }

    #[test]
    fn what_cannot_be_written_is_told_with_what_follows_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        let full = failure(&file, &ErrorKind::StorageFull.into());
        assert!(full.starts_with(&file.display().to_string()), "{full}");
        assert!(full.contains("missed times of programs are not made up"));
        assert!(full.contains("free some space there, or write state_dir ="));
        fs::write(&file, "").unwrap();
        let barred = failure(&file, &ErrorKind::ReadOnlyFilesystem.into());
        assert!(barred.contains("programs may repeat"), "{barred}");
        assert!(!barred.contains("space"), "{barred}");
    }

    #[test]
    fn a_file_that_is_broken_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let configuration = folder.path().join("a.toml");
        fs::write(folder.path().join(name(&configuration)), "{ \"programs\": ").unwrap();
        assert_eq!(opened(&configuration, folder.path()).last("queue"), None);
    }
}
