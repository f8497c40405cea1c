//! Who may use a site or a route: by address (`allow`, `deny`), how often (`rate`), and with which password (`basic_auth`).
//!
//! Sites that use none of this have no [`Guard`], and their requests cost nothing here.

use std::net::IpAddr;

use http::StatusCode;
use weir_config::{Peer, Settings};
use weir_http1::Name;

use super::{
    basic_auth::{Auth, Checked, Unverified},
    rates::{Limit, RateFields, Verdict},
};
use crate::{
    answers::refusal::Refusal,
    record::{Endpoints, Record},
    scripts::policy::Policy,
};

/// What a site or route demands of its clients.
#[derive(Debug)]
pub(crate) struct Guard {
    allow: Vec<Peer>,
    deny: Vec<Peer>,
    rate: Option<Limit>,
    auth: Option<&'static Auth>,
}

impl Guard {
    /// `None`: everybody may do everything.
    pub(crate) fn new(settings: &Settings, auth: Option<&'static Auth>) -> Option<Guard> {
        let guard = Guard {
            allow: settings.allow.clone(),
            deny: settings.deny.clone(),
            rate: settings.rate.map(|rate| Limit::new(&rate)),
            auth,
        };
        let is_open = guard.allow.is_empty()
            && guard.deny.is_empty()
            && guard.rate.is_none()
            && auth.is_none();
        (!is_open).then_some(guard)
    }

    /// Counts a request, and refuses it if the client has sent too many. `zone`: requests are counted together within it.
    /// Returns also what the client is told.
    pub(crate) fn check_rate(
        &self,
        record: &Record,
        policy: &Policy,
        zone: u64,
    ) -> (Option<Box<RateFields>>, Result<(), Refusal>) {
        let client = match policy.client(record) {
            0 => record.endpoints.client,
            client => client,
        };
        // Clients of a unix socket cannot be told apart.
        let (Some(limit), Some(rates), true) = (&self.rate, &record.gateway.rates, client != 0)
        else {
            return (None, Ok(()));
        };
        let verdict = rates.take((client, zone), limit, record.head_whole);
        let allowed = match verdict {
            Verdict::Passes { .. } => Ok(()),
            Verdict::Exceeds { wait } => {
                record.gateway.tally.rate_limited(record.site);
                let refusal = Refusal::client(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "");
                Err(refusal.retry_after(wait))
            }
        };
        (Some(Box::new(limit.fields(&verdict))), allowed)
    }

    /// Checks the user and password of a request.
    ///
    /// # Errors
    ///
    /// The refusal: 401.
    pub(crate) fn check_user(&self, record: &Record) -> Result<Checked, Refusal> {
        let Some(auth) = self.auth else {
            return Ok(Checked::Passes);
        };
        if record.is_signed_in(auth) {
            return Ok(Checked::Passes);
        }
        let credentials = auth.credentials(record.head.fields.all(Name::Authorization))?;
        let unverified = Unverified { auth, credentials };
        Ok(match auth.remembers(&unverified.credentials) {
            true => Checked::Remembered(unverified),
            false => Checked::Unverified(unverified),
        })
    }

    /// Checks a client's address. Who is denied stays out, even if `allow` has him. If there is an `allow`, all others stay
    /// out too.
    ///
    /// # Errors
    ///
    /// The refusal: 403.
    pub(crate) fn check_client(&self, endpoints: &Endpoints) -> Result<(), Refusal> {
        if self.allow.is_empty() && self.deny.is_empty() {
            return Ok(());
        }
        let client: Option<IpAddr> = endpoints.remote_addr().parse().ok();
        let among = |peers: &[Peer]| peers.iter().any(|peer| peer.includes(client));
        if !among(&self.deny) && (self.allow.is_empty() || among(&self.allow)) {
            return Ok(());
        }
        let message = format!("{} may not use this (allow, deny)", endpoints.remote_addr());
        Err(Refusal::client(StatusCode::FORBIDDEN, "denied", message))
    }
}
