//! Money that an application may spend on answers: a bucket that its budget fills.
//!
//! It fills with the budget's price of a second each second and holds at most [`WINDOW_S`] of it: who
//! asks in bursts may spend a minute's worth at once. A query is charged with what it is expected to
//! cost and corrected by what it did cost, so the bucket may owe for a while, and pays nothing meanwhile.
//! A query that costs more than the bucket holds is paid by a full one, which then owes the rest: a small
//! budget answers dear queries rarely, not never.
//!
//! What a query is expected to cost is what its variant lists for full batches, times how much more or
//! less the queries before it did cost: a lone query pays for a whole batch.
//!
//! Within any time `T` an application pays at most `budget (T + window)`, and beyond it one query that
//! costs more than the window's worth and what queries under way cost more than expected.

use sextant_types::time::Nanos;

/// How much of its budget a bucket holds at most, s.
pub const WINDOW_S: f64 = 60.0;

/// Weight of the latest query in what queries cost beside what is listed.
const LATEST: f64 = 0.1;

/// Bounds of that ratio: a price that is a thousand times wrong is a wrong price.
const RATIOS: (f64, f64) = (0.01, 1000.0);

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// What an application has left to spend.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBucket {
    usd_per_s: f64,
    /// Below zero: it owes.
    balance_usd: f64,
    until: Nanos,
    /// What queries cost for each dollar that is listed.
    ratio: f64,
}

/// What was taken for a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Charge {
    /// What its variant lists, US dollars.
    listed_usd: f64,
    /// What was taken, US dollars.
    usd: f64,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full one, for a budget in US dollars an hour.
    pub fn new(budget_per_hour_usd: f64, now: Nanos) -> Self {
        let usd_per_s = per_second(budget_per_hour_usd);
        Self {
            usd_per_s,
            balance_usd: usd_per_s * WINDOW_S,
            until: now,
            ratio: 1.0,
        }
    }

    /// Another budget from now on. What is missing from a full bucket stays missing.
    pub fn set_budget(&mut self, budget_per_hour_usd: f64, now: Nanos) {
        self.fill(now);
        let missing_usd = self.capacity_usd() - self.balance_usd;
        self.usd_per_s = per_second(budget_per_hour_usd);
        self.balance_usd = self.capacity_usd() - missing_usd;
    }

    /// The most that a query may list to be paid now, US dollars: endless for a full bucket, 0 for a
    /// budget of nothing.
    pub fn may_list_usd(&mut self, now: Nanos) -> f64 {
        self.fill(now);
        match self.usd_per_s > 0.0 && self.balance_usd >= self.capacity_usd() {
            true => f64::INFINITY,
            false => self.balance_usd.max(0.0) / self.ratio,
        }
    }

    /// Takes what a query is expected to cost whose variant lists so much, US dollars; `None` where that
    /// cannot be paid now. What costs nothing is always paid.
    pub fn charge(&mut self, listed_usd: f64, now: Nanos) -> Option<Charge> {
        let listed_usd = listed_usd.max(0.0);
        if listed_usd > self.may_list_usd(now) {
            return None;
        }
        let usd = listed_usd * self.ratio;
        self.balance_usd -= usd;
        Some(Charge { listed_usd, usd })
    }

    /// The query has been run and cost so much, US dollars.
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

    /// Time until a query that lists so much can be paid if nothing else is; `None` where it never can.
    pub fn wait(&mut self, listed_usd: f64, now: Nanos) -> Option<Nanos> {
        if listed_usd <= self.may_list_usd(now) {
            return Some(0);
        }
        if self.usd_per_s <= 0.0 || listed_usd.is_nan() {
            return None;
        }
        let usd = (listed_usd * self.ratio).min(self.capacity_usd());
        let seconds = (usd - self.balance_usd).max(0.0) / self.usd_per_s;
        // Rounded up, so that whoever comes then is not a moment early.
        Some((seconds * SECOND).ceil() as Nanos + 1)
    }

    /// What a full bucket holds, US dollars.
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

/// Of an hour's worth; what is not an amount is nothing.
fn per_second(usd_per_hour: f64) -> f64 {
    match usd_per_hour.is_finite() {
        true => usd_per_hour.max(0.0) / 3600.0,
        false => 0.0,
    }
}
