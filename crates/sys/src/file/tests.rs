use super::*;
use std::{fs as std_fs, os::fd::AsFd, os::unix::fs::symlink};

struct Tree {
    _dir: tempfile::TempDir,
    root: OwnedFd,
    path: std::path::PathBuf,
}

fn tree() -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("root");
    std_fs::create_dir_all(path.join("a/b")).unwrap();
    std_fs::write(path.join("a/b/file"), "inside").unwrap();
    std_fs::write(dir.path().join("secret"), "outside").unwrap();
    symlink("../../secret", path.join("a/out")).unwrap();
    symlink("b/../b/file", path.join("a/in")).unwrap();
    symlink(dir.path().join("secret"), path.join("absolute")).unwrap();
    symlink("loop", path.join("loop")).unwrap();
    symlink("a/b", path.join("folder")).unwrap();
    Tree {
        root: open_dir(&path).unwrap(),
        path,
        _dir: dir,
    }
}

fn text(fd: &OwnedFd) -> String {
    let mut buffer = [0; 64];
    let n = read_at(fd.as_fd(), &mut buffer, 0).unwrap();
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

type Opener = fn(BorrowedFd<'_>, &[u8]) -> io::Result<OwnedFd>;

#[test]
fn bytes_are_appended_up_to_the_room_and_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let mut buffer = Vec::with_capacity(8);
    buffer.extend_from_slice(b"a");
    let room = buffer.capacity() - 1;
    for cached_only in [false, true] {
        let read = append_from(file.as_fd(), &mut buffer, (2, 3), cached_only).unwrap();
        assert_eq!((read, &buffer[..]), (Some(3), &b"a234"[..]));
        buffer.truncate(1);
        let read = append_from(file.as_fd(), &mut buffer, (0, 100), cached_only).unwrap();
        assert_eq!(read, Some(room.min(10)));
        buffer.truncate(1);
        let read = append_from(file.as_fd(), &mut buffer, (10, 5), cached_only).unwrap();
        assert_eq!((read, &buffer[..]), (Some(0), &b"a"[..]));
    }
    let folder = open_dir(folder.path()).unwrap();
    assert!(append_from(folder.as_fd(), &mut buffer, (0, 5), false).is_err());
    assert!(append_from(file.as_fd(), &mut buffer, (u64::MAX, 5), false).is_err());
}

#[test]
fn what_the_kernel_has_looked_up_is_known_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (there, missing) = (folder.path().join("there"), folder.path().join("missing"));
    std::fs::write(&there, b"").unwrap();
    assert!(there.exists() && !missing.exists());
    // If the kernel does not know, the answer must not be wrong.
    assert_ne!(is_there_cached(&there), Some(false));
    assert_ne!(is_there_cached(&missing), Some(true));
    assert_ne!(is_there_cached(&missing.join("below")), Some(true));
    if is_there_cached(folder.path()) == Some(true) {
        assert_eq!(is_there_cached(&there), Some(true));
        assert_eq!(is_there_cached(&missing), Some(false));
    }
}

#[test]
fn both_ways_of_opening_stay_beneath_the_root() {
    let by_kernel: Opener = |root, path| open_beneath(root, path, Open::default());
    let by_hand: Opener = |root, path| walk_beneath(root, path, READ);
    for open in [by_kernel, by_hand] {
        let tree = tree();
        let root = tree.root.as_fd();
        for path in [
            "a/b/file",
            "a/in",
            "folder/file",
            "a//b/./file",
            "a/../a/b/file",
        ] {
            assert_eq!(
                text(&open(root, path.as_bytes()).unwrap()),
                "inside",
                "{path}"
            );
        }
        let error = |path: &str| open(root, path.as_bytes()).unwrap_err().raw_os_error();
        for path in [
            "a/out",
            "absolute",
            "..",
            "../secret",
            "a/../../secret",
            "a/b/../../../secret",
        ] {
            assert_eq!(error(path), Some(libc::EXDEV), "{path}");
        }
        assert_eq!(error("none"), Some(libc::ENOENT));
        assert_eq!(error("a/b/file/x"), Some(libc::ENOTDIR));
        assert_eq!(error("a/b/file/"), Some(libc::ENOTDIR));
        assert_eq!(error("loop"), Some(libc::ELOOP));
        assert_eq!(error("a\0b"), Some(libc::EINVAL));
        let folder = open(root, b"a/").unwrap();
        assert_eq!(fstat(folder.as_fd()).unwrap().kind, FileKind::Dir);
    }
}

