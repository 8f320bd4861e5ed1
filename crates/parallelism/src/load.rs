//! How much arrives, and how unevenly.
//!
//! The paper "periodically updates its observed load" without saying how. A short window follows
//! steps and is noisy, a long one is steady and late. This estimator keeps a long window and cuts it
//! where the recent gaps are not those of the rest: the ratio of mean gaps is compared with its own
//! distribution, which is the wider the burstier the gaps are, so that bursts that have been there
//! all along are no change.

use std::collections::VecDeque;

use sextant_types::time::Nanos;

/// How load is estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadOptions {
    /// Most gaps that are remembered.
    pub window: usize,
    /// Deviations by which recent gaps must differ from older ones to count as a change.
    pub deviations: f64,
}

/// What arrives, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Requests per second.
    pub per_s: f64,
    /// Squared coefficient of variation of the gaps: 1 for Poisson arrivals.
    pub scv: f64,
    /// Index of dispersion of the gaps, which their order has a part in: bursts that last have a
    /// higher one than their variation alone tells. 1 for Poisson arrivals.
    pub dispersion: f64,
    /// Gaps since the last change that this is known from.
    pub gaps: usize,
}

/// Follows arrivals. A request and an estimate cost time in proportion to the window.
#[derive(Debug, Clone)]
pub struct LoadEstimator {
    options: LoadOptions,
    gaps_s: VecDeque<f64>,
    last: Option<Nanos>,
    since_check: usize,
    changes: u64,
}

/// Arrivals between two looks for a change.
const CHECK_EVERY: usize = 4;

/// Fewest recent gaps that can be a change, and the fewest older ones they are compared with.
const FEWEST: usize = 8;

/// Gaps are never taken to be more even than this: even ones need no such test.
const LEAST_DISPERSION: f64 = 0.25;

// === impl LoadOptions ===

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            window: 512,
            deviations: 4.5,
        }
    }
}

// === impl LoadEstimator ===

impl LoadEstimator {
    /// An estimator that has seen nothing.
    pub fn new(options: LoadOptions) -> Self {
        Self {
            options,
            gaps_s: VecDeque::new(),
            last: None,
            since_check: 0,
            changes: 0,
        }
    }

    /// A request arrived at `now`.
    pub fn arrived(&mut self, now: Nanos) {
        let Some(last) = self.last.replace(now) else {
            return;
        };
        self.gaps_s.push_back(now.saturating_sub(last) as f64 / 1e9);
        if self.gaps_s.len() > self.options.window.max(2 * FEWEST) {
            self.gaps_s.pop_front();
        }
        self.since_check += 1;
        if self.since_check >= CHECK_EVERY {
            self.since_check = 0;
            self.forget_before_change();
        }
    }

    /// The load at `now`. A silence that lasts longer than the mean gap counts as it grows.
    pub fn load(&self, now: Nanos) -> Load {
        let count = self.gaps_s.len();
        let Some(last) = self.last.filter(|_| count > 0) else {
            return Load::default();
        };
        let sum: f64 = self.gaps_s.iter().sum();
        let mean = sum / count as f64;
        let silence = now.saturating_sub(last) as f64 / 1e9;
        let sum = match silence > mean {
            true => sum + silence - mean,
            false => sum,
        };
        let (scv, dispersion) = variation(self.gaps_s.iter().copied());
        Load {
            per_s: count as f64 / sum.max(1e-9),
            scv,
            dispersion,
            gaps: count,
        }
    }

    /// The remembered gaps, oldest first, s.
    pub fn gaps_s(&self) -> impl Iterator<Item = f64> {
        self.gaps_s.iter().copied()
    }

    /// Changes that were found.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn forget_before_change(&mut self) {
        let count = self.gaps_s.len();
        let mut recent = FEWEST;
        while recent + FEWEST <= count {
            if self.differs(recent) {
                self.gaps_s.drain(..count - recent);
                self.changes += 1;
                return;
            }
            recent *= 2;
        }
    }

    /// Whether the last `recent` gaps are not of one kind with those before.
    fn differs(&self, recent: usize) -> bool {
        let older = self.gaps_s.len() - recent;
        let (sum_older, sum_recent) =
            self.gaps_s
                .iter()
                .enumerate()
                .fold((0.0, 0.0), |(old, new), (at, gap)| match at < older {
                    true => (old + gap, new),
                    false => (old, new + gap),
                });
        let mean = |sum: f64, count: usize| (sum / count as f64).max(1e-9);
        let ratio = mean(sum_recent, recent) / mean(sum_older, older);
        let shape = |count: usize, dispersion: f64| count as f64 / dispersion;
        let differs = |dispersion: f64| {
            let (new, old) = (shape(recent, dispersion), shape(older, dispersion));
            normal_of_ratio(ratio, new, old).abs() > self.options.deviations
        };
        if !differs(LEAST_DISPERSION) {
            return false;
        }
        // Of both parts apart, so that a change is not taken for burstiness.
        let (scv_older, dispersion) = variation(self.gaps_s.iter().copied().take(older));
        let (scv_recent, _) = variation(self.gaps_s.iter().copied().skip(older));
        differs(
            dispersion
                .max(scv_older)
                .max(scv_recent)
                .max(LEAST_DISPERSION),
        )
    }
}

/// How many deviations a ratio of two means is from 1, when the means are gamma distributed with
/// these shapes (Paulson's approximation of the F distribution, good in its tails).
fn normal_of_ratio(ratio: f64, shape: f64, other_shape: f64) -> f64 {
    let (a, b) = (1.0 / (9.0 * shape), 1.0 / (9.0 * other_shape));
    let root = ratio.cbrt();
    ((1.0 - b) * root - (1.0 - a)) / (b * root * root + a).sqrt()
}

/// Squared coefficient of variation and index of dispersion of gaps: the variance of the sum of k
/// neighbours over that of one if they were independent and exponential, for k of about the square
/// root of their number. Poisson values of fewer than two.
fn variation(gaps: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (count, sum) = gaps
        .clone()
        .fold((0_usize, 0.0), |(count, sum), gap| (count + 1, sum + gap));
    if count < 2 || sum <= 0.0 {
        return (1.0, 1.0);
    }
    let mean = sum / count as f64;
    let squares: f64 = gaps.clone().map(|gap| (gap - mean).powi(2)).sum();
    let scv = squares / (count - 1) as f64 / (mean * mean);

    let k = ((count as f64).sqrt() as usize).max(1);
    let (mut batch, mut within, mut batches, mut squares) = (0.0, 0, 0_usize, 0.0);
    for gap in gaps {
        batch += gap;
        within += 1;
        if within == k {
            squares += (batch - mean * k as f64).powi(2);
            batches += 1;
            (batch, within) = (0.0, 0);
        }
    }
    let dispersion = match batches {
        0 | 1 => scv,
        _ => squares / (batches - 1) as f64 / (k as f64 * mean * mean),
    };
    (scv, dispersion)
}
