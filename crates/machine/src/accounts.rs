//! Users and groups for a configuration with many pools, each with a user of its own.
//!
//! The C library reads /etc/passwd and /etc/group from the beginning for each question, so a thousand users of a
//! thousand pools would take a second. Here both files are read once, if they are the place where users are looked up
//! first (nsswitch.conf(5)) and no other place can add a user to more groups. For everything else the C library is
//! asked.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use weir_sys::identity::{self, Identity, User};

/// The users and groups of this machine.
#[derive(Debug, Default)]
pub struct Accounts {
    users: HashMap<String, User>,
    by_number: HashMap<u32, String>,
    groups: HashMap<String, u32>,
    /// The groups of each user, in the order of the file.
    member_of: HashMap<String, Vec<u32>>,
}

impl Accounts {
    /// Reads the files. Without them, or if other places count as well, the C library is asked for each user.
    pub fn read() -> Self {
        let nsswitch = text(Path::new("/etc/nsswitch.conf")).unwrap_or_default();
        if !files_decide(&nsswitch) || USERDB.iter().any(|folder| has_entries(folder)) {
            return Self::default();
        }
        match (
            text(Path::new("/etc/passwd")),
            text(Path::new("/etc/group")),
        ) {
            (Some(passwd), Some(group)) => Self::of(&passwd, &group),
            _ => Self::default(),
        }
    }

    fn of(passwd: &str, group: &str) -> Self {
        let mut accounts = Self::default();
        for user in passwd.lines().filter_map(user) {
            let name = user.name.clone();
            // The first line counts.
            let by_number = accounts.by_number.entry(user.uid);
            by_number.or_insert_with(|| name.clone());
            accounts.users.entry(name).or_insert(user);
        }
        for (name, gid, members) in group.lines().filter_map(group_line) {
            accounts.groups.entry(name.to_owned()).or_insert(gid);
            for member in members.split(',').map(str::trim) {
                if !member.is_empty() {
                    let of = accounts.member_of.entry(member.to_owned());
                    of.or_default().push(gid);
                }
            }
        }
        accounts
    }

    /// A user by name, or by number if no user has that name; as [`identity::user`].
    ///
    /// # Errors
    /// As [`identity::user`].
    pub fn user(&self, name: &str) -> io::Result<Option<User>> {
        match self.users.get(name) {
            Some(user) => Ok(Some(user.clone())),
            None => identity::user(name),
        }
    }

    /// A user by number.
    ///
    /// # Errors
    /// As [`identity::user`].
    pub fn user_by_id(&self, uid: u32) -> io::Result<Option<User>> {
        let name = self.by_number.get(&uid);
        match name.and_then(|name| self.users.get(name)) {
            Some(user) => Ok(Some(user.clone())),
            None => identity::user_by_id(uid),
        }
    }

    /// A user's number by name; a number without a user stands for itself.
    ///
    /// # Errors
    /// As [`identity::user`].
    pub fn uid(&self, name: &str) -> io::Result<Option<u32>> {
        match self.users.get(name) {
            Some(user) => Ok(Some(user.uid)),
            None => identity::uid(name),
        }
    }

    /// A group's number by name; a number without a group stands for itself.
    ///
    /// # Errors
    /// If the group database cannot be read.
    pub fn group(&self, name: &str) -> io::Result<Option<u32>> {
        match self.groups.get(name) {
            Some(gid) => Ok(Some(*gid)),
            None => identity::group(name),
        }
    }

    /// The identity of a user; as [`identity::identity_of`].
    ///
    /// # Errors
    /// If the user or group database cannot be read.
    pub fn identity_of(&self, name: &str, group: Option<u32>) -> io::Result<Option<Identity>> {
        let Some(user) = self.users.get(name) else {
            return identity::identity_of(name, group);
        };
        let gid = group.unwrap_or(user.gid);
        let mut groups = vec![gid];
        for other in self.member_of.get(name).into_iter().flatten() {
            if !groups.contains(other) {
                groups.push(*other);
            }
        }
        Ok(Some(Identity {
            uid: user.uid,
            gid,
            groups,
        }))
    }
}

/// Whether users and groups are in the files, or else in places that add no groups to the users of the files.
fn files_decide(nsswitch: &str) -> bool {
    let places = |database: &str| {
        let mut lines = nsswitch.lines().map(|line| line.split('#').next());
        lines.find_map(|line| {
            line?
                .trim_start()
                .strip_prefix(database)?
                .trim_start()
                .strip_prefix(':')
        })
    };
    let decide = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("files") && words.all(|word| word == "systemd")
    };
    // If the file has no such line, the C library uses its default.
    places("passwd").is_some_and(decide)
        && places("group").is_some_and(decide)
        && places("initgroups").is_none_or(decide)
}

