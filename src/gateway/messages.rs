//! The manager's messages to a gateway that serves.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use weir_pool::MemoryView;

use super::{Gateway, dispatch::NewWorker, drain, measured::PoolUse, worker_conn::WorkerConn};
use crate::{
    clock,
    control::{ToGateway, ToManager},
    error_log,
};

/// Obeys the manager's messages until it says stop, or is gone.
pub(super) fn obey(gateway: &Arc<Gateway>, control: &Arc<crate::control::Channel>) {
    loop {
        let message = match control.next_for_gateway() {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                log::error!("a message of the manager is not valid: {error}");
                return;
            }
        };
        gateway.manager_heard.store(clock::precise(), Relaxed);
        match message {
            ToGateway::Ping => {
                let silent = gateway.pulses.silent().as_millis();
                let silent = u32::try_from(silent).unwrap_or(u32::MAX);
                let work = gateway.work();
                (gateway.manager.0)(ToManager::Alive { silent, work });
            }
            ToGateway::Worker {
                pool,
                worker,
                pid,
                generation,
                used,
                connection,
            } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    let conn = match pool.settings.php() {
                        Some(_) => WorkerConn::of_worker(connection),
                        None => WorkerConn::to_program(connection),
                    };
                    let worker = NewWorker {
                        number: worker,
                        pid,
                        generation,
                        used,
                    };
                    pool.worker_ready(worker, conn);
                }
            }
            ToGateway::PoolReady {
                pool,
                generation,
                version,
                exposed,
            } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.has_php(version, exposed);
                    pool.ready(generation);
                }
            }
            ToGateway::StartFailed { pool, count } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.start_failed(count as usize);
                }
            }
            ToGateway::Memory {
                pool,
                worker_cost,
                available,
                pressure,
            } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.memory(MemoryView {
                        worker_cost,
                        available,
                        pressure,
                    });
                }
            }
            ToGateway::WorkerExited {
                pool,
                worker,
                exit,
                killed,
                ..
            } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.worker_exited(worker, exit, killed);
                }
            }
            ToGateway::PoolDown { pool, message } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.down(message);
                }
            }
            ToGateway::AccessLog(fd) => gateway.access_log.sink().reopen(fd),
            ToGateway::EgressLog(fd) => {
                if let Some(log) = &gateway.egress_log {
                    log.reopen(fd);
                }
            }
            ToGateway::Owner { id, owner } => gateway.owners.told(id, owner),
            ToGateway::Former { id, found, later } => gateway.owners.told_former(id, found, later),
            ToGateway::PoolLog { pool, file } => {
                if let Some(Some(log)) = gateway.pool_logs.get(usize::from(pool)) {
                    log.sink().reopen(file);
                }
            }
            ToGateway::ErrorLog(fd) => error_log::reopen(fd),
            ToGateway::ActionDone { id, done, text } => gateway.asked.done(id, done, text),
            ToGateway::Decline { on } => gateway.declines.store(on, Relaxed),
            ToGateway::Limits {
                pool,
                max_children,
                maxconn,
            } => {
                if let Some(pool) = gateway.pools.get(usize::from(pool)) {
                    pool.set_limits(max_children, maxconn);
                }
            }
            ToGateway::PoolUse {
                pool,
                all,
                worker_memory,
            } => gateway.measured.pool(pool, PoolUse { all, worker_memory }),
            ToGateway::OwnUse {
                manager,
                gateway: own,
                counts,
            } => gateway.measured.own(manager, own, counts),
            ToGateway::ManagerLog(log) => gateway.measured.log(log),
            ToGateway::OldGeneration(old) => gateway.measured.old_generation(old),
            ToGateway::LastReload { ago, done, text } => {
                gateway.measured.last_reload(ago, done, text);
            }
            ToGateway::Drain { last } => drain::drain(gateway, last),
            ToGateway::Stop => return,
            // These messages come only before the gateway starts.
            ToGateway::Jail(_)
            | ToGateway::Config { .. }
            | ToGateway::Listener { .. }
            | ToGateway::SpoolDir(_)
            | ToGateway::Opened { .. }
            | ToGateway::EgressListener { .. }
            | ToGateway::EgressFiles(_)
            | ToGateway::Addresses { .. }
            | ToGateway::Window(_)
            | ToGateway::WindowTcp(_)
            | ToGateway::WindowToken(_)
            | ToGateway::Start => {}
        }
    }
}
