//! Counts the outcomes of steps, for metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use sextant_planning::Interval;

use crate::Graph;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The step gave its outputs.
    Answered,
    /// The step did not run.
    Skipped,
    /// The step failed, whatever became of the query.
    Failed,
    /// The query was given up at the step because time or room was missing: before the step, or while the step waited.
    Dropped,
}

/// Counts of one step over all queries since this version of its pipeline was read.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCounts<'a> {
    /// The name of the step.
    pub step: &'a str,
    /// The count of each outcome.
    pub outcomes: [(Outcome, u64); 4],
    /// Sum of the times of answered steps.
    pub time: Duration,
    /// Sum of the times that answered steps waited in queues, for loads and for processes.
    pub waited: Duration,
    /// How often the step runs, and on how many rows.
    pub scale: StepScale,
}

/// How often a step runs and on how many rows, for the queries that came; intervals at 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepScale {
    /// Queries that reached or passed the step.
    pub queries: u64,
    /// Probability that a query runs the step (InferLine's scale factor, section 4.3).
    pub visits: Interval,
    /// Probability that a query runs the step, given that a step before it gave something.
    pub probability: Interval,
    /// Rows of a query that runs the step.
    pub rows: Interval,
}

/// Counters of the steps of one pipeline, in the order of its graph.
#[derive(Debug)]
pub(crate) struct Counts(Box<[Counters]>);

#[derive(Debug, Default)]
struct Counters {
    outcomes: [AtomicU64; 4],
    time_us: AtomicU64,
    waited_us: AtomicU64,
    /// Queries that ran the step, and queries that skipped it although a step before it gave something.
    could: AtomicU64,
    /// Over answered steps: the sum of rows, and the sum of their squares.
    rows: AtomicU64,
    squares: AtomicU64,
}

// === impl Counters ===

impl Counters {
    fn scale(&self) -> StepScale {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [answered, skipped, failed, _] =
            Outcome::ALL.map(|it| read(&self.outcomes[it as usize]));
        let ran = answered + failed;
        let (rows, squares) = (read(&self.rows) as f64, read(&self.squares) as f64);
        StepScale {
            queries: ran + skipped,
            visits: Interval::of_share(ran, ran + skipped),
            // The counters change while they are read one after the other.
            probability: Interval::of_share(ran, read(&self.could).max(ran)),
            rows: Interval::of_mean(answered, rows, squares),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Answered, Self::Skipped, Self::Failed, Self::Dropped];

    /// The outcome as a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

// === impl Counts ===

impl Counts {
    /// Counts for a graph none of whose steps has run.
    pub fn new(graph: &Graph) -> Self {
        Self(graph.nodes.iter().map(|_| Counters::default()).collect())
    }

    pub fn add(&self, node: usize, outcome: Outcome) {
        if let Some(counters) = self.0.get(node) {
            counters.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
            if matches!(outcome, Outcome::Answered | Outcome::Failed) {
                counters.could.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts a query that skips the step. `could` says that a step before it gave something.
    pub fn skipped(&self, node: usize, could: bool) {
        self.add(node, Outcome::Skipped);
        if let (Some(counters), true) = (self.0.get(node), could) {
            counters.could.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a step runs; until a query has reached it: in each query and on one row.
    pub fn scale(&self, node: usize) -> StepScale {
        let usual = Counters::default().scale();
        let known = self.0.get(node).map(Counters::scale);
        known
            .filter(|scale| scale.queries > 0)
            .unwrap_or(StepScale {
                visits: Interval {
                    value: 1.0,
                    ..usual.visits
                },
                probability: Interval {
                    value: 1.0,
                    ..usual.probability
                },
                ..usual
            })
    }

    /// Counts an answer of a step: its rows, its time and the part of the time that it waited, both in microseconds.
    pub fn answered(&self, node: usize, rows: u32, (time_us, waited_us): (f64, f64)) {
        self.add(node, Outcome::Answered);
        if let Some(counters) = self.0.get(node) {
            let rows = u64::from(rows);
            counters.rows.fetch_add(rows, Ordering::Relaxed);
            counters.squares.fetch_add(rows * rows, Ordering::Relaxed);
            counters
                .time_us
                .fetch_add(time_us as u64, Ordering::Relaxed);
            counters
                .waited_us
                .fetch_add(waited_us as u64, Ordering::Relaxed);
        }
    }

    pub fn of<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = StepCounts<'a>> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        graph
            .nodes
            .iter()
            .zip(&self.0)
            .map(move |(node, counters)| StepCounts {
                step: &node.name,
                outcomes: Outcome::ALL.map(|it| (it, read(&counters.outcomes[it as usize]))),
                time: Duration::from_micros(read(&counters.time_us)),
                waited: Duration::from_micros(read(&counters.waited_us)),
                scale: counters.scale(),
            })
    }
}
