//! The data plane: serves clients and files, and gives requests to workers.
//!
//! # Life of a request
//!
//! ```text
//! accept ─► carrier (weir_http) ─► exchange: the steps of a request, one function each
//!                                   │ route        host and path → file | script | reply
//!                                   ├─ files       conditionals, ranges, sendfile
//!                                   └─ script      spool ─► dispatch ─► fastcgi ─► cgi head
//!                                                     body: whole | read_ahead | stream
//!                                 answer ─► carrier ─► record ─► access_log
//! ```
//!
//! Requests of a web server in front, over FastCGI, name their script (`exchange/fastcgi_front`): they have the same steps,
//! without route.
//!
//! The modules in the order of this way: [`connections`] and the reactors they live on; [`exchange`], the steps; [`access`], who may
//! use a site; [`route`], what a path means; [`files`]; [`scripts`], the request to a script, and `scripts/fastcgi`, its worker's
//! connection; [`dispatch`], which worker it gets; [`answers`], what changes or delays an answer; [`record`], its log line. EgressContext
//! it: [`admin`], what operators see, and [`control`], the manager's messages and the end.
//!
//! There is one reactor (a thread with a runtime of its own) per thread. How many run may follow the load (`connections/reactors`). All
//! reactors share [`Gateway`], which lives as long as the process, as its pools and rules do. What belongs to a connection
//! ([`connections::client::Conn`]) or to a request ([`record::Record`]) stays on its reactor, so it is neither locked nor counted by several
//! threads. Only `dispatch` has a lock that two reactors may need at the same time.
#![forbid(unsafe_code)]

mod access;
mod admin;
mod answers;
mod connections;
mod control;
mod dispatch;
mod exchange;
mod files;
mod record;
mod route;
mod scripts;

use std::{
    cell::Cell,
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::mpsc, task::spawn_local};
use weir_config::{Address, Config, ErrorFormat, Log, LogTarget, Protocol, Runtime};
use weir_control::{
    AdminSockets, Heritage, ManagerHandle, ManagerReports, NameFiles, OperatorActions, TlsGiven,
    ToManager,
};
use weir_http::Timeouts;
use weir_interfaces::{
    admin::{Serve, Task},
    egress::{self, EgressContext, EgressView},
};
use weir_net::{Drain, start_thread};
use weir_observe::{
    access_log::{self, AccessLog},
    cache_use, clock, error_log,
    failures::{self, Failures},
    history::{History, PoolTotals},
    kernel_queues::{self, KernelQueues, KernelView},
    log_sink::{Sink, Target, blocks},
    logs,
    pool_log::PoolLog,
    pulse::{Pulses, Thread},
    tally::{self, Tally},
    template, trace,
};
use weir_sys::net_stat;
use weir_upstream::resolver::{self, Resolver};

use self::{
    access::{rates::Rates, untrusted},
    admin::{View, agent_check, metrics},
    answers::{
        cache::Pages,
        compression::{self, Compressors, KeptFiles},
    },
    connections::{
        accept, handover, limits::ConnectionLimits, quic, reactors::Reactors, serve, sweep,
        tls_settings,
    },
    control::{
        drain::{self, Flag},
        messages,
    },
    dispatch::{PoolHandle, PoolParts},
    route::{Reach, Router},
    scripts::{
        fastcgi::params,
        policy::Policy,
        self_calls::{
            self,
            callers::{AtWork, Owners},
        },
        spool::SpoolSpace,
        uploads,
    },
};

