//! The egress proxy (sidecar): the application's outgoing calls, over connections that are shared by all workers.
//!
//! # Life of a call
//!
//! ```text
//! listen ─► serve, http ─► call: the steps, one function each
//!                              │ target       parses the target: path form, proxy form, CONNECT
//!                              │ rules        may it be called?
//!                              ├─ tunnel      bytes, for CONNECT
//!                              ├─ cache       a stored answer, or that of an equal running call
//!                              │ host         its origin: breaker, limiter (limit and queue), budget of retries
//!                              │ headers      headers that are passed on, and that are set
//!                              └─ connections a kept one, or dial: names ─► address ─► TCP ─► tls
//!                              answer (body) ─► compress ─► caller ─► record ─► log, figures
//! ```
//!
//! It runs on its own threads in the gateway's process, so that slow scripts and slow origins do not affect each
//! other. It does not use the gateway's modules; what it must know about workers comes through
//! [`weir_interfaces::egress::Workers`].
#![forbid(unsafe_code)]

mod body;
mod cache;
mod call;
mod callers;
#[cfg(any(test, feature = "checks"))]
#[path = "../tests/checks/mod.rs"]
pub mod checks;
mod complaints;
mod compress;
mod figures;
mod headers;
mod host;
mod listen;
mod log;
mod message;
mod outgoing;
mod record;
mod rules;
mod running_call;
mod serve;
mod status;
mod target;
mod tunnel;
mod upload;

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Semaphore, task::spawn_local};
use weir_config::Address;

use self::{
    cache::Cache,
    callers::Callers,
    complaints::Complaints,
    dial::Dialer,
    figures::{CacheState, Figures},
    host::Hosts,
    listen::Entrance,
    log::CallLog,
    rules::Rules,
    status::View,
};
use weir_control::EgressGiven;
use weir_interfaces::egress::{EgressContext, EgressView};
use weir_net::Drain;
use weir_observe::pulse::{Pulse, Thread};
use weir_upstream::{connections, dial, fault, limiter, origin, origin_tls, resolver::Resolver};

/// Shared by the connections of all callers.
pub(crate) struct Egress {
    settings: Arc<weir_config::Egress>,
    /// The token that callers over TCP must send; `None`: no token.
    token: Option<String>,
    rules: Arc<Rules>,
    hosts: Hosts,
    /// `None`: no answers are cached.
    cache: Option<Arc<Cache>>,
    dialer: Arc<Dialer>,
    callers: Arc<Callers>,
    figures: Arc<Figures>,
    view: View,
    log: CallLog,
    complaints: Complaints,
    drain: Drain,
    /// One place per caller's connection.
    places: Arc<Semaphore>,
    /// Number of threads that still accept callers.
    listening: AtomicUsize,
}

