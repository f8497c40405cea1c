//! The data for the egress: its listening sockets, and the files that it may not or cannot read itself.
//!
//! The manager reads tokens, keys and authorities with the rights with which weir was started, and passes them as one
//! memory file. So a replaced gateway, in a chroot or as another user, gets them as well. They are never printed,
//! neither here nor by `Debug`.

use std::{
    collections::BTreeMap,
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use weir_config::{Secret, SecretPiece};

/// Everything that the egress gets besides the configuration.
#[derive(Debug)]
pub struct EgressGiven {
    /// Index into `Egress::listen`, and the non-blocking listening socket. One address may have several sockets, each
    /// with its own queue of connections.
    pub listeners: Vec<(u16, OwnedFd)>,
    /// The files that were read for it.
    pub files: EgressFiles,
}

/// The files and variables that `[egress]` refers to.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct EgressFiles {
    /// The authorities that the machine trusts: certificates (X.509, DER).
    pub roots: Vec<Vec<u8>>,
    /// `ca_file`, `client_cert`, `client_key`, `token_file`, and `${file:…}` of headers, by their paths as seen from
    /// outside.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// `${env:…}` of headers: variables of weir's own environment.
    pub env: BTreeMap<String, String>,
    /// The users (uid) of pools by the pools' NAMEs, without pools whose workers weir does not start.
    pub users: BTreeMap<String, u32>,
    /// The workers' own socket, whose listener comes after those of `Egress::listen`, and the users (uid) that may
    /// call there, besides root and the user who started weir.
    pub socket: Option<(PathBuf, Vec<u32>)>,
}

impl EgressFiles {
    /// The content of a file.
    ///
    /// # Errors
    /// If it was not passed; the message has its path.
    pub fn file(&self, path: &Path) -> Result<&[u8], String> {
        match self.files.get(path) {
            Some(bytes) => Ok(bytes),
            None => Err(format!("the manager did not send {}", path.display())),
        }
    }

    /// The value of a header, with its secrets.
    ///
    /// # Errors
    /// What is wrong with it, without showing it: a file or variable that is missing or empty, or that contains bytes
    /// that are not allowed in headers (RFC 9110 §5.5).
    pub fn value(&self, secret: &Secret) -> Result<Vec<u8>, String> {
        let mut value = Vec::new();
        for piece in &secret.0 {
            match piece {
                SecretPiece::Text(text) => value.extend(text.as_bytes()),
                SecretPiece::File(path) => {
                    let shown = path.display();
                    let bytes = self.file(path)?.trim_ascii_end();
                    check(bytes).map_err(|what| format!("{shown} {what}"))?;
                    value.extend(bytes);
                }
                SecretPiece::Env(name) => {
                    let text = self.env.get(name);
                    let text = text.ok_or_else(|| format!("there is no variable {name}"))?;
                    check(text.as_bytes()).map_err(|what| format!("the variable {name} {what}"))?;
                    value.extend(text.as_bytes());
                }
            }
        }
        Ok(value)
    }

    /// The token that callers must send.
    ///
    /// # Errors
    /// What is wrong with it, without showing it.
    pub fn token(&self, path: &Path) -> Result<&str, String> {
        let shown = path.display();
        let token = self.file(path)?.trim_ascii();
        let fits = (TOKEN_LEAST..=TOKEN_MOST).contains(&token.len());
        let text = str::from_utf8(token).ok();
        let graphic = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
        match text.filter(graphic) {
            Some(token) if fits => Ok(token),
            _ => Err(format!(
                "{shown}: a token has {TOKEN_LEAST} to {TOKEN_MOST} characters without spaces, of ASCII"
            )),
        }
    }
}

/// Prints only names.
impl fmt::Debug for EgressFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressFiles")
            .field("roots", &self.roots.len())
            .field("files", &self.files.keys())
            .field("env", &self.env.keys())
            .finish()
    }
}

/// Whether it is not empty and allowed in a header: without bytes that end a header, and without invisible ones.
fn check(value: &[u8]) -> Result<(), &'static str> {
    let forbidden = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    match value {
        [] => Err("is empty"),
        value if value.iter().any(forbidden) => Err(
            "contains a line break or another control character, which is not allowed in a header",
        ),
        _ => Ok(()),
    }
}

/// Minimum number of characters of a token.
const TOKEN_LEAST: usize = 16;

/// Maximum number of characters of a token.
const TOKEN_MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{super::BadMessage, *};

    fn files() -> EgressFiles {
        let file = |path: &str, bytes: &[u8]| (PathBuf::from(path), bytes.to_vec());
        EgressFiles {
            roots: vec![b"root".to_vec(), Vec::new()],
            files: BTreeMap::from([
                file("/key", b"hunter2 \r\n"),
                file("/two", b"a\nb"),
                file("/empty", b"\n"),
                file("/token", b"  0123456789abcdef\n"),
            ]),
            env: BTreeMap::from([("KEY".to_owned(), "swordfish".to_owned())]),
            users: BTreeMap::from([("shop".to_owned(), 1000)]),
            socket: Some(("/run/weir/egress.sock".into(), vec![1000, 33])),
        }
    }

    #[test]
    fn they_survive_their_way_and_are_not_shown() {
        let files = files();
        let bytes = files.encode();
        assert_eq!(EgressFiles::decode(&bytes), Ok(files.clone()));
        assert_eq!(
            EgressFiles::decode(&bytes[..bytes.len() - 1]),
            Err(BadMessage)
        );
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(EgressFiles::decode(&longer), Err(BadMessage));
        let shown = format!("{files:?}");
        assert!(shown.contains("/key") && shown.contains("KEY"), "{shown}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("swordfish"),
            "{shown}"
        );
    }

    #[test]
    fn a_value_is_put_together_and_one_that_no_header_can_hold_is_not_shown() {
        use SecretPiece::{Env, File, Text};
        let value = |pieces: &[SecretPiece]| files().value(&Secret(pieces.to_vec()));
        let whole = [
            Text("Bearer ".into()),
            File("/key".into()),
            Text("/".into()),
            Env("KEY".into()),
        ];
        assert_eq!(value(&whole), Ok(b"Bearer hunter2/swordfish".to_vec()));
        for file in ["/two", "/empty", "/none"] {
            assert!(value(&[File(file.into())]).unwrap_err().contains(file));
        }
        assert!(value(&[Env("NONE".into())]).is_err());
    }

    #[test]
    fn a_token_is_long_enough_to_be_one() {
        let files = files();
        assert_eq!(files.token("/token".as_ref()), Ok("0123456789abcdef"));
        assert!(files.token("/key".as_ref()).is_err());
    }
}
