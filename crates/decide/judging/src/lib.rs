//! Whether a version that is tried is to answer from now on, or to go.
//!
//! Entry point: [`judge`], which gets what two versions have done and says what becomes of the one that is tried, and why.
//!
//! Whoever looks after every answer and stops at the first difference that seems clear is wrong much more often than a test
//! of a fixed size says. So all evidence here is *anytime-valid*: it may be looked at after every answer, and the chance that
//! it ever speaks against what is true is at most the stated error rate. It comes from bets (Waudby-Smith and Ramdas,
//! *Estimating means of bounded random variables by betting*, 2024): whoever bets against a hypothesis that is true has
//! no more than a chance of `alpha` of ever having `1 / alpha` times what they began with (Ville's inequality). So much
//! capital ([`Bet`]) is evidence, and the interval that is shown ([`Interval`]) is their predictable plug-in
//! empirical-Bernstein confidence sequence (theorem 2).
//!
//! **Invariant:** no clock, no I/O, no randomness: counts and values in, a verdict with its reasons out.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

mod bet;
mod interval;

pub use bet::{Bet, capital_above, capital_below};
pub use interval::Interval;

/// Which of two versions an outcome is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The current version.
    Current,
    /// The one that is tried.
    Tried,
}

/// What one answer was worth, as a label or a reward says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Whose answer it was.
    pub version: Side,
    /// From 0, worth nothing, to 1.
    pub value: f64,
}

/// How a version is judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Chance at most that a version which is no better than asked is promoted, and that one which is no worse is rolled
    /// back, however often is looked; above 0, below 1.
    pub alpha: f64,
    /// Answers of the version that is tried before anything but a guard rail is said.
    pub minimum: u64,
    /// By how much its outcomes may be worse on average for it to be promoted; 0: it must be better.
    pub margin: f64,
    /// What it must keep whatever its outcomes are.
    pub guards: Guards,
    /// Whether it becomes current by itself where that is the verdict; it is rolled back by itself in any case.
    pub promote: bool,
}

/// Limits that end a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Guards {
    /// Share of its queries that it may fail.
    pub errors: f64,
    /// Share of its queries that it may answer too late.
    pub late: f64,
    /// Share of the rows in which it must agree with the current version; `None`: no matter.
    pub agreement: Option<f64>,
}

/// What a version has done, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Queries that it was to answer.
    pub queries: u64,
    /// Of these, those that it failed.
    pub errors: u64,
    /// Of these, those that it answered too late, or that were refused because there was no time for them.
    pub late: u64,
    /// Rows that were compared with the current version's.
    pub rows: u64,
    /// Of these, those that agree.
    pub agreeing: u64,
}

/// What the outcomes of two versions say of each other.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Against: the version that is tried is worse than asked, or just as asked.
    better: Bet,
    /// Against: it is better, or just as asked.
    worse: Bet,
    interval: Interval,
    margin: f64,
    /// Outcomes of each side that have no partner yet, the latest last, for outcomes that come one by one.
    alone: [VecDeque<f64>; 2],
}

/// What becomes of the version that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is tried on.
    Wait,
    /// It becomes current.
    Promote,
    /// It answers no more.
    RollBack,
}

/// A verdict with what it was made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What becomes of the version.
    pub verdict: Verdict,
    /// Why now, in words.
    pub reason: String,
    /// Everything that was looked at.
    pub inputs: Vec<Input>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// `errors`, `late`, `disagreement` or `difference`.
    pub what: &'static str,
    /// The share, or the mean difference.
    pub value: f64,
    /// What it is held against.
    pub threshold: f64,
    /// How many it is of.
    pub count: u64,
    /// The capital of the bet against its being in order; from `1 / alpha` on it is not.
    pub evidence: f64,
}

/// Longest list of outcomes that wait for a partner, on each side.
const MOST_ALONE: usize = 4096;

/// What becomes of a version that is tried. Guard rails come first: a version that breaks one is rolled back, whatever
/// its outcomes are and from its first answers on. Where no outcomes are known, it is promoted once it is shown that it keeps
/// every one of them.
pub fn judge(rules: &Rules, tried: &Tally, difference: Option<&Difference>) -> Judgement {
    let enough = 1.0 / rules.alpha;
    let mut inputs = guards(rules, tried);
    if let Some(broken) = inputs.iter().find(|it| it.evidence >= enough) {
        let reason = format!(
            "{}: {:.4} of {}, where at most {:.4} is allowed (evidence {:.1} of {enough:.1})",
            broken.what, broken.value, broken.count, broken.threshold, broken.evidence
        );
        return Judgement {
            verdict: Verdict::RollBack,
            reason,
            inputs,
        };
    }
    let Some(difference) = difference else {
        let (verdict, reason) = by_guards(rules, &inputs);
        return Judgement {
            verdict,
            reason,
            inputs,
        };
    };
    let (verdict, reason) = by_difference(rules, difference);
    inputs.push(Input {
        what: "difference",
        value: difference.mean(),
        threshold: -rules.margin,
        count: difference.count(),
        evidence: difference.worse.capital().max(difference.better.capital()),
    });
    Judgement {
        verdict,
        reason,
        inputs,
    }
}

