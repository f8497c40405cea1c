//! Files of users and hashed passwords, as Apache's htpasswd writes them and nginx reads them. Bytes in, decisions out: no
//! I/O and no clock.
//!
//! [`Users::parse`] reads a file, and [`Users::verify`] a password. `hash` has the kinds of hashes. [`Credentials`] are what a
//! client sends.
//!
//! A file may have some lines that are not valid: [`Users::faults`] lists them. A user of such a line cannot sign in
//! ([`Unusable`]); all others can, as in nginx.
#![forbid(unsafe_code)]

mod credentials;
mod hash;

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
};

use hash::Hash;

pub use credentials::Credentials;

/// The users of a file.
#[derive(Debug, Default)]
pub struct Users {
    /// Indices into `hashes`.
    names: HashMap<Box<[u8]>, usize>,
    hashes: Vec<Result<Hash, Fault>>,
    /// Chooses a hash for a user that does not exist. Its own key differs from process to process.
    choice: RandomState,
    /// Lines that are not for a user.
    faults: Vec<Fault>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// From 1 on.
    pub line: usize,
    /// The cause and the fix, in one sentence. It has nothing of the hash.
    pub what: &'static str,
}

/// The user is in the file, but with a hash that cannot be used.
pub type Unusable = Fault;

impl Users {
    /// Reads a file. Comments begin with `#`. Behind the hash, more fields may follow after a colon. If a user has several
    /// lines, the first counts, as in Apache and nginx.
    pub fn parse(text: &[u8]) -> Users {
        let mut users = Users::default();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let fault = |what| Fault {
                line: index + 1,
                what,
            };
            let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
            if name.len() == line.len() {
                users.faults.push(fault("there is no colon after the user"));
                continue;
            }
            if name.is_empty() {
                users.faults.push(fault("the name of the user is empty"));
                continue;
            }
            let rest = &line[name.len() + 1..];
            let hash = rest.split(|byte| *byte == b':').next().unwrap_or(rest);
            if users.names.contains_key(name) {
                continue;
            }
            users.names.insert(name.into(), users.hashes.len());
            users.hashes.push(Hash::parse(hash).map_err(fault));
        }
        users
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All lines that are not valid, in their order.
    pub fn faults(&self) -> Vec<&Fault> {
        let of_users = self.hashes.iter().filter_map(|hash| hash.as_ref().err());
        let mut faults: Vec<_> = self.faults.iter().chain(of_users).collect();
        faults.sort_by_key(|fault| fault.line);
        faults
    }

    /// Whether this is the password of this user. This is slow: some milliseconds to some hundred, as the hash was made. For a
    /// user that does not exist, the password is compared with another user's hash, the same each time: so the time does not
    /// tell who exists.
    ///
    /// # Errors
    /// The user's hash cannot be used.
    pub fn verify(&self, user: &[u8], password: &[u8]) -> Result<bool, &Unusable> {
        let fault = match self.names.get(user).map(|index| &self.hashes[*index]) {
            Some(Ok(hash)) => return Ok(hash.is_of(password)),
            Some(Err(fault)) => Some(fault),
            None => None,
        };
        let usable = || self.hashes.iter().filter_map(|hash| hash.as_ref().ok());
        if let count @ 1.. = usable().count() as u64 {
            let index = self.choice.hash_one(user) % count;
            let other = usable().nth(index as usize);
            std::hint::black_box(other.is_some_and(|other| other.is_of(password)));
        }
        fault.map_or(Ok(false), Err)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Too short.
    const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuu";

    #[test]
    fn users_are_read_as_htpasswd_writes_them() {
        let text = b"# staff\n\nada:{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=\r\n\
                     bob:{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=:a comment:more\nada:{SHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
        let users = Users::parse(text);
        assert_eq!((users.len(), users.faults()), (2, vec![]));
        for user in ["ada", "bob"] {
            assert_eq!(users.verify(user.as_bytes(), b"123456"), Ok(true), "{user}");
            assert_eq!(users.verify(user.as_bytes(), b"12345"), Ok(false), "{user}");
        }
        assert_eq!(users.verify(b"eve", b"123456"), Ok(false));
        assert_eq!(Users::parse(b"").verify(b"eve", b""), Ok(false));
    }

    #[test]
    fn a_line_that_is_wrong_is_named_and_harms_nobody_else() {
        let text = "just words\n:{SHA}x\nplain:secret\nada:{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=\n";
        let users = Users::parse(text.as_bytes());
        let lines: Vec<_> = users.faults().iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert_eq!(users.verify(b"ada", b"123456"), Ok(true));
        assert_eq!(
            users
                .verify(b"plain", b"secret")
                .map_err(|fault| fault.line),
            Err(3)
        );
    }

    #[test]
    fn hashes_that_are_not_usable_say_why() {
        for (hash, word) in [
            ("secret", "plain text"),
            ("{PLAIN}secret", "plain text"),
            ("rqXexS6ZhobKA", "DES"),
            ("$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o", "yescrypt"),
            (
                "$2x$04$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuuabcdefghij",
                "$2x$",
            ),
            (BCRYPT, "damaged"),
            (
                "$2y$18$9yZB854duLiKE712grXgEuwF5kblObNJVQ0Dqy6pqlugvovBIVYxm",
                "cost",
            ),
            ("$argon2id$v=19$m=65536", "damaged"),
            (
                "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b6dWRWJTmaaJObG",
                "memory",
            ),
            (
                "$argon2d$v=19$m=64,t=2,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b6dWRWJTmaaJObG",
                "argon2d",
            ),
            ("$6$rounds=999999999$salt$abc", "rounds"),
            ("$6$salt$abc", "damaged"),
            ("$apr1$salt$short", "damaged"),
            ("{SHA}???", "damaged"),
            ("", "plain text"),
        ] {
            let text = format!("ada:{hash}");
            let users = Users::parse(text.as_bytes());
            let faults = users.faults();
            assert_eq!(faults.len(), 1, "{hash}");
            assert!(faults[0].what.contains(word), "{hash}: {}", faults[0]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let users = Users::parse(&text);
            prop_assert!(users.len() + users.faults().len() <= text.len() + 1);
        }

        #[test]
        fn any_hash_is_taken_or_refused(
            kind in prop::sample::select(vec![
                "$2y$04$", "$apr1$", "$1$", "$5$", "$6$rounds=1000$", "$argon2id$v=19$m=8,t=1,p=1$", "{SHA}", "{SSHA}", "",
            ]),
            rest in "[ -~]{0,70}",
        ) {
            let users = Users::parse(format!("ada:{kind}{rest}").as_bytes());
            let _ = users.verify(b"ada", rest.as_bytes());
        }
    }
}
