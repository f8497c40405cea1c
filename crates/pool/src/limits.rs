//! The limits of a pool, and the properties of a request.

use crate::{Micros, RequestId};

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum of running requests, even if more workers are free. 0: nothing runs.
    pub maxconn: usize,
    /// With `fullconn`: minimum of the limit at any load. At least 1 if `fullconn` is not 0.
    pub minconn: usize,
    /// The load (running and waiting requests) from which on the limit is `maxconn`. Below it the limit is `maxconn ×
    /// load ÷ fullconn`, rounded down, or `minconn` (HAProxy's configuration manual, "fullconn"). 0: the limit is
    /// `maxconn` at any load.
    pub fullconn: usize,
    /// Maximum of waiting requests; the next one is refused, or removes another one
    /// ([`Admission::Wait`](crate::Admission::Wait)). Retries are not refused because of it, so at most `maxconn`
    /// more wait.
    pub max_queue: usize,
    /// Maximum wait from a request's first admission; then it is refused. 0: no request waits.
    pub timeout: Micros,
    /// The order under lasting overload.
    pub order: Order,
    /// Workers that are reserved for certain priorities.
    pub reserve: Reserves,
    /// Per cent of the workers, rounded down, but one worker at least: a client that has so many gets no more while
    /// others of its class wait that have fewer. 100 or more: no such limit.
    pub client_share: u8,
}

impl Limits {
    /// One running request, 1,000 waiting ones for at most 10 s, nothing reserved, half of the workers for one client:
    /// the defaults of the options, except for `maxconn`.
    pub const USUAL: Self = Self {
        maxconn: 1,
        minconn: 0,
        fullconn: 0,
        max_queue: 1_000,
        timeout: Micros::from_secs(10),
        order: Order::Adaptive,
        reserve: Reserves::NONE,
        client_share: 50,
    };

    /// How many may run at this load.
    pub(crate) fn at_load(&self, load: usize) -> usize {
        if self.fullconn == 0 || load >= self.fullconn {
            return self.maxconn;
        }
        // The product fits into 64 bits, except on small machines.
        let share = self.maxconn as u128 * load as u128 / self.fullconn as u128;
        (share as usize).max(self.minconn).min(self.maxconn)
    }
}

/// The order under lasting overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// While the pool loses requests that it cannot serve, the queue is kept short and new requests beyond it are
    /// refused at once. Requests that have waited too long go after all others, the newest of them first.
    #[default]
    Adaptive,
    /// In order of arrival at any load, until the queue is full or each request's time is over.
    Fifo,
}

/// Workers that accept only requests of a priority or of a lower number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// This priority and lower numbers may use them.
    pub priority: i16,
    /// How many workers.
    pub workers: usize,
}

/// At most [`MAX_RESERVES`] reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserves {
    list: [Reserve; MAX_RESERVES],
    len: usize,
}

impl Reserves {
    /// All workers accept all requests.
    pub const NONE: Self = Self {
        list: [Reserve {
            priority: 0,
            workers: 0,
        }; MAX_RESERVES],
        len: 0,
    };

    /// The reserves of the list; `None` if there are more than [`MAX_RESERVES`].
    pub fn new(list: &[Reserve]) -> Option<Self> {
        let mut reserves = Self::NONE;
        reserves.list.get_mut(..list.len())?.copy_from_slice(list);
        reserves.len = list.len();
        Some(reserves)
    }

    /// How many workers are kept from requests that `of` excludes: its own, and those for better classes.
    pub(crate) fn kept_from(&self, of: &Reserve) -> usize {
        let these = self.as_slice().iter();
        these
            .filter(|reserve| reserve.priority <= of.priority)
            .map(|reserve| reserve.workers)
            .fold(0, usize::saturating_add)
    }

    /// How many workers are kept from a class.
    pub(crate) fn kept_from_class(&self, priority: i16) -> usize {
        let these = self.as_slice().iter();
        these
            .filter(|reserve| priority > reserve.priority)
            .map(|reserve| reserve.workers)
            .fold(0, usize::saturating_add)
    }

    /// Whether there are no reserves.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All reserves.
    pub fn as_slice(&self) -> &[Reserve] {
        &self.list[..self.len]
    }
}

/// Maximum number of different reserves of a pool.
pub const MAX_RESERVES: usize = 8;

/// A request for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Its id.
    pub request: RequestId,
    /// Index of the reactor that serves it.
    pub home: u16,
    /// Its answer is useless after this time; [`Micros::MAX`]: no deadline.
    pub deadline: Micros,
    /// Its class in the queue: lower numbers always go first. 0 is the default.
    pub priority: i16,
    /// The client. Clients share the workers of a class equally, however many waiting requests each has. It must be a
    /// number that outsiders cannot choose, such as a keyed hash of an address; 0: no particular client; all such
    /// requests together count as one client.
    pub client: u64,
    /// The session of that client; 0: none. Sessions of one client divide what the client has and nothing else, so outsiders may
    /// choose the number.
    pub session: u64,
}

impl Ticket {
    /// A request without a deadline, of the default class, and without a particular client.
    pub const fn new(request: RequestId, home: u16) -> Self {
        Self {
            request,
            home,
            deadline: Micros::MAX,
            priority: 0,
            client: 0,
            session: 0,
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
