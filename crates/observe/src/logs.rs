//! The logs of requests and calls: opens the sink of each.

use std::{io, os::fd::OwnedFd, sync::Arc};

use weir_config::{Config, Log, LogTarget, PoolId};

use crate::{
    access_log::AccessLog,
    log_sink::{Options, Sink, Target},
    pool_log::PoolLog,
};

/// The access log.
pub fn access(log: &Log, fd: Option<OwnedFd>) -> io::Result<AccessLog> {
    let sink = open("access log", &log.access, fd)?;
    Ok(AccessLog::new(log.format.clone(), Arc::new(sink)))
}

/// The log of calls. If it is the same file as the access log, both use the same buffer.
pub fn egress(
    config: &Config,
    fd: Option<OwnedFd>,
    access_log: &AccessLog,
) -> io::Result<Option<Arc<Sink>>> {
    if config.egress.is_none() {
        return Ok(None);
    }
    if config.log.egress == config.log.access {
        return Ok(Some(access_log.sink().clone()));
    }
    let sink = open("log of calls", &config.log.egress, fd)?;
    Ok(Some(Arc::new(sink)))
}

/// The pools' own access logs, for the pools whose file the manager has passed.
pub fn pools(config: &Config, given: Vec<(u16, OwnedFd)>) -> Result<Vec<Option<PoolLog>>, String> {
    let pools = &config.pools;
    let mut logs: Vec<Option<PoolLog>> = Vec::new();
    logs.resize_with(pools.len(), || None);
    for (index, file) in given {
        let index = usize::from(index);
        let Some(pool) = pools.get(index) else {
            return Err(format!("a log for pool {index} of {}", pools.len()));
        };
        let name = match &pool.access_log {
            Some(path) => format!("access log {}", path.display()),
            None => format!("access log of pool {}", pool.name),
        };
        let sink = Sink::start(&name, Target::Fd(file), Options::default())
            .map_err(|error| format!("cannot write the {name}: {error}"))?;
        // The manager asks the workers for these figures in the same cases.
        let from_worker = pool.php().is_some() && config.is_in_place_of_fpm(PoolId(index));
        logs[index] = Some(PoolLog::new(pool, from_worker, sink));
    }
    Ok(logs)
}

fn open(name: &str, wanted: &LogTarget, fd: Option<OwnedFd>) -> io::Result<Sink> {
    let target = match (wanted, fd) {
        (LogTarget::Off, _) => Target::Off,
        (_, Some(fd)) => Target::Fd(fd),
        (LogTarget::Stderr, None) => Target::Stderr,
        (_, None) => Target::Stdout,
    };
    let name = match wanted {
        LogTarget::File(path) => format!("{name} {}", path.display()),
        _ => name.to_owned(),
    };
    Sink::start(&name, target, Options::default())
}
