//! The number of rows that a replica can finish within its target, learned from its batches.

use std::collections::VecDeque;

use sextant_schedule::{NEVER, Nanos};

/// Additive increase, multiplicative decrease: one more row after a full batch within the target, a tenth less after a
/// batch that exceeds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aimd {
    rows: u32,
}

/// A line above 99 % of the run times, fitted to the last batches.
///
/// It minimises the pinball loss over a window. For a given slope the best intercept is a quantile of the residuals,
/// and the loss is convex in the slope, so the fit is a search along the slope. It runs once in many batches, so that
/// the cost for each batch is constant.
#[derive(Debug, Clone, Default)]
pub(super) struct Quantile {
    window: VecDeque<(u32, Nanos)>,
    /// Batches since the last fit.
    fresh: usize,
    /// Run time of zero rows, and increase for each row, ns.
    line: (f64, f64),
    /// Largest batch of the window.
    seen: u32,
}

// === impl Aimd ===

impl Default for Aimd {
    fn default() -> Self {
        Self { rows: 1 }
    }
}

impl Aimd {
    /// The limit on rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Learns that a batch of `rows` rows took `ran` ns, with `target` ns allowed.
    pub fn learn(&mut self, rows: u32, ran: Nanos, target: Nanos) {
        if ran > target {
            self.rows = (self.rows * 9 / 10).max(1);
        } else if rows >= self.rows {
            // Only a full batch says anything about a larger one.
            self.rows = self.rows.saturating_add(1).min(u32::MAX / 10);
        }
    }
}

// === impl Quantile ===

impl Quantile {
    const WINDOW: usize = 256;
    const REFIT: usize = 32;
    const SHARE: f64 = 0.99;

    /// The limit on rows for `target` ns. It is at most twice the largest batch seen, because the line is not known far
    /// beyond.
    pub fn rows(&self, target: Nanos) -> u32 {
        if self.window.is_empty() {
            return 1;
        }
        let most = self.seen.saturating_mul(2);
        if target == NEVER {
            return most;
        }
        let (base, slope) = self.line;
        let rows = (target as f64 - base) / slope.max(1.0);
        (rows.max(1.0) as u32).min(most)
    }

    /// Learns that a batch of `rows` rows took `ran` ns.
    pub fn learn(&mut self, rows: u32, ran: Nanos) {
        if self.window.len() == Self::WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((rows, ran));
        self.fresh += 1;
        // While there are few batches, every one causes a fit.
        if self.fresh >= Self::REFIT || self.fresh * 8 >= self.window.len() {
            self.fresh = 0;
            self.fit();
        }
    }

    fn fit(&mut self) {
        self.seen = self.window.iter().map(|of| of.0).max().unwrap_or(0);
        let least = self.window.iter().map(|of| of.0).min().unwrap_or(0);
        let per_row = |of: &(u32, Nanos)| of.1 as f64 / f64::from(of.0.max(1));
        let steepest = self.window.iter().map(per_row).fold(0.0, f64::max);
        if least == self.seen {
            // One size says nothing about others. The cautious assumption is that every row costs the same.
            self.line = (0.0, steepest);
            return;
        }
        let (mut low, mut high) = (0.0, steepest);
        for _ in 0..24 {
            let third = (high - low) / 3.0;
            if self.loss(low + third).1 <= self.loss(high - third).1 {
                high -= third;
            } else {
                low += third;
            }
        }
        let slope = f64::midpoint(low, high);
        self.line = (self.loss(slope).0, slope);
    }

    /// The best intercept for a slope, and the loss with it.
    fn loss(&self, slope: f64) -> (f64, f64) {
        let rest = |of: &(u32, Nanos)| of.1 as f64 - slope * f64::from(of.0);
        let mut rests: Vec<f64> = self.window.iter().map(rest).collect();
        let at = ((rests.len() as f64 * Self::SHARE).ceil() as usize).clamp(1, rests.len()) - 1;
        let (_, base, _) = rests.select_nth_unstable_by(at, f64::total_cmp);
        let base = *base;
        let loss = rests.iter().map(|rest| match rest - base {
            above if above > 0.0 => above * Self::SHARE,
            below => -below * (1.0 - Self::SHARE),
        });
        (base, loss.sum())
    }
}
