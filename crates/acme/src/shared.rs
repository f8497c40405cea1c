//! What nodes tell each other in the folder of certificates: answers to challenges, so that each node can give them, and which
//! nodes there are.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use weir_sys::random;

use crate::{
    ChallengeAnswer, Draft, Store,
    lock::difference,
    store::{make_folder, told},
};

/// The answers to challenges in the folder.
#[derive(Debug)]
pub struct SharedChallenges {
    folder: PathBuf,
    /// The answers of all nodes, by the names of their files.
    known: BTreeMap<OsString, ChallengeAnswer>,
}

/// A file with an answer that this node has put there. It is removed when this is dropped.
#[derive(Debug)]
pub struct SharedAnswer(PathBuf);

impl Drop for SharedAnswer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl SharedChallenges {
    /// The challenges in a store's folder.
    pub fn new(store: &Store) -> SharedChallenges {
        SharedChallenges {
            folder: store.challenges(),
            known: BTreeMap::new(),
        }
    }

    /// Puts an answer there.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn put(&self, answer: &ChallengeAnswer) -> Result<SharedAnswer, String> {
        make_folder(&self.folder, 0o700)?;
        let name = random::name().map_err(|error| told(&self.folder, &error))?;
        let path = self.folder.join(format!("{name}.json"));
        let mut draft = Draft::new(&path, 0o600)?;
        let text = serde_json::to_vec(answer).map_err(|error| error.to_string())?;
        draft.write(&text)?;
        draft.install()?;
        Ok(SharedAnswer(path))
    }

    /// Looks which there are. Returns whether they have changed since the last look.
    pub fn look(&mut self) -> bool {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let is_answer = |name: &OsString| {
            let name = name.as_encoded_bytes();
            name.ends_with(b".json") && !name.starts_with(b".")
        };
        let names: Vec<OsString> = names.filter(is_answer).take(MOST).collect();
        let before = self.known.len();
        self.known.retain(|name, _| names.contains(name));
        let mut has_changed = self.known.len() != before;
        for name in names {
            if self.known.contains_key(&name) {
                continue;
            }
            let path = self.folder.join(&name);
            match read(&path) {
                Some(answer) => {
                    self.known.insert(name, answer);
                    has_changed = true;
                }
                // A node that was killed has left this file.
                None if is_old(&path) => drop(fs::remove_file(&path)),
                None => {}
            }
        }
        has_changed
    }

    /// The answers at the last look.
    pub fn list(&self) -> impl Iterator<Item = &ChallengeAnswer> {
        self.known.values()
    }
}

/// This node, as others see it. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Node {
    path: PathBuf,
}

impl Node {
    /// Makes this node known.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn new(store: &Store) -> Result<Node, String> {
        let folder = store.nodes();
        make_folder(&folder, 0o700)?;
        let name = random::name().map_err(|error| told(&folder, &error))?;
        let node = Node {
            path: folder.join(name),
        };
        node.be_seen()?;
        Ok(node)
    }

    /// Shows other nodes that this one still works; call it at least each [`SEEN_EVERY`].
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn be_seen(&self) -> Result<(), String> {
        let mut draft = Draft::new(&self.path, 0o600)?;
        draft.write(format!("{}\n", std::process::id()).as_bytes())?;
        draft.install()
    }

    /// Whether there are other nodes, by the clock of the folder's file system.
    pub fn has_others(&self) -> bool {
        let changed = |path: &Path| File::open(path)?.metadata()?.modified();
        let (Some(folder), Ok(own)) = (self.path.parent(), changed(&self.path)) else {
            return true;
        };
        let mut others = false;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(at) = changed(&path) else {
                continue;
            };
            let age = own.duration_since(at).unwrap_or_default();
            if age > OLD {
                let _ = fs::remove_file(&path);
            }
            let is_draft = entry.file_name().as_encoded_bytes().starts_with(b".");
            others |= path != self.path && !is_draft && age < SEEN_EVERY * 3;
        }
        others
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How often a node says that it is there.
pub const SEEN_EVERY: Duration = Duration::from_secs(20);

/// Reads an answer. `None`: it is none, or too old to be used.
fn read(path: &Path) -> Option<ChallengeAnswer> {
    let file = File::open(path).ok()?;
    if is_old(path) {
        return None;
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn is_old(path: &Path) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| difference(at, SystemTime::now()) > OLD)
}

/// A file that is older is from a node that was killed. Clocks may differ by less.
const OLD: Duration = Duration::from_secs(3 * 3600);

/// Answers that are read, at most.
const MOST: usize = 1000;

/// Bytes of an answer, at most.
const MOST_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_seen_by_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path());
        let (one, mut other) = (SharedChallenges::new(&store), SharedChallenges::new(&store));
        assert!(!other.look());
        let answer = ChallengeAnswer {
            name: "shop.example".into(),
            token: "token".into(),
            text: "text".into(),
            certificate: None,
            record: None,
        };
        let put = one.put(&answer).expect("a file");
        assert!(other.look());
        assert_eq!(other.list().collect::<Vec<_>>(), [&answer]);
        assert!(!other.look());
        fs::write(store.challenges().join("x.json"), "damaged").expect("a file");
        assert!(!other.look());
        drop(put);
        assert!(other.look());
        assert_eq!(other.list().count(), 0);
    }

    #[test]
    fn nodes_know_of_others_that_were_seen_lately() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path());
        let one = Node::new(&store).expect("a node");
        assert!(!one.has_others());
        let other = Node::new(&store).expect("a node");
        assert!(one.has_others() && other.has_others());
        let file = File::options().append(true).open(&other.path);
        let before = SystemTime::now() - SEEN_EVERY * 4;
        file.and_then(|file| file.set_modified(before))
            .expect("another time");
        assert!(!one.has_others());
        other.be_seen().expect("a file");
        assert!(one.has_others());
        drop(other);
        assert!(!one.has_others());
    }
}
