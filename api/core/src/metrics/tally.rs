//! Sums over a variant's answers, for clients that ask for statistics by name.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use sextant_rpc::Answer;
use sextant_types::time::unix_ms;

/// Parts of a batch are counted in millionths.
const PARTS: f64 = 1e6;

/// Rows of the largest batch that is counted by its size.
const MOST_ROWS: usize = 64;

/// Sums over the answers of a variant.
#[derive(Debug)]
pub struct Tally {
    queries: AtomicU64,
    rows: AtomicU64,
    batch_parts: AtomicU64,
    total_ns: AtomicU64,
    queue_ns: AtomicU64,
    compute_ns: AtomicU64,
    last_ms: AtomicU64,
    /// Batches by their rows, from 1 on; a larger batch counts as the largest size.
    sizes: [Runs; MOST_ROWS],
}

/// Batches of one size.
#[derive(Debug, Default)]
struct Runs {
    parts: AtomicU64,
    compute_ns: AtomicU64,
}

/// The sums at one moment, of one variant or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Number of answers.
    pub queries: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of batches; each query counts its share of the batch's rows.
    pub batches: f64,
    /// Time from arrival to answer.
    pub total_ns: u64,
    /// Time waiting for a batch and a device.
    pub queue_ns: u64,
    /// Time running.
    pub compute_ns: u64,
    /// When the last one was answered, ms since the Unix epoch.
    pub last_ms: u64,
}

/// Batches of one size at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SizeTotals {
    /// Number of batches; each query counts its share of the batch's rows.
    pub batches: f64,
    /// Time that they ran in all.
    pub compute_ns: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            queries: AtomicU64::default(),
            rows: AtomicU64::default(),
            batch_parts: AtomicU64::default(),
            total_ns: AtomicU64::default(),
            queue_ns: AtomicU64::default(),
            compute_ns: AtomicU64::default(),
            last_ms: AtomicU64::default(),
            sizes: std::array::from_fn(|_| Runs::default()),
        }
    }
}

impl Tally {
    /// Counts an answer that took `elapsed`.
    pub fn count(&self, answer: &Answer, elapsed: Duration) {
        let timings = &answer.timings;
        let ns = |microseconds: f64| (microseconds * 1e3) as u64;
        let (rows, batch_rows) = (answer.rows.max(1), timings.batch_rows.max(1));
        // More than one if the query was split.
        let part = f64::from(rows) / f64::from(batch_rows);
        let size = (batch_rows as usize).min(MOST_ROWS);
        let runs = &self.sizes[size - 1];
        let total_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        for (sum, value) in [
            (&self.queries, 1),
            (&self.rows, u64::from(rows)),
            (&self.batch_parts, (part * PARTS) as u64),
            (&self.total_ns, total_ns),
            (&self.queue_ns, ns(timings.queue_us)),
            (&self.compute_ns, ns(timings.compute_us)),
            (&runs.parts, (part * PARTS) as u64),
            (&runs.compute_ns, ns(timings.compute_us * part)),
        ] {
            sum.fetch_add(value, Ordering::Relaxed);
        }
        self.last_ms.fetch_max(unix_ms(), Ordering::Relaxed);
    }

    /// Batches by their rows, for each size that has run.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, SizeTotals)> {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let sizes = self.sizes.iter().map(move |runs| SizeTotals {
            batches: read(&runs.parts) as f64 / PARTS,
            compute_ns: read(&runs.compute_ns),
        });
        (1..).zip(sizes).filter(|(_, of)| of.batches > 0.0)
    }

    /// The sums so far.
    pub fn totals(&self) -> Totals {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Totals {
            queries: read(&self.queries),
            rows: read(&self.rows),
            batches: read(&self.batch_parts) as f64 / PARTS,
            total_ns: read(&self.total_ns),
            queue_ns: read(&self.queue_ns),
            compute_ns: read(&self.compute_ns),
            last_ms: read(&self.last_ms),
        }
    }
}

impl SizeTotals {
    /// Number of batches of which at least a part is counted: of a batch whose queries are not all answered yet, only
    /// some shares are counted.
    pub fn begun(&self) -> u64 {
        self.batches.ceil() as u64
    }
}

impl Totals {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            rows: self.rows + other.rows,
            batches: self.batches + other.batches,
            total_ns: self.total_ns + other.total_ns,
            queue_ns: self.queue_ns + other.queue_ns,
            compute_ns: self.compute_ns + other.compute_ns,
            last_ms: self.last_ms.max(other.last_ms),
        }
    }
}
