//! The identity of a process: users and groups, and giving up root.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

use libc::{c_char, c_int, size_t};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// A user in the system's database (passwd(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home folder.
    pub home: PathBuf,
}

/// The identity to change to: user, group, and supplementary groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Whether we have root's rights (effective user 0).
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Our effective user and group.
pub fn current() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Looks up a user by name, or by number if no user has that name.
///
/// # Errors
/// If the user database cannot be read. A user that does not exist is `None`.
pub fn user(name: &str) -> io::Result<Option<User>> {
    let Ok(c_name) = CString::new(name) else {
        return Ok(None);
    };
    let found = lookup_user(|entry, buffer, len, result| {
        // SAFETY: the name is a C string, the other pointers are those of `lookup_user`.
        unsafe { libc::getpwnam_r(c_name.as_ptr(), entry, buffer, len, result) }
    })?;
    match (found, number(name)) {
        (Some(user), _) => Ok(Some(user)),
        (None, Some(uid)) => user_by_id(uid),
        (None, None) => Ok(None),
    }
}

/// The number in a text, if it can be that of a user or group: only digits.
pub fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // The highest number means "unchanged" to the kernel.
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.filter(|number| *number != u32::MAX)
}

/// A user's number by name; a number without a user stands for itself.
///
/// # Errors
/// As [`user`].
pub fn uid(name: &str) -> io::Result<Option<u32>> {
    Ok(user(name)?.map(|user| user.uid).or_else(|| number(name)))
}

/// The identity for the user `name`, as [`identity`] makes it. A number without a user has no group: without `group`
/// the result is `None`, as for an unknown name.
///
/// # Errors
/// If the user or group database cannot be read.
pub fn identity_of(name: &str, group: Option<u32>) -> io::Result<Option<Identity>> {
    if let Some(user) = user(name)? {
        return identity(&user, group).map(Some);
    }
    let identity = number(name).zip(group).map(|(uid, gid)| Identity {
        uid,
        gid,
        groups: vec![gid],
    });
    Ok(identity)
}

/// Looks up a user by number.
///
/// # Errors
/// As [`user`].
pub fn user_by_id(uid: u32) -> io::Result<Option<User>> {
    lookup_user(|entry, buffer, len, result| {
        // SAFETY: the pointers are those of `lookup_user`.
        unsafe { libc::getpwuid_r(uid, entry, buffer, len, result) }
    })
}

/// Looks up a group's number by name (group(5)); a number without a group stands for itself.
///
/// # Errors
/// If the group database cannot be read. A group that does not exist is `None`.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let Ok(c_name) = CString::new(name) else {
        return Ok(None);
    };
    let ask = |entry, buffer, len, result| {
        // SAFETY: the name is a C string, the other pointers are those of `lookup`.
        unsafe { libc::getgrnam_r(c_name.as_ptr(), entry, buffer, len, result) }
    };
    let gid = lookup(ask, |entry: libc::group| entry.gr_gid)?;
    Ok(gid.or_else(|| number(name)))
}

/// The identity of `user`, with `group` instead of the primary group if given.
///
/// # Errors
/// If the group database cannot be read.
pub fn identity(user: &User, group: Option<u32>) -> io::Result<Identity> {
    let gid = group.unwrap_or(user.gid);
    let name = CString::new(user.name.as_str()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut groups = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: the name is a C string; at most `count` groups are written to as many places.
        let result =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if result >= 0 {
            groups.truncate(count);
            return Ok(Identity {
                uid: user.uid,
                gid,
                groups,
            });
        }
        // Too many groups: the call returns their number. Linux allows at most 65,536 groups per process.
        if groups.len() > 65_536 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        groups.resize(count.max(groups.len() * 2), 0);
    }
}

/// Changes to `identity` permanently: groups, group, user, in this order, for all three kinds of ids; then checks
/// that it cannot be undone.
///
/// # Errors
/// `EPERM` if we may not; as setgroups(2), setresgid(2), setresuid(2).
pub fn become_identity(identity: &Identity) -> io::Result<()> {
    set_ids(identity)?;
    let same = rustix::process::getuid().as_raw() == identity.uid
        && rustix::process::geteuid().as_raw() == identity.uid
        && rustix::process::getgid().as_raw() == identity.gid
        && rustix::process::getegid().as_raw() == identity.gid;
    expect_no_way_back(same, identity.uid != 0)
}

