//! The report of a run.

use std::collections::BTreeMap;

use sextant_schedule::{DropReason, Nanos};

use super::histogram::Histogram;

/// The outcomes of a model's requests that arrived in the span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Arrived.
    pub sent: u64,
    /// Answered in time.
    pub good: u64,
    /// Answered too late.
    pub late: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Sent to a worker that could not start it within its window, or failed with it.
    pub failed: u64,
    /// Longest latency of an answer in time, ns.
    pub max_latency: Nanos,
    /// Latencies of answers, when kept.
    pub latencies: Histogram,
}

/// The use of a kind of devices by the batches that started in the span.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Rows that were run.
    pub rows: u64,
    /// Device time that they took, s.
    pub busy_s: f64,
    /// What that device time costs, US dollars.
    pub cost_usd: f64,
}

/// A run's result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// By model.
    pub models: Vec<Tally>,
    /// Latencies of all answers.
    pub latencies: Histogram,
    /// Time from arrival to the start of the batch.
    pub waits: Histogram,
    /// Device time spent in the span over device time available, 0 to 1.
    pub busy_share: f64,
    /// Batches started in the span, by rows.
    pub batches: BTreeMap<u32, u64>,
    /// By kind of device: its use and cost.
    pub kinds: Vec<Usage>,
    /// Length of the span, s.
    pub seconds: f64,
    /// Requests simulated, including the warm-up.
    pub simulated: u64,
    /// Whether the run ended early because of [`Span::most_missed`](super::Span::most_missed).
    pub stopped: bool,
}

/// The hot part of a [`Tally`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub sent: u64,
    pub good: u64,
    pub late: u64,
    pub dropped: [u64; REASONS.len()],
    pub failed: u64,
    pub max_latency: Nanos,
}

pub(super) const REASONS: [DropReason; 5] = [
    DropReason::Infeasible,
    DropReason::Expired,
    DropReason::Shed,
    DropReason::QueueFull,
    DropReason::Gone,
];

// === impl Counts ===

impl Counts {
    pub fn write(&self, tally: &mut Tally) {
        tally.sent = self.sent;
        tally.good = self.good;
        tally.late = self.late;
        tally.failed = self.failed;
        tally.max_latency = self.max_latency;
        let dropped = REASONS.iter().zip(self.dropped).filter(|(_, n)| *n > 0);
        tally.dropped = dropped.map(|(reason, n)| (*reason, n)).collect();
    }
}

// === impl Tally ===

impl Tally {
    /// The number of requests that were late, dropped or failed.
    pub fn missed(&self) -> u64 {
        self.late + self.failed + self.dropped.values().sum::<u64>()
    }

    /// Share of requests that were missed, 0 to 1; 0 if there are no requests.
    pub fn missed_share(&self) -> f64 {
        self.missed() as f64 / self.sent.max(1) as f64
    }
}

// === impl Report ===

impl Report {
    /// The largest share of missed requests of any model.
    pub fn worst_missed_share(&self) -> f64 {
        self.models
            .iter()
            .map(Tally::missed_share)
            .fold(0.0, f64::max)
    }

    /// Requests answered in time, per second.
    pub fn good_per_s(&self) -> f64 {
        let good: u64 = self.models.iter().map(|tally| tally.good).sum();
        good as f64 / self.seconds
    }

    /// Share of the rows that ran on devices other than those of the first kind, 0 to 1; 0 if there
    /// are no rows.
    pub fn dear_share(&self) -> f64 {
        let rows: u64 = self.kinds.iter().map(|usage| usage.rows).sum();
        let first = self.kinds.first().map_or(0, |usage| usage.rows);
        (rows - first) as f64 / rows.max(1) as f64
    }

    /// Price of the device time of a thousand rows, US dollars; 0 if there are no rows.
    pub fn cost_per_1k_usd(&self) -> f64 {
        let rows: u64 = self.kinds.iter().map(|usage| usage.rows).sum();
        let cost_usd: f64 = self.kinds.iter().map(|usage| usage.cost_usd).sum();
        1e3 * cost_usd / rows.max(1) as f64
    }

    /// Mean rows of a batch; 0 if there are no batches.
    pub fn mean_rows(&self) -> f64 {
        let batches: u64 = self.batches.values().sum();
        let rows: u64 = self
            .batches
            .iter()
            .map(|(rows, n)| u64::from(*rows) * n)
            .sum();
        rows as f64 / batches.max(1) as f64
    }
}
