//! Logarithms and powers of two in integers: the core library has none, and this crate has no dependencies.

/// Number of fraction bits of a logarithm.
pub(crate) const FRACTION: u32 = 16;

/// The value 1, both as a logarithm and as a fraction.
pub(crate) const ONE: u64 = 1 << FRACTION;

/// The logarithm of `number` to base 2, times [`ONE`], rounded down; 0 counts as 1.
pub(crate) const fn log2(number: u64) -> u64 {
    let number = if number == 0 { 1 } else { number };
    let whole = number.ilog2();
    // Between 1 and 2, with 31 fraction bits: its square fits into 64 bits.
    let mut mantissa = if whole > 31 {
        number >> (whole - 31)
    } else {
        number << (31 - whole)
    };
    let mut log = whole as u64;
    let mut bit = 0;
    while bit < FRACTION {
        mantissa = (mantissa * mantissa) >> 31;
        let high = mantissa >> 32;
        mantissa >>= high;
        log = log << 1 | high;
        bit += 1;
    }
    log
}

/// 2 to the power of minus `log`, as a fraction of [`ONE`]; exact to half a percent.
pub(crate) const fn power_of_minus(log: u64) -> u64 {
    let (whole, part) = (log >> FRACTION, log & (ONE - 1));
    if whole > 15 {
        return 0;
    }
    // 1 − 0.6565·x + 0.1565·x² is 2^−x for x from 0 to 1, with both ends exact.
    let linear = part * 43_024 / ONE;
    let square = part * part / ONE * 10_256 / ONE;
    (ONE - linear + square) >> whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_of_all_sizes() {
        assert_eq!(log2(0), 0);
        assert_eq!(log2(1), 0);
        assert_eq!(log2(2), ONE);
        assert_eq!(log2(1 << 63), 63 * ONE);
        for (number, expected) in [(3, 1.584_962), (11, 3.459_431), (1_000_003, 19.931_573)] {
            let log = log2(number) as f64 / ONE as f64;
            assert!((log - expected).abs() < 1e-4, "{number}: {log}");
        }
        assert!(log2(u64::MAX) > log2(u64::MAX >> 1));
    }

    #[test]
    fn powers_undo_logarithms() {
        for (log, expected) in [
            (0.0, 1.0),
            (0.25, 0.8409),
            (1.0, 0.5),
            (2.25, 0.210),
            (20.0, 0.0),
        ] {
            let power = power_of_minus((log * ONE as f64) as u64) as f64 / ONE as f64;
            assert!((power - expected).abs() < 0.006, "{log}: {power}");
        }
    }
}
