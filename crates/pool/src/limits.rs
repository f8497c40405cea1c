//! What bounds a pool, and what a request says of itself.

use crate::{Micros, RequestId};

/// What bounds a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests at work at once, even if more workers are free. 0: nothing runs.
    pub maxconn: usize,
    /// With `fullconn`: the limit is never below this, whatever the load. At least 1 where `fullconn` is not 0.
    pub minconn: usize,
    /// The load (requests running and waiting) from which on the limit is `maxconn`; below it is
    /// `maxconn × load ÷ fullconn`, rounded down, or `minconn` (HAProxy's configuration manual, "fullconn"). 0: the
    /// limit is `maxconn` at any load.
    pub fullconn: usize,
    /// Requests waiting; the next one is refused, or pushes another one out ([`Admission::Wait`](crate::Admission::Wait)).
    /// Retries are not refused for it, so that at most `maxconn` more wait.
    pub max_queue: usize,
    /// Time from a request's first admission until it is refused if it has no worker then. 0: nobody waits.
    pub timeout: Micros,
    /// Who goes first under lasting overload.
    pub order: Order,
    /// Workers that are kept for some.
    pub reserve: Reserves,
}

impl Limits {
    /// One worker at work, 1,000 requests that wait for 10 s at most, nothing reserved: what the options are by default,
    /// apart from `maxconn`.
    pub const USUAL: Self = Self {
        maxconn: 1,
        minconn: 0,
        fullconn: 0,
        max_queue: 1_000,
        timeout: Micros::from_secs(10),
        order: Order::Adaptive,
        reserve: Reserves::NONE,
    };

    /// How many may run where so many run and wait.
    pub(crate) fn at_load(&self, load: usize) -> usize {
        if self.fullconn == 0 || load >= self.fullconn {
            return self.maxconn;
        }
        // Neither factor is beyond what fits into 64 bits together, but on small machines.
        let share = self.maxconn as u128 * load as u128 / self.fullconn as u128;
        (share as usize).max(self.minconn).min(self.maxconn)
    }
}

/// Who goes first under lasting overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// While the pool loses what it cannot serve, the queue is kept short, newcomers beyond it are refused at once, and
    /// who has waited too long goes after all others, the newest of them first.
    #[default]
    Adaptive,
    /// As they came, whatever the load, until the queue is full or the time of each is up.
    Fifo,
}

/// Workers that take requests of a priority, or of a lower number, only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// These and lower numbers may use them.
    pub priority: i16,
    /// So many.
    pub workers: usize,
}

/// At most [`MAX_RESERVES`] reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserves {
    list: [Reserve; MAX_RESERVES],
    len: usize,
}

impl Reserves {
    /// All workers take all requests.
    pub const NONE: Self = Self {
        list: [Reserve {
            priority: 0,
            workers: 0,
        }; MAX_RESERVES],
        len: 0,
    };

    /// Those of the list; None if there are more than [`MAX_RESERVES`].
    pub fn new(list: &[Reserve]) -> Option<Self> {
        let mut reserves = Self::NONE;
        reserves.list.get_mut(..list.len())?.copy_from_slice(list);
        reserves.len = list.len();
        Some(reserves)
    }

    /// Workers that are kept from those that `of` does not let in: its own, and those for better classes.
    pub(crate) fn kept_from(&self, of: &Reserve) -> usize {
        let these = self.as_slice().iter();
        these
            .filter(|reserve| reserve.priority <= of.priority)
            .map(|reserve| reserve.workers)
            .fold(0, usize::saturating_add)
    }

    /// Workers that are kept from a class.
    pub(crate) fn kept_from_class(&self, priority: i16) -> usize {
        let these = self.as_slice().iter();
        these
            .filter(|reserve| priority > reserve.priority)
            .map(|reserve| reserve.workers)
            .fold(0, usize::saturating_add)
    }

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each of them.
    pub fn as_slice(&self) -> &[Reserve] {
        &self.list[..self.len]
    }
}

/// So many different reserves a pool can have.
pub const MAX_RESERVES: usize = 8;

/// A request that asks for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Its name.
    pub request: RequestId,
    /// Index of the reactor that serves it.
    pub home: u16,
    /// Nobody wants its answer after that; [`Micros::MAX`]: it has no deadline of its own.
    pub deadline: Micros,
    /// Its class in the queue: lower numbers go first, always. 0 is usual.
    pub priority: i16,
    /// Who asks. Those who ask share the workers of a class equally, however many requests each of them has waiting. A
    /// number that nobody outside can choose, such as a keyed hash of an address; 0: nobody in particular, all of whom
    /// together are one who asks.
    pub client: u64,
}

impl Ticket {
    /// A request without a deadline of its own, of the usual class, of nobody in particular.
    pub const fn new(request: RequestId, home: u16) -> Self {
        Self {
            request,
            home,
            deadline: Micros::MAX,
            priority: 0,
            client: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_the_load_as_haproxys_does() {
        let limits = Limits {
            maxconn: 20,
            minconn: 2,
            fullconn: 200,
            ..Limits::USUAL
        };
        for (load, limit) in [
            (0, 2),
            (1, 2),
            (29, 2),
            (30, 3),
            (100, 10),
            (199, 19),
            (200, 20),
            (usize::MAX, 20),
        ] {
            assert_eq!(limits.at_load(load), limit, "load {load}");
        }
        let fixed = Limits {
            fullconn: 0,
            ..limits
        };
        assert_eq!(fixed.at_load(0), 20);
    }

    #[test]
    fn more_reserves_than_there_is_room_for_are_not_taken() {
        let one = Reserve {
            priority: -1,
            workers: 1,
        };
        let most = [one; MAX_RESERVES];
        assert_eq!(Reserves::new(&most).unwrap().as_slice(), most);
        assert_eq!(Reserves::new(&[one; MAX_RESERVES + 1]), None);
        assert_eq!(Reserves::new(&[]), Some(Reserves::NONE));
    }
}
