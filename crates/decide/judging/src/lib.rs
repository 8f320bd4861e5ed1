//! Whether a version that is tried becomes current or is rolled back.
//!
//! Entry point: [`judge`]. It takes the results of two versions and returns what becomes of the one that is tried, and
//! why.
//!
//! A test that is evaluated after every answer and stops at the first difference that seems clear is wrong much more
//! often than the error rate of a test of fixed size. All evidence here is therefore *anytime-valid*: it may be
//! evaluated after every answer, and the probability that it ever contradicts a true hypothesis is at most the stated
//! error rate. It comes from bets (Waudby-Smith and Ramdas, *Estimating means of bounded random variables by betting*,
//! 2024): a bettor against a true hypothesis has a probability of at most `alpha` of ever having `1 / alpha` times the
//! initial capital (Ville's inequality). That much capital ([`Bet`]) is evidence. The interval that is shown
//! ([`Interval`]) is their predictable plug-in empirical-Bernstein confidence sequence (theorem 2).
//!
//! **Invariant:** no clock, no I/O, no randomness: counts and values in, a verdict with its reasons out.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

mod bet;
mod interval;

pub use bet::{Bet, capital_above, capital_below};
pub use interval::Interval;

/// The version to which an outcome belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The current version.
    Current,
    /// The version that is tried.
    Tried,
}

/// The value of one answer, by a label or a reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The version that answered.
    pub version: Side,
    /// From 0, the worst, to 1.
    pub value: f64,
}

/// How a version is judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The highest probability that a version that is no better than asked is promoted, or that one that is no worse is
    /// rolled back, however often it is evaluated; above 0, below 1.
    pub alpha: f64,
    /// Answers of the tried version before any verdict other than a guard rail's.
    pub minimum: u64,
    /// By how much its outcomes may be worse on average for a promotion; with 0 it must be better.
    pub margin: f64,
    /// Limits that it must keep, whatever its outcomes are.
    pub guards: Guards,
    /// Whether it becomes current automatically if that is the verdict. It is rolled back automatically in any case.
    pub promote: bool,
}

/// Limits that end a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Guards {
    /// The share of its queries that may fail.
    pub errors: f64,
    /// The share of its queries that it may answer too late.
    pub late: f64,
    /// The share of the rows in which it must agree with the current version; `None` if it need not.
    pub agreement: Option<f64>,
}

/// The results of a version, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Queries that were sent to it.
    pub queries: u64,
    /// The queries that it failed.
    pub errors: u64,
    /// The queries that it answered too late, or that were refused because there was no time for them.
    pub late: u64,
    /// Rows that were compared with those of the current version.
    pub rows: u64,
    /// The rows that agree.
    pub agreeing: u64,
}

/// The evidence on the difference between the outcomes of two versions.
#[derive(Debug, Clone)]
pub struct Difference {
    /// A bet against: the tried version is worse than asked, or exactly as asked.
    better: Bet,
    /// A bet against: it is better than asked, or exactly as asked.
    worse: Bet,
    interval: Interval,
    margin: f64,
    /// Outcomes of each side without a partner, the latest last, for outcomes that come one by one.
    alone: [VecDeque<f64>; 2],
}

/// What becomes of the tried version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The trial continues.
    Wait,
    /// It becomes current.
    Promote,
    /// It no longer answers.
    RollBack,
}

/// A verdict with its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What becomes of the version.
    pub verdict: Verdict,
    /// The reason, in words.
    pub reason: String,
    /// All inputs.
    pub inputs: Vec<Input>,
}

/// One input of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// `errors`, `late`, `disagreement` or `difference`.
    pub what: &'static str,
    /// The share, or the mean difference.
    pub value: f64,
    /// The limit.
    pub threshold: f64,
    /// The number of observations.
    pub count: u64,
    /// The capital of the bet against the hypothesis that the input keeps its limit. From `1 / alpha` on it does not.
    pub evidence: f64,
}

/// The most outcomes of each side that wait for a partner.
const MOST_ALONE: usize = 4096;

/// Judges a version that is tried. Guard rails come first: a version that breaks one is rolled back, whatever its
/// outcomes are and from its first answers on. If no outcomes are known, the version is promoted once it is shown to
/// keep every guard rail.
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

/// Whether a version without outcomes is shown to keep each guard rail. A version that breaks one must win a bet that
/// it wins with a probability of at most `alpha`.
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

/// The guard rails. Each has an equal share of the error rate.
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
    /// Starts without evidence.
    pub fn new(rules: &Rules) -> Self {
        Self {
            better: Bet::above(-rules.margin, (-1.0, 1.0)),
            worse: Bet::below(-rules.margin, (-1.0, 1.0)),
            interval: Interval::new((-1.0, 1.0), rules.alpha),
            margin: rules.margin,
            alone: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// Takes in the outcomes of both versions on one query, each from 0 to 1. Values outside are clamped. A value that
    /// is not a number is left out.
    pub fn pair(&mut self, tried: f64, current: f64) {
        if tried.is_nan() || current.is_nan() {
            return;
        }
        let difference = tried.clamp(0.0, 1.0) - current.clamp(0.0, 1.0);
        self.better.observe(difference);
        self.worse.observe(difference);
        self.interval.observe(difference);
    }

    /// Takes in an outcome of one version alone, as of a canary. It is paired with the latest outcome of the other side
    /// that has no partner. Which query goes to which version was drawn, so any two outcomes of the same time make a
    /// pair. Outcomes of different times do not: if queries become harder for both versions, the one with fewer answers
    /// would be compared with the other's older answers. If there are more than 4,096 without a partner, the oldest are
    /// dropped. A value that is not a number is left out.
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

    /// The verdict from the outcomes alone.
    pub fn verdict(&self, rules: &Rules) -> Verdict {
        let enough = 1.0 / rules.alpha;
        match self.count() >= rules.minimum {
            true if self.worse.capital() >= enough => Verdict::RollBack,
            true if self.better.capital() >= enough => Verdict::Promote,
            _ => Verdict::Wait,
        }
    }

    /// The number of pairs of outcomes.
    pub fn count(&self) -> u64 {
        self.interval.count()
    }

    /// The mean difference. Above 0 the tried version is the better one.
    pub fn mean(&self) -> f64 {
        self.interval.mean()
    }

    /// The bounds of the mean difference at the rules' error rate, however often they are evaluated.
    pub fn bounds(&self) -> (f64, f64) {
        self.interval.bounds()
    }

    /// By how much the tried version may be worse.
    pub fn margin(&self) -> f64 {
        self.margin
    }
}
