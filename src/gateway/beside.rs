//! What the egress is told of workers ([`crate::sidecar`]).

use std::sync::Arc;

use super::Gateway;
use crate::{
    sidecar::{WorkerNow, Workers},
    window::Task,
};

/// The workers of all pools, for the egress.
pub(super) struct AtWork(pub(super) Arc<Gateway>);

impl Workers for AtWork {
    fn of_pid(&self, _: u32) -> Option<WorkerNow> {
        None
    }

    fn busy_pids(&self) -> Vec<u32> {
        Vec::new()
    }

    fn owner(&self, _: u32) -> Task<Option<u32>> {
        Box::pin(async { None })
    }
}
