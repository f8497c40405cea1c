//! Unix sockets of listeners, checked for the users who must connect: owner, group and lists, and every folder on the
//! way.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt, path::Path};

use weir_config::{Address, Listener};

use super::{
    Notes,
    case::Case,
    people::Who,
    rights::{Access, Barrier, Cause, Need, may, quoted},
};

/// Checks who may connect to which socket.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let fronts = fronts();
    for listener in &case.config.listeners {
        if let Address::Unix(path) = &listener.address {
            folder(case, listener, path, notes);
            connecting(case, listener, path, notes);
            others(case, listener, path, &fronts, notes);
        }
    }
}

/// Whether the socket can be created.
fn folder(case: &Case<'_>, listener: &Listener, path: &Path, notes: &mut Notes) {
    let label = format!("[listen.{}] address", listener.name);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let starter = &case.people.starter;
    match may(starter, None, folder, Need::MakeFiles) {
        Access::Yes => notes.ok(format!(
            "{label}: {} can create sockets in {}",
            starter.name,
            folder.display()
        )),
        Access::No(barrier) if barrier.cause == Cause::Missing => {
            let made = quoted(folder);
            notes.breaks(
                format!("{label}: {barrier}"),
                "weir does not start: it creates the socket, but not its folder",
                match folder.starts_with("/run") {
                    // Folders in /run are gone after a reboot.
                    true => format!(
                        "RuntimeDirectory={} in the systemd unit; without systemd run install -d {made} before each start",
                        folder.strip_prefix("/run").unwrap_or(folder).display()
                    ),
                    false => format!("install -d {made}"),
                },
            );
        }
        Access::No(barrier) => notes.breaks(
            format!(
                "{label}: {} cannot create its socket: {barrier}",
                starter.name
            ),
            "weir does not start",
            barrier.mend(starter),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Whether the users in the configuration can connect.
fn connecting(case: &Case<'_>, listener: &Listener, path: &Path, notes: &mut Notes) {
    let named = named(listener);
    if named.is_empty() && listener.mode & 0o002 == 0 {
        let starter = &case.people.starter.name;
        notes.warn(
            format!(
                "[listen.{}] address = \"unix:{}\" belongs to {starter} with mode {:04o}: no other user can connect",
                listener.name,
                path.display(),
                listener.mode
            ),
            "a web server in front that runs as another user gets \"permission denied\" and answers 502",
            "group = \"www-data\" (the web server's group), or acl_users = [\"…\"]",
        );
    }
    for (key, who, bits) in named {
        let label = format!("[listen.{}] {key}: {}", listener.name, who.name);
        if bits & 0o2 == 0 {
            notes.breaks(
                format!(
                    "{label}: mode {:04o} does not allow writing to the socket",
                    listener.mode
                ),
                "a client needs write permission on the socket; without it, connections are refused",
                "mode = \"0660\"",
            );
            continue;
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        match may(&who, None, folder, Need::Enter) {
            Access::Yes => notes.ok(format!("{label} can connect to unix:{}", path.display())),
            // Reported above.
            Access::No(Barrier { cause: Cause::Missing, .. }) => {}
            Access::No(barrier) => notes.breaks(
                format!("{label} cannot reach unix:{}: {barrier}", path.display()),
                "a client must be able to enter all folders on the way to the socket, whatever the socket's own mode is",
                barrier.mend(&who),
            ),
            Access::Unseen(at) => notes.barred(&label, &at),
        }
    }
}

/// Web servers that run here as other users and could not connect to a FastCGI listener.
fn others(
    case: &Case<'_>,
    listener: &Listener,
    path: &Path,
    fronts: &BTreeSet<(String, u32, u32)>,
    notes: &mut Notes,
) {
    for (program, uid, gid) in fronts {
        let who = Who::numbered(*uid, *gid);
        let named = named(listener);
        let let_in = listener.mode & 0o002 != 0
            || who.identity == case.people.starter.identity
            || named.iter().any(|(_, one, bits)| {
                let same_group = who.identity.gid == one.identity.gid
                    || who.identity.groups.contains(&one.identity.gid);
                bits & 0o2 != 0 && (one.identity.uid == *uid || one.is_member() && same_group)
            });
        let way = may(
            &who,
            None,
            path.parent().unwrap_or(Path::new("/")),
            Need::Enter,
        );
        if let_in && way == Access::Yes {
            notes.ok(format!(
                "[listen.{}] {program}, which runs here as {}, can connect",
                listener.name, who.name
            ));
        } else if !let_in {
            notes.note(
                format!(
                    "[listen.{}] {program} runs here as {}, who cannot connect to unix:{}",
                    listener.name,
                    who.name,
                    path.display()
                ),
                "if it is the web server in front of this listener, it answers 502",
                format!(
                    "acl_users = [\"{}\"], or set group to one of its groups",
                    who.name
                ),
            );
        }
    }
}

/// The users of owner, group and lists, with their bits.
fn named(listener: &Listener) -> Vec<(&'static str, Who, u32)> {
    let mut named = Vec::new();
    let lists = !listener.acl_users.is_empty() || !listener.acl_groups.is_empty();
    for user in &listener.acl_users {
        named.extend(Who::named(user, None).map(|who| ("acl_users", who, 0o6)));
    }
    for group in &listener.acl_groups {
        named.extend(Who::member(group).map(|who| ("acl_groups", who, 0o6)));
    }
    // As in PHP-FPM: with access control lists, owner and group stay those of the user who starts weir.
    if !lists {
        let owner = listener
            .owner
            .as_deref()
            .and_then(|name| Who::named(name, None));
        named.extend(owner.map(|who| ("owner", who, listener.mode >> 6 & 0o7)));
        let group = listener.group.as_deref().and_then(Who::member);
        named.extend(group.map(|who| ("group", who, listener.mode >> 3 & 0o7)));
    }
    named
}

impl Who {
    /// Stands for the members of a group.
    fn is_member(&self) -> bool {
        self.name.starts_with("a member of")
    }
}

/// Web servers that run here, with the users of their workers.
fn fronts() -> BTreeSet<(String, u32, u32)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let front = |process: fs::DirEntry| {
        process.file_name().to_str()?.parse::<u32>().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        let name = name.trim_end().to_owned();
        let metadata = process.metadata().ok()?;
        // Their masters run as root and do not connect.
        (FRONTS.contains(&name.as_str()) && metadata.uid() != 0)
            .then(|| (name, metadata.uid(), metadata.gid()))
    };
    processes.filter_map(front).collect()
}

/// Web servers in front of FastCGI.
const FRONTS: [&str; 6] = ["nginx", "haproxy", "apache2", "httpd", "caddy", "lighttpd"];

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn looked(folder: &Path, lines: &str) -> Vec<String> {
        let text = format!(
            "[listen.shop]\nprotocol = \"fastcgi\"\npool = \"app\"\naddress = \"unix:{}/a/weir.sock\"\n{lines}\n\
             [pool.app]\nruntime = \"command\"\ncommand = [\"sh\"]\n",
            folder.display()
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            for listener in &case.config.listeners {
                let Address::Unix(path) = &listener.address else {
                    continue;
                };
                connecting(case, listener, path, &mut notes);
            }
            said(&notes)
        })
    }

    fn folder(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(folder.path(), 0o755);
        set(&folder.path().join("a"), mode);
        folder
    }

    #[test]
    fn a_group_that_comes_through_is_fine_and_a_shut_folder_is_not() {
        let open = folder(0o755);
        let found = looked(open.path(), "group = \"daemon\"");
        assert!(found[0].starts_with("ok: "), "{found:?}");
        let shut = folder(0o750);
        let found = looked(shut.path(), "group = \"daemon\"");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("/a (drwxr-x---"),
            "{found:?}"
        );
        assert!(found[0].contains("chmod o+x"), "{found:?}");
    }

    #[test]
    fn a_socket_for_its_owner_alone_is_told_of() {
        let open = folder(0o755);
        assert!(looked(open.path(), "")[0].starts_with("warn: "));
        assert_eq!(looked(open.path(), "mode = \"0666\""), [""; 0]);
        let found = looked(open.path(), "group = \"daemon\"\nmode = \"0640\"");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("0640"),
            "{found:?}"
        );
    }
}
