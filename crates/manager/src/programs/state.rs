//! The file in which weir notes how far schedules were followed, so that a restart neither loses nor repeats a time.
//!
//! It is written when a time has come, before the program is started. If it cannot be written, weir goes on: then a restart makes nothing
//! up. Each configuration file has a file of its own, because several weirs may share the folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::times::Last;

#[derive(Debug)]
pub(super) struct StateFile {
    /// The configuration file; `None`: nothing is noted.
    configuration: Option<PathBuf>,
    path: Option<PathBuf>,
    read: Content,
    /// Whether it was logged that it cannot be written.
    is_failing: bool,
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
            is_failing: false,
        }
    }

    /// Uses this folder from now on; `None`: the usual one. `reads`: weir starts, and continues what another weir has noted there.
    pub(super) fn move_to(&mut self, folder: Option<&Path>, reads: bool) {
        let Some(configuration) = &self.configuration else {
            return;
        };
        let folder = folder.map_or_else(usual_folder, Path::to_owned);
        let path = folder.join(name(configuration));
        if self.path.as_ref() == Some(&path) {
            return;
        }
        (self.is_failing, self.read) = (false, Content::default());
        if reads {
            self.read = match read(&path) {
                Ok(content) => content,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
                Err(error) => {
                    let file = path.display();
                    log::warn!("{file}: {error}: missed times of programs are not made up");
                    Content::default()
                }
            };
        }
        // Only the last folder: a whole path that is missing is rather a mistake.
        if let Err(error) = fs::create_dir(&folder)
            && error.kind() != io::ErrorKind::AlreadyExists
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
    pub(super) fn write(&mut self, programs: impl Iterator<Item = (String, Last)>) {
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
        match write(path, &content) {
            Ok(()) if std::mem::take(&mut self.is_failing) => {
                log::info!("{} is written again", path.display());
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => {
                log::warn!(
                    "{}: {error}: after a restart of weir, missed times of programs are not made up ([server] state_dir)",
                    path.display()
                );
            }
            Err(_) => {}
        }
    }

    /// Whether times cannot be noted.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }
}

/// The folder that systemd has made for weir (systemd.exec(5)), otherwise the one that its package has made.
fn usual_folder() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
    // There may be several.
    let first = std::env::split_paths(&given).next().unwrap_or_default();
    match first.is_absolute() {
        true => first,
        false => "/var/lib/weir".into(),
    }
}

fn read(path: &Path) -> io::Result<Content> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces the file at once: a weir that is killed meanwhile leaves the old one.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    let next = path.with_extension("new");
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Follows no link.
    let mut file = File::create_new(&next)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    fs::rename(next, path)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn last(minute: i64) -> Last {
        let text = format!(r#"{{ "schedule": "@daily", "zone": null, "minute": {minute} }}"#);
        serde_json::from_str(&text).unwrap()
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
            file.write([("queue".to_owned(), last(minute))].into_iter());
        }
        assert_eq!(opened(&ours, &state).last("queue"), Some(last(7)));
        assert_eq!(opened(&others, &state).last("queue"), None);
        assert!(!file.is_failing());
    }

    #[test]
    fn a_file_that_cannot_be_written_keeps_its_content_and_is_written_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let configuration = folder.path().join("a.toml");
        let mut file = opened(&configuration, folder.path());
        file.write([("queue".to_owned(), last(5))].into_iter());
        // Nothing can be made in its place, as on a full disk.
        let next = folder
            .path()
            .join(name(&configuration))
            .with_extension("new");
        fs::create_dir(&next).unwrap();
        file.write([("queue".to_owned(), last(6))].into_iter());
        assert!(file.is_failing());
        assert_eq!(
            opened(&configuration, folder.path()).last("queue"),
            Some(last(5))
        );
        fs::remove_dir(next).unwrap();
        file.write([("queue".to_owned(), last(7))].into_iter());
        assert!(!file.is_failing());
    }

    #[test]
    fn a_file_that_is_broken_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let configuration = folder.path().join("a.toml");
        fs::write(folder.path().join(name(&configuration)), "{ \"programs\": ").unwrap();
        assert_eq!(opened(&configuration, folder.path()).last("queue"), None);
    }
}
