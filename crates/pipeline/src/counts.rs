//! What became of the steps of queries, for metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use sextant_planning::Interval;

use crate::Graph;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It gave what it gives.
    Answered,
    /// It did not run.
    Skipped,
    /// It failed, whatever became of the query.
    Failed,
    /// The query was given up there for want of time or room: before the step or while it waited.
    Dropped,
}

/// What became of one step of all queries, since this version of its pipeline was read.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCounts<'a> {
    /// Its name.
    pub step: &'a str,
    /// How often each outcome came.
    pub outcomes: [(Outcome, u64); 4],
    /// Time of those that answered, added up.
    pub time: Duration,
    /// Time that these waited in queues, for loads and for processes.
    pub waited: Duration,
    /// How often it runs, and on how many rows.
    pub scale: StepScale,
}

/// How often a step runs, and on how many rows, of queries as they came; intervals at 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepScale {
    /// Queries that have come to it, or past it.
    pub queries: u64,
    /// Probability that a query runs it (InferLine's scale factor, section 4.3).
    pub visits: Interval,
    /// Probability that it runs where one of the steps before it gave something.
    pub probability: Interval,
    /// Rows of a query that runs it.
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
    /// Queries behind a step before it that gave something, of those of which it is known whether they run it.
    could: AtomicU64,
    /// Of those that answered: rows, and their squares.
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
            // Counters are read one after the other while queries run.
            probability: Interval::of_share(ran, read(&self.could).max(ran)),
            rows: Interval::of_mean(answered, rows, squares),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Answered, Self::Skipped, Self::Failed, Self::Dropped];

    /// As labels have it.
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
    /// Of a graph none of whose steps has run.
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

    /// A query passes a step; `could` where one before that gave something.
    pub fn skipped(&self, node: usize, could: bool) {
        self.add(node, Outcome::Skipped);
        if let (Some(counters), true) = (self.0.get(node), could) {
            counters.could.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a step runs; for each query and on one row where none has come to it.
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

    /// A step has answered so many rows after so many microseconds, of which it waited some.
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
