//! Processes of weir of another version than the manager: they refuse to work together, and name both.

use std::{io::IoSlice, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair,
};

use weir_test::{LIMIT, process::wait};

use super::*;

/// Starts a role with a manager of that version, and returns everything that it tells the manager before it ends.
fn told(role: &str, greeting: &[u8]) -> (Option<i32>, String) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let first = &[IoSlice::new(greeting)];
    let mut none = SendAncillaryBuffer::default();
    sendmsg(&ours, first, &mut none, SendFlags::NOSIGNAL).unwrap();
    let mut child = Command::new(program())
        .arg(role)
        .stdin(Stdio::from(theirs))
        .spawn()
        .unwrap();
    let said = read_all(&ours);
    let status = wait(&mut child, LIMIT).expect("it ends by itself");
    (status.code(), said)
}

fn read_all(socket: &OwnedFd) -> String {
    let mut all = String::new();
    let mut packet = [0; 4096];
    while let Ok((_, length)) = recv(socket, &mut packet, RecvFlags::empty()) {
        if length == 0 {
            break;
        }
        all += &String::from_utf8_lossy(&packet[..length]);
    }
    all
}

#[test]
fn processes_of_another_version_than_the_manager_refuse_it_by_name() {
    let own = env!("CARGO_PKG_VERSION");
    for (role, name) in [
        ("--role=gateway", "weir's gateway"),
        ("--role=keeper", "weir's keeper of private keys"),
        ("--role=acme", "weir's process for certificates"),
    ] {
        let (code, said) = told(role, b"weir is version 0.0.7");
        let both = format!("{name} is version {own}, weir's manager is version 0.0.7: ");
        assert!(said.contains(&both), "{said}");
        assert!(said.contains("weir upgrade"), "{said}");
        assert_eq!(code, Some(70), "{role}");
        // The first message of a version that did not say its own.
        let (code, said) = told(role, b"\x01\0\0");
        assert!(said.contains("weir's manager is version unknown"), "{said}");
        assert_eq!(code, Some(70), "{role}");
    }
}