/// What all reactors share.
pub(crate) struct Gateway {
    pub(crate) config: &'static Config,
    /// The timeouts of the connections of each listener.
    pub(crate) timeouts: Vec<Timeouts>,
    /// The CGI parameters that are the same for all requests over http, and over https, encoded.
    params: [Vec<u8>; 2],
    pub(crate) router: Arc<Router>,
    /// What connections with TLS share; `None`: no listener has TLS.
    pub(crate) tls: Option<Arc<weir_tls::Server>>,
    /// What reactors need for HTTP/3, until they start.
    quic: quic::Quic,
    pub(crate) pools: Vec<&'static PoolHandle>,
    /// The policies of requests from each listener, in the configuration's order; for HTTP the router has them.
    pub(crate) listener_policies: Vec<Policy>,
    pub(crate) access_log: AccessLog,
    /// PHP-FPM's log of each pool, in the order of `pools`.
    pub(crate) pool_logs: Vec<Option<PoolLog>>,
    pub(crate) spool_space: SpoolSpace,
    pub(crate) compressors: Compressors,
    /// Compressed files.
    pub(crate) kept_files: KeptFiles,
    /// The stored pages of all sites; `None`: no site has a cache.
    pub(crate) pages: Option<Pages>,
    /// The password for the server of the cache's bus.
    pub(crate) bus_password: Option<String>,
    /// Bytes of HTTP/2 clients that nobody has read yet.
    pub(crate) http2_memory: weir_http::multiplex::Memory,
    /// What clients of HTTP/3 may send before it is read.
    pub(crate) http3_memory: weir_http::multiplex::Memory,
    /// Compressed answers since the start.
    pub(crate) compression_counts: compression::Counts,
    pub(crate) connections: ConnectionLimits,
    /// How many requests clients have sent; `None`: no site has a `rate`.
    pub(crate) rates: Option<Rates>,
    /// Counts of finished requests.
    pub(crate) tally: Arc<Tally>,
    /// Which worker a process is.
    numbers: Arc<dispatch::Numbers>,
    /// Rates of the last seconds.
    history: History,
    /// Which reactor serves a connection.
    pub(crate) reactors: Reactors,
    /// Recent errors.
    pub(crate) failures: Failures,
    /// Proxies that are not in `trusted`.
    pub(crate) untrusted: untrusted::Untrusted,
    reports: ManagerReports,
    manager: ManagerHandle,
    /// The kernel's accept queues.
    pub(crate) kernel_queues: KernelQueues,
    pub(crate) drain: Drain,
    /// Takes idle connections when this gateway drains.
    pub(crate) next: handover::NextGateway,
    /// Idle connections of gateways before this one.
    taking: handover::PreviousGateways,
    /// Set when the gateway ends and cuts running requests.
    pub(crate) cut: Drain,
    /// An operator has asked to drain this weir: it is not ready, and keeps no connections open.
    declines: AtomicBool,
    /// The admin interface accepts nothing new, because another gateway serves it now.
    admin_ends: Drain,
    started: SystemTime,
    actions: OperatorActions,
    owners: Owners,
    self_calls: self_calls::SelfCalls,
    /// The log of calls of the application: the access log's sink, or another one; `None` if there is no egress.
    egress_log: Option<Arc<Sink>>,
    egress: OnceLock<Arc<dyn EgressView>>,
    /// Set when the admin interface is closed, or if there is none.
    admin_closed: Flag,
    /// The threads that must make progress so that clients are served.
    pulses: Pulses,
    machine: dispatch::Machine,
    pub(crate) uploads: uploads::Uploads,
    /// When the last message of the manager arrived ([`clock::precise`]).
    manager_heard: AtomicU64,
    /// Listening sockets that still accept, including the admin interface.
    listening: AtomicUsize,
    requests: AtomicU64,
    /// The limit of open descriptors; `None`: no limit, or not known.
    open_files_limit: Option<u64>,
}

