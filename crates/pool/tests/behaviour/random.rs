//! A small random number generator. The same seed gives the same numbers on every machine.

/// xorshift64*, after Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Similar seeds must not begin alike, and the state must not be zero.
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// 0 to `limit` − 1; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True in `per_mille` of 1,000 cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Exponentially distributed with this mean, at most ten times the mean.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let factor = -(1.0 - uniform).ln();
        (mean as f64 * factor.min(10.0)) as u64
    }
}
