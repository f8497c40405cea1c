//! The listening sockets, for clients and for the application's outgoing calls. They are bound once and kept across
//! reloads and restarts of the gateway.
//!
//! A TCP listener has one socket per reactor that accepts, over which the kernel distributes connections, or more if
//! net.core.somaxconn is lower than `backlog`. A unix listener has one socket, which these reactors share. A socket
//! that stays in the configuration stays open, so no connection in its queue is lost.

mod problems;

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::net::UnixListener,
    },
    rc::Rc,
};

use weir_config::{Address, Config, SocketPath};
use weir_control::ToGateway;
use weir_machine::limits;
use weir_sys::{
    file,
    listener::{self, Before, Rights},
};

pub use self::problems::{LONGEST_PATH, owner_of_socket, unix_owner};
use self::problems::{tcp_problem, unix_problem};
use super::own_path::{OwnFolder, OwnPath};
use crate::{
    generation::plan::{Plan, Problem},
    upgrade::SocketPlace,
};

/// The sockets of one configuration.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sockets {
    /// In the order of its listeners.
    entries: Vec<Bound>,
    /// In the order of `[egress] listen`; the workers' own comes last, if there is one.
    egress: Vec<Bound>,
}

#[derive(Debug, Clone)]
struct Bound {
    address: Address,
    ipv6only: bool,
    sockets: Vec<Rc<OwnedFd>>,
    /// UDP sockets for QUIC on the same port.
    datagrams: Vec<Rc<OwnedFd>>,
    /// The unix socket's path, if we have created it.
    name: Option<Rc<OwnPath>>,
    /// The service manager has made them: their path and rights are its own.
    given: bool,
    /// The name that it has given them.
    label: Option<String>,
    /// What sockets that were there before get when the configuration takes effect.
    due: Option<Due>,
}

/// What changes at sockets that are kept.
#[derive(Debug, Clone)]
struct Due {
    /// `None`: they have no path of ours.
    rights: Option<Rights>,
    key: String,
    backlog: u32,
}

/// An address to listen on.
struct Requested<'a> {
    address: &'a Address,
    /// NAME of the listener, by which a service manager may give its sockets.
    name: Option<&'a str>,
    ipv6only: bool,
    backlog: u32,
    rights: &'a Rights,
    /// The key that configures the address.
    key: String,
    /// Number of acceptors; each has its own TCP socket.
    acceptors: u16,
    /// Each has a UDP socket, too.
    has_datagrams: bool,
    /// The socket is in the folder that weir makes.
    is_usual: bool,
}

