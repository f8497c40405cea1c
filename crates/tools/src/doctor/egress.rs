//! `[egress]`: whether its sockets can be created and reached, which callers are allowed, which files it needs, and
//! whether names can be resolved.

mod socket;

use std::{
    fs,
    net::ToSocketAddrs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use weir_config::{Address, Egress, HostSettings, OriginHost, Scheme, SecretPiece};
use weir_manager::memory;

use super::{
    Notes,
    case::Case,
    files::size,
    people::Who,
    rights::{Access, Cause, Need, may, quoted},
};

/// All checks; none if there is no egress.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let Some(egress) = &case.config.egress else {
        return;
    };
    for address in &egress.listen {
        match address {
            Address::Unix(path) => unix(case, egress, path, notes),
            Address::Tcp(address) => tcp(egress, *address, notes),
        }
    }
    let own = socket::look(case, egress, notes);
    locked_in(case, egress, own.as_deref(), notes);
    allowed(egress, notes);
    secrets(case, egress, notes);
    certificates(egress, notes);
    memory(egress, notes);
    names(egress, notes);
}

/// A unix socket: whether it can be created, and the workers may connect.
fn unix(case: &Case<'_>, egress: &Egress, path: &Path, notes: &mut Notes) {
    let label = format!("[egress] listen = \"unix:{}\"", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let starter = &case.people.starter;
    match may(starter, None, folder, Need::MakeFiles) {
        Access::Yes => notes.ok(format!("{label}: {} can create it", starter.name)),
        Access::No(barrier) => {
            let mend = match barrier.cause {
                Cause::Missing => format!(
                    "install -d {}; in /run, RuntimeDirectory= of the systemd unit",
                    quoted(folder)
                ),
                _ => barrier.mend(starter),
            };
            let what = format!("{label}: {} cannot create it: {barrier}", starter.name);
            notes.breaks(what, "weir does not start", mend);
            return;
        }
        Access::Unseen(at) => return notes.barred(&label, &at),
    }
    for (pool, who) in case.config.pools.iter().zip(&case.people.pools) {
        let Some(who) = who else {
            continue;
        };
        let chroot = pool.workers().and_then(|workers| workers.chroot.as_ref());
        if chroot.is_some_and(|chroot| !path.starts_with(chroot)) {
            // Reported for all addresses together.
            continue;
        }
        let of_pool = format!(
            "{label}: the workers of [pool.{}] ({})",
            pool.name, who.name
        );
        if !lets(egress, starter, who) {
            notes.breaks(
                format!("{of_pool} cannot connect with mode {:04o}", egress.mode),
                "their calls fail with \"permission denied\"",
                format!("set group = \"…\" in [egress] to a group of {}", who.name),
            );
            continue;
        }
        match may(who, None, folder, Need::Enter) {
            Access::Yes => notes.ok(format!("{of_pool} can connect")),
            Access::No(barrier) => notes.breaks(
                format!("{of_pool} cannot reach it: {barrier}"),
                "their calls fail with \"permission denied\"",
                barrier.mend(who),
            ),
            Access::Unseen(at) => notes.barred(&of_pool, &at),
        }
    }
}

/// Whether the socket's mode allows somebody to connect.
fn lets(egress: &Egress, starter: &Who, who: &Who) -> bool {
    let owner = egress
        .owner
        .as_deref()
        .and_then(|name| Who::named(name, None));
    let owner = owner.map_or(starter.identity.uid, |owner| owner.identity.uid);
    let group = egress.group.as_deref().and_then(Who::member);
    let group = group.map_or(starter.identity.gid, |group| group.identity.gid);
    let identity = &who.identity;
    let shift = if identity.uid == owner {
        6
    } else if identity.gid == group || identity.groups.contains(&group) {
        3
    } else {
        0
    };
    identity.uid == 0 || egress.mode >> shift & 0o2 != 0
}

/// A TCP address: who may call there.
fn tcp(egress: &Egress, address: std::net::SocketAddr, notes: &mut Notes) {
    let label = format!("[egress] listen = \"{address}\"");
    match (&egress.token_file, address.ip().is_loopback()) {
        (None, _) => notes.note(
            format!("{label} can be used by every process on this machine"),
            "everybody with an account here can call the hosts in `allow`, with the credentials that weir adds",
            "listen = [\"unix:PATH\"], where file permissions control access; or token_file",
        ),
        (Some(_), true) => notes.ok(format!("{label} can be used by processes on this machine that have the token")),
        (Some(_), false) => notes.warn(
            format!("{label} can be reached from other machines and is not encrypted"),
            "anybody who can read the traffic sees the token and the calls",
            "use a loopback address, or an encrypted tunnel between the machines",
        ),
    }
}

/// Pools in a chroot from which no address can be reached.
fn locked_in(case: &Case<'_>, egress: &Egress, own: Option<&Path>, notes: &mut Notes) {
    let has_tcp = (egress.listen.iter()).any(|address| matches!(address, Address::Tcp(_)));
    for pool in &case.config.pools {
        let Some(chroot) = pool.workers().and_then(|workers| workers.chroot.as_ref()) else {
            continue;
        };
        let reaches =
            |address: &Address| matches!(address, Address::Unix(path) if path.starts_with(chroot));
        let own_reaches = own.is_some_and(|own| own.starts_with(chroot));
        if !has_tcp && !own_reaches && !egress.listen.iter().any(reaches) {
            notes.warn(
                format!(
                    "[pool.{}] has the chroot {}, and no socket of [egress] is inside it",
                    pool.name,
                    chroot.display()
                ),
                "its workers cannot make calls through weir: WEIR_EGRESS is not set for them",
                format!(
                    "listen = [\"unix:{}\", …] in [egress], or a loopback address",
                    chroot.join("run/egress.sock").display()
                ),
            );
        }
    }
}

/// Which hosts may be called.
fn allowed(egress: &Egress, notes: &mut Notes) {
    if egress.allow.is_empty() {
        notes.warn(
            "[egress] allow is empty: no call is allowed",
            "every call is refused with 403 not_allowed",
            "allow = [\"api.example.com\"]",
        );
        return;
    }
    let open = egress.allow.iter().filter(|rule| match &rule.origin.host {
        // `*.example.com` belongs to one owner; `*.com` and `*` match everybody.
        OriginHost::Suffix(suffix) => suffix.matches('.').count() < 2,
        OriginHost::Name(_) | OriginHost::Ip(_) => false,
    });
    for rule in open {
        notes.note(
            format!("[egress] allow: {rule} lets scripts call hosts that anybody can register"),
            "a hacked script can send stolen data to its own host",
            "list only the hosts that are needed",
        );
    }
    let clear = egress
        .allow
        .iter()
        .filter(|rule| rule.origin.scheme == Scheme::Http);
    for rule in clear.filter(|rule| rule.addresses.is_empty()) {
        notes.note(
            format!("[egress] allow: {rule} is called over the internet without encryption"),
            "requests and answers can be read and changed on the way",
            format!(
                "allow = \"{}\", and `upgrade` if the application uses http",
                rule.origin.host
            ),
        );
    }
    notes.ok(format!(
        "[egress] allow has {} {}; all other calls are refused",
        egress.allow.len(),
        if egress.allow.len() == 1 {
            "rule"
        } else {
            "rules"
        }
    ));
}

/// Files with secrets: the manager must be able to read them, but not everybody.
fn secrets(case: &Case<'_>, egress: &Egress, notes: &mut Notes) {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    let token = egress.token_file.iter();
    files.extend(token.map(|file| ("token_file".to_owned(), file.clone())));
    for settings in all_settings(egress) {
        for (name, secret) in &settings.set_headers {
            for piece in &secret.0 {
                if let SecretPiece::File(file) = piece {
                    files.push((format!("set_headers {name}"), file.clone()));
                }
            }
        }
        let key = settings.client_cert.iter();
        files.extend(key.map(|(_, key)| ("client_cert (its key)".to_owned(), key.clone())));
    }
    files.sort();
    files.dedup();
    let starter = &case.people.starter;
    for (what, file) in files {
        let label = format!("[egress] {what}: {}", file.display());
        match may(starter, None, &file, Need::Read) {
            Access::Yes => {}
            Access::No(barrier) => {
                notes.breaks(
                    format!("{label}: {} cannot read it: {barrier}", starter.name),
                    "weir does not start",
                    barrier.mend(starter),
                );
                continue;
            }
            Access::Unseen(at) => {
                notes.barred(&label, &at);
                continue;
            }
        }
        match fs::metadata(&file).map(|metadata| metadata.mode() & 0o7777) {
            Ok(mode) if mode & 0o004 != 0 => notes.warn(
                format!("{label} can be read by everybody ({mode:04o})"),
                "the application should not have this secret, but can read it there",
                format!("chmod o-r {}", quoted(&file)),
            ),
            Ok(_) => notes.ok(format!("{label} cannot be read by everybody")),
            Err(_) => {}
        }
    }
}

fn certificates(egress: &Egress, notes: &mut Notes) {
    for table in egress.hosts.iter().filter(|table| !table.settings.verify) {
        let place = format!("[egress.host.{}]", table.name);
        notes.warn(
            format!("{place} verify = false: certificates are not checked"),
            "an attacker on the network path can answer instead of the host, and gets the credentials that weir adds",
            "set ca_file = \"…\" to the certificate of the authority that signed it",
        );
    }
}

fn memory(egress: &Egress, notes: &mut Notes) {
    let total = memory::total();
    let what = format!(
        "[egress] cache_size = {} of {}",
        size(egress.cache_size),
        size(total)
    );
    match egress.cache_size > total / 4 {
        true => notes.warn(
            what,
            "the cache may take more than a quarter of the memory, which workers need too",
            format!("cache_size = \"{}M\" or less", (total / 4) >> 20),
        ),
        false => notes.ok(what),
    }
}

/// The complete names of `allow`, resolved by this system in parallel.
fn names(egress: &Egress, notes: &mut Notes) {
    let mut names: Vec<&str> = Vec::new();
    for rule in &egress.allow {
        if let OriginHost::Name(name) = &rule.origin.host
            && !names.contains(&name.as_str())
        {
            names.push(name);
        }
    }
    let (tell, told) = mpsc::channel();
    let asked = names.iter().take(MOST_NAMES);
    for name in asked.clone() {
        let (tell, name) = (tell.clone(), (*name).to_owned());
        thread::spawn(move || {
            let found = (name.as_str(), 0).to_socket_addrs().map(Iterator::count);
            // A late answer is not needed any more.
            let _ = tell.send((name, found));
        });
    }
    let until = Instant::now() + NAMES;
    let mut silent: Vec<&str> = asked.copied().collect();
    while !silent.is_empty() {
        let Ok((name, found)) = told.recv_timeout(until.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        silent.retain(|other| *other != name);
        match found {
            Ok(_) => notes.ok(format!("[egress] allow: {name} resolves")),
            Err(error) => notes.warn(
                format!("[egress] allow: the name {name} does not resolve: {error}"),
                "calls to it fail with dns_error",
                "correct the name, or /etc/hosts, /etc/resolv.conf, or resolver = [\"…\"] in [server]",
            ),
        }
    }
    for name in silent {
        notes.warn(
            format!(
                "[egress] allow: the DNS lookup of {name} got no answer within {} s",
                NAMES.as_secs()
            ),
            "calls to it fail with dns_timeout",
            "check that the DNS servers in /etc/resolv.conf answer",
        );
    }
    if names.len() > MOST_NAMES {
        notes.unseen(
            format!(
                "[egress] allow: whether {} more names resolve",
                names.len() - MOST_NAMES
            ),
            format!("only the first {MOST_NAMES} are looked up"),
        );
    }
}

fn all_settings(egress: &Egress) -> impl Iterator<Item = &HostSettings> {
    let tables = egress.hosts.iter().map(|table| &table.settings);
    std::iter::once(&egress.defaults).chain(tables)
}

/// Time limit for resolving all names.
const NAMES: Duration = Duration::from_secs(3);

/// Maximum number of names that are resolved.
const MOST_NAMES: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::{said, with_config};
    use super::*;

    /// The findings for `[egress]` with these lines, without those that are fine.
    fn found(lines: &str) -> Vec<String> {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n\
             [pool.app]\nruntime = \"command\"\ncommand = [\"sh\"]\nmax_children = 1\n[egress]\n{lines}\n"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            let found = said(&notes).into_iter();
            found.filter(|text| !text.starts_with("ok: ")).collect()
        })
    }

    #[track_caller]
    fn has(found: &[String], parts: &[&str]) {
        let fits = |text: &String| parts.iter().all(|part| text.contains(part));
        assert!(found.iter().any(fits), "{parts:?}: {found:#?}");
    }

    #[test]
    fn what_is_missing_or_open_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "a-secret-of-some-length").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        let found = found(&format!(
            "listen = [\"unix:{0}/none/egress.sock\", \"127.0.0.1:8083\"]\n\
             allow = [\"*.com\", \"http://no-such-host.invalid\", \"localhost\"]\n\
             [egress.host.own]\nhosts = [\"localhost\"]\nverify = false\n\
             set_headers = {{ Authorization = \"Bearer ${{file:{0}/secret}}\" }}\n",
            folder.path().display()
        ));
        has(
            &found,
            &["break: ", "none/egress.sock", "weir does not start"],
        );
        has(
            &found,
            &["note: ", "127.0.0.1:8083", "every process on this machine"],
        );
        has(
            &found,
            &[
                "note: ",
                "*.com lets scripts call hosts that anybody can register",
            ],
        );
        has(
            &found,
            &[
                "note: ",
                "http://no-such-host.invalid",
                "without encryption",
            ],
        );
        has(
            &found,
            &[
                "warn: ",
                "set_headers",
                "can be read by everybody (0644)",
                "chmod o-r",
            ],
        );
        has(&found, &["warn: ", "verify = false"]);
    }

    #[test]
    fn names_that_are_not_found_are_told() {
        let found = found(
            "listen = [\"127.0.0.1:8083\"]\nallow = [\"no-such-host.invalid\", \"localhost\"]\n",
        );
        has(&found, &["warn: ", "no-such-host.invalid"]);
        assert!(
            !found.iter().any(|text| text.contains("localhost")),
            "{found:#?}"
        );
    }

    #[test]
    fn an_egress_that_is_well_is_not_complained_of() {
        let folder = tempfile::tempdir().unwrap();
        // The folder belongs to the user who runs the tests; if that is root, the workers have the gateway's user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let found = found(&format!(
            "listen = [\"unix:{}/egress.sock\"]\nmode = \"0666\"\nallow = [\"localhost\"]\n",
            folder.path().display()
        ));
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_socket_that_workers_may_not_connect_to_is_told() {
        let egress = |mode: u32| {
            let text = format!(
                "[egress]\nlisten = [\"unix:/run/x.sock\"]\nmode = \"{mode:04o}\"\nallow = [\"localhost\"]\n"
            );
            let environment = weir_config::Environment::of_this_machine(Path::new("/"));
            let config = weir_config::parse("weir.toml", &text, &environment).unwrap();
            config.egress.unwrap()
        };
        let (root, other) = (Who::numbered(0, 0), Who::numbered(64_001, 64_001));
        assert!(!lets(&egress(0o660), &root, &other));
        assert!(lets(&egress(0o666), &root, &other));
        assert!(lets(&egress(0o660), &other, &other));
        assert!(lets(&egress(0o600), &other, &root));
    }
}