/// Starts the egress on its own threads; it ends with the process.
///
/// # Errors
/// What prevents it from serving: a file without a certificate, or a thread that cannot be started.
pub fn start(
    settings: weir_config::Egress,
    given: EgressGiven,
    resolver: Resolver,
    cores: usize,
    beside: EgressContext,
) -> Result<Arc<dyn EgressView>, String> {
    let settings = Arc::new(settings);
    let figures = Figures::new(settings.max_hosts);
    let token = match &settings.token_file {
        Some(path) => Some(given.files.token(path)?.to_owned()),
        None => None,
    };
    let own = given.files.socket.clone();
    let users = given.files.users.iter();
    let users = users
        .map(|(pool, uid)| (pool.as_str().into(), *uid))
        .collect();
    let files = Arc::new(given.files);
    let dialer = Arc::new(Dialer::new(&settings, resolver, figures.clone()));
    let contexts = origin_tls::TlsContexts::new(&settings, &files)?;
    let hosts = Hosts::new(
        settings.clone(),
        files,
        dialer.clone(),
        contexts,
        figures.clone(),
    );
    let mut tables = settings.hosts.iter().map(|host| &host.settings);
    let any_is_kept = settings.defaults.cache || tables.any(|host| host.cache);
    let cache = any_is_kept.then(|| Cache::new(settings.cache_size, settings.cache_max_object));
    if let Some(cache) = &cache {
        let cache: Arc<dyn CacheState> = cache.clone();
        figures.watch_cache(Arc::downgrade(&cache));
    }
    let threads = match settings.threads {
        0 => cores.div_ceil(CORES_PER_THREAD),
        threads => threads,
    };
    let egress = Arc::new(Egress {
        token,
        rules: hosts.rules(),
        hosts,
        cache,
        dialer,
        callers: Callers::new(beside.workers, users),
        view: View::new(
            &settings,
            own.as_ref().map(|(path, _)| path.as_path()),
            figures.clone(),
        ),
        figures,
        log: CallLog::new(&beside.log_format, beside.log),
        complaints: Complaints::default(),
        drain: Drain::default(),
        places: Arc::new(Semaphore::new(settings.max_connections)),
        listening: AtomicUsize::new(threads),
        settings,
    });
    let mut per_thread: Vec<Vec<(Entrance, OwnedFd)>> = Vec::new();
    per_thread.resize_with(threads, Vec::new);
    let own = own.map(|(path, users)| Entrance {
        address: Address::Unix(path),
        only: Some(users.into()),
    });
    for (index, socket) in given.listeners {
        let listed = egress.settings.listen.get(usize::from(index));
        let listed = listed.map(|address| Entrance {
            address: address.clone(),
            only: None,
        });
        let is_own = usize::from(index) == egress.settings.listen.len();
        let entrance = listed.or_else(|| own.clone().filter(|_| is_own));
        let entrance = entrance.ok_or_else(|| format!("a socket for [egress] listen {index}"))?;
        // Each thread accepts from each socket; a free thread gets the connection.
        for sockets in per_thread.iter_mut().skip(1) {
            let copy = socket.try_clone().map_err(|error| error.to_string())?;
            sockets.push((entrance.clone(), copy));
        }
        per_thread[0].push((entrance, socket));
    }
    for (number, sockets) in per_thread.into_iter().enumerate() {
        start_thread(&egress, number, sockets, beside.pulses.add(Thread::Egress))?;
    }
    Ok(egress)
}

fn start_thread(
    egress: &Arc<Egress>,
    number: usize,
    sockets: Vec<(Entrance, OwnedFd)>,
    pulse: Pulse,
) -> Result<(), String> {
    let egress = egress.clone();
    let run = async move || {
        spawn_local(pulse.keep());
        spawn_local(serve::sweep(egress.clone()));
        let accepting = egress.clone();
        spawn_local(async move {
            listen::listen(accepting.clone(), sockets).await;
            accepting.listening.fetch_sub(1, Relaxed);
        });
        if number > 0 {
            return std::future::pending().await;
        }
        egress.hosts.prepare();
        loop {
            egress.hosts.tend();
            tokio::time::sleep(TEND_EVERY).await;
        }
    };
    weir_net::start_thread(format!("egress {number}"), BLOCKING_THREADS, || {}, run)
        .map_err(|error| format!("cannot start egress thread {number}: {error}"))
}

impl EgressView for Egress {
    fn status(&self) -> serde_json::Value {
        self.view.status()
    }

    fn running_calls(&self, pool: &str) -> Vec<(String, u64)> {
        self.view.running_calls(pool)
    }

    fn put_metrics(&self, page: &mut weir_observe::metrics::Page) {
        self.view.put_metrics(page);
    }

    fn drain(&self) {
        self.drain.start();
    }

    fn is_done(&self) -> bool {
        let idle = self.places.available_permits() == self.settings.max_connections;
        self.listening.load(Relaxed) == 0 && idle
    }
}

/// Number of cores per thread, if the configuration sets no number; the other cores are for the workers.
const CORES_PER_THREAD: usize = 4;

/// Blocking threads of each egress thread, for work that takes long, such as finding out the caller.
const BLOCKING_THREADS: usize = 4;

/// How often connections are maintained.
const TEND_EVERY: Duration = Duration::from_secs(1);