impl Sockets {
    /// The sockets for `config`: those of `before` if they fit, new ones otherwise.
    pub(crate) fn bind(config: &Config, plan: &Plan, before: &Self) -> Result<Self, Vec<Problem>> {
        let mut bound = Self::default();
        let mut problems = Vec::new();
        for (listener, rights) in config.listeners.iter().zip(&plan.rights) {
            let wanted = Requested {
                address: &listener.address,
                name: Some(&listener.name),
                ipv6only: listener.ipv6only,
                backlog: listener.backlog,
                rights,
                key: format!("listen.{}.address", listener.name),
                acceptors: plan.reactors.acceptors(),
                has_datagrams: listener.http3,
                is_usual: false,
            };
            match Bound::bind(&wanted, before, &plan.groups) {
                Ok(entry) => bound.entries.push(entry),
                Err(problem) => problems.push(problem),
            }
        }
        if let Some((egress, rights)) = config.egress.as_ref().zip(plan.egress_rights.as_ref()) {
            for address in &egress.listen {
                let wanted = Requested {
                    address,
                    name: None,
                    ipv6only: true,
                    backlog: EGRESS_BACKLOG,
                    rights,
                    key: "egress.listen".to_owned(),
                    // Any free thread accepts the next caller: there are few callers, and they keep
                    // their connections.
                    acceptors: 1,
                    has_datagrams: false,
                    is_usual: false,
                };
                match Bound::bind(&wanted, before, &plan.groups) {
                    Ok(entry) => bound.egress.push(entry),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        if let Some((egress, own)) = config.egress.as_ref().zip(plan.egress_socket.as_ref()) {
            let usual = egress.socket == SocketPath::Default;
            let wanted = Requested {
                address: &Address::Unix(own.path.clone()),
                name: None,
                ipv6only: true,
                backlog: EGRESS_BACKLOG,
                rights: &own.rights,
                key: "egress.socket".to_owned(),
                acceptors: 1,
                has_datagrams: false,
                is_usual: usual,
            };
            match Bound::bind(&wanted, before, &plan.groups) {
                Ok(entry) => bound.egress.push(entry),
                // The default socket is optional: calls also work over TCP.
                Err(problem) if usual => log::warn!(
                    "{}: {}: workers call over TCP; {}",
                    problem.key,
                    problem.cause,
                    problem.mend
                ),
                Err(problem) => problems.push(problem),
            }
        }
        match problems.is_empty() {
            true => Ok(bound),
            false => Err(problems),
        }
    }

    /// Gives unix sockets that were there before the rights of this configuration.
    ///
    /// # Errors
    /// What cannot be changed; then all are as they were.
    pub(crate) fn change_rights(&self) -> Result<Changed, Problem> {
        let mut changed = Changed(Vec::new());
        for entry in self.all() {
            let Some((rights, due, name)) = entry.due_rights() else {
                continue;
            };
            match listener::change_rights(&name.path, name.file, rights) {
                Ok(before) => changed.0.push(before),
                Err(error) => {
                    changed.put_back();
                    return Err(unix_problem(&due.key, &entry.address, &name.path, error));
                }
            }
        }
        Ok(changed)
    }

    /// Gives sockets that were there before the backlogs of this configuration.
    pub(crate) fn set_backlogs(&self) {
        for entry in self.all() {
            let Some(due) = &entry.due else { continue };
            for socket in &entry.sockets {
                if let Err(error) = listener::set_backlog(socket, due.backlog) {
                    log::error!("{}: its backlog cannot be set: {error}", due.key);
                }
            }
        }
    }

    /// Sets whether the paths of unix sockets are removed together with the sockets, or belong to another weir.
    pub(crate) fn set_ours(&self, is_ours: bool) {
        let paths = self.all().filter_map(|entry| entry.name.as_ref());
        paths.for_each(|path| path.set_ours(is_ours));
    }

    /// The sockets of the weir before this one.
    pub(crate) fn taken_over(list: Vec<(SocketPlace, OwnedFd)>) -> Self {
        let mut sockets = Self::default();
        let mut last: Option<SocketPlace> = None;
        for (place, socket) in list {
            let entries = match place.egress {
                true => &mut sockets.egress,
                false => &mut sockets.entries,
            };
            match entries.last_mut() {
                Some(entry) if last.as_ref() == Some(&place) => {
                    entry.sockets.push(Rc::new(socket));
                }
                _ => {
                    let address = Address::from(place.address.clone());
                    let name = match (&address, place.name) {
                        (Address::Unix(path), Some(file)) => Some(OwnPath::of_other(path, file)),
                        _ => None,
                    };
                    entries.push(Bound {
                        address,
                        ipv6only: place.ipv6only,
                        sockets: vec![Rc::new(socket)],
                        datagrams: Vec::new(),
                        name,
                        given: place.given,
                        label: None,
                        due: None,
                    });
                }
            }
            last = Some(place);
        }
        sockets
    }

    /// The sockets that the service manager gives, with their names.
    pub(crate) fn of_service_manager(list: Vec<(String, OwnedFd)>) -> Self {
        let mut sockets = Self::default();
        for (label, socket) in list {
            let address = match bound_address(&socket) {
                Some(address) if weir_sys::socket::listens(socket.as_fd()) => address,
                _ => {
                    log::warn!(
                        "the service manager gave a socket {label:?} that does not listen for connections; it is not used"
                    );
                    continue;
                }
            };
            let socket = Rc::new(socket);
            match sockets.entries.iter_mut().find(|e| e.address == address) {
                Some(entry) => entry.sockets.push(socket),
                None => sockets.entries.push(Bound {
                    address,
                    ipv6only: false,
                    sockets: vec![socket],
                    datagrams: Vec::new(),
                    name: None,
                    given: true,
                    label: Some(label),
                    due: None,
                }),
            }
        }
        sockets
    }

    /// Logs which of these sockets `others` do not use.
    pub(crate) fn say_unused(&self, others: &Self) {
        let is_used = |socket: &Rc<OwnedFd>| {
            let mut used = others.all().flat_map(|entry| &entry.sockets);
            used.any(|other| Rc::ptr_eq(socket, other))
        };
        for entry in self.all() {
            if !entry.sockets.iter().any(is_used) {
                log::warn!(
                    "the service manager gave a socket {:?} on {}, which no listener has: it is closed; write its address, or its name as NAME of [listen.NAME]",
                    entry.label.as_deref().unwrap_or_default(),
                    entry.address
                );
            }
        }
    }

    /// The UDP sockets of the weir before this one.
    pub(crate) fn take_over_datagrams(&mut self, list: Vec<(SocketPlace, OwnedFd)>) {
        for (place, socket) in list {
            let address = Address::from(place.address);
            if let Some(entry) = (self.entries.iter_mut()).find(|entry| entry.address == address) {
                entry.datagrams.push(Rc::new(socket));
            }
        }
    }

    /// All UDP sockets, for another weir.
    pub(crate) fn datagram_places(&self) -> impl Iterator<Item = (SocketPlace, &OwnedFd)> {
        self.entries.iter().flat_map(|entry| {
            let place = SocketPlace {
                egress: false,
                address: entry.address.clone().into(),
                ipv6only: entry.ipv6only,
                name: None,
                given: entry.given,
            };
            let sockets = entry.datagrams.iter();
            sockets.map(move |socket| (place.clone(), &**socket))
        })
    }

    /// All sockets, for another weir.
    pub(crate) fn places(&self) -> impl Iterator<Item = (SocketPlace, &OwnedFd)> {
        let of = |egress: bool| {
            move |entry: &'_ Bound| SocketPlace {
                egress,
                address: entry.address.clone().into(),
                ipv6only: entry.ipv6only,
                name: entry.name.as_ref().map(|name| name.file),
                given: entry.given,
            }
        };
        let listeners = self
            .entries
            .iter()
            .map(move |entry| (of(false)(entry), entry));
        let egress = self
            .egress
            .iter()
            .map(move |entry| (of(true)(entry), entry));
        listeners.chain(egress).flat_map(|(place, entry)| {
            let sockets = entry.sockets.iter();
            sockets.map(move |socket| (place.clone(), &**socket))
        })
    }

    /// The messages for the gateway: the sockets of each of the reactors that accept.
    pub(crate) fn messages(&self, acceptors: u16) -> io::Result<Vec<ToGateway>> {
        let mut messages = Vec::new();
        for (listener, entry) in (0..).zip(&self.entries) {
            // A unix socket is shared. There is one TCP socket per reactor that accepts, or more: after a reload that
            // lowered their number, the extra ones stay open, because closing them would reset the connections in
            // their queues.
            let count = entry.sockets.len().max(acceptors.into());
            for index in 0..count {
                let socket = &entry.sockets[index % entry.sockets.len()];
                messages.push(ToGateway::Listener {
                    listener,
                    reactor: (index % usize::from(acceptors)) as u16,
                    socket: socket.try_clone()?,
                });
            }
        }
        Ok(messages)
    }

    /// The messages for the gateway: the UDP sockets of each of the reactors that accept.
    pub(crate) fn datagram_messages(&self, acceptors: u16) -> io::Result<Vec<ToGateway>> {
        let mut messages = Vec::new();
        for (listener, entry) in (0..).zip(&self.entries) {
            for (index, socket) in entry.datagrams.iter().enumerate() {
                messages.push(ToGateway::Datagrams {
                    listener,
                    reactor: (index % usize::from(acceptors)) as u16,
                    socket: socket.try_clone()?,
                });
            }
        }
        Ok(messages)
    }

    /// The messages for the gateway: the sockets for outgoing calls.
    pub(crate) fn egress_messages(&self) -> io::Result<Vec<ToGateway>> {
        let mut messages = Vec::new();
        for (listener, entry) in (0..).zip(&self.egress) {
            // Each has its own queue of connections.
            for socket in &entry.sockets {
                messages.push(ToGateway::EgressListener {
                    listener,
                    socket: socket.try_clone()?,
                });
            }
        }
        Ok(messages)
    }

    /// The addresses of the listeners, with the port that the kernel chose for port 0.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.entries.iter().map(Bound::actual).collect()
    }

    /// The sockets of listeners, one per address.
    pub(crate) fn descriptors(&self) -> Vec<(Address, RawFd)> {
        let of = |entry: &Bound| Some((entry.actual(), entry.sockets.first()?.as_raw_fd()));
        self.entries.iter().filter_map(of).collect()
    }

    /// The addresses for outgoing calls; see [`addresses`](Self::addresses).
    pub(crate) fn egress_addresses(&self) -> Vec<Address> {
        self.egress.iter().map(Bound::actual).collect()
    }

    /// Closes the sockets but keeps their paths.
    pub(crate) fn close(&mut self) {
        for entry in self.entries.iter_mut().chain(&mut self.egress) {
            entry.sockets.clear();
            entry.datagrams.clear();
        }
    }

    fn all(&self) -> impl Iterator<Item = &Bound> {
        self.entries.iter().chain(&self.egress)
    }

    fn find(&self, address: &Address) -> Option<&Bound> {
        self.all().find(|entry| entry.address == *address)
    }

    /// The sockets that we already have for a listener.
    fn for_listener(&self, wanted: &Requested<'_>) -> Result<Option<&Bound>, Problem> {
        let exact = self.find(wanted.address);
        let fits = |entry: &&Bound| entry.given || entry.ipv6only == wanted.ipv6only;
        if let Some(exact) = exact {
            return Ok(Some(exact).filter(fits));
        }
        let given = || self.entries.iter().filter(|entry| entry.given);
        let mut named =
            given().filter(|entry| entry.label.is_some() && entry.label.as_deref() == wanted.name);
        if let (Some(entry), None) = (named.next(), named.next()) {
            return match (&entry.address, wanted.address) {
                (Address::Tcp(_), Address::Tcp(_)) | (Address::Unix(_), Address::Unix(_)) => {
                    Ok(Some(entry))
                }
                (there, here) => Err(Problem::new(
                    wanted.key.as_str(),
                    format!(
                        "{here}: the service manager gave a socket on {there} with this listener's name"
                    ),
                    "write that address here, or give the socket another name (FileDescriptorName=)",
                )),
            };
        }
        // A service manager that is told only a port listens on all addresses of both families.
        let Address::Tcp(here) = wanted.address else {
            return Ok(None);
        };
        Ok(given().find(|entry| {
            matches!(&entry.address, Address::Tcp(there)
                if there.port() == here.port() && there.ip().is_unspecified() && here.ip().is_unspecified())
        }))
    }

    fn has_port(&self, port: u16) -> bool {
        let has = |entry: &Bound| matches!(entry.address, Address::Tcp(a) if a.port() == port);
        self.all().any(has)
    }
}

/// Sockets whose rights were changed, as they were.
#[derive(Debug)]
pub(crate) struct Changed(Vec<Before>);

impl Changed {
    /// Gives them their rights back.
    pub(crate) fn put_back(self) {
        for before in self.0 {
            if let Err(error) = before.put_back() {
                log::error!("a socket cannot get its rights back: {error:?}");
            }
        }
    }
}

impl Bound {
    /// The sockets of `before` for that address, and new ones for those that are missing.
    fn bind(wanted: &Requested<'_>, before: &Sockets, groups: &[u32]) -> Result<Self, Problem> {
        let kept = before.for_listener(wanted)?;
        let given = kept.is_some_and(|kept| kept.given);
        let mut sockets = kept.map_or_else(Vec::new, |kept| kept.sockets.clone());
        let mut name = kept.and_then(|kept| kept.name.clone());
        if let Address::Unix(path) = wanted.address
            && !sockets.is_empty()
            && !given
            && file::named(path) != name.as_ref().map(|name| name.file)
        {
            // Clients cannot find the old socket any more. Its gateway still serves the connections in its queue.
            log::warn!(
                "{}: the socket {} was removed or replaced; it is created again",
                wanted.key,
                path.display()
            );
            sockets.clear();
        }
        let due = (!sockets.is_empty()).then(|| wanted.due(given));
        match wanted.address {
            // All reactors share them.
            _ if given => {}
            Address::Tcp(address) => {
                // All of them have the same number of sockets; more than one if the kernel's queues are shorter than
                // configured.
                let acceptors = usize::from(wanted.acceptors);
                let count = limits::sockets(wanted.backlog, weir_sys::limits::somaxconn());
                let missing = count
                    .next_multiple_of(acceptors)
                    .saturating_sub(sockets.len());
                let at = match sockets.first() {
                    Some(socket) => listener::tcp_address(socket).unwrap_or(*address),
                    None => *address,
                };
                let ours = before.has_port(address.port());
                let bind =
                    |alone| listener::tcp(at, wanted.ipv6only, wanted.backlog, missing, alone);
                let new = bind(sockets.is_empty())
                    // Another address of ours has the same port, for example a wildcard: binding beside it is
                    // possible.
                    .or_else(
                        |error| match ours && error.kind() == io::ErrorKind::AddrInUse {
                            true => bind(false),
                            false => Err(error),
                        },
                    )
                    .map_err(|error| {
                        tcp_problem((&wanted.key, wanted.address), *address, &error)
                    })?;
                sockets.extend(new.into_iter().map(Rc::new));
            }
            Address::Unix(path) if sockets.is_empty() => {
                let folder = wanted.is_usual.then(|| OwnFolder::of(path)).flatten();
                let (socket, file) = listener::unix(path, wanted.backlog, wanted.rights, groups)
                    .map_err(|error| unix_problem(&wanted.key, wanted.address, path, error))?;
                sockets.push(Rc::new(socket));
                name = Some(OwnPath::new(path, file, folder));
            }
            Address::Unix(_) => {}
        }
        let datagrams = match wanted.has_datagrams {
            true => datagrams(wanted, &sockets, kept)?,
            false => Vec::new(),
        };
        Ok(Self {
            address: wanted.address.clone(),
            ipv6only: wanted.ipv6only,
            sockets,
            datagrams,
            name,
            given,
            label: None,
            due,
        })
    }

