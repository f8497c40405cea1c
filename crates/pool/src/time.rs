//! Time, as given by the caller.

use core::time::Duration;

/// Microseconds: a point on the caller's monotonic clock, or a span of it. 64 bits last for 584,000 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// The clock's start, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than everything; as a span: no limit.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000))
    }

    /// A span of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// The point `span` later; [`Micros::MAX`] on overflow.
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Micros {
    /// Rounded down to whole microseconds; [`Micros::MAX`] if it does not fit.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Self::from_micros(micros.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_never_wrap_around() {
        assert_eq!(Micros(5).since(Micros(7)), Micros::ZERO);
        assert_eq!(Micros(5).after(Micros::MAX), Micros::MAX);
        assert_eq!(Micros::from(Duration::MAX), Micros::MAX);
        assert_eq!(Micros::from_secs(u64::MAX), Micros::MAX);
        assert_eq!(
            Duration::from(Micros::from_millis(1_500)),
            Duration::from_millis(1_500)
        );
    }
}
