//! When queries are due.

use std::{sync::Arc, time::Duration};

use sextant_types::random::Random;

/// When the queries of a stream are due, from the beginning of the load.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Gaps of a gamma distribution. A coefficient of variation of 0 makes them even, 1 makes the arrivals
    /// Poisson's, and more makes them come in bursts.
    Drawn {
        /// Queries a second.
        rate: f64,
        /// Standard deviation of the gaps by their mean.
        cv: f64,
    },
    /// As they were recorded, in order of time.
    Recorded(Arc<[Duration]>),
}

/// The times themselves, in order.
#[derive(Debug)]
pub(crate) enum Times {
    Drawn {
        random: Random,
        gap_s: f64,
        scv: f64,
        next_s: f64,
    },
    Recorded {
        times: Arc<[Duration]>,
        next: usize,
    },
}

// === impl Arrivals ===

impl Arrivals {
    /// The times; `seed` decides the draws.
    pub(crate) fn times(&self, seed: u64) -> Times {
        match self {
            Self::Drawn { rate, cv } => Times::Drawn {
                random: Random::new(seed),
                gap_s: rate.recip(),
                scv: cv * cv,
                next_s: 0.0,
            },
            Self::Recorded(times) => Times::Recorded {
                times: Arc::clone(times),
                next: 0,
            },
        }
    }
}

// === impl Times ===

impl Iterator for Times {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        match self {
            Self::Drawn {
                random,
                gap_s,
                scv,
                next_s,
            } => {
                *next_s += random.gamma(*scv) * *gap_s;
                Duration::try_from_secs_f64(*next_s).ok()
            }
            Self::Recorded { times, next } => {
                let time = times.get(*next).copied();
                *next += 1;
                time
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(cv: f64) -> (f64, f64) {
        let arrivals = Arrivals::Drawn { rate: 1_000.0, cv };
        let times: Vec<f64> = arrivals
            .times(7)
            .take(20_000)
            .map(|time| time.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gaps_have_the_mean_and_the_variation_that_are_asked_for() {
        for wanted in [0.0, 1.0, 3.0] {
            let (mean, cv) = gaps(wanted);
            assert!((mean - 0.001).abs() < 0.000_1, "{mean}");
            assert!((cv - wanted).abs() < 0.1 * wanted.max(0.01), "{cv}");
        }
    }

    #[test]
    fn a_seed_decides_the_draws() {
        let arrivals = Arrivals::Drawn {
            rate: 10.0,
            cv: 1.0,
        };
        let times = |seed| arrivals.times(seed).take(10).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
