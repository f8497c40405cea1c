//! Settings that allow more than intended.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use weir_config::{Address, Protocol, SocketPath};

use super::{
    Notes,
    case::Case,
    rights::{Access, Need, group_name, may, quoted},
    sites::hides,
};

/// Users, roots, listeners.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    users(case, notes);
    roots(case, notes);
    listeners(case, notes);
    admin(case, notes);
    admin_on_tcp(case, notes);
}

/// What the admin interface shows and allows over TCP.
fn admin_on_tcp(case: &Case<'_>, notes: &mut Notes) {
    let server = &case.config.server;
    let Some(address) = server.admin_tcp else {
        return;
    };
    if address.ip().is_loopback() {
        notes.ok(format!(
            "[server] admin_tcp = \"{address}\" can be reached from this machine only"
        ));
    } else {
        notes.note(
            format!("[server] admin_tcp = \"{address}\" can be reached from other machines"),
            "everybody who can connect sees the figures of all pools and sites",
            "use an address of an internal network, or 127.0.0.1",
        );
    }
    let Some(file) = &server.admin_token_file else {
        return;
    };
    match fs::metadata(file) {
        Ok(metadata) if metadata.mode() & 0o007 != 0 => notes.warn(
            format!(
                "[server] admin_token_file = \"{}\" can be read by everybody ({:04o})",
                file.display(),
                metadata.mode() & 0o7777
            ),
            "anybody who has the token can stop weir",
            format!("chmod 600 {}", quoted(file)),
        ),
        Ok(_) => notes.ok(format!(
            "[server] admin_token_file = \"{}\" cannot be read by everybody",
            file.display()
        )),
        // A missing file is reported with the start.
        Err(_) => {}
    }
}

/// A user who may write to the folder of the admin socket may replace the socket.
fn admin(case: &Case<'_>, notes: &mut Notes) {
    let SocketPath::At(socket) = &case.config.server.admin else {
        return;
    };
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let Ok(metadata) = fs::metadata(folder) else {
        return;
    };
    let label = format!("[server] admin: {}", folder.display());
    match metadata.mode() & 0o1002 {
        0o0002 => notes.warn(
            format!("{label} can be written by everybody ({:04o})", metadata.mode() & 0o7777),
            "another user can replace the socket, and then gets the requests of `weir stop` and other commands",
            format!("chmod o-w {}, or use a folder in /run", quoted(folder)),
        ),
        _ => notes.ok(format!("{label} can be changed only by its owner and group")),
    }
}

/// Pools whose workers share a user with the gateway or with each other.
fn users(case: &Case<'_>, notes: &mut Notes) {
    let Some(gateway) = &case.people.gateway else {
        return;
    };
    for (index, pool) in case.config.pools.iter().enumerate() {
        let Some(who) = case.people.pools.get(index).and_then(Option::as_ref) else {
            continue;
        };
        let (name, user) = (&pool.name, &who.name);
        if who.identity.uid != gateway.identity.uid {
            notes.ok(format!(
                "[pool.{name}] its workers run as {user}, the gateway as {}",
                gateway.name
            ));
        } else if case.people.starter.is_root() {
            notes.note(
                format!("[pool.{name}] its workers run as the gateway's user, {user}"),
                "its scripts can read everything that the gateway's user can read, such as other sites. They cannot stop \
                 the gateway, which gets its own user number",
                format!("user = \"{name}\" (useradd --system --no-create-home {name}), or any other separate user"),
            );
        } else {
            notes.note(
                format!("[pool.{name}] its workers run as {user}, the user who starts weir"),
                "its scripts can do everything that weir can do, even stop it; only root can change their user",
                "start weir as root with user = \"…\" in the pool, or start weir as a user who owns nothing else",
            );
        }
    }
    for (index, pool) in case.config.pools.iter().enumerate() {
        let (Some(who), Some(user)) = (
            case.people.pools.get(index).and_then(Option::as_ref),
            pool.workers().and_then(|workers| workers.user.as_ref()),
        ) else {
            continue;
        };
        let earlier = case.people.pools[..index].iter().zip(&case.config.pools);
        let mut same = earlier.filter(|(other, _)| {
            other
                .as_ref()
                .is_some_and(|other| other.identity.uid == who.identity.uid)
        });
        if let Some((_, other)) = same.next()
            && other
                .workers()
                .is_some_and(|workers| workers.user.is_some())
        {
            notes.note(
                format!(
                    "[pool.{}] and [pool.{}] both run as {user}",
                    other.name, pool.name
                ),
                "scripts of one pool can read the files of the other and kill its workers",
                "use a user for each pool if they must be separated",
            );
        }
    }
}

