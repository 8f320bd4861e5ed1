//! Formats figures for the text of reasons.

/// Ratio of two loads above which they count as different.
const ANOTHER: f64 = 1.25;

/// A price with two significant digits, however small it is.
pub(super) fn usd(price: f64) -> String {
    let places = match price > 0.0 {
        true => (1.0 - price.log10().floor()).clamp(2.0, 12.0) as usize,
        false => 2,
    };
    format!("{price:.places$}")
}

/// A rate: millions with one decimal, whole numbers from 100, tenths below 100, two significant
/// digits below 1.
pub(super) fn rate(rps: f64) -> String {
    match rps {
        rps if rps >= 1e6 => format!("{:.1} million", rps / 1e6),
        rps if rps >= 100.0 => format!("{rps:.0}"),
        rps if rps >= 1.0 || rps <= 0.0 => format!("{rps:.1}"),
        rps => usd(rps),
    }
}

/// Whether two loads differ so much that a reason with the first one misleads.
pub(super) fn is_another(before_rps: f64, now_rps: f64) -> bool {
    let (least, most) = (before_rps.min(now_rps), before_rps.max(now_rps));
    most > least * ANOTHER && most - least >= 0.1
}

#[cfg(test)]
mod tests {
    use super::{is_another, rate, usd};

    #[test]
    fn a_small_price_is_not_nothing() {
        for (price, said) in [
            (0.0000000231, "0.000000023"),
            (0.0021, "0.0021"),
            (0.5, "0.50"),
            (12.0, "12.00"),
            (0.0, "0.00"),
        ] {
            assert_eq!(usd(price), said);
        }
    }

    #[test]
    fn a_rate_has_the_digits_that_count() {
        for (rps, said) in [
            (27_795_874.0, "27.8 million"),
            (9523.8, "9524"),
            (8.04, "8.0"),
            (0.0021, "0.0021"),
            (0.0, "0.0"),
        ] {
            assert_eq!(rate(rps), said);
        }
    }

    #[test]
    fn a_load_is_another_by_a_quarter() {
        assert!(is_another(8.0, 960.0) && is_another(960.0, 8.0));
        assert!(!is_another(100.0, 120.0) && !is_another(0.0, 0.05));
    }
}
