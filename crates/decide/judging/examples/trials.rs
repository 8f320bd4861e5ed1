//! How reliable verdicts are over many simulated trials that are evaluated after every answer. It prints one line of
//! JSON for each figure.
//!
//! `trials [TESTS]`: this many equal versions are tried, 1,000 by default, and a fifth as many that are worse by three
//! points.
#![expect(clippy::print_stdout, reason = "prints its figures")]

use std::env;

use sextant_judging::{Difference, Guards, Rules, Verdict};

/// The seed of all draws.
const SEED: u64 = 44;

/// The most pairs of a trial.
const MOST: u64 = 20_000;

/// Pseudo-random numbers from 0 to 1 (SplitMix64).
struct Draws(u64);

/// How accurate two versions are, and how often one is right where the other is not.
#[derive(Clone, Copy)]
struct Versions {
    /// The share of queries that both answer correctly.
    both: f64,
    /// The share that only the tried version answers correctly.
    tried: f64,
    /// The share that only the current version answers correctly.
    current: f64,
}

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The outcomes of both on one query.
    fn pair(&mut self, of: Versions) -> (f64, f64) {
        let drawn = self.next();
        if drawn < of.both {
            (1.0, 1.0)
        } else if drawn < of.both + of.tried {
            (1.0, 0.0)
        } else if drawn < of.both + of.tried + of.current {
            (0.0, 1.0)
        } else {
            (0.0, 0.0)
        }
    }
}

/// Versions that err independently of each other.
fn apart(tried: f64, current: f64) -> Versions {
    Versions {
        both: tried * current,
        tried: tried * (1.0 - current),
        current: current * (1.0 - tried),
    }
}

/// The verdict on a version that is evaluated after each pair, and the number of pairs.
fn trial(draws: &mut Draws, of: Versions, most: u64) -> (Verdict, u64) {
    let rules = Rules {
        alpha: 0.05,
        minimum: 100,
        margin: 0.0,
        guards: Guards {
            errors: 0.01,
            late: 0.05,
            agreement: None,
        },
        promote: true,
    };
    let mut difference = Difference::new(&rules);
    for count in 1..=most {
        let (tried, current) = draws.pair(of);
        difference.pair(tried, current);
        let verdict = difference.verdict(&rules);
        if verdict != Verdict::Wait {
            return (verdict, count);
        }
    }
    (Verdict::Wait, most)
}

/// The median number of queries after which a worse version is rolled back. A version that is not rolled back counts as
/// infinite.
fn rollback_median(draws: &mut Draws, of: Versions, tests: usize) -> f64 {
    let count = |_| match trial(draws, of, MOST) {
        (Verdict::RollBack, count) => count as f64,
        _ => f64::INFINITY,
    };
    let mut counts: Vec<f64> = (0..tests).map(count).collect();
    counts.sort_by(f64::total_cmp);
    counts[tests / 2]
}

fn say(metric: &str, cell: &str, value: f64, unit: &str) {
    println!(
        "{{\"experiment\":\"learning\",\"cell\":\"{cell}\",\"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\"}}"
    );
}

fn main() {
    let tests = env::args().nth(1).and_then(|it| it.parse().ok());
    let tests: usize = tests.unwrap_or(1000);
    let mut draws = Draws(SEED);
    // As similar as two versions of one model, and as different as two that err independently.
    let alike = Versions {
        both: 0.85,
        tried: 0.02,
        current: 0.05,
    };
    let equal = Versions {
        tried: 0.05,
        ..alike
    };
    for (cell, of) in [("alike", equal), ("independent", apart(0.9, 0.9))] {
        let verdicts = (0..tests).map(|_| trial(&mut draws, of, 2000).0);
        let promoted = verdicts.filter(|it| *it == Verdict::Promote).count();
        let percent = 100.0 * promoted as f64 / tests as f64;
        say("false_promotions_percent", cell, percent, "%");
    }
    let worse = (tests / 5).max(1);
    for (cell, of) in [("alike", alike), ("independent", apart(0.87, 0.90))] {
        let median = rollback_median(&mut draws, of, worse);
        say("rollback_median_queries", cell, median, "queries");
    }
}
