//! The gateway's first steps, in its own process: receives what the manager sends, and gives up its privileges.
//!
//! The order matters. The first message has the user and chroot, and nothing else is read before they are applied.
//! The configuration's text, which is long and comes from a file, is parsed without privileges.

use std::{
    collections::HashSet,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use weir_config::{Config, Environment};
use weir_control::{
    AdminSockets, Channel, EgressFiles, EgressGiven, Heritage, Jail, NameFiles, Reactors, Source,
    TlsFiles, TlsGiven, ToGateway, ToManager,
};
use weir_observe::{console, log_text};
use weir_sys::{file, identity, limits, memory, process, version};

/// The argument that starts the program as a gateway. Only the manager uses it.
pub(crate) const ROLE: &str = "--role=gateway";

/// Whether this process was started as a gateway.
pub fn is_gateway() -> bool {
    process::has_role(ROLE)
}

/// Receives what the manager sends.
///
/// # Errors
/// If something is missing, or privileges cannot be given up. The manager was told why, if possible.
pub fn enter() -> Result<Heritage, String> {
    let channel = process::take_inherited(0)
        .map(Channel::new)
        .map_err(|error| format!("the gateway was not started by a manager: {error}"))?;
    let parent = process::parent();
    let greeted = version::be_greeted(channel.as_fd(), "weir's gateway");
    match greeted.and_then(|()| receive(&channel, parent)) {
        Ok(given) => given.into_heritage(channel),
        Err(message) => Err(complain(&channel, message)),
    }
}

/// Receives everything before `Start`, including the jail.
fn receive(channel: &Channel, parent: u32) -> Result<Received, String> {
    let mut given = Received::default();
    loop {
        let message = channel
            .next_for_gateway()
            .map_err(|error| error.to_string())?;
        match message.ok_or("the manager has ended")? {
            ToGateway::Jail(jail) => {
                // These files cannot be reached in the chroot.
                given.names = NameFiles::read();
                lock_in(&jail, parent)?;
                given.jail = Some(jail);
            }
            ToGateway::Start => return Ok(given),
            _ if given.jail.is_none() => {
                return Err("the manager did not send the limits for this process first".into());
            }
            ToGateway::Config {
                source,
                trace,
                reactors,
                text,
            } => {
                let text =
                    memory::read(text.as_fd(), MAX_TEXT).map_err(|error| error.to_string())?;
                let config = parse(&source, &text)?;
                given.config = Some((config, source.cores as usize, trace, reactors));
            }
            ToGateway::Listener {
                listener,
                reactor,
                socket,
            } => {
                given.listeners.push((listener, reactor, socket));
            }
            ToGateway::AccessLog(log) => given.access_log = Some(log),
            ToGateway::EgressLog(log) => given.egress_log = Some(log),
            ToGateway::PoolLog { pool, file } => given.pool_logs.push((pool, file)),
            ToGateway::ErrorLog(log) => given.error_log = Some(log),
            ToGateway::SpoolDir(folder) => given.spool_dir = Some(folder),
            ToGateway::AdminUnix(socket) => given.admin.unix = Some(socket),
            ToGateway::AdminTcp(socket) => given.admin.tcp = Some(socket),
            ToGateway::AdminToken(token) => given.admin.token = Some(token),
            ToGateway::BusPassword(password) => given.bus_password = Some(password),
            ToGateway::Opened { path, file } => given.opened.push((path, file)),
            ToGateway::Addresses { name, addresses } => given.addresses.push((name, addresses)),
            ToGateway::EgressListener { listener, socket } => {
                given.egress_listeners.push((listener, socket));
            }
            ToGateway::EgressFiles(file) => {
                let bytes = memory::read(file.as_fd(), EgressFiles::MAX_ENCODED);
                let bytes = bytes.map_err(|error| format!("[egress]: its files: {error}"))?;
                let files = EgressFiles::decode(&bytes).map_err(|error| error.to_string())?;
                given.egress_files = Some(files);
            }
            ToGateway::Certificates(file) => {
                let bytes = memory::read(file.as_fd(), TlsFiles::MAX_ENCODED);
                let bytes = bytes.map_err(|error| format!("certificates: {error}"))?;
                let files = TlsFiles::decode(&bytes).map_err(|error| error.to_string())?;
                given.tls.get_or_insert_default().files = files;
            }
            ToGateway::CertificateChain { index, file } => given.chain = Some((index, file)),
            ToGateway::CertificateKey { index, file } => match given.chain.take() {
                Some((of, chain)) if of == index => {
                    let tls = given.tls.get_or_insert_default();
                    tls.pairs.push((index, chain, file));
                }
                _ => return Err("the manager gave a key without its chain".into()),
            },
            ToGateway::Signer { reactor, socket } => {
                let tls = given.tls.get_or_insert_default();
                tls.signers.push((reactor, socket));
            }
            ToGateway::TicketKeys(keys) => given.tls.get_or_insert_default().tickets = keys,
            ToGateway::Quic { gateway, secret } => {
                given.tls.get_or_insert_default().quic.secret = Some((gateway, secret));
            }
            ToGateway::Datagrams {
                listener,
                reactor,
                socket,
            } => {
                let quic = &mut given.tls.get_or_insert_default().quic;
                quic.sockets.push((listener, reactor, socket));
            }
            ToGateway::Inbox { reactor, socket } => {
                let quic = &mut given.tls.get_or_insert_default().quic;
                quic.inboxes.push((reactor, socket));
            }
            ToGateway::Outbox {
                gateway,
                reactor,
                socket,
            } => {
                let quic = &mut given.tls.get_or_insert_default().quic;
                quic.outboxes.push((gateway, reactor, socket));
            }
            ToGateway::Stop => {
                return Err("the manager stopped this gateway before it was ready".into());
            }
            other => return Err(format!("the manager sent a message too early: {other:?}")),
        }
    }
}

/// Changes to the user and folder that the manager has sent, permanently.
fn lock_in(jail: &Jail, parent: u32) -> Result<(), String> {
    // The name only appears in process lists, so an error is no reason to end.
    let _ = process::set_name(c"weir-gateway");
    // Its files cannot be reached in the chroot.
    log_text::load_time_zone();
    weir_sys::cpu::keep_machine_open();
    limits::raise_open_files().map_err(|error| format!("open files: {error}"))?;
    if let Some(chroot) = &jail.chroot {
        identity::chroot(chroot)
            .map_err(|error| format!("chroot to {} failed: {error}", chroot.display()))?;
    }
    if let Some(identity) = &jail.identity {
        match jail.own_user {
            None => identity::become_identity(identity),
            Some(own) => identity::become_guarded(identity, own),
        }
        .map_err(|error| format!("cannot become user {}: {error}", identity.uid))?;
        identity::not_dumpable().map_err(|error| error.to_string())?;
    }
    identity::no_new_privileges().map_err(|error| error.to_string())?;
    match process::end_with_parent(parent) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the manager has ended".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse(source: &Source, text: &[u8]) -> Result<Config, String> {
    let text = str::from_utf8(text).map_err(|error| error.to_string())?;
    let environment = Environment {
        folder: source.folder.clone(),
        cores: source.cores as usize,
        memory: source.memory,
        open_files: source.open_files,
    };
    weir_config::parse(&source.name, text, &environment)
        .map_err(|diagnostics| diagnostics.to_string())
}

/// The messages that were received so far.
#[derive(Default)]
struct Received {
    jail: Option<Jail>,
    config: Option<(Config, usize, bool, Reactors)>,
    listeners: Vec<(u16, u16, std::os::fd::OwnedFd)>,
    access_log: Option<std::os::fd::OwnedFd>,
    egress_log: Option<std::os::fd::OwnedFd>,
    pool_logs: Vec<(u16, std::os::fd::OwnedFd)>,
    error_log: Option<std::os::fd::OwnedFd>,
    spool_dir: Option<std::os::fd::OwnedFd>,
    admin: AdminSockets,
    bus_password: Option<String>,
    names: NameFiles,
    addresses: Vec<(String, Vec<std::net::IpAddr>)>,
    opened: Vec<(PathBuf, std::os::fd::OwnedFd)>,
    egress_listeners: Vec<(u16, std::os::fd::OwnedFd)>,
    egress_files: Option<EgressFiles>,
    tls: Option<TlsGiven>,
    /// The chain whose key comes next.
    chain: Option<(u32, std::os::fd::OwnedFd)>,
}

impl Received {
    fn into_heritage(self, channel: Channel) -> Result<Heritage, String> {
        let Some((config, cores, trace, reactors)) = self.config else {
            return Err(complain(
                &channel,
                "the manager sent no configuration".into(),
            ));
        };
        let heritage = Heritage {
            config,
            cores,
            reactors,
            listeners: self.listeners,
            access_log: self.access_log,
            egress_log: self.egress_log,
            pool_logs: self.pool_logs,
            error_log: self.error_log,
            spool_dir: self.spool_dir,
            admin: self.admin,
            bus_password: self.bus_password,
            trace,
            chroot: self.jail.and_then(|jail| jail.chroot),
            opened: self.opened,
            names: self.names,
            addresses: self.addresses,
            egress: self.egress_files.map(|files| EgressGiven {
                listeners: self.egress_listeners,
                files,
            }),
            tls: self.tls,
            control: channel,
        };
        match check(&heritage) {
            Ok(()) => Ok(heritage),
            Err(message) => Err(complain(&heritage.control, message)),
        }
    }
}

/// Tests with the new user what the gateway will need. An impossible start is reported as an error, missing things as
/// warnings.
fn check(heritage: &Heritage) -> Result<(), String> {
    if heritage.egress.is_some() != heritage.config.egress.is_some() {
        return Err("the files for [egress] do not match the configuration".into());
    }
    if let Some(spool) = &heritage.spool_dir {
        file::temp_file(spool.as_fd()).map_err(|error| {
            format!(
                "[server] spool_dir: {} cannot be written by the gateway's user:  \
                 {error}\n  give that user write access, or use another folder",
                heritage.config.server.spool_dir.display()
            )
        })?;
    }
    let mut looked_at = HashSet::new();
    for site in &heritage.config.sites {
        let routes = site.routes.iter().map(|route| &route.settings);
        for root in std::iter::once(&site.settings)
            .chain(routes)
            .filter_map(|s| s.root.as_deref())
        {
            if !looked_at.insert(root) {
                continue;
            }
            if let Err(error) = look_into(heritage, root) {
                let message = format!(
                    "[site.{}] root: the gateway's user cannot open {}: {error}; give it access \
                     to that folder and those above it",
                    site.name,
                    root.display()
                );
                heritage
                    .control
                    .tell_manager(&ToManager::Warning(message))
                    .map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

fn look_into(heritage: &Heritage, root: &Path) -> io::Result<()> {
    let folder = heritage.folder(root)?;
    file::open_beneath(folder.as_fd(), b".", file::Open::default()).map(drop)
}

/// Tells the manager why this gateway ends, and returns the message. Without a manager (somebody used the role's
/// argument) it is printed to standard error.
pub fn complain(channel: &Channel, message: String) -> String {
    if channel
        .tell_manager(&ToManager::Failed(message.clone()))
        .is_err()
    {
        console::say(format_args!("weir: gateway: {message}\n"));
    }
    message
}

/// Maximum length of a configuration.
const MAX_TEXT: usize = 16 << 20;
