//! How long each step takes, learnt from those that ran, and what that leaves for each.
//!
//! The time that a query has left is split over the steps of the longest way to the end in proportion to what they
//! took lately: slack goes where time goes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Graph;

/// The share of the newest in what is expected.
const NEWEST: f64 = 0.1;

/// What a step is taken for before any has run, ms.
const UNKNOWN_MS: f64 = 1.0;

/// What the steps of one pipeline took. Shared by its queries.
#[derive(Debug)]
pub(crate) struct Pace {
    /// By step: an exponential mean, ms, as the bits of an `f64`; 0 where none has run.
    steps: Box<[AtomicU64]>,
}

/// What lies ahead of each step, its own included, ms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemainingTime {
    expected: Vec<f64>,
    own: Vec<f64>,
}

// === impl Pace ===

impl Pace {
    /// Of a graph none of whose steps has run.
    pub fn new(graph: &Graph) -> Self {
        Self {
            steps: graph.nodes.iter().map(|_| AtomicU64::default()).collect(),
        }
    }

    /// A step took so long, ms.
    pub(crate) fn ran(&self, node: usize, ms: f64) {
        let Some(step) = self.steps.get(node) else {
            return;
        };
        // Two at once lose one of two figures of the same kind: that is as good.
        let before = f64::from_bits(step.load(Ordering::Relaxed));
        let after = match before > 0.0 {
            true => before + NEWEST * (ms - before),
            false => ms,
        };
        step.store(after.max(1e-6).to_bits(), Ordering::Relaxed);
    }

    /// What a step is expected to take, ms.
    pub(crate) fn expected(&self, node: usize) -> Option<f64> {
        let step = self.steps.get(node)?;
        Some(f64::from_bits(step.load(Ordering::Relaxed))).filter(|ms| *ms > 0.0)
    }

    /// What lies ahead of each step now.
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
    /// How much of the time that is left a step may take, ms.
    pub fn budget(&self, node: usize, left_ms: f64) -> f64 {
        left_ms * self.own[node] / self.expected[node]
    }
}