#[test]
fn links_lead_out_only_where_asked_and_dots_never() {
    let tree = tree();
    let open = Open {
        follow_symlinks_out: true,
        ..Open::default()
    };
    for path in ["a/out", "absolute"] {
        let file = open_beneath(tree.root.as_fd(), path.as_bytes(), open).unwrap();
        assert_eq!(text(&file), "outside");
    }
    for path in ["../secret", "a/../../secret", "/etc/passwd"] {
        let error = open_beneath(tree.root.as_fd(), path.as_bytes(), open).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EXDEV), "{path}");
    }
}

#[test]
fn an_absolute_path_is_refused() {
    let tree = tree();
    let error = open_beneath(tree.root.as_fd(), b"/a", Open::default()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
}

#[test]
fn cached_only_opens_what_was_opened_before() {
    let tree = tree();
    let cached = Open {
        cached_only: true,
        ..Open::default()
    };
    open_beneath(tree.root.as_fd(), b"a/b/file", Open::default()).unwrap();
    match open_beneath(tree.root.as_fd(), b"a/b/file", cached) {
        Ok(file) => assert_eq!(text(&file), "inside"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
    }
}

#[test]
fn a_pipe_does_not_hold_the_opener() {
    let tree = tree();
    fs::mknodat(
        &tree.root,
        "pipe",
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    let pipe = open_beneath(tree.root.as_fd(), b"pipe", Open::default()).unwrap();
    assert_eq!(fstat(pipe.as_fd()).unwrap().kind, FileKind::Other);
}

#[test]
fn stat_tells_size_kind_and_mode() {
    let tree = tree();
    let stat = stat_beneath(tree.root.as_fd(), b"a/in", Open::default()).unwrap();
    assert_eq!((stat.size, stat.kind), (6, FileKind::File));
    assert_eq!(stat, stat_path(&tree.path.join("a/b/file")).unwrap());
    assert!(stat.mtime_ns > 1_500_000_000_000_000_000);
}

#[test]
fn what_was_just_written_is_cached_and_read_without_waiting() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let dir = open_dir(dir.path()).unwrap();
    let file = temp_file(dir.as_fd()).unwrap();
    let bytes = vec![7; 100_000];
    assert_eq!(write_at(file.as_fd(), &bytes, 0).unwrap(), bytes.len());
    assert!(is_cached(file.as_fd(), 0, 100_000));
    assert!(
        is_cached(file.as_fd(), 5_000, 1_000_000),
        "beyond the end counts as there"
    );
    let mut buffer = vec![0; 10];
    assert_eq!(
        read_cached(file.as_fd(), &mut buffer, 99_995).unwrap(),
        Some(5)
    );
    assert_eq!(
        read_cached(file.as_fd(), &mut buffer, 100_000).unwrap(),
        Some(0)
    );
    populate(file.as_fd(), 0, 200_000).unwrap();
}

#[test]
fn a_temporary_file_leaves_no_name_either_way() {
    let dir = tempfile::tempdir().unwrap();
    let fd = open_dir(dir.path()).unwrap();
    for file in [
        temp_file(fd.as_fd()).unwrap(),
        named_temp_file(fd.as_fd()).unwrap(),
    ] {
        assert_eq!(write_at(file.as_fd(), b"x", 0).unwrap(), 1);
        assert_eq!(fstat(file.as_fd()).unwrap().mode, 0o600);
        assert_eq!(std_fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_file_is_sent_from_the_offset_and_ends_with_zero() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let file = temp_file(open_dir(dir.path()).unwrap().as_fd()).unwrap();
    write_at(file.as_fd(), b"0123456789", 0).unwrap();
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut offset = 4;
    assert_eq!(
        send_file(here.as_fd(), file.as_fd(), &mut offset, 100).unwrap(),
        6
    );
    assert_eq!(offset, 10);
    assert_eq!(
        send_file(here.as_fd(), file.as_fd(), &mut offset, 100).unwrap(),
        0
    );
    drop(here);
    let mut got = String::new();
    there.read_to_string(&mut got).unwrap();
    assert_eq!(got, "456789");
}

#[test]
fn a_list_beside_the_permission_bits_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std_fs::write(&path, "").unwrap();
    assert!(!has_access_list(&path));
    let entry = |tag: u8, bits: u8, id: [u8; 4]| [&[tag, 0, bits, 0][..], &id].concat();
    let all = [0xff; 4];
    // For the owner, one more user, the group, the mask, and others.
    let list = [
        vec![2, 0, 0, 0],
        entry(1, 6, all),
        entry(2, 6, [11, 0, 0, 0]),
        entry(4, 0, all),
        entry(16, 6, all),
        entry(32, 0, all),
    ];
    fs::setxattr(&path, ACL_NAME, &list.concat(), fs::XattrFlags::empty()).unwrap();
    assert!(has_access_list(&path));
}