    /// The rights that the kept socket is to have, if it is a unix socket of ours.
    fn due_rights(&self) -> Option<(&Rights, &Due, &OwnPath)> {
        let due = self.due.as_ref()?;
        Some((due.rights.as_ref()?, due, self.name.as_deref()?))
    }

    fn actual(&self) -> Address {
        match &self.address {
            Address::Tcp(address) => {
                let actual = self
                    .sockets
                    .first()
                    .map(|socket| listener::tcp_address(socket));
                Address::Tcp(actual.and_then(Result::ok).unwrap_or(*address))
            }
            unix => unix.clone(),
        }
    }
}

impl Requested<'_> {
    fn due(&self, given: bool) -> Due {
        let is_own_path = !given && matches!(self.address, Address::Unix(_));
        Due {
            rights: is_own_path.then(|| self.rights.clone()),
            key: self.key.clone(),
            backlog: self.backlog,
        }
    }
}

/// The UDP sockets beside these TCP sockets: those that there are, and new ones for those that are missing.
fn datagrams(
    wanted: &Requested<'_>,
    sockets: &[Rc<OwnedFd>],
    kept: Option<&Bound>,
) -> Result<Vec<Rc<OwnedFd>>, Problem> {
    let mut datagrams = kept.map_or_else(Vec::new, |kept| kept.datagrams.clone());
    let Address::Tcp(address) = *wanted.address else {
        return Ok(datagrams);
    };
    let at = sockets
        .first()
        .and_then(|socket| listener::tcp_address(socket).ok());
    let at = at.unwrap_or(address);
    let missing = usize::from(wanted.acceptors).saturating_sub(datagrams.len());
    // A weir that this one replaces may have sockets there.
    let bind = |alone| listener::udp(at, wanted.ipv6only, missing, alone);
    let new = bind(datagrams.is_empty())
        .or_else(
            |error| match kept.is_some() && error.kind() == io::ErrorKind::AddrInUse {
                true => bind(false),
                false => Err(error),
            },
        )
        .map_err(|error| {
            let (cause, mend) = match error.kind() {
                io::ErrorKind::AddrInUse => (
                    "this UDP port is already used by another program".to_owned(),
                    format!(
                        "stop that program, use another port, or write http3 = false; `ss -lunp 'sport = :{}'` shows the program",
                        at.port()
                    ),
                ),
                io::ErrorKind::PermissionDenied => (
                    "only root can use a UDP port below 1024".to_owned(),
                    "start weir as root, give it CAP_NET_BIND_SERVICE, or use a port of 1024 or higher".to_owned(),
                ),
                _ => (error.to_string(), "use another address".to_owned()),
            };
            Problem::new(wanted.key.as_str(), format!("{at} over UDP: {cause}"), mend)
        })?;
    datagrams.extend(new.into_iter().map(Rc::new));
    Ok(datagrams)
}

/// Where a socket is bound; `None`: at no address that a listener can have.
fn bound_address(socket: &OwnedFd) -> Option<Address> {
    if let Ok(address) = listener::tcp_address(socket) {
        return Some(Address::Tcp(address));
    }
    let unix = UnixListener::from(socket.try_clone().ok()?)
        .local_addr()
        .ok()?;
    Some(Address::Unix(unix.as_pathname()?.to_owned()))
}

/// Backlog of each address of `[egress]`.
const EGRESS_BACKLOG: u32 = 4096;
