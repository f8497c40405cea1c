//! The manager's messages to a running gateway.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use weir_control::{ToGateway, ToManager};
use weir_net::ACCEPT_PAUSE;
use weir_observe::{clock, error_log, seldom::Seldom};
use weir_pool::MemoryView;

use super::drain;
use crate::{
    Gateway,
    admin::{certificates, programs},
    connections::{handover, tls_settings},
    dispatch::{NewWorker, PoolHandle},
    route,
    scripts::run::connection::WorkerConn,
};

/// Messages that wait for a descriptor.
static WAITING: Seldom = Seldom::new(1);

/// Handles the manager's messages until it requests a stop, or has ended.
pub(crate) fn obey(gateway: &'static Gateway, control: &Arc<weir_control::Channel>) {
    // The chain whose key comes next.
    let mut chain = None;
    // The pools whose first workers may still be missing.
    let mut starting = gateway.pools.iter().peekable();
    loop {
        let message = match control.next_for_gateway() {
            Ok(Some(ToGateway::Stop) | None) => return,
            Ok(Some(message)) => message,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if route::is_out_of_descriptors(&error) => {
                if let Some(more) = WAITING.line() {
                    log::error!(
                        "a message of the manager waits, because this process has too many files open: raise the limit of open files \
                         (LimitNOFILE of the service), or lower max_connections{more}"
                    );
                }
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
            Err(error) => {
                log::error!("a message of the manager is not valid: {error}");
                return;
            }
        };
        gateway.manager_heard.store(clock::precise(), Relaxed);
        match message {
            ToGateway::CertificateChain { index, file } => chain = Some((index, file)),
            ToGateway::CertificateKey { index, file } => {
                if let Some((of, chain)) = chain.take().filter(|(of, _)| *of == index) {
                    tls_settings::change_own(gateway, of, &chain, &file);
                }
            }
            message => perform(gateway, message),
        }
        if starting.peek().is_some() {
            while starting.next_if(|pool| pool.has_started()).is_some() {}
            if starting.peek().is_none() {
                gateway.manager.tell(ToManager::WorkersStarted);
            }
        }
    }
}

fn perform(gateway: &'static Gateway, message: ToGateway) {
    match message {
        ToGateway::Ping => {
            let silent = gateway.pulses.silent().as_millis();
            let silent = u32::try_from(silent).unwrap_or(u32::MAX);
            let work = gateway.work();
            gateway.manager.tell(ToManager::Alive { silent, work });
        }
        ToGateway::AccessLog(fd) => gateway.access_log.sink().reopen(fd),
        ToGateway::EgressLog(fd) => {
            if let Some(log) = &gateway.egress_log {
                log.reopen(fd);
            }
        }
        ToGateway::PoolLog { pool, file } => {
            if let Some(Some(log)) = gateway.pool_logs.get(usize::from(pool)) {
                log.sink().reopen(file);
            }
        }
        ToGateway::ErrorLog(fd) => error_log::reopen(fd),
        ToGateway::Owner { id, owner } => gateway.owners.told(id, owner),
        ToGateway::Former { id, found, later } => gateway.owners.told_former(id, found, later),
        ToGateway::ActionDone { id, done, text } => gateway.actions.done(id, done, text),
        ToGateway::Decline { on } => gateway.declines.store(on, Relaxed),
        ToGateway::PoolUse { pools } => gateway.reports.pools(pools),
        ToGateway::SlowPlace(place) => {
            let mut pools = gateway.pools.iter();
            if let Some(pool) = pools.find(|pool| pool.settings.name == place.pool) {
                pool.is_slow_at(place);
            }
        }
        ToGateway::PoolsReady {
            start_number,
            version,
            exposed,
            pools,
        } => {
            let handles = pools
                .iter()
                .map(|pool| gateway.pools.get(usize::from(*pool)));
            for pool in handles.flatten() {
                pool.has_php(&version, exposed);
                pool.ready(start_number);
            }
        }
        ToGateway::Zygote {
            pool,
            pid,
            declined,
        } => {
            if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                pool.has_zygote(pid, declined);
            }
        }
        ToGateway::PhpLoad {
            template,
            own,
            pools,
        } => {
            let handles = (pools.iter()).map(|pool| gateway.pools.get(usize::from(*pool)));
            for pool in handles.flatten() {
                pool.has_load(template, &own);
            }
        }
        ToGateway::OwnUse {
            manager,
            gateway: own,
            counts,
        } => gateway.reports.own(manager, own, counts),
        ToGateway::ManagerLog(log) => gateway.reports.log(log),
        ToGateway::OldGeneration(old) => gateway.reports.old_generation(old),
        ToGateway::LastReload { ago, done, text } => gateway.reports.last_reload(ago, done, text),
        ToGateway::CertificateOrders(file) => certificates::set_orders(gateway, &file),
        ToGateway::Programs(file) => programs::set(gateway, &file),
        ToGateway::Certificates(file) => tls_settings::change(gateway, &file),
        ToGateway::CertificateRefused { name, pause } => {
            let demand = gateway
                .tls
                .as_ref()
                .and_then(|server| server.demand.as_ref());
            if let Some(demand) = demand {
                demand.refuse(&name, Duration::from_secs(pause.into()));
            }
        }
        ToGateway::Challenges { number, file } => {
            tls_settings::set_challenges(gateway, number, &file)
        }
        ToGateway::TicketKeys(secrets) => {
            if let Some(server) = &gateway.tls {
                server.tickets.set(&secrets.keys);
            }
        }
        ToGateway::Signer { reactor, socket } => {
            if let Some(server) = &gateway.tls {
                server.signers.set(usize::from(reactor), socket);
            }
        }
        ToGateway::GiveConnections(channel) => gateway.next.set(channel),
        ToGateway::TakeConnections(channel) => handover::take(gateway, channel),
        ToGateway::Drain { last } => drain::drain(gateway, last),
        message => perform_for_pool(&gateway.pools, message),
    }
}

fn perform_for_pool(pools: &[&'static PoolHandle], message: ToGateway) {
    let number = match &message {
        ToGateway::Worker { pool, .. }
        | ToGateway::WorkerExited { pool, .. }
        | ToGateway::PoolDown { pool, .. }
        | ToGateway::StartFailed { pool, .. }
        | ToGateway::Memory { pool, .. }
        | ToGateway::Limits { pool, .. } => *pool,
        // The other messages come only before the gateway starts.
        _ => return,
    };
    let Some(pool) = pools.get(usize::from(number)) else {
        return;
    };
    match message {
        ToGateway::Worker {
            worker,
            pid,
            start_number,
            used,
            connection,
            ..
        } => {
            let conn = match pool.settings.php() {
                Some(_) => WorkerConn::of_worker(connection),
                None => WorkerConn::to_program(connection),
            };
            let worker = NewWorker {
                number: worker,
                pid,
                start_number,
                used,
            };
            pool.worker_ready(worker, conn);
        }
        ToGateway::WorkerExited {
            worker,
            exit,
            killed,
            ..
        } => pool.worker_exited(worker, exit, killed),
        ToGateway::PoolDown { message, .. } => pool.down(message),
        ToGateway::StartFailed { count, .. } => pool.start_failed(count as usize),
        ToGateway::Memory {
            worker_cost,
            available,
            pressure,
            ..
        } => pool.memory(MemoryView {
            worker_cost,
            available,
            pressure,
        }),
        ToGateway::Limits {
            max_children,
            maxconn,
            ..
        } => pool.set_limits(max_children, maxconn),
        _ => {}
    }
}