/// Files in roots that nobody should be able to read or change.
fn roots(case: &Case<'_>, notes: &mut Notes) {
    let mut seen = BTreeSet::new();
    for scope in case.scopes() {
        let Some(root) = &scope.settings.root else {
            continue;
        };
        let fresh = seen.insert((root.clone(), scope.settings.hide_files.clone()));
        let Ok(metadata) = fs::metadata(root) else {
            continue;
        };
        if !fresh || !metadata.is_dir() {
            continue;
        }
        let label = format!("{} root = \"{}\"", scope.label, root.display());
        if metadata.permissions().mode() & 0o002 != 0 {
            let sticky = metadata.permissions().mode() & 0o1000 != 0;
            notes.warn(
                format!("{label} can be written by everybody ({:04o})", metadata.mode() & 0o7777),
                match sticky {
                    true => "every user of this machine can put scripts there, and weir runs them as the pool's user",
                    false => "every user of this machine can put and replace scripts there, and weir runs them as the pool's user",
                },
                format!("chmod o-w {}", quoted(root)),
            );
        }
        let mut exposed = Vec::new();
        for name in SECRET {
            if root.join(name).symlink_metadata().is_ok()
                && hides(scope.settings, &format!("/{name}")).is_none()
            {
                exposed.push(name);
            }
        }
        if let [first, ..] = exposed[..] {
            notes.warn(
                format!("{label} contains {}, which hide_files does not hide", exposed.join(", ")),
                format!("clients can download /{first} or its content: passwords, keys, source code with its history"),
                "remove hide_files (its default hides dot-files), or add '/\\.' to it; better, move the file out of the root",
            );
        }
        writable_code(case, &scope, root, &label, notes);
    }
}

/// Workers that may change their own scripts.
fn writable_code(
    case: &Case<'_>,
    scope: &super::case::Scope<'_>,
    root: &Path,
    label: &str,
    notes: &mut Notes,
) {
    let Some(id) = scope.settings.pool.filter(|_| scope.is_own) else {
        return;
    };
    let Some(who) = case.worker(id).filter(|who| !who.is_root()) else {
        return;
    };
    match may(who, None, root, Need::MakeFiles) {
        Access::Yes => notes.note(
            format!("{label} can be written by its own workers ({})", who.name),
            "an attacker who exploits one script can add others, which then run. Many applications need this for their updates",
            format!("chown -R root {0} && chmod -R go-w {0}", quoted(root)),
        ),
        Access::No(_) => notes.ok(format!("{label}: its workers ({}) cannot write scripts there", who.name)),
        Access::Unseen(_) => {}
    }
}

/// A client that may speak FastCGI decides which file runs.
fn listeners(case: &Case<'_>, notes: &mut Notes) {
    for listener in &case.config.listeners {
        let Protocol::FastCgi(fastcgi) = &listener.protocol else {
            continue;
        };
        let label = format!("[listen.{}]", listener.name);
        match &listener.address {
            Address::Tcp(address)
                if fastcgi.allowed_clients.is_empty() && !address.ip().is_loopback() =>
            {
                notes.warn(
                    format!("{label} accepts FastCGI from everybody on {address}"),
                    "a FastCGI client chooses the script and the PHP settings, so this is as dangerous as an open shell",
                    "set allowed_clients = [\"…\"] to the web server's address, or use a unix socket",
                );
            }
            Address::Tcp(address) => notes.ok(format!(
                "{label} accepts FastCGI on {address} only from a few addresses"
            )),
            Address::Unix(path) if listener.mode & 0o002 != 0 => notes.warn(
                format!(
                    "{label} lets everybody connect to unix:{} ({:04o})",
                    path.display(),
                    listener.mode
                ),
                "every user of this machine can run scripts as the pool's user",
                "use mode = \"0660\" and the web server's group",
            ),
            Address::Unix(path) => {
                let group = listener.group.clone();
                let group = group.unwrap_or_else(|| group_name(case.people.starter.identity.gid));
                notes.ok(format!(
                    "{label} lets its owner and group {group} connect to unix:{}",
                    path.display()
                ));
            }
        }
    }
}

