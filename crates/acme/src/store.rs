//! The folder of certificates, and files that are replaced as a whole.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use weir_sys::random;

use crate::lock::difference;

/// The folder of certificates.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The folder as it is, without a check.
    pub fn at(folder: &Path) -> Store {
        Store {
            folder: folder.to_owned(),
        }
    }

    /// Makes the missing parts of the folder.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn open(folder: &Path) -> Result<Store, String> {
        let store = Store::at(folder);
        make_folder(folder, 0o755)?;
        let mode = fs::metadata(folder).map_err(|error| told(folder, &error))?;
        if mode.mode() & 0o002 != 0 {
            return Err(format!(
                "{}: every user may write to this folder, and so replace certificates",
                folder.display()
            ));
        }
        make_folder(&store.authority(), 0o755)?;
        for shared in [
            store.locks(),
            store.challenges(),
            store.nodes(),
            store.on_demand(),
        ] {
            make_folder(&shared, 0o700)?;
            remove_drafts(&shared);
        }
        Ok(store)
    }

    /// The folder of the local authority.
    fn authority(&self) -> PathBuf {
        self.folder.join("local-ca")
    }

    /// The certificate of the local authority.
    pub fn root(&self) -> PathBuf {
        self.authority().join("root.pem")
    }

    /// The key of the local authority.
    pub fn root_key(&self) -> PathBuf {
        self.authority().join("key.pem")
    }

    /// The chain of a certificate on demand. `name` has no slash.
    pub fn demanded(&self, name: &str) -> PathBuf {
        self.on_demand().join(name).join("chain.pem")
    }

    /// The names of certificates on demand that are there, `most` of them, in their order.
    pub fn demanded_names(&self, most: usize) -> Vec<String> {
        let entries = fs::read_dir(self.on_demand())
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| self.demanded(name).exists()).collect();
        names.sort_unstable();
        names.truncate(most);
        names
    }

    /// Removes what is known of names on demand that have no certificate, if it is older than `age`: so clients that ask for many
    /// names do not fill the folder.
    pub fn forget_failures(&self, age: Duration) {
        let entries = fs::read_dir(self.on_demand())
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let path = entry.path();
            let files = fs::read_dir(&path).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
            let is_old = |path: &PathBuf| {
                let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
                changed.is_ok_and(|at| difference(at, SystemTime::now()) > age)
            };
            let is_pair = |path: &PathBuf| {
                path.extension()
                    .is_some_and(|kind| kind == "pem" || kind == "next")
            };
            if !is_old(&path) || files.iter().any(is_pair) || !files.iter().all(is_old) {
                continue;
            }
            files.drain(..).for_each(|file| drop(fs::remove_file(file)));
            let _ = fs::remove_dir(path);
        }
    }

    /// Removes a certificate on demand.
    pub fn forget_demanded(&self, name: &str) {
        let chain = self.demanded(name);
        let folder = chain.parent().unwrap_or(&self.folder);
        for file in ["chain.pem", "key.pem", "meta.json"] {
            let _ = fs::remove_file(folder.join(file));
        }
        let _ = fs::remove_dir(folder);
    }

    /// The folder of certificates on demand.
    fn on_demand(&self) -> PathBuf {
        self.folder.join("on-demand")
    }

    /// The folder of locks.
    pub(crate) fn locks(&self) -> PathBuf {
        self.folder.join("locks")
    }

    /// The file of the account at the authority with this directory.
    pub fn account(&self, directory: &str) -> PathBuf {
        let digest = weir_tls::sha256(directory.as_bytes());
        let digits = digest[..8].iter().map(|byte| format!("{byte:02x}"));
        let name: String = digits.chain([".json".to_owned()]).collect();
        self.folder.join("accounts").join(name)
    }

    /// The file that asks for another key of an account. The node that answers removes it, or writes why there is none.
    pub fn key_request(account: &Path) -> PathBuf {
        account.with_extension("new-key")
    }

    /// The folder of answers to challenges.
    pub(crate) fn challenges(&self) -> PathBuf {
        self.folder.join("challenges")
    }

    /// The folder in which nodes make themselves known.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.folder.join("nodes")
    }

    /// Makes the folder of a certificate, for its owner alone, and removes what a killed process has left in it. `file` is a
    /// file in it.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn make_folder_of(&self, file: &Path) -> Result<(), String> {
        let folder = file.parent().unwrap_or(&self.folder);
        make_folder(folder, 0o700)?;
        remove_drafts(folder);
        Ok(())
    }
}

/// A file that is written, and then put in the place of another at once.
#[derive(Debug)]
pub struct Draft {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_done: bool,
}