/// Serves what `heritage` contains until the manager requests a stop, or has ended. `egress` starts the service for the
/// application's own calls, if it is configured.
///
/// # Errors
///
/// Why it cannot serve: a configuration that cannot be compiled, or a log or thread that cannot be created.
pub fn run(
    heritage: Heritage,
    serve_admin: Serve,
    start_egress: egress::Start,
) -> Result<(), String> {
    let Heritage {
        config,
        cores,
        reactors,
        listeners,
        access_log,
        egress_log,
        pool_logs,
        error_log,
        spool_dir,
        trace,
        chroot,
        opened,
        admin,
        names,
        addresses,
        bus_password,
        egress,
        tls,
        control,
    } = heritage;
    let (mut counters, mut folders) = (None, Vec::new());
    for (path, file) in opened {
        match path == Path::new(net_stat::PATH) {
            true => counters = Some(file),
            false => folders.push((path, file)),
        }
    }
    let reach = Reach {
        chroot,
        opened: folders.into_iter().collect(),
    };
    start_error_log(error_log, &config.log)?;
    if trace {
        trace::enable().map_err(|error| format!("cannot trace: {error}"))?;
    }
    let sockets = listeners
        .iter()
        .map(|(listener, _, socket)| (*listener, socket));
    let kernel_queues = KernelQueues::new(&config, sockets, counters);
    let control = Arc::new(control);
    let manager = ManagerHandle::start(control.clone())?;
    let resolver = resolver(&config, &names)?;
    let egress = match (&config.egress, egress) {
        (Some(settings), Some(given)) => {
            let resolver = Resolver::new(&config.server.resolver, &names)?;
            Some((settings.clone(), given, resolver))
        }
        _ => None,
    };
    let files = Files {
        access_log,
        egress_log,
        pool_logs,
        spool_dir,
    };
    let surroundings = Surroundings {
        reach,
        cores,
        reactors,
        kernel_queues,
        manager,
        tls,
        bus_password,
    };
    // It lives as long as the process: so reactors, connections and requests refer to it without counting.
    let config: &'static Config = Box::leak(Box::new(config));
    let gateway: &'static Gateway = Box::leak(Box::new(Gateway::new(config, files, surroundings)?));
    if let (Some((settings, given, resolver)), Some(log)) = (egress, &gateway.egress_log) {
        let beside = EgressContext {
            workers: Arc::new(AtWork::new(gateway)),
            pulses: gateway.pulses.clone(),
            log: log.clone(),
            log_format: gateway.config.log.format.clone(),
        };
        let view = start_egress(settings, given, resolver, cores, beside)
            .map_err(|error| format!("[egress]: {error}"))?;
        // The first call, so it cannot fail.
        let _ = gateway.egress.set(view);
    }
    let resolver = resolver.map(|resolver| (resolver, addresses));
    start_reactors(gateway, reactors.acceptors(), listeners, resolver, &admin)?;
    if has_admin(&admin) {
        let view = Arc::new(View(gateway));
        start_admin(gateway, serve_admin(admin, view))?;
    }
    watch_kernel_queues(gateway)?;
    control
        .tell_manager(&ToManager::Ready)
        .map_err(|error| format!("the manager has ended: {error}"))?;
    // Frees the memory that compiling the configuration on this thread needed.
    weir_sys::memory::give_back();
    messages::obey(gateway, &control);
    end(gateway);
    Ok(())
}

/// Cuts running requests, and writes the last lines of the logs.
fn end(gateway: &Gateway) {
    // Connections that are cut here still get their line in the log.
    gateway.cut.start();
    let until = Instant::now() + CUT_LIMIT;
    while gateway.connections.count() > 0 && Instant::now() < until {
        thread::sleep(drain::LOOK);
    }
    // An operator who has requested the end must still be told that it is done.
    gateway.drain.start();
    gateway.admin_ends.start();
    gateway.admin_closed.wait(LAST_ANSWERS);
    blocks::wait_until_given(LAST_WORDS);
    gateway.access_log.sink().shutdown(LAST_WORDS);
    if let Some(log) = &gateway.egress_log {
        log.shutdown(LAST_WORDS);
    }
    for log in gateway.pool_logs.iter().flatten() {
        log.sink().shutdown(LAST_WORDS);
    }
    if let Some(pages) = &gateway.pages {
        pages.flush();
    }
    trace::flush(LAST_WORDS);
    error_log::flush(LAST_WORDS);
}

fn start_error_log(file: Option<OwnedFd>, log: &Log) -> Result<(), String> {
    if let Some(fd) = file {
        let used = match log.error {
            LogTarget::Syslog => error_log::write_to_syslog(fd, log),
            _ => error_log::write_behind(Target::Fd(fd)),
        };
        used.map_err(|error| format!("cannot write the error log: {error}"))?;
    }
    error_log::set_level(log.level);
    error_log::set_format(log.error_format);
    Ok(())
}

fn has_admin(admin: &AdminSockets) -> bool {
    admin.unix.is_some() || admin.tcp.is_some()
}

/// Starts the reactors that accept, each with its listening sockets. The first one also resolves names.
fn start_reactors(
    gateway: &'static Gateway,
    acceptors: u16,
    listeners: Vec<(u16, u16, OwnedFd)>,
    mut resolver: Option<(Resolver, Known)>,
    admin: &AdminSockets,
) -> Result<(), String> {
    let mut per_reactor: Vec<Vec<(u16, OwnedFd)>> = Vec::new();
    per_reactor.resize_with(usize::from(acceptors), Vec::new);
    for (listener, reactor, socket) in listeners {
        per_reactor
            .get_mut(usize::from(reactor))
            .ok_or_else(|| format!("a listener for reactor {reactor}, which does not accept"))?
            .push((listener, socket));
    }
    // Agent checks answer also while the gateway drains, and the drain does not wait for them.
    let accepted_from = |(listener, _): &&(u16, OwnedFd)| !gateway.is_agent_check(*listener);
    let sockets = per_reactor.iter().flatten().filter(accepted_from).count();
    let sockets = sockets + usize::from(has_admin(admin));
    gateway.listening.store(sockets, Relaxed);
    if !has_admin(admin) {
        gateway.admin_closed.set();
    }
    for (home, sockets) in per_reactor.into_iter().enumerate() {
        let resolver = match home {
            0 => resolver.take(),
            _ => None,
        };
        start_reactor(gateway, home as u16, sockets, resolver)?;
    }
    Ok(())
}

