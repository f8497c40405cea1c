//! What prevents weir from starting: errors of `weir check`, missing permissions, addresses that are in use.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use weir_config::{Address, Listener};
use weir_manager::listen::{self, LONGEST_PATH};
use weir_sys::{identity, listener};

use super::{
    Notes,
    case::{Case, CheckMessage},
    live::Found,
    rights::quoted,
    servers::connect_unix,
};

/// Everything that matters first at a start.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    said(&case.said, notes);
    rights(case, notes);
    workers(case, notes);
    for listener in &case.config.listeners {
        match &listener.address {
            Address::Tcp(address) => {
                let label = format!("[listen.{}] address = \"{address}\"", listener.name);
                if case
                    .live()
                    .is_some_and(|live| serves(live, &listener.address))
                {
                    notes.ok(format!("{label} is used by the running weir"));
                } else {
                    tcp(case, &label, *address, notes);
                }
            }
            Address::Unix(path) => unix(case, listener, path, notes),
        }
    }
    // Only the running weir itself knows its admin address.
    if let Some(address) = case.config.server.admin_tcp
        && case.live().is_none()
    {
        tcp(
            case,
            &format!("[server] admin_tcp = \"{address}\""),
            address,
            notes,
        );
    }
    if let Found::Unseen(why) = &case.found {
        let how = match identity::is_root() {
            true => "check that its gateway answers: weir status",
            false => "run `weir doctor` as root, or as the user who started weir",
        };
        notes.unseen(format!("whether weir is running: {why}"), how);
    }
}

/// The messages of `weir check`.
fn said(said: &[CheckMessage], notes: &mut Notes) {
    for CheckMessage { error, what, mend } in said {
        match error {
            true => notes.breaks(what, "weir does not start with it", mend),
            false => notes.warn(
                what,
                "the configuration does not do what it seems to say",
                mend,
            ),
        }
    }
    if said.is_empty() {
        notes.ok("weir check finds no problem");
    }
}

/// Whether the starting user has the necessary permissions.
fn rights(case: &Case<'_>, notes: &mut Notes) {
    let (starter, config) = (&case.people.starter, case.config);
    if starter.is_root() {
        if !case.people.us.is_root() {
            notes.ok("the configuration has other users than you: root must start weir");
        }
        return;
    }
    let name = &starter.name;
    let why = "only root can use chroot; weir does not start";
    let mend = "start weir as root, or remove chroot";
    if config.server.chroot.is_some() {
        notes.breaks(
            format!("[server] chroot is set, but {name} starts weir"),
            why,
            mend,
        );
    }
    for pool in &config.pools {
        let Some(workers) = pool.workers() else {
            continue;
        };
        if workers.chroot.is_some() {
            let what = format!("[pool.{}] chroot is set, but {name} starts weir", pool.name);
            notes.breaks(what, why, mend);
        }
        if let Some(nice) = workers.priority.filter(|nice| *nice < 0) {
            notes.warn(
                format!("[pool.{}] process_priority = {nice} is ignored", pool.name),
                format!("weir is started by {name}, but only root can raise a priority"),
                "start weir as root, or remove process_priority",
            );
        }
    }
    for listener in &config.listeners {
        let owner = listener.owner.as_deref();
        if let Some(owner) = owner.filter(|owner| *owner != name) {
            notes.breaks(
                format!(
                    "[listen.{}] owner = \"{owner}\" is set, but {name} starts weir",
                    listener.name
                ),
                "only root can change the owner of a socket; weir does not start",
                "start weir as root, or remove owner",
            );
        }
    }
}

