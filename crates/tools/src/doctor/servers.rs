//! `servers` of pools, checked as the gateway's user: whether their sockets can be reached, whether a server is
//! listening there, and how many workers it has, if a PHP-FPM configuration of this machine shows that.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use socket2::{Domain, SockAddr, Socket, Type};
use weir_config::{Address, Check, Pool, Runtime, Servers, Upstream, fpm};
use weir_fpm::look;

use super::{
    Notes,
    case::Case,
    rights::{Access, Cause, Need, may},
};

/// Checks every server of every pool.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    for pool in &case.config.pools {
        let Runtime::Servers(servers) = &pool.runtime else {
            continue;
        };
        for server in &servers.list {
            match &server.address {
                Upstream::At(Address::Unix(path)) => unix(case, pool, path, notes),
                Upstream::At(Address::Tcp(address)) => tcp(pool, *address, notes),
                Upstream::Named { host, port } => named(pool, host, *port, notes),
            }
        }
        taken_out(pool, servers, notes);
        workers_behind(pool, servers, &case.fpms, notes);
    }
}

/// A name, resolved by this system. weir itself uses /etc/hosts and DNS, and does not find names that only other
/// services of this system know.
fn named(pool: &Pool, host: &str, port: u16, notes: &mut Notes) {
    let label = format!("[pool.{}] servers: {host}:{port}", pool.name);
    let (tell, told) = mpsc::channel();
    let asked = (host.to_owned(), port);
    thread::spawn(move || {
        let found = asked.to_socket_addrs().map(Vec::from_iter);
        // A late answer is not needed any more.
        let _ = tell.send(found);
    });
    match told.recv_timeout(NAMES) {
        Ok(Ok(addresses)) => {
            notes.ok(format!("{label} has {} addresses", addresses.len()));
            for address in addresses.into_iter().take(MOST_ADDRESSES) {
                tcp(pool, address, notes);
            }
        }
        Ok(Err(error)) => notes.breaks(
            format!("{label}: the name does not resolve: {error}"),
            "requests for this server are answered with 503 no_worker until it does",
            "correct the name, or /etc/hosts, /etc/resolv.conf, or resolver = [\"…\"] in [server]",
        ),
        Err(_) => notes.warn(
            format!(
                "{label}: the DNS lookup got no answer within {} s",
                NAMES.as_secs()
            ),
            "a server whose address is not known gets no requests",
            "check that the DNS servers in /etc/resolv.conf answer",
        ),
    }
}

/// Checks that something takes a dead server down.
fn taken_out(pool: &Pool, servers: &Servers, notes: &mut Notes) {
    if servers.check == Check::Off && servers.max_fails == 0 && servers.list.len() > 1 {
        notes.warn(
            format!("[pool.{}] check is off, and max_fails = 0", pool.name),
            "a server that hangs still gets requests; each of them fails after connect_timeout \
             or read_timeout",
            "max_fails = 3, or check = \"tcp\"",
        );
    }
}

fn unix(case: &Case<'_>, pool: &Pool, path: &Path, notes: &mut Notes) {
    let label = format!("[pool.{}] servers: unix:{}", pool.name, path.display());
    if let Some(gateway) = &case.people.gateway {
        match may(gateway, None, path, Need::Write) {
            Access::Yes => notes.ok(format!(
                "{label}: the gateway's user, {}, can connect",
                gateway.name
            )),
            Access::No(barrier) if barrier.cause == Cause::Missing => {
                notes.breaks(
                    format!("{label}: {barrier}"),
                    "requests for this server are answered with 503 no_worker until the server listens there",
                    "start the server, or correct the path",
                );
                return;
            }
            Access::No(barrier) => {
                let mut mend = barrier.mend(gateway);
                if barrier.at == path {
                    mend = format!(
                        "in PHP-FPM: listen.acl_users = {0}, or set listen.group to a group of {0}",
                        gateway.name
                    );
                }
                notes.breaks(
                    format!(
                        "{label}: the gateway's user, {}, cannot connect: {barrier}",
                        gateway.name
                    ),
                    "requests for this server are answered with 503 no_worker",
                    mend,
                );
            }
            Access::Unseen(at) => notes.barred(&label, &at),
        }
    }
    if fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
        notes.breaks(
            format!("{label} is not a socket"),
            "requests for this server are answered with 503 no_worker",
            "write the path that the server listens on (listen = … of PHP-FPM)",
        );
        return;
    }
    match connect_unix(path) {
        Ok(()) => notes.ok(format!("{label}: a server is listening there")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => notes.breaks(
            format!("{label}: nothing is listening there"),
            "the socket file is left over from an earlier process; requests are answered with 503 no_worker",
            "start the server",
        ),
        // A permission problem was already reported for the relevant users; or the accept queue is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => notes.warn(
            format!("{label}: its accept queue is full"),
            "it is overloaded",
            "check what it is doing; weir watch shows its queue",
        ),
        Err(_) => {}
    }
}