/// The resolver for the names of servers, also of the bus; `None` if none has a name.
fn resolver(config: &Config, names: &NameFiles) -> Result<Option<Resolver>, String> {
    let named = |pool: &weir_config::Pool| match &pool.runtime {
        Runtime::Servers(servers) => servers.has_names(),
        Runtime::Php(_) | Runtime::Command(_) => false,
    };
    let bus = (config.cache.as_ref()).and_then(|cache| cache.bus.as_ref());
    let bus = bus.is_some_and(|bus| matches!(bus.server, weir_config::Upstream::Named { .. }));
    match bus || config.pools.iter().any(named) {
        true => Resolver::new(&config.server.resolver, names).map(Some),
        false => Ok(None),
    }
}

/// In PHP-FPM's place: how many connections may wait in the kernel for this pool's TCP listener; 0: it has none.
fn as_fpm(config: &Config, pool: usize) -> Option<usize> {
    let is_its = |listener: &&weir_config::Listener| match &listener.protocol {
        Protocol::FastCgi(front) => front.pool.0 == pool && !front.status_only,
        Protocol::Http | Protocol::AgentCheck(_) => false,
    };
    let is_tcp = |listener: &&weir_config::Listener| matches!(listener.address, Address::Tcp(_));
    let mut listeners = config.listeners.iter().filter(is_its);
    let most = weir_sys::limits::somaxconn().unwrap_or(u32::MAX);
    let limit = listeners
        .find(is_tcp)
        .map_or(0, |listener| listener.backlog.min(most));
    (config.log.error_format == ErrorFormat::Fpm).then_some(limit as usize)
}

/// Files that the manager has opened for the gateway to write.
struct Files {
    access_log: Option<OwnedFd>,
    egress_log: Option<OwnedFd>,
    pool_logs: Vec<(u16, OwnedFd)>,
    spool_dir: Option<OwnedFd>,
}

/// State of the machine and the manager that the gateway knows.
struct Surroundings {
    reach: Reach,
    cores: usize,
    reactors: weir_control::Reactors,
    kernel_queues: KernelQueues,
    manager: ManagerHandle,
    tls: Option<TlsGiven>,
    bus_password: Option<String>,
}