/// A line of passwd(5). What the C library would not take is left to it.
fn user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| is_name(name))?;
    let (_, uid, gid) = (
        fields.next()?,
        number(fields.next()?)?,
        number(fields.next()?)?,
    );
    let (_, home, _) = (fields.next()?, fields.next()?, fields.next()?);
    Some(User {
        name: name.to_owned(),
        uid,
        gid,
        home: PathBuf::from(home),
    })
}

/// Name, number and members of a line of group(5).
fn group_line(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| is_name(name))?;
    let (_, gid) = (fields.next()?, number(fields.next()?)?);
    Some((name, gid, fields.next()?))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['+', '-', '#', ' ', '\t'])
}

fn number(text: &str) -> Option<u32> {
    identity::number(text)
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MOST_READ + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MOST_READ).then(|| String::from_utf8(bytes).ok())?
}

fn has_entries(folder: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Where files may say of which groups a user is a member (nss-systemd(8)).
const USERDB: [&str; 4] = [
    "/etc/userdb",
    "/run/userdb",
    "/run/host/userdb",
    "/usr/lib/userdb",
];

/// Longer files are left to the C library, bytes.
const MOST_READ: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_say_what_the_c_library_says() {
        let (passwd, group) = (
            text(Path::new("/etc/passwd")).unwrap(),
            text(Path::new("/etc/group")).unwrap(),
        );
        let accounts = Accounts::of(&passwd, &group);
        assert!(accounts.users.contains_key("root"));
        for (name, user) in &accounts.users {
            assert_eq!(identity::user(name).unwrap().as_ref(), Some(user));
            let by_number = accounts.user_by_id(user.uid).unwrap();
            assert_eq!(identity::user_by_id(user.uid).unwrap(), by_number);
            for group in [None, Some(user.gid), Some(12_345)] {
                let sorted = |identity: Option<Identity>| {
                    let mut identity = identity.unwrap();
                    identity.groups.sort_unstable();
                    identity
                };
                assert_eq!(
                    sorted(accounts.identity_of(name, group).unwrap()),
                    sorted(identity::identity_of(name, group).unwrap()),
                    "{name}"
                );
            }
        }
        for (name, gid) in &accounts.groups {
            assert_eq!(identity::group(name).unwrap(), Some(*gid), "{name}");
        }
    }

    #[test]
    fn members_have_their_groups_and_the_first_line_counts() {
        let accounts = Accounts::of(
            "a:x:1001:2001:A:/srv/a:/bin/sh\na:x:7:7::/:\nb:x:1001:2002::/b:/bin/sh\n+c:x:1:1::/:\n#d:x:1:1::/:\ne:x:no:1::/:\n",
            "g:x:3001:a, b\nh:x:3002:b\ni:x:2001:a\ng:x:9:a\nshort:x:5\n",
        );
        let groups = |name, group| accounts.identity_of(name, group).unwrap().unwrap().groups;
        assert_eq!(groups("a", None), [2001, 3001, 9]);
        assert_eq!(groups("b", Some(3002)), [3002, 3001]);
        assert_eq!(accounts.user_by_id(1001).unwrap().unwrap().name, "a");
        assert_eq!(accounts.group("g").unwrap(), Some(3001));
        assert_eq!(accounts.users.len(), 2);
    }

    #[test]
    fn other_places_of_users_are_left_to_the_c_library() {
        let debian = "passwd:         files systemd\ngroup: files systemd # x\nhosts: files dns\n";
        assert!(files_decide(debian));
        for other in [
            "",
            "passwd: files\n",
            "passwd: files\ngroup: files sss\n",
            "passwd: files ldap\ngroup: files\n",
            "passwd: compat\ngroup: files\n",
            "passwd: files\ngroup: files [SUCCESS=merge] systemd\n",
            "passwd: files\ngroup: files\ninitgroups: sss\n",
        ] {
            assert!(!files_decide(other), "{other}");
        }
    }

    #[test]
    fn who_is_in_no_file_is_asked_of_the_c_library() {
        let accounts = Accounts::default();
        assert_eq!(accounts.uid("root").unwrap(), Some(0));
        assert_eq!(accounts.uid("4242").unwrap(), Some(4242));
        assert_eq!(accounts.group("no-such-group").unwrap(), None);
    }
}
