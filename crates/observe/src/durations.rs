//! Durations counted in buckets, and what can be said of them.

/// Durations, counted in buckets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Durations {
    /// Number of durations per bucket, in the order of the bounds; the last one is for durations above all bounds.
    pub counts: Vec<u64>,
    /// Their upper bounds, µs.
    pub bounds: &'static [u64],
    /// Sum of all durations, µs.
    pub sum: u64,
    /// The longest, µs.
    pub longest: u64,
}

impl Durations {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The difference to `before`, an earlier state of the same counts.
    pub fn since(&self, before: &Durations) -> Durations {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts: Vec<u64> = (self.counts.iter().zip(earlier))
            .map(|(now, earlier)| now.saturating_sub(earlier))
            .collect();
        // The longest of these is not known, only its bucket.
        let last = counts.iter().rposition(|count| *count > 0);
        let longest = last.map_or(0, |last| {
            let bound = self.bounds.get(last).copied().unwrap_or(u64::MAX);
            bound.min(self.longest)
        });
        Durations {
            counts,
            bounds: self.bounds,
            sum: self.sum.saturating_sub(before.sum),
            longest,
        }
    }

    /// For the admin interface: in seconds; the quantiles are computed from the buckets.
    pub fn to_json(&self) -> serde_json::Value {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let quantile = |share| self.quantile(share).map(seconds);
        serde_json::json!({
            "count": self.count(),
            "sum": seconds(self.sum),
            "p50": quantile(0.5),
            "p95": quantile(0.95),
            "p99": quantile(0.99),
        })
    }

    /// The duration that this share of them did not exceed, µs; linear between two bounds. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = share * self.count() as f64;
        let (mut before, mut from) = (0.0, 0);
        let beyond = std::iter::once(&self.longest);
        for (within, bound) in self.counts.iter().zip(self.bounds.iter().chain(beyond)) {
            let within = *within as f64;
            if within > 0.0 && before + within >= rank {
                let part = ((rank - before) / within).clamp(0.0, 1.0);
                // The bound may be far above the longest duration.
                let to = (*bound).min(self.longest).max(from);
                return Some(from + ((to - from) as f64 * part) as u64);
            }
            before += within;
            from = *bound;
        }
        None
    }
}