/// What workers are started with.
fn workers(case: &Case<'_>, notes: &mut Notes) {
    let allowed = case.open_files();
    let most = number("/proc/sys/fs/nr_open");
    for pool in &case.config.pools {
        let Some(wanted) = pool.workers().and_then(|workers| workers.rlimit_files) else {
            continue;
        };
        let label = format!("[pool.{}] rlimit_files = {wanted}", pool.name);
        if let Some(most) = most.filter(|most| wanted > *most) {
            notes.breaks(
                format!("{label} is above fs.nr_open, {most}"),
                "the kernel allows no process a higher limit: no worker starts",
                format!("sysctl -w fs.nr_open={wanted}, or rlimit_files = {most}"),
            );
        } else if wanted > allowed.hard && !case.people.starter.is_root() {
            notes.warn(
                format!("{label} is above the hard limit, {}", allowed.hard),
                format!("only root can raise it: workers get {}", allowed.hard),
                format!(
                    "LimitNOFILE={wanted} in the systemd unit, or rlimit_files = {}",
                    allowed.hard
                ),
            );
        } else {
            notes.ok(format!("{label} is possible"));
        }
    }
}

/// Whether a socket can be bound there.
fn tcp(case: &Case<'_>, label: &str, address: SocketAddr, notes: &mut Notes) {
    let (root, port) = (case.people.starter.is_root(), address.port());
    match listener::try_tcp(address, true) {
        Ok(()) => notes.ok(format!("{label} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => taken(case, label, address, notes),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => notes.breaks(
            format!("{label}: this machine does not have this address"),
            "weir does not start",
            "use an address from `ip address`, or 0.0.0.0 for all",
        ),
        // The starting user may bind it, though the user who runs the doctor may not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && root => {
            match who_listens(address) {
                Some(_) => taken(case, label, address, notes),
                None => notes.ok(format!("{label}: free, and root can listen there")),
            }
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => notes.breaks(
            format!("{label}: {} cannot listen on a port below 1024", case.people.starter.name),
            "weir does not start",
            format!(
                "start weir as root; or AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit; or sysctl -w \
                 net.ipv4.ip_unprivileged_port_start={port}; or a port of 1024 or higher"
            ),
        ),
        Err(error) => notes.breaks(
            format!("{label}: {error}"),
            "weir does not start",
            "use another address",
        ),
    }
}

/// The address is in use. If the process is not visible, it may be this weir, if nothing else is known about it.
fn taken(case: &Case<'_>, label: &str, address: SocketAddr, notes: &mut Notes) {
    let port = address.port();
    let by = who_listens(address).flatten();
    let is_weir = by.as_ref().is_some_and(|by| by.starts_with("weir"));
    let may_be_ours = match &case.found {
        Found::Unseen(_) => by.is_none() || is_weir,
        Found::NoAdmin => is_weir,
        Found::Nobody | Found::Runs(_) => false,
    };
    let name = by.as_deref().unwrap_or("a program of another user");
    if may_be_ours {
        notes.note(
            format!("{label} is already used by {name}"),
            "this may be the weir with this configuration; a second one could not start",
            "run `weir doctor` as the user who started weir, or give its admin address with --admin unix:PATH",
        );
    } else {
        notes.breaks(
            format!("{label} is already used by {name}"),
            "weir does not start",
            format!(
                "stop that program, or use another port; `ss -ltnp 'sport = :{port}'` shows the program"
            ),
        );
    }
    if by.is_none() && !identity::is_root() {
        notes.unseen(
            format!("which program listens on port {port}"),
            "run `weir doctor` as root",
        );
    }
}

fn unix(case: &Case<'_>, listener: &Listener, path: &Path, notes: &mut Notes) {
    let label = format!(
        "[listen.{}] address = \"unix:{}\"",
        listener.name,
        path.display()
    );
    let length = path.as_os_str().len();
    if length > LONGEST_PATH {
        notes.breaks(
            format!("{label} is {length} bytes long"),
            format!("a socket's path can have at most {LONGEST_PATH} bytes; weir does not start"),
            "use a shorter path",
        );
        return;
    }
    if case
        .live()
        .is_some_and(|live| serves(live, &listener.address))
    {
        notes.ok(format!("{label} is used by the running weir"));
        return;
    }
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // Folder and permissions of the socket are checked among the sockets.
        Err(_) => return,
    };
    if !metadata.file_type().is_socket() {
        notes.breaks(
            format!("{label}: a file that is not a socket exists there"),
            "weir does not overwrite it and does not start",
            format!("rm {}, if it is not needed", quoted(path)),
        );
        return;
    }
    match connect_unix(path) {
        // A full queue means that a process listens but does not accept.
        result if result.is_ok() || is_full(&result) => {
            let by = listen::unix_owner(path);
            let unseen = matches!(case.found, Found::Unseen(_)) && by.is_none();
            let by = by.unwrap_or_else(|| "a program of another user".into());
            if unseen {
                notes.note(
                    format!("{label}: {by} is listening there"),
                    "this may be the weir with this configuration; a second one could not start",
                    "run `weir doctor` as the user who started weir",
                );
                return;
            }
            notes.breaks(
                format!("{label}: {by} is listening there"),
                "weir does not replace a socket that is in use, and does not start",
                "stop that program, or use another path",
            );
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => notes.ok(format!(
            "{label}: an unused socket is left there; weir replaces it"
        )),
        Ok(()) => {}
        Err(error) => notes.unseen(
            format!(
                "whether a program is listening on unix:{}: {error}",
                path.display()
            ),
            "run `weir doctor` as root",
        ),
    }
}

fn is_full(result: &io::Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Whether the running weir says that it listens there.
fn serves(live: &super::live::Live, address: &Address) -> bool {
    let listeners = live.status["listeners"].as_array();
    let wanted = address.to_string();
    listeners
        .into_iter()
        .flatten()
        .any(|listener| listener["address"] == wanted.as_str())
}

/// The process that listens where this address would: `None`: none; `Some(None)`: a process that we may not see.
fn who_listens(address: SocketAddr) -> Option<Option<String>> {
    let tables = [("/proc/net/tcp", false), ("/proc/net/tcp6", true)];
    tables.iter().find_map(|(table, six)| {
        let table = fs::read_to_string(table).ok()?;
        let inode = table
            .lines()
            .find_map(|line| listening(line, *six, address))?;
        Some(listen::owner_of_socket(&inode))
    })
}

/// The inode of the socket in a line of /proc/net/tcp, if it listens where `address` would.
fn listening(line: &str, six: bool, address: SocketAddr) -> Option<String> {
    // sl local_address rem_address st … inode (proc_net(5)); state 0A is listening.
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != "0A" || u16::from_str_radix(port, 16).ok()? != address.port() {
        return None;
    }
    let words: Option<Vec<u32>> = (0..ip.len() / 8)
        .map(|at| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok())
        .collect();
    // Each word is in the machine's byte order.
    let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let ip: IpAddr = match six {
        true => <[u8; 16]>::try_from(bytes).ok()?.into(),
        false => <[u8; 4]>::try_from(bytes).ok()?.into(),
    };
    let same = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    same.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_is_found_by_address_and_port() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let us = format!("(process {})", std::process::id());
        let owner = who_listens(address).unwrap().unwrap();
        assert!(owner.ends_with(&us), "{owner}");
        let all = SocketAddr::from(([0, 0, 0, 0], address.port()));
        assert!(who_listens(all).is_some());
        let other = SocketAddr::from(([127, 9, 9, 9], address.port()));
        assert_eq!(who_listens(other), None);
    }

    #[test]
    fn an_address_that_is_taken_breaks_and_names_who_has_it() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(
            listener::try_tcp(address, true).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        let text = format!("[listen.a]\naddress = \"{address}\"\n[site.a]\nroot = \"/\"\n");
        let found = with_config(&text, |case| {
            let mut notes = Notes::default();
            tcp(case, "[listen.a] address", address, &mut notes);
            said(&notes)
        });
        assert!(found[0].starts_with("break: "), "{found:?}");
        assert!(
            found[0].contains(&std::process::id().to_string()),
            "{found:?}"
        );
        drop(socket);
        listener::try_tcp(address, true).unwrap();
    }
}