/// As [`become_identity`], but the process gets its own user number, `own`, and accesses files as `identity.uid`
/// (setfsuid(2)): processes of that user can neither signal nor inspect it, while it reads, writes and connects with
/// that user's permissions. Threads that it starts are the same.
///
/// # Errors
/// As [`become_identity`]; `EPERM` also if the process may not choose its user freely (`CAP_SETUID`).
pub fn become_guarded(identity: &Identity, own: u32) -> io::Result<()> {
    let user = Identity {
        uid: own,
        ..identity.clone()
    };
    keep_capabilities()?;
    set_ids(&user)?;
    let sets = |capabilities| CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    };
    thread::set_capabilities(None, sets(CapabilitySet::SETUID))?;
    // SAFETY: changes no memory. The call reports no error. It returns the previous user.
    unsafe { libc::setfsuid(identity.uid) };
    thread::set_capabilities(None, sets(CapabilitySet::empty()))?;
    // SAFETY: as above. This user is invalid, so the call changes nothing and returns the present user.
    let files = unsafe { libc::setfsuid(u32::MAX) };
    let same = rustix::process::getuid().as_raw() == own
        && rustix::process::geteuid().as_raw() == own
        && rustix::process::getgid().as_raw() == identity.gid
        && files.cast_unsigned() == identity.uid;
    expect_no_way_back(same, true)
}

/// `same`: the ids are the wanted ones. `ordinary`: they are not root's, so becoming root again must fail.
fn expect_no_way_back(same: bool, ordinary: bool) -> io::Result<()> {
    // SAFETY: changes no memory.
    let back = ordinary && unsafe { libc::setuid(0) } == 0;
    if same && !back {
        return Ok(());
    }
    Err(io::Error::other(
        "the kernel did not take root's rights away",
    ))
}

/// Whether a process can have this user here: in a user namespace (user_namespaces(7)) only some exist.
pub fn may_become(uid: u32) -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else {
        return true;
    };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

/// Changes the root of the process to `folder`, and its working directory to that root.
///
/// # Errors
/// As chroot(2): `EPERM`, `ENOENT`, `ENOTDIR`.
pub fn chroot(folder: &Path) -> io::Result<()> {
    rustix::process::chroot(folder)?;
    Ok(rustix::process::chdir("/")?)
}

/// Prevents this process and its children from gaining rights by executing a set-user-id program.
///
/// # Errors
/// As prctl(2).
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: changes no memory.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// Prevents core dumps and ptrace by the same user, because the process has descriptors that its user may not open.
///
/// # Errors
/// As prctl(2).
pub fn not_dumpable() -> io::Result<()> {
    // SAFETY: changes no memory.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
}

/// With which capabilities a process that root starts as another user begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Without one.
    None,
    /// The process may call chroot(2).
    Chroot,
    /// One that harms nobody, or none if this process has none of these: other processes of the user, who do not have it, may
    /// not inspect this one as long as it has it (ptrace(2), "Ptrace access mode checking"). [`Chroot`](Self::Chroot) does the
    /// same.
    Guard,
    /// The process may become another user and call chroot(2).
    OtherUsers,
}

/// The next change of user keeps this process's permitted capabilities (the effective ones are restored by
/// [`leave_only`]). Async-signal-safe.
pub(crate) fn keep_capabilities() -> io::Result<()> {
    // SAFETY: changes no memory.
    checked(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })
}

/// Gives up all capabilities except this one, which the next executed program also gets. Async-signal-safe.
pub(crate) fn leave_only(capability: Capability) -> io::Result<()> {
    match capability {
        Capability::None => Ok(()),
        Capability::Chroot => leave_only_set(CapabilitySet::SYS_CHROOT),
        Capability::OtherUsers => leave_only_set(
            CapabilitySet::SETUID
                .union(CapabilitySet::SETGID)
                .union(CapabilitySet::SYS_CHROOT),
        ),
        // Root keeps its capabilities: giving one up would not keep anybody from root's processes.
        Capability::Guard if rustix::process::geteuid().is_root() => Ok(()),
        Capability::Guard => {
            let have = thread::capabilities(None)?.permitted;
            let mut guards = GUARDS.iter().filter(|guard| have.contains(**guard));
            // A program without an ambient capability has none at all.
            let left = guards.next().map(|guard| leave_only_set(*guard));
            left.unwrap_or(Ok(())).or(Ok(()))
        }
    }
}

