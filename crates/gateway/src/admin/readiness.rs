//! Whether weir can serve: what `/readyz` tells load balancers, which then send requests to other machines.
//!
//! A machine with many sites is ready as long as one of its pools can serve: one broken pool must not take the other
//! sites off the balancer. The status shows problems of each pool.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{Gateway, dispatch::PoolHandle};

impl Gateway {
    /// Whether this gateway should get requests.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.drain.has_started() {
            return Err("it is stopping: new requests are not accepted".into());
        }
        if self.declines.load(Relaxed) {
            return Err(
                "an operator has drained it; requests that still arrive are answered".into(),
            );
        }
        if let Some(silent) = self.manager_silent() {
            return Err(format!(
                "the manager has given no sign of life for {:.0} s: no worker is started or replaced",
                silent.as_secs_f64()
            ));
        }
        if let Some((reactor, silent)) = self.pulses.silent_reactors(STANDS_STILL).first() {
            return Err(format!(
                "reactor {reactor} has not moved for {} s: its connections wait",
                silent.as_secs()
            ));
        }
        let all = self.pools.iter();
        match &self.config.server.ready_pools {
            Some(names) => {
                let named = all.filter(|pool| names.contains(&pool.settings.name));
                any_that_fails(named.map(|pool| self.failing(pool)))
            }
            None => all_that_fail(all.map(|pool| self.failing(pool))),
        }
    }

    /// Why a pool does not serve new requests.
    fn failing(&self, pool: &PoolHandle) -> Option<String> {
        let (name, server) = (&pool.settings.name, &self.config.server);
        if pool.is_lost() {
            return Some(format!("pool {name} has no worker that can start"));
        }
        let point = server.ready_stalled;
        if let Some(stalled) = pool.stalled()
            && !point.is_zero()
            && stalled >= point
        {
            return Some(format!(
                "all workers of pool {name} have been busy with the same requests for {} s (ready_stalled is {} s)",
                stalled.as_secs(),
                point.as_secs_f64()
            ));
        }
        let (full, point) = (pool.fullness(), server.ready_saturation);
        (point > 0 && full >= point as f64).then(|| {
            format!("the queue of pool {name} is {full:.0} % full, and ready_saturation is {point}")
        })
    }
}

/// Each of them must serve.
fn any_that_fails(pools: impl Iterator<Item = Option<String>>) -> Result<(), String> {
    pools.flatten().next().map_or(Ok(()), Err)
}

/// One that serves is enough.
fn all_that_fail(mut pools: impl Iterator<Item = Option<String>>) -> Result<(), String> {
    let Some(first) = pools.next().flatten() else {
        return Ok(());
    };
    let mut others = 0;
    for pool in pools {
        if pool.is_none() {
            return Ok(());
        }
        others += 1;
    }
    Err(match others {
        0 => first,
        1 => format!("{first}; the other pool does not serve, either"),
        others => format!("{first}; the {others} other pools do not serve, either"),
    })
}

/// A reactor that has not moved for this long makes the gateway not ready.
const STANDS_STILL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pool_of_many_is_not_the_whole_machine() {
        let [fine, stuck] = [None, Some("stuck".to_owned())];
        for (pools, all, any) in [
            (vec![], Ok(()), Ok(())),
            (vec![&fine], Ok(()), Ok(())),
            (vec![&stuck], Err("stuck"), Err("stuck")),
            (vec![&stuck, &fine], Ok(()), Err("stuck")),
            (vec![&fine, &stuck], Ok(()), Err("stuck")),
            (
                vec![&stuck, &stuck],
                Err("stuck; the other pool does not serve, either"),
                Err("stuck"),
            ),
            (
                vec![&stuck; 3],
                Err("stuck; the 2 other pools do not serve, either"),
                Err("stuck"),
            ),
        ] {
            let each = || pools.iter().map(|pool| (*pool).clone());
            let text = |why: Result<(), &str>| why.map_err(str::to_owned);
            assert_eq!(all_that_fail(each()), text(all), "{pools:?}");
            assert_eq!(any_that_fails(each()), text(any), "{pools:?}");
        }
    }
}
