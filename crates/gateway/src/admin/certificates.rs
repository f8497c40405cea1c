//! The certificates of this gateway for the admin interface: until when they are valid, and what becomes of their orders.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use weir_config::{AutoCertificate, Certificate, Issuer};
use weir_control::{CertificateOrder, CertificateOrders, ManagerReport};
use weir_observe::metrics::{Metric, Page};
use weir_sys::memory;

use crate::Gateway;

/// The manager reports what becomes of certificates.
pub(crate) fn set_orders(gateway: &Gateway, file: &OwnedFd) {
    let orders = memory::read(file.as_fd(), CertificateOrders::MAX_ENCODED)
        .map_err(|error| error.to_string())
        .and_then(|bytes| CertificateOrders::decode(&bytes).map_err(|error| error.to_string()));
    match orders {
        Ok(orders) => gateway.reports.orders(orders),
        Err(error) => log::error!("the manager's report of certificates cannot be read: {error}"),
    }
}

/// Adds the metrics of validity; those of orders are the manager's ([`ManagerReport::put_metrics`]).
pub(crate) fn put_metrics(page: &mut Page, gateway: &Gateway, uses: Option<&ManagerReport>) {
    each(gateway, uses, |certificate, validity, renew_at, order| {
        if order.is_some_and(|order| order.on_demand) {
            return;
        }
        let mut put = |metric, at: Option<i64>| {
            if let Some(at) = at {
                page.put(metric, &[&certificate.name], at as f64);
            }
        };
        put(Metric::CertificateExpiry, validity.map(|(_, to)| to));
        put(Metric::CertificateRenewal, renew_at);
    });
}

/// All certificates, for the status; times in seconds from now.
pub(crate) fn status(gateway: &Gateway, uses: Option<&ManagerReport>) -> Vec<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as i64);
    let mut list = Vec::new();
    each(gateway, uses, |certificate, validity, renew_at, order| {
        let issuer = certificate.auto.as_ref().map(|auto| auto.issuer);
        let failed = order.filter(|order| order.error.is_some());
        list.push(json!({
            "name": certificate.name,
            "expires_in": validity.map(|(_, to)| to - now),
            "on_demand": order.is_some_and(|order| order.on_demand),
            "renewed_by": match issuer {
                Some(Issuer::Local) => "local CA",
                Some(Issuer::Acme) => "ACME",
                None => "others",
            },
            "renewed_in": renew_at.map(|at| at - now),
            "failures": order.map_or(0, |order| order.failures),
            "last_error": failed.and_then(|order| order.error.as_ref()),
            "failed_ago": failed.map(|order| now - order.failed_at as i64),
            "next_order_in": failed.map(|order| order.next as i64 - now),
        }));
    });
    list
}

/// Goes through the certificates: each with its validity and its renewal (seconds since 1970), and its orders.
fn each(
    gateway: &Gateway,
    uses: Option<&ManagerReport>,
    mut see: impl FnMut(&Certificate, Option<(i64, i64)>, Option<i64>, Option<&CertificateOrder>),
) {
    let Some(server) = &gateway.tls else {
        return;
    };
    let table = server.table();
    let orders = uses.iter().flat_map(|uses| uses.orders.iter());
    let orders: HashMap<&str, &CertificateOrder> =
        orders.map(|order| (order.name.as_str(), order)).collect();
    for (index, certificate) in gateway.config.certificates.iter().enumerate() {
        let validity = table.validity(index);
        let order = orders.get(certificate.name.as_str()).copied();
        let order = order.filter(|_| certificate.auto.is_some());
        let renew_at = certificate.auto.as_ref().and(validity).map(|(from, to)| {
            let advised = order.and_then(|order| i64::try_from(order.renew_at).ok());
            let advised = advised.filter(|at| *at > 0);
            advised.unwrap_or(from + (to - from) / 3 * 2)
        });
        see(certificate, validity, renew_at, order);
    }
    let demanded = uses.iter().flat_map(|uses| uses.orders.iter());
    for order in demanded.filter(|order| order.on_demand) {
        let names = vec![order.name.clone()];
        let certificate = Certificate {
            name: order.name.clone(),
            auto: Some(AutoCertificate {
                names,
                issuer: Issuer::Acme,
            }),
            ..Certificate::default()
        };
        let renew_at = i64::try_from(order.renew_at).ok().filter(|at| *at > 0);
        let validity = table.validity_of(&order.name);
        see(&certificate, validity, renew_at, Some(order));
    }
}

/// Certificates on demand, for the status. `None`: there are none.
pub(crate) fn demand_status(uses: Option<&ManagerReport>) -> Option<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as i64);
    Some(uses?.demand.as_ref()?.status(now))
}