/// Whether a version without outcomes is shown to keep each guard rail. One that breaks any has to win a bet that it
/// loses but with a chance of `alpha`.
fn by_guards(rules: &Rules, inputs: &[Input]) -> (Verdict, String) {
    let enough = 1.0 / rules.alpha;
    let few = inputs.iter().find(|it| it.count < rules.minimum);
    if let Some(few) = few {
        let (what, count, minimum) = (few.what, few.count, rules.minimum);
        let reason = format!("{what}: {count} of the {minimum} answers that are the least");
        return (Verdict::Wait, reason);
    }
    let kept = |it: &Input| {
        let bad = (it.value * it.count as f64).round() as u64;
        capital_below(it.count, bad, it.threshold)
    };
    match inputs.iter().find(|it| kept(it) < enough) {
        Some(open) => {
            let reason = format!(
                "{}: {:.4} of {}, and that it is below {:.4} is not shown yet (evidence {:.1} of {enough:.1})",
                open.what,
                open.value,
                open.count,
                open.threshold,
                kept(open)
            );
            (Verdict::Wait, reason)
        }
        None => (
            Verdict::Promote,
            "it is shown to keep every limit, and no outcomes are known".to_owned(),
        ),
    }
}

fn by_difference(rules: &Rules, of: &Difference) -> (Verdict, String) {
    let verdict = of.verdict(rules);
    let enough = 1.0 / rules.alpha;
    let (lower, upper) = of.bounds();
    let seen = format!(
        "difference {:+.4} ({lower:+.4} to {upper:+.4}) over {} pairs of outcomes",
        of.mean(),
        of.count()
    );
    let said = match verdict {
        Verdict::RollBack => {
            let evidence = of.worse.capital();
            format!("it is worse than allowed (evidence {evidence:.1} of {enough:.1})")
        }
        Verdict::Promote => {
            let evidence = of.better.capital();
            format!("it is as good as asked (evidence {evidence:.1} of {enough:.1})")
        }
        Verdict::Wait if of.count() < rules.minimum => {
            format!("nothing is said below {} pairs", rules.minimum)
        }
        Verdict::Wait => "neither is shown yet".to_owned(),
    };
    (verdict, format!("{seen}: {said}"))
}

/// The guard rails. Each has a share of the error rate of its own, by the number of them.
fn guards(rules: &Rules, tried: &Tally) -> Vec<Input> {
    let of = |what, bad: u64, count: u64, most: f64| Input {
        what,
        value: bad as f64 / count.max(1) as f64,
        threshold: most,
        count,
        evidence: capital_above(count, bad, most),
    };
    let mut inputs = vec![
        of("errors", tried.errors, tried.queries, rules.guards.errors),
        of("late", tried.late, tried.queries, rules.guards.late),
    ];
    if let Some(least) = rules.guards.agreement {
        let differing = tried.rows.saturating_sub(tried.agreeing);
        inputs.push(of("disagreement", differing, tried.rows, 1.0 - least));
    }
    let guards = inputs.len() as f64;
    for input in &mut inputs {
        input.evidence /= guards;
    }
    inputs
}

// === impl Difference ===

impl Difference {
    /// Nothing is known yet.
    pub fn new(rules: &Rules) -> Self {
        Self {
            better: Bet::above(-rules.margin, (-1.0, 1.0)),
            worse: Bet::below(-rules.margin, (-1.0, 1.0)),
            interval: Interval::new((-1.0, 1.0), rules.alpha),
            margin: rules.margin,
            alone: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// The outcomes of both versions on one query, each from 0 to 1; others are cut to that. What is no number is left out.
    pub fn pair(&mut self, tried: f64, current: f64) {
        if tried.is_nan() || current.is_nan() {
            return;
        }
        let difference = tried.clamp(0.0, 1.0) - current.clamp(0.0, 1.0);
        self.better.observe(difference);
        self.worse.observe(difference);
        self.interval.observe(difference);
    }

    /// An outcome of one version alone, as of a canary: it is paired with the latest of the other side that has no partner.
    /// Which query goes to which version was drawn, so any two of one time make a pair. Those of different times do not:
    /// where queries become harder for both versions, the one with fewer answers would be held against what the other was
    /// long ago. Of those without a partner the oldest are left out beyond 4,096, and what is no number is.
    pub fn one(&mut self, outcome: Outcome) {
        if outcome.value.is_nan() {
            return;
        }
        let [current, tried] = &mut self.alone;
        let (own, other) = match outcome.version {
            Side::Current => (current, tried),
            Side::Tried => (tried, current),
        };
        let Some(partner) = other.pop_back() else {
            own.push_back(outcome.value);
            if own.len() > MOST_ALONE {
                own.pop_front();
            }
            return;
        };
        match outcome.version {
            Side::Current => self.pair(partner, outcome.value),
            Side::Tried => self.pair(outcome.value, partner),
        }
    }

    /// What the outcomes alone come to.
    pub fn verdict(&self, rules: &Rules) -> Verdict {
        let enough = 1.0 / rules.alpha;
        match self.count() >= rules.minimum {
            true if self.worse.capital() >= enough => Verdict::RollBack,
            true if self.better.capital() >= enough => Verdict::Promote,
            _ => Verdict::Wait,
        }
    }

    /// Pairs of outcomes.
    pub fn count(&self) -> u64 {
        self.interval.count()
    }

    /// The mean difference: above 0 the version that is tried is the better one.
    pub fn mean(&self) -> f64 {
        self.interval.mean()
    }

    /// Between which the mean difference lies, at the rules' error rate, however often is looked.
    pub fn bounds(&self) -> (f64, f64) {
        self.interval.bounds()
    }

    /// By how much it may be worse.
    pub fn margin(&self) -> f64 {
        self.margin
    }
}
