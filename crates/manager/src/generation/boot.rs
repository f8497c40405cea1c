//! From a generation's PHP and certificates to its gateway, and from there until it serves.

use std::time::Instant;

use super::{Failure, Generation, Masters, Phase, START_LIMIT, WORKERS_LIMIT};

impl Generation {
    /// Starts the gateway when all pools have their PHP and the keeper has read the certificates, or gives the generation up.
    pub(super) fn booted(&mut self, now: Instant) {
        let tell = |(pool, cause)| format!("[pool.{pool}] PHP cannot be started: {cause}");
        let failures: Vec<String> = self.pools.failures().map(tell).collect();
        if !failures.is_empty() {
            return self.give_up(Failure::internal(failures.join("\n")));
        }
        let certificates = self.certificates.as_mut();
        let checked = certificates.map_or(Some(Ok(())), |own| own.check(&self.loaded.config));
        if let Some(Err(problems)) = checked {
            return self.give_up(self.loaded.failure(problems));
        }
        if checked.is_some() && self.pools.are_ready() {
            self.phase = Phase::Starting {
                until: now + START_LIMIT,
            };
            if let Err(error) = self.start_gateway(now) {
                let cause = format!("the gateway cannot be started: {error}");
                self.give_up(Failure::internal(cause));
            }
        }
    }

    /// Makes the certificates of a generation whose gateway is ready: until then, it may be given up. Then it serves.
    pub(super) fn make_certificates(&mut self, now: Instant, masters: &mut Masters) {
        let config = &self.loaded.config;
        let certificates = self.certificates.as_mut();
        match certificates.map_or(Some(Ok(Vec::new())), |own| own.make(config, now)) {
            None => {}
            Some(Ok(messages)) => {
                self.hand(messages);
                let until = now + WORKERS_LIMIT;
                self.phase = Phase::StartingWorkers { until };
                self.pools.trial_is_over(now, masters);
                if !self.waits_for_workers {
                    self.serve();
                }
            }
            Some(Err(problems)) => self.give_up(self.loaded.failure(problems)),
        }
    }
}
