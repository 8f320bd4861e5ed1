//! When queries are due: the rates of a published trace, compressed, with random gaps from a seed.

use anyhow::{Context, Result, ensure};

/// A query that is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When it is due, s after the first.
    pub at_s: f64,
    /// Position of the application that it queries.
    pub application: usize,
}

/// The time and the rates to which a trace is scaled.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Time at the trace's first rate before it begins, s.
    pub warm_up_s: f64,
    /// How long the whole trace takes, s.
    pub measured_s: f64,
    /// The trace's smallest and largest rate become these, queries a second; the other rates are scaled linearly.
    pub range_rps: [f64; 2],
    /// Seed of the gaps and of the choice of applications.
    pub seed: u64,
}

/// The queries a second of each line of a file with the columns `minute,requests`.
pub fn rates(text: &str) -> Result<Vec<f64>> {
    let lines = text.lines().skip(1).filter(|line| !line.is_empty());
    let rates = lines.map(|line| {
        let count = line.split(',').nth(1).context("a line has two columns")?;
        let count: f64 = count.trim().parse().context("requests are a number")?;
        Ok(count / 60.0)
    });
    let rates: Vec<f64> = rates.collect::<Result<_>>()?;
    ensure!(!rates.is_empty(), "the trace has no line");
    Ok(rates)
}

/// The queries in order of time; the first is due at 0. Their gaps are those of a Poisson process with the trace's
/// rates. Each application gets its share of the queries.
pub fn arrivals(rates: &[f64], shape: &Shape, shares: &[f64]) -> Vec<Arrival> {
    let [from, to] = shape.range_rps;
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let line_s = shape.measured_s / rates.len() as f64;
    let rate_at = |at_s: f64| {
        let line = ((at_s - shape.warm_up_s).max(0.0) / line_s) as usize;
        let of = rates[line.min(rates.len() - 1)];
        from + (to - from) * (of - least) / (most - least).max(f64::MIN_POSITIVE)
    };
    let mut random = Random(shape.seed);
    let mut arrivals = Vec::new();
    let mut at_s = 0.0;
    while at_s < shape.warm_up_s + shape.measured_s {
        // Candidates come at the largest rate, and the rate of the moment decides how many of them stay.
        if arrivals.is_empty() || random.unit() * to <= rate_at(at_s) {
            let application = pick(shares, random.unit());
            arrivals.push(Arrival { at_s, application });
        }
        at_s -= random.unit().ln() / to;
    }
    arrivals
}

/// The position at which the shares add up to `part` of their sum.
fn pick(shares: &[f64], part: f64) -> usize {
    let mut left = part * shares.iter().sum::<f64>();
    for (at, share) in shares.iter().enumerate() {
        left -= share;
        if left <= 0.0 {
            return at;
        }
    }
    shares.len().saturating_sub(1)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        warm_up_s: 10.0,
        measured_s: 100.0,
        range_rps: [10.0, 110.0],
        seed: 7,
    };

    fn count(arrivals: &[Arrival], from_s: f64, until_s: f64) -> f64 {
        let of = arrivals
            .iter()
            .filter(|it| (from_s..until_s).contains(&it.at_s));
        of.count() as f64
    }

    #[test]
    fn rates_are_those_of_the_trace_mapped_to_the_range() {
        let rates = rates("minute,requests\n0,60\n1,6060\n2,60\n3,3060\n").unwrap();
        assert_eq!(rates, [1.0, 101.0, 1.0, 51.0]);
        let arrivals = arrivals(&rates, &SHAPE, &[3.0, 1.0]);
        assert_eq!(arrivals[0].at_s, 0.0);
        assert!(arrivals.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
        // Chance moves each count by less than four standard deviations.
        let near = |counted: f64, expected: f64| (counted - expected).abs() < 4.0 * expected.sqrt();
        for (from_s, until_s, expected) in [
            (0.0, 35.0, 350.0),
            (35.0, 60.0, 2750.0),
            (60.0, 85.0, 250.0),
            (85.0, 110.0, 1500.0),
        ] {
            let counted = count(&arrivals, from_s, until_s);
            assert!(near(counted, expected), "{counted} for {expected}, seed 7");
        }
        let second = arrivals.iter().filter(|it| it.application == 1).count() as f64;
        assert!(
            near(second, arrivals.len() as f64 / 4.0),
            "{second}, seed 7"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_queries_and_another_others() {
        let of = |seed| arrivals(&[1.0, 5.0], &Shape { seed, ..SHAPE }, &[1.0]);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_trace_without_lines_or_numbers_is_refused() {
        assert!(rates("minute,requests\n").is_err());
        assert!(rates("minute,requests\n0,many\n").is_err());
        assert!(rates("minute,requests\n0\n").is_err());
    }
}