fn tcp(pool: &Pool, address: SocketAddr, notes: &mut Notes) {
    let label = format!("[pool.{}] servers: {address}", pool.name);
    let limit = pool.connect_timeout.min(PATIENCE);
    match TcpStream::connect_timeout(&address, limit) {
        Ok(_) => notes.ok(format!("{label}: a server is listening there")),
        Err(error) => {
            let (cause, mend) = match error.kind() {
                ErrorKind::ConnectionRefused => (
                    "nothing is listening there".into(),
                    "start the server, or correct the address",
                ),
                ErrorKind::TimedOut | ErrorKind::WouldBlock => (
                    format!("no answer within {} s", limit.as_secs_f64()),
                    "check that the host is up and that no firewall blocks the connection",
                ),
                _ => (error.to_string(), "correct the address, or the route to it"),
            };
            notes.breaks(
                format!("{label}: {cause}"),
                "requests for this server are answered with 503 no_worker",
                mend,
            );
        }
    }
}

/// Compares `maxconn` with the PHP-FPM pools of this machine.
fn workers_behind(pool: &Pool, servers: &Servers, fpms: &[fpm::Fpm], notes: &mut Notes) {
    let mut behind = 0_usize;
    let mut names = Vec::new();
    for server in &servers.list {
        let Some((fpm, found)) = self::behind(fpms, &server.address) else {
            return;
        };
        behind += usize::try_from(found.pm_max_children).unwrap_or(0);
        names.push(format!(
            "[{}] of {} has {}",
            found.name, fpm.file, found.pm_max_children
        ));
        silence(pool, found, notes);
        pinged(pool, servers, found, notes);
    }
    let (maxconn, names) = (pool.queue.maxconn, names.join(", "));
    let label = format!("[pool.{}.queue] maxconn = {maxconn}", pool.name);
    if behind == 0 {
    } else if servers.adaptive.is_some() {
        notes.note(
            format!("[pool.{}] maxconn is not set, but the number of workers is known: {names} (pm.max_children)", pool.name),
            "weir has to find by measuring how many requests a server can take, which needs some time after each start",
            format!("[pool.{}.queue] maxconn = {behind}", pool.name),
        );
    } else if maxconn > behind {
        notes.warn(
            format!("{label} is more than the {behind} workers behind it: {names} (pm.max_children)"),
            "the excess requests wait in the server's accept queue, where weir cannot see, order or cancel them",
            format!("maxconn = {behind}"),
        );
    } else if maxconn < behind {
        notes.note(
            format!("{label}, but {behind} workers are behind it: {names} (pm.max_children)"),
            format!("{} of them never get a request from here", behind - maxconn),
            format!("maxconn = {behind}, if nothing else uses these workers"),
        );
    } else {
        notes.ok(format!(
            "{label} is the number of workers behind it: {names}"
        ));
    }
}

