//! How reliable the verdicts are, over many simulated trials.

use sextant_judging::{
    Bet, Difference, Guards, Interval, Outcome, Rules, Side, Tally, Verdict, capital_above, judge,
};

/// Pseudo-random numbers from 0 to 1 (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn right(&mut self, accuracy: f64) -> f64 {
        f64::from(self.next() < accuracy)
    }
}

fn rules() -> Rules {
    Rules {
        alpha: 0.05,
        minimum: 100,
        margin: 0.0,
        guards: Guards {
            errors: 0.01,
            late: 0.05,
            agreement: Some(0.8),
        },
        promote: true,
    }
}

/// The verdict on a version that is evaluated after every answer, and the number of pairs that it
/// took.
fn trial(draws: &mut Draws, (tried, current): (f64, f64), most: u64) -> (Verdict, u64) {
    let rules = rules();
    let mut difference = Difference::new(&rules);
    for count in 1..=most {
        let pair = (draws.right(tried), draws.right(current));
        difference.pair(pair.0, pair.1);
        let verdict = difference.verdict(&rules);
        if verdict != Verdict::Wait {
            return (verdict, count);
        }
    }
    (Verdict::Wait, most)
}

#[test]
fn an_equal_version_is_seldom_promoted_however_often_is_looked() {
    let mut draws = Draws(7);
    let all = (0..1000).map(|_| trial(&mut draws, (0.9, 0.9), 2000).0);
    let promoted = all.filter(|it| *it == Verdict::Promote).count();
    println!("{promoted} of 1,000 equal versions were promoted");
    assert!(promoted <= 50, "{promoted} of 1,000, seed 7");
}

#[test]
fn a_version_worse_by_three_points_is_rolled_back_within_two_thousand_pairs() {
    let mut draws = Draws(11);
    let mut counts: Vec<u64> = (0..200)
        .map(|_| match trial(&mut draws, (0.87, 0.90), 20_000) {
            (Verdict::RollBack, count) => count,
            _ => u64::MAX,
        })
        .collect();
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    println!("rolled back after a median of {median} pairs");
    assert!(median <= 2000, "{median} pairs, seed 11");
}

#[test]
fn a_better_version_is_promoted_and_the_interval_holds_the_truth() {
    let mut draws = Draws(3);
    let (verdict, count) = trial(&mut draws, (0.95, 0.90), 20_000);
    assert_eq!(verdict, Verdict::Promote);
    println!("promoted after {count} pairs");
    let missed = (0..300).filter(|_| {
        let mut interval = Interval::new((-1.0, 1.0), 0.05);
        (0..2000).any(|_| {
            interval.observe(draws.right(0.87) - draws.right(0.90));
            let (lower, upper) = interval.bounds();
            !(lower..=upper).contains(&-0.03)
        })
    });
    let missed = missed.count();
    assert!(
        missed <= 15,
        "{missed} of 300 ever leave the truth out, seed 3"
    );
}

#[test]
fn a_guard_rail_ends_a_trial_before_the_minimum() {
    let bad = Tally {
        queries: 20,
        errors: 6,
        ..Tally::default()
    };
    let judged = judge(&rules(), &bad, None);
    assert_eq!(judged.verdict, Verdict::RollBack, "{judged:?}");
    assert!(
        judged.reason.starts_with("errors: 0.3000 of 20"),
        "{}",
        judged.reason
    );
    let well = Tally {
        queries: 100_000,
        errors: 900,
        late: 4000,
        rows: 1000,
        agreeing: 810,
    };
    let judged = judge(&rules(), &well, None);
    assert_eq!(judged.verdict, Verdict::Wait, "{judged:?}");
    assert!(
        judged.reason.starts_with("disagreement"),
        "{}",
        judged.reason
    );
    let shown = Tally {
        agreeing: 900,
        ..well
    };
    let judged = judge(&rules(), &shown, None);
    assert_eq!(judged.verdict, Verdict::Promote, "{judged:?}");
    let apart = Tally {
        rows: 1000,
        agreeing: 700,
        ..Tally::default()
    };
    let judged = judge(&rules(), &apart, None);
    assert_eq!(judged.verdict, Verdict::RollBack, "{judged:?}");
    assert_eq!(judged.inputs[2].what, "disagreement");
}

#[test]
fn counts_are_worth_what_their_order_is() {
    let mut bet = Bet::above(0.1, (0.0, 1.0));
    for at in 0..50 {
        bet.observe(f64::from(at % 5 == 0));
    }
    let counted = capital_above(50, 10, 0.1);
    assert!((bet.capital() / counted - 1.0).abs() < 1e-9);
}

#[test]
fn outcomes_that_come_alone_find_partners() {
    let mut difference = Difference::new(&rules());
    for value in [1.0, 0.0, f64::NAN, 7.0] {
        difference.one(Outcome {
            version: Side::Tried,
            value,
        });
    }
    for _ in 0..5 {
        difference.one(Outcome {
            version: Side::Current,
            value: 1.0,
        });
    }
    assert_eq!(difference.count(), 3, "what is no number makes no pair");
    assert!((difference.mean() + 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_canary_is_no_worse_where_both_versions_become_worse() {
    let mut draws = Draws(5);
    let rules = rules();
    let rolled_back = (0..100).filter(|_| {
        let mut difference = Difference::new(&rules);
        (0..20_000u32).any(|at| {
            // One query of 20 goes to the canary, and the two versions are always equal.
            let version = match at % 20 {
                0 => Side::Tried,
                _ => Side::Current,
            };
            let value = draws.right(0.95 - 0.4 * f64::from(at) / 20_000.0);
            difference.one(Outcome { version, value });
            version == Side::Tried && difference.verdict(&rules) == Verdict::RollBack
        })
    });
    let rolled_back = rolled_back.count();
    assert!(rolled_back <= 10, "{rolled_back} of 100, seed 5");
}