/// What tools leave in folders that become document roots.
const SECRET: [&str; 8] = [
    ".git",
    ".env",
    ".svn",
    ".hg",
    ".htpasswd",
    ".aws",
    ".ssh",
    "wp-config.php.bak",
];

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;

    fn looked(text: &str) -> Vec<String> {
        with_config(text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            said(&notes)
        })
    }

    fn root() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn what_hide_files_does_not_hide_is_told() {
        let root = root();
        fs::create_dir(root.path().join(".git")).unwrap();
        let text = |more: &str| {
            format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"{}\"\n{more}\n",
                root.path().display()
            )
        };
        assert_eq!(looked(&text("")), [""; 0]);
        let found = looked(&text("hide_files = []"));
        assert!(
            found[0].starts_with("warn: ") && found[0].contains(".git"),
            "{found:?}"
        );
    }

    #[test]
    fn a_root_that_everybody_may_write_is_told() {
        let root = root();
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"{}\"\n",
            root.path().display()
        );
        assert_eq!(looked(&text), [""; 0]);
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(looked(&text)[0].contains("chmod o-w"));
    }

    #[test]
    fn an_admin_socket_in_a_folder_of_everybody_is_told() {
        let folder = root();
        let text = format!(
            "[server]\nadmin = \"unix:{}/admin.sock\"\n[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\n",
            folder.path().display()
        );
        assert!(
            looked(&text)
                .last()
                .unwrap()
                .starts_with("ok: [server] admin")
        );
        for (mode, verdict) in [(0o777, "warn: "), (0o1777, "ok: ")] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let found = looked(&text);
            assert!(found.last().unwrap().starts_with(verdict), "{found:?}");
        }
    }

    #[test]
    fn an_admin_address_on_tcp_and_its_token_are_told() {
        let folder = root();
        let token = folder.path().join("token");
        fs::write(&token, "0123456789abcdef").unwrap();
        let looked = |address: &str, mode| {
            fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
            let text = format!(
                "[server]\nadmin = \"off\"\nadmin_tcp = \"{address}\"\nadmin_token_file = \"{}\"\n[listen.a]\n\
                 address = \":1\"\n[site.a]\nroot = \"/\"\n",
                token.display()
            );
            looked(&text)
        };
        let found = looked("127.0.0.1:9", 0o600);
        assert!(
            found.iter().all(|text| text.starts_with("ok: ")),
            "{found:?}"
        );
        let found = looked("0.0.0.0:9", 0o644);
        assert!(
            found[0].starts_with("note: ") && found[1].starts_with("warn: "),
            "{found:?}"
        );
    }

    #[test]
    fn users_that_can_reach_one_another_are_told() {
        let pool = |name: &str, more: &str| {
            format!("[pool.{name}]\nruntime = \"command\"\ncommand = [\"sh\"]\n{more}\n")
        };
        let text = format!(
            "[server]\nuser = \"nobody\"\n[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"a\"\n{}{}{}",
            pool("a", ""),
            pool("b", "user = \"daemon\""),
            pool("c", "user = \"daemon\"")
        );
        let found = looked(&text);
        assert!(found[0].starts_with("note: [pool.a]"), "{found:?}");
        assert!(
            found[1].starts_with("ok: [pool.b]") && found[2].starts_with("ok: [pool.c]"),
            "{found:?}"
        );
        assert!(
            found[3].starts_with("note: [pool.b] and [pool.c] both run as daemon"),
            "{found:?}"
        );
    }

    #[test]
    fn fastcgi_for_everybody_is_told() {
        let text = |address: &str, more: &str| {
            format!(
                "[listen.a]\naddress = \"{address}\"\nprotocol = \"fastcgi\"\npool = \"a\"\n{more}\n[pool.a]\n\
                 runtime = \"servers\"\nservers = [\"127.0.0.1:1\"]\nqueue.maxconn = 1\n"
            )
        };
        assert!(looked(&text("0.0.0.0:9000", ""))[0].starts_with("warn: "));
        let few = "allowed_clients = [\"10.0.0.1\"]";
        assert!(looked(&text("0.0.0.0:9000", few))[0].starts_with("ok: "));
        assert!(looked(&text("127.0.0.1:9000", ""))[0].starts_with("ok: "));
        assert!(looked(&text("unix:/run/a.sock", "mode = \"0666\""))[0].starts_with("warn: "));
        assert!(looked(&text("unix:/run/a.sock", ""))[0].starts_with("ok: "));
    }
}