/// Connects to a unix socket, and closes it. Does not wait: a full accept queue is [`ErrorKind::WouldBlock`]
/// (unix(7)).
///
/// # Errors
/// As connect(2).
pub(super) fn connect_unix(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

/// Compares the path of checks with the paths that PHP-FPM answers.
fn pinged(pool: &Pool, servers: &Servers, found: &fpm::Pool, notes: &mut Notes) {
    let Check::FastCgi(path) = &servers.check else {
        return;
    };
    let there = [&found.ping_path, &found.pm_status_path];
    if there.iter().any(|known| known.as_ref() == Some(path)) {
        notes.ok(format!(
            "[pool.{}] check_path = \"{path}\" is answered by PHP-FPM's [{}]",
            pool.name, found.name
        ));
    } else {
        notes.note(
            format!(
                "[pool.{}] check_path = \"{path}\" is not ping.path of PHP-FPM's [{}]",
                pool.name, found.name
            ),
            "unless a script has that name, the answer is 404 and the server counts as down",
            match &found.ping_path {
                Some(ping) => format!("check_path = \"{ping}\""),
                None => format!("ping.path = {path} in PHP-FPM's [{}]", found.name),
            },
        );
    }
}

/// How long a script may be silent, in weir and in PHP-FPM.
fn silence(pool: &Pool, found: &fpm::Pool, notes: &mut Notes) {
    let terminate = found.request_terminate_timeout;
    let own = pool.read_timeout.as_secs();
    if terminate > 0
        && u64::try_from(terminate).unwrap_or(0) > own
        && pool.request_terminate_timeout.is_zero()
    {
        notes.note(
            format!(
                "[pool.{}] read_timeout = {own} s, and request_terminate_timeout of PHP-FPM's [{}] is {terminate} s",
                pool.name, found.name
            ),
            "a script that prints nothing for longer is answered with 504 but keeps running, so its worker looks \
             free when it is not",
            format!("read_timeout = \"{terminate}s\", or request_terminate_timeout = {own} in PHP-FPM"),
        );
    }
}

/// The PHP-FPM pool that listens on this address.
pub(super) fn behind<'f>(
    fpms: &'f [fpm::Fpm],
    address: &Upstream,
) -> Option<(&'f fpm::Fpm, &'f fpm::Pool)> {
    let mut pools = fpms
        .iter()
        .flat_map(|fpm| fpm.pools.iter().map(move |pool| (fpm, pool)));
    let Upstream::At(address) = address else {
        return None;
    };
    pools.find(|(_, pool)| listens(pool, address))
}

/// Whether a PHP-FPM pool listens on this address.
fn listens(pool: &fpm::Pool, address: &Address) -> bool {
    let Some(listen) = pool.listen.as_deref() else {
        return false;
    };
    match address {
        Address::Unix(path) => {
            let expanded = listen.replace("$pool", &pool.name);
            let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            same(Path::new(&expanded)) == same(path)
        }
        Address::Tcp(address) => {
            let port = address.port().to_string();
            listen == address.to_string() || listen == port && address.ip().is_loopback()
        }
    }
}

/// The PHP-FPM configurations of this machine, in the folders of Debian's packages.
pub(super) fn configurations() -> Vec<fpm::Fpm> {
    let versions = fs::read_dir("/etc/php").into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| entry.path().join("fpm/php-fpm.conf");
    let mut files: Vec<PathBuf> = versions.map(file).filter(|file| file.exists()).collect();
    files.sort();
    files.iter().filter_map(|file| look::pools(file)).collect()
}

/// Time limit for resolving a name.
const NAMES: Duration = Duration::from_secs(10);

/// Maximum number of addresses that are tried per name.
const MOST_ADDRESSES: usize = 16;

