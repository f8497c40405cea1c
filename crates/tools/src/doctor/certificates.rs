//! Certificates that weir gets by itself: whether they are there, whether they are renewed in time, and what the last order said.

use std::{fs, io};

use weir_acme::{Issued, State, is_issued, now};
use weir_config::Issuer;

use super::{AS_ROOT, Notes, case::Case};

/// Looks at the folder of certificates.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    for certificate in &case.config.certificates {
        let Some(auto) = &certificate.auto else {
            continue;
        };
        let label = format!("[certificate.{}]", certificate.name);
        let chain = &certificate.chain;
        if let Err(error) = fs::File::open(chain)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            notes.note(
                format!("{label} {} cannot be read", chain.display()),
                "only the user who starts weir may read it, so it was not checked",
                AS_ROOT,
            );
            continue;
        }
        let state = State::read(chain);
        let failed = state.as_ref().and_then(|state| state.error.clone());
        let issued = Issued::read(chain);
        let issued = issued.filter(|issued| is_issued(issued, &auto.names));
        let acme = &case.config.tls.acme;
        let has_star = auto.names.iter().any(|name| name.starts_with('*'));
        let is_by_dns = match acme.challenge.as_deref() {
            Some(challenge) => challenge.starts_with("dns-"),
            None => has_star,
        };
        let mend = match auto.issuer {
            Issuer::Acme if is_by_dns => {
                "look into the error log, which has the output of dns_command; for dns-persist-01, `weir certificates` prints the record that must be there"
            }
            Issuer::Acme => {
                "check that the names lead to this machine, and that ports 80 and 443 are open; the error log has each attempt"
            }
            Issuer::Local => "start weir: it makes the certificate",
        };
        match (issued, failed) {
            (None, Some(error)) => notes.breaks(
                format!(
                    "{label} there is no certificate for {}",
                    auto.names.join(", ")
                ),
                format!("the last order failed: {error}"),
                mend,
            ),
            (None, None) => notes.warn(
                format!(
                    "{label} there is no certificate yet for {}",
                    auto.names.join(", ")
                ),
                "clients cannot connect with TLS before it is there",
                mend,
            ),
            (Some(issued), failed) => {
                let days = (issued.not_after - now()).div_euclid(86_400);
                match failed {
                    Some(error) if days < 0 => notes.breaks(
                        format!("{label} has expired {} days ago", -days),
                        format!("the last order failed: {error}"),
                        mend,
                    ),
                    Some(error) => notes.warn(
                        format!("{label} cannot be renewed, and expires in {days} days"),
                        format!("the last order failed: {error}"),
                        mend,
                    ),
                    None if now() >= issued.renew_with(state.as_ref()) + LATE => notes.warn(
                        format!("{label} should have been renewed, and expires in {days} days"),
                        "weir renews a certificate at two thirds of its life, while it runs",
                        "start weir, or look into its error log",
                    ),
                    None => notes.ok(format!("{label} is valid for {days} days")),
                }
            }
        }
    }
}

/// A renewal is late after so many seconds: it may be under way.
const LATE: i64 = 3600;
