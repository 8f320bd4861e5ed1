//! What verdicts are worth over many simulated trials, looked at after every answer; a line of JSON for each figure.
//!
//! `trials [TESTS]`: so many equal versions are tried, 1,000 by default, and a fifth as many that are worse by three points.
#![expect(clippy::print_stdout, reason = "prints its figures")]

use std::env;

use sextant_judging::{Difference, Guards, Rules, Verdict};

/// Of all draws.
const SEED: u64 = 44;

/// Pairs of a trial at most.
const MOST: u64 = 20_000;

/// Numbers from 0 to 1 that look random (SplitMix64).
struct Draws(u64);

/// How right two versions are, and how often the one is where the other is not.
#[derive(Clone, Copy)]
struct Versions {
    /// Share of queries that both answer rightly.
    both: f64,
    /// Share that the version that is tried alone answers rightly.
    tried: f64,
    /// Share that the current one alone answers rightly.
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

/// What becomes of a version that is looked at after each of so many pairs, and after how many.
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

/// The median of the queries after which a version that is worse is rolled back; one that is not counts as endless.
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
    // As like as two versions of one model are, and as unlike as two that err independently.
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
