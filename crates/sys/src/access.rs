//! File permissions: access control lists, and the kernel's own check for another identity.

use std::{io, path::Path, thread};

use rustix::{
    fs::{self, Access, AtFlags, Gid, Uid},
    io::Errno,
};

use crate::identity::{Identity, is_root};

/// One entry of an access control list (acl(5)): its subject, and its bits (read 4, write 2, enter or execute 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclEntry {
    /// The file's owner.
    Owner(u16),
    /// A user by number.
    User(u32, u16),
    /// The file's group.
    OwningGroup(u16),
    /// A group by number.
    Group(u32, u16),
    /// The maximum for numbered users and groups, and for the file's group.
    Mask(u16),
    /// Everybody else.
    Other(u16),
}

/// The access control list of a file, in the kernel's order; empty: there are only the permission bits.
///
/// # Errors
/// As getxattr(2). A file system without such lists has none, which is no error.
pub fn access_list(path: &Path) -> io::Result<Vec<AclEntry>> {
    let mut bytes = vec![0_u8; 256];
    loop {
        match fs::getxattr(path, ACL_NAME, &mut bytes) {
            Ok(length) => return Ok(decode(bytes.get(..length).unwrap_or_default())),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(Errno::RANGE) if bytes.len() < MAX_ACL => bytes.resize(bytes.len() * 4, 0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the kernel would let `who` do this with the file at `path` (read 4, write 2, enter or execute 1),
/// including every folder on the way. Asks with that identity: in a separate thread that gives up our rights and
/// ends.
///
/// # Errors
/// `EACCES` and what else access(2) answers; `EPERM` where we are not root and `who` is somebody else.
pub fn may_as(who: &Identity, path: &Path, bits: u16) -> io::Result<()> {
    as_identity(who, || {
        Ok(fs::accessat(fs::CWD, path, wanted(bits), AtFlags::EACCESS)?)
    })
}

/// Runs `ask` as another identity, in a separate thread that changes to it and ends: the rest of the process keeps
/// its identity. Meant for questions to the kernel; `ask` should have no lasting effects.
///
/// # Errors
/// Those of `ask`; `EPERM` where we are not root and `who` is somebody else.
pub fn as_identity<T: Send>(
    who: &Identity,
    ask: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let asked = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            become_in_this_thread(who)?;
            ask()
        });
        asking.join()
    });
    asked.unwrap_or_else(|_| Err(io::Error::other("the thread that asked died")))
}

/// Whether we may do this with the file at `path`, including every folder on the way.
///
/// # Errors
/// `EACCES` and what else access(2) answers.
pub fn may(path: &Path, bits: u16) -> io::Result<()> {
    Ok(fs::accessat(fs::CWD, path, wanted(bits), AtFlags::EACCESS)?)
}

/// Unlike the C library's functions with these names, the system calls change only the calling thread. When the last
/// user number of root is given up, its capabilities are lost, too (capabilities(7)).
fn become_in_this_thread(who: &Identity) -> io::Result<()> {
    if is_root() {
        let groups: Vec<Gid> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups)?;
    }
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

fn wanted(bits: u16) -> Access {
    let mut wanted = Access::EXISTS;
    for (bit, access) in [
        (4, Access::READ_OK),
        (2, Access::WRITE_OK),
        (1, Access::EXEC_OK),
    ] {
        wanted.set(access, bits & bit != 0);
    }
    wanted
}

/// In the format of `linux/posix_acl_xattr.h`: a version, then tag, permissions and id of each entry, little-endian.
fn decode(bytes: &[u8]) -> Vec<AclEntry> {
    let entries = bytes.get(4..).unwrap_or_default().chunks_exact(8);
    let entry = |chunk: &[u8]| {
        let number = |at: usize| u16::from_le_bytes([chunk[at], chunk[at + 1]]);
        let (tag, bits) = (number(0), number(2) & 0o7);
        let id = u32::from(number(4)) | u32::from(number(6)) << 16;
        Some(match tag {
            0x01 => AclEntry::Owner(bits),
            0x02 => AclEntry::User(id, bits),
            0x04 => AclEntry::OwningGroup(bits),
            0x08 => AclEntry::Group(id, bits),
            0x10 => AclEntry::Mask(bits),
            0x20 => AclEntry::Other(bits),
            _ => return None,
        })
    };
    entries.filter_map(entry).collect()
}

/// The extended attribute with the access control list (acl(5)).
pub(crate) const ACL_NAME: &str = "system.posix_acl_access";

/// No list is longer: the kernel's limit for an extended attribute (xattr(7)).
const MAX_ACL: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_kernel_answers_for_another_identity_and_we_stay_who_we_are() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::write(&inner, "").unwrap();
        may(&inner, 6).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let nobody = Identity {
            uid: 65_534,
            gid: 65_534,
            groups: vec![65_534],
        };
        let answer = may_as(&nobody, &inner, 4).unwrap_err();
        let expected = match is_root() {
            true => io::ErrorKind::PermissionDenied,
            false => answer.kind(),
        };
        assert_eq!(answer.kind(), expected);
        may(&inner, 6).unwrap();
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        let none = u32::MAX;
        for (tag, bits, id) in [
            (0x01_u16, 6_u16, none),
            (0x02, 5, 33),
            (0x04, 4, none),
            (0x08, 7, 70_000),
            (0x10, 5, none),
            (0x20, 0, none),
        ] {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        let expected = [
            AclEntry::Owner(6),
            AclEntry::User(33, 5),
            AclEntry::OwningGroup(4),
            AclEntry::Group(70_000, 7),
            AclEntry::Mask(5),
            AclEntry::Other(0),
        ];
        assert_eq!(decode(&bytes), expected);
        assert_eq!(decode(&bytes[..20]), expected[..2]);
        assert_eq!(decode(&[]), []);
    }

    #[test]
    fn a_file_without_a_list_has_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(access_list(folder.path()).unwrap(), []);
        assert!(access_list(&folder.path().join("missing")).is_err());
    }
}
