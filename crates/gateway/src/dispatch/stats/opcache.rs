//! How full the OPcache of a pool is, as its workers tell.

use crate::dispatch::{PoolHandle, scaling::Scaling};

impl PoolHandle {
    /// The share of OPcache that is in use, in thousandths; `None`: no worker of the pool's present start has looked yet, or it has none.
    pub(crate) fn opcache_used(&self) -> Option<u16> {
        let state = self.state();
        let present = state.scaling.as_ref().map(Scaling::start_number);
        let (start_number, used) = state.opcache?;
        (present == Some(start_number)).then_some(used)
    }
}
