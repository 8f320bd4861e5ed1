//! How long each step takes, learnt from those that ran, and what that leaves for each.
//!
//! The time that a query has left is split over the steps of the longest way to the end in proportion to what they
//! took lately: slack goes where time goes. A query whose time does not suffice for what lies ahead of it is given up
//! before its next step, not after it (PARD section 3: drop by what lies downstream). What lies ahead is a low quantile of
//! what each step took, waits included, on the longest way that it must go: of queries with as little time left hardly one
//! in four would be answered in time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use sextant_planning::dropping::toward;
use sextant_rpc::Query;

use crate::Graph;

/// The share of the newest in what is expected.
const NEWEST: f64 = 0.1;

/// The share of runs that are quicker than what lies ahead is taken to be.
const QUICKER: f64 = 0.25;

/// How far one run moves that, as a share of it.
const MOVE: f64 = 0.05;

/// What is left of it after a query was given up for it.
const DOUBT: f64 = 0.9;

/// What a step is taken for before any has run, ms.
const UNKNOWN_MS: f64 = 1.0;

/// What the steps of one pipeline took. Shared by its queries.
#[derive(Debug)]
pub(crate) struct Pace {
    steps: Box<[StepPace]>,
}

#[derive(Debug, Default)]
struct StepPace {
    /// An exponential mean, ms, as the bits of an `f64`; 0 where none has run.
    expected: AtomicU64,
    /// What the quicker runs took of late, ms, alike.
    least: AtomicU64,
}

/// What lies ahead of each step, its own included, ms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ahead {
    expected: Vec<f64>,
    own: Vec<f64>,
    least: Vec<f64>,
}

// === impl Pace ===

impl Pace {
    /// Of a graph none of whose steps has run.
    pub fn new(graph: &Graph) -> Self {
        Self {
            steps: graph.nodes.iter().map(|_| StepPace::default()).collect(),
        }
    }

    /// A step took so long, ms.
    pub(crate) fn ran(&self, node: usize, ms: f64) {
        let Some(step) = self.steps.get(node) else {
            return;
        };
        let renew = |cell: &AtomicU64, next: &dyn Fn(f64) -> f64| {
            // Two at once lose one of two figures of the same kind: that is as good.
            let before = f64::from_bits(cell.load(Ordering::Relaxed));
            let after = if before > 0.0 { next(before) } else { ms };
            cell.store(after.max(1e-6).to_bits(), Ordering::Relaxed);
        };
        renew(&step.expected, &|before| before + NEWEST * (ms - before));
        renew(&step.least, &|before| {
            toward(before, ms, QUICKER, before * MOVE)
        });
    }

    /// A query was given up for what lies ahead: that is doubted a little, so that steps which became quicker are tried
    /// again.
    pub(crate) fn gave_up(&self) {
        for step in &self.steps {
            let least = f64::from_bits(step.least.load(Ordering::Relaxed));
            step.least
                .store((least * DOUBT).to_bits(), Ordering::Relaxed);
        }
    }

    /// What a step is expected to take, ms.
    pub(crate) fn expected(&self, node: usize) -> Option<f64> {
        let step = self.steps.get(node)?;
        Some(f64::from_bits(step.expected.load(Ordering::Relaxed))).filter(|ms| *ms > 0.0)
    }

    /// What lies ahead of each step now.
    pub(crate) fn ahead(&self, graph: &Graph) -> Ahead {
        let count = graph.nodes.len();
        let own: Vec<f64> = (0..count)
            .map(|node| self.expected(node).unwrap_or(UNKNOWN_MS))
            .collect();
        let of_least = |node: usize| f64::from_bits(self.steps[node].least.load(Ordering::Relaxed));
        let (mut expected, mut least) = (own.clone(), (0..count).map(of_least).collect::<Vec<_>>());
        for node in (0..count).rev() {
            let (mut most, mut most_least) = (0f64, 0f64);
            for (later, other) in graph.nodes.iter().enumerate().skip(node + 1) {
                // A step that may be skipped takes no time for certain.
                if other.after.contains(&node) {
                    most = most.max(expected[later]);
                    let is_certain = other.condition.is_none();
                    most_least = most_least.max(if is_certain { least[later] } else { 0.0 });
                }
            }
            expected[node] += most;
            least[node] += most_least;
        }
        Ahead {
            expected,
            own,
            least,
        }
    }
}

// === impl Ahead ===

impl Ahead {
    /// How much of the time that is left a step may take, ms.
    pub fn budget(&self, node: usize, left_ms: f64) -> f64 {
        left_ms * self.own[node] / self.expected[node]
    }

    /// When a step of a query must have ended so that what follows it can, where that is quick.
    pub fn until(&self, node: usize, query: &Query) -> Option<Instant> {
        let later_ms = (self.least[node] - self.own[node]).max(0.0);
        let ms = (query.targets.latency_ms? - later_ms).max(0.0);
        let latency = Duration::try_from_secs_f64(ms / 1e3).ok()?;
        query.arrived.checked_add(latency)
    }

    /// What a step and what must follow it take where they are quick, ms.
    pub fn least(&self, node: usize) -> f64 {
        self.least[node]
    }
}
