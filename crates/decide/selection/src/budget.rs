//! The money that an application may spend on answers: a bucket that its budget fills.
//!
//! Each second the bucket gains the budget's price of a second. It holds at most [`WINDOW_S`] of the budget, so an
//! application whose queries come in bursts may spend a minute's worth at once. A query is charged its expected cost,
//! and the charge is corrected by the real cost. The bucket may therefore owe money for a while, and pays nothing
//! during that time. A query that costs more than the bucket holds is paid by a full bucket, which then owes the rest:
//! a small budget answers expensive queries rarely, not never.
//!
//! The expected cost of a query is the price that its variant lists for full batches, times the ratio of real to listed
//! cost of the queries before it. The ratio is needed because a lone query pays for a whole batch.
//!
//! Within any time `T` an application pays at most `budget (T + window)`. It may exceed that by one query that costs
//! more than the window's worth, and by what queries under way cost more than expected.

use sextant_types::time::Nanos;

/// The most of its budget that a bucket holds, s.
pub const WINDOW_S: f64 = 60.0;

/// Weight of the latest query in the ratio of real to listed cost.
const LATEST: f64 = 0.1;

/// Bounds of that ratio. A price that is a thousand times wrong is a wrong price.
const RATIOS: (f64, f64) = (0.01, 1000.0);

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// What an application has left to spend.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBucket {
    usd_per_s: f64,
    /// Negative while it owes.
    balance_usd: f64,
    until: Nanos,
    /// The real cost of queries per listed dollar.
    ratio: f64,
}

/// The amount that was taken for a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Charge {
    /// The price that its variant lists, US dollars.
    listed_usd: f64,
    /// The amount taken, US dollars.
    usd: f64,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full bucket, for a budget in US dollars an hour.
    pub fn new(budget_per_hour_usd: f64, now: Nanos) -> Self {
        let usd_per_s = per_second(budget_per_hour_usd);
        Self {
            usd_per_s,
            balance_usd: usd_per_s * WINDOW_S,
            until: now,
            ratio: 1.0,
        }
    }

    /// Changes the budget from now on. The amount that is missing from a full bucket remains missing.
    pub fn set_budget(&mut self, budget_per_hour_usd: f64, now: Nanos) {
        self.fill(now);
        let missing_usd = self.capacity_usd() - self.balance_usd;
        self.usd_per_s = per_second(budget_per_hour_usd);
        self.balance_usd = self.capacity_usd() - missing_usd;
    }

    /// The highest listed price at which a query can be paid now, US dollars: infinite for a full bucket, 0 for a
    /// budget of nothing.
    pub fn may_list_usd(&mut self, now: Nanos) -> f64 {
        self.fill(now);
        match self.usd_per_s > 0.0 && self.balance_usd >= self.capacity_usd() {
            true => f64::INFINITY,
            false => self.balance_usd.max(0.0) / self.ratio,
        }
    }

    /// Takes the expected cost of a query whose variant lists this price, US dollars. Returns `None` if it cannot be
    /// paid now. A query that costs nothing is always paid.
    pub fn charge(&mut self, listed_usd: f64, now: Nanos) -> Option<Charge> {
        let listed_usd = listed_usd.max(0.0);
        if listed_usd > self.may_list_usd(now) {
            return None;
        }
        let usd = listed_usd * self.ratio;
        self.balance_usd -= usd;
        Some(Charge { listed_usd, usd })
    }

    /// The query has been run and cost this much, US dollars.
    pub fn settle(&mut self, charge: Charge, cost_usd: f64) {
        let cost_usd = if cost_usd.is_finite() { cost_usd } else { 0.0 };
        let cost_usd = cost_usd.max(0.0);
        self.take_back(charge);
        self.balance_usd -= cost_usd;
        if charge.listed_usd > 0.0 {
            let ratio = (cost_usd / charge.listed_usd).clamp(RATIOS.0, RATIOS.1);
            self.ratio += LATEST * (ratio - self.ratio);
        }
    }

    /// The query was not run.
    pub fn take_back(&mut self, charge: Charge) {
        self.balance_usd = (self.balance_usd + charge.usd).min(self.capacity_usd());
    }

    /// Time until a query with this listed price can be paid, if no other query is; `None` if it never can.
    pub fn wait(&mut self, listed_usd: f64, now: Nanos) -> Option<Nanos> {
        if listed_usd <= self.may_list_usd(now) {
            return Some(0);
        }
        if self.usd_per_s <= 0.0 || listed_usd.is_nan() {
            return None;
        }
        let usd = (listed_usd * self.ratio).min(self.capacity_usd());
        let seconds = (usd - self.balance_usd).max(0.0) / self.usd_per_s;
        // Rounded up, so that a query that comes then is not a moment early.
        Some((seconds * SECOND).ceil() as Nanos + 1)
    }

    /// The amount that a full bucket holds, US dollars.
    fn capacity_usd(&self) -> f64 {
        self.usd_per_s * WINDOW_S
    }

    fn fill(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.until) as f64 / SECOND;
        self.until = self.until.max(now);
        let filled = self.balance_usd + seconds * self.usd_per_s;
        self.balance_usd = filled.min(self.capacity_usd());
    }
}

/// The amount per second of an hourly amount; 0 if the value is not an amount.
fn per_second(usd_per_hour: f64) -> f64 {
    match usd_per_hour.is_finite() {
        true => usd_per_hour.max(0.0) / 3600.0,
        false => 0.0,
    }
}
