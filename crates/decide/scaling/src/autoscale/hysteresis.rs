//! Rules that act after the latency was bad, or good, for several decisions.

use super::{Autoscaler, Change, Observation};

/// The number of decisions with a bad latency after which a replica is added.
const BAD: i32 = 3;

/// The number of decisions with a good latency after which one is removed, counted downwards.
const GOOD: i32 = -60;

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The latency was bad three times in a row.
    Up,
    /// It was good sixty times in a row.
    Down,
}

/// How often in a row the latency of a job was bad (positive) or good (negative).
#[derive(Debug, Clone, Copy, Default)]
pub struct Counter(i32);

/// One replica more or fewer.
#[derive(Debug, Clone)]
pub struct Aiad {
    target_ms: f64,
    counters: Vec<Counter>,
}

/// Multiplies the replicas by the ratio of latency to target.
#[derive(Debug, Clone)]
pub struct Oneshot {
    target_ms: f64,
    counters: Vec<Counter>,
}

/// One replica more after three bad latencies, in a row or not. It runs beside a planner.
#[derive(Debug, Clone)]
pub struct Reactive {
    target_ms: f64,
    bad: Vec<i32>,
}

// === impl Counter ===

impl Counter {
    /// Counts a mean latency.
    pub fn count(&mut self, latency_ms: f64, target_ms: f64) -> Option<Step> {
        let is_bad = latency_ms > target_ms;
        self.0 = match is_bad {
            true => self.0.max(0) + 1,
            false => self.0.min(0) - 1,
        };
        let step = match self.0 {
            BAD.. => Step::Up,
            ..=GOOD => Step::Down,
            _ => return None,
        };
        self.0 = 0;
        Some(step)
    }
}

// === impl Aiad ===

impl Aiad {
    /// For a target of `target_ms`.
    pub fn new(target_ms: f64) -> Self {
        let counters = Vec::new();
        Self {
            target_ms,
            counters,
        }
    }
}

impl Autoscaler for Aiad {
    fn decide(&mut self, _now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        steps(
            &mut self.counters,
            self.target_ms,
            jobs,
            |seen, step| match step {
                Step::Up => seen.desired + 1,
                Step::Down => seen.desired.saturating_sub(1),
            },
        )
    }
}

// === impl Oneshot ===

impl Oneshot {
    /// For a target of `target_ms`.
    pub fn new(target_ms: f64) -> Self {
        let counters = Vec::new();
        Self {
            target_ms,
            counters,
        }
    }
}

impl Autoscaler for Oneshot {
    fn decide(&mut self, _now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        let target_ms = self.target_ms;
        steps(&mut self.counters, target_ms, jobs, |seen, _| {
            let factor = seen.mean_latency_ms / target_ms;
            // The cast saturates.
            (f64::from(seen.desired) * factor).ceil() as u32
        })
    }
}

fn steps(
    counters: &mut Vec<Counter>,
    target_ms: f64,
    jobs: &[Observation<'_>],
    target: impl Fn(&Observation<'_>, Step) -> u32,
) -> Vec<Change> {
    counters.resize(jobs.len(), Counter::default());
    let jobs = counters.iter_mut().zip(jobs).enumerate();
    let changes = jobs.filter_map(|(job, (counter, seen))| {
        let step = counter.count(seen.mean_latency_ms, target_ms)?;
        Some(Change {
            job,
            target: target(seen, step),
            trials: 1,
        })
    });
    changes.collect()
}

// === impl Reactive ===

impl Reactive {
    /// For a target of `target_ms`.
    pub fn new(target_ms: f64) -> Self {
        let bad = Vec::new();
        Self { target_ms, bad }
    }

    /// The changes that the latencies require.
    pub fn decide(&mut self, jobs: &[Observation<'_>]) -> Vec<Change> {
        self.bad.resize(jobs.len(), 0);
        let mut changes = Vec::new();
        for (job, (bad, seen)) in self.bad.iter_mut().zip(jobs).enumerate() {
            if seen.busy || seen.mean_latency_ms <= self.target_ms {
                continue;
            }
            *bad += 1;
            if *bad >= BAD {
                *bad = 0;
                changes.push(Change {
                    job,
                    target: seen.desired + 1,
                    trials: 1,
                });
            }
        }
        changes
    }

    /// A plan was made, so earlier bad latencies no longer count.
    pub fn forget(&mut self) {
        self.bad.clear();
    }
}
