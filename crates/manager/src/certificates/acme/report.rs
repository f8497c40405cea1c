//! What operators see of orders: in the status, and in metrics.

use weir_control::{CertificateOrder, CertificateOrders, ToGateway};
use weir_sys::memory;

use super::{Orders, Wanted};

impl Orders {
    /// The state of all orders, for the admin interface. `None`: nothing is ordered.
    pub(crate) fn report(&self) -> Option<ToGateway> {
        let demand = self.demand_report();
        if self.wanted.is_empty() && demand.is_none() {
            return None;
        }
        let positive = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        let of_file = self.wanted.iter().filter(|one| one.demand.is_none());
        let failing = |one: &&Wanted| one.demand.is_some() && one.state.error.is_some();
        let failing = self.wanted.iter().filter(failing).take(MOST_FAILING);
        let list = of_file.chain(failing).map(|one| CertificateOrder {
            name: one.name.clone(),
            on_demand: one.demand.is_some(),
            renew_at: positive(one.renew_at),
            done: one.done,
            failed: one.failed,
            failures: one.state.failures,
            error: one.state.error.clone(),
            failed_at: positive(one.state.at),
            next: positive(one.state.next),
        });
        let orders = CertificateOrders {
            list: list.collect(),
            demand,
        };
        let file = memory::file(c"orders", &orders.encode()).ok()?;
        Some(ToGateway::CertificateOrders(file))
    }
}

/// Certificates on demand whose last order has failed that operators see, at most.
const MOST_FAILING: usize = 100;