impl Gateway {
    fn new(
        config: &'static Config,
        files: Files,
        surroundings: Surroundings,
    ) -> Result<Gateway, String> {
        let Surroundings {
            reach,
            cores,
            reactors,
            kernel_queues,
            manager,
            tls,
            bus_password,
        } = surroundings;
        let chroot = reach.chroot.clone();
        let router = Arc::new(Router::with_reach(config, reach)?);
        let mut tls = tls;
        let quic = quic::Quic::new(tls.as_mut().map(|given| std::mem::take(&mut given.quic)))?;
        let tls = tls_settings::server(config, tls, &router, (reactors.most, &manager))?;
        let numbers = Arc::new(dispatch::Numbers::default());
        let tally = Arc::new(Tally::new(
            reactors.most,
            config.sites.len(),
            config.pools.len(),
        ));
        let pool = |(id, pool): (usize, &'static weir_config::Pool)| {
            PoolHandle::new(PoolParts {
                id: id as u16,
                settings: pool,
                chroot: chroot.as_deref(),
                cores,
                as_fpm: as_fpm(config, id),
                manager: manager.clone(),
                tally: tally.clone(),
                numbers: numbers.clone(),
            })
        };
        let listener_policies = config
            .listeners
            .iter()
            .map(|listener| match &listener.protocol {
                Protocol::FastCgi(front) => Policy::new(&front.policy)
                    .map_err(|error| format!("[listen.{}]: {error}", listener.name)),
                Protocol::Http | Protocol::AgentCheck(_) => Ok(Policy::default()),
            });
        let listener_policies = listener_policies.collect::<Result<_, _>>()?;
        let pools = config.pools.iter().enumerate().map(pool).collect();
        let spool_dir = match files.spool_dir {
            Some(dir) => dir,
            None => weir_sys::file::open_dir(&config.server.spool_dir).map_err(|error| {
                format!(
                    "cannot open spool_dir {}: {error}",
                    config.server.spool_dir.display()
                )
            })?,
        };
        let server = &config.server;
        let access_log = logs::access(&config.log, files.access_log)
            .map_err(|error| format!("cannot write the access log: {error}"))?;
        Ok(Gateway {
            params: ["http", "https"].map(|scheme| params::of_all(scheme, &server.server_software)),
            timeouts: config.listeners.iter().map(serve::timeouts).collect(),
            egress_log: logs::egress(config, files.egress_log, &access_log)
                .map_err(|error| format!("cannot write the log of calls: {error}"))?,
            access_log,
            pool_logs: logs::pools(config, files.pool_logs)?,
            spool_space: SpoolSpace::new(spool_dir, server.max_spool),
            compressors: Compressors::new(
                match server.compress_threads {
                    0 => cores,
                    threads => threads,
                },
                server.compress_memory,
            ),
            kept_files: KeptFiles::new(server.compress_cache),
            bus_password,
            pages: (config.cache.as_ref())
                .map(|settings| Pages::new(config, settings, chroot.as_deref()))
                .transpose()
                .map_err(|error| format!("[cache]: {error}"))?,
            http2_memory: weir_http::multiplex::Memory::new(server.http2_memory as u64),
            http3_memory: weir_http::multiplex::Memory::new(server.http2_memory as u64),
            compression_counts: compression::Counts::default(),
            connections: ConnectionLimits::new(
                (server.max_connections, server.max_connections_per_address),
                reactors.most,
                config.listeners.len(),
            ),
            rates: has_rate(config).then(|| Rates::new(server.max_rate_clients)),
            reactors: Reactors::new(reactors),
            failures: Failures::default(),
            untrusted: untrusted::Untrusted::default(),
            history: History::new(tally.clone()),
            reports: ManagerReports::default(),
            declines: AtomicBool::new(false),
            tally,
            numbers,
            kernel_queues,
            drain: Drain::default(),
            next: handover::NextGateway::default(),
            taking: handover::PreviousGateways::default(),
            cut: Drain::default(),
            egress: OnceLock::new(),
            admin_ends: Drain::default(),
            started: SystemTime::now(),
            actions: OperatorActions::new(manager.clone()),
            owners: Owners::new(manager.clone()),
            manager,
            self_calls: self_calls::SelfCalls::default(),
            admin_closed: Flag::default(),
            pulses: Pulses::default(),
            machine: dispatch::Machine::default(),
            uploads: uploads::Uploads::default(),
            manager_heard: AtomicU64::new(clock::precise()),
            listening: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            open_files_limit: Some(weir_sys::limits::open_files().soft)
                .filter(|most| *most < u64::MAX),
            router,
            tls,
            quic,
            pools,
            listener_policies,
            config,
        })
    }

    fn is_agent_check(&self, listener: u16) -> bool {
        let listener = self.config.listeners.get(usize::from(listener));
        listener.is_some_and(|listener| matches!(listener.protocol, Protocol::AgentCheck(_)))
    }

    /// How long there was no message from the manager, if that is longer than expected.
    pub(crate) fn manager_silent(&self) -> Option<Duration> {
        let limit = self.config.server.gateway_timeout;
        let heard = self.manager_heard.load(Relaxed);
        let silent = Duration::from_micros(clock::precise().saturating_sub(heard));
        (!limit.is_zero() && silent > limit).then_some(silent)
    }

    /// Whether connections are closed after their answer.
    pub(crate) fn keeps_no_connections(&self) -> bool {
        self.drain.has_started() || self.declines.load(Relaxed)
    }

    /// Reads how busy the processors are, and returns the totals of all pools; once a second.
    fn measure(&self) -> Vec<PoolTotals> {
        self.machine.measure();
        let totals = self.pools.iter().map(|pool| {
            pool.measure();
            metrics::totals(pool)
        });
        totals.collect()
    }

    /// What the workers of all pools do.
    fn work(&self) -> weir_control::WorkerTotals {
        let mut work = weir_control::WorkerTotals::default();
        self.pools.iter().for_each(|pool| pool.add_to(&mut work));
        work
    }

    /// The current accept queues of the listeners.
    pub(crate) fn look_at_kernel_queues(&self) -> KernelView {
        let most = self.config.server.max_connections;
        let at_limit = || (self.connections.count() >= most).then_some(most);
        self.kernel_queues.look(&at_limit)
    }