impl Draft {
    /// Opens a file beside `path` with these permissions.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn new(path: &Path, mode: u32) -> Result<Draft, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unique = random::name().map_err(|error| told(path, &error))?;
        let temporary = path.with_file_name(format!(".{name}.{unique}{DRAFT}"));
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary);
        Ok(Draft {
            file: opened.map_err(|error| told(&temporary, &error))?,
            temporary,
            path: path.to_owned(),
            is_done: false,
        })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| told(&self.temporary, &error))
    }

    /// Puts it in its place. It is on the disk when this returns.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn install(self) -> Result<(), String> {
        let path = self.path.clone();
        self.install_at(&path)
    }

    /// The same at another path of its folder.
    fn install_at(mut self, path: &Path) -> Result<(), String> {
        let installed = self.file.sync_all().and_then(|()| {
            fs::rename(&self.temporary, path)?;
            self.is_done = true;
            sync_folder_of(path)
        });
        installed.map_err(|error| told(path, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Puts a new key and its chain in the place of the earlier ones. If this process is killed meanwhile, [`finish_pair`] does the rest.
///
/// # Errors
/// The cause, with the path.
pub fn install_pair(key: Draft, chain: Draft) -> Result<(), String> {
    let paths = (key.path.clone(), chain.path.clone());
    key.install_at(&next(&paths.0))?;
    chain.install_at(&next(&paths.1))?;
    finish_pair(&paths.0, &paths.1)
}

/// Whether a pair was written whole, and not put in its place.
pub fn is_pair_unfinished(chain: &Path) -> bool {
    next(chain).exists()
}

/// Puts a pair in its place that was written whole. Only the owner of its lock may do this.
///
/// # Errors
/// The cause, with the path.
pub fn finish_pair(key: &Path, chain: &Path) -> Result<(), String> {
    let (next_key, next_chain) = (next(key), next(chain));
    if !next_chain.exists() {
        // A key without its chain is of no use.
        let _ = fs::remove_file(&next_key);
        return Ok(());
    }
    match fs::rename(&next_key, key) {
        // It is in its place already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed.map_err(|error| told(key, &error))?,
    }
    let renamed = fs::rename(&next_chain, chain).and_then(|()| sync_folder_of(chain));
    renamed.map_err(|error| told(chain, &error))
}

/// Where a file waits until the other one of its pair is written too.
fn next(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

pub(crate) fn make_folder(folder: &Path, mode: u32) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)
        .and_then(|()| DirBuilder::new().mode(mode).create(folder));
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(told(folder, &error)),
        _ => Ok(()),
    }
}

/// Removes drafts that nobody writes any more.
fn remove_drafts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_draft = name.as_encoded_bytes().starts_with(b".")
            && name.as_encoded_bytes().ends_with(DRAFT.as_bytes());
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        if is_draft && changed.is_ok_and(|at| difference(at, SystemTime::now()) > OLD) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub(crate) fn told(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// How the name of a draft ends.
const DRAFT: &str = ".new";

/// A draft that is older than this is from a process that was killed.
const OLD: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_draft_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        let mut draft = Draft::new(&path, 0o600).expect("a draft");
        draft.write(b"one").expect("written");
        assert!(!path.exists());
        draft.install().expect("installed");
        let mut draft = Draft::new(&path, 0o600).expect("a draft");
        draft.write(b"half").expect("written");
        drop(draft);
        assert_eq!(fs::read(&path).expect("a file"), b"one");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let mode = fs::metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_pair_is_whole_wherever_its_writer_was_killed() {
        for step in 0..4 {
            let folder = tempfile::tempdir().expect("a folder");
            let [key, chain] = ["key.pem", "chain.pem"].map(|name| folder.path().join(name));
            let draft = |path: &Path, text: &str| {
                let mut draft = Draft::new(path, 0o600).expect("a draft");
                draft.write(text.as_bytes()).expect("written");
                draft
            };
            install_pair(draft(&key, "old"), draft(&chain, "old")).expect("installed");
            // The process may be killed after any of these steps.
            draft(&key, "new").install_at(&next(&key)).expect("written");
            if step > 0 {
                let written = draft(&chain, "new").install_at(&next(&chain));
                written.expect("written");
            }
            if step > 1 {
                fs::rename(next(&key), &key).expect("renamed");
            }
            if step > 2 {
                fs::rename(next(&chain), &chain).expect("renamed");
            }
            assert_eq!(is_pair_unfinished(&chain), step == 1 || step == 2);
            finish_pair(&key, &chain).expect("finished");
            let texts = [&key, &chain].map(|path| fs::read_to_string(path).expect("a file"));
            let expected = if step == 0 { "old" } else { "new" };
            assert_eq!(texts, [expected, expected], "{step}");
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        }
    }

    #[test]
    fn a_folder_that_everybody_may_write_to_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = folder.path().join("a/b");
        let store = Store::open(&open).expect("a store");
        assert!(store.root().parent().is_some_and(Path::is_dir));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("chmod");
        let wrong = Store::open(&open).unwrap_err();
        assert!(wrong.contains("every user may write"), "{wrong}");
    }
}