/// Time limit for a connection.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use std::{net::TcpListener, os::unix::net::UnixListener};

    fn looked(servers: &str, more: &str) -> Vec<String> {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"farm\"\n[pool.farm]\nruntime = \"servers\"\n\
             servers = [{servers}]\nqueue = {{ maxconn = 4 }}\n{more}"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            said(&notes)
        })
    }

    #[test]
    fn a_server_that_answers_is_fine_and_one_that_left_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fpm.sock");
        let server = format!("\"unix:{}\"", path.display());
        let found = looked(&server, "");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("does not exist"),
            "{found:?}"
        );
        let listener = UnixListener::bind(&path).unwrap();
        assert!(
            looked(&server, "")
                .iter()
                .any(|f| f.starts_with("ok: ") && f.contains("a server is listening"))
        );
        drop(listener);
        let found = looked(&server, "");
        assert!(
            found
                .iter()
                .any(|f| f.starts_with("break: ") && f.contains("nothing is listening")),
            "{found:?}"
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(
            looked(&server, "")
                .iter()
                .any(|f| f.contains("is not a socket"))
        );
    }

    #[test]
    fn a_port_is_tried_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("\"{}\"", listener.local_addr().unwrap());
        assert!(looked(&server, "")[0].starts_with("ok: "));
        drop(listener);
        assert!(looked(&server, "")[0].contains("nothing is listening there"));
    }

    #[test]
    fn a_name_is_looked_up_and_its_addresses_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // As a server this is not a name: weir.toml's localhost is 127.0.0.1.
        let text = "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"farm\"\n[pool.farm]\n\
                    runtime = \"servers\"\nservers = [\"127.0.0.1:1\"]\n";
        let found = with_config(text, |case| {
            let mut notes = Notes::default();
            named(&case.config.pools[0], "localhost", port, &mut notes);
            said(&notes)
        });
        assert!(
            found[0].starts_with("ok: ") && found[0].contains("localhost"),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|f| f.contains("127.0.0.1") && f.contains("a server is listening")),
            "{found:?}"
        );
        // RFC 2606: this name never exists.
        let found = looked("\"weir.invalid:9000\"", "");
        assert!(!found[0].starts_with("ok: "), "{found:?}");
    }

    #[test]
    fn what_takes_servers_out_and_what_they_answer_is_told() {
        let servers = "\"127.0.0.1:1\", \"127.0.0.1:2\"";
        let told = |more: &str| {
            looked(servers, more)
                .iter()
                .any(|f| f.contains("max_fails = 0"))
        };
        assert!(told("max_fails = 0"));
        assert!(!told(""));
        let pinged = |ping: &str, check_path: &str| {
            let folder = tempfile::tempdir().unwrap();
            let conf = folder.path().join("php-fpm.conf");
            let pool = "user = nobody\ngroup = nogroup\nlisten = /run/x.sock\npm = static\npm.max_children = 1\n";
            std::fs::write(
                &conf,
                format!("[global]\nerror_log = /dev/null\n[www]\n{pool}{ping}"),
            )
            .unwrap();
            let fpm = look::pools(&conf).expect("a configuration");
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"farm\"\n[pool.farm]\n\
                 runtime = \"servers\"\nservers = [\"unix:/run/x.sock\"]\ncheck = \"fastcgi\"\n{check_path}\n"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                let Runtime::Servers(servers) = &case.config.pools[0].runtime else {
                    panic!("servers");
                };
                super::pinged(&case.config.pools[0], servers, &fpm.pools[0], &mut notes);
                said(&notes).remove(0)
            })
        };
        assert!(pinged("ping.path = /ping\n", "").starts_with("ok: "));
        assert!(pinged("ping.path = /alive\n", "").ends_with("check_path = \"/alive\""));
        assert!(pinged("", "check_path = \"/up\"").contains("ping.path = /up"));
    }

    #[test]
    fn maxconn_is_held_against_the_children_of_the_fpm_that_listens_there() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("php-fpm.conf");
        let write = |children: u32| {
            let user = "user = nobody\ngroup = nogroup\n";
            let text = format!(
                "[global]\nerror_log = /dev/null\n[www]\n{user}listen = /run/no-such-fpm.sock\npm = static\npm.max_children = {children}\n"
            );
            std::fs::write(&conf, text).unwrap();
            vec![look::pools(&conf).expect("a configuration")]
        };
        let text = "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"farm\"\n[pool.farm]\nruntime = \"servers\"\n\
                    servers = [\"unix:/run/no-such-fpm.sock\"]\nqueue = { maxconn = 10 }\n";
        let looked = |children| {
            with_config(text, |case| {
                let mut notes = Notes::default();
                let Runtime::Servers(servers) = &case.config.pools[0].runtime else {
                    panic!("servers");
                };
                workers_behind(&case.config.pools[0], servers, &write(children), &mut notes);
                said(&notes)
            })
        };
        assert!(looked(4)[0].starts_with("warn: ") && looked(4)[0].contains("maxconn = 4"));
        assert!(looked(10)[0].starts_with("ok: "));
        assert!(looked(20)[0].starts_with("note: "));
    }
}