    /// A number for the next request.
    pub(crate) fn next_request(&self) -> u64 {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        // Each reactor takes several numbers at once, so that reactors seldom share this counter.
        let next = match NEXT.get() {
            next if next % NUMBERS != 0 => next,
            _ => self.requests.fetch_add(NUMBERS, Relaxed),
        };
        NEXT.set(next + 1);
        next + 1
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gateway")
    }
}

/// The addresses of servers' names that the last gateway knew.
type Known = Vec<(String, Vec<IpAddr>)>;

/// Starts a thread that runs one reactor with its listening sockets.
fn start_reactor(
    gateway: &'static Gateway,
    home: u16,
    sockets: Vec<(u16, OwnedFd)>,
    resolver: Option<(Resolver, Known)>,
) -> Result<(), String> {
    let (sender, mailbox) = mpsc::unbounded_channel();
    let run = async move || {
        tally::count_as(home);
        blocks::collect_here();
        let pulse = gateway.pulses.add(Thread::Reactor(home));
        spawn_local(accept::take_in(gateway, home, mailbox));
        quic::start(gateway, home);
        for (listener, socket) in sockets {
            if gateway.is_agent_check(listener) {
                agent_check::start(gateway, listener, socket);
                continue;
            }
            spawn_local(async move {
                let listening = accept::listen(gateway, listener, home, socket).await;
                if let Err(error) = listening {
                    log::error!("cannot listen: {error}");
                }
                gateway.listening.fetch_sub(1, Relaxed);
            });
        }
        if home == 0 {
            let (resolver, known) = resolver.unzip();
            let (resolver, known) = (resolver.map(Arc::new), known.unwrap_or_default());
            for pool in &gateway.pools {
                spawn_local(pool.drive());
                pool.tend(resolver.as_ref(), &known);
            }
            answers::cache::bus::start(gateway, resolver.as_ref());
        }
        let start =
            |gateway: &'static Gateway, home| start_reactor(gateway, home, Vec::new(), None);
        sweep::sweep(gateway, home, pulse, start).await;
    };
    start_thread(
        format!("reactor {home}"),
        BLOCKING_THREADS,
        blocks::give,
        run,
    )
    .map_err(|error| format!("cannot start reactor {home}: {error}"))?;
    gateway.reactors.has_started(home, sender);
    Ok(())
}

/// Starts the thread of the admin interface. It is separate, so that an operator does not have to wait for busy
/// reactors.
fn start_admin(gateway: &'static Gateway, admin: Task<io::Result<()>>) -> Result<(), String> {
    let run = async move || {
        tokio::select! {
            served = admin => {
                if let Err(error) = served {
                    log::error!("the admin interface cannot be opened: {error}");
                }
            }
            () = gateway.history.keep(|| gateway.measure()) => {}
        }
        gateway.listening.fetch_sub(1, Relaxed);
        gateway.admin_closed.set();
    };
    start_thread("admin".into(), BLOCKING_THREADS, || {}, run)
        .map_err(|error| format!("cannot start the admin interface: {error}"))
}

/// Watches the kernel's queues as long as the gateway lives.
fn watch_kernel_queues(gateway: &'static Gateway) -> Result<(), String> {
    let watch = move || loop {
        gateway.look_at_kernel_queues();
        thread::sleep(kernel_queues::EVERY);
    };
    thread::Builder::new()
        .name("kernel queues".into())
        .stack_size(SMALL_STACK)
        .spawn(watch)
        .map(drop)
        .map_err(|error| format!("cannot watch the kernel's queues: {error}"))
}

/// How long connections that are cut may take to write their log lines.
const CUT_LIMIT: Duration = Duration::from_millis(500);

/// How long an ending gateway waits for the admin interface to answer.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How many threads of a reactor may wait for the disk at once.
const BLOCKING_THREADS: usize = 16;

/// How many numbers of requests a reactor takes at once.
const NUMBERS: u64 = 256;

/// The stack of a thread that writes log lines, bytes.
const SMALL_STACK: usize = 256 << 10;

/// How long an ending gateway waits for its logs to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Whether a site or route limits how many requests a client sends.
fn has_rate(config: &Config) -> bool {
    let settings = config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        std::iter::once(&site.settings).chain(routes)
    });
    settings.into_iter().any(|settings| settings.rate.is_some())
}