/// For [`Capability::Guard`], the least first: to wake a sleeping machine, to keep one awake, to use ports below
/// 1024, to write to the kernel's audit log. Container runtimes usually give the last two.
const GUARDS: [CapabilitySet; 4] = [
    CapabilitySet::WAKE_ALARM,
    CapabilitySet::BLOCK_SUSPEND,
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::AUDIT_WRITE,
];

fn leave_only_set(only: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: only,
        permitted: only,
        inheritable: only,
    };
    thread::set_capabilities(None, sets)?;
    for one in only.iter() {
        // SAFETY: changes no memory.
        checked(unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                libc::c_ulong::from(one.bits().trailing_zeros()),
                0 as libc::c_ulong,
                0 as libc::c_ulong,
            )
        })?;
    }
    Ok(())
}

/// [`become_identity`] without its check. Async-signal-safe: allocates nothing.
pub(crate) fn set_ids(identity: &Identity) -> io::Result<()> {
    // Only root may set groups. An ordinary user can only "become" itself and keeps its groups.
    if is_root() {
        // SAFETY: as many groups are read as there are.
        checked(unsafe { libc::setgroups(identity.groups.len(), identity.groups.as_ptr()) })?;
    }
    let Identity { uid, gid, .. } = *identity;
    // SAFETY: changes no memory; the C library does it for all threads.
    checked(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    checked(unsafe { libc::setresuid(uid, uid, uid) })
}

pub(crate) fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn lookup_user(
    ask: impl Fn(*mut libc::passwd, *mut c_char, size_t, *mut *mut libc::passwd) -> c_int,
) -> io::Result<Option<User>> {
    lookup(ask, |entry| {
        // SAFETY: the name is a C string in the buffer of `lookup`, which is still there.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        // SAFETY: as above.
        let home = unsafe { CStr::from_ptr(entry.pw_dir) };
        User {
            name: name.to_string_lossy().into_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            home: OsStr::from_bytes(home.to_bytes()).into(),
        }
    })
}

/// Looks an entry up in a database of users or groups: `ask` is given the entry, a buffer for its texts with its length,
/// and the result. `read` takes what is wanted out of the entry while its texts are still there.
fn lookup<E, T>(
    ask: impl Fn(*mut E, *mut c_char, size_t, *mut *mut E) -> c_int,
    read: impl FnOnce(E) -> T,
) -> io::Result<Option<T>> {
    let mut buffer = vec![0_u8; 1024];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut result = ptr::null_mut();
        let space = buffer.as_mut_ptr().cast();
        match ask(entry.as_mut_ptr(), space, buffer.len(), &raw mut result) {
            libc::ERANGE if buffer.len() < MAX_ENTRY => buffer.resize(buffer.len() * 4, 0),
            // Databases report a missing entry in different ways (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH if result.is_null() => return Ok(None),
            // SAFETY: a result that is not null points to the entry, which is then filled in.
            0 => return Ok(Some(read(unsafe { entry.assume_init() }))),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Maximum size of an entry in the user or group database, bytes.
const MAX_ENTRY: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let root = user("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(user("0").unwrap(), Some(root));
        assert_eq!(user("no-such-user").unwrap(), None);
        assert_eq!(user("a\0b").unwrap(), None);
        assert_eq!(group("root").unwrap(), Some(0));
        assert_eq!(group("no-such-group").unwrap(), None);
        assert_eq!(group("4711").unwrap(), Some(4711));
        assert_eq!(uid("root").unwrap(), Some(0));
        assert_eq!(uid("2000000001").unwrap(), Some(2_000_000_001));
        for name in [
            "no-such-user",
            "",
            "-1",
            "+1",
            "1x",
            "4294967295",
            "4294967296",
        ] {
            assert_eq!(uid(name).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_number_that_is_no_users_needs_a_group() {
        assert_eq!(identity_of("2000000001", None).unwrap(), None);
        let numbered = identity_of("2000000001", Some(7)).unwrap().unwrap();
        assert_eq!((numbered.uid, numbered.gid), (2_000_000_001, 7));
        assert_eq!(numbered.groups, [7]);
        assert_eq!(identity_of("no-such-user", Some(7)).unwrap(), None);
    }

    #[test]
    fn an_identity_has_the_group_given_and_the_users_groups() {
        let root = user("root").unwrap().unwrap();
        let identity = identity(&root, Some(7)).unwrap();
        assert_eq!((identity.uid, identity.gid), (0, 7));
        assert!(identity.groups.contains(&7));
    }
}
