//! Learns how long each step takes, and computes the time budget of each step.
//!
//! The time that a query has left is split over the steps of the longest path to the end, in proportion to the time
//! that they took lately. So slack goes where time goes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Graph;

/// Weight of the newest time in the mean.
const NEWEST: f64 = 0.1;

/// Expected time of a step before it has run, ms.
const UNKNOWN_MS: f64 = 1.0;

/// The times that the steps of one pipeline took. Its queries share them.
#[derive(Debug)]
pub(crate) struct Pace {
    /// For each step: an exponential moving average, ms, as the bits of an `f64`; 0 where the step has not run.
    steps: Box<[AtomicU64]>,
}

/// For each step: the time of the longest path from the step to the end, the step included, ms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemainingTime {
    expected: Vec<f64>,
    own: Vec<f64>,
}

// === impl Pace ===

impl Pace {
    /// The pace of a graph none of whose steps has run.
    pub fn new(graph: &Graph) -> Self {
        Self {
            steps: graph.nodes.iter().map(|_| AtomicU64::default()).collect(),
        }
    }

    /// Records that a step took `ms` ms.
    pub(crate) fn ran(&self, node: usize, ms: f64) {
        let Some(step) = self.steps.get(node) else {
            return;
        };
        // Two concurrent updates lose one of two times of the same kind. The mean stays as good.
        let before = f64::from_bits(step.load(Ordering::Relaxed));
        let after = match before > 0.0 {
            true => before + NEWEST * (ms - before),
            false => ms,
        };
        step.store(after.max(1e-6).to_bits(), Ordering::Relaxed);
    }

    /// Expected time of a step, ms.
    pub(crate) fn expected(&self, node: usize) -> Option<f64> {
        let step = self.steps.get(node)?;
        Some(f64::from_bits(step.load(Ordering::Relaxed))).filter(|ms| *ms > 0.0)
    }

    /// The remaining time from each step on, as expected now.
    pub(crate) fn ahead(&self, graph: &Graph) -> RemainingTime {
        let count = graph.nodes.len();
        let own: Vec<f64> = (0..count)
            .map(|node| self.expected(node).unwrap_or(UNKNOWN_MS))
            .collect();
        let mut expected = own.clone();
        for node in (0..count).rev() {
            let behind = graph.nodes.iter().enumerate().skip(node + 1);
            let behind = behind.filter(|(_, other)| other.after.contains(&node));
            let most = behind.map(|(later, _)| expected[later]).fold(0.0, f64::max);
            expected[node] += most;
        }
        RemainingTime { expected, own }
    }
}

// === impl RemainingTime ===

impl RemainingTime {
    /// The part of the remaining time that a step may take, ms.
    pub fn budget(&self, node: usize, left_ms: f64) -> f64 {
        left_ms * self.own[node] / self.expected[node]
    }
}
