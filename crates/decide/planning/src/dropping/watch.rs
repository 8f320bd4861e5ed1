//! Infers from the answers of a step how it runs, if nothing reports that: how long batches take, how large they get,
//! and how many of them run side by side for these queries.
//!
//! A front end sees only its own answers, and that suffices: the replicas that it counts are the share that its queries
//! get. Replicas are counted by the time for which the front end's rows keep them busy. If rows waited for longer than
//! they ran, no replica was idle, so the count is exact. Otherwise it is a lower bound.

use super::Stage;
use crate::Nanos;

/// The weight of earlier observations at each answer.
const KEPT: f64 = 0.98;

/// How far the count of replicas moves towards that of a window in which rows waited.
const MOVE: f64 = 0.3;

/// Length of a window, ns.
const WINDOW: Nanos = 200_000_000;

/// The fewest answers of a window that count.
const ENOUGH: u32 = 4;

/// The factor by which the largest batch shrinks in each window without a batch as large.
const SMALLER: f64 = 0.95;

/// The largest batch whose run time is given.
const MOST_ROWS: usize = 256;

/// The facts about a step are dropped if it has not answered for this long, ns, so that a step that has become quicker
/// is tried.
const STALE: Nanos = 2_000_000_000;

/// An answer of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRun {
    /// Rows that were asked for.
    pub rows: f64,
    /// Rows of the largest batch that contained some of them, at least 1.
    pub batch: u32,
    /// How long that batch ran, ns.
    pub run: Nanos,
    /// How long the rows waited for it, ns.
    pub waited: Nanos,
}

/// Observes the answers of a step; see the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// Fading sums over answers: their number, batch sizes, run times, squares of batch sizes, and products of batch
    /// size and run time.
    sums: [f64; 5],
    largest: f64,
    replicas: f64,
    /// When the last answer came.
    last: Nanos,
    window: Window,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Window {
    from: Nanos,
    answers: u32,
    /// The time for which rows kept replicas busy, ns.
    busy: f64,
    ran: f64,
    waited: f64,
    largest: f64,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            sums: [0.0; 5],
            largest: 1.0,
            replicas: 1.0,
            last: 0,
            window: Window::default(),
        }
    }
}

// === impl Watch ===

impl Watch {
    /// A step has answered at `now`.
    pub fn answered(&mut self, now: Nanos, of: StepRun) {
        let (batch, run) = (f64::from(of.batch.max(1)), of.run as f64);
        let news = [1.0, batch, run, batch * batch, batch * run];
        for (sum, new) in self.sums.iter_mut().zip(news) {
            *sum = *sum * KEPT + new;
        }
        self.largest = self.largest.max(batch);
        self.last = now;
        if self.window.answers > 0 && now.saturating_sub(self.window.from) >= WINDOW {
            self.close(now);
        }
        let window = &mut self.window;
        if window.answers == 0 {
            window.from = now;
        }
        window.answers += 1;
        window.busy += run * of.rows / batch;
        window.ran += run;
        window.waited += of.waited as f64;
        window.largest = window.largest.max(batch);
    }

    /// Counts the replicas from the window that ends.
    fn close(&mut self, now: Nanos) {
        let ended = std::mem::take(&mut self.window);
        if ended.answers < ENOUGH {
            return;
        }
        self.largest = ended.largest.max(self.largest * SMALLER);
        let busy = ended.busy / now.saturating_sub(ended.from).max(1) as f64;
        self.replicas = match ended.waited > ended.ran {
            true => self.replicas + MOVE * (busy - self.replicas),
            false => self.replicas.max(busy),
        };
    }

    /// Run time of a batch of this many rows: a line through the observations, flat if the batches were alike.
    fn run(&self, rows: f64) -> f64 {
        let [count, batches, runs, squares, products] = self.sums;
        let (batch, run) = (batches / count, runs / count);
        let spread = squares / count - batch * batch;
        let slope = match spread > 1e-3 {
            true => ((products / count - batch * run) / spread).max(0.0),
            false => 0.0,
        };
        // For small batches the line says little; in particular it does not say that they take no time.
        (run + slope * (rows - batch)).max(run * 0.1).max(1.0)
    }

    /// The step as it is known at `now`, with `pending` rows on their way to it. A step of which nothing is known takes
    /// no time.
    pub fn stage(&self, now: Nanos, pending: f64) -> Stage {
        let is_stale = pending <= 0.0 && now.saturating_sub(self.last) > STALE;
        let runs = match self.sums[0] > 0.0 && !is_stale {
            true => {
                let most = (self.largest.round() as usize).clamp(1, MOST_ROWS);
                (1..=most)
                    .map(|rows| self.run(rows as f64) as Nanos)
                    .collect()
            }
            false => vec![0],
        };
        Stage {
            after: Vec::new(),
            probability: 1.0,
            visits: 1.0,
            rows: 1.0,
            runs,
            replicas: self.replicas.max(1e-3),
        }
    }
}
