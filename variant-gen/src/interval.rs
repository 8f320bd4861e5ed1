//! 95 % intervals of measured accuracies.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_types::interval::Z;
pub use sextant_types::interval::{Interval, wilson};

/// Seed of the resampling: the interval is a function of the scores alone.
const SEED: u64 = 0x05e5_7a47;
const RESAMPLES: usize = 1000;
const FEWEST_RESAMPLES: usize = 200;
/// Most draws in all; sets that would need more are resampled less often.
const MOST_DRAWS: usize = 20_000_000;

/// Percentile bootstrap of the mean, from a fixed seed.
pub fn bootstrap(scores: &[f64]) -> Interval {
    bootstrap_of(scores.len(), |draws| {
        mean(draws.map(|at| scores[at]), scores.len())
    })
}

/// Percentile bootstrap of a statistic of `records` records, from a fixed seed. The statistic gets the positions of the
/// records that are drawn.
pub fn bootstrap_of(
    records: usize,
    statistic: impl Fn(&mut dyn Iterator<Item = usize>) -> f64,
) -> Interval {
    bootstrap_within(records, records, statistic)
}

/// The same for a statistic that takes more time than its records suggest: it is resampled as a set of `effort` records
/// would be.
pub fn bootstrap_within(
    records: usize,
    effort: usize,
    statistic: impl Fn(&mut dyn Iterator<Item = usize>) -> f64,
) -> Interval {
    if records == 0 {
        return Interval {
            value: 0.0,
            lower: 0.0,
            upper: 0.0,
        };
    }
    let value = statistic(&mut (0..records));
    let resamples = (MOST_DRAWS / effort.max(records)).clamp(FEWEST_RESAMPLES, RESAMPLES);
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut values: Vec<f64> = (0..resamples)
        .map(|_| statistic(&mut (0..records).map(|_| rng.random_range(0..records))))
        .collect();
    values.sort_by(f64::total_cmp);
    Interval {
        value,
        lower: quantile(&values, 0.025).min(value),
        upper: quantile(&values, 0.975).max(value),
    }
}

/// The interval of an area under the receiver operating characteristic, by its standard error (Hanley and
/// McNeil, 1982, equation 1).
pub fn hanley_mcneil(area: f64, positives: u64, negatives: u64) -> Interval {
    let (p, n) = (positives as f64, negatives as f64);
    if positives == 0 || negatives == 0 {
        return Interval {
            value: area,
            lower: 0.0,
            upper: 1.0,
        };
    }
    let squared = area * area;
    let (q1, q2) = (area / (2.0 - area), 2.0 * squared / (1.0 + area));
    let variance = area * (1.0 - area) + (p - 1.0) * (q1 - squared) + (n - 1.0) * (q2 - squared);
    let half = Z * (variance.max(0.0) / (p * n)).sqrt();
    Interval {
        value: area,
        lower: (area - half).max(0.0),
        upper: (area + half).min(1.0),
    }
}

fn mean(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    values.sum::<f64>() / count as f64
}

/// Quantile of sorted values, linear in between (NumPy's default). 0 for no values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let fraction = position - position.floor();
    sorted[below] + fraction * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        // Newcombe (1998), table I, method 3: 81/263, 15/148, 0/20, 1/29.
        for (successes, trials, lower, upper) in [
            (81.0, 263, 0.2553, 0.3662),
            (15.0, 148, 0.0624, 0.1605),
            (0.0, 20, 0.0, 0.1611),
            (1.0, 29, 0.0061, 0.1718),
        ] {
            let interval = wilson(successes, trials);
            assert!(close(interval.lower, lower), "{interval:?}");
            assert!(close(interval.upper, upper), "{interval:?}");
        }
    }

    #[test]
    fn wilson_stays_inside_its_range() {
        assert_eq!(wilson(20.0, 20).upper, 1.0);
        assert!(close(wilson(20.0, 20).lower, 1.0 - 0.1611));
        assert_eq!(wilson(0.0, 0).upper, 1.0);
    }

    #[test]
    fn bootstrap_covers_the_normal_interval() {
        let scores: Vec<f64> = (0..400).map(|i| f64::from(i % 20)).collect();
        let interval = bootstrap(&scores);
        // Standard error 5.766 / 20 = 0.2883.
        assert_eq!(interval.value, 9.5);
        assert!(
            (interval.lower - (9.5 - Z * 0.2883)).abs() < 0.06,
            "{interval:?}"
        );
        assert!(
            (interval.upper - (9.5 + Z * 0.2883)).abs() < 0.06,
            "{interval:?}"
        );
        assert_eq!(interval, bootstrap(&scores));
    }

    #[test]
    fn the_area_has_the_standard_error_of_the_paper() {
        // Hanley and McNeil (1982), table II: area 0.893 of 51 abnormal and 58 normal images, SE 0.032.
        let interval = hanley_mcneil(0.893, 51, 58);
        let error = (interval.value - interval.lower) / Z;
        assert!((error - 0.032).abs() < 0.001, "{error}");
        assert_eq!(hanley_mcneil(1.0, 3, 4).lower, 1.0);
        assert_eq!(hanley_mcneil(0.5, 0, 4).upper, 1.0);
    }

    #[test]
    fn bootstrap_of_a_constant_is_a_point() {
        let interval = bootstrap(&[0.25; 7]);
        assert_eq!((interval.lower, interval.upper), (0.25, 0.25));
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0], 0.99), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
